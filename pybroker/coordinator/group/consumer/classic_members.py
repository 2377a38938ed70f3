"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup to a consumer group: members that a rolling upgrade has not reached yet.

To such a member the epoch is the generation. It gets its assignment by SyncGroup, is told by Heartbeat to join again when
there is something for it to do, and what it owns it says in its subscription.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from pybroker.coordinator.group.classic.group import CONSUMER_PROTOCOL
from pybroker.coordinator.group.classic.membership import MEMBER_ID_REQUIRED_VERSION
from pybroker.coordinator.group.classic.rebalance import join_refusal
from pybroker.coordinator.group.consumer.group import ConsumerGroup
from pybroker.coordinator.group.consumer.member import ClassicProtocols, ConsumerMember, MemberState
from pybroker.coordinator.group.consumer.membership import MEMBER_JOIN, MEMBER_SYNC, ConsumerMembership
from pybroker.coordinator.group.consumer.migration import can_downgrade, decoded_subscription, encoded_assignment
from pybroker.coordinator.group.consumer.reconciliation import Owned
from pybroker.coordinator.group.consumer.subscriptions import subscribe
from pybroker.coordinator.shard import DelayTimers, Refuse, Reply, Request, Result
from pybroker.protocol.errors import ErrorCode, KafkaError, ProtocolError
from pybroker.protocol.internal.consumer_protocol import ConsumerProtocolSubscription
from pybroker.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

_UNKNOWN: Final = ErrorCode.UNKNOWN_MEMBER_ID


