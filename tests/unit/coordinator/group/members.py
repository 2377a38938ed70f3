"""Members of classic groups, as a client library would be: they know their id and generation, and do as they are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unit.coordinator.worlds import Answer, World

from pybroker.base.ids import ZERO_UUID
from pybroker.coordinator.group.offsets import FetchOffsets
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.consumer_protocol import ConsumerProtocolSubscription
from pybroker.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from pybroker.protocol.messages.groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription(*topics: str) -> bytes:
    return b"\0\0" + ConsumerProtocolSubscription(topics=list(topics)).encode(0)


class Member:
    def __init__(
        self,
        world: World,
        name: str = "client",
        group: str = "g",
        *,
        instance: str | None = None,
        protocols: Sequence[str] = ("range",),
        topics: Sequence[str] = ("t",),
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 9,
    ) -> None:
        self.world = world
        self.name = name
        self.group = group
        self.instance = instance
        self.protocols = protocols
        self.topics = topics
        self.protocol_type = protocol_type
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.version = version
        self.id = ""
        self.generation = -1
        self.joining = Answer()
        self.syncing = Answer()

    def send_join(self) -> Answer:
        rows = [JoinGroupRequestProtocol(name=name, metadata=subscription(*self.topics)) for name in self.protocols]
        message = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocols=rows,
        )
        return self.world.ask(message, self.version, client_id=self.name)

    def join(self) -> Answer:
        """Until the group has an answer for it: an id is asked for first, as clients do."""
        self.joining = self.send_join()
        if self.joining.is_there and self.joining.code is ErrorCode.MEMBER_ID_REQUIRED:
            self.id = self.joining.response.member_id
            self.joining = self.send_join()
        return self.joining

    def learn(self) -> Any:
        """Take the answer to its join in."""
        response = self.joining.response
        assert response.error_code == ErrorCode.NONE, response
        self.id = response.member_id
        self.generation = response.generation_id
        return response

    @property
    def leads(self) -> bool:
        return bool(self.joining.response.leader == self.id)

    def sync(self, assignments: Mapping[str, bytes] | None = None, **changes: Any) -> Answer:
        fields = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.id,
            "group_instance_id": self.instance,
            "protocol_type": self.protocol_type,
            "protocol_name": self.joining.response.protocol_name,
            "assignments": [
                SyncGroupRequestAssignment(member_id=one, assignment=data) for one, data in (assignments or {}).items()
            ],
        }
        self.syncing = self.world.ask(SyncGroupRequest(**(fields | changes)))
        return self.syncing

    def heartbeat(self, generation: int | None = None) -> ErrorCode:
        message = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.id,
            group_instance_id=self.instance,
        )
        return self.world.ask(message).code

    def leave(self) -> ErrorCode:
        return leave(self.world, (self.id, self.instance), group=self.group)[0]

    def commit(self, offset: int, generation: int | None = None, topic: str = "t", partition: int = 0) -> ErrorCode:
        return commit(
            self.world,
            offset,
            group=self.group,
            member_id=self.id,
            generation=self.generation if generation is None else generation,
            instance=self.instance,
            topic=topic,
            partition=partition,
        )


def stabilize(*members: Member) -> None:
    """All of them join, the leader gives each its own name, and all have it."""
    world = members[0].world
    for member in members:
        member.join()
    world.advance(max(world.settings.initial_rebalance_delay_ms, 0) * 2 + 1)
    finish(*members)


def finish(*members: Member) -> None:
    """Everybody has joined: the rest of the rebalance."""
    for member in members:
        member.learn()
    shares = {member.id: f"share of {member.name}".encode() for member in members}
    for member in sorted(members, key=lambda one: one.leads):
        member.sync(shares if member.leads else None)
    for member in members:
        assert member.syncing.response.assignment == shares[member.id]


def leave(world: World, *members: tuple[str, str | None], group: str = "g") -> list[ErrorCode]:
    rows = [MemberIdentity(member_id=member_id, group_instance_id=instance) for member_id, instance in members]
    response = world.ask(LeaveGroupRequest(group_id=group, members=rows)).response
    assert response.error_code == ErrorCode.NONE
    return [ErrorCode(row.error_code) for row in response.members]


def describe(world: World, group: str = "g") -> DescribedGroup:
    (described,) = world.ask(DescribeGroupsRequest(groups=[group])).response.groups
    assert isinstance(described, DescribedGroup)
    return described


def send_commit(
    world: World,
    offset: int,
    *,
    group: str = "g",
    member_id: str = "",
    generation: int = -1,
    instance: str | None = None,
    topic: str = "t",
    partition: int = 0,
    metadata: str | None = "",
    version: int = 9,
    retention_ms: int = -1,
) -> Answer:
    row = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata=metadata)
    known = world.cluster.topic(topic)
    message = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        retention_time_ms=retention_ms,
        # With the id, as the broker's handlers fill it in.
        topics=[
            OffsetCommitRequestTopic(name=topic, topic_id=ZERO_UUID if known is None else known.topic_id, partitions=[row])
        ],
    )
    return world.ask(message, version)


def commit(world: World, offset: int, **options: Any) -> ErrorCode:
    answer = send_commit(world, offset, **options)
    return answer.refusal if answer.refusal is not None else ErrorCode(answer.response.topics[0].partitions[0].error_code)


def committed(
    world: World, group: str = "g", topic: str = "t", partition: int = 0, *, require_stable: bool = False
) -> int | ErrorCode:
    """The offset, -1 for none, or an error."""
    wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])
    message = FetchOffsets(OffsetFetchRequestGroup(group_id=group, topics=[wanted]), require_stable)
    row = world.ask(message).response.topics[0].partitions[0]
    return ErrorCode(row.error_code) if row.error_code else row.committed_offset
