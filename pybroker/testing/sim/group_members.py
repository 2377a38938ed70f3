"""Members of groups, as client libraries are: they join, heartbeat, commit and leave, and do as they are told.

A member has one request of membership under way at a time. It may die with all it knows, stand still for long, or leave and
come back. Its commits carry a claim, which says by what right it commits: the world holds it against the log.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from pybroker.base.ids import Uuid
from pybroker.base.timer import Timer
from pybroker.metadata.internal_topics import OFFSETS_TOPIC
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from pybroker.protocol.message import Message
from pybroker.protocol.messages import consumer_groups, group_offsets, groups
from pybroker.testing.sim.coordinator_world import ClientNode, CoordinatorWorld
from pybroker.testing.sim.data_node import Done

SESSION_MS: Final = 900
REBALANCE_MS: Final = 2_500
JOIN_TIMEOUT_MS: Final = 4_000
HEARTBEAT_MS: Final = 150
BACKOFF_MS: Final = 60
AWAY_MS: Final = 2_000
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
JOINING, LEAVING, LEAVING_STATIC = 0, -1, -2
# What a member may have to say by its own and by old versions.
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION, COMMIT_VERSION, FETCH_VERSION = 9, 5, 4, 5, 9, 9
SUBSCRIPTION_VERSION: Final = 1

NOT_THERE: Final = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )
)

Owned = frozenset[tuple[str, int]]


class Claim(NamedTuple):
    """By what right an offset was committed; it stands in the offset's metadata."""

    member_id: str
    generation: int

    def __str__(self) -> str:
        return f"{self.member_id} {self.generation}"

    @classmethod
    def of(cls, text: str) -> Claim:
        member_id, generation = text.split(" ")
        return cls(member_id, int(generation))


class GroupSetting(Protocol):
    """What the members' world hears and knows."""

    def topic_id_of(self, topic: str) -> Uuid: ...

    def topic_of(self, topic_id: Uuid) -> str: ...

    def next_value(self) -> int: ...

    def owns(self, member: GroupMember) -> None:
        """The member has learnt what it owns."""

    def commit_acknowledged(self, group: str, topic: str, partition: int, value: int) -> None: ...

    def fetched(self, began: Any, group: str, topic: str, partition: int, value: int) -> None: ...

    def reading(self, group: str, leader: int) -> Any: ...


class GroupMember(ClientNode):
    kind: str

    def __init__(
        self,
        world: CoordinatorWorld,
        setting: GroupSetting,
        number: int,
        group: str,
        topics: Sequence[str],
        instance: str | None,
        commit_ms: int,
    ) -> None:
        super().__init__(world, number)
        self.setting = setting
        self.group = group
        self.subscribed = topics
        self.instance = instance
        self.index = self.index_of(OFFSETS_TOPIC, group)
        self._commit_ms = commit_ms

    def boot(self) -> None:
        """A new process, which knows nothing."""
        self.timer = Timer(self.now_ms())
        self.member_id = ""
        self.epoch = -1  # or generation
        self.owned: Owned = frozenset()
        self.is_settled = False  # as far as it knows itself
        self.is_away = False
        self._stay = 0
        self._leaders.clear()
        self.join()
        self.later(self._commit_ms, self._commit)

    @property
    def identity(self) -> str:
        return self.member_id if self.instance is None else self.instance

    @abstractmethod
    def join(self) -> None: ...

    @abstractmethod
    def leave(self) -> None: ...

    def came_to_own(self, owned: Iterable[tuple[str, int]]) -> None:
        self.owned = frozenset(owned)
        self.setting.owns(self)

    def ask_coordinator(self, request: Message, version: int, done: Done, **named: Any) -> None:
        self.ask_leader(OFFSETS_TOPIC, self.index, request, version, self._in_stay(done), **named)

    def again(self, delay_ms: int, action: Callable[[], None]) -> None:
        self.later(delay_ms, self._in_stay(action))

    def _in_stay(self, action: Callable[..., None]) -> Callable[..., None]:
        """Only as long as it has not left since."""
        stay = self._stay

        def run(*given: Any) -> None:
            if self._stay == stay:
                action(*given)

        return run

    def not_there(self, code: int) -> bool:
        """Whether the coordinator is to be looked for again."""
        if code in NOT_THERE:
            self.forget(OFFSETS_TOPIC, self.index)
            return True
        return False

    def be_fenced(self) -> None:
        """The end of the process; somebody starts another one. A static member may fence itself: of the id that it has got in
        a rebalance nobody knows when the coordinator moves before the group has settled, as with Apache Kafka."""
        self.go_away()

    def go_away(self) -> None:
        """For a while, having left."""
        self.is_away = True
        self._stay += 1
        self.is_settled = False
        self.owned = frozenset()
        self.later(1 + self.world.draw_below(AWAY_MS), self._come_back)

    def _come_back(self) -> None:
        if self.is_away:
            self.is_away = False
            self.member_id, self.epoch = "", -1
            self.join()

    # Offsets.

    def _commit(self) -> None:
        self.later(1 + self.world.draw_below(2 * self._commit_ms), self._commit)
        if not self.owned or self.is_stopping:
            return
        if self.world.draw_below(3) == 0:
            self._fetch(*self._one_owned())
            return
        topic, partition = self._one_owned()
        value = self.setting.next_value()
        row = group_offsets.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=value, committed_metadata=str(Claim(self.member_id, self.epoch))
        )
        request = group_offsets.OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance,
            topics=[group_offsets.OffsetCommitRequestTopic(name=topic, partitions=[row])],
        )

        def done(response: Any) -> None:
            if response is None:
                return
            code = response.topics[0].partitions[0].error_code
            if code == ErrorCode.NONE:
                self.setting.commit_acknowledged(self.group, topic, partition, value)
            else:
                self.not_there(code)

        self.ask_coordinator(request, COMMIT_VERSION, done)

    def _one_owned(self) -> tuple[str, int]:
        return sorted(self.owned)[self.world.draw_below(len(self.owned))]

    def _fetch(self, topic: str, partition: int) -> None:
        fetch_offset(self, self.setting, self.group, topic, partition)


