"""Committed offsets: who may commit, what is found again, what is deleted and what grows too old."""

from __future__ import annotations

from typing import Any

import pytest
from unit.coordinator.group.members import Member, commit, committed, send_commit, stabilize
from unit.coordinator.worlds import START_MS, Answer, World

from pybroker.base.ids import Uuid
from pybroker.coordinator.group.offsets import FetchOffsets
from pybroker.coordinator.group.settings import GroupSettings
from pybroker.coordinator.group.shard import TopicsDeleted
from pybroker.coordinator.runtime import RequestedOfAll, TransactionEnded
from pybroker.coordinator.shard import Producer, Request
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.consumer_offsets import OffsetCommitValue
from pybroker.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from pybroker.protocol.messages.groups import DeleteGroupsRequest, ListGroupsRequest
from pybroker.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

DAY_MS = 24 * 3600 * 1000
WEEK_MS = 7 * DAY_MS


@pytest.fixture
def world() -> World:
    return World()


def groups(world: World, *states: str) -> list[str]:
    listed = world.ask(ListGroupsRequest(states_filter=list(states))).response.groups
    return sorted(group.group_id for group in listed)


def delete_offsets(world: World, *partitions: int, group: str = "g", topic: str = "t") -> Answer:
    rows = [OffsetDeleteRequestPartition(partition_index=partition) for partition in partitions]
    return world.ask(OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=rows)]))


def commit_in_transaction(world: World, offset: int, producer_id: int = 7, **options: Any) -> Answer:
    row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    fields = {"member_id": "", "generation_id": -1, "group_id": "g"} | options
    return world.ask(
        TxnOffsetCommitRequest(
            transactional_id="x",
            producer_id=producer_id,
            producer_epoch=0,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[row])],
            **fields,
        )
    )


def end_transaction(world: World, producer_id: int = 7, *, commits: bool = True) -> None:
    ending = Answer()
    world.run(TransactionEnded(0, Producer(producer_id, 0), 1, commits, ending))
    assert ending.is_there


# Who may commit.


def test_a_simple_consumer_commits_without_ever_joining(world: World) -> None:
    assert commit(world, 5) is ErrorCode.NONE
    assert committed(world) == 5
    assert groups(world, "Empty") == ["g"]


def test_what_was_committed_last_counts_forward_or_back(world: World) -> None:
    for offset in (5, 9, 2):
        commit(world, offset)
    assert committed(world) == 2


def test_a_simple_consumer_keeps_out_of_a_group_with_members(world: World) -> None:
    stabilize(Member(world))
    assert commit(world, 5) is ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(world) == -1


def test_a_generation_of_a_group_that_is_not_there_is_refused_in_the_words_of_its_time(world: World) -> None:
    assert commit(world, 5, member_id="m", generation=3, version=8) is ErrorCode.ILLEGAL_GENERATION
    assert commit(world, 5, member_id="m", generation=3, version=9) is ErrorCode.GROUP_ID_NOT_FOUND
    assert groups(world) == []


def test_after_the_last_member_left_only_simple_consumers_commit(world: World) -> None:
    member = Member(world)
    stabilize(member)
    member.leave()
    assert member.commit(5) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(world, 6) is ErrorCode.NONE


def test_a_text_that_is_too_long_costs_its_partition_only() -> None:
    world = World(GroupSettings(metadata_max_length=10))
    rows = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata=text)
        for index, text in enumerate(("x" * 10, "x" * 11, "\U0001f40d" * 5, "\U0001f40d" * 6))
    ]
    message = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name="t", partitions=rows)],
    )
    codes = [ErrorCode(row.error_code) for row in world.ask(message).response.topics[0].partitions]
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert codes == [ErrorCode.NONE, too_large, ErrorCode.NONE, too_large]
    assert [committed(world, partition=index) for index in range(4)] == [1, -1, 1, -1]


def test_a_commit_is_answered_when_it_is_committed(world: World) -> None:
    world.log.lags = True
    answer = send_commit(world, 5)
    assert not answer.is_there
    world.commit()
    assert answer.is_there


