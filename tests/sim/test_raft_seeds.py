"""Quorums in virtual time: a handful of seeds for every change; `make sim SEEDS=n` runs more."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from pybroker.raft import election
from pybroker.testing.sim.__main__ import main
from pybroker.testing.sim.raft_world import RaftWorld
from pybroker.testing.sim.trace import Trace

pytestmark = pytest.mark.sim

# Prints what a run did, line by line as a checksum: any difference in order or draw shows.
RUNS = """
import hashlib
from pybroker.testing.sim.raft_world import RaftWorld
from pybroker.testing.sim.trace import Trace
for seed in range(12):
    trace = Trace(1_000_000)
    outcome = RaftWorld(seed, swarm=True, trace=trace).run()
    lines = trace.lines()
    print(seed, outcome.steps, dict(outcome.facts), len(lines), hashlib.sha256("\\n".join(lines).encode()).hexdigest())
"""


@pytest.mark.parametrize("swarm", [False, True])
def test_seeds(swarm: bool, capsys: pytest.CaptureFixture[str]) -> None:
    failed = main(["--level", "raft", "--seeds", "25", *(["--swarm"] if swarm else [])])
    print(shown := capsys.readouterr().out)
    assert not failed, shown


def test_a_seed_is_a_run_whatever_the_hash_seed() -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", RUNS],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "4242")
    ]
    assert runs[0].count("\n") == 12
    assert runs[0] == runs[1]


def test_a_trace_changes_nothing() -> None:
    for seed in range(5):
        quiet, loud = RaftWorld(seed, swarm=True).run(), RaftWorld(seed, swarm=True, trace=Trace(10)).run()
        assert (quiet.steps, quiet.facts) == (loud.steps, loud.facts)


def test_seeds_see_what_they_are_meant_to_see() -> None:
    """Faults so mild that nothing happens, or so wild that nothing is ever committed, would find nothing."""
    outcomes = [RaftWorld(seed, swarm=True).run() for seed in range(25)]
    assert sum(outcome.facts["elections"] for outcome in outcomes) > 100
    assert sum(outcome.facts["acknowledged"] for outcome in outcomes) > 500
    assert sum(outcome.facts["commits"] == 0 for outcome in outcomes) == 0


def test_no_disk_is_lost_while_a_voter_that_is_needed_then_leaves() -> None:
    """Of three voters one was about to be removed when the disk of another went: what was left could elect nobody."""
    assert RaftWorld(14067, swarm=True).run().error is None


def test_a_seed_that_fails_shows_its_trace_and_how_to_repeat_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(election, "_grants", lambda state, candidate, partition: True)
    assert main(["--level", "raft", "--seeds", "100", "--swarm", "--trace", "40"]) == 1
    first = capsys.readouterr().out
    (seed,) = re.findall(r"again: python -m pybroker.testing.sim --level raft --swarm --seed (\d+)", first)
    assert re.search(r"\d+\.\d{3} ms  node \d \w+ e\d+ \[\d+\.\.\d+\.\.\d+\) +> \w+", first)
    assert main(["--level", "raft", "--seed", seed, "--swarm", "--trace", "40"]) == 1
    assert capsys.readouterr().out in first


def test_without_a_level_the_quorum_is_run_with_and_without_its_controllers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2"]) == 0
    assert re.findall(r"(\w+): 2 seeds", capsys.readouterr().out) == ["raft", "cluster"]
