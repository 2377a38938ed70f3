"""Whole nodes in virtual time: controllers, brokers, topics, real files on a simulated disk."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pybroker.testing.sim.__main__ import main
from pybroker.testing.sim.cluster_world import ClusterWorld

pytestmark = pytest.mark.sim

RUNS = """
import hashlib
from pybroker.testing.sim.cluster_world import ClusterWorld
from pybroker.testing.sim.trace import Trace
for seed in range(5):
    trace = Trace(1_000_000)
    outcome = ClusterWorld(seed, swarm=True, trace=trace).run()
    lines = trace.lines()
    print(seed, outcome.steps, dict(outcome.facts), len(lines), hashlib.sha256("\\n".join(lines).encode()).hexdigest())
"""


@pytest.mark.parametrize("swarm", [False, True])
def test_seeds(swarm: bool, capsys: pytest.CaptureFixture[str]) -> None:
    failed = main(["--level", "cluster", "--seeds", "8", *(["--swarm"] if swarm else [])])
    print(shown := capsys.readouterr().out)
    assert not failed, shown


def test_seeds_see_what_they_are_meant_to_see() -> None:
    facts = [ClusterWorld(seed, swarm=True).run().facts for seed in range(20)]
    for name, least in {"answers": 200, "power_cuts": 5, "failed_writes": 5, "leader_changes": 100, "fences": 20}.items():
        assert sum(one[name] for one in facts) > least, name


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
    assert runs[0].count("\n") == 5
    assert runs[0] == runs[1]


def test_connections_that_flap_cause_bounded_churn() -> None:
    """Forty connections a second break for twenty seconds, and every process lives: false alarms of the fast death detection
    become rarer with each, the active controller stays, topics are created all the while, and in the end all are unfenced."""
    false_alarms = 0
    for seed in range(6):
        world = ClusterWorld(seed, is_flapping=True)
        outcome = world.run()
        assert outcome.error is None, outcome.error
        assert outcome.facts["crashes"] == 0
        assert outcome.facts["answers"] >= 20
        fences = {id_: broker.fences for id_, broker in world.checks.brokers.items()}
        assert max(fences.values()) <= 6, fences
        assert max(node.replica.quorum.epoch for node in world.nodes.values() if node.replica) <= 3
        false_alarms += sum(fences.values())
    assert false_alarms > 10, "else nothing flapped"
