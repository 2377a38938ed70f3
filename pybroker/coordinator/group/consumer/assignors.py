"""The server-side assignors: who of a group's members is to read which partitions. Pure functions.

What they choose is what Apache Kafka chooses, down to the order in which its hash tables go, so that a coordinator of either
kind takes a group over without moving a partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from pybroker.base.ids import Uuid
from pybroker.coordinator.group.consumer.balancing import assign_balanced
from pybroker.coordinator.hashing import in_table_order, java_hash, uuid_hash

Assignment = Mapping[Uuid, Collection[int]]  # partitions by topic; a topic without partitions is not in it

NOTHING: Final[Assignment] = {}


class MemberSpec(NamedTuple):
    """What an assignor knows of a member: `topics` that exist and that it reads, and what it has been assigned so far."""

    instance_id: str | None
    topics: frozenset[Uuid]
    assigned: Assignment = NOTHING


Members = Mapping[str, MemberSpec]
Assignor = Callable[[Members, Mapping[Uuid, int], bool], dict[str, Assignment]]


def assign_uniform(members: Members, partition_counts: Mapping[Uuid, int], is_homogeneous: bool) -> dict[str, Assignment]:
    """As many partitions to each member as to any other, and each keeps what it has as far as that goes. `partition_counts`
    has every topic that anybody reads; a group is homogeneous if all its members subscribe to the same."""
    if not members:
        return {}
    if is_homogeneous:
        return _fill_up(members, partition_counts)
    order = in_table_order(members, java_hash)
    return dict(
        zip(
            order,
            assign_balanced([(members[one].topics, members[one].assigned) for one in order], partition_counts),
            strict=True,
        )
    )


def _fill_up(members: Members, partition_counts: Mapping[Uuid, int]) -> dict[str, Assignment]:
    """Everybody keeps up to a quota; what is over and what is new goes to those below theirs."""
    order = in_table_order(members, java_hash)
    topics = members[order[0]].topics
    if not topics:
        return {}
    taken = {
        (topic, partition)
        for spec in members.values()
        for topic, partitions in spec.assigned.items()
        for partition in partitions
    }
    free = [
        (topic, partition)
        for topic in in_table_order(topics, uuid_hash, is_copy=True)
        for partition in range(partition_counts[topic])
        if (topic, partition) not in taken
    ]
    quota, larger = divmod(sum(partition_counts[topic] for topic in topics), len(members))
    kept: dict[str, dict[Uuid, list[int]]] = {}
    room: dict[str, int] = {}
    for place, member_id in enumerate(order):
        may_have = quota + 1 if larger else quota
        kept[member_id], over = _keep(members[member_id].assigned, topics, may_have)
        free += over
        left = may_have - sum(map(len, kept[member_id].values()))
        is_larger = larger > 0
        if left and is_larger and len(order) - place > larger:
            # Somebody behind it may have that one more already.
            left -= 1
            is_larger = False
        if left:
            room[member_id] = left
        larger -= is_larger
    at = 0
    for member_id, left in room.items():
        for topic, partition in free[at : at + left]:
            kept[member_id].setdefault(topic, []).append(partition)
        at += left
    assert at >= len(free), f"{len(free) - at} partitions have no member"
    return {member_id: {topic: frozenset(some) for topic, some in mine.items()} for member_id, mine in kept.items()}


def _keep(assigned: Assignment, topics: frozenset[Uuid], may_have: int) -> tuple[dict[Uuid, list[int]], list[tuple[Uuid, int]]]:
    """What a member keeps of `assigned`, and what is over."""
    kept: dict[Uuid, list[int]] = {}
    over: list[tuple[Uuid, int]] = []
    for topic in in_table_order(assigned, uuid_hash):
        if topic in topics:
            partitions = in_table_order(sorted(assigned[topic]), int, is_copy=True)
            if may_have:
                kept[topic] = partitions[:may_have]
            over += [(topic, partition) for partition in partitions[may_have:]]
            may_have = max(may_have - len(partitions), 0)
    return kept, over


def assign_range(members: Members, partition_counts: Mapping[Uuid, int], is_homogeneous: bool) -> dict[str, Assignment]:
    """Each topic in consecutive ranges, the first members one longer: with equal counts, partition n of every topic has one
    reader. Static members come first, by instance id; a restart keeps their place."""
    order = sorted(members, key=lambda one: _place(one, members[one].instance_id))
    readers: dict[Uuid, list[str]] = {}
    for member_id in order:
        for topic in members[member_id].topics:
            readers.setdefault(topic, []).append(member_id)
    out: dict[str, dict[Uuid, Collection[int]]] = {member_id: {} for member_id in order}
    for topic, group in readers.items():
        quota, larger = divmod(partition_counts[topic], len(group))
        begin = 0
        for place, member_id in enumerate(group):
            end = begin + quota + (place < larger)
            if begin < end:
                out[member_id][topic] = frozenset(range(begin, end))
            begin = end
    return dict(out)


def _place(member_id: str, instance_id: str | None) -> tuple[bool, str]:
    return (True, member_id) if instance_id is None else (False, instance_id)


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