def test_what_is_written_is_what_apache_kafka_writes(world: World) -> None:
    commit(world, 5, metadata="text")
    commit(world, 6, retention_ms=1000, version=4)
    (_, plain), (_, expiring) = world.log.rows()
    assert isinstance(plain, OffsetCommitValue)
    assert (plain.offset, plain.leader_epoch, plain.metadata, plain.commit_timestamp) == (5, -1, "text", START_MS)
    assert expiring.expire_timestamp == START_MS + 1000
    values = [record.value for batch in world.log.batches[0] for record in batch.records()]
    assert [value[:2] for value in values if value is not None] == [b"\x00\x04", b"\x00\x01"]


# What is found.


def test_of_a_group_that_is_not_there_nothing_is_committed_which_is_no_error(world: World) -> None:
    assert committed(world, "nobody") == -1


def test_everything_of_a_group(world: World) -> None:
    commit(world, 5, topic="a", partition=2)
    commit(world, 6, topic="b")
    response = world.ask(FetchOffsets(OffsetFetchRequestGroup(group_id="g", topics=None))).response
    found = {(topic.name, row.partition_index): row.committed_offset for topic in response.topics for row in topic.partitions}
    assert found == {("a", 2): 5, ("b", 0): 6}


def test_an_offset_of_a_topic_of_the_same_name_that_was_deleted_since_is_not_found(world: World) -> None:
    commit(world, 5)
    old = world.cluster.topics["t"].topic_id
    world.cluster.remove("t")
    new = world.cluster.add("t", 1).topic_id

    def found(topic_id: Uuid) -> int:
        wanted = OffsetFetchRequestTopics(name="t", topic_id=topic_id, partition_indexes=[0])
        response = world.ask(FetchOffsets(OffsetFetchRequestGroup(group_id="g", topics=[wanted]))).response
        return int(response.topics[0].partitions[0].committed_offset)

    assert (found(old), found(new)) == (5, -1)
    assert committed(world) == -1, "who asks by name means the topic that is there"
    everything = world.ask(FetchOffsets(OffsetFetchRequestGroup(group_id="g", topics=None))).response
    assert everything.topics == []


# Deletion.


def test_offsets_are_deleted_one_by_one(world: World) -> None:
    for partition in range(3):
        commit(world, 5, partition=partition)
    response = delete_offsets(world, 0, 2, 9).response
    assert [row.error_code for row in response.topics[0].partitions] == [0, 0, 0]
    assert [committed(world, partition=partition) for partition in range(3)] == [-1, 5, -1]
    assert len([value for _, value in world.log.rows() if value is None]) == 2


def test_offsets_of_topics_that_members_read_stay(world: World) -> None:
    commit(world, 5, topic="t")
    commit(world, 6, topic="old")
    stabilize(Member(world, topics=("t",)))
    assert delete_offsets(world, 0).response.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete_offsets(world, 0, topic="old").response.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert (committed(world), committed(world, topic="old")) == (5, -1)


def test_no_offset_is_deleted_of_a_group_of_another_kind_with_members(world: World) -> None:
    stabilize(Member(world, protocol_type="connect"))
    assert delete_offsets(world, 0).refusal is ErrorCode.NON_EMPTY_GROUP
    assert delete_offsets(world, 0, group="nobody").refusal is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_is_deleted_with_its_offsets_when_nobody_is_in_it(world: World) -> None:
    member = Member(world)
    stabilize(member)
    member.commit(5)
    deleted = world.ask(DeleteGroupsRequest(groups_names=["g", "nobody"])).response.results
    assert [row.error_code for row in deleted] == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
    member.leave()
    assert world.ask(DeleteGroupsRequest(groups_names=["g"])).response.results[0].error_code == ErrorCode.NONE
    assert (groups(world), committed(world)) == ([], -1)
    world.begin()
    assert (groups(world), committed(world)) == ([], -1)