class ClassicMembers:
    def __init__(self, membership: ConsumerMembership, timers: DelayTimers, new_uuid: Callable[[], str]) -> None:
        self._membership = membership
        self._timers = timers
        self._new_uuid = new_uuid

    # JoinGroup.

    def join(self, now_ms: int, request: Request, group: ConsumerGroup) -> Result:
        message: JoinGroupRequest = request.message
        member_id = message.member_id or self._new_uuid()
        code = self._join_refusal(message, group, member_id)
        if not code and not message.member_id and message.group_instance_id is None:
            code = ErrorCode.MEMBER_ID_REQUIRED if request.version >= MEMBER_ID_REQUIRED_VERSION else code
        if code:
            return Result(effects=[Reply(request.token, join_refusal(code, member_id))])
        try:
            return self._join(now_ms, request, group, member_id)
        except KafkaError as error:
            return Result(effects=[Reply(request.token, join_refusal(error.code, message.member_id))])

    def _join_refusal(self, message: JoinGroupRequest, group: ConsumerGroup, member_id: str) -> ErrorCode:
        settings = self._membership.settings
        if not settings.can_upgrade and not settings.can_downgrade:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if len(group.members) >= settings.consumer_max_size and member_id not in group.members:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        fits = group.supports(message.protocol_type, [row.name for row in message.protocols])
        return ErrorCode.NONE if fits else ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def _join(self, now_ms: int, request: Request, group: ConsumerGroup, member_id: str) -> Result:
        message: JoinGroupRequest = request.message
        membership = self._membership
        try:
            subscription = decoded_subscription(bytes(message.protocols[0].metadata))
        except ProtocolError as error:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"The subscription of {member_id} cannot be read: {error}"
            ) from error
        out = Result()
        instance_id = message.group_instance_id
        holder = group.static_member(instance_id)
        if instance_id is None:
            former = group.members.get(member_id) or ConsumerMember(member_id)
        elif message.member_id:
            former = membership.checked_holder(group, member_id, instance_id)
        elif holder is not None:
            former = membership.replace_static(group, holder, member_id, out)
        else:
            former = ConsumerMember(member_id)
        member = replace(
            former,
            instance_id=instance_id if instance_id is not None else former.instance_id,
            rack_id=subscription.rack_id or former.rack_id,
            rebalance_timeout_ms=message.rebalance_timeout_ms,
            topic_names=frozenset(subscription.topics),
            topic_regex="",
            client_id=request.client_id,
            client_host=request.client_host,
            classic=ClassicProtocols(
                message.session_timeout_ms, tuple((row.name, bytes(row.metadata)) for row in message.protocols)
            ),
        )
        owned = self._owned(subscription)
        goes_back = holder is not None and holder.classic is None
        is_classic_now = False
        if holder is not None and goes_back and can_downgrade(group, [holder], len(group.members), membership.settings):
            member = self._downgrade(now_ms, group, holder, former, member, owned, out)
            is_classic_now = True
        else:
            member, _, _ = membership.advance(now_ms, group, former, member, owned, out)
            membership.expect(group.group_id, member_id, message.session_timeout_ms)

        def joined() -> None:
            group.rejoining.discard(member_id)
            self._timers.cancel((MEMBER_JOIN, group.group_id, member_id))
            if not is_classic_now:
                self._timers.set((MEMBER_SYNC, group.group_id, member_id), message.rebalance_timeout_ms)

        out.on_written = joined
        response = JoinGroupResponse(
            error_code=ErrorCode.NONE,
            generation_id=member.epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=message.protocols[0].name,
            leader="",
            member_id=member_id,
            members=[],
        )
        out.effects.append(Reply(request.token, response))
        return out

    def _downgrade(
        self,
        now_ms: int,
        group: ConsumerGroup,
        holder: ConsumerMember,
        former: ConsumerMember,
        member: ConsumerMember,
        owned: Owned,
        out: Result,
    ) -> ConsumerMember:
        """The last member of the new protocol comes back as a static one of the classic protocol."""
        membership = self._membership
        subscribed = subscribe(now_ms, group, former, member, membership.cluster(), membership.settings, out)
        is_settled = group.target_epoch >= subscribed.epoch
        if is_settled:
            target = group.target_of(member)
            member = membership.reconcile(group, member, target, group.target_epoch, subscribed, owned, out)
            is_settled = all(
                one.is_reconciled_to(group.target_epoch)
                for one in (member, *group.members.values())
                if one.member_id != holder.member_id
            )
        membership.downgrade(now_ms, group, [holder], member, out, rebalances=not is_settled)
        return member

    def _owned(self, subscription: ConsumerProtocolSubscription) -> Owned:
        cluster = self._membership.cluster()
        return {
            topic.topic_id: row.partitions
            for row in subscription.owned_partitions
            if (topic := cluster.topic(row.topic)) is not None
        }

    # SyncGroup and Heartbeat.

    def sync(self, request: Request, group: ConsumerGroup) -> Result:
        message: SyncGroupRequest = request.message
        member, code = self._member(group, message.member_id, message.group_instance_id, message.generation_id)
        if member is None or member.classic is None or code:
            return Result(effects=[Refuse(request.token, code)])
        name, metadata = member.classic.protocols[0]
        if message.protocol_type not in (None, CONSUMER_PROTOCOL) or message.protocol_name not in (None, name):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        elif group.target_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_join(group, member)
            code = ErrorCode.REBALANCE_IN_PROGRESS
        if code:
            return Result(effects=[Refuse(request.token, code)])
        self._timers.cancel((MEMBER_SYNC, group.group_id, member.member_id))
        self._membership.expect(group.group_id, member.member_id, member.classic.session_timeout_ms)
        assigned = {topic_id: tuple(partitions) for topic_id, partitions in member.assigned.items()}
        response = SyncGroupResponse(
            error_code=ErrorCode.NONE,
            protocol_type=message.protocol_type,
            protocol_name=message.protocol_name,
            assignment=encoded_assignment(assigned, metadata, self._membership.cluster()),
        )
        return Result(effects=[Reply(request.token, response)])

    def heartbeat(self, request: Request, group: ConsumerGroup) -> Result:
        message: HeartbeatRequest = request.message
        member, code = self._member(group, message.member_id, message.group_instance_id, message.generation_id)
        if member is None or member.classic is None or code:
            return Result(effects=[Refuse(request.token, code)])
        self._membership.expect(group.group_id, member.member_id, member.classic.session_timeout_ms)
        if (
            member.epoch < group.target_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member))
        ):
            code = ErrorCode.REBALANCE_IN_PROGRESS
            self._expect_join(group, member)
        return Result(effects=[Reply(request.token, HeartbeatResponse(error_code=code))])

    def _member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[ConsumerMember | None, ErrorCode]:
        """The member, or why it is refused."""
        member = group.members.get(member_id) if instance_id is None else group.static_member(instance_id)
        if member is None:
            return None, _UNKNOWN
        if member.member_id != member_id:
            return None, ErrorCode.FENCED_INSTANCE_ID
        if member.classic is None:
            return None, _UNKNOWN
        return member, ErrorCode.NONE if member.epoch == generation else ErrorCode.ILLEGAL_GENERATION

    def _expect_join(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Within its rebalance timeout, counted from when it was told first."""
        if member.member_id not in group.rejoining:
            group.rejoining.add(member.member_id)
            self._timers.set((MEMBER_JOIN, group.group_id, member.member_id), member.rebalance_timeout_ms)

    # LeaveGroup.

    def leave(self, now_ms: int, request: Request, group: ConsumerGroup) -> Result:
        message: LeaveGroupRequest = request.message
        rows = []
        gone: dict[str, ConsumerMember] = {}
        for one in message.members:
            member = (
                group.members.get(one.member_id)
                if one.group_instance_id is None
                else group.static_member(one.group_instance_id)
            )
            code = _UNKNOWN if member is None else ErrorCode.NONE
            if member is not None and one.group_instance_id is not None and one.member_id not in ("", member.member_id):
                code = ErrorCode.FENCED_INSTANCE_ID
            if member is not None and not code:
                gone[member.member_id] = member
            rows.append(MemberResponse(member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=code))
        reply = Reply(request.token, LeaveGroupResponse(error_code=ErrorCode.NONE, members=rows))
        return self._membership.remove(now_ms, group, list(gone.values()), "it leaves", [reply])
