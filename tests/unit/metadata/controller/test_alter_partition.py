from __future__ import annotations

from typing import Any

import pytest
from unit.metadata.clusters import TestCluster, uuid

from pybroker.metadata.image import LeaderRecoveryState
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.partitions import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)


def alter(cluster: TestCluster, isr: list[int], *, version: int = 3, repeat: int = 1, **changes: Any) -> Any:
    """What the leader of t-0 is told; the answer as a whole where it has no rows."""
    state = cluster.partition("t")
    by = changes.pop("by", state.leader)
    topic_id = changes.pop("topic_id", cluster.image.topics["t"].topic_id)
    broker_epoch = changes.pop("broker_epoch", 10)
    replica_epoch = changes.pop("replica_epoch", 10)
    fields: dict[str, Any] = {
        "partition_index": 0,
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "new_isr": isr if version < 3 else [],
        "new_isr_with_epochs": [BrokerState(broker_id=one, broker_epoch=replica_epoch) for one in isr] if version > 2 else [],
    }
    rows = [AlterPartitionRequestPartitionData(**(fields | changes)) for _ in range(repeat)]
    request = AlterPartitionRequest(
        broker_id=by,
        broker_epoch=broker_epoch,
        topics=[AlterPartitionRequestTopicData(topic_id=topic_id, partitions=rows)],
    )
    response = cluster.ask(request, version)
    if not response.topics:
        return response
    return response.topics[0].partitions if repeat > 1 else response.topics[0].partitions[0]


@pytest.fixture
def cluster() -> TestCluster:
    cluster = TestCluster((1, 2, 3, 4))
    cluster.assign("t", [1, 2, 3])
    return cluster


@pytest.mark.parametrize("version", [2, 3])
def test_the_isr_shrinks_and_grows_within_one_leader_epoch(cluster: TestCluster, version: int) -> None:
    shrunk = alter(cluster, [1, 2], version=version)
    assert (shrunk.error_code, shrunk.isr, shrunk.leader_epoch, shrunk.partition_epoch) == (ErrorCode.NONE, [1, 2], 0, 1)
    grown = alter(cluster, [1, 2, 3], version=version)
    assert (grown.isr, grown.leader_epoch, grown.partition_epoch) == ([1, 2, 3], 0, 2)
    assert cluster.partition("t").isr == (1, 2, 3)


def test_nothing_new_is_answered_but_not_written(cluster: TestCluster) -> None:
    offset = cluster.image.offset
    assert alter(cluster, [1, 2, 3]).error_code == ErrorCode.NONE
    assert cluster.image.offset == offset


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 5}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"by": 2}, ErrorCode.INVALID_REQUEST),
        ({"broker_epoch": 11}, ErrorCode.STALE_BROKER_EPOCH),
        ({"by": 99}, ErrorCode.STALE_BROKER_EPOCH),
        ({"topic_id": uuid("no such topic")}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"partition_index": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_recovery_state": LeaderRecoveryState.RECOVERING}, ErrorCode.INVALID_REQUEST),
        ({"replica_epoch": 9}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_who_is_behind_or_ahead_or_wrong_is_refused(cluster: TestCluster, changes: dict[str, Any], code: ErrorCode) -> None:
    offset = cluster.image.offset
    assert alter(cluster, [1], **changes).error_code == code
    assert cluster.image.offset == offset


@pytest.mark.parametrize("isr", [[], [2, 3], [1, 1], [1, 4], [1, 99]])
def test_an_isr_that_cannot_be(cluster: TestCluster, isr: list[int]) -> None:
    assert alter(cluster, isr).error_code == ErrorCode.INVALID_REQUEST


def test_who_is_fenced_or_shuts_down_is_not_in_sync(cluster: TestCluster) -> None:
    cluster.heartbeat(2, want_fence=True)
    assert alter(cluster, [1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA
    assert alter(cluster, [1, 2, 3], replica_epoch=-1).error_code == ErrorCode.INELIGIBLE_REPLICA
    cluster.heartbeat(2)
    assert alter(cluster, [1, 2, 3]).error_code == ErrorCode.NONE
    cluster.assign("led-by-3", [3, 1])
    cluster.heartbeat(3, want_shut_down=True)
    assert alter(cluster, [1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_partition_is_altered_once_in_a_request(cluster: TestCluster) -> None:
    first, second = alter(cluster, [1, 2], repeat=2)
    assert (first.error_code, second.error_code) == (ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION)


def test_a_leader_that_was_elected_uncleanly_says_that_it_has_recovered() -> None:
    cluster = TestCluster((1, 2))
    cluster.assign("t", [1, 2], unclean_leader_election_enable="true")
    cluster.heartbeat(2, 1, want_fence=True)
    cluster.heartbeat(2, 1)
    assert cluster.partition("t").leader_recovery_state == LeaderRecoveryState.RECOVERING
    recovering = {"leader_recovery_state": LeaderRecoveryState.RECOVERING}
    assert alter(cluster, [2, 1], **recovering).error_code == ErrorCode.INVALID_REQUEST
    assert alter(cluster, [2, 1]).leader_recovery_state == LeaderRecoveryState.RECOVERED
    assert cluster.partition("t").leader_recovery_state == LeaderRecoveryState.RECOVERED
