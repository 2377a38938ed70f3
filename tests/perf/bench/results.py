"""What was measured, and how several runs of it become one figure: the median, with the least and the most beside it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Any, NamedTuple, Self


class Metric(NamedTuple):
    """A column of the table; `better` is -1 where less is better, 1 where more is, 0 where it is only told."""

    name: str
    label: str
    better: int


METRICS = (
    Metric("mb_per_s", "MB/s", 1),
    Metric("records_per_s", "records/s", 1),
    Metric("requests_per_s", "requests/s", 1),
    Metric("transactions_per_s", "transactions/s", 1),
    Metric("core_percent", "% of a core", -1),
    Metric("requests_per_min", "requests/min", -1),
    Metric("cpu_us_per_record", "CPU µs/record", -1),
    Metric("cpu_us_per_request", "CPU µs/request", -1),
    Metric("cpu_ms_per_mb", "CPU ms/MB", -1),
    Metric("p50_ms", "p50 ms", -1),
    Metric("p99_ms", "p99 ms", -1),
    Metric("seconds", "s", -1),
    Metric("cpu_s", "CPU s", -1),
    Metric("rss_mb", "RSS MB", -1),
    Metric("peak_rss_mb", "most RSS MB", -1),
    Metric("broker_cores", "broker cores", 0),
    Metric("client_cores", "client cores", 0),
    Metric("other_cores", "others' cores", 0),
)
METRIC = {metric.name: metric for metric in METRICS}


@dataclass(slots=True, frozen=True)
class Measurement:
    """One run of a workload against a server."""

    server: str
    workload: str
    run: int
    values: dict[str, float]
    load_average: float
    steal_percent: float


@dataclass(slots=True, frozen=True)
class Failure:
    server: str
    workload: str
    run: int
    problem: str


@dataclass(slots=True, frozen=True)
class Figure:
    middle: float
    least: float
    most: float
    runs: int


@dataclass(slots=True)
class Results:
    """All of one `make bench`; also what the JSON file holds."""

    machine: dict[str, str]
    servers: dict[str, str]
    """Label of each server that ran, by its name, in order; the first is what the others are compared with."""
    workloads: dict[str, str]
    """Title of each workload, by its name, in order."""
    skipped: dict[str, str] = field(default_factory=dict)
    measurements: list[Measurement] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    warm_ups: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """CPU µs per request of each kind in each slice of a server's first warm-up."""
    cold: list[str] = field(default_factory=list)
    """Servers whose cost still fell when a warm-up had to end: their figures are too high, ratios to them too low."""

    def figure(self, server: str, workload: str, metric: str) -> Figure | None:
        """None where nothing was measured."""
        return figure(
            found.values[metric]
            for found in self.measurements
            if found.server == server and found.workload == workload and metric in found.values
        )

    def ratio(self, workload: str, metric: str, server: str, against: str) -> float | None:
        """Median over median; None where one of them is missing."""
        own, other = self.figure(server, workload, metric), self.figure(against, workload, metric)
        return None if own is None or other is None or not other.middle else own.middle / other.middle

    def metrics_of(self, workload: str) -> list[Metric]:
        names = {name for found in self.measurements if found.workload == workload for name in found.values}
        return [metric for metric in METRICS if metric.name in names]

    def most(self, metric: str) -> float:
        """The greatest value that any run of any workload saw."""
        return max((found.values[metric] for found in self.measurements if metric in found.values), default=0.0)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        rows = [Measurement(**row) for row in data["measurements"]]
        failures = [Failure(**row) for row in data["failures"]]
        return cls(
            data["machine"], data["servers"], data["workloads"], data["skipped"], rows, failures, data["warm_ups"], data["cold"]
        )


def merged(parts: Sequence[Results], order: Sequence[str]) -> Results:
    """One of several, measured one after the other on one machine; workloads come in `order`. A workload of several parts has
    the runs of all of them, and each of them has it of the same servers: what is compared was measured side by side."""
    first, last = parts[0], parts[-1]
    titles: dict[str, str] = {}
    out = Results(dict(first.machine), {}, {})
    if last.machine["when"] != first.machine["when"]:
        out.machine["when"] = f"{first.machine['when']} to {last.machine['when']}"
    for part in parts:
        for name in part.workloads:
            measured = {found.server for found in part.measurements if found.workload == name}
            known = {found.server for found in out.measurements if found.workload == name}
            if known and measured != known:
                raise ValueError(f"{name} was measured of {sorted(known)} in one part, of {sorted(measured)} in another")
        titles |= part.workloads
        out.servers |= part.servers
        out.skipped |= part.skipped
        done = {name: max((row.run for row in out.measurements if row.workload == name), default=0) for name in part.workloads}
        out.measurements += [replace(row, run=row.run + done[row.workload]) for row in part.measurements]
        out.failures += part.failures
        for server, costs in part.warm_ups.items():
            out.warm_ups[server] = costs | out.warm_ups.get(server, {})
        out.cold += [server for server in part.cold if server not in out.cold]
    out.workloads = {name: titles[name] for name in order if name in titles}
    return out


def figure(values: Iterable[float]) -> Figure | None:
    found = sorted(values)
    return Figure(median(found), found[0], found[-1], len(found)) if found else None


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The least value that `percent` of all values do not exceed; `ordered` ascends and is not empty."""
    rank = -(-percent * len(ordered) // 100)
    return ordered[max(0, int(rank) - 1)]
