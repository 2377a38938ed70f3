"""What the group coordinator makes of the cluster's metadata: who leads, which topics are gone, which have come."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pybroker.base.ids import Uuid
from pybroker.config import Config
from pybroker.coordinator.group.shard import TopicsChanged, TopicsDeleted
from pybroker.coordinator.runtime import Elected, Event, RequestedOfAll
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import EMPTY_IMAGE, MetadataImage
from pybroker.metadata.internal_topics import OFFSETS_TOPIC
from pybroker.protocol.internal.metadata_log import PartitionRecord, RemoveTopicRecord, TopicRecord
from pybroker.server.coordinators.groups import GroupCoordinator


class Published:
    """A coordinator, and the events that come of what is published to it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        replicas: Any = SimpleNamespace(broker_id=1, watch_commits=lambda *_: None)
        self.coordinator = GroupCoordinator(
            Config({}, {"node.id": 1}),
            replicas,
            monotonic_ms=lambda: 0,
            wall_ms=lambda: 0,
            new_driver=lambda *_, **__: SimpleNamespace(submit_slow=self.events.append),  # type: ignore[arg-type,return-value]
        )
        self.image: MetadataImage = EMPTY_IMAGE

    def publish(self, *records: Any) -> list[Any]:
        """What is told to all shards, and who is elected."""
        self.events.clear()
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.image(self.image.offset + len(records), 1)
        self.coordinator.publish(delta, self.image)
        return [event.request.message if isinstance(event, RequestedOfAll) else event for event in self.events]


def topic(name: str, number: int) -> list[Any]:
    topic_id = Uuid(number.to_bytes(16, "big"))
    partition = PartitionRecord(
        partition_id=0, topic_id=topic_id, replicas=[1], isr=[1], removing_replicas=[], adding_replicas=[], leader=1,
        leader_epoch=0, partition_epoch=0, directories=[Uuid(bytes(15) + b"d")],
    )  # fmt: skip
    return [TopicRecord(name=name, topic_id=topic_id), partition]


def removal(number: int) -> RemoveTopicRecord:
    return RemoveTopicRecord(topic_id=Uuid(number.to_bytes(16, "big")))


def test_topics_that_come_and_go_are_told_to_all_shards() -> None:
    world = Published()
    assert world.publish(*topic(OFFSETS_TOPIC, 1), *topic("t", 2)) == [
        Elected(0, 0),
        TopicsChanged((OFFSETS_TOPIC, "t"), has_new=True),
    ]
    assert world.publish(removal(2)) == [TopicsDeleted(("t",)), TopicsChanged(("t",), has_new=False)]


def test_a_topic_that_is_deleted_and_created_again_between_two_images_is_told_as_deleted() -> None:
    world = Published()
    world.publish(*topic("t", 1))
    told = world.publish(removal(1), *topic("t", 2))
    assert told[0] == TopicsDeleted(("t",))
    assert isinstance(told[1], TopicsChanged)
    assert "t" in told[1].names
