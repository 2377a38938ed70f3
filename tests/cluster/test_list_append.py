"""Transactions under faults, judged as a whole: nothing lost, aborted, torn, doubled or reordered is ever read.

LIST_APPEND_S=600 plays for longer than the 30 s of `make cluster-test`, LIST_APPEND_SEED=n another game. The same against
Apache Kafka is in tests/interop/transactions.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from cluster.append_checker import anomalies, summary
from cluster.append_workload import PARTITIONS, PROPERTIES, TOPIC, play
from cluster.processes import COMBINED, Cluster, cluster

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

SECONDS = float(os.environ.get("LIST_APPEND_S", "30"))
SEED = int(os.environ.get("LIST_APPEND_SEED", "1"))


class Processes:
    """A cluster of ours, as the workload wants it."""

    def __init__(self, nodes: Cluster) -> None:
        self._nodes = nodes

    @property
    def bootstrap(self) -> str:
        return self._nodes.bootstrap

    @property
    def ids(self) -> Sequence[int]:
        return [one.id for one in self._nodes.brokers]

    def kill(self, node_id: int) -> None:
        self._nodes[node_id].kill()

    def start(self, node_id: int) -> None:
        self._nodes[node_id].start().wait_ready()

    def pause(self, node_id: int) -> None:
        self._nodes[node_id].pause()

    def resume(self, node_id: int) -> None:
        self._nodes[node_id].resume()


@pytest.mark.verdict
@pytest.mark.timeout(SECONDS + 600)
def test_no_anomaly_is_seen_while_brokers_are_killed_and_hang(tmp_path: Path) -> None:
    with cluster(tmp_path, {1: COMBINED, 2: COMBINED, 3: COMBINED}, PROPERTIES) as nodes:
        nodes.start()
        with nodes.running[0].client() as client:
            row = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=3, assignments=[], configs=[])
            (made,) = client.ask(CreateTopicsRequest(topics=[row])).topics
            assert made.error_code == ErrorCode.NONE, made
        history = play(Processes(nodes), SECONDS, SEED)
    print(f"list append, seed {SEED}: {summary(history)}")
    assert anomalies(history) == []
