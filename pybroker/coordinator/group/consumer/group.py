"""A consumer group: its members, its epochs, its target assignment. Hard state, changed by `replay` alone.

Three epochs move one after the other: that of the group, when members or topics change; that of the target assignment, when
it has been computed for them; that of each member, when it has given up what it must. A group whose epochs are all equal is
stable. A partition has one owner at most: `owners`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Final

from pybroker.base.ids import Uuid
from pybroker.coordinator.group.consumer.assignors import NOTHING, Assignment
from pybroker.coordinator.group.consumer.member import (
    NO_PARTITIONS,
    ConsumerMember,
    MemberState,
    epoched_partitions,
    state_of,
)
from pybroker.coordinator.group.consumer.records import ResolvedRegex, group_tombstones
from pybroker.coordinator.group.group import CommittedOffset, Committer, GroupType
from pybroker.coordinator.records import CoordinatorRecord
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from pybroker.protocol.message import Message

logger = logging.getLogger(__name__)

CONSUMER_PROTOCOL: Final = "consumer"
NO_EPOCH: Final = -1
# OffsetCommit has member epochs from here on.
COMMIT_WITH_EPOCH_VERSION: Final = 9


class ConsumerState(StrEnum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroup:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 1  # before that of the target, so that the first member is assigned whatever it reads
        self.metadata_hash = 0
        self.target_epoch = 0
        self.target_timestamp_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Assignment] = {}
        self.static_members: dict[str, str] = {}  # member ids by instance id
        self.regexes: dict[str, ResolvedRegex] = {}
        self.has_partition_metadata = False
        # What follows from the members.
        self.owners: dict[tuple[Uuid, int], str] = {}  # member ids
        self.readers: Counter[str] = Counter()  # members by the topics that they name
        self.regex_readers: Counter[str] = Counter()
        self.assignors: Counter[str] = Counter()
        self.classic_members = 0
        self.classic_protocols: Counter[str] = Counter()
        self._state: ConsumerState | None = ConsumerState.EMPTY
        # Not in the log. In which epoch the topics were looked at last, None if they have to be again.
        self.refreshed_epoch: int | None = None
        self.new_topics_version = 0  # of the metadata that brought the last topics which expressions were not matched with
        self.changed_ms = 0
        self.revocations: dict[str, int] = {}  # epochs that members have to leave before their rebalance timeout
        self.rejoining: set[str] = set()  # classic members that have a deadline to join again

    def __repr__(self) -> str:
        return f"ConsumerGroup({self.group_id!r}, {self.state}, epoch {self.epoch}, members {[*self.members]})"

    @property
    def type(self) -> GroupType:
        return GroupType.CONSUMER

    @property
    def protocol_type(self) -> str:
        return CONSUMER_PROTOCOL

    @property
    def state(self) -> ConsumerState:
        if self._state is None:
            if not self.members:
                self._state = ConsumerState.EMPTY
            elif self.epoch > self.target_epoch:
                self._state = ConsumerState.ASSIGNING
            elif all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
                self._state = ConsumerState.STABLE
            else:
                self._state = ConsumerState.RECONCILING
        return self._state

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def needs_refresh(self) -> bool:
        """Whether the topics have to be looked at again: they have changed, or what was found then was not stored."""
        return self.refreshed_epoch is None or self.epoch < self.refreshed_epoch or self.has_partition_metadata

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target_of(self, member: ConsumerMember) -> Assignment:
        """A static member that comes back under another id has the target of its former self."""
        member_id = member.member_id
        if member.instance_id is not None:
            member_id = self.static_members.get(member.instance_id, "")
        return self.targets.get(member_id, NOTHING)

    def is_free_for(self, member: ConsumerMember) -> Callable[[Uuid, int], bool]:
        """Whether nobody but the member has a partition."""
        owners, member_id = self.owners, member.member_id

        def is_free(topic_id: Uuid, partition: int) -> bool:
            return owners.get((topic_id, partition), member_id) == member_id

        return is_free

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether something that it is to have is still another's."""
        is_free = self.is_free_for(member)
        return any(
            not is_free(topic_id, partition)
            for topic_id, partitions in self.targets.get(member.member_id, NOTHING).items()
            for partition in partitions
        )

    def subscribed_topics(self) -> set[str]:
        return set(self.readers).union(*(resolved.topics for resolved in self.regexes.values()))

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.readers or any(topic in resolved.topics for resolved in self.regexes.values())

    def all_classic_without(self, gone: Collection[ConsumerMember]) -> bool:
        """Whether everybody but those who go speaks the classic protocol."""
        classic_gone = sum([member.classic is not None for member in gone])
        return self.classic_members - classic_gone == len(self.members) - len(gone)

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a classic member with `protocols` fits in: there is one that all other classic members know."""
        return protocol_type == CONSUMER_PROTOCOL and any(
            self.classic_protocols[name] == self.classic_members for name in protocols
        )

    # Questions that requests ask.

    def commit_refusal(self, committer: Committer) -> ErrorCode:
        if committer.generation < 0 and not self.members:
            return ErrorCode.NONE
        is_nobody = committer.generation == NO_EPOCH and not committer.member_id and committer.instance_id is None
        if committer.is_transactional and is_nobody:
            return ErrorCode.NONE
        member = self.members.get(committer.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not committer.is_transactional and member.classic is None and committer.version < COMMIT_WITH_EPOCH_VERSION:
            return ErrorCode.UNSUPPORTED_VERSION
        return _stale(member, committer) if committer.generation > member.epoch else ErrorCode.NONE

    def partition_check(self, committer: Committer) -> Callable[[Uuid, int], ErrorCode] | None:
        """A member that has moved on may commit in its former epoch what it has had since then (KIP-1251)."""
        member = self.members.get(committer.member_id)
        if member is None or committer.generation == member.epoch:
            return None

        def check(topic_id: Uuid, partition: int) -> ErrorCode:
            since = member.assignment_epoch(topic_id, partition)
            return _stale(member, committer) if since is None or committer.generation < since else ErrorCode.NONE

        return check

    def fetch_refusal(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_epoch == member.epoch:
            return ErrorCode.NONE
        return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION

    def offset_delete_refusal(self) -> ErrorCode:
        return ErrorCode.NONE

    def delete_refusal(self) -> ErrorCode:
        return ErrorCode.NON_EMPTY_GROUP if self.members else ErrorCode.NONE

    def retention_start_ms(self, committed: CommittedOffset) -> int | None:
        return committed.commit_timestamp_ms

    def tombstones(self) -> list[CoordinatorRecord]:
        return group_tombstones(self.group_id, [*self.members], self.regexes)

    # Replay.

    def replay(self, key: Message, value: Message | None) -> None:
        _REPLAYS[type(key)](self, key, value)
        self._state = None

    def _replay_epoch(self, key: Message, value: ConsumerGroupMetadataValue) -> None:
        self.epoch = value.epoch
        self.metadata_hash = value.metadata_hash

    def _replay_partition_metadata(self, key: Message, value: Message | None) -> None:
        self.has_partition_metadata = value is not None

    def _replay_target_epoch(self, key: Message, value: ConsumerGroupTargetAssignmentMetadataValue | None) -> None:
        self.target_epoch = NO_EPOCH if value is None else value.assignment_epoch
        self.target_timestamp_ms = 0 if value is None else value.assignment_timestamp

    def _replay_target(
        self, key: ConsumerGroupTargetAssignmentMemberKey, value: ConsumerGroupTargetAssignmentMemberValue | None
    ) -> None:
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = {row.topic_id: frozenset(row.partitions) for row in value.topic_partitions}

    def _replay_regex(self, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None) -> None:
        if value is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            self.regexes[key.regular_expression] = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)

    def _replay_member(self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None) -> None:
        member = self.members.get(key.member_id)
        if value is not None:
            self._put((member or ConsumerMember(key.member_id)).with_metadata(value))
        elif member is not None:
            self._forget(member)
            del self.members[member.member_id]
            self.revocations.pop(member.member_id, None)
            self.rejoining.discard(member.member_id)
            if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
                del self.static_members[member.instance_id]

    def _replay_current(
        self, key: ConsumerGroupCurrentMemberAssignmentKey, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        member = self.members.get(key.member_id)
        if value is not None:
            self._put(
                replace(
                    member or ConsumerMember(key.member_id),
                    epoch=value.member_epoch,
                    previous_epoch=value.previous_member_epoch,
                    state=state_of(value),
                    assigned=epoched_partitions(value.assigned_partitions, value.member_epoch),
                    pending_revocation=epoched_partitions(value.partitions_pending_revocation, value.member_epoch),
                )
            )
        elif member is not None:
            self._put(
                replace(
                    member,
                    epoch=NO_EPOCH,
                    previous_epoch=NO_EPOCH,
                    state=MemberState.STABLE,
                    assigned=NO_PARTITIONS,
                    pending_revocation=NO_PARTITIONS,
                )
            )

    def _put(self, member: ConsumerMember) -> None:
        former = self.members.get(member.member_id)
        if former is not None:
            self._forget(former)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._count(member, +1)
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, some in partitions.items():
                for partition in some:
                    self.owners[topic_id, partition] = member.member_id

    def _forget(self, member: ConsumerMember) -> None:
        self._count(member, -1)
        owners = self.owners
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, some in partitions.items():
                for partition in some:
                    if owners.get((topic_id, partition)) == member.member_id:
                        del owners[topic_id, partition]

    def _count(self, member: ConsumerMember, change: int) -> None:
        _add(self.readers, member.topic_names, change)
        if member.topic_regex:
            _add(self.regex_readers, (member.topic_regex,), change)
        if member.server_assignor is not None:
            _add(self.assignors, (member.server_assignor,), change)
        if member.classic is not None:
            self.classic_members += change
            _add(self.classic_protocols, [name for name, _ in member.classic.protocols], change)


def _add(counter: Counter[str], names: Iterable[str], change: int) -> None:
    for name in names:
        counter[name] += change
        if not counter[name]:
            del counter[name]


def _stale(member: ConsumerMember, committer: Committer) -> ErrorCode:
    """In the words of the member's protocol; those of transactions are the classic one's."""
    if committer.is_transactional or member.classic is not None:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.STALE_MEMBER_EPOCH


_REPLAYS: Final[Mapping[type[Message], Callable[..., None]]] = {
    ConsumerGroupMetadataKey: ConsumerGroup._replay_epoch,
    ConsumerGroupPartitionMetadataKey: ConsumerGroup._replay_partition_metadata,
    ConsumerGroupMemberMetadataKey: ConsumerGroup._replay_member,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroup._replay_target_epoch,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerGroup._replay_target,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroup._replay_current,
    ConsumerGroupRegularExpressionKey: ConsumerGroup._replay_regex,
}
