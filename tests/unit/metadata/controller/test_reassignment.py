from __future__ import annotations

from typing import Any

import pytest
from unit.metadata.clusters import TestCluster
from unit.metadata.controller.test_alter_partition import alter

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.partitions import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)


@pytest.fixture
def cluster() -> TestCluster:
    cluster = TestCluster((1, 2, 3, 4))
    cluster.assign("t", [1, 2], [3, 4])
    return cluster


def reassign(
    cluster: TestCluster, replicas: list[int] | None, *, topic: str = "t", index: int = 0, **changes: Any
) -> ErrorCode:
    row = ReassignablePartition(partition_index=index, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=[row])], **changes)
    response = cluster.ask(request)
    assert response.error_code == ErrorCode.NONE
    return ErrorCode(response.responses[0].partitions[0].error_code)


def listed(cluster: TestCluster, *wanted: tuple[str, list[int]]) -> list[tuple[str, int, list[int], list[int], list[int]]]:
    rows = [ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes) for name, indexes in wanted]
    response = cluster.ask(ListPartitionReassignmentsRequest(topics=rows or None))
    assert response.error_code == ErrorCode.NONE
    return [
        (topic.name, one.partition_index, one.replicas, one.adding_replicas, one.removing_replicas)
        for topic in response.topics
        for one in topic.partitions
    ]


def test_new_replicas_come_and_when_they_are_in_sync_the_old_ones_go(cluster: TestCluster) -> None:
    assert reassign(cluster, [3, 4]) == ErrorCode.NONE
    state = cluster.partition("t")
    assert (state.replicas, state.adding_replicas, state.removing_replicas) == ((3, 4, 1, 2), (3, 4), (1, 2))
    assert (state.isr, state.leader, state.leader_epoch) == ((1, 2), 1, 0)
    assert listed(cluster) == [("t", 0, [3, 4, 1, 2], [3, 4], [1, 2])]
    assert alter(cluster, [1, 2, 3]).error_code == ErrorCode.NONE
    assert cluster.partition("t").is_reassigning
    # The leader that reports the last one in sync leads no more, and learns of it from the log.
    assert alter(cluster, [1, 2, 3, 4]).error_code == ErrorCode.NEW_LEADER_ELECTED
    state = cluster.partition("t")
    assert (state.replicas, state.isr, state.leader, state.leader_epoch) == ((3, 4), (3, 4), 3, 1)
    assert (state.adding_replicas, state.removing_replicas, listed(cluster)) == ((), (), [])


def test_another_wish_before_the_first_is_fulfilled_takes_its_place(cluster: TestCluster) -> None:
    """Replica 3 was adding by the first and removing by the second, and never did either."""
    assert reassign(cluster, [3, 2]) == ErrorCode.NONE
    assert reassign(cluster, [4, 2]) == ErrorCode.NONE
    state = cluster.partition("t")
    assert (state.replicas, state.adding_replicas, state.removing_replicas) == ((4, 2, 1, 3), (4,), (1, 3))
    assert alter(cluster, [1, 2, 4]).error_code == ErrorCode.NEW_LEADER_ELECTED
    state = cluster.partition("t")
    assert (state.replicas, sorted(state.isr), state.is_reassigning) == ((4, 2), [2, 4], False)


def test_a_replica_that_was_to_go_stays_if_the_next_wish_names_it(cluster: TestCluster) -> None:
    assert reassign(cluster, [3, 2]) == ErrorCode.NONE
    assert reassign(cluster, [1, 3]) == ErrorCode.NONE
    state = cluster.partition("t")
    assert (state.replicas, state.adding_replicas, state.removing_replicas) == ((1, 3, 2), (3,), (2,))


def test_every_replica_keeps_its_directory(cluster: TestCluster) -> None:
    before = cluster.partition("t").directory_of(2)
    reassign(cluster, [3, 2])
    state = cluster.partition("t")
    assert state.directory_of(2) == before
    assert state.directory_of(3) == cluster.image.brokers[3].log_dirs[0]


