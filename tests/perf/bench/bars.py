"""The bars that pybroker is to pass, as ratios to Apache Kafka in the same run, and their verdicts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from perf.bench.results import METRIC, Results

SUBJECT = "pybroker"
APACHE = "apache"
KFAKE = "kfake"


class Bar(NamedTuple):
    workload: str
    metric: str
    limit: float
    against: str | None = APACHE
    """The server that the figure is divided by; None for a bar on the figure itself."""

    @property
    def at_least(self) -> bool:
        return METRIC[self.metric].better > 0


class Verdict(Enum):
    MET = "met"
    MISSED = "**missed**"
    UNKNOWN = "not measured"


@dataclass(slots=True, frozen=True)
class Judged:
    bar: Bar
    value: float | None
    verdict: Verdict


BARS = (
    Bar("produce-16k", "cpu_us_per_record", 0.5),
    Bar("produce-16k-all", "cpu_us_per_record", 0.5),
    Bar("produce-128k", "cpu_us_per_record", 0.9),
    Bar("single", "cpu_us_per_request", 0.5),
    Bar("single", "requests_per_s", 1.8),
    Bar("fetch-1", "cpu_ms_per_mb", 1.1),
    Bar("fetch-4", "cpu_ms_per_mb", 1.1),
    Bar("end-to-end", "p99_ms", 1.0),
    Bar("start", "seconds", 0.15),
    Bar("start", "seconds", 0.6, None),
    Bar("memory-loaded", "peak_rss_mb", 0.12),
    Bar("partitions-create", "seconds", 0.5),
    Bar("partitions-restart", "seconds", 0.2),
    Bar("partitions-kill", "seconds", 0.2),
    # Ahead of what keeps everything in memory.
    Bar("produce-16k", "cpu_us_per_record", 1.0, KFAKE),
    Bar("single", "cpu_us_per_request", 1.0, KFAKE),
)


# Three nodes, everything replicated thrice.
CLUSTER_BARS = (
    *(Bar(workload, "mb_per_s", 1.5) for workload in ("replicated-16k", "replicated-128k")),
    *(Bar(workload, "cpu_us_per_record", 0.5) for workload in ("replicated-16k", "replicated-128k")),
    Bar("replicated-end-to-end", "p99_ms", 1.0),
    Bar("memory-loaded", "rss_mb", 0.15),
)


def judged(results: Results, bars: Sequence[Bar] = BARS) -> Iterator[Judged]:
    for bar in bars:
        if bar.against is None:
            own = results.figure(SUBJECT, bar.workload, bar.metric)
            value = None if own is None else own.middle
        else:
            value = results.ratio(bar.workload, bar.metric, SUBJECT, bar.against)
        yield Judged(bar, value, verdict(bar, value))


def verdict(bar: Bar, value: float | None) -> Verdict:
    if value is None:
        return Verdict.UNKNOWN
    return Verdict.MET if (value >= bar.limit if bar.at_least else value <= bar.limit) else Verdict.MISSED
