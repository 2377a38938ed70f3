from __future__ import annotations

from xml.etree import ElementTree

import pytest
from perf.bench.bars import CLUSTER_BARS
from perf.bench.plot import Panel, Row, plot
from perf.bench.report import cluster_markdown, markdown, number, panels, shown, text
from perf.bench.results import Failure, Figure, Measurement, Results

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def results() -> Results:
    measured = [
        Measurement("apache", "single", 1, {"requests_per_s": 20_000.0, "cpu_us_per_request": 50.0, "p99_ms": 4.0}, 0.5, 0.0),
        Measurement("apache", "single", 2, {"requests_per_s": 24_000.0, "cpu_us_per_request": 54.0, "p99_ms": 5.0}, 1.5, 2.0),
        Measurement("pybroker", "single", 1, {"requests_per_s": 55_000.0, "cpu_us_per_request": 13.0, "p99_ms": 2.0}, 0.5, 0.0),
        Measurement("pybroker", "single", 2, {"client_cores": 0.6}, 0.5, 0.0),
    ]
    machine = {"when": "today", "processor": "2 x Chip", "memory": "8 GiB", "kernel": "Linux 6", "python": "3.11"}
    servers = {"apache": "Apache Kafka", "pybroker": "pybroker"}
    return Results(machine, servers, {"single": "Single records"}, {"kfake": "go is not installed"}, measured)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0"), (0.001234, "0.00123"), (1.234, "1.23"), (12.34, "12.3"), (123.4, "123"), (12345.6, "12,346")],
)
def test_numbers_show_what_matters(value: float, expected: str) -> None:
    assert number(value) == expected


def test_one_run_has_no_spread() -> None:
    assert [shown(None), shown(Figure(2, 2, 2, 1)), shown(Figure(2, 1, 3, 3))] == ["–", "2", "2 (1–3)"]


def test_the_table_has_medians_spread_and_ratio(results: Results) -> None:
    assert "| Single records | requests/s | 22,000 (20,000–24,000) | 55,000 | 2.5 |" in markdown(results, "x", "p.svg")


def test_the_document_tells_bars_noise_and_what_is_missing(results: Results) -> None:
    results.failures.append(Failure("pybroker", "start", 2, "AssertionError: it ended\nwith more lines"))
    results.warm_ups["apache"] = {"single-record request": [70.5, 30.0], "small fetch": [90.0]}
    found = markdown(results, "make bench", "p.svg")
    assert "| Single records | requests/s | Apache Kafka | ≥ 1.8 | 2.5 | met |" in found
    assert "load average was 0.5 to 1.5" in found
    assert "took 2 % of the processors" in found
    assert "The client took 0.6 cores at most" in found
    assert "kfake is left out: go is not installed." in found
    assert "Failed: start of pybroker, run 2: AssertionError: it ended\n" in found
    assert "- Warm-up of Apache Kafka, CPU µs per single-record request, slice by slice: 70.5, 30.0." in found
    assert "- Warm-up of Apache Kafka, CPU µs per small fetch, slice by slice: 90.0." in found
    assert "![Ratios to Apache Kafka](p.svg)" in found


def test_a_cluster_is_judged_by_its_own_bars(results: Results) -> None:
    results.workloads = {"replicated-16k": "Small batches"}
    results.measurements = [
        Measurement("apache", "replicated-16k", 1, {"mb_per_s": 20.0, "cpu_us_per_record": 60.0}, 0.5, 0.0),
        Measurement("pybroker", "replicated-16k", 1, {"mb_per_s": 50.0, "cpu_us_per_record": 40.0}, 0.5, 0.0),
    ]
    found = cluster_markdown(results, "make bench-cluster")
    assert "| Small batches | MB/s | Apache Kafka | ≥ 1.5 | 2.5 | met |" in found
    assert "| Small batches | CPU µs/record | Apache Kafka | ≤ 0.5 | 0.667 | **missed** |" in found
    assert "Single records" not in found
    assert "Small batches" in text(results, CLUSTER_BARS)


def test_one_server_alone_has_no_ratios_to_plot(results: Results) -> None:
    del results.servers["pybroker"]
    assert "Ratios to" not in markdown(results, "x", "p.svg")


def test_a_server_that_was_not_warm_is_named_before_any_verdict(results: Results) -> None:
    assert "was not warm" not in markdown(results, "x", "p.svg") + text(results)
    results.cold.append("apache")
    for found in (markdown(results, "x", "p.svg"), text(results)):
        assert 0 <= found.index("**Apache Kafka was not warm yet**") < found.index("≥ 1.8")


def test_what_is_only_told_has_no_row(results: Results) -> None:
    assert "client cores" not in markdown(results, "x", "p.svg")


def test_the_terminal_gets_the_same_figures(results: Results) -> None:
    (row,) = [line for line in text(results).splitlines() if "p99 ms" in line and line.startswith("Single")]
    assert row.split()[-4:] == ["4.5", "(4–5)", "2", "0.444"]


def test_the_plot_has_a_row_for_cost_rate_and_p99_with_the_bars(results: Results) -> None:
    found = {panel.title: panel.rows for panel in panels(results)}
    assert found == {
        "Cost: less is better": [Row("Single records: CPU µs/request", [0.25], 0.5)],
        "Throughput: more is better": [Row("Single records: requests/s", [2.5], 1.8)],
        "p99: less is better": [Row("Single records: p99 ms", [pytest.approx(4 / 9)], None)],
    }


def test_a_plot_is_xml_with_a_dot_for_each_ratio() -> None:
    tree = ElementTree.fromstring(
        plot(["a < b", "c"], [Panel("Cost", [Row("x & y", [0.25, None], 0.5), Row("z", [1.0, 4.0])])])
    )
    texts = [node.text for node in tree.iter(f"{SVG}text")]
    assert {"a < b", "c", "Cost", "x & y", "z", "1/4", "1", "4"} <= set(texts)
    dots = [float(node.attrib["cx"]) for node in tree.iter(f"{SVG}circle")][2:]  # two are of the legend
    quarter, one, four = dots
    assert quarter < one < four
    assert one - quarter == pytest.approx(four - one, abs=0.2)


def test_a_plot_reaches_as_far_as_its_farthest_dot() -> None:
    tree = ElementTree.fromstring(plot(["a"], [Panel("Cost", [Row("x", [0.003]), Row("y", [40.0])])]))
    width = float(tree.attrib["width"])
    assert all(0 < float(node.attrib["cx"]) < width for node in tree.iter(f"{SVG}circle"))
