"""Outcomes as a table and as docs/benchmarks-failover.md. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perf.failover.trials import KINDS, Outcome

SUBJECT = "pybroker"


def table(outcomes: Sequence[Outcome], labels: Mapping[str, str]) -> str:
    rows = [
        "| death | server | kills | median s | worst s | at the return: median s | worst s | records | lost or twice | bar |"
    ]
    rows.append("|" + "---|" * 10)
    for kind in KINDS:
        for one in outcomes:
            if one.kind == kind.name:
                returns = sorted(one.return_gaps_s)
                cells = [
                    *(kind.title, labels[one.server], str(len(one.gaps_s)), f"{one.median_s:.2f}", f"{one.worst_s:.2f}"),
                    *(f"{returns[len(returns) // 2]:.2f}", f"{returns[-1]:.2f}", f"{one.records:,}"),
                    "; ".join(one.problems) or "none",
                    _bar(one, kind.bar_s),
                ]
                rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _bar(one: Outcome, bar_s: float) -> str:
    if one.server != SUBJECT:
        return ""
    is_met = one.median_s <= bar_s and not one.problems
    return f"median ≤ {bar_s} s: {'met' if is_met else '**missed**'}"


def markdown(outcomes: Sequence[Outcome], labels: Mapping[str, str], machine: Mapping[str, str]) -> str:
    loads = [load for one in outcomes for load in one.loads] or [0.0]
    parts = [
        "# Failover",
        "<!-- Written by `make bench-failover`; do not edit. -->",
        f"Measured {machine['when']} on {machine['processor']}, {machine['memory']}, {machine['kernel']}, Python "
        f"{machine['python']}. The machine was not idle else: its load average was {min(loads):.1f} to {max(loads):.1f}.",
        table(outcomes, labels),
        "## How",
        _HOW,
        "## Every pause",
        "\n".join(
            f"- {kind.title}, {labels[one.server]}: {', '.join(f'{gap:.2f}' for gap in one.gaps_s)}"
            for kind in KINDS
            for one in outcomes
            if one.kind == kind.name
        ),
    ]
    return "\n\n".join(parts) + "\n"


_HOW = """\
- Three nodes that are controllers and brokers at once, on loopback and one disk, with the stock server.properties of the
  distribution; Apache Kafka in the JVM that its scripts start. One make at a time, in turn, kind after kind.
- A topic of three partitions with three replicas, each led by another node. One confluent-kafka producer, idempotent, acks=all,
  its other settings as they come, writes about a thousand records a second to all partitions in turn.
- The pause of a death is the longest between two acknowledgements of one partition, taken from the signal until every partition
  has its leader and has acknowledged again; the worst partition counts. Then the node is started, and all wait until it is in
  sync and leads its partition again (an election of preferred leaders): the pauses of that time stand in their own columns.
- In the end the partitions are read from their beginning: every record that was sent was acknowledged and is there once, in
  order. What is not stands under "lost or twice"."""
