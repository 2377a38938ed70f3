"""Which partitions a broker stands in, and which ones want attention: so that a decision looks at those and no others.

Kept by replay, beside the delta; a plain object of the controller's thread.
"""

from __future__ import annotations

from collections.abc import Iterator

from pybroker.base.ids import Uuid
from pybroker.metadata.image import NO_LEADER, MetadataImage, PartitionState, TopicImage

_NOBODY: tuple[int, ...] = ()


class Partitions:
    """A set of partitions, by topic."""

    __slots__ = ("_by_topic",)

    def __init__(self) -> None:
        self._by_topic: dict[Uuid, set[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_topic)

    def __len__(self) -> int:
        return sum(map(len, self._by_topic.values()))

    def add(self, topic_id: Uuid, index: int) -> None:
        indexes = self._by_topic.get(topic_id)
        if indexes is None:
            self._by_topic[topic_id] = {index}
        else:
            indexes.add(index)

    def add_all(self, topic_id: Uuid, indexes: set[int]) -> None:
        """Of a topic that none was of before; the set is given away."""
        self._by_topic[topic_id] = indexes

    def discard(self, topic_id: Uuid, index: int) -> None:
        indexes = self._by_topic.get(topic_id)
        if indexes is not None:
            indexes.discard(index)
            if not indexes:
                del self._by_topic[topic_id]

    def put(self, topic_id: Uuid, index: int, is_in: bool) -> None:
        if is_in:
            self.add(topic_id, index)
        else:
            self.discard(topic_id, index)

    def within(self, image: MetadataImage) -> Iterator[tuple[TopicImage, int]]:
        for topic_id, indexes in self._by_topic.items():
            topic = image.topics_by_id[topic_id]
            for index in sorted(indexes):
                yield topic, index


class PartitionIndex:
    def __init__(self, image: MetadataImage) -> None:
        self._in_sync: dict[int, Partitions] = {}
        self._eligible: dict[int, Partitions] = {}
        self._led: dict[int, int] = {}
        self.leaderless = Partitions()
        self.not_preferred = Partitions()
        self.reassigning = Partitions()
        for topic in image.topics.values():
            self._add_topic(topic)

    def _add_topic(self, topic: TopicImage) -> None:
        """The way of `partition_changed` for many at once: a controller begins with all partitions there are."""
        topic_id, led = topic.topic_id, self._led
        in_sync: dict[int, set[int]] = {}
        for index, state in topic.partitions.items():
            leader = state.leader
            for broker_id in state.isr:
                indexes = in_sync.get(broker_id)
                if indexes is None:
                    in_sync[broker_id] = {index}
                else:
                    indexes.add(index)
            for broker_id in state.eligible_leader_replicas:
                self._eligible.setdefault(broker_id, Partitions()).add(topic_id, index)
            if leader != NO_LEADER:
                led[leader] = led.get(leader, 0) + 1
            else:
                self.leaderless.add(topic_id, index)
            if leader != state.replicas[0]:
                self.not_preferred.add(topic_id, index)
            if state.adding_replicas or state.removing_replicas:
                self.reassigning.add(topic_id, index)
        for broker_id, indexes in in_sync.items():
            self._in_sync.setdefault(broker_id, Partitions()).add_all(topic_id, indexes)

    def in_sync(self, broker_id: int) -> Partitions:
        """Those that have the broker among their in-sync replicas."""
        return self._in_sync.get(broker_id) or Partitions()

    def eligible(self, broker_id: int) -> Partitions:
        """Those that have the broker among their eligible leader replicas."""
        return self._eligible.get(broker_id) or Partitions()

    def leads(self, broker_id: int) -> bool:
        return self._led.get(broker_id, 0) > 0

    def partition_changed(self, topic_id: Uuid, index: int, old: PartitionState | None, new: PartitionState | None) -> None:
        """Nothing was there before a partition, and nothing is there after it."""
        if old is not None and old.leader != NO_LEADER:
            self._led[old.leader] -= 1
        if new is not None and new.leader != NO_LEADER:
            self._led[new.leader] = self._led.get(new.leader, 0) + 1
        _move(self._in_sync, topic_id, index, _NOBODY if old is None else old.isr, _NOBODY if new is None else new.isr)
        _move(
            self._eligible,
            topic_id,
            index,
            _NOBODY if old is None else old.eligible_leader_replicas,
            _NOBODY if new is None else new.eligible_leader_replicas,
        )
        self.leaderless.put(topic_id, index, new is not None and new.leader == NO_LEADER)
        self.not_preferred.put(topic_id, index, new is not None and new.leader != new.replicas[0])
        self.reassigning.put(topic_id, index, new is not None and new.is_reassigning)


def _move(by_broker: dict[int, Partitions], topic_id: Uuid, index: int, old: tuple[int, ...], new: tuple[int, ...]) -> None:
    if old == new:
        return
    for broker_id in old:
        if broker_id not in new:
            by_broker[broker_id].discard(topic_id, index)
    for broker_id in new:
        if broker_id not in old:
            partitions = by_broker.get(broker_id)
            if partitions is None:
                partitions = by_broker[broker_id] = Partitions()
            partitions.add(topic_id, index)
