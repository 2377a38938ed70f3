"""Committed offsets of all groups of a shard, and those of open transactions, which count when the marker comes.

Hard state: changed by replay alone. An open transaction is known by its producer id, as in any other partition.
"""

from __future__ import annotations

from collections.abc import Iterator

from pybroker.coordinator.group.group import CommittedOffset

Partitions = dict[int, CommittedOffset]
Topics = dict[str, Partitions]


class OffsetStore:
    def __init__(self) -> None:
        self._groups: dict[str, Topics] = {}
        self._pending: dict[int, dict[str, Topics]] = {}  # by producer id
        self._open: dict[str, set[int]] = {}  # producer ids with pending offsets, by group

    def __len__(self) -> int:
        return sum(len(partitions) for topics in self._groups.values() for partitions in topics.values())

    # Questions.

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        topics = self._groups.get(group_id)
        partitions = None if topics is None else topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def of_group(self, group_id: str) -> Topics:
        return self._groups.get(group_id) or {}

    def has_open_transactions(self, group_id: str) -> bool:
        return group_id in self._open

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction is about to commit an offset of it."""
        return any(
            partition in self._pending[producer_id].get(group_id, {}).get(topic, {})
            for producer_id in self._open.get(group_id, ())
        )

    def partitions_of(self, group_id: str) -> Iterator[tuple[str, int]]:
        """Those with an offset, committed or pending, each once."""
        seen: set[tuple[str, int]] = set()
        stores = [self.of_group(group_id), *(self._pending[one].get(group_id, {}) for one in self._open.get(group_id, ()))]
        for topics in stores:
            for topic, partitions in topics.items():
                for partition in partitions:
                    if (topic, partition) not in seen:
                        seen.add((topic, partition))
                        yield topic, partition

    def groups_with(self, topic: str) -> dict[tuple[str, int], list[CommittedOffset]]:
        """By group and partition the offsets, committed and pending, of `topic`."""
        found: dict[tuple[str, int], list[CommittedOffset]] = {}
        for groups in (self._groups, *self._pending.values()):
            for group_id, topics in groups.items():
                for partition, committed in topics.get(topic, {}).items():
                    found.setdefault((group_id, partition), []).append(committed)
        return found

    # Replay.

    def put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        _put(self._groups, group_id, topic, partition, committed)

    def put_pending(self, producer_id: int, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        _put(self._pending.setdefault(producer_id, {}), group_id, topic, partition, committed)
        self._open.setdefault(group_id, set()).add(producer_id)

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """The pending ones too: a deletion is not undone by a transaction that began before it."""
        _remove(self._groups, group_id, topic, partition)
        for producer_id in self._open.get(group_id, ()):
            _remove(self._pending[producer_id], group_id, topic, partition)

    def end_transaction(self, producer_id: int, *, commits: bool) -> None:
        pending = self._pending.pop(producer_id, None)
        if pending is None:
            return
        for group_id, producer_ids in list(self._open.items()):
            producer_ids.discard(producer_id)
            if not producer_ids:
                del self._open[group_id]
        if not commits:
            return
        for group_id, topics in pending.items():
            for topic, partitions in topics.items():
                for partition, committed in partitions.items():
                    # A plain commit that came after the transactional one stays, whenever the marker comes.
                    there = self.get(group_id, topic, partition)
                    if there is None or committed.record_offset > there.record_offset:
                        self.put(group_id, topic, partition, committed)


def _put(groups: dict[str, Topics], group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
    topics = groups.get(group_id)
    if topics is None:
        topics = groups[group_id] = {}
    partitions = topics.get(topic)
    if partitions is None:
        partitions = topics[topic] = {}
    partitions[partition] = committed


def _remove(groups: dict[str, Topics], group_id: str, topic: str, partition: int) -> None:
    topics = groups.get(group_id)
    partitions = None if topics is None else topics.get(topic)
    if topics is None or partitions is None or partitions.pop(partition, None) is None:
        return
    if not partitions:
        del topics[topic]
    if not topics:
        del groups[group_id]
