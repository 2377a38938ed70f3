"""What a group sets for itself, by Apache Kafka's kafka-configs while its members are there; and members that are behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from interop.apache_kafka import ApacheTools
from interop.groups.scripted import wait_for_coordinator
from interop.groups.test_consumer_groups import Member
from interop.pybroker_node import PybrokerNode
from interop.tools.both import CONFIG_COMMAND
from support.waiting import wait_until

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages import consumer_groups, group_offsets

WAIT_S = 20.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PybrokerNode]:
    properties = {"group.consumer.min.heartbeat.interval.ms": "100", "group.consumer.min.assignment.interval.ms": "0"}
    with PybrokerNode(Path(tmp_path_factory.mktemp("configs")), properties) as node:
        node.create_topic("t", partitions=4)
        node.create_topic("u", partitions=1)
        wait_for_coordinator(node)
        yield node


def alter(tools: ApacheTools, broker: PybrokerNode, group: str, config: str) -> None:
    scope = ("--alter", "--entity-type", "groups", "--entity-name", group, "--add-config", config)
    ran = tools.run(CONFIG_COMMAND, "--bootstrap-server", broker.bootstrap, *scope)
    assert ran.exit_code == 0, ran


def described(broker: PybrokerNode, group: str) -> Any:
    request = consumer_groups.ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    return broker.ask(request).groups[0]


def settled(*members: Member) -> None:
    def are_settled() -> bool:
        for member in members:
            assert member.beat() is ErrorCode.NONE
        return bool(described(members[0].broker, members[0].group).group_state == "Stable")  # type: ignore[arg-type]

    wait_until(are_settled, WAIT_S, lambda: f"{described(members[0].broker, members[0].group)}")  # type: ignore[arg-type]


def interval_ms(member: Member) -> int:
    """As the broker says it in its answer to a heartbeat."""
    answer = member.broker.ask(
        consumer_groups.ConsumerGroupHeartbeatRequest(
            group_id=member.group, member_id=member.member_id, member_epoch=member.epoch
        )
    )
    assert answer.error_code == ErrorCode.NONE, answer
    return int(answer.heartbeat_interval_ms)


def test_a_live_group_gets_another_heartbeat_interval(tools: ApacheTools, broker: PybrokerNode) -> None:
    member = Member(broker, "m", group="paced")
    settled(member)
    wait_until(lambda: interval_ms(member) > 600, WAIT_S, lambda: "the group does not come to rest")
    alter(tools, broker, "paced", "consumer.heartbeat.interval.ms=300")
    wait_until(lambda: interval_ms(member) == 300, WAIT_S, lambda: f"it is {interval_ms(member)} ms")


def test_a_live_group_gets_another_assignment_interval(tools: ApacheTools, broker: PybrokerNode) -> None:
    alter(tools, broker, "assigned", "consumer.assignment.interval.ms=15000")
    first, second, third = (Member(broker, name, group="assigned") for name in ("first", "second", "third"))
    assert first.beat() is ErrorCode.NONE
    assert second.beat() is ErrorCode.NONE
    row = described(broker, "assigned")
    assert (row.group_state, row.group_epoch - row.assignment_epoch) == ("Assigning", 1), "it waits for the interval"
    alter(tools, broker, "assigned", "consumer.assignment.interval.ms=0")
    wait_until(
        lambda: not second.beat() and second.epoch == row.group_epoch, WAIT_S, lambda: f"{described(broker, 'assigned')}"
    )
    settled(first, second)
    assert third.beat() is ErrorCode.NONE
    assert third.epoch == row.group_epoch + 1, "it is assigned at once"


def commit(broker: PybrokerNode, member: Member, epoch: int) -> ErrorCode:
    row = group_offsets.OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
    request = group_offsets.OffsetCommitRequest(
        group_id=member.group,
        generation_id_or_member_epoch=epoch,
        member_id=member.member_id,
        topics=[group_offsets.OffsetCommitRequestTopic(name="u", partitions=[row])],
    )
    return ErrorCode(broker.ask(request, 9).topics[0].partitions[0].error_code)


def fetch(broker: PybrokerNode, member: Member, epoch: int) -> ErrorCode:
    topics = [group_offsets.OffsetFetchRequestTopics(name="u", partition_indexes=[0])]
    wanted = group_offsets.OffsetFetchRequestGroup(
        group_id=member.group, member_id=member.member_id, member_epoch=epoch, topics=topics
    )
    return ErrorCode(broker.ask(group_offsets.OffsetFetchRequest(groups=[wanted]), 9).groups[0].error_code)


def test_a_member_whose_epoch_is_stale_neither_commits_nor_fetches(broker: PybrokerNode) -> None:
    """The epoch of its last answer, though another was assigned meanwhile: what a client hears that has missed a heartbeat."""
    member = Member(broker, "behind", group="stale")
    settled(member)
    assert commit(broker, member, member.epoch) is ErrorCode.NONE
    assert fetch(broker, member, member.epoch) is ErrorCode.NONE
    for wrong in (member.epoch + 1, member.epoch - 2):
        assert commit(broker, member, wrong) is ErrorCode.STALE_MEMBER_EPOCH
        assert fetch(broker, member, wrong) is ErrorCode.STALE_MEMBER_EPOCH
