"""Results as a table for the terminal, as docs/benchmarks.md, and as the rows of the plot. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perf.bench.bars import BARS, CLUSTER_BARS, Bar, Judged, judged
from perf.bench.plot import Panel, Row
from perf.bench.results import METRIC, Figure, Metric, Results

# One figure of a workload stands for it in the plot: the first of these that it has.
_COSTS = ("cpu_us_per_request", "cpu_ms_per_mb", "cpu_us_per_record", "seconds", "peak_rss_mb")
_RATES = ("requests_per_s", "mb_per_s", "records_per_s")


def number(value: float) -> str:
    """Three figures that matter, thousands apart: 0.00123, 1.23, 123, 12,345."""
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.3g}" if value else "0"


def shown(found: Figure | None) -> str:
    if found is None:
        return "–"
    if found.runs == 1:
        return number(found.middle)
    return f"{number(found.middle)} ({number(found.least)}–{number(found.most)})"


def rows(results: Results) -> Iterator[tuple[str, Metric, list[str]]]:
    """(title, metric, cells): a figure for each server, then a ratio to the first server for each other."""
    first, *others = results.servers
    for workload, title in results.workloads.items():
        for metric in results.metrics_of(workload):
            if not metric.better:
                continue
            cells = [shown(results.figure(server, workload, metric.name)) for server in results.servers]
            for server in others:
                ratio = results.ratio(workload, metric.name, server, first)
                cells.append("–" if ratio is None else number(ratio))
            yield title, metric, cells


def markdown(results: Results, command: str, plot_file: str) -> str:
    first, *others = results.servers.values()
    parts = [
        "# Benchmarks",
        f"<!-- Written by `{command}`; do not edit. -->",
        _circumstances(results),
        *_troubles(results),
        *_bars(results, BARS),
        *(
            (
                "## Ratios",
                f"Against {first}, on a logarithmic scale; a black tick is a bar.",
                f"![Ratios to {first}]({plot_file})",
            )
            if others
            else ()
        ),
        "## Figures",
        "CPU is user and system time of the broker's process and its children; MB are 10^6 bytes of record batches; latencies "
        "are from sending a request to its answer with the pipeline full, but for end to end, which is from sending a record "
        "to a waiting consumer having it.",
        _figures(results),
        "## How",
        "\n".join([_HOW, _BESIDES, *_warm_ups(results)]),
    ]
    return "\n\n".join(parts) + "\n"


def cluster_markdown(results: Results, command: str) -> str:
    parts = [
        "# Benchmarks of a cluster",
        f"<!-- Written by `{command}`; do not edit. -->",
        _circumstances(results),
        *_troubles(results),
        *_bars(results, CLUSTER_BARS),
        "## Figures",
        "CPU is user and system time of all three nodes together, MB are 10^6 bytes of record batches, counted once and not "
        "for each replica; latencies are from sending a request to its answer with the pipeline full, but for end to end, "
        "which is from sending a record with acks=all to a waiting consumer having it; memory is that of all three nodes.",
        _figures(results),
        "## How",
        "\n".join([_CLUSTER_HOW, _BESIDES, *_warm_ups(results)]),
    ]
    return "\n\n".join(parts) + "\n"


def plain_markdown(title: str, results: Results, command: str, bars: Sequence[Bar], how: str) -> str:
    """Bars, figures and how they came about, for a bench that has nothing else to say."""
    parts = [
        f"# {title}",
        f"<!-- Written by `{command}`; do not edit. -->",
        _circumstances(results),
        *_troubles(results),
        *_bars(results, bars),
        "## Figures",
        _figures(results),
        "## How",
        "\n".join([how, *_warm_ups(results)]),
    ]
    return "\n\n".join(parts) + "\n"


def _figures(results: Results) -> str:
    first, *others = results.servers.values()
    head = ["workload", "", *results.servers.values(), *(f"{label} / {first}" for label in others)]
    return table(head, [[title, metric.label, *cells] for title, metric, cells in rows(results)])


def _bars(results: Results, bars: Sequence[Bar]) -> Iterator[str]:
    yield "## Bars"
    yield "Ratios of medians, pybroker to the other, in the same run."
    cells = [_bar_cells(results, row) for row in judged(results, bars)]
    yield table(["workload", "figure", "against", "bar", "measured", ""], cells)


def _troubles(results: Results) -> Iterator[str]:
    yield from _cold(results)
    for label, reason in results.skipped.items():
        yield f"{label} is left out: {reason}."
    for row in results.failures:
        yield f"Failed: {row.workload} of {row.server}, run {row.run}: {row.problem.splitlines()[0]}"


def _circumstances(results: Results) -> str:
    machine = results.machine
    steals = [found.steal_percent for found in results.measurements]
    loads = [found.load_average for found in results.measurements]
    most = [
        max((found.run for found in results.measurements if found.workload == name), default=0) for name in results.workloads
    ]
    runs = f"{min(most, default=0)} to {max(most, default=0)}" if len(set(most)) > 1 else f"{max(most, default=0)}"
    return (
        f"Measured {machine['when']} on {machine['processor']}, {machine['memory']}, {machine['kernel']}, "
        f"Python {machine['python']}; {runs} runs of each workload, the servers in turn, all on loopback and one disk. "
        "A cell is the median with the least and the most in parentheses. "
        f"Noise: the load average was {number(min(loads, default=0))} to {number(max(loads, default=0))}, the hypervisor took "
        f"{number(max(steals, default=0))} % of the processors at most, processes that had nothing to do with it (and the "
        f"kernel's own threads) up to {number(results.most('other_cores'))} cores. "
        f"The client took {number(results.most('client_cores'))} cores at most."
    )


_HOW = """\
- `make bench` does all of it; `make bench QUICK=1` in a few minutes and roughly, `RUNS=5` more often,
  `WORKLOADS=produce-16k,single` and `SERVERS=apache,pybroker` less of it. Raw figures: `build/bench/results.json`, or
  `RESULTS=part.json`; `FROM="part.json other.json"` measures nothing and makes one report of them. `REPEATS=3` measures
  the loads so often in each run, with the server warm.
