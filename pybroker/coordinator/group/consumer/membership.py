"""ConsumerGroupHeartbeat: members join, tell what they have, get what they are to have, and leave.

Decisions: each is a list of records, and an answer once they are committed. Timers: a session for each member, and a
deadline for one that has to give partitions up. What members of the classic protocol do in such a group is in
classic_members.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import replace
from typing import Final

from pybroker.coordinator.group.classic.group import ClassicGroup
from pybroker.coordinator.group.classic.rebalance import SESSION
from pybroker.coordinator.group.cluster import ClusterView
from pybroker.coordinator.group.consumer.assignors import Assignment
from pybroker.coordinator.group.consumer.group import ConsumerGroup
from pybroker.coordinator.group.consumer.member import (
    JOINING,
    LEAVING_STATIC,
    NO_PARTITIONS,
    ConsumerMember,
    MemberState,
)
from pybroker.coordinator.group.consumer.migration import can_downgrade, downgraded, upgraded
from pybroker.coordinator.group.consumer.pacing import heartbeat_interval_ms
from pybroker.coordinator.group.consumer.reconciliation import Owned, reconciled
from pybroker.coordinator.group.consumer.records import (
    current_assignment_record,
    member_record,
    member_tombstones,
    target_record,
)
from pybroker.coordinator.group.consumer.subscriptions import (
    Subscribed,
    epoch_without,
    subscribe,
    topic_ids,
    topics_read_by,
)
from pybroker.coordinator.group.consumer.target import assignment_due_ms, retarget
from pybroker.coordinator.group.group import Group
from pybroker.coordinator.group.settings import GroupSettings
from pybroker.coordinator.shard import DelayTimers, Effect, Refuse, Reply, Request, Result
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

logger = logging.getLogger(__name__)

REVOCATION: Final = "revocation"
MEMBER_JOIN: Final = "member join"
MEMBER_SYNC: Final = "member sync"
DOWNGRADED: Final = "downgraded"
# The kinds of timers of a consumer group, beside sessions.
TIMERS: Final = frozenset((REVOCATION, MEMBER_JOIN, MEMBER_SYNC))


class ConsumerMembership:
    def __init__(
        self,
        groups: dict[str, Group],
        timers: DelayTimers,
        settings: GroupSettings,
        cluster: Callable[[], ClusterView],
        new_uuid: Callable[[], str],
    ) -> None:
        self.cluster = cluster
        self.settings = settings
        self._groups = groups
        self._timers = timers
        self._new_uuid = new_uuid

    # ConsumerGroupHeartbeat.

    def heartbeat(self, now_ms: int, request: Request) -> Result:
        message: ConsumerGroupHeartbeatRequest = request.message
        try:
            if message.member_epoch < JOINING:
                return self._leave(now_ms, request, message)
            return self._heartbeat(now_ms, request, message)
        except KafkaError as error:
            response = ConsumerGroupHeartbeatResponse(
                error_code=error.code, error_message=error.message, member_epoch=0, heartbeat_interval_ms=0
            )
            return Result(effects=[Reply(request.token, response)])

    def _heartbeat(self, now_ms: int, request: Request, message: ConsumerGroupHeartbeatRequest) -> Result:
        out = Result()
        group = self._group_for(request, message, out)
        member_id = message.member_id or self._new_uuid()
        if len(group.members) >= self.settings.consumer_max_size and member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {self.settings.consumer_max_size} members.",
            )
        owned = _owned(message)
        if message.instance_id is None:
            former = self._dynamic(group, member_id, message, owned)
        else:
            former = self._static(group, member_id, message.instance_id, message, owned, out)
        member = _updated(former, request, message)
        member, subscribed, target_epoch = self.advance(now_ms, group, former, member, owned, out)
        overrides = self.cluster().group_configs(group.group_id)
        settings = self.settings
        session_ms = overrides.get("consumer.session.timeout.ms", settings.consumer_session_timeout_ms)
        self.expect(group.group_id, member_id, int(session_ms))
        assigned_in_ms = None
        if subscribed.epoch > target_epoch:
            assigned_in_ms = assignment_due_ms(group, now_ms, self._assignment_interval_ms(group))
        is_full = (
            message.rebalance_timeout_ms != -1
            and (message.subscribed_topic_names is not None or message.subscribed_topic_regex is not None)
            and owned is not None
        )
        shows = message.member_epoch == JOINING or is_full or member.assigned != former.assigned
        response = ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.NONE,
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=heartbeat_interval_ms(
                member,
                configured_ms=int(overrides.get("consumer.heartbeat.interval.ms", settings.consumer_heartbeat_interval_ms)),
                calm_ms=0 if out.records else now_ms - group.changed_ms,
                assigned_in_ms=assigned_in_ms,
                members=len(group.members),
            ),
            assignment=_as_answer(member) if shows else None,
        )
        out.effects.append(Reply(request.token, response))
        return out

    def _group_for(self, request: Request, message: ConsumerGroupHeartbeatRequest, out: Result) -> ConsumerGroup:
        """Who joins makes a group, and a classic group one of consumers."""
        group_id = message.group_id
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if message.member_epoch != JOINING:
            problem = f"Consumer group {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, problem)
        if group is None:
            return ConsumerGroup(group_id)
        if group.is_empty:
            out.records += group.tombstones()
            return ConsumerGroup(group_id)
        if not isinstance(group, ClassicGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        classic = group
        consumers, records, waiting = upgraded(classic, self.cluster(), self.settings)
        out.records += records
        out.effects += waiting

        def begin() -> None:
            logger.info("group %s is one of consumers now, from generation %d on", group_id, classic.generation)
            for member in classic.members.values():
                self.expect(group_id, member.member_id, member.session_timeout_ms)

        out.on_written = begin
        # Those who wait for a rebalance of the classic group then wait on.
        out.on_refused = lambda code: [Refuse(request.token, code)]
        return consumers

    def _dynamic(
        self, group: ConsumerGroup, member_id: str, message: ConsumerGroupHeartbeatRequest, owned: Owned | None
    ) -> ConsumerMember:
        member = group.members.get(member_id)
        if member is None:
            if message.member_epoch != JOINING:
                raise _unknown(group, member_id)
            logger.info("group %s: %s joins", group.group_id, member_id)
            return ConsumerMember(member_id)
        _check_epoch(member, message.member_epoch, owned)
        return member

    def _static(
        self,
        group: ConsumerGroup,
        member_id: str,
        instance_id: str,
        message: ConsumerGroupHeartbeatRequest,
        owned: Owned | None,
        out: Result,
    ) -> ConsumerMember:
        holder = group.static_member(instance_id)
        if message.member_epoch != JOINING:
            holder = self.checked_holder(group, member_id, instance_id)
            _check_epoch(holder, message.member_epoch, owned)
            return holder
        if holder is None:
            logger.info("group %s: static member %s joins as %s", group.group_id, instance_id, member_id)
            return group.members.get(member_id) or ConsumerMember(member_id)
        if holder.classic is None and holder.epoch != LEAVING_STATIC:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id is "
                f"owned by {holder.member_id} member.",
            )
        return self.replace_static(group, holder, member_id, out)

    def checked_holder(self, group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
        """The static member of that instance id, if that is `member_id`."""
        holder = group.static_member(instance_id)
        if holder is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if holder.member_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {holder.member_id}.",
            )
        return holder

    def replace_static(self, group: ConsumerGroup, holder: ConsumerMember, member_id: str, out: Result) -> ConsumerMember:
        """A static member under its new id: it has what its former self had."""
        logger.info("group %s: static member %s is %s now", group.group_id, holder.instance_id, member_id)
        member = replace(holder, member_id=member_id, epoch=JOINING, previous_epoch=JOINING)
        out.records += [
            *member_tombstones(group.group_id, holder.member_id),
            member_record(group.group_id, member),
            target_record(group.group_id, member_id, group.target_of(member)),
            current_assignment_record(group.group_id, member),
        ]
        return member

    # From a subscription to an assignment.

    def advance(
        self,
        now_ms: int,
        group: ConsumerGroup,
        former: ConsumerMember,
        member: ConsumerMember,
        owned: Owned | None,
        out: Result,
    ) -> tuple[ConsumerMember, Subscribed, int]:
        """Take `member` in and bring it a step further: a new epoch of the group if it subscribes to something else, a new
        target if that is due, its next assignment. The member then, and the epoch of the target."""
        cluster = self.cluster()
        subscribed = subscribe(now_ms, group, former, member, cluster, self.settings, out)
        interval_ms = self._assignment_interval_ms(group)
        if subscribed.epoch > group.target_epoch and not assignment_due_ms(group, now_ms, interval_ms):
            default = self.settings.consumer_assignors[0]
            target_epoch, target = retarget(now_ms, group, member, subscribed, cluster, default, out)
        else:
            target_epoch, target = group.target_epoch, group.target_of(member)
        return self.reconcile(group, member, target, target_epoch, subscribed, owned, out), subscribed, target_epoch

    def reconcile(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        target: Assignment,
        target_epoch: int,
        subscribed: Subscribed,
        owned: Owned | None,
        out: Result,
    ) -> ConsumerMember:
        if not subscribed.has_changed and member.is_reconciled_to(target_epoch):
            return member
        after = reconciled(
            member,
            target,
            target_epoch,
            subscribed=topic_ids(topics_read_by(member, subscribed.regexes), self.cluster()),
            is_free=group.is_free_for(member),
            owned=owned,
            has_new_subscription=subscribed.has_changed,
        )
        if after != member:
            out.records.append(current_assignment_record(group.group_id, after))
        return after

    def _assignment_interval_ms(self, group: ConsumerGroup) -> int:
        overrides = self.cluster().group_configs(group.group_id)
        return int(overrides.get("consumer.assignment.interval.ms", self.settings.consumer_assignment_interval_ms))

    # Leaving.

    def _leave(self, now_ms: int, request: Request, message: ConsumerGroupHeartbeatRequest) -> Result:
        group = self._groups.get(message.group_id)
        if not isinstance(group, ConsumerGroup):
            what = "not found" if group is None else "is not a consumer group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {message.group_id} {what}.")
        if message.instance_id is not None:
            member = self.checked_holder(group, message.member_id, message.instance_id)
        elif message.member_id in group.members:
            member = group.members[message.member_id]
        else:
            raise _unknown(group, message.member_id)
        response = ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.NONE, member_id=message.member_id, member_epoch=message.member_epoch, heartbeat_interval_ms=0
        )
        if message.instance_id is not None and message.member_epoch == LEAVING_STATIC:
            logger.info("group %s: static member %s is away for a while", group.group_id, message.instance_id)
            away = replace(
                member,
                epoch=LEAVING_STATIC,
                assigned={topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in member.assigned.items()},
                pending_revocation=NO_PARTITIONS,
            )
            return Result([current_assignment_record(group.group_id, away)], [Reply(request.token, response)])
        return self.remove(now_ms, group, [member], "it leaves", [Reply(request.token, response)])

    def remove(
        self, now_ms: int, group: ConsumerGroup, gone: Sequence[ConsumerMember], reason: str, effects: Sequence[Effect] = ()
    ) -> Result:
        """The group without those members; a classic one, if nobody else speaks the new protocol."""
        out = Result(effects=effects)
        if not gone:
            return out
        for member in gone:
            logger.info("group %s: %s is removed: %s", group.group_id, member.member_id, reason)
        if can_downgrade(group, gone, len(group.members) - len(gone), self.settings):
            self.downgrade(now_ms, group, gone, None, out, rebalances=True)
            return out
        for member in gone:
            out.records += member_tombstones(group.group_id, member.member_id)
        out.records += epoch_without(group, gone, self.cluster())
        return out

    def downgrade(
        self,
        now_ms: int,
        group: ConsumerGroup,
        gone: Collection[ConsumerMember],
        joining: ConsumerMember | None,
        out: Result,
        *,
        rebalances: bool,
    ) -> None:
        """`rebalances`: when it is a classic group, its members are to join again."""
        out.records += downgraded(now_ms, group, gone, joining, self.cluster())
        if rebalances:
            self._timers.set((DOWNGRADED, group.group_id), 0)
        logger.info("group %s is a classic one now, in generation %d", group.group_id, group.epoch)

    # Timers. Those of a member that goes are left to themselves, and find nobody: it may turn out that its going cannot be
    # written, and then nothing else would ever ask after it.

    def expect(self, group_id: str, member_id: str, session_timeout_ms: int) -> None:
        self._timers.set((SESSION, group_id, member_id), session_timeout_ms)

    def expect_loaded(self, group: ConsumerGroup) -> None:
        """Everybody in the log gets a whole session, and who has to give something up a whole rebalance timeout."""
        cluster = self.cluster()
        overrides = cluster.group_configs(group.group_id)
        session_ms = int(overrides.get("consumer.session.timeout.ms", self.settings.consumer_session_timeout_ms))
        group.new_topics_version = cluster.version
        for member in group.members.values():
            self.expect(group.group_id, member.member_id, session_ms)
            self.expect_revocation(group, member)

    def expect_revocation(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Of one whose assignment is in the log. Those of the classic protocol have other deadlines, and a static member that
        is away gives nothing up."""
        key = (REVOCATION, group.group_id, member.member_id)
        is_due = member.classic is None and member.epoch >= JOINING
        if is_due and member.state is MemberState.UNREVOKED_PARTITIONS:
            group.revocations[member.member_id] = member.epoch
            self._timers.set(key, member.rebalance_timeout_ms)
        else:
            group.revocations.pop(member.member_id, None)
            self._timers.cancel(key)

    def timed_out(self, now_ms: int, group: ConsumerGroup, kind: Hashable, member_id: str) -> Result:
        member = group.members.get(member_id)
        if member is None:
            return Result()
        if kind == REVOCATION and group.revocations.get(member_id) != member.epoch:
            return Result()
        return self.remove(now_ms, group, [member], _REASONS[kind])


