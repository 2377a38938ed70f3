"""How a member comes from what it has to what it is to have: it gives up first, and gets what the others have given up.

A partition is somebody's until that member has said, by what it lists as owned, that it has let go. So at no moment two
members have it, however late the news of a new target reaches either.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from pybroker.base.ids import Uuid
from pybroker.coordinator.group.consumer.assignors import Assignment
from pybroker.coordinator.group.consumer.member import (
    NO_PARTITIONS,
    ConsumerMember,
    EpochedPartitions,
    MemberState,
)
from pybroker.protocol.errors import ErrorCode, KafkaError

Owned = Mapping[Uuid, Collection[int]]


def reconciled(
    member: ConsumerMember,
    target: Assignment,
    target_epoch: int,
    *,
    subscribed: Collection[Uuid],
    is_free: Callable[[Uuid, int], bool],
    owned: Owned | None,
    has_new_subscription: bool,
) -> ConsumerMember:
    """`member` after its next step, itself if it stays where it is. `is_free`: nobody else has the partition; `owned` is what
    the member says it has, None if it says nothing."""
    if member.state is MemberState.UNKNOWN and (owned is None or owned):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
        )
    waits = member.state is MemberState.UNREVOKED_PARTITIONS and _owns(owned, member.pending_revocation)
    if waits or member.is_reconciled_to(target_epoch):
        return _without_unsubscribed(member, subscribed, owned) if has_new_subscription else member
    return _next(member, target, target_epoch, subscribed, is_free, owned)


def _owns(owned: Owned | None, partitions: EpochedPartitions) -> bool:
    """Whether it has any of `partitions`, as far as is known."""
    return owned is None or any(
        partition in partitions.get(topic_id, ()) for topic_id, some in owned.items() for partition in some
    )


def _next(
    member: ConsumerMember,
    target: Assignment,
    target_epoch: int,
    subscribed: Collection[Uuid],
    is_free: Callable[[Uuid, int], bool],
    owned: Owned | None,
) -> ConsumerMember:
    assigned: dict[Uuid, dict[int, int]] = {}
    revoked: dict[Uuid, dict[int, int]] = {}
    for topic_id, epochs in member.assigned.items():
        wanted: Collection[int] = target.get(topic_id, ()) if topic_id in subscribed else ()
        for partition, epoch in epochs.items():
            (assigned if partition in wanted else revoked).setdefault(topic_id, {})[partition] = epoch
    if revoked and _owns(owned, revoked):
        return _moved(member, MemberState.UNREVOKED_PARTITIONS, member.epoch, assigned, revoked)
    is_complete = True
    for topic_id, partitions in target.items():
        if topic_id not in subscribed:
            continue
        for partition in sorted(partitions):
            if partition in assigned.get(topic_id, ()):
                continue
            if is_free(topic_id, partition):
                assigned.setdefault(topic_id, {})[partition] = target_epoch
            else:
                is_complete = False
    state = MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS
    return _moved(member, state, target_epoch, assigned, NO_PARTITIONS)


def _without_unsubscribed(member: ConsumerMember, subscribed: Collection[Uuid], owned: Owned | None) -> ConsumerMember:
    """What it does not read any more it gives up at once, whatever the next target will be."""
    gone = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id not in subscribed}
    if not gone:
        return member
    kept = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id in subscribed}
    revoked = {topic_id: dict(epochs) for topic_id, epochs in member.pending_revocation.items()}
    for topic_id, epochs in gone.items():
        revoked[topic_id] = revoked.get(topic_id, {}) | dict(epochs)
    if _owns(owned, revoked):
        return _moved(member, MemberState.UNREVOKED_PARTITIONS, member.epoch, kept, revoked)
    return replace(member, previous_epoch=member.epoch, assigned=kept)


def _moved(
    member: ConsumerMember, state: MemberState, epoch: int, assigned: EpochedPartitions, revoked: EpochedPartitions
) -> ConsumerMember:
    return replace(member, state=state, epoch=epoch, previous_epoch=member.epoch, assigned=assigned, pending_revocation=revoked)