- Apache Kafka runs with the settings of its own `config/server.properties`, as broker and controller in one, in a JVM
  started as `kafka-server-start` starts it (1 GiB heap, G1); pybroker with the very same file. Both are told to delete
  the files of a deleted topic after 100 ms instead of a minute, so that the disk stays empty.
- Every server first gets load, produce requests and fetches, until the CPU per request falls no more, since a JVM takes
  its time to compile; each workload has a lead-in of its own.
- The raw client sends Produce requests that were encoded once, 5 in flight on each of 2 connections (10 for single
  records), and throws fetched bytes away in the kernel; it checks every answer, and the log's end offsets against what
  it sent. Fetch asks as the Java consumer does by default
  (50 MiB, 1 MiB a partition).
- A start is timed from the spawn to the first Metadata that lists the broker; with 1,000 partitions, until each has a
  leader and tells its end offset, and when they are made, a directory. Each server has a directory of its own that no
  session used before: ext4 without a journal takes long to find inodes where many were deleted minutes ago."""


_BESIDES = """\
- pybroker runs on the Python that the bench runs on (`PYTHON=/usr/bin/python3` chooses another, before the first `make`). How
  that was built counts: one compiled by a plain `configure --enable-shared` takes about an eighth more than a distribution's.
- Where the system would pace what TCP sends (`net.ipv4.tcp_congestion_control=bbr`), pybroker does not do so between two ends
  on one machine: a tenth less CPU for replication and fetches of several consumers. Apache Kafka leaves it to the system.
