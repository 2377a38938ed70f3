"""Members of groups, as client libraries are: they join, heartbeat, commit and leave, and do as they are told.

A member has one request of membership under way at a time. It may die with all it knows, stand still for long, or leave and
come back. Its commits carry a claim, which says by what right it commits: the world holds it against the log.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from pybroker.base.ids import Uuid
from pybroker.base.timer import Timer
from pybroker.metadata.internal_topics import OFFSETS_TOPIC
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
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
SUBSCRIPTION_VERSION: Final = 2

NOT_THERE: Final = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )
)


class Part(NamedTuple):
    """A partition of a topic, which may be deleted and come again as another."""

    topic: str
    partition: int
    topic_id: Uuid


Owned = frozenset[Part]


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


class Subscription(NamedTuple):
    """What a group's members read, and how the classic ones among them share it."""

    topics: Sequence[str]
    regex: str = ""  # in place of the topics, for those who have it
    is_cooperative: bool = False

    def reads(self, topic: str) -> bool:
        return re.fullmatch(self.regex, topic) is not None if self.regex else topic in self.topics


class GroupSetting(Protocol):
    """What the members' world hears and knows."""

    topic_changes: int  # how often topics have come, gone or grown

    def topic_id_of(self, topic: str) -> Uuid:
        """Of the one that has the name now, or had it last."""

    def topic_of(self, topic_id: Uuid) -> str: ...

    def partitions_of(self, topic: str) -> int:
        """As many as there are now."""

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
        subscription: Subscription,
        instance: str | None,
        commit_ms: int,
    ) -> None:
        super().__init__(world, number)
        self.setting = setting
        self.group = group
        self.subscription = subscription
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

    def came_to_own(self, owned: Iterable[Part]) -> None:
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
            topic, partition, _ = self._one_owned()
            self._fetch(topic, partition)
            return
        topic, partition, _ = self._one_owned()
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

    def _one_owned(self) -> Part:
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
    """Eager: it gives up everything before it joins again. Or cooperative: it keeps what it has, gives up what the next
    generation does not give it, and joins once more for others to get that. The leader deals the partitions out."""

    kind = CLASSIC

    def boot(self) -> None:
        self._dealt_at: int | None = None  # how often topics had changed then; None: it does not lead
        super().boot()

    def join(self) -> None:
        if self.is_away:
            return
        subscription = self.subscription
        if not subscription.is_cooperative:
            self.owned = frozenset()
        self.is_settled = False
        self._dealt_at = None
        metadata = ConsumerProtocolSubscription(
            topics=list(subscription.topics),
            owned_partitions=[
                ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=indexes)
                for topic, indexes in _by_topic((one.topic, one.partition) for one in self.owned).items()
            ],
            generation_id=self.epoch,
        )
        row = groups.JoinGroupRequestProtocol(
            name="cooperative-sticky" if subscription.is_cooperative else "range",
            metadata=SUBSCRIPTION_VERSION.to_bytes(2, "big") + metadata.encode(SUBSCRIPTION_VERSION),
        )
        request = groups.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[row],
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
            if response.leader == response.member_id:
                # Who is told to leave the assignment as it is does not know what topics it was made for.
                self._dealt_at = 0
                if not response.skip_assignment:
                    self._dealt_at = self.setting.topic_changes
                    assignments = self._dealt(response.members)
            self._sync(response.protocol_name, assignments)
        else:
            self._refused(response)

    def _refused(self, response: Any) -> None:
        code = response.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
            self.member_id = ""
            self.owned = frozenset()
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self.be_fenced()
            return
        self.not_there(code)
        self._join_again()

    def _dealt(self, members: Sequence[groups.JoinGroupResponseMember]) -> list[groups.SyncGroupRequestAssignment]:
        setting = self.setting
        partitions = [(topic, index) for topic in self.subscription.topics for index in range(setting.partitions_of(topic))]
        owned = {one.member_id: _said_to_own(one.metadata) for one in members}
        if self.subscription.is_cooperative:
            shares = _dealt_gently(partitions, owned)
        else:
            shares = {member: partitions[place :: len(owned)] for place, member in enumerate(sorted(owned))}
        return [
            groups.SyncGroupRequestAssignment(member_id=member, assignment=_assignment(share))
            for member, share in shares.items()
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
            before = self.owned
            self.is_settled = True
            self.came_to_own(
                Part(topic, index, self.setting.topic_id_of(topic)) for topic, index in _assigned(response.assignment)
            )
            self.again(HEARTBEAT_MS, self._heartbeat)
            if {one[:2] for one in before} - {one[:2] for one in self.owned}:
                # Others wait for what it has given up now.
                self.is_settled = False
                self._stay += 1
                self.join()
        else:
            self._lost_place(response.error_code)

    def _heartbeat(self) -> None:
        if self.is_away:
            return
        if self._dealt_at not in (None, self.setting.topic_changes):
            self.join()
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
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.owned = frozenset()
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


def _dealt_gently(
    partitions: Sequence[tuple[str, int]], owned: Mapping[str, Collection[tuple[str, int]]]
) -> dict[str, list[tuple[str, int]]]:
    """To each about as many, first of what it has; what another has is nobody's until that has given it up."""
    most = -(-len(partitions) // len(owned))
    shares: dict[str, list[tuple[str, int]]] = {member: [] for member in sorted(owned)}
    free = []
    for one in partitions:
        holders = [member for member, share in shares.items() if one in owned[member] and len(share) < most]
        if holders:
            shares[holders[0]].append(one)
        else:
            free.append(one)
    for one in free:
        shares[min(shares, key=lambda member: (len(shares[member]), member))].append(one)
    return {
        member: [one for one in share if not any(one in owned[other] for other in owned if other != member)]
        for member, share in shares.items()
    }


def _by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return topics


def _said_to_own(metadata: Any) -> set[tuple[str, int]]:
    data = bytes(metadata)
    subscription = ConsumerProtocolSubscription.decode(int.from_bytes(data[:2], "big"), data[2:])
    return {(row.topic, index) for row in subscription.owned_partitions for index in row.partitions}


def _assignment(partitions: Sequence[tuple[str, int]]) -> bytes:
    rows = [
        ConsumerProtocolAssignmentTopicPartition(topic=name, partitions=indexes)
        for name, indexes in _by_topic(partitions).items()
    ]
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
        by_topic: dict[Uuid, list[int]] = {}
        for one in sorted(self.owned):
            by_topic.setdefault(one.topic_id, []).append(one.partition)
        rows = [
            consumer_groups.ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in by_topic.items()
        ]
        regex = self.subscription.regex
        request = consumer_groups.ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=[] if regex else list(self.subscription.topics),
            subscribed_topic_regex=regex,
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
                    Part(self.setting.topic_of(row.topic_id), index, row.topic_id)
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
