from __future__ import annotations

from typing import Any

import pytest
from unit.metadata.clusters import TestCluster, uuid

from pybroker.base.ids import Uuid
from pybroker.metadata.controller.features import METADATA_VERSION, RELEASES
from pybroker.metadata.image import LOST_DIRECTORY
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.metadata_log import BrokerRegistrationChangeRecord, FeatureLevelRecord
from pybroker.protocol.messages.log_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
)


@pytest.fixture
def cluster() -> TestCluster:
    cluster = TestCluster((1, 2, 3))
    both = [uuid("a"), uuid("b")]
    cluster.replay(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=10, log_dirs=both))
    cluster.assign("t", [1, 2])
    return cluster


def assign(cluster: TestCluster, directory: Uuid, *, broker_id: int = 1, index: int = 0, **changes: Any) -> ErrorCode:
    topic_id = changes.get("topic_id", cluster.image.topics["t"].topic_id)
    rows = [AssignReplicasToDirsRequestPartitionData(partition_index=index)]
    topics = [AssignReplicasToDirsRequestTopicData(topic_id=topic_id, partitions=rows)]
    response = cluster.ask(
        AssignReplicasToDirsRequest(
            broker_id=broker_id,
            broker_epoch=changes.get("broker_epoch", 10),
            directories=[AssignReplicasToDirsRequestDirectoryData(id=directory, topics=topics)],
        )
    )
    if not response.directories:
        return ErrorCode(response.error_code)
    assert (response.error_code, response.directories[0].id) == (ErrorCode.NONE, directory)
    return ErrorCode(response.directories[0].topics[0].partitions[0].error_code)


def test_a_broker_says_where_it_keeps_a_replica(cluster: TestCluster) -> None:
    assert assign(cluster, uuid("b")) == ErrorCode.NONE
    state = cluster.partition("t")
    assert (state.directory_of(1), state.directory_of(2)) == (uuid("b"), uuid("directory 2"))
    assert (state.leader, state.leader_epoch, state.partition_epoch) == (1, 0, 1)
    offset = cluster.image.offset
    assert assign(cluster, uuid("b")) == ErrorCode.NONE
    assert cluster.image.offset == offset


@pytest.mark.parametrize("directory", [uuid("broken"), LOST_DIRECTORY])
def test_a_replica_in_a_directory_that_failed_does_not_lead(cluster: TestCluster, directory: Uuid) -> None:
    assert assign(cluster, directory) == ErrorCode.NONE
    state = cluster.partition("t")
    assert (state.leader, state.isr, state.directory_of(1)) == (2, (2,), directory)
    cluster.heartbeat(2, want_fence=True)
    assert cluster.leaders("t") == [-1]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"broker_id": 3}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"index": 4}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic_id": uuid("no such topic")}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"broker_epoch": 11}, ErrorCode.STALE_BROKER_EPOCH),
        ({"broker_id": 9}, ErrorCode.STALE_BROKER_EPOCH),
    ],
)
def test_what_is_refused(cluster: TestCluster, changes: dict[str, Any], code: ErrorCode) -> None:
    assert assign(cluster, uuid("b"), **changes) == code


def test_an_old_cluster_knows_no_directories(cluster: TestCluster) -> None:
    cluster.replay(FeatureLevelRecord(name=METADATA_VERSION, feature_level=RELEASES["3.6-IV2"]))
    assert assign(cluster, uuid("b")) == ErrorCode.UNSUPPORTED_VERSION