def fetch_offset(client: ClientNode, setting: GroupSetting, group: str, topic: str, partition: int) -> None:
    """Ask for what is committed, without being a member."""
    topics = [group_offsets.OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])]
    request = group_offsets.OffsetFetchRequest(
        groups=[group_offsets.OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=True
    )
    index = client.index_of(OFFSETS_TOPIC, group)
    began = setting.reading(group, client.known_leader(OFFSETS_TOPIC, index))

    def done(response: Any) -> None:
        if response is None:
            return
        found = response.groups[0]
        if found.error_code:
            client.forget(OFFSETS_TOPIC, index)
        elif not found.topics[0].partitions[0].error_code:
            setting.fetched(began, group, topic, partition, found.topics[0].partitions[0].committed_offset)

    client.ask_leader(OFFSETS_TOPIC, index, request, FETCH_VERSION, done)


class ClassicMember(GroupMember):
    """Eager: it gives up everything before it joins again. The leader deals the partitions out."""

    kind = CLASSIC

    def join(self) -> None:
        if self.is_away:
            return
        self.owned = frozenset()
        self.is_settled = False
        subscription = ConsumerProtocolSubscription(topics=list(self.subscribed))
        metadata = SUBSCRIPTION_VERSION.to_bytes(2, "big") + subscription.encode(SUBSCRIPTION_VERSION)
        request = groups.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[groups.JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        self.ask_coordinator(request, JOIN_VERSION, self._joined, timeout_ms=JOIN_TIMEOUT_MS)

    def _join_again(self) -> None:
        self.again(BACKOFF_MS, self.join)

    def _joined(self, response: Any) -> None:
        if response is None:
            self._join_again()
        elif response.error_code == ErrorCode.NONE:
            self.member_id, self.epoch = response.member_id, response.generation_id
            assignments: list[groups.SyncGroupRequestAssignment] = []
            if response.leader == response.member_id and not response.skip_assignment:
                assignments = self._dealt([one.member_id for one in response.members])
            self._sync(response.protocol_name, assignments)
        else:
            self._refused(response)

    def _refused(self, response: Any) -> None:
        code = response.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
            self.member_id = ""
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self.be_fenced()
            return
        self.not_there(code)
        self._join_again()

    def _dealt(self, members: Sequence[str]) -> list[groups.SyncGroupRequestAssignment]:
        partitions = [(topic, index) for topic in self.subscribed for index in range(self.world.topics[topic])]
        return [
            groups.SyncGroupRequestAssignment(member_id=member, assignment=_assignment(partitions[place :: len(members)]))
            for place, member in enumerate(sorted(members))
        ]

    def _sync(self, protocol: str | None, assignments: list[groups.SyncGroupRequestAssignment]) -> None:
        request = groups.SyncGroupRequest(
            group_id=self.group,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name=protocol,
            assignments=assignments,
        )
        self.ask_coordinator(request, SYNC_VERSION, self._synced, timeout_ms=JOIN_TIMEOUT_MS)

    def _synced(self, response: Any) -> None:
        if response is None:
            self._join_again()
        elif response.error_code == ErrorCode.NONE:
            self.is_settled = True
            self.came_to_own(_assigned(response.assignment))
            self.again(HEARTBEAT_MS, self._heartbeat)
        else:
            self._lost_place(response.error_code)

    def _heartbeat(self) -> None:
        if self.is_away:
            return
        request = groups.HeartbeatRequest(
            group_id=self.group, generation_id=self.epoch, member_id=self.member_id, group_instance_id=self.instance
        )
        self.ask_coordinator(request, HEARTBEAT_VERSION, self._heard)

    def _heard(self, response: Any) -> None:
        if response is None or response.error_code == ErrorCode.NONE or self.not_there(response.error_code):
            self.again(HEARTBEAT_MS, self._heartbeat)
        else:
            self._lost_place(response.error_code)

    def _lost_place(self, code: int) -> None:
        """Join again, as whom the code tells."""
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self.be_fenced()
            return
        self.not_there(code)
        self._join_again()

    def leave(self) -> None:
        if self.is_away or not self.is_settled:
            return
        member = groups.MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
        request = groups.LeaveGroupRequest(group_id=self.group, members=[member])
        self.go_away()
        self.ask_coordinator(request, LEAVE_VERSION, lambda response: None)


def _assignment(partitions: Sequence[tuple[str, int]]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    rows = [ConsumerProtocolAssignmentTopicPartition(topic=name, partitions=indexes) for name, indexes in topics.items()]
    return b"\0\0" + ConsumerProtocolAssignment(assigned_partitions=rows).encode(0)


def _assigned(data: Any) -> list[tuple[str, int]]:
    """What an assignment, in whatever version, gives."""
    data = bytes(data)
    if not data:
        return []
    decoded = ConsumerProtocolAssignment.decode(int.from_bytes(data[:2], "big"), data[2:])
    return [(row.topic, index) for row in decoded.assigned_partitions for index in row.partitions]


class ConsumerMember(GroupMember):
    """KIP-848: the coordinator assigns, the member gives up what it is told to and says so."""

    kind = CONSUMER

    def join(self) -> None:
        if self.is_away:
            return
        if not self.member_id:
            self.member_id = self.world.new_member_id()
        self.epoch = JOINING
        self.owned = frozenset()
        self.is_settled = False
        self._heartbeat()

    def _heartbeat(self) -> None:
        if self.is_away:
            return
        by_topic: dict[str, list[int]] = {}
        for topic, index in sorted(self.owned):
            by_topic.setdefault(topic, []).append(index)
        rows = [
            consumer_groups.ConsumerGroupHeartbeatRequestTopicPartitions(
                topic_id=self.setting.topic_id_of(topic), partitions=indexes
            )
            for topic, indexes in by_topic.items()
        ]
        request = consumer_groups.ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=list(self.subscribed),
            topic_partitions=rows,
        )
        self.ask_coordinator(request, 1, self._heard)

    def _heard(self, response: Any) -> None:
        if self.is_away:
            return
        code = ErrorCode.NONE if response is None else response.error_code
        if response is None or self.not_there(code) or code == ErrorCode.UNRELEASED_INSTANCE_ID:
            self.again(BACKOFF_MS, self._heartbeat)
        elif code == ErrorCode.NONE:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                given = {
                    (self.setting.topic_of(row.topic_id), index)
                    for row in response.assignment.topic_partitions
                    for index in row.partitions
                }
                self.came_to_own(given)
            self.is_settled = True
            self.again(min(HEARTBEAT_MS, response.heartbeat_interval_ms), self._heartbeat)
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self.be_fenced()
        else:
            self.epoch = -1
            self.owned = frozenset()
            self.is_settled = False
            self.again(BACKOFF_MS, self.join)

    def leave(self) -> None:
        if self.is_away or not self.is_settled:
            return
        is_static = self.instance is not None and self.world.draw_below(2) == 0
        request = consumer_groups.ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=LEAVING_STATIC if is_static else LEAVING,
            instance_id=self.instance,
        )
        self.go_away()
        self.ask_coordinator(request, 1, lambda response: None)
