"""Members of consumer groups, as a client library would be: they send heartbeats when they are told to, give up what is not
theirs any more, and say so with the next heartbeat."""

from __future__ import annotations

from collections.abc import Sequence

from unit.coordinator.worlds import Answer, World

from pybroker.base.ids import Uuid
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    DescribedGroup,
)

SESSION_MS = 45_000
REBALANCE_MS = 60_000


class Consumer:
    def __init__(
        self,
        world: World,
        member_id: str,
        *,
        group: str = "g",
        topics: Sequence[str] | None = ("t",),
        regex: str | None = None,
        instance: str | None = None,
        assignor: str | None = None,
        rebalance_ms: int = REBALANCE_MS,
    ) -> None:
        self.world = world
        self.member_id = member_id
        self.group = group
        self.topics = topics
        self.regex = regex
        self.instance = instance
        self.assignor = assignor
        self.rebalance_ms = rebalance_ms
        self.epoch = 0
        self.interval_ms = 0
        self.owned: set[tuple[str, int]] = set()
        self.assigned: set[tuple[str, int]] = set()
        self.gives_up = True  # what it should, at once

    def __repr__(self) -> str:
        return f"Consumer({self.member_id!r}, epoch {self.epoch}, owned {sorted(self.owned)})"

    # Requests.

    def send(self, *, is_full: bool = False) -> Answer:
        """A heartbeat, unanswered."""
        is_full |= self.epoch <= 0
        return self.world.ask(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.member_id,
                member_epoch=self.epoch,
                instance_id=self.instance,
                rebalance_timeout_ms=self.rebalance_ms if is_full else -1,
                subscribed_topic_names=None if self.topics is None or not is_full else list(self.topics),
                subscribed_topic_regex=self.regex if is_full else None,
                server_assignor=self.assignor if is_full else None,
                topic_partitions=self._owned_rows(),
            ),
            1,
        )

    def _owned_rows(self) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
        rows: dict[Uuid, list[int]] = {}
        for name, partition in sorted(self.owned):
            topic = self.world.cluster.topic(name)
            if topic is not None:
                rows.setdefault(topic.topic_id, []).append(partition)
        return [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=one, partitions=some) for one, some in rows.items()]

    def heartbeat(self, *, is_full: bool = False) -> ErrorCode:
        """One heartbeat, and what follows from it."""
        answer = self.send(is_full=is_full)
        if answer.refusal is not None or answer.response.error_code:
            code = answer.code
            if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                self.owned.clear()
                self.assigned.clear()
                self.epoch = 0
            return code
        response = answer.response
        self.epoch = response.member_epoch
        self.interval_ms = response.heartbeat_interval_ms
        if response.assignment is not None:
            self.assigned = {
                (topic.name, partition)
                for row in response.assignment.topic_partitions
                if (topic := self.world.cluster.topic_by_id(row.topic_id)) is not None
                for partition in row.partitions
            }
            if self.gives_up:
                self.owned = set(self.assigned)
            else:
                self.owned |= self.assigned
        return ErrorCode.NONE

    def subscribe(self, *topics: str) -> ErrorCode:
        self.topics = topics
        return self.heartbeat(is_full=True)

    def leave(self) -> ErrorCode:
        return self._end(-1)

    def go_away(self) -> ErrorCode:
        """A static member that means to come back."""
        return self._end(-2)

    def _end(self, epoch: int) -> ErrorCode:
        self.owned.clear()
        self.epoch = epoch
        code = self.send().code
        self.epoch = 0
        return code


def settle(*members: Consumer, rounds: int = 20) -> None:
    """Heartbeats until nobody is told anything new."""
    world = members[0].world
    for _ in range(rounds):
        world.advance(1000)
        before = [(member.epoch, set(member.owned)) for member in members]
        codes = [member.heartbeat() for member in members]
        if (
            not any(codes)
            and before == [(member.epoch, member.owned) for member in members]
            and describe(members[0]).group_state == "Stable"
        ):
            return
    raise AssertionError(f"the group does not settle: {members}, {describe(members[0])}")


def describe(member: Consumer) -> DescribedGroup:
    answer = member.world.ask(ConsumerGroupDescribeRequest(group_ids=[member.group], include_authorized_operations=False))
    (row,) = answer.response.groups
    assert isinstance(row, DescribedGroup)
    return row