def delete_topic(world: World, name: str = "t", *, and_again: bool = False) -> None:
    """`and_again`: another has its name before anybody is told."""
    world.cluster.remove(name)
    if and_again:
        world.cluster.add(name, 1)
    world.run(RequestedOfAll(Request(TopicsDeleted((name,)))))


def stored(world: World, group: str = "g") -> set[tuple[str, int]]:
    return set(world.shard.committed.partitions_of(group))


def test_a_topic_takes_the_offsets_of_all_groups_with_it(world: World) -> None:
    for group in ("g", "h"):
        commit(world, 5, group=group)
        commit(world, 6, group=group, topic="kept")
    commit_in_transaction(world, 9)
    delete_topic(world)
    end_transaction(world)
    assert [committed(world, group) for group in ("g", "h")] == [-1, -1]
    assert [committed(world, group, "kept") for group in ("g", "h")] == [6, 6]


def test_a_topic_that_is_created_again_at_once_does_not_inherit_the_offsets(world: World) -> None:
    commit(world, 5)
    commit(world, 4, partition=1)
    world.cluster.remove("t")
    world.cluster.add("t", 2)
    commit(world, 6, partition=1)
    world.run(RequestedOfAll(Request(TopicsDeleted(("t",)))))
    assert stored(world) == {("t", 1)}
    assert [committed(world, partition=partition) for partition in (0, 1)] == [-1, 6]


def test_a_topic_that_is_deleted_while_nothing_can_be_written_takes_its_offsets_when_it_can(world: World) -> None:
    commit(world, 5)
    world.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    delete_topic(world, and_again=True)
    world.advance(2000)
    assert stored(world) == {("t", 0)}
    world.log.refuses = ErrorCode.NONE
    world.advance(500)
    assert stored(world) == set()


def test_a_topic_that_is_deleted_while_the_shard_is_loaded_takes_its_offsets_with_it(world: World) -> None:
    world.cluster.add("kept", 1)
    commit(world, 5)
    commit(world, 6, topic="kept")
    world.loads_at_once = False
    world.begin()
    delete_topic(world, and_again=True)
    world.load()
    assert committed(world) == -1
    world.advance(0)
    assert stored(world) == {("kept", 0)}


def test_offsets_of_a_former_topic_that_a_transaction_kept_are_swept_when_they_expire(world: World) -> None:
    commit(world, 5)
    commit_in_transaction(world, 9)
    world.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    delete_topic(world, and_again=True)
    world.log.refuses = ErrorCode.NONE
    end_transaction(world)
    assert committed(world) == -1, "it was committed for the former topic"
    world.advance(600_000)
    assert stored(world) == set()


def test_the_offset_of_an_open_transaction_for_a_new_topic_is_not_swept_with_the_old_topics(world: World) -> None:
    commit(world, 5)
    world.cluster.remove("t")
    world.cluster.add("t", 1)
    commit_in_transaction(world, 9)
    world.run(RequestedOfAll(Request(TopicsDeleted(("t",)))))
    world.begin()
    world.advance(600_000)
    end_transaction(world)
    assert committed(world) == 9


def test_a_group_with_more_offsets_than_fit_a_batch_is_deleted(world: World) -> None:
    for partition in range(50):
        commit(world, 5, partition=partition)
    commit(world, 5, group="h")
    world.log.max_bytes = 1000
    deleted = world.ask(DeleteGroupsRequest(groups_names=["g", "h"])).response.results
    assert [row.error_code for row in deleted] == [ErrorCode.NONE] * 2
    assert len(world.log.batches[0]) > 51 + 2
    world.begin()
    assert (groups(world), stored(world)) == ([], set())


# Expiry.


def test_offsets_of_simple_consumers_expire_a_week_after_the_commit(world: World) -> None:
    commit(world, 5)
    world.advance(WEEK_MS - 1)
    assert committed(world) == 5
    world.advance(600_000)
    assert committed(world) == -1
    assert groups(world) == []


