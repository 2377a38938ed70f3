from __future__ import annotations

import json

import pytest
from perf.bench.results import Failure, Figure, Measurement, Results, figure, merged, percentile


def results(*rows: tuple[str, str, dict[str, float]]) -> Results:
    measured = [Measurement(server, workload, run, values, 0.5, 0.0) for run, (server, workload, values) in enumerate(rows, 1)]
    return Results({}, {"apache": "Apache Kafka", "pybroker": "pybroker"}, {"single": "Single records"}, {}, measured)


@pytest.mark.parametrize(("percent", "expected"), [(1, 1), (50, 50), (99, 99), (99.5, 100), (100, 100)])
def test_a_percentile_is_a_value_that_was_measured(percent: float, expected: int) -> None:
    assert percentile(range(1, 101), percent) == expected


def test_the_percentiles_of_one_value_are_that_value() -> None:
    assert percentile([7.0], 50) == percentile([7.0], 99) == 7.0


def test_a_figure_is_the_median_with_the_least_and_the_most() -> None:
    assert figure([3.0, 1.0, 8.0]) == Figure(3.0, 1.0, 8.0, 3)


def test_there_is_no_figure_of_nothing() -> None:
    assert figure([]) is None


def test_a_ratio_is_one_of_medians() -> None:
    found = results(
        ("apache", "single", {"p99_ms": 10.0}),
        ("apache", "single", {"p99_ms": 12.0}),
        ("apache", "single", {"p99_ms": 90.0}),
        ("pybroker", "single", {"p99_ms": 3.0}),
    )
    assert found.ratio("single", "p99_ms", "pybroker", "apache") == 0.25


def test_there_is_no_ratio_to_what_was_not_measured() -> None:
    found = results(("pybroker", "single", {"p99_ms": 3.0}))
    assert found.ratio("single", "p99_ms", "pybroker", "apache") is None


def test_results_survive_the_json_file() -> None:
    found = results(("apache", "single", {"p99_ms": 10.0}))
    found.failures.append(Failure("pybroker", "single", 1, "ConnectionError: no"))
    assert Results.from_json(json.loads(json.dumps(found.as_json()))) == found


def part(when: str, *rows: tuple[str, str, int, float], servers: tuple[str, ...] = ("apache", "pybroker")) -> Results:
    measured = [Measurement(server, workload, run, {"seconds": value}, 0.5, 0.0) for server, workload, run, value in rows]
    return Results({"when": when}, {name: name for name in servers}, {row[1]: row[1].title() for row in rows}, {}, measured)


class TestParts:
    def test_parts_of_other_workloads_become_one_report_in_the_order_of_the_workloads(self) -> None:
        late = part("10:00", ("apache", "late", 1, 8.0), ("pybroker", "late", 1, 2.0))
        early = part("10:05", ("apache", "early", 1, 4.0), ("pybroker", "early", 1, 2.0))
        found = merged([late, early], ["early", "late", "never"])
        assert found.workloads == {"early": "Early", "late": "Late"}
        assert found.machine["when"] == "10:00 to 10:05"
        assert (
            found.ratio("late", "seconds", "pybroker", "apache"),
            found.ratio("early", "seconds", "pybroker", "apache"),
        ) == (
            0.25,
            0.5,
        )

    def test_parts_of_the_same_workload_are_further_runs_of_it(self) -> None:
        one = part("10:00", ("apache", "a", 1, 8.0), ("pybroker", "a", 1, 2.0))
        two = part(
            "10:05", ("apache", "a", 1, 4.0), ("pybroker", "a", 1, 1.0), ("apache", "a", 2, 6.0), ("pybroker", "a", 2, 3.0)
        )
        found = merged([one, two], ["a"])
        assert found.figure("apache", "a", "seconds") == Figure(6.0, 4.0, 8.0, 3)
        assert sorted({row.run for row in found.measurements}) == [1, 2, 3]

    def test_the_failures_and_the_cold_of_every_part_are_told(self) -> None:
        one, two = part("10:00", ("apache", "a", 1, 8.0)), part("10:00", ("apache", "b", 1, 8.0))
        two.failures.append(Failure("pybroker", "b", 1, "no"))
        two.cold.append("apache")
        found = merged([one, two], ["a", "b"])
        assert (found.failures, found.cold) == (two.failures, ["apache"])

    def test_what_was_not_measured_side_by_side_is_not_compared(self) -> None:
        one = part("10:00", ("apache", "a", 1, 8.0))
        with pytest.raises(ValueError, match="a was measured of"):
            merged([one, part("10:05", ("pybroker", "a", 1, 2.0))], ["a"])

    def test_a_server_that_only_one_part_has_is_compared_in_that_part(self) -> None:
        one = part("10:00", ("apache", "a", 1, 8.0))
        two = part("10:05", ("apache", "b", 1, 2.0), ("kfake", "b", 1, 1.0), servers=("apache", "kfake"))
        two.warm_ups["kfake"] = {"small fetch": [3.0]}
        found = merged([one, two], ["a", "b"])
        assert [*found.servers] == ["apache", "pybroker", "kfake"]
        assert found.ratio("b", "seconds", "kfake", "apache") == 0.5
        assert found.ratio("a", "seconds", "kfake", "apache") is None
        assert found.warm_ups == two.warm_ups
