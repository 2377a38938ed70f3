"""`make bench-failover`: kill and stop nodes of both makes, print a producer's pauses, write docs/benchmarks-failover.md."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from interop.apache_kafka import ROOT
from perf.bench.runner import machine
from perf.bench.servers import UnavailableError
from perf.failover.clusters import MAKES
from perf.failover.report import markdown, table
from perf.failover.trials import KINDS, Outcome, run, say

_BUILD = ROOT / "build" / "bench"
_KEPT = _BUILD / "failover.json"
_WHOLE = 20

Outcomes = dict[tuple[str, str], Outcome]


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench-failover", description=__doc__)
    parser.add_argument("--kills", type=int, default=_WHOLE, help="of each kind and make; 20 unless told")
    parser.add_argument("--kinds", default=",".join(kind.name for kind in KINDS), help="some of %(default)s")
    parser.add_argument("--servers", default=",".join(kind.name for kind in MAKES), help="some of %(default)s")
    parser.add_argument("--more", action="store_true", help=f"add to what former sittings left in {_KEPT.relative_to(ROOT)}")
    parser.add_argument("--data-dir", type=Path, default=_BUILD / "failover", help="where the nodes keep their data")
    arguments = parser.parse_args()
    kinds = [kind for kind in KINDS if kind.name in arguments.kinds.split(",")]
    servers = [server for server in MAKES if server.name in arguments.servers.split(",")]
    for server in [*servers]:
        try:
            server.check()
        except UnavailableError as reason:
            say(f"{server.label} is left out: {reason}")
            servers.remove(server)
    outcomes = _former() if arguments.more else {}
    for kind in kinds:
        for server in servers:
            shutil.rmtree(arguments.data_dir, ignore_errors=True)
            found = run(server, kind, arguments.kills, arguments.data_dir)
            outcomes.setdefault((kind.name, server.name), Outcome(server.name, kind.name)).add(found)
            _keep(outcomes)
    shutil.rmtree(arguments.data_dir, ignore_errors=True)
    rows = [outcomes[kind.name, server.name] for kind in KINDS for server in MAKES if (kind.name, server.name) in outcomes]
    labels = {server.name: server.label for server in MAKES}
    print(table(rows, labels))
    is_whole = len(rows) == len(KINDS) * len(MAKES) and all(len(one.gaps_s) >= _WHOLE for one in rows)
    docs = ROOT / "docs" if is_whole else _BUILD
    (docs / "benchmarks-failover.md").write_text(markdown(rows, labels, machine()))
    return 1 if any(one.problems for one in rows) else 0


def _former() -> Outcomes:
    if not _KEPT.exists():
        return {}
    return {(row["kind"], row["server"]): Outcome(**row) for row in json.loads(_KEPT.read_text())}


def _keep(outcomes: Outcomes) -> None:
    _BUILD.mkdir(parents=True, exist_ok=True)
    _KEPT.write_text(json.dumps([one.as_json() for one in outcomes.values()], indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