def test_the_leader_stays_if_it_is_among_the_new_ones(cluster: TestCluster) -> None:
    reassign(cluster, [3, 1])
    done = alter(cluster, [1, 2, 3])
    assert (done.error_code, done.leader_id, done.isr, done.leader_epoch) == (ErrorCode.NONE, 1, [1, 3], 1)


def test_another_order_and_fewer_replicas_are_done_at_once(cluster: TestCluster) -> None:
    assert reassign(cluster, [2, 1]) == ErrorCode.NONE
    assert (cluster.partition("t").replicas, cluster.partition("t").leader_epoch) == ((2, 1), 0)
    assert reassign(cluster, [2]) == ErrorCode.NONE
    state = cluster.partition("t")
    assert (state.replicas, state.isr, state.leader, state.is_reassigning) == ((2,), (2,), 2, False)


def test_what_is_so_already_is_not_written(cluster: TestCluster) -> None:
    offset = cluster.image.offset
    assert reassign(cluster, [1, 2]) == ErrorCode.NONE
    assert cluster.image.offset == offset


def test_a_partition_that_is_named_twice_is_decided_once(cluster: TestCluster) -> None:
    """Both would be decided by what was before the request, and the second forget what the first began."""
    rows = [ReassignablePartition(partition_index=0, replicas=replicas) for replicas in ([3, 4], [1, 3])]
    topics = [ReassignableTopic(name="t", partitions=rows), ReassignableTopic(name="t", partitions=rows[:1])]
    response = cluster.ask(AlterPartitionReassignmentsRequest(topics=topics))
    codes = [one.error_code for topic in response.responses for one in topic.partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]
    assert listed(cluster) == [("t", 0, [3, 4, 1, 2], [3, 4], [1, 2])]


def test_a_reassignment_is_cancelled(cluster: TestCluster) -> None:
    assert reassign(cluster, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    reassign(cluster, [3, 4])
    alter(cluster, [1, 2, 3])
    assert reassign(cluster, None) == ErrorCode.NONE
    state = cluster.partition("t")
    assert (state.replicas, state.isr, state.is_reassigning) == ((1, 2), (1, 2), False)
    assert state.leader_epoch == 1  # a replica was dropped: it must not be fetched for any more


@pytest.mark.parametrize("is_allowed", [False, True])
def test_to_cancel_must_not_lose_records_unless_the_topic_allows_it(is_allowed: bool) -> None:
    cluster = TestCluster((1, 2, 3))
    cluster.assign("t", [1], unclean_leader_election_enable=str(is_allowed).lower())
    reassign(cluster, [2, 3])
    alter(cluster, [1, 2])
    cluster.heartbeat(1, want_fence=True)
    assert cluster.partition("t").isr == (2,)
    cluster.heartbeat(1)
    code = reassign(cluster, None)
    if is_allowed:
        assert (code, cluster.partition("t").replicas, cluster.partition("t").leader) == (ErrorCode.NONE, (1,), 1)
    else:
        assert (code, cluster.partition("t").is_reassigning) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, True)


@pytest.mark.parametrize(
    ("replicas", "changes", "code"),
    [
        ([], {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 9], {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1], {"index": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([1], {"topic": "nobody"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([1], {"allow_replication_factor_change": False}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ([3, 4], {"allow_replication_factor_change": False}, ErrorCode.NONE),
    ],
)
def test_what_is_refused(cluster: TestCluster, replicas: list[int], changes: dict[str, Any], code: ErrorCode) -> None:
    assert reassign(cluster, replicas, **changes) == code


def test_the_count_of_a_partition_on_its_way_is_what_it_will_be(cluster: TestCluster) -> None:
    reassign(cluster, [2, 3, 4])
    assert reassign(cluster, [1, 2], allow_replication_factor_change=False) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(cluster, [1, 2, 3], allow_replication_factor_change=False) == ErrorCode.NONE


def test_only_what_is_asked_for_and_moves_is_listed(cluster: TestCluster) -> None:
    reassign(cluster, [3, 4])
    assert listed(cluster, ("t", [1, 7]), ("nobody", [0])) == []
    assert len(listed(cluster, ("t", [0, 1]))) == 1
