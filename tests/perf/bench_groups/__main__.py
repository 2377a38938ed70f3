"""`make bench-groups`: measure, print the table, write docs/benchmarks-groups.md; raw figures go to build/bench/groups.json."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from interop.apache_kafka import ROOT
from perf.bench import process
from perf.bench.bars import Bar
from perf.bench.report import plain_markdown, text
from perf.bench.results import Failure, Measurement, Results
from perf.bench.runner import machine, say
from perf.bench.servers import ApacheKafka, PyBroker, Server, UnavailableError
from perf.bench.workloads import Values
from perf.bench_groups.loading import PROPERTIES, fill, load
from perf.bench_groups.rebalances import CLASSIC, CONSUMER, Rebalances
from perf.bench_groups.requests import Commits, classic_heartbeats, consumer_heartbeats, warm_up

_BUILD = ROOT / "build" / "bench"
_SERVERS: tuple[type[Server], ...] = (ApacheKafka, PyBroker)

TITLES = {
    "heartbeats": "Heartbeats: 1,000 classic groups of 2 members, each every 3 s",
    "heartbeats-848": "Heartbeats: the same of the consumer protocol (KIP-848)",
    "commits": "Commits of one partition, 10 connections, 50 in flight on each",
    "grow": "1 to 4 members, cooperative-sticky",
    "shrink": "4 to 3 members, cooperative-sticky",
    "grow-848": "1 to 4 members, KIP-848",
    "shrink-848": "4 to 3 members, KIP-848",
    "grow-rest-848": "1 to 4 members, KIP-848, from rest",
    "shrink-rest-848": "4 to 3 members, KIP-848, from rest",
    "rest-848": "4 members at rest, KIP-848: heartbeats of each",
    "load": "Load of {commits:,} commits of {few:,} groups",
    "load-groups": "Load of {commits:,} commits of a group each",
}
BARS = (
    Bar("heartbeats", "core_percent", 15.0, None),
    Bar("commits", "requests_per_s", 1.0),
    Bar("commits", "cpu_us_per_request", 1.0),
    Bar("grow-848", "seconds", 0.5),
    Bar("grow-rest-848", "seconds", 0.5),
    Bar("rest-848", "requests_per_min", 1.1),
    Bar("load", "seconds", 10.0, None),
)


class Pace:
    """How much of everything: full, or quick and rough."""

    def __init__(self, *, quick: bool) -> None:
        self.beat_s = 6.0 if quick else 15.0
        self.commit_s = 3.0 if quick else 6.0
        self.warm_s = 20.0 if quick else 40.0
        self.rounds = 1 if quick else 3
        self.rest_s = 10.0 if quick else 30.0
        self.rest_rounds = 1 if quick else 5  # where in its interval a member is, is chance
        self.commits = 100_000 if quick else 1_000_000
        self.few_groups = self.commits // 1000


class Bench:
    def __init__(self, kinds: Sequence[type[Server]], names: set[str], pace: Pace, directory: Path) -> None:
        self._kinds = kinds
        self._names = names
        self._pace = pace
        self._directory = directory
        titles = {name: text.format(commits=pace.commits, few=pace.few_groups) for name, text in TITLES.items()}
        self.results = Results(machine(), {}, {name: title for name, title in titles.items() if name in names})

    def run(self) -> Results:
        for kind in self._kinds:
            try:
                kind.check()
            except UnavailableError as reason:
                self.results.skipped[kind.label] = str(reason)
                continue
            self.results.servers[kind.name] = kind.label
            say(kind.label)
            for part in (self._requests, self._rebalances, self._loads):
                try:
                    part(kind)
                except Exception as problem:
                    self.results.failures.append(Failure(kind.name, part.__name__, 1, f"{type(problem).__name__}: {problem}"))
                    say(f"  FAILED: {type(problem).__name__}: {problem}")
        return self.results

    def _requests(self, kind: type[Server]) -> None:
        if not self._names & {"heartbeats", "heartbeats-848", "commits"}:
            return
        pace = self._pace
        with self._started(kind) as server:
            commits = Commits(server)
            costs = warm_up(commits, 1.0, pace.warm_s)
            self.results.warm_ups[kind.name] = {"commit": costs}
            for number_ in range(1, pace.rounds + 1):
                self._measure(server, "commits", number_, lambda: commits.measure(pace.commit_s))
            commits.close()
            for name, beat in (("heartbeats", classic_heartbeats), ("heartbeats-848", consumer_heartbeats)):
                self._measure(server, name, 1, lambda beat=beat: beat(server, pace.beat_s))  # type: ignore[misc]

    def _rebalances(self, kind: type[Server]) -> None:
        for suffix, options in (("", CLASSIC), ("-848", CONSUMER)):
            soon = {f"grow{suffix}", f"shrink{suffix}"} & self._names
            rested = {f"{name}{suffix}" for name in ("grow-rest", "shrink-rest", "rest")} & self._names
            if not soon and not rested:
                continue
            with self._started(kind) as server:
                rebalance = Rebalances(server, options)
                rebalance()  # not counted: the first time everything is slow
                for number_ in range(1, self._pace.rounds + 1 if soon else 1):
                    self._take(server, suffix, number_, rebalance())
                for number_ in range(1, self._pace.rest_rounds + 1 if rested else 1):
                    self._take(server, suffix, number_, rebalance.from_rest(self._pace.rest_s))

    def _take(self, server: Server, suffix: str, number_: int, found: dict[str, Values]) -> None:
        for name, values in found.items():
            self._measure(server, f"{name}{suffix}", number_, lambda values=values: values)  # type: ignore[misc]

    def _loads(self, kind: type[Server]) -> None:
        pace = self._pace
        for name, groups in (("load", pace.few_groups), ("load-groups", pace.commits)):
            if name in self._names:
                with self._started(kind, PROPERTIES) as server:
                    fill(server, pace.commits, groups)
                    for number_ in range(1, pace.rounds + 1):
                        self._measure(server, name, number_, lambda groups=groups: load(server, pace.commits, groups))  # type: ignore[misc]

    @contextmanager
    def _started(self, kind: type[Server], properties: dict[str, str] | None = None) -> Iterator[Server]:
        server = kind(self._directory / kind.name)
        server.properties = properties or {}
        try:
            server.prepare()
            server.start()
            yield server
        finally:
            server.kill()
            shutil.rmtree(server.directory, ignore_errors=True)

    def _measure(self, server: Server, name: str, number_: int, run: Callable[[], Values]) -> None:
        if name not in self._names:
            return
        noise = process.NoiseMeter()
        values = run()
        seen = noise.read()
        self.results.measurements.append(Measurement(server.name, name, number_, values, seen.load_average, seen.steal_percent))
        say(f"  {name:<16}" + "  ".join(f"{key} {value:,.4g}" for key, value in values.items()))


def merged(former: Results, newer: Results) -> Results:
    """All figures of `newer`, and those of `former` for workloads that were not measured again."""
    workloads = former.workloads | newer.workloads
    newer.workloads, again = {name: workloads[name] for name in TITLES if name in workloads}, set(newer.workloads)
    newer.measurements += [row for row in former.measurements if row.workload not in again]
    servers = former.servers | newer.servers
    newer.servers = {kind.name: servers[kind.name] for kind in _SERVERS if kind.name in servers}
    return newer


_HOW = """\
- `make bench-groups` does all of it; `QUICK=1` in a few minutes and roughly, `WORKLOADS=commits,grow-848` less of it.
- Both brokers run with the settings of Apache Kafka's own `config/server.properties`, one node that is broker and controller.
- Heartbeats: every member has a connection of its own; what they cost is told as the share of a core that the broker takes.
- Commits: ten members, each alone in its group; the broker is warmed up by commits until their cost falls no more. The client
  compares every answer, and takes 2 % of a core.
