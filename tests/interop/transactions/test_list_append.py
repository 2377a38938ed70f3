"""The list-append game of tests/cluster, with Apache Kafka's brokers: what the checker says of them is that it is sane.

LIST_APPEND_S and LIST_APPEND_SEED as there.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from cluster.append_checker import anomalies, summary
from cluster.append_workload import PARTITIONS, PROPERTIES, TOPIC, play
from interop.apache_kafka import jars
from interop.cluster.mixed import APACHE, COMBINED, Nodes, mixed

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

SECONDS = float(os.environ.get("LIST_APPEND_S", "20"))
SEED = int(os.environ.get("LIST_APPEND_SEED", "1"))
IDS = (1, 2, 3)


class ApacheBrokers:
    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    @property
    def bootstrap(self) -> str:
        return ",".join(one.bootstrap for one in self._nodes.brokers.values())

    @property
    def ids(self) -> Sequence[int]:
        return IDS

    def kill(self, node_id: int) -> None:
        self._nodes[node_id].stop(clean=False)

    def start(self, node_id: int) -> None:
        self._nodes[node_id].start()

    def pause(self, node_id: int) -> None:
        self._signal(node_id, signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        self._signal(node_id, signal.SIGCONT)

    def _signal(self, node_id: int, number: signal.Signals) -> None:
        pid = self._nodes[node_id].pid
        assert pid is not None
        os.kill(pid, number)


@pytest.mark.timeout(SECONDS + 600)
def test_apache_kafka_shows_no_anomaly_either(tmp_path: Path) -> None:
    jars()
    with mixed(tmp_path, dict.fromkeys(IDS, (APACHE, COMBINED)), PROPERTIES) as nodes:
        nodes.start()
        nodes.wait_for_brokers(*IDS)
        row = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=3, assignments=[], configs=[])
        (made,) = nodes[1].ask(CreateTopicsRequest(topics=[row])).topics
        assert made.error_code == ErrorCode.NONE, made
        nodes.wait_for_topic(TOPIC)
        history = play(ApacheBrokers(nodes), SECONDS, SEED)
    print(f"list append, Apache Kafka: {summary(history)}")
    assert anomalies(history) == []
