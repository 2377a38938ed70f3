"""A classic group: its state, its members, and what both allow. It decides nothing and knows no time but what it is told.

What the log knows of a group is its last finished generation: protocol, leader, members and their assignments. Whatever
happens in a rebalance is here alone, and lost with the coordinator: members then join again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

from pybroker.coordinator.group.classic.member import ClassicMember, Protocols
from pybroker.coordinator.group.group import CommittedOffset, Committer, GroupType
from pybroker.coordinator.group.records import group_record, group_tombstone
from pybroker.coordinator.hashing import java_hash
from pybroker.coordinator.records import CoordinatorRecord
from pybroker.coordinator.shard import Token
from pybroker.protocol.errors import ErrorCode, ProtocolError
from pybroker.protocol.internal.consumer_offsets import GroupMetadataValue
from pybroker.protocol.internal.consumer_protocol import ConsumerProtocolSubscription
from pybroker.protocol.messages.groups import JoinGroupResponseMember

logger = logging.getLogger(__name__)

CONSUMER_PROTOCOL: Final = "consumer"


class State(StrEnum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


# Where each state leads.
TRANSITIONS: Final[Mapping[State, tuple[State, ...]]] = {
    State.EMPTY: (State.PREPARING_REBALANCE, State.DEAD),  # the first member joins
    State.PREPARING_REBALANCE: (State.COMPLETING_REBALANCE, State.EMPTY, State.DEAD),  # all have joined; all are gone
    State.COMPLETING_REBALANCE: (State.STABLE, State.PREPARING_REBALANCE, State.DEAD),  # the leader has assigned; others come
    State.STABLE: (State.PREPARING_REBALANCE, State.DEAD),  # a member comes, goes or changes
    State.DEAD: (State.DEAD,),
}


class ClassicGroup:
    """A group of simple consumers, which only commit, is one, too, and of those there may be a million: so nothing in it is
    larger than it has to be (an empty dict takes 64 bytes, an empty set 216)."""

    __slots__ = (
        "_supporters",
        "generation",
        "group_id",
        "has_new_members",
        "initial_delay",
        "leader_id",
        "members",
        "pending_joins",
        "pending_syncs",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscribed_topics",
    )

    def __init__(self, group_id: str, now_ms: int, state: State = State.EMPTY) -> None:
        self.group_id = group_id
        self.state = state
        self.previous_state = state
        self.state_timestamp_ms = now_ms
        self.protocol_type = ""
        self.protocol_name: str | None = None
        self.generation = 0
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}  # member ids by instance id
        self.pending_joins: dict[str, None] = {}  # member ids that were given out and have not been used yet
        self.pending_syncs: dict[str, None] = {}  # members that have not sent SyncGroup in this generation yet
        self.subscribed_topics: frozenset[str] | None = None  # None: not known
        # Of the first rebalance, which waits a while for more members: (the current delay, what remains after it).
        self.initial_delay: tuple[int, int] | None = None
        self.has_new_members = False
        self._supporters: dict[str, int] = {}  # members by protocol

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        group = cls(group_id, value.current_state_timestamp, State.STABLE if value.members else State.EMPTY)
        group.generation = value.generation
        group.protocol_type = value.protocol_type
        group.protocol_name = value.protocol
        group.leader_id = value.leader
        for row in value.members:
            # Records of old releases have no rebalance timeout.
            rebalance_timeout_ms = row.session_timeout if row.rebalance_timeout == -1 else row.rebalance_timeout
            group.add(
                ClassicMember(
                    row.member_id,
                    row.group_instance_id,
                    row.client_id,
                    row.client_host,
                    rebalance_timeout_ms,
                    row.session_timeout,
                    ((value.protocol or "", bytes(row.subscription)),),
                    bytes(row.assignment),
                ),
                value.protocol_type,
            )
        group.learn_subscriptions()
        return group

    def __repr__(self) -> str:
        return f"ClassicGroup({self.group_id!r}, {self.state}, generation {self.generation}, members {[*self.members]})"

    @property
    def type(self) -> GroupType:
        return GroupType.CLASSIC

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def is_for_consumers(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL

    def transition_to(self, state: State, now_ms: int) -> None:
        assert state in TRANSITIONS[self.state], f"group {self.group_id} cannot go from {self.state} to {state}"
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = now_ms

    @property
    def can_rebalance(self) -> bool:
        return State.PREPARING_REBALANCE in TRANSITIONS[self.state]

    # Members.

    def add(self, member: ClassicMember, protocol_type: str, join: Token = None) -> None:
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members, f"{member.instance_id} is in {self} already"
            self.static_members[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count(member.protocols, 1)
        member.join = join
        self.pending_joins.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """A member, or one that was given an id only."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member.protocols, -1)
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
        if member_id == self.leader_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.pop(member_id, None)

    def update(
        self, member: ClassicMember, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int, join: Token
    ) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        member.join = join

    def replace_static(self, instance_id: str, new_id: str) -> ClassicMember:
        """The static member of `instance_id` under another member id; requests of the old one are the caller's business."""
        old_id = self.static_members[instance_id]
        member = self.members.pop(old_id).renamed(new_id)
        self.members[new_id] = member
        if old_id == self.leader_id:
            self.leader_id = new_id
        self.static_members[instance_id] = new_id
        return member

    def is_leader(self, member_id: str) -> bool:
        return member_id == self.leader_id

    @property
    def awaiting_join(self) -> int:
        return sum([member.join is not None for member in self.members.values()])

    @property
    def has_all_joined(self) -> bool:
        return not self.pending_joins and all(member.join is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The most patient member's."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """Have a leader that has joined: the present one if it has, else another; False if nobody has."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].is_awaiting_join:
            return True
        joined = next((member.member_id for member in self.members.values() if member.is_awaiting_join), None)
        if joined is not None:
            logger.info("group %s: leader %s has not joined in time, %s leads now", self.group_id, self.leader_id, joined)
            self.leader_id = joined
        return joined is not None

    # Protocols.

    def _count(self, protocols: Protocols, by: int) -> None:
        for name, _ in protocols:
            self._supporters[name] = self._supporters.get(name, 0) + by

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with `protocols` fits in: there is one that it and everybody else knows."""
        if self.state is State.EMPTY:
            return bool(protocol_type and protocols)
        everybody = len(self.members)
        return self.protocol_type == protocol_type and any(self._supporters.get(name) == everybody for name, _ in protocols)

    def elected_protocol(self) -> str:
        """Each member votes for the first of its protocols that all know."""
        everybody = len(self.members)
        candidates = {name for name, count in self._supporters.items() if count == everybody}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        most = max(votes.values())
        return min((name for name, count in votes.items() if count == most), key=_tie_breaker)

    def begin_generation(self, now_ms: int) -> None:
        """All have joined, or all are gone."""
        self.generation += 1
        self.protocol_name = self.elected_protocol() if self.members else None
        self.learn_subscriptions()
        self.transition_to(State.COMPLETING_REBALANCE if self.members else State.EMPTY, now_ms)
        self.pending_syncs.clear()

    def learn_subscriptions(self) -> None:
        """Consumers state their topics in the common beginning of all versions of the consumer protocol."""
        self.subscribed_topics = None
        if not self.is_for_consumers or (self.members and self.protocol_name is None):
            return
        topics: set[str] = set()
        try:
            for member in self.members.values():
                subscription, _ = ConsumerProtocolSubscription.decode_from(0, member.metadata(self.protocol_name), 2)
                topics.update(subscription.topics)
        except ProtocolError as error:
            logger.warning("group %s: its subscriptions under %s cannot be read: %s", self.group_id, self.protocol_name, error)
            return
        self.subscribed_topics = frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        return self.is_for_consumers if self.subscribed_topics is None else topic in self.subscribed_topics

    # Questions that requests ask.

    def member_refusal(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if instance_id is not None:
            holder = self.static_members.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def commit_refusal(self, committer: Committer) -> ErrorCode:
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if committer.generation < 0 and self.state is State.EMPTY:
            return ErrorCode.NONE
        if committer.generation >= 0 or committer.member_id or committer.instance_id is not None:
            code = self.member_refusal(committer.member_id, committer.instance_id)
            if code:
                return code
            if committer.generation != self.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not committer.is_transactional and self.state is not State.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not committer.is_transactional and self.state is State.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def partition_check(self, committer: Committer) -> None:
        return None

    def fetch_refusal(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND if self.state is State.DEAD else ErrorCode.NONE

    def offset_delete_refusal(self) -> ErrorCode:
        code = self.delete_refusal()
        return ErrorCode.NONE if code is ErrorCode.NON_EMPTY_GROUP and self.is_for_consumers else code

    def delete_refusal(self) -> ErrorCode:
        if self.state is State.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if self.state is State.EMPTY else ErrorCode.NON_EMPTY_GROUP

    def retention_start_ms(self, committed: CommittedOffset) -> int | None:
        if self.protocol_type and self.state is State.EMPTY:
            # Since the last member left; old records do not tell when.
            return committed.commit_timestamp_ms if self.state_timestamp_ms < 0 else self.state_timestamp_ms
        knows_topics = self.is_for_consumers and self.subscribed_topics is not None
        if not self.protocol_type or (knows_topics and self.state is State.STABLE):
            return committed.commit_timestamp_ms
        return None

    # As others are shown it.

    def joined_members(self) -> list[JoinGroupResponseMember]:
        return [member.as_joined(self.protocol_name) for member in self.members.values()]

    def as_record(self, assignment_of: Callable[[ClassicMember], bytes]) -> CoordinatorRecord:
        return group_record(
            self.group_id,
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader_id,
            state_timestamp_ms=self.state_timestamp_ms,
            members=[member.as_record(self.protocol_name, assignment_of(member)) for member in self.members.values()],
        )

    def tombstones(self) -> list[CoordinatorRecord]:
        return [group_tombstone(self.group_id)]


def _tie_breaker(protocol: str) -> int:
    """The place of a name in a small hash table of Java's: of two with as many votes, Apache Kafka takes the first there."""
    hashed = java_hash(protocol) & 0xFFFFFFFF
    return (hashed ^ (hashed >> 16)) & 15