- 1 to 4 and 4 to 3 members: confluent-kafka at its defaults, 12 partitions; three members start at once; from there, or from
  the call that closes one, to the last partition that found its owner. At rest: heartbeats a minute of each, 15 s later.
- From rest: the group has been still for 15 s and more before each change. Who has to give partitions up then hears of it with
  its next heartbeat, up to 5 s later (group.consumer.heartbeat.interval.ms), whoever the broker: only the client speaks first,
  and to have it come more often at rest would be load at rest. From there on the broker's intervals are short.
- Load: the broker is killed and started; from its first good Metadata to an OffsetFetch answered with the last commit."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench-groups", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short runs: rough figures in minutes")
    parser.add_argument("--workloads", default=",".join(TITLES), help=f"of {', '.join(TITLES)}")
    parser.add_argument("--servers", default="apache,pybroker")
    parser.add_argument(
        "--data-dir", type=Path, default=_BUILD / f"groups-{os.getpid()}", help="where the brokers keep their data"
    )
    parser.add_argument("--keep", action="store_true", help="keep the former run's figures of the other workloads")
    arguments = parser.parse_args()
    names = set(arguments.workloads.split(","))
    if unknown := sorted(names - set(TITLES)):
        parser.error(f"unknown: {', '.join(unknown)}; there are: {', '.join(TITLES)}")
    kinds = [kind for kind in _SERVERS if kind.name in arguments.servers.split(",")]
    results = Bench(kinds, names, Pace(quick=arguments.quick), arguments.data_dir).run()
    _BUILD.mkdir(parents=True, exist_ok=True)
    raw = _BUILD / "groups.json"
    if arguments.keep and raw.exists():
        results = merged(Results.from_json(json.loads(raw.read_text())), results)
    raw.write_text(json.dumps(results.as_json(), indent=1, ensure_ascii=False) + "\n")
    if not results.measurements:
        print("nothing was measured", file=sys.stderr)
        return 1
    print(text(results, BARS))
    is_whole = len(results.workloads) == len(TITLES) and len(results.servers) == len(_SERVERS) and not arguments.quick
    (ROOT / "docs" if is_whole else _BUILD).joinpath("benchmarks-groups.md").write_text(
        plain_markdown("Benchmarks of groups", results, "make bench-groups", BARS, _HOW)
    )
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