_REASONS: Final[dict[Hashable, str]] = {
    SESSION: "its session has expired",
    REVOCATION: "it has not given its partitions up within its rebalance timeout",
    MEMBER_JOIN: "it has not joined within its rebalance timeout",
    MEMBER_SYNC: "no SyncGroup came from it within its rebalance timeout",
}


def _unknown(group: ConsumerGroup, member_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")


def _check_epoch(member: ConsumerMember, epoch: int, owned: Owned | None) -> None:
    """The present epoch, or the one before if the member missed the answer: then it has nothing that it should not have."""
    if epoch in (JOINING, member.epoch):
        return
    if epoch == member.previous_epoch < member.epoch and owned is not None:
        assigned = member.assigned
        if all(partition in assigned.get(topic_id, ()) for topic_id, some in owned.items() for partition in some):
            return
    size = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {size} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _owned(message: ConsumerGroupHeartbeatRequest) -> Owned | None:
    if message.topic_partitions is None:
        return None
    return {row.topic_id: row.partitions for row in message.topic_partitions}


def _updated(former: ConsumerMember, request: Request, message: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
    """What a request does not say stays as it was."""
    names = message.subscribed_topic_names
    member = ConsumerMember(
        former.member_id,
        former.instance_id if message.instance_id is None else message.instance_id,
        former.rack_id if message.rack_id is None else message.rack_id,
        request.client_id,
        request.client_host,
        former.topic_names if names is None else frozenset(names),
        former.topic_regex if message.subscribed_topic_regex is None else message.subscribed_topic_regex,
        former.rebalance_timeout_ms if message.rebalance_timeout_ms == -1 else message.rebalance_timeout_ms,
        former.server_assignor if message.server_assignor is None else message.server_assignor,
        None,
        former.epoch,
        former.previous_epoch,
        former.state,
        former.assigned,
        former.pending_revocation,
    )
    return former if member == former else member


def _as_answer(member: ConsumerMember) -> ConsumerGroupHeartbeatResponseAssignment:
    return ConsumerGroupHeartbeatResponseAssignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in member.assigned.items()
        ]
    )
