"""Commits and fetches of members of consumer groups: the epoch says whether they still may."""

from __future__ import annotations

from unit.coordinator.group.consumer.consumers import Consumer, settle
from unit.coordinator.worlds import World

from pybroker.coordinator.group.offsets import FetchOffsets
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)


def commit(member: Consumer, partition: int, offset: int, *, epoch: int | None = None, version: int = 9) -> ErrorCode:
    topic = member.world.cluster.topic("t")
    assert topic is not None
    row = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
    answer = member.world.ask(
        OffsetCommitRequest(
            group_id=member.group,
            generation_id_or_member_epoch=member.epoch if epoch is None else epoch,
            member_id=member.member_id,
            topics=[OffsetCommitRequestTopic(name="t", topic_id=topic.topic_id, partitions=[row])],
        ),
        version,
    )
    if answer.refusal is not None:
        return answer.refusal
    return ErrorCode(answer.response.topics[0].partitions[0].error_code)


def fetch(member: Consumer, *, epoch: int) -> ErrorCode:
    group = OffsetFetchRequestGroup(
        group_id=member.group,
        member_id=member.member_id,
        member_epoch=epoch,
        topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])],
    )
    return member.world.ask(FetchOffsets(group), 9).code


def member_of_two() -> tuple[World, Consumer, Consumer]:
    world = World()
    world.cluster.add("t", 4)
    first, second = Consumer(world, "first"), Consumer(world, "second")
    settle(first)
    second.heartbeat()
    settle(first, second)
    return world, first, second


def test_the_present_epoch_commits_and_a_later_one_does_not() -> None:
    _, first, _ = member_of_two()
    assert commit(first, 0, 5) == ErrorCode.NONE
    assert commit(first, 0, 6, epoch=first.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(Consumer(first.world, "stranger"), 0, 6, epoch=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(first, 0, 6, version=8) == ErrorCode.UNSUPPORTED_VERSION


def test_a_former_epoch_commits_what_was_had_then_and_still_is() -> None:
    """KIP-1251: a commit that was under way when its member moved on is not lost."""
    _, first, second = member_of_two()
    kept = min(partition for _, partition in first.owned)
    moved = min(partition for _, partition in second.owned)
    assert commit(first, kept, 7, epoch=first.epoch - 1) == ErrorCode.NONE
    assert commit(first, moved, 7, epoch=first.epoch - 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(second, moved, 7, epoch=second.epoch - 1) == ErrorCode.STALE_MEMBER_EPOCH, "it had it not yet"


def test_fetches_are_held_to_the_epoch_too() -> None:
    _, first, _ = member_of_two()
    assert fetch(first, epoch=first.epoch) == ErrorCode.NONE
    assert fetch(first, epoch=first.epoch - 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert fetch(Consumer(first.world, "stranger"), epoch=1) == ErrorCode.UNKNOWN_MEMBER_ID
