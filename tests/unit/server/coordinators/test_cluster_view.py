"""The metadata image as group shards see it."""

from __future__ import annotations

from pybroker.base.ids import Uuid
from pybroker.coordinator.group.cluster import Topic
from pybroker.metadata.image import BrokerState, ConfigResource, MetadataImage, PartitionState, ResourceType, TopicImage
from pybroker.server.coordinators.cluster_view import ClusterOf

TOPIC_ID = Uuid(b"the topic's id..")


def view() -> ClusterOf:
    states = {1: PartitionState((2, 1), (1,)), 0: PartitionState((1, 3), (1,))}
    topic = TopicImage("t", TOPIC_ID, states)
    brokers = {one: BrokerState(one, 0, TOPIC_ID, rack=rack) for one, rack in ((1, "b"), (2, "a"), (3, None))}
    configs = {ConfigResource(ResourceType.GROUP, "g"): {"consumer.session.timeout.ms": "50000"}}
    return ClusterOf(
        MetadataImage(offset=7, topics={"t": topic}, topics_by_id={TOPIC_ID: topic}, brokers=brokers, configs=configs)
    )


def test_topics_by_name_and_by_id() -> None:
    assert view().topic("t") == view().topic_by_id(TOPIC_ID) == Topic(TOPIC_ID, "t", 2)
    assert view().topic("u") is None
    assert list(view().topic_names()) == ["t"]
    assert view().version == 7


def test_racks_are_sorted_and_a_broker_without_one_has_none() -> None:
    assert view().partition_racks("t") == [["b"], ["a", "b"]]


def test_a_group_has_what_it_sets_for_itself() -> None:
    assert view().group_configs("g") == {"consumer.session.timeout.ms": "50000"}
    assert view().group_configs("other") == {}
