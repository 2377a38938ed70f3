from __future__ import annotations

from perf.bench.bars import BARS, CLUSTER_BARS, Bar, Verdict, judged, verdict
from perf.bench.cluster_workloads import CLUSTER_WORKLOADS
from perf.bench.results import METRIC, Measurement, Results
from perf.bench.workloads import WORKLOADS

COST = Bar("single", "cpu_us_per_request", 0.5)
RATE = Bar("single", "requests_per_s", 1.8)


def test_a_cost_meets_its_bar_at_the_limit_and_below() -> None:
    assert [verdict(COST, value) for value in (0.3, 0.5, 0.51)] == [Verdict.MET, Verdict.MET, Verdict.MISSED]


def test_a_rate_meets_its_bar_at_the_limit_and_above() -> None:
    assert [verdict(RATE, value) for value in (2.5, 1.8, 1.79)] == [Verdict.MET, Verdict.MET, Verdict.MISSED]


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    assert verdict(COST, None) is Verdict.UNKNOWN


def test_every_bar_is_on_a_workload_and_a_figure_that_exist() -> None:
    names = {row.name for row in WORKLOADS}
    assert [bar for bar in BARS if bar.workload not in names or not METRIC[bar.metric].better] == []


def test_every_bar_of_a_cluster_is_on_a_workload_and_a_figure_that_exist() -> None:
    names = {workload.name for workload in CLUSTER_WORKLOADS}
    assert {bar.workload for bar in CLUSTER_BARS} <= names
    assert {bar.metric for bar in CLUSTER_BARS} <= METRIC.keys()


def test_a_bar_on_the_figure_itself_needs_no_other_server() -> None:
    start = Measurement("pybroker", "start", 1, {"seconds": 0.7}, 0.0, 0.0)
    found = Results({}, {"pybroker": "pybroker"}, {"start": "Start"}, {}, [start])
    verdicts = {row.bar.against: row.verdict for row in judged(found) if row.bar.workload == "start"}
    assert verdicts == {"apache": Verdict.UNKNOWN, None: Verdict.MISSED}
