"""Where each state of a transaction leads, in our table and in Apache Kafka's."""

from __future__ import annotations

import json
import subprocess

from interop.apache_kafka import java_command

from pybroker.coordinator.transaction.transaction import TRANSITIONS, State


def test_the_states_and_what_comes_before_each_are_apache_kafkas() -> None:
    done = subprocess.run(java_command("TransactionStates"), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    ours = [
        {
            "id": state.value,
            "name": state.label,
            "before": sorted(before.label for before, following in TRANSITIONS.items() if state in following),
        }
        for state in State
    ]
    assert sorted(json.loads(done.stdout), key=lambda one: one["id"]) == ours
