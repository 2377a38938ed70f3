from __future__ import annotations

import pytest
from unit.config.configs import config_with
from unit.metadata.clusters import TestCluster

from pybroker.metadata.controller.elr import beginning, enabling
from pybroker.metadata.controller.features import ELR_VERSION
from pybroker.metadata.image import ResourceType
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.metadata_log import ConfigRecord, FeatureLevelRecord
from pybroker.protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)

SET, DELETE = 0, 1


def alter(cluster: TestCluster, kind: int, resource: str, value: str | None, name: str = "min.insync.replicas") -> ErrorCode:
    change = IncrementalAlterConfigsRequestAlterableConfig(
        name=name, config_operation=DELETE if value is None else SET, value=value
    )
    row = IncrementalAlterConfigsRequestAlterConfigsResource(resource_type=kind, resource_name=resource, configs=[change])
    return ErrorCode(cluster.ask(IncrementalAlterConfigsRequest(resources=[row], validate_only=False)).responses[0].error_code)


@pytest.fixture
def cluster() -> TestCluster:
    """Two topics whose second replica left below the minimum, and is eligible."""
    cluster = TestCluster((1, 2))
    cluster.replay(FeatureLevelRecord(name=ELR_VERSION, feature_level=1))
    for name in ("t", "u"):
        cluster.assign(name, [1, 2], min_insync_replicas="2")
    cluster.heartbeat(2, want_fence=True)
    assert eligible(cluster) == [(2,), (2,)]
    return cluster


def eligible(cluster: TestCluster) -> list[tuple[int, ...]]:
    return [cluster.partition(name).eligible_leader_replicas for name in ("t", "u")]


def test_a_new_minimum_of_a_topic_clears_who_is_eligible_in_it(cluster: TestCluster) -> None:
    epoch = cluster.partition("t").partition_epoch
    assert alter(cluster, ResourceType.TOPIC, "t", "1") == ErrorCode.NONE
    assert eligible(cluster) == [(), (2,)]
    assert cluster.partition("t").partition_epoch == epoch + 1


def test_a_new_minimum_of_the_cluster_clears_all(cluster: TestCluster) -> None:
    assert alter(cluster, ResourceType.BROKER, "", "1") == ErrorCode.NONE
    assert eligible(cluster) == [(), ()]


def test_another_config_clears_nothing(cluster: TestCluster) -> None:
    assert alter(cluster, ResourceType.TOPIC, "t", "1000", "retention.ms") == ErrorCode.NONE
    assert eligible(cluster) == [(2,), (2,)]


def test_all_brokers_go_by_one_minimum(cluster: TestCluster) -> None:
    assert alter(cluster, ResourceType.BROKER, "1", "2") == ErrorCode.INVALID_CONFIG
    assert alter(cluster, ResourceType.BROKER, "", None) == ErrorCode.INVALID_CONFIG


def test_without_the_feature_a_broker_may_have_its_own() -> None:
    cluster = TestCluster((1, 2))
    assert alter(cluster, ResourceType.BROKER, "1", "2") == ErrorCode.NONE
    assert alter(cluster, ResourceType.BROKER, "", None) == ErrorCode.NONE


def test_to_turn_it_on_the_cluster_gets_its_minimum_and_brokers_lose_theirs() -> None:
    cluster = TestCluster((1, 2))
    alter(cluster, ResourceType.BROKER, "2", "2")
    config = config_with(min_insync_replicas="3")
    kind, name = ResourceType.BROKER, "min.insync.replicas"
    expected = [
        ConfigRecord(resource_type=kind, resource_name="", name=name, value="3"),
        ConfigRecord(resource_type=kind, resource_name="2", name=name, value=None),
    ]
    assert enabling(cluster.image, config) == expected
    cluster.replay(*expected)
    assert enabling(cluster.image, config) == []


def test_a_new_cluster_begins_with_the_controllers_minimum() -> None:
    config = config_with(min_insync_replicas="2")
    on = FeatureLevelRecord(name=ELR_VERSION, feature_level=1)
    whole = ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name="min.insync.replicas", value="2")
    assert beginning([FeatureLevelRecord(name="metadata.version", feature_level=30), on], config) == [whole]


def test_a_new_cluster_without_the_feature_begins_with_nothing_more() -> None:
    config = config_with(min_insync_replicas="2")
    assert beginning([FeatureLevelRecord(name="metadata.version", feature_level=30)], config) == []
    assert beginning([FeatureLevelRecord(name=ELR_VERSION, feature_level=0)], config) == []
