from __future__ import annotations

import pytest
from unit.metadata.clusters import TestCluster

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.topics import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)


def row(name: str, count: int, replicas: list[list[int]] | None = None) -> CreatePartitionsTopic:
    assignments = None if replicas is None else [CreatePartitionsAssignment(broker_ids=one) for one in replicas]
    return CreatePartitionsTopic(name=name, count=count, assignments=assignments)


def grow(cluster: TestCluster, *rows: CreatePartitionsTopic, validate_only: bool = False) -> list[tuple[str, ErrorCode]]:
    response = cluster.ask(CreatePartitionsRequest(topics=list(rows), timeout_ms=1, validate_only=validate_only))
    return [(one.name, ErrorCode(one.error_code)) for one in response.results]


def cluster_with_a_topic() -> TestCluster:
    cluster = TestCluster((1, 2, 3))
    cluster.fence(3)
    cluster.create("t", 2, 2)
    return cluster


def test_a_topic_grows_with_the_replicas_it_has() -> None:
    cluster = cluster_with_a_topic()
    before = cluster.image.topics["t"]
    assert grow(cluster, row("t", 5)) == [("t", ErrorCode.NONE)]
    partitions = cluster.image.topics["t"].partitions
    assert sorted(partitions) == [0, 1, 2, 3, 4]
    assert all(set(state.replicas) == {1, 2} for state in partitions.values())
    assert (partitions[0], cluster.image.topics["t"].topic_id) == (before.partitions[0], before.topic_id)


def test_assignments_by_hand_follow_those_that_are_there() -> None:
    cluster = cluster_with_a_topic()
    assert grow(cluster, row("t", 4, [[2, 1], [1, 3]])) == [("t", ErrorCode.NONE)]
    partitions = cluster.image.topics["t"].partitions
    assert (partitions[2].replicas, partitions[3].replicas, partitions[3].isr) == ((2, 1), (1, 3), (1,))


def test_validate_only_writes_nothing() -> None:
    cluster = cluster_with_a_topic()
    assert grow(cluster, row("t", 5), validate_only=True) == [("t", ErrorCode.NONE)]
    assert len(cluster.image.topics["t"].partitions) == 2


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (row("nobody", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (row("t", 2), ErrorCode.INVALID_PARTITIONS),
        (row("t", 1), ErrorCode.INVALID_PARTITIONS),
        (row("t", -1), ErrorCode.INVALID_PARTITIONS),
        (row("t", 4, [[1, 2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (row("t", 3, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (row("t", 3, [[]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (row("t", 3, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (row("t", 3, [[1, 1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (row("t", 3, [[1, 9]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (row("t", 20_000), ErrorCode.POLICY_VIOLATION),
    ],
    ids=repr,
)
def test_what_is_refused_and_what_is_beside_it(bad: CreatePartitionsTopic, code: ErrorCode) -> None:
    cluster = cluster_with_a_topic()
    cluster.create("other")
    assert grow(cluster, bad, row("other", 2)) == [(bad.name, code), ("other", ErrorCode.NONE)]
    assert len(cluster.image.topics["t"].partitions) == 2
    assert len(cluster.image.topics["other"].partitions) == 2


def test_a_topic_twice_in_a_request_is_answered_once() -> None:
    cluster = cluster_with_a_topic()
    assert grow(cluster, row("t", 3), row("t", 4)) == [("t", ErrorCode.INVALID_REQUEST)]
    assert len(cluster.image.topics["t"].partitions) == 2


def test_nobody_can_lead_when_all_replicas_are_fenced() -> None:
    cluster = cluster_with_a_topic()
    cluster.fence(1)
    cluster.fence(2)
    assert grow(cluster, row("t", 3)) == [("t", ErrorCode.INVALID_REPLICATION_FACTOR)]
    assert grow(cluster, row("t", 3, [[1, 2]])) == [("t", ErrorCode.INVALID_REPLICA_ASSIGNMENT)]
