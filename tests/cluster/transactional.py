"""What tests of transactions over three brokers share: the cluster's settings, its topics and leaders, and a last reader."""

from __future__ import annotations

import time
from typing import Any

import pytest
from cluster.processes import COMBINED, Cluster

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pybroker.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

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


def read_committed(nodes: Cluster, topic: str, count: int, patience_s: float = WAIT_S) -> list[bytes]:
    """At least `count` records, and what comes with them or soon after."""
    settings = {"bootstrap.servers": bootstrap(nodes), "group.id": "any", "isolation.level": "read_committed", "log_level": 0}
    consumer = ck.Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([ck.TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    values: list[bytes] = []
    deadline_s = time.monotonic() + patience_s
    while time.monotonic() < deadline_s:
        found = [one.value() for one in consumer.consume(1000, 2.0) if one.error() is None]
        values += found
        if not found and len(values) >= count:
            break
    consumer.close()
    return values
