"""Requests that no client sends: whatever is in them, the coordinator has an answer and goes on."""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest
from support.random_messages import random_message
from unit.coordinator.group.members import Member, committed, send_commit, stabilize
from unit.coordinator.worlds import Answer, World

from pybroker.coordinator.group.offsets import FetchOffsets
from pybroker.coordinator.group.settings import GroupSettings
from pybroker.coordinator.runtime import Requested, TransactionEnded
from pybroker.coordinator.shard import Producer, Request
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages import consumer_groups, group_offsets, groups
from pybroker.protocol.messages.transactions import TxnOffsetCommitRequest

KINDS = (
    groups.JoinGroupRequest,
    groups.SyncGroupRequest,
    groups.HeartbeatRequest,
    groups.LeaveGroupRequest,
    groups.DescribeGroupsRequest,
    consumer_groups.ConsumerGroupHeartbeatRequest,
    consumer_groups.ConsumerGroupHeartbeatRequest,
    consumer_groups.ConsumerGroupDescribeRequest,
    groups.ListGroupsRequest,
    groups.DeleteGroupsRequest,
    group_offsets.OffsetCommitRequest,
    group_offsets.OffsetDeleteRequest,
    TxnOffsetCommitRequest,
)


def made_likely(draw: random.Random, message: Any, ids: list[str]) -> Any:
    """Speak of groups and members that are there, more often than not."""
    group = draw.choice(("a", "b", "c", "nobody"))
    for name, likely in (
        ("group_id", group),
        ("member_id", draw.choice(["", *ids])),
        ("group_instance_id", draw.choice((None, None, "i"))),
        ("generation_id", draw.randrange(-1, 4)),
        ("generation_id_or_member_epoch", draw.randrange(-1, 4)),
        ("protocol_type", draw.choice(("consumer", "connect"))),
        ("producer_id", draw.randrange(3)),
        ("member_epoch", draw.choice((0, 0, -1, -2, 1, 2, 3, 4))),
        ("instance_id", draw.choice((None, None, "i"))),
        ("subscribed_topic_names", draw.choice((None, [], ["t"], ["t", "u"], ["u", "nothing"]))),
        ("subscribed_topic_regex", draw.choice((None, "", "t|u", "(", "u.*"))),
        ("server_assignor", draw.choice((None, "range"))),
        ("rebalance_timeout_ms", draw.choice((-1, 1000, 60_000))),
        ("topic_partitions", draw.choice((None, []))),
        ("group_ids", [group]),
        ("groups", [group]),
        ("groups_names", [group]),
    ):
        if hasattr(message, name) and draw.random() < 0.8:
            setattr(message, name, likely)
    if isinstance(message, groups.JoinGroupRequest) and draw.random() < 0.8:
        message.protocols = [groups.JoinGroupRequestProtocol(name="range", metadata=draw.randbytes(draw.randrange(12)))]
    return message


@pytest.mark.parametrize("seed", range(10))
def test_any_request_is_answered_and_the_log_replays_to_the_same(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    draw = random.Random(seed)
    world = World(GroupSettings(initial_rebalance_delay_ms=0, max_size=4))
    world.cluster.add("t", 4)
    world.cluster.add("u", 2)
    regular = Member(world, "m", "a")
    stabilize(regular)
    ids = [regular.id]
    asked: list[Answer] = []
    for _ in range(400):
        kind = draw.choice(KINDS)
        version = draw.randrange(kind.VERSIONS.low, kind.VERSIONS.high + 1)
        message = made_likely(draw, random_message(draw, kind, version), ids)
        answer = Answer()
        world.run(Requested(0, Request(message, answer, version, "client", "/127.0.0.1")))
        asked.append(answer)
        if isinstance(message, groups.JoinGroupRequest) and answer.is_there and answer.refusal is None:
            ids.append(answer.response.member_id)
        if draw.random() < 0.1:
            world.run(TransactionEnded(0, Producer(draw.randrange(3), 0), 1, draw.random() < 0.5, Answer()))
        if draw.random() < 0.2:
            world.advance(draw.randrange(20_000))
    # Whoever still waits for others has an answer when all sessions and rebalances are over.
    world.advance(2**31)
    world.advance(2**31)
    assert all(answer.is_there for answer in asked)
    failed = [record.getMessage() for record in caplog.records if record.exc_info]
    assert failed == []
    before = offsets(world)
    world.begin()
    assert offsets(world) == before
    assert send_commit(world, 5, group="fresh").is_there
    assert committed(world, "fresh") == 5


def offsets(world: World) -> dict[str, Any]:
    found = {}
    for group in ("a", "b", "c"):
        wanted = group_offsets.OffsetFetchRequestGroup(group_id=group, topics=None)
        response = world.ask(FetchOffsets(wanted)).response
        found[group] = {
            (topic.name, row.partition_index): (row.committed_offset, row.metadata)
            for topic in response.topics
            for row in topic.partitions
        }
    return found


def test_a_name_that_fits_a_request_but_no_record_is_refused() -> None:
    world = World()
    assert send_commit(world, 5, group="g" * 40_000).refusal is ErrorCode.UNKNOWN_SERVER_ERROR
    assert Member(world, "m", "g" * 40_000).send_join().refusal is ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.shard.groups == {}
    assert send_commit(world, 5).is_there


def test_an_expiry_beyond_the_end_of_time_wraps_as_javas_does() -> None:
    world = World()
    send_commit(world, 5, retention_ms=2**63 - 1, version=4)
    assert committed(world) == 5
