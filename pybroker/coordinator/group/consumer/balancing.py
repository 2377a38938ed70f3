"""A balanced assignment for members that read different topics: nobody could take a partition off one who has two more.

Members are numbers here, in the order in which ties between them are broken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from pybroker.base.ids import Uuid

NOBODY: Final = -1
# A move in one topic can unbalance another; so often all topics are looked at, at most.
MAX_ROUNDS: Final = 16


def assign_balanced(
    members: Sequence[tuple[frozenset[Uuid], Mapping[Uuid, Collection[int]]]], partition_counts: Mapping[Uuid, int]
) -> list[dict[Uuid, Collection[int]]]:
    """One assignment for each of `members`, who have topics that they read and what they have been assigned so far."""
    balance = _Balance(members, partition_counts)
    balance.assign_free()
    balance.level_out()
    out: list[dict[Uuid, Collection[int]]] = [{} for _ in members]
    for topic, owners in balance.owners.items():
        for member in set(owners):
            out[member][topic] = frozenset([partition for partition, owner in enumerate(owners) if owner == member])
    return out


class _Balance:
    def __init__(
        self,
        members: Sequence[tuple[frozenset[Uuid], Mapping[Uuid, Collection[int]]]],
        partition_counts: Mapping[Uuid, int],
    ) -> None:
        self._readers: dict[Uuid, list[int]] = {}
        for member, (topics, _) in enumerate(members):
            for topic in topics:
                self._readers.setdefault(topic, []).append(member)
        self.owners = {topic: [NOBODY] * partition_counts[topic] for topic in self._readers}
        self._loads = [0] * len(members)
        for member, (topics, assigned) in enumerate(members):
            for topic, partitions in assigned.items():
                if topic in topics:
                    for partition in partitions:
                        self.owners[topic][partition] = member
                        self._loads[member] += 1

    def _in_order(self, topics: Iterable[Uuid]) -> list[Uuid]:
        """Those first that have the most partitions for each reader, of these the ones with the fewest readers."""

        def key(topic: Uuid) -> tuple[float, int, int, int]:
            readers = len(self._readers[topic])
            return -(len(self.owners[topic]) / readers), readers, *_as_longs(topic)

        return sorted(topics, key=key)

    def _ranked(self, topic: Uuid) -> list[int]:
        return sorted(self._readers[topic], key=lambda member: (self._loads[member], member))

    def assign_free(self) -> None:
        """Each to whoever of the topic's readers has the least."""
        for topic in self._in_order([topic for topic, owners in self.owners.items() if NOBODY in owners]):
            ranked = self._ranked(topic)
            least = [(self._loads[member], rank) for rank, member in enumerate(ranked)]
            for partition, owner in enumerate(self.owners[topic]):
                if owner == NOBODY:
                    load, rank = least[0]
                    self._give(topic, partition, ranked[rank])
                    heapreplace(least, (load + 1, rank))

    def level_out(self) -> None:
        """From those with the most to those with the least, topic by topic, until a whole round moves nothing."""
        topics = self._in_order([topic for topic, readers in self._readers.items() if len(readers) > 1])
        last_moved = -1
        for _ in range(MAX_ROUNDS):
            for place, topic in enumerate(topics):
                if place == last_moved:
                    return
                if self._level(topic) or last_moved == -1:
                    last_moved = place

    def _level(self, topic: Uuid) -> bool:
        """Whether anything was moved."""
        ranked = self._ranked(topic)
        if self._loads[ranked[-1]] - self._loads[ranked[0]] <= 1:
            return False
        least = [(self._loads[member], rank) for rank, member in enumerate(ranked)]
        most = [(-load, -rank) for load, rank in least]
        heapify(most)
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(self.owners[topic]):
            owned.setdefault(owner, []).append(partition)
        moved = False
        while most:
            load, rank = -most[0][0], -most[0][1]
            giver = ranked[rank]
            if load != self._loads[giver]:
                heapreplace(most, (-self._loads[giver], -rank))  # it was given something meanwhile
                continue
            if not owned.get(giver):
                heappop(most)
                continue
            taker_rank = self._least(least, ranked)
            taker = ranked[taker_rank]
            if load - self._loads[taker] <= 1:
                break
            self._give(topic, owned[giver].pop(), taker)
            heapreplace(most, (-self._loads[giver], -rank))
            heappush(least, (self._loads[giver], rank))
            heappush(least, (self._loads[taker], taker_rank))
            moved = True
        return moved

    def _least(self, least: list[tuple[int, int]], ranked: Sequence[int]) -> int:
        """The rank of whoever has the least now; entries that are out of date are dropped."""
        while least[0][0] != self._loads[ranked[least[0][1]]]:
            heappop(least)
        return least[0][1]

    def _give(self, topic: Uuid, partition: int, member: int) -> None:
        former = self.owners[topic][partition]
        if former != NOBODY:
            self._loads[former] -= 1
        self.owners[topic][partition] = member
        self._loads[member] += 1


def _as_longs(topic: Uuid) -> tuple[int, int]:
    """As Java compares them: two numbers with signs."""
    return int.from_bytes(topic[:8], "big", signed=True), int.from_bytes(topic[8:], "big", signed=True)
