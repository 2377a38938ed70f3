"""What `make bench-transactions` found, as a table for the terminal and as docs/benchmarks-transactions.md. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from perf.bench.bars import SUBJECT
from perf.bench.report import aligned, number, rows, table
from perf.bench.results import Results

CLIENTS = {"java": "Java producer", "confluent": "confluent-kafka"}
MODES = {
    "one-in-flight": "acks=all, one request in flight",
    "five-in-flight": "acks=1, five in flight",
    "transactional": "transactions of 100 ms",
    "small": "a transaction for each record",
}


class Bar(NamedTuple):
    """What Kafka's makers published of transactions of 100 ms with records of 1 KiB: throughput lost against a mode."""

    mode: str
    cost: float


BARS = (Bar("one-in-flight", 0.03), Bar("five-in-flight", 0.20))


def cost(results: Results, server: str, client: str, mode: str, *, of_best: bool = False) -> float | None:
    """The part of the throughput of `mode` that transactions of 100 ms lose; below zero they are faster. Of the medians, or
    of the best run of each, which is the one that others disturbed the least."""
    with_them = results.figure(server, f"{client} transactional", "records_per_s")
    without = results.figure(server, f"{client} {mode}", "records_per_s")
    if with_them is None or without is None:
        return None
    return 1 - (with_them.most / without.most if of_best else with_them.middle / without.middle)


def costs(results: Results) -> Iterator[list[str]]:
    """client, mode, published; then the cost for each server, and a verdict on pybroker's."""
    for client, label in CLIENTS.items():
        for bar in BARS:
            found = {server: cost(results, server, client, bar.mode) for server in results.servers}
            if all(value is None for value in found.values()):
                continue
            own = found.get(SUBJECT)
            verdict = "–" if own is None else "met" if own <= bar.cost else "**missed**"
            best = {server: cost(results, server, client, bar.mode, of_best=True) for server in found}
            cells = [f"{_percent(found[server])} ({_percent(best[server])})" for server in found]
            yield [label, MODES[bar.mode], f"{bar.cost:.0%}", *cells, verdict]


def text(results: Results) -> str:
    return "\n\n".join((aligned([_cost_head(results), *costs(results)]), aligned([_head(results), *_body(results)])))


def markdown(results: Results) -> str:
    machine = results.machine
    steals = [found.steal_percent for found in results.measurements]
    loads = [found.load_average for found in results.measurements]
    runs = max((found.run for found in results.measurements), default=0)
    parts = [
        "# Transactions: what they cost",
        "<!-- Written by `make bench-transactions`; do not edit. -->",
        f"Measured {machine['when']} on {machine['processor']}, {machine['memory']}, {machine['kernel']}, "
        f"Python {machine['python']}; {runs} runs of each mode in turn, broker and client on the same machine and one disk. "
        "A cell is the median with the least and the most in parentheses. Noise: the load average was "
        f"{number(min(loads, default=0))} to {number(max(loads, default=0))}, the hypervisor took "
        f"{number(max(steals, default=0))} % of the processors at most.",
        *(f"**{results.servers[server]} was not warm yet** when it was measured." for server in results.cold),
        *(f"{label} is left out: {reason}." for label, reason in results.skipped.items()),
        *(f"Failed: {row.workload} of {row.server}: {row.problem.splitlines()[0]}" for row in results.failures),
        "## Cost of transactions of 100 ms",
        "Throughput of records of 1 KiB that is lost against the same client without transactions; negative where it is "
        "gained: that of the medians, and in parentheses that of the best runs, which others disturbed the least. Published "
        "for Apache Kafka when transactions came to it: 3 % and 20 %.",
        table(_cost_head(results), list(costs(results))),
        "## Figures",
        "Percentiles are those of commit calls, which wait until everything sent is acknowledged. CPU is that of the broker.",
        table(_head(results), list(_body(results))),
        "## How",
        _HOW,
    ]
    return "\n\n".join(parts) + "\n"


_HOW = """\
- `make bench-transactions`; `QUICK=1` in a few minutes and roughly. Raw figures: `build/bench/transactions.json`.
- One broker that is controller, too, with the settings of Apache Kafka's own `config/server.properties`; a topic of one
  partition for each run. Each server gets load until its cost per request falls no more, each mode a lead-in.
- Every client is at its defaults but for acks, idempotence (off where there are no transactions), the requests in flight and
  the transactional id. It sends as fast as the client takes records, for 100 ms, commits, and begins again; a commit first
  waits for all that is buffered. The time is until the last record is acknowledged and committed.
- The end offset of each log is checked: one for each record and each transaction's marker."""


def _cost_head(results: Results) -> list[str]:
    return ["client", "against", "published", *results.servers.values(), "pybroker"]


def _head(results: Results) -> list[str]:
    first, *others = results.servers.values()
    return ["mode", "", *results.servers.values(), *(f"{label} / {first}" for label in others)]


def _body(results: Results) -> Iterator[list[str]]:
    for title, metric, cells in rows(results):
        yield [title, metric.label, *cells]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"