- Requests of 128 KiB do not fit into `socket.receive.buffer.bytes` as it is in `config/server.properties`. pybroker then makes
  room for two of them, and for 1 MiB of an answer to a follower; Apache Kafka stays with what it was told."""


_CLUSTER_HOW = """\
- `make bench-cluster` does all of it; `QUICK=1` in a few minutes and roughly, `RUNS=5` more often,
  `WORKLOADS=replicated-16k` and `SERVERS=apache,pybroker` less of it. Raw figures: `build/bench/cluster.json`.
- Three nodes, each broker and controller in one, on the same machine as the client, with the settings of Apache Kafka's
  own `config/server.properties` but for addresses, directories and the quorum; JVMs started as `kafka-server-start` starts
  them (1 GiB heap, G1). Topics have three replicas, `min.insync.replicas=2`, and leaders in turn.
- The raw client sends Produce requests with acks=all that were encoded once, 5 in flight on one connection to each leader,
  as a producer does; with more producers, on as many connections. It checks every answer, and the end offsets against
  what it sent.
- Every cluster first gets the same loads until the CPU per record falls no more.
- The hour counts: what else the host runs slows a JVM more. In a busy one Apache Kafka took 12.8 µs per record in 128 KiB
  batches and pybroker 5.05, in a quiet one 5.6 and 2.64 (0.395 and 0.471): the busy one looks better for pybroker."""


def _cold(results: Results) -> Iterator[str]:
    for server in results.cold:
        yield (
            f"**{results.servers[server]} was not warm yet** when the time for that was over: its costs are "
            "too high, and verdicts that compare with it prove nothing."
        )


def _warm_ups(results: Results) -> Iterator[str]:
    for server, kinds in results.warm_ups.items():
        label = results.servers[server]
        for kind, costs in kinds.items():
            yield f"- Warm-up of {label}, CPU µs per {kind}, slice by slice: {', '.join(map(number, costs))}."


def text(results: Results, against: Sequence[Bar] = BARS) -> str:
    """The table for a terminal, then the bars."""
    head = [
        "workload",
        "",
        *results.servers.values(),
        *(f"{name}/{next(iter(results.servers))}" for name in [*results.servers][1:]),
    ]
    table = [[title, metric.label, *cells] for title, metric, cells in rows(results)]
    bars = [_bar_cells(results, row) for row in judged(results, against)]
    return (
        "".join(f"{line}\n\n" for line in _cold(results))
        + aligned([head, *table])
        + "\n\n"
        + aligned([["bar", "figure", "against", "bar", "measured", ""], *bars])
    )


def panels(results: Results) -> list[Panel]:
    limits = {(bar.workload, bar.metric): bar.limit for bar in reversed(BARS) if bar.against == next(iter(results.servers))}
    out = []
    for title, metrics in (
        ("Cost: less is better", _COSTS),
        ("Throughput: more is better", _RATES),
        ("p99: less is better", ("p99_ms",)),
    ):
        found = [row for workload in results.workloads if (row := _plot_row(results, workload, metrics, limits)) is not None]
        if found:
            out.append(Panel(title, found))
    return out


def _plot_row(results: Results, workload: str, metrics: Sequence[str], limits: dict[tuple[str, str], float]) -> Row | None:
    first, *others = results.servers
    metric = next((name for name in metrics if results.figure(first, workload, name) is not None), None)
    if metric is None:
        return None
    label = f"{results.workloads[workload]}: {METRIC[metric].label}"
    ratios = [results.ratio(workload, metric, server, first) for server in others]
    return Row(label, ratios, limits.get((workload, metric)))


def _bar_cells(results: Results, row: Judged) -> list[str]:
    bar = row.bar
    title = results.workloads.get(bar.workload, bar.workload)
    against = "itself" if bar.against is None else results.servers.get(bar.against, bar.against)
    limit = f"{'≥' if bar.at_least else '≤'} {number(bar.limit)}"
    return [title, METRIC[bar.metric].label, against, limit, "–" if row.value is None else number(row.value), row.verdict.value]


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(cells) + " |" for cells in body])


def aligned(table: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table)
