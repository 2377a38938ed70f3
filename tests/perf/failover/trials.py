"""Deaths, one after the other: a node goes, the producer's longest pause is taken, the node comes back."""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from perf.bench.servers import Server
from perf.failover.clusters import IDS, WAIT_S, Trio, trio
from support.stream import Stream, stream
from support.waiting import wait_until

TOPIC = "t"


class Kind(NamedTuple):
    name: str
    title: str
    bar_s: float


KINDS = (
    Kind("leader", "kill -9 of a leader that is not the active controller", 1.5),
    Kind("controller", "kill -9 of the active controller's node", 2.5),
    Kind("sigterm", "SIGTERM", 0.5),
)


@dataclass(slots=True)
class Outcome:
    """Of one kind of death at one make."""

    server: str
    kind: str
    gaps_s: list[float] = field(default_factory=list)
    return_gaps_s: list[float] = field(default_factory=list)
    """The longest pause from the node's start until it is in sync and leads again."""
    records: int = 0
    problems: list[str] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    """The machine's load average at the end of each sitting."""

    @property
    def median_s(self) -> float:
        return statistics.median(self.gaps_s)

    @property
    def worst_s(self) -> float:
        return max(self.gaps_s)

    def add(self, more: Outcome) -> None:
        """Of a later sitting."""
        self.gaps_s += more.gaps_s
        self.return_gaps_s += more.return_gaps_s
        self.records += more.records
        self.problems += more.problems
        self.loads += more.loads

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def run(server: type[Server], kind: Kind, kills: int, directory: Path) -> Outcome:
    outcome = Outcome(server.name, kind.name)
    with trio(directory, server) as nodes:
        nodes.create(TOPIC)
        victims = _victims(nodes, kind)
        with stream(nodes.bootstrap, TOPIC, len(IDS)) as writing:
            for number in range(1, kills + 1):
                writing.wait_for_acks_after(time.monotonic() + 1)
                victim = next(victims)
                gap, return_gap = _one(nodes, writing, victim, clean=kind.name == "sigterm")
                outcome.gaps_s.append(gap)
                outcome.return_gaps_s.append(return_gap)
                say(f"  {server.label}, {kind.name} {number}: node {victim}, {gap:.2f} s, at its return {return_gap:.2f} s")
        outcome.records = sum(writing.sent)
        outcome.problems = writing.verdict()
        outcome.loads.append(os.getloadavg()[0])
    return outcome


def _victims(nodes: Trio, kind: Kind) -> Iterator[int]:
    for number in itertools.cycle(IDS):
        controller = nodes.controller()
        if kind.name == "controller":
            yield controller
        elif kind.name == "sigterm" or number != controller:
            yield number


def _one(nodes: Trio, writing: Stream, victim: int, *, clean: bool) -> tuple[float, float]:
    began = time.monotonic()
    nodes[victim].stop(clean)
    wait_until(lambda: nodes.is_gone(victim, TOPIC), WAIT_S, nodes.nodes.last_words)
    writing.wait_for_acks_after(time.monotonic())
    returned = time.monotonic()
    nodes[victim].start()
    nodes.settle(TOPIC)
    writing.wait_for_acks_after(time.monotonic())
    return writing.longest_gap_s(began, returned), writing.longest_gap_s(returned, time.monotonic())


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
