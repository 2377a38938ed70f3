from __future__ import annotations

from perf.bench.report import plain_markdown, text
from perf.bench.results import Measurement, Results
from perf.bench_groups.__main__ import BARS, TITLES, merged

MACHINE = {"when": "today", "processor": "2 x Chip", "memory": "8 GiB", "kernel": "Linux 6", "python": "3.11"}


def results(**figures: tuple[str, float, float]) -> Results:
    """By workload: a metric, with Apache Kafka's value and pybroker's."""
    rows = [
        Measurement(server, name, 1, {metric: value}, 0.5, 0.0)
        for name, (metric, *values) in figures.items()
        for server, value in zip(("apache", "pybroker"), values, strict=True)
    ]
    servers = {"apache": "Apache Kafka", "pybroker": "pybroker"}
    return Results(MACHINE, servers, {name: TITLES[name] for name in figures}, measurements=rows)


def test_every_bar_is_of_a_workload() -> None:
    assert {bar.workload for bar in BARS} <= set(TITLES)


def test_a_bar_is_a_ratio_or_a_figure_of_its_own() -> None:
    found = results(commits=("requests_per_s", 10_000.0, 30_000.0), heartbeats=("core_percent", 20.0, 16.0))
    document = plain_markdown("Groups", found, "make bench-groups", BARS, "So.")
    assert f"| {TITLES['commits']} | requests/s | Apache Kafka | ≥ 1 | 3 | met |" in document
    assert f"| {TITLES['heartbeats']} | % of a core | itself | ≤ 15.0 | 16.0 | **missed** |" in document
    assert f"| {TITLES['commits']} | requests/s | 10,000 | 30,000 | 3 |" in document
    assert "**missed**" in text(found, BARS)


def test_what_was_not_measured_again_stays_in_the_order_of_the_table() -> None:
    former = results(commits=("requests_per_s", 1.0, 2.0), shrink=("seconds", 3.0, 4.0))
    found = merged(former, results(commits=("requests_per_s", 10.0, 20.0), heartbeats=("core_percent", 5.0, 6.0)))
    assert list(found.workloads) == ["heartbeats", "commits", "shrink"]
    assert list(found.servers) == ["apache", "pybroker"]
    assert found.ratio("commits", "requests_per_s", "pybroker", "apache") == 2.0
    assert [row.values["requests_per_s"] for row in found.measurements if row.workload == "commits"] == [10.0, 20.0]
    assert [row.values["seconds"] for row in found.measurements if row.workload == "shrink"] == [3.0, 4.0]
