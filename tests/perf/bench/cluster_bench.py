"""`make bench-cluster`: three nodes of Apache Kafka, then of pybroker, under replicated load. Prints the table and writes
docs/benchmarks-cluster.md, with the raw figures in build/bench/cluster.json. In every round one after the other."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Set
from pathlib import Path

from interop.apache_kafka import ROOT
from perf.bench import process
from perf.bench.__main__ import chosen
from perf.bench.bars import CLUSTER_BARS
from perf.bench.cluster import Cluster
from perf.bench.cluster_workloads import CLUSTER_WORKLOADS, FULL, QUICK, ClusterPace, ClusterSession, warm_up
from perf.bench.report import cluster_markdown, text
from perf.bench.results import Failure, Measurement, Results
from perf.bench.runner import machine, say
from perf.bench.servers import ApacheKafka, PyBroker, Server, UnavailableError
from perf.bench.workloads import Values

BUILD = ROOT / "build" / "bench"
KINDS: tuple[type[Server], ...] = (ApacheKafka, PyBroker)


class ClusterRunner:
    def __init__(self, kinds: list[type[Server]], names: Set[str], pace: ClusterPace, directory: Path) -> None:
        self._kinds = kinds
        self._names = names
        self._pace = pace
        self._directory = directory
        self.results = Results(machine(), {}, {row.name: row.title for row in CLUSTER_WORKLOADS if row.name in names})

    def run(self, rounds: int) -> Results:
        present = []
        for kind in self._kinds:
            try:
                kind.check()
            except UnavailableError as reason:
                self.results.skipped[kind.label] = str(reason)
                say(f"{kind.label} is left out: {reason}")
            else:
                present.append(kind)
                self.results.servers[kind.name] = kind.label
        for number in range(1, rounds + 1):
            for kind in present:
                say(f"round {number} of {rounds}: three nodes of {kind.label}")
                cluster = Cluster(kind, self._directory / f"cluster-{kind.name}")
                try:
                    self._session(cluster, number)
                except Exception as problem:
                    self._failed(cluster, "the session", number, problem)
                finally:
                    cluster.kill()
                    shutil.rmtree(cluster.directory, ignore_errors=True)
        return self.results

    def _session(self, cluster: Cluster, number: int) -> None:
        cluster.prepare()
        started = cluster.start()
        self._measure(cluster, "start", number, lambda: {"seconds": started})
        time.sleep(self._pace.idle_s)
        session = ClusterSession(cluster, self._pace)
        done = warm_up(session)
        self.results.warm_ups.setdefault(cluster.name, done.costs)
        for kind, costs in done.costs.items():
            say(f"  {'warm-up':<24}CPU µs a {kind}: {', '.join(f'{cost:.1f}' for cost in costs)}")
        if not done.complete and cluster.name not in self.results.cold:
            self.results.cold.append(cluster.name)
            say("  NOT WARM when the time for it was over: its costs are too high")
        for row in CLUSTER_WORKLOADS:
            if row.run is not None:
                run = row.run
                self._measure(cluster, row.name, number, lambda run=run: run(session))  # type: ignore[misc]
        self._measure(cluster, "memory-loaded", number, lambda: _memory(cluster))

    def _measure(self, cluster: Cluster, name: str, number: int, run: Callable[[], Values]) -> None:
        if name not in self._names:
            return
        noise = process.NoiseMeter()
        try:
            values = run()
        except Exception as problem:
            self._failed(cluster, name, number, problem)
            return
        seen = noise.read()
        self.results.measurements.append(Measurement(cluster.name, name, number, values, seen.load_average, seen.steal_percent))
        say(f"  {name:<24}" + "  ".join(f"{key} {value:,.4g}" for key, value in values.items()))

    def _failed(self, cluster: Cluster, name: str, number: int, problem: Exception) -> None:
        problem_text = f"{type(problem).__name__}: {problem}"
        self.results.failures.append(Failure(cluster.name, name, number, problem_text[:2000]))
        say(f"  {name} FAILED: {problem_text}")


def _memory(cluster: Cluster) -> Values:
    found = cluster.memory()
    return {"rss_mb": found.rss_mb, "peak_rss_mb": found.peak_mb}


def main() -> int:
    arguments = _arguments()
    if arguments.from_json is not None:
        results = Results.from_json(json.loads(arguments.from_json.read_text()))
    else:
        kinds = [kind for kind in KINDS if kind.name in arguments.servers]
        pace = QUICK if arguments.quick else FULL
        runner = ClusterRunner(kinds, set(arguments.workloads), pace, arguments.data_dir)
        results = runner.run(arguments.runs or (1 if arguments.quick else 3))
        BUILD.mkdir(parents=True, exist_ok=True)
        (BUILD / "cluster.json").write_text(json.dumps(results.as_json(), indent=1, ensure_ascii=False) + "\n")
    if not results.measurements:
        print("nothing was measured", file=sys.stderr)
        return 1
    print(text(results, CLUSTER_BARS))
    arguments.docs.mkdir(parents=True, exist_ok=True)
    (arguments.docs / "benchmarks-cluster.md").write_text(cluster_markdown(results, "make bench-cluster"))
    for failure in results.failures:
        print(f"FAILED: {failure.workload} of {failure.server}, run {failure.run}: {failure.problem}", file=sys.stderr)
    return 1 if results.failures else 0


def _arguments() -> argparse.Namespace:
    servers, workloads = [kind.name for kind in KINDS], [row.name for row in CLUSTER_WORKLOADS]
    parser = argparse.ArgumentParser(prog="bench-cluster", description=__doc__)
    parser.add_argument("--servers", type=chosen(servers), default=servers)
    parser.add_argument("--workloads", type=chosen(workloads), default=workloads)
    parser.add_argument("--runs", type=int, help="how often each workload runs; 3 unless told, 1 if quick")
    parser.add_argument("--quick", action="store_true", help="short runs: rough figures in minutes")
    parser.add_argument("--data-dir", type=Path, default=BUILD / "data", help="where the nodes keep their data")
    parser.add_argument("--docs", type=Path, help="where benchmarks-cluster.md goes; docs/, or build/bench/ for a part of it")
    parser.add_argument("--from-json", type=Path, metavar="FILE", help="measure nothing, write the report of a former run")
    found = parser.parse_args()
    if found.docs is None:
        whole = not found.quick and found.workloads == workloads and found.servers == servers
        found.docs = ROOT / "docs" if whole else BUILD
    return found


if __name__ == "__main__":
    sys.exit(main())
