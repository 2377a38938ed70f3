"""`make bench`: measure, print the table, write docs/benchmarks.md with its plot and the raw figures in build/bench/."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from interop.apache_kafka import ROOT
from perf.bench.plot import plot
from perf.bench.report import markdown, panels, text
from perf.bench.results import Results, merged
from perf.bench.runner import Runner
from perf.bench.servers import SERVERS
from perf.bench.workloads import FULL, QUICK, WORKLOADS

_BUILD = ROOT / "build" / "bench"
_PLOT = "benchmarks.svg"


def main() -> int:
    arguments = _arguments()
    if arguments.from_json:
        parts = [Results.from_json(json.loads(path.read_text())) for path in arguments.from_json]
        results = merged(parts, [row.name for row in WORKLOADS])
    else:
        names = set(arguments.workloads)
        kinds = [kind for kind in SERVERS if kind.name in arguments.servers]
        pace = QUICK if arguments.quick else FULL
        runner = Runner(kinds, names, pace, arguments.data_dir, repeats=arguments.repeats)
        results = runner.run(arguments.runs or (1 if arguments.quick else 3))
        arguments.results.parent.mkdir(parents=True, exist_ok=True)
        arguments.results.write_text(json.dumps(results.as_json(), indent=1, ensure_ascii=False) + "\n")
    if not results.measurements:
        print("nothing was measured", file=sys.stderr)
        return 1
    print(text(results))
    docs = arguments.docs
    docs.mkdir(parents=True, exist_ok=True)
    (docs / "benchmarks.md").write_text(markdown(results, "make bench", _PLOT))
    if len(results.servers) > 1:
        (docs / _PLOT).write_text(plot([*results.servers.values()][1:], panels(results)))
    for failure in results.failures:
        print(f"FAILED: {failure.workload} of {failure.server}, run {failure.run}: {failure.problem}", file=sys.stderr)
    return 1 if results.failures else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--servers", type=chosen([kind.name for kind in SERVERS]), default=[kind.name for kind in SERVERS])
    parser.add_argument("--workloads", type=chosen([row.name for row in WORKLOADS]), default=[row.name for row in WORKLOADS])
    parser.add_argument("--runs", type=int, help="how often each workload runs; 3 unless told, 1 if quick")
    parser.add_argument("--repeats", type=int, default=1, help="how often in each of them, with the server warm; 1 unless told")
    parser.add_argument("--quick", action="store_true", help="short runs: rough figures in minutes")
    parser.add_argument("--data-dir", type=Path, default=_BUILD / "data", help="where the brokers keep their data")
    parser.add_argument("--docs", type=Path, help="where benchmarks.md goes; docs/, or build/bench/ for a part of the figures")
    parser.add_argument("--results", type=Path, metavar="FILE", default=_BUILD / "results.json", help="where raw figures go")
    parser.add_argument(
        "--from-json", type=Path, nargs="+", metavar="FILE", help="measure nothing, write the report of a former run's parts"
    )
    found = parser.parse_args()
    if found.docs is None:
        whole = not found.quick and len(found.workloads) == len(WORKLOADS) and len(found.servers) == len(SERVERS)
        found.docs = ROOT / "docs" if whole else _BUILD
    return found


def chosen(names: list[str]) -> Callable[[str], list[str]]:
    def parse(value: str) -> list[str]:
        chosen = value.replace(",", " ").split()
        unknown = sorted(set(chosen) - set(names))
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; there are: {', '.join(names)}")
        return [name for name in names if name in chosen]

    return parse


if __name__ == "__main__":
    sys.exit(main())
