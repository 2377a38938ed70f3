"""`make bench-pair OTHER=checkout`: what a change does to the CPU of a cluster. Three nodes of another checkout of pybroker and
three of this one stand side by side and are loaded in turn, so that both see the same hour. Prints the ratios of the pairs."""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from interop.apache_kafka import ROOT
from perf.bench.cluster import Cluster
from perf.bench.cluster_bench import BUILD
from perf.bench.cluster_workloads import CLUSTER_WORKLOADS, FULL, ClusterSession, warm_up
from perf.bench.runner import say
from perf.bench.servers import PyBroker, Server

CPU = "cpu_us_per_record"
LOADS = {row.name: row.run for row in CLUSTER_WORKLOADS if row.run is not None}


def of_checkout(tree: Path, label_: str) -> type[Server]:
    """The broker whose code is in `tree`, on the Python that runs this."""

    class OfCheckout(PyBroker):
        label = label_

        def command(self, config: Path) -> Sequence[str]:
            # -P: what lies in the directory that this was started in comes first otherwise.
            return ("env", f"PYTHONPATH={tree}", sys.executable, "-P", "-m", "pybroker", "start", str(config))

    return OfCheckout


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench-pair", description=__doc__)
    parser.add_argument("other", type=Path, help="the root of another checkout, of the commit before a change, say")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--workload", choices=LOADS, default="replicated-128k")
    arguments = parser.parse_args()
    trees = {"other": arguments.other.resolve(), "this": ROOT}
    for tree in trees.values():
        if not (tree / "pybroker" / "__main__.py").exists():
            parser.error(f"{tree} is no checkout of pybroker")
    load = LOADS[arguments.workload]
    PyBroker.check()
    clusters = [Cluster(of_checkout(tree, name), BUILD / "data" / f"pair-{name}") for name, tree in trees.items()]
    costs: list[list[float]] = [[], []]
    try:
        sessions = []
        for cluster in clusters:
            cluster.prepare()
            cluster.start()
            sessions.append(ClusterSession(cluster, FULL))
            warm_up(sessions[-1])
        for number in range(arguments.rounds):
            # Who is first changes from round to round.
            for place in (0, 1) if number % 2 else (1, 0):
                costs[place].append(load(sessions[place])[CPU])
            say(f"round {number + 1} of {arguments.rounds}: other {costs[0][-1]:.2f}, this {costs[1][-1]:.2f} CPU µs/record")
    finally:
        for cluster in clusters:
            cluster.kill()
            shutil.rmtree(cluster.directory, ignore_errors=True)
    ratios = sorted(this / other for other, this in zip(*costs, strict=True))
    other, this = map(statistics.median, costs)
    print(f"{arguments.workload}: other {other:.3f}, this {this:.3f} CPU µs/record; this / other, pair by pair: ", end="")
    print(f"median {statistics.median(ratios):.3f} ({ratios[0]:.3f}-{ratios[-1]:.3f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