def test_each_offset_of_a_simple_consumer_has_its_own_week(world: World) -> None:
    commit(world, 5, partition=0)
    world.advance(3 * DAY_MS)
    commit(world, 6, partition=1)
    world.advance(5 * DAY_MS)
    assert [committed(world, partition=partition) for partition in (0, 1)] == [-1, 6]
    assert groups(world) == ["g"]


def test_the_week_of_a_group_begins_when_its_last_member_leaves(world: World) -> None:
    member = Member(world, session_ms=1_800_000)
    stabilize(member)
    member.commit(5)
    for _ in range(8 * 48):
        world.advance(DAY_MS // 48 - 1)
        member.heartbeat()
    assert committed(world) == 5
    member.leave()
    world.advance(WEEK_MS - 1000)
    assert committed(world) == 5
    world.advance(700_000)
    assert (committed(world), groups(world)) == (-1, [])


def test_topics_that_members_read_stay_and_others_expire(world: World) -> None:
    commit(world, 4, topic="old")
    member = Member(world, topics=("t",), session_ms=1_800_000)
    stabilize(member)
    member.commit(5)
    for _ in range(8 * 48):
        world.advance(DAY_MS // 48 - 1)
        member.heartbeat()
    assert (committed(world), committed(world, topic="old")) == (5, -1)


def test_an_expiry_that_the_client_gave_comes_before_the_brokers(world: World) -> None:
    commit(world, 5, retention_ms=DAY_MS, version=4)
    world.advance(DAY_MS - 1000)
    assert committed(world) == 5
    world.advance(700_000)
    assert committed(world) == -1


# Transactions.


def test_an_offset_of_a_transaction_counts_when_it_commits(world: World) -> None:
    commit(world, 5)
    commit_in_transaction(world, 9)
    assert committed(world) == 5
    assert committed(world, require_stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    end_transaction(world)
    assert committed(world, require_stable=True) == 9


def test_an_offset_of_a_transaction_that_aborts_never_counts(world: World) -> None:
    commit(world, 5)
    commit_in_transaction(world, 9)
    end_transaction(world, commits=False)
    assert committed(world, require_stable=True) == 5


def test_pending_offsets_survive_the_coordinator(world: World) -> None:
    commit_in_transaction(world, 9, 7)
    commit_in_transaction(world, 3, 8, group_id="h")
    world.begin()
    assert committed(world) == -1
    end_transaction(world, 7)
    end_transaction(world, 8, commits=False)
    assert (committed(world), committed(world, "h")) == (9, -1)
    world.begin()
    assert (committed(world), committed(world, "h")) == (9, -1)


def test_a_plain_commit_after_the_transactional_one_stays(world: World) -> None:
    commit_in_transaction(world, 9)
    commit(world, 12)
    end_transaction(world)
    assert committed(world) == 12


def test_an_offset_that_a_transaction_is_about_to_commit_does_not_expire_and_holds_the_group(world: World) -> None:
    commit(world, 5)
    commit_in_transaction(world, 9)
    world.advance(2 * WEEK_MS)
    assert committed(world) == 5
    end_transaction(world, commits=False)
    world.advance(DAY_MS)
    assert (committed(world), groups(world)) == (-1, [])


def test_a_transaction_of_another_generation_is_fenced(world: World) -> None:
    member = Member(world)
    stabilize(member)
    stale = commit_in_transaction(world, 9, member_id=member.id, generation_id=0)
    assert stale.refusal is ErrorCode.ILLEGAL_GENERATION
    assert commit_in_transaction(world, 9, member_id="nobody", generation_id=1).refusal is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_in_transaction(world, 9, member_id=member.id, generation_id=1).is_there
    assert commit_in_transaction(world, 9, group_id="none", generation_id=4).refusal is ErrorCode.ILLEGAL_GENERATION


def test_a_deletion_is_not_undone_by_a_transaction_that_began_before_it(world: World) -> None:
    commit_in_transaction(world, 9)
    delete_offsets(world, 0)
    end_transaction(world)
    assert committed(world) == -1
