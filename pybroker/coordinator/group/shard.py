"""A shard of the group coordinator: all groups and offsets of one partition of `__consumer_offsets`.

Requests are dispatched by their type, then by that of the group they speak of; records by their type. Another type of group
joins in by rows in these tables: its requests in `_HANDLERS`, its records in `_REPLAYS` and in records.GROUP_RECORD_TYPES,
its timers, whose keys begin with a word of its own, in `timed_out`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from typing import Final, NamedTuple

from pybroker.coordinator.group.classic.group import ClassicGroup, State
from pybroker.coordinator.group.classic.membership import ClassicMembership, unknown_members
from pybroker.coordinator.group.classic.rebalance import SESSION, Rebalances, join_refusal
from pybroker.coordinator.group.cluster import ClusterView
from pybroker.coordinator.group.consumer.classic_members import ClassicMembers
from pybroker.coordinator.group.consumer.group import ConsumerGroup
from pybroker.coordinator.group.consumer.membership import DOWNGRADED, TIMERS, ConsumerMembership
from pybroker.coordinator.group.group import CommittedOffset, Group
from pybroker.coordinator.group.listing import Listing
from pybroker.coordinator.group.offset_store import OffsetStore
from pybroker.coordinator.group.offsets import NO_EPOCH, FetchOffsets, Offsets
from pybroker.coordinator.group.settings import GroupSettings
from pybroker.coordinator.records import CoordinatorRecord
from pybroker.coordinator.shard import DelayTimers, Effect, Producer, Refuse, Reply, Request, Result, Token
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from pybroker.protocol.internal.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from pybroker.protocol.message import Message
from pybroker.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from pybroker.protocol.messages.group_offsets import OffsetCommitRequest, OffsetDeleteRequest
from pybroker.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from pybroker.protocol.messages.transactions import TxnOffsetCommitRequest

logger = logging.getLogger(__name__)

NO_EXPIRY: Final = -1
_EXPIRY: Final = ("expiry",)
_GONE_TOPICS: Final = ("gone topics",)


class TopicsDeleted(NamedTuple):
    """Topics are gone, and what was committed of them with them; there may be others of the same names by now."""

    names: tuple[str, ...]


class TopicsChanged(NamedTuple):
    """Topics came, went or got partitions: the groups that read them look at them again."""

    names: tuple[str, ...]
    has_new: bool


class GroupShard:
    def __init__(
        self,
        partition: int,
        timers: DelayTimers,
        settings: GroupSettings,
        new_uuid: Callable[[], str],
        cluster: Callable[[], ClusterView],
    ) -> None:
        """`new_uuid` gives the text of a random UUID, for member ids; `cluster` the newest view."""
        self.partition = partition
        self.groups: dict[str, Group] = {}
        self.committed = OffsetStore()
        self._timers = timers
        self._settings = settings
        self._cluster = cluster
        self._is_loaded = False
        self._now_ms = 0  # of the decision that is replayed next
        self._offsets = Offsets(self.groups, self.committed, settings, cluster)
        self._listing = Listing(self.groups, self._offsets, cluster, settings.consumer_assignors[0])
        self._rebalances = Rebalances(timers, settings)
        self._classic = ClassicMembership(self.groups, self._rebalances, settings, new_uuid)
        self._consumers = ConsumerMembership(self.groups, timers, settings, cluster, new_uuid)
        self._classic_members = ClassicMembers(self._consumers, timers, new_uuid)

    # The runtime's shape.

    def handle(self, now_ms: int, request: Request) -> Result:
        self._now_ms = now_ms
        return _HANDLERS[type(request.message)](self, now_ms, request)

    def timed_out(self, now_ms: int, key: Hashable) -> Result:
        if key == _EXPIRY:
            return self._expire(now_ms)
        if key == _GONE_TOPICS:
            return Result(self._offsets.tombstones_of_gone_topics(), is_atomic=False)
        self._now_ms = now_ms
        assert isinstance(key, tuple)
        kind, group_id, *rest = key
        out = Result()
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return self._consumers.timed_out(now_ms, group, kind, rest[0]) if kind == SESSION or kind in TIMERS else out
        if kind == DOWNGRADED:
            if isinstance(group, ClassicGroup) and group.state is State.STABLE:
                self._rebalances.prepare(now_ms, group, "it was a consumer group", out)
        elif isinstance(group, ClassicGroup) and kind not in TIMERS:
            self._rebalances.timed_out(now_ms, group, kind, rest[0] if rest else "", out)
        return out

    def replay(self, offset: int, record: CoordinatorRecord, producer: Producer | None) -> None:
        _REPLAYS[type(record.key)](self, offset, record, producer)

    def replay_marker(self, producer: Producer, *, commits: bool) -> None:
        self.committed.end_transaction(producer.producer_id, commits=commits)

    def loaded(self, now_ms: int) -> Result:
        """Everybody in the log gets a whole session to be heard of."""
        self._is_loaded = True
        out = Result()
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    self._rebalances.expect_heartbeat(group, member)
                if len(group.members) > self._settings.max_size:
                    reason = f"it has {len(group.members)} members, and group.max.size is {self._settings.max_size}"
                    self._rebalances.prepare(now_ms, group, reason, out)
            elif isinstance(group, ConsumerGroup):
                self._consumers.expect_loaded(group)
        self._timers.set(_EXPIRY, self._settings.retention_check_interval_ms)
        # Of what was deleted before it was loaded nobody tells it.
        self._timers.set(_GONE_TOPICS, 0)
        return out

    def parked(self) -> list[Token]:
        return [
            token
            for group in self.groups.values()
            if isinstance(group, ClassicGroup)
            for member in group.members.values()
            for token in (member.join, member.sync)
            if token is not None
        ]

    # Requests that depend on the type of the group.

    def _join(self, now_ms: int, request: Request) -> Result:
        group = self.groups.get(request.message.group_id)
        if group is None or isinstance(group, ClassicGroup):
            return self._classic.join(now_ms, request, group)
        if isinstance(group, ConsumerGroup):
            return self._classic_members.join(now_ms, request, group) if group.members else self._join_emptied(now_ms, request)
        return Result(effects=[Reply(request.token, join_refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))])

    def _join_emptied(self, now_ms: int, request: Request) -> Result:
        """A classic member finds a consumer group that everybody has left."""
        group_id = request.message.group_id
        emptied = self.groups[group_id]
        result = self._classic.join(now_ms, request, None)
        if not result.records:
            return result
        result.records[:0] = emptied.tombstones()
        forget = result.on_refused
        assert forget is not None

        def restore(code: ErrorCode) -> Sequence[Effect]:
            effects = forget(code)
            self.groups[group_id] = emptied
            return effects

        result.on_refused = restore
        return result

    def _sync(self, now_ms: int, request: Request) -> Result:
        group = self.groups.get(request.message.group_id)
        if isinstance(group, ClassicGroup):
            return self._classic.sync(now_ms, request, group)
        if isinstance(group, ConsumerGroup):
            return self._classic_members.sync(request, group)
        return _unknown_member(request)

    def _heartbeat(self, now_ms: int, request: Request) -> Result:
        group = self.groups.get(request.message.group_id)
        if isinstance(group, ClassicGroup):
            return self._classic.heartbeat(request, group)
        if isinstance(group, ConsumerGroup):
            return self._classic_members.heartbeat(request, group)
        return _unknown_member(request)

    def _leave(self, now_ms: int, request: Request) -> Result:
        group = self.groups.get(request.message.group_id)
        if isinstance(group, ClassicGroup):
            return self._classic.leave(now_ms, request, group)
        if isinstance(group, ConsumerGroup):
            return self._classic_members.leave(now_ms, request, group)
        return Result(effects=[Reply(request.token, unknown_members(request.message))])

    def _consumer_heartbeat(self, now_ms: int, request: Request) -> Result:
        return self._consumers.heartbeat(now_ms, request)

    # Requests about offsets and about groups of any type.

    def _commit(self, now_ms: int, request: Request) -> Result:
        result = self._offsets.commit(now_ms, request)
        group = self.groups.get(request.message.group_id)
        if isinstance(group, ClassicGroup) and group.state in (State.STABLE, State.PREPARING_REBALANCE):
            # A commit is as good as a heartbeat.
            self._rebalances.expect_heartbeat(group, group.members[request.message.member_id])
        return result

    def _commit_in_transaction(self, now_ms: int, request: Request) -> Result:
        return self._offsets.commit_in_transaction(now_ms, request)

    def _fetch(self, now_ms: int, request: Request) -> Result:
        return self._offsets.fetch(request)

    def _delete_offsets(self, now_ms: int, request: Request) -> Result:
        return self._offsets.delete(request)

    def _list(self, now_ms: int, request: Request) -> Result:
        return self._listing.list(request)

    def _describe(self, now_ms: int, request: Request) -> Result:
        return self._listing.describe(request)

    def _describe_consumers(self, now_ms: int, request: Request) -> Result:
        return self._listing.describe_consumers(request)

    def _delete(self, now_ms: int, request: Request) -> Result:
        return self._listing.delete(request)

    def _topics_changed(self, now_ms: int, request: Request) -> Result:
        changed: TopicsChanged = request.message
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                if changed.has_new:
                    group.new_topics_version = self._cluster().version
                if any(group.is_subscribed_to(name) for name in changed.names):
                    group.refreshed_epoch = None
        return Result()

    def _topics_deleted(self, now_ms: int, request: Request) -> Result:
        def refused(code: ErrorCode) -> Sequence[Effect]:
            self._timers.set(_GONE_TOPICS, 0)
            return ()

        tombstones = self._offsets.tombstones_of_topics(request.message.names)
        return Result(tombstones, is_atomic=False, on_refused=refused)

    def _expire(self, now_ms: int) -> Result:
        """Old offsets, and groups of which nothing is left."""
        self._timers.set(_EXPIRY, self._settings.retention_check_interval_ms)
        records: list[CoordinatorRecord] = []
        for group in self.groups.values():
            tombstones, is_all = self._offsets.expired(now_ms, group)
            records += tombstones
            if is_all and group.is_empty:
                records += group.tombstones()
        if records:
            logger.info("%d tombstones for expired offsets and empty groups of partition %d", len(records), self.partition)
        return Result(records, is_atomic=False)

    # Replay.

    def _replay_offset(self, offset: int, record: CoordinatorRecord, producer: Producer | None) -> None:
        key, value = record.key, record.value
        assert isinstance(key, (OffsetCommitKey, LegacyOffsetCommitKey))
        if value is None:
            self.committed.remove(key.group, key.topic, key.partition)
            return
        committed = _committed(value, offset)
        if key.group not in self.groups:
            # Simple consumers commit without ever joining.
            self.groups[key.group] = ClassicGroup(key.group, committed.commit_timestamp_ms)
        if producer is None:
            self.committed.put(key.group, key.topic, key.partition, committed)
        else:
            self.committed.put_pending(producer.producer_id, key.group, key.topic, key.partition, committed)

    def _replay_group(self, offset: int, record: CoordinatorRecord, producer: Producer | None) -> None:
        assert isinstance(record.key, GroupMetadataKey)
        group_id, value = record.key.group, record.value
        group = self.groups.get(group_id)
        if value is None:
            if isinstance(group, ClassicGroup):
                del self.groups[group_id]
                group.transition_to(State.DEAD, group.state_timestamp_ms)
            return
        assert isinstance(value, GroupMetadataValue)
        if not self._is_loaded or not isinstance(group, ClassicGroup):
            self.groups[group_id] = group = ClassicGroup.from_record(group_id, value)
            if self._is_loaded:
                # It was one of consumers until now.
                for member in group.members.values():
                    self._rebalances.expect_heartbeat(group, member)
            return
        # Just decided: the group is in this generation already, and now knows its assignments.
        assert group.generation == value.generation, f"{group} replays generation {value.generation}"
        for row in value.members:
            group.members[row.member_id].assignment = row.assignment
        if group.state is State.COMPLETING_REBALANCE and value.members:
            group.transition_to(State.STABLE, self._now_ms)

    def _replay_consumers(self, offset: int, record: CoordinatorRecord, producer: Producer | None) -> None:
        group_id: str = record.key.group_id  # type: ignore[attr-defined]
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return
            # What may be there already has come of offsets, which simple consumers commit without being members.
            group = self.groups[group_id] = ConsumerGroup(group_id)
        if record.value is None and isinstance(record.key, ConsumerGroupMetadataKey):
            del self.groups[group_id]
            return
        group.replay(record.key, record.value)
        if self._is_loaded:
            group.changed_ms = self._now_ms
            if isinstance(record.key, ConsumerGroupCurrentMemberAssignmentKey) and record.value is not None:
                self._consumers.expect_revocation(group, group.members[record.key.member_id])


def _committed(value: Message, record_offset: int) -> CommittedOffset:
    if isinstance(value, LegacyOffsetCommitValue):
        return CommittedOffset(value.offset, NO_EPOCH, value.metadata, value.commit_timestamp, record_offset=record_offset)
    assert isinstance(value, OffsetCommitValue)
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        None if value.expire_timestamp == NO_EXPIRY else value.expire_timestamp,
        value.topic_id,
        record_offset,
    )


def _unknown_member(request: Request) -> Result:
    """There is no such group, or none with members of this protocol."""
    return Result(effects=[Refuse(request.token, ErrorCode.UNKNOWN_MEMBER_ID)])


_HANDLERS: Final[dict[type, Callable[[GroupShard, int, Request], Result]]] = {
    HeartbeatRequest: GroupShard._heartbeat,
    OffsetCommitRequest: GroupShard._commit,
    FetchOffsets: GroupShard._fetch,
    JoinGroupRequest: GroupShard._join,
    SyncGroupRequest: GroupShard._sync,
    LeaveGroupRequest: GroupShard._leave,
    TxnOffsetCommitRequest: GroupShard._commit_in_transaction,
    OffsetDeleteRequest: GroupShard._delete_offsets,
    ListGroupsRequest: GroupShard._list,
    DescribeGroupsRequest: GroupShard._describe,
    ConsumerGroupHeartbeatRequest: GroupShard._consumer_heartbeat,
    ConsumerGroupDescribeRequest: GroupShard._describe_consumers,
    DeleteGroupsRequest: GroupShard._delete,
    TopicsDeleted: GroupShard._topics_deleted,
    TopicsChanged: GroupShard._topics_changed,
}

_REPLAYS: Final[dict[type[Message], Callable[[GroupShard, int, CoordinatorRecord, Producer | None], None]]] = {
    OffsetCommitKey: GroupShard._replay_offset,
    LegacyOffsetCommitKey: GroupShard._replay_offset,
    GroupMetadataKey: GroupShard._replay_group,
    ConsumerGroupMetadataKey: GroupShard._replay_consumers,
    ConsumerGroupPartitionMetadataKey: GroupShard._replay_consumers,
    ConsumerGroupMemberMetadataKey: GroupShard._replay_consumers,
    ConsumerGroupTargetAssignmentMetadataKey: GroupShard._replay_consumers,
    ConsumerGroupTargetAssignmentMemberKey: GroupShard._replay_consumers,
    ConsumerGroupCurrentMemberAssignmentKey: GroupShard._replay_consumers,
    ConsumerGroupRegularExpressionKey: GroupShard._replay_consumers,
}
