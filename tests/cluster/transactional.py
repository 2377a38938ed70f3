"""What tests of transactions over three brokers share: the cluster's settings, its topics and leaders, and a last reader."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pytest
from cluster.processes import COMBINED, Cluster

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pybroker.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from pybroker.protocol.messages.transactions import ListTransactionsRequest

ck: Any = pytest.importorskip("confluent_kafka")

WAIT_S = 60.0
PARTITIONS = 3
STATE_PARTITIONS = 4
OFFSETS_PARTITIONS = 4
ROLES = {1: COMBINED, 2: COMBINED, 3: COMBINED}
PROPERTIES = {
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
}


def bootstrap(nodes: Cluster) -> str:
    return nodes.bootstrap


def create_topic(nodes: Cluster, name: str) -> None:
    with nodes.running[0].client() as client:
        row = CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=3, assignments=[], configs=[])
        (made,) = client.ask(CreateTopicsRequest(topics=[row])).topics
        assert made.error_code == ErrorCode.NONE, made


def leader_of(nodes: Cluster, topic: str, partition: int) -> int | None:
    """A running one."""
    with nodes.running[0].client() as client:
        (found,) = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)])).topics
    leaders = {row.partition_index: row.leader_id for row in found.partitions}
    leader = leaders.get(partition)
    return leader if leader in {one.id for one in nodes.running} else None


def open_transactions(nodes: Cluster) -> list[str]:
    """Those that some coordinator has not completed, or cannot tell of."""
    out: list[str] = []
    for node in nodes.running:
        with node.client() as client:
            answer = client.ask(ListTransactionsRequest(state_filters=[], producer_id_filters=[]))
        if answer.error_code:
            out.append(f"broker {node.id}: {ErrorCode(answer.error_code).name}")
        out += [
            f"{one.transactional_id}: {one.transaction_state}"
            for one in answer.transaction_states
            if one.transaction_state in ("Ongoing", "PrepareCommit", "PrepareAbort")
        ]
    return out


def read_committed(nodes: Cluster, topic: str, count: int, patience_s: float = WAIT_S) -> list[bytes]:
    """All that is committed, when that is `count` records or more and whatever is in the log can be read: nothing hangs."""
    settings = {"bootstrap.servers": bootstrap(nodes), "group.id": "any", "enable.auto.commit": False, "log_level": 0}
    consumer = ck.Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
    consumer.assign([ck.TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    # Tells where the log ends, whoever may read it.
    all_seeing = ck.Consumer({**settings, "isolation.level": "read_uncommitted"})
    values: list[bytes] = []
    stable: dict[int, int] = {}
    left: object = "fewer records"
    deadline_s = time.monotonic() + patience_s
    while left and time.monotonic() < deadline_s:
        ends: dict[int, int] = {}
        if len(values) >= count and not (left := open_transactions(nodes)):
            with suppress(ck.KafkaException):
                for partition in range(PARTITIONS):
                    ends[partition] = all_seeing.get_watermark_offsets(ck.TopicPartition(topic, partition), 5.0)[1]
        for one in consumer.consume(1000, 0.5):
            if one.error() is None:
                values.append(one.value())
            elif one.error().code() == ck.KafkaError._PARTITION_EOF:
                stable[one.partition()] = one.offset()
        left = left or (f"{stable} of {ends}" if stable != ends else None)
    consumer.close()
    all_seeing.close()
    assert len(values) < count or not left, f"{topic}: there is more than can be read: {left}"
    return values
