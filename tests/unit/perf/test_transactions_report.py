"""What transactions cost, from the rates of the same client with and without them."""

from __future__ import annotations

import pytest
from perf.bench.results import Measurement, Results
from perf.bench.transactions_report import cost, costs, markdown, text


@pytest.fixture
def results() -> Results:
    machine = {"when": "today", "processor": "2 x any", "memory": "8 GiB", "kernel": "Linux", "python": "3.11"}
    servers = {"apache": "Apache Kafka", "pybroker": "pybroker"}
    rates = {
        ("apache", "one-in-flight"): 100.0,
        ("apache", "five-in-flight"): 200.0,
        ("apache", "transactional"): 150.0,
        ("pybroker", "one-in-flight"): 300.0,
        ("pybroker", "five-in-flight"): 400.0,
        ("pybroker", "transactional"): 290.0,
    }
    made = Results(machine, servers, {f"java {mode}": mode for _, mode in rates})
    for (server, mode), rate in rates.items():
        made.measurements.append(Measurement(server, f"java {mode}", 1, {"records_per_s": rate}, 0.0, 0.0))
    return made


def test_the_cost_is_the_part_that_is_lost_and_below_zero_if_something_is_gained(results: Results) -> None:
    assert cost(results, "apache", "java", "one-in-flight") == pytest.approx(-0.5)
    assert cost(results, "pybroker", "java", "five-in-flight") == pytest.approx(0.275)


def test_the_best_runs_have_a_cost_of_their_own(results: Results) -> None:
    results.measurements.append(Measurement("pybroker", "java transactional", 2, {"records_per_s": 390.0}, 0.0, 0.0))
    assert cost(results, "pybroker", "java", "five-in-flight") == pytest.approx(1 - 340 / 400)
    assert cost(results, "pybroker", "java", "five-in-flight", of_best=True) == pytest.approx(1 - 390 / 400)


def test_a_client_that_was_not_measured_has_no_cost(results: Results) -> None:
    assert cost(results, "pybroker", "confluent", "one-in-flight") is None
    assert {row[0] for row in costs(results)} == {"Java producer"}


def test_the_verdict_is_on_what_was_published(results: Results) -> None:
    cheap, dear = costs(results)
    assert cheap[2:] == ["3%", "-50.0% (-50.0%)", "3.3% (3.3%)", "**missed**"]
    assert dear[2:] == ["20%", "25.0% (25.0%)", "27.5% (27.5%)", "**missed**"]
    results.measurements[-1].values["records_per_s"] = 320.0
    assert [row[-1] for row in costs(results)] == ["met", "met"]


def test_both_reports_have_every_figure(results: Results) -> None:
    for report in (text(results), markdown(results)):
        assert "27.5%" in report
        assert "records/s" in report
        assert "290" in report
