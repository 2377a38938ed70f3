"""`python -m pybroker.testing.sim`: run seeds, and show the first that fails.

Exit status 1 if a seed failed. Its trace ends with the command that repeats it.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence

from pybroker.testing.sim.cluster_world import ClusterWorld
from pybroker.testing.sim.data_world import DataWorld
from pybroker.testing.sim.group_world import GroupWorld
from pybroker.testing.sim.outcome import Outcome
from pybroker.testing.sim.raft_world import RaftWorld
from pybroker.testing.sim.trace import Trace
from pybroker.testing.sim.transaction_world import TransactionWorld

World = RaftWorld | ClusterWorld | DataWorld | GroupWorld | TransactionWorld
LEVELS: dict[str, type[World]] = {
    "raft": RaftWorld,
    "cluster": ClusterWorld,
    "data": DataWorld,
    "groups": GroupWorld,
    "transactions": TransactionWorld,
}
# Of the quorum and the controller; the others are run when they are named.
QUORUM_LEVELS = ("raft", "cluster")


def run_seed(level: str, seed: int, *, swarm: bool, trace: Trace | None = None) -> Outcome:
    return LEVELS[level](seed, swarm=swarm, trace=trace).run()


def run_seeds(level: str, seeds: Sequence[int], *, swarm: bool) -> Iterator[Outcome]:
    return (run_seed(level, seed, swarm=swarm) for seed in seeds)


def explain(outcome: Outcome, again: Callable[[Trace], object], command: str, *, last: int) -> str:
    """The end of a failed run, which is done again for it."""
    assert outcome.error is not None
    trace = Trace(last)
    again(trace)
    lines = trace.lines()
    error = outcome.error
    where = "".join(traceback.format_tb(error.__traceback__)[-4:])
    return "\n".join(
        [
            f"seed {outcome.seed} failed after {outcome.virtual_ms} ms and {outcome.steps} steps; the last {len(lines)} lines:",
            *lines,
            where.rstrip(),
            f"{type(error).__name__}: {error}",
            f"again: {command}",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pybroker.testing.sim", description="Run clusters in virtual time.")
    parser.add_argument("--seeds", type=int, default=1000, metavar="N", help="how many seeds (1000)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first of them (0)")
    parser.add_argument("--seed", type=int, metavar="N", help="this seed only, with its trace")
    parser.add_argument("--swarm", action="store_true", help="every kind of fault on or off, at any rate, by the seed")
    parser.add_argument("--level", choices=LEVELS, help="what runs on the nodes (raft, then cluster: the quorum's own)")
    parser.add_argument("--trace", type=int, default=120, metavar="N", help="how many lines of a failed run are shown (120)")
    parser.add_argument("--keep-going", action="store_true", help="run all seeds, and show one line for each that fails")
    options = parser.parse_args(arguments)
    levels = QUORUM_LEVELS if options.level is None else (options.level,)
    # Every level is run, whatever the ones before it found.
    return max([_run_level(level, options) for level in levels])


def _run_level(level: str, options: argparse.Namespace) -> int:
    swarm = options.swarm

    def command(seed: int) -> str:
        return f"python -m pybroker.testing.sim --level {level}{' --swarm' if swarm else ''} --seed {seed}"

    def again(seed: int) -> Callable[[Trace], object]:
        return lambda trace: run_seed(level, seed, swarm=swarm, trace=trace)

    if options.seed is not None:
        trace = Trace(options.trace)
        outcome = run_seed(level, options.seed, swarm=swarm, trace=trace)
        if outcome.error is not None:
            print(explain(outcome, again(options.seed), command(options.seed), last=options.trace))
            return 1
        print("\n".join(trace.lines()))
        print(f"{level}, seed {outcome.seed}: {outcome.steps} steps, {outcome.virtual_ms} ms, {dict(outcome.facts)}")
        return 0

    failed = ran = 0
    totals: dict[str, int] = {}
    began_s = time.monotonic()
    try:
        for outcome in run_seeds(level, range(options.first, options.first + options.seeds), swarm=swarm):
            ran += 1
            counted = {"steps": outcome.steps, "virtual_s": outcome.virtual_ms // 1000, **outcome.facts}
            for name, count in counted.items():
                totals[name] = totals.get(name, 0) + count
            if outcome.error is not None:
                failed += 1
                if not options.keep_going:
                    print(explain(outcome, again(outcome.seed), command(outcome.seed), last=options.trace))
                    break
                print(f"seed {outcome.seed}: {type(outcome.error).__name__}: {outcome.error}", flush=True)
    except KeyboardInterrupt:
        print("stopped")
    took_s = time.monotonic() - began_s
    shown = ", ".join(f"{count:,} {name}" for name, count in totals.items())
    print(f"{level}: {ran} seeds in {took_s:.1f} s ({60 * ran / took_s:.0f} a minute), {failed} failed: {shown}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
