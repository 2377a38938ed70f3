"""The metadata image as group shards see the cluster. Immutable, like the image; any thread."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pybroker.base.ids import Uuid
from pybroker.coordinator.group.cluster import Topic
from pybroker.metadata.image import EMPTY, ConfigResource, MetadataImage, ResourceType, TopicImage


class ClusterOf:
    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    @property
    def version(self) -> int:
        return self._image.offset

    def topic(self, name: str) -> Topic | None:
        return _topic(self._image.topics.get(name))

    def topic_by_id(self, topic_id: Uuid) -> Topic | None:
        return _topic(self._image.topics_by_id.get(topic_id))

    def topic_names(self) -> Collection[str]:
        return self._image.topics.keys()

    def partition_racks(self, name: str) -> Sequence[Sequence[str]]:
        brokers = self._image.brokers
        return [
            sorted(
                [broker.rack for one in state.replicas if (broker := brokers.get(one)) is not None and broker.rack is not None]
            )
            for _, state in sorted(self._image.topics[name].partitions.items())
        ]

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        return self._image.configs.get(ConfigResource(ResourceType.GROUP, group_id), EMPTY)


def _topic(image: TopicImage | None) -> Topic | None:
    return None if image is None else Topic(image.topic_id, image.name, len(image.partitions))
