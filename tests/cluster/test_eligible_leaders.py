"""A controller and three brokers of real processes: replicas stop one after the other, and who may lead again (KIP-966)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from cluster.processes import BROKER, CONTROLLER, Cluster, cluster
from support.waiting import wait_until

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.metadata import DescribeTopicPartitionsRequest, TopicRequest
from pybroker.protocol.messages.topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest

WAIT_S = 60.0
ROLES = {9: CONTROLLER, 1: BROKER, 2: BROKER, 3: BROKER}
# Two of three commit; who hangs is fenced soon. The controller's file is what the cluster begins with.
PROPERTIES = {
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "log.cleaner.dedupe.buffer.size": "4194304",
}


class Shown(NamedTuple):
    leader: int
    isr: set[int]
    eligible: set[int]
    last_known: set[int]


def shown(nodes: Cluster, member: int) -> Shown | None:
    """The partition as that broker describes it; None while it cannot."""
    topic = TopicRequest(name="t")
    try:
        with nodes[member].client() as client:
            answer = client.ask(DescribeTopicPartitionsRequest(topics=[topic], response_partition_limit=10))
    except OSError:
        return None
    if answer.topics[0].error_code != ErrorCode.NONE:
        return None
    (row,) = answer.topics[0].partitions
    return Shown(row.leader_id, set(row.isr_nodes), set(row.eligible_leader_replicas or ()), set(row.last_known_elr or ()))


def wait_for(nodes: Cluster, member: int, expected: Shown) -> None:
    wait_until(lambda: shown(nodes, member) == expected, WAIT_S, lambda: f"{shown(nodes, member)}, expected {expected}")


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Cluster]:
    """With a topic of one partition, on broker 1 first."""
    with cluster(tmp_path, ROLES, PROPERTIES) as made:
        made.start()
        rows = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2, 3])]
        topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=rows, configs=[])
        answer = made[9].ask_controller(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        assert answer.topics[0].error_code == ErrorCode.NONE, answer
        wait_for(made, 1, Shown(1, {1, 2, 3}, set(), set()))
        yield made


def test_who_left_below_the_minimum_is_eligible_until_enough_are_in_sync(nodes: Cluster) -> None:
    assert nodes[3].stop() == 0
    # Two are enough to commit without broker 3: it will miss something.
    wait_for(nodes, 1, Shown(1, {1, 2}, set(), set()))
    assert nodes[2].stop() == 0
    wait_for(nodes, 1, Shown(1, {1}, {2}, set()))
    nodes[3].start().wait_ready()
    wait_for(nodes, 3, Shown(1, {1, 3}, set(), set()))
    assert nodes[1].stop() == 0
    wait_for(nodes, 3, Shown(3, {3}, {1}, set()))
    nodes[2].start().wait_ready()
    wait_for(nodes, 2, Shown(3, {2, 3}, set(), set()))


def test_an_eligible_replica_is_elected_when_it_returns(nodes: Cluster) -> None:
    assert nodes[3].stop() == 0
    wait_for(nodes, 1, Shown(1, {1, 2}, set(), set()))
    assert nodes[2].stop() == 0
    wait_for(nodes, 1, Shown(1, {1}, {2}, set()))
    nodes[1].kill()
    # Broker 3 has no claim: it waits, and shows who has one.
    nodes[3].start()
    wait_for(nodes, 3, Shown(-1, set(), {1, 2}, {1}))
    nodes[2].start()
    wait_for(nodes, 2, Shown(2, {2, 3}, set(), set()))


def test_a_killed_broker_is_no_longer_eligible(nodes: Cluster) -> None:
    assert nodes[3].stop() == 0
    wait_for(nodes, 1, Shown(1, {1, 2}, set(), set()))
    nodes[2].kill()
    wait_for(nodes, 1, Shown(1, {1}, {2}, set()))
    nodes[1].pause()
    nodes[2].start()
    wait_for(nodes, 2, Shown(-1, set(), {1}, {1}))
    nodes[1].resume()
    wait_for(nodes, 2, Shown(1, {1, 2}, set(), set()))
