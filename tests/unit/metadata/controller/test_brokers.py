from __future__ import annotations

from typing import Any

import pytest
from unit.metadata.clusters import CLUSTER_ID, TestCluster, uuid

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.metadata.controller.features import METADATA_VERSION
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.metadata_log import FeatureLevelRecord, PartitionChangeRecord
from pybroker.protocol.messages.cluster import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    ControllerRegistrationRequest,
    Feature,
    Listener,
)
from pybroker.protocol.messages.transactions import AllocateProducerIdsRequest

LISTENER = Listener(name="PLAINTEXT", host="h", port=9092, security_protocol=0)
FEATURE = Feature(name=METADATA_VERSION, min_supported_version=7, max_supported_version=30)


def registration(broker_id: int = 1, incarnation: str = "new", **changes: Any) -> BrokerRegistrationRequest:
    fields = {
        "broker_id": broker_id,
        "cluster_id": CLUSTER_ID,
        "incarnation_id": uuid(incarnation),
        "listeners": [LISTENER],
        "features": [FEATURE],
        "rack": "r",
        "log_dirs": [uuid(f"directory {broker_id}")],
    }
    return BrokerRegistrationRequest(**(fields | changes))


def heartbeat(cluster: TestCluster, *, want_fence: bool = False, epoch: int | None = None, broker_id: int = 1) -> Any:
    epoch = cluster.image.brokers[broker_id].epoch if epoch is None else epoch
    return cluster.ask(
        BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=epoch,
            current_metadata_offset=cluster.image.offset,
            want_fence=want_fence,
            want_shut_down=False,
        )
    )


def test_a_broker_registers_fenced_with_the_offset_as_its_epoch() -> None:
    cluster = TestCluster(())
    offset = cluster.controller.next_offset
    response = cluster.ask(registration())
    assert (response.error_code, response.broker_epoch) == (ErrorCode.NONE, offset)
    broker = cluster.image.brokers[1]
    assert (broker.epoch, broker.fenced, broker.rack, broker.log_dirs) == (offset, True, "r", (uuid("directory 1"),))
    assert broker.endpoints["PLAINTEXT"].port == 9092
    assert broker.features[METADATA_VERSION].max_version == 30


def test_a_heartbeat_unfences_and_fences() -> None:
    cluster = TestCluster(())
    cluster.ask(registration())
    response = heartbeat(cluster)
    assert (response.error_code, response.is_caught_up, response.is_fenced) == (ErrorCode.NONE, True, False)
    assert not cluster.image.brokers[1].fenced
    assert heartbeat(cluster, want_fence=True).is_fenced
    assert cluster.image.brokers[1].fenced


def test_the_same_incarnation_keeps_its_epoch_and_state() -> None:
    cluster = TestCluster(())
    epoch = cluster.ask(registration()).broker_epoch
    heartbeat(cluster)
    assert cluster.ask(registration(listeners=[])).broker_epoch == epoch
    assert (cluster.image.brokers[1].fenced, cluster.image.brokers[1].endpoints) == (False, {})


def test_a_new_incarnation_leads_nothing_until_it_is_unfenced() -> None:
    """What was read in the old epoch may be lost, and other records may stand there now: every leadership is a new epoch."""
    cluster = TestCluster()
    cluster.create("t", 2)
    cluster.ask(registration(previous_broker_epoch=-1))
    assert [state.leader for state in cluster.image.topics["t"].partitions.values()] == [-1, -1]
    heartbeat(cluster)
    assert [state.leader for state in cluster.image.topics["t"].partitions.values()] == [1, 1]
    assert [state.leader_epoch for state in cluster.image.topics["t"].partitions.values()] == [2, 2]


def test_an_unfenced_broker_leads_where_nobody_does_and_it_is_in_sync() -> None:
    cluster = TestCluster((1, 2))
    cluster.create("t", 2, 2)
    cluster.fence(1)
    cluster.fence(2)
    topic_id = cluster.image.topics["t"].topic_id
    cluster.replay(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=-1))
    cluster.replay(PartitionChangeRecord(partition_id=1, topic_id=topic_id, leader=-1, isr=[2]))
    heartbeat(cluster)
    partitions = cluster.image.topics["t"].partitions
    assert (partitions[0].leader, partitions[0].leader_epoch) == (1, 2)
    assert partitions[1].leader == -1


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [uuid("a"), uuid("a")]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [ZERO_UUID]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [Uuid(bytes(15) + b"\x02")]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [uuid("directory 2")]}, ErrorCode.INVALID_REGISTRATION),
    ],
)
def test_a_registration_that_is_refused(changes: dict[str, Any], code: ErrorCode) -> None:
    cluster = TestCluster((1, 2))
    assert cluster.ask(registration(**changes)).error_code == code


def test_requests_of_an_incarnation_that_is_gone() -> None:
    cluster = TestCluster()
    assert heartbeat(cluster, epoch=3).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert heartbeat(cluster, epoch=3, broker_id=9).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_controller_registers_where_the_level_knows_of_it() -> None:
    request = ControllerRegistrationRequest(
        controller_id=1, incarnation_id=uuid("i"), zk_migration_ready=False, listeners=[LISTENER], features=[FEATURE]
    )
    cluster = TestCluster()
    assert cluster.ask(request).error_code == ErrorCode.NONE
    assert cluster.image.controllers[1].endpoints["PLAINTEXT"].host == "h"
    cluster.replay(FeatureLevelRecord(name=METADATA_VERSION, feature_level=10))
    assert cluster.controller.handle(0, request, 0).records == []


def test_producer_ids_come_in_blocks_of_a_thousand() -> None:
    cluster = TestCluster()
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=10)
    blocks = [cluster.ask(request) for _ in range(3)]
    assert [(block.producer_id_start, block.producer_id_len) for block in blocks] == [(0, 1000), (1000, 1000), (2000, 1000)]
    assert cluster.image.next_producer_id == 3000


def test_producer_ids_are_for_registered_brokers() -> None:
    cluster = TestCluster()
    stale = cluster.ask(AllocateProducerIdsRequest(broker_id=1, broker_epoch=9))
    unknown = cluster.ask(AllocateProducerIdsRequest(broker_id=7, broker_epoch=9))
    assert (stale.error_code, unknown.error_code) == (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.STALE_BROKER_EPOCH)
    assert cluster.image.next_producer_id == 0
