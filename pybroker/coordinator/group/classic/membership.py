"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic groups.

Decisions: what is appended, who is answered. The requests of a rebalance wait in the group until the others have come.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from pybroker.coordinator.group.classic.group import ClassicGroup, State
from pybroker.coordinator.group.classic.member import NO_ASSIGNMENT, ClassicMember, Protocols
from pybroker.coordinator.group.classic.rebalance import NEW_MEMBER_TIMEOUT_MS, Rebalances, join_refusal, join_response
from pybroker.coordinator.group.group import Group
from pybroker.coordinator.group.records import group_record
from pybroker.coordinator.group.settings import GroupSettings
from pybroker.coordinator.shard import Effect, Refuse, Reply, Request, Result
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

logger = logging.getLogger(__name__)

# JoinGroup demands from here on that a new member comes back with the id it was given (KIP-394) ...
MEMBER_ID_REQUIRED_VERSION: Final = 4
# ... and can tell a leader from here on not to assign (KIP-814).
SKIP_ASSIGNMENT_VERSION: Final = 9


class ClassicMembership:
    def __init__(
        self,
        groups: dict[str, Group],
        rebalances: Rebalances,
        settings: GroupSettings,
        new_uuid: Callable[[], str],
    ) -> None:
        self._groups = groups
        self._rebalances = rebalances
        self._settings = settings
        self._new_uuid = new_uuid

    # JoinGroup.

    def join(self, now_ms: int, request: Request, group: ClassicGroup | None) -> Result:
        message: JoinGroupRequest = request.message
        out = Result()
        if group is not None:
            self._join(now_ms, request, group, out)
        elif message.member_id:
            out.effects.append(Reply(request.token, join_refusal(ErrorCode.UNKNOWN_MEMBER_ID, message.member_id)))
        else:
            self._join_new_group(now_ms, request, out)
        return out

    def _join_new_group(self, now_ms: int, request: Request, out: Result) -> None:
        """The log learns of the group at once, though it is empty yet."""
        group_id = request.message.group_id
        group = self._groups[group_id] = ClassicGroup(group_id, now_ms)
        self._join(now_ms, request, group, out)
        out.records.append(group_record(group_id, state_timestamp_ms=group.state_timestamp_ms))

        def forget(code: ErrorCode) -> Sequence[Effect]:
            if self._groups.get(group_id) is group:
                del self._groups[group_id]
            return [Refuse(request.token, code)]

        out.on_refused = forget

    def _join(self, now_ms: int, request: Request, group: ClassicGroup, out: Result) -> None:
        message: JoinGroupRequest = request.message
        protocols = tuple((row.name, bytes(row.metadata)) for row in message.protocols)
        if not self._has_room(group, message.member_id):
            group.remove(message.member_id)
            out.effects.append(Reply(request.token, join_refusal(ErrorCode.GROUP_MAX_SIZE_REACHED)))
            # The others may have waited for it alone.
            self._rebalances.complete_if_all_joined(now_ms, group, out)
        elif not group.supports(message.protocol_type, protocols):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            out.effects.append(Reply(request.token, join_refusal(code, message.member_id)))
        elif not message.member_id:
            self._join_unknown(now_ms, request, group, protocols, out)
        else:
            self._join_known(now_ms, request, group, protocols, out)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        max_size = self._settings.max_size
        if len(group.members) < max_size or group.state in (State.EMPTY, State.DEAD):
            return True
        member = group.members.get(member_id)
        if group.state is State.PREPARING_REBALANCE:
            # Those who have joined count, so that of a group that is too large the last ones are turned away.
            return (member is not None and member.is_awaiting_join) or group.awaiting_join < max_size
        return member is not None

    def _join_unknown(self, now_ms: int, request: Request, group: ClassicGroup, protocols: Protocols, out: Result) -> None:
        message: JoinGroupRequest = request.message
        instance_id = message.group_instance_id
        member_id = f"{request.client_id if instance_id is None else instance_id}-{self._new_uuid()}"
        if instance_id is not None and instance_id in group.static_members:
            self._replace_static(now_ms, request, group, protocols, member_id, out)
        elif instance_id is None and request.version >= MEMBER_ID_REQUIRED_VERSION:
            group.pending_joins[member_id] = None
            self._rebalances.expect_within(group, member_id, message.session_timeout_ms)
            out.effects.append(Reply(request.token, join_refusal(ErrorCode.MEMBER_ID_REQUIRED, member_id)))
        else:
            self._add(now_ms, request, group, protocols, member_id, out)

    def _add(
        self, now_ms: int, request: Request, group: ClassicGroup, protocols: Protocols, member_id: str, out: Result
    ) -> None:
        message: JoinGroupRequest = request.message
        member = ClassicMember(
            member_id,
            message.group_instance_id,
            request.client_id,
            request.client_host,
            message.rebalance_timeout_ms,
            message.session_timeout_ms,
            protocols,
        )
        member.is_new = True
        if group.state is State.PREPARING_REBALANCE and group.previous_state is State.EMPTY:
            group.has_new_members = True
        group.add(member, message.protocol_type, request.token)
        self._rebalances.expect_within(group, member_id, NEW_MEMBER_TIMEOUT_MS)
        self._rebalances.prepare_or_complete(now_ms, group, f"{member_id} joins ({_reason(message.reason)})", out)

    def _join_known(self, now_ms: int, request: Request, group: ClassicGroup, protocols: Protocols, out: Result) -> None:
        message: JoinGroupRequest = request.message
        member_id = message.member_id
        if member_id in group.pending_joins and message.group_instance_id is None:
            self._add(now_ms, request, group, protocols, member_id, out)
            return
        code = group.member_refusal(member_id, message.group_instance_id)
        if not code and group.state is State.EMPTY:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        if code:
            out.effects.append(Reply(request.token, join_refusal(code, member_id)))
            return
        member = group.members[member_id]
        is_leader = group.is_leader(member_id)
        is_same = member.protocols == protocols
        if group.state is State.COMPLETING_REBALANCE and is_same:
            # It has not got the answer to its last JoinGroup.
            out.effects.append(Reply(request.token, join_response(group, member_id, shows_members=is_leader)))
        elif group.state is State.STABLE and is_same and not is_leader:
            # Nothing has changed, unless the leader says so: that is how it asks for a new assignment.
            out.effects.append(Reply(request.token, join_response(group, member_id, shows_members=False)))
        else:
            self._park_join(request, group, member, protocols, out)
            reason = f"{'leader ' if is_leader else ''}{member_id} joins again ({_reason(message.reason)})"
            self._rebalances.prepare_or_complete(now_ms, group, reason, out)

    def _park_join(
        self, request: Request, group: ClassicGroup, member: ClassicMember, protocols: Protocols, out: Result
    ) -> None:
        message: JoinGroupRequest = request.message
        if member.join is not None:
            # The client has given up on its former request and sent another.
            out.effects.append(Reply(member.join, join_refusal(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)))
        group.update(member, protocols, message.rebalance_timeout_ms, message.session_timeout_ms, request.token)

    # A static member that comes back.

    def _replace_static(
        self, now_ms: int, request: Request, group: ClassicGroup, protocols: Protocols, new_id: str, out: Result
    ) -> None:
        """It takes the place of its former self, which is fenced if it is still there."""
        message: JoinGroupRequest = request.message
        instance_id = message.group_instance_id
        assert instance_id is not None
        old = group.members[group.static_members[instance_id]]
        leader_before = group.leader_id
        if old.join is not None:
            out.effects.append(Reply(old.join, join_refusal(ErrorCode.FENCED_INSTANCE_ID, old.member_id)))
        if old.sync is not None:
            out.effects.append(Refuse(old.sync, ErrorCode.FENCED_INSTANCE_ID))
        self._rebalances.expect_no_more(group, old.member_id)
        group.pending_syncs.pop(old.member_id, None)
        member = group.replace_static(instance_id, new_id)
        self._rebalances.expect_heartbeat(group, member)
        group.update(member, protocols, message.rebalance_timeout_ms, message.session_timeout_ms, request.token)
        reason = f"static member {instance_id} is {new_id} now ({_reason(message.reason)})"
        if group.state is State.STABLE and group.elected_protocol() == group.protocol_name:
            self._keep_assignment(request, group, member, old, leader_before, out)
        elif group.state is State.STABLE:
            self._rebalances.prepare_or_complete(now_ms, group, f"{reason}, and changes the protocol", out)
        elif group.state is State.COMPLETING_REBALANCE:
            # The leader assigns to the old member id, or has.
            self._rebalances.prepare(now_ms, group, reason, out)
        else:
            self._rebalances.complete_if_all_joined(now_ms, group, out)

    def _keep_assignment(
        self,
        request: Request,
        group: ClassicGroup,
        member: ClassicMember,
        old: ClassicMember,
        leader_before: str | None,
        out: Result,
    ) -> None:
        """No rebalance: the generation goes on, with another member id in it."""
        member.join = None
        can_skip = request.version >= SKIP_ASSIGNMENT_VERSION
        leads = can_skip and group.is_leader(member.member_id)
        response = join_response(group, member.member_id, shows_members=leads, skips_assignment=leads)
        if not can_skip and leader_before is not None:
            # A leader that cannot be told to skip the assignment must not know that it leads.
            response.leader = leader_before
        out.records.append(group.as_record(lambda one: one.assignment))
        out.effects.append(Reply(request.token, response))
        fenced = list(out.effects[:-1])

        def restore(code: ErrorCode) -> Sequence[Effect]:
            assert old.instance_id is not None
            restored = group.replace_static(old.instance_id, old.member_id)
            group.update(restored, old.protocols, old.rebalance_timeout_ms, old.session_timeout_ms, None)
            self._rebalances.expect_no_more(group, member.member_id)
            self._rebalances.expect_heartbeat(group, restored)
            return [*fenced, Refuse(request.token, code)]

        out.on_refused = restore

    # SyncGroup.

    def sync(self, now_ms: int, request: Request, group: ClassicGroup) -> Result:
        message: SyncGroupRequest = request.message
        code = self._sync_refusal(message, group)
        if code:
            return Result(effects=[Refuse(request.token, code)])
        member = group.members[message.member_id]
        group.pending_syncs.pop(member.member_id, None)
        if not group.pending_syncs:
            self._rebalances.all_have_synced(group)
        if group.state is State.STABLE:
            return Result(effects=[Reply(request.token, _sync_response(group, member.assignment))])
        out = Result()
        if member.sync is not None:
            out.effects.append(Refuse(member.sync, ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync = request.token
        if group.is_leader(member.member_id):
            self._assign(now_ms, message, group, out)
        return out

    def _sync_refusal(self, message: SyncGroupRequest, group: ClassicGroup) -> ErrorCode:
        if group.state is State.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        code = group.member_refusal(message.member_id, message.group_instance_id)
        if code:
            return code
        if message.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if message.protocol_type not in (None, group.protocol_type) or (
            group.protocol_name is not None and message.protocol_name not in (None, group.protocol_name)
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group.state is State.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _assign(self, now_ms: int, message: SyncGroupRequest, group: ClassicGroup, out: Result) -> None:
        """The leader has assigned. The group is stable when the record of it is replayed."""
        given = {row.member_id: bytes(row.assignment) for row in message.assignments}
        missing = [member_id for member_id in group.members if member_id not in given]
        if missing:
            logger.warning("group %s: the leader has assigned nothing to %s", group.group_id, ", ".join(missing))
        waiting = []
        given_up = list(out.effects)
        for member in group.members.values():
            if member.sync is not None:
                response = _sync_response(group, given.get(member.member_id, NO_ASSIGNMENT))
                out.effects.append(Reply(member.sync, response))
                waiting.append(member.sync)
                member.sync = None
                self._rebalances.expect_heartbeat(group, member)
        out.records.append(group.as_record(lambda member: given.get(member.member_id, NO_ASSIGNMENT)))

        def refuse(code: ErrorCode) -> Sequence[Effect]:
            instead = Result(effects=[*given_up, *[Refuse(token, code) for token in waiting]])
            self._rebalances.prepare(now_ms, group, f"the assignment could not be stored: {code.name}", instead)
            return instead.effects

        out.on_refused = refuse

    # Heartbeat.

    def heartbeat(self, request: Request, group: ClassicGroup) -> Result:
        message: HeartbeatRequest = request.message
        return Result(effects=[Reply(request.token, HeartbeatResponse(error_code=self._heartbeat(message, group)))])

    def _heartbeat(self, message: HeartbeatRequest, group: ClassicGroup) -> ErrorCode:
        code = group.member_refusal(message.member_id, message.group_instance_id)
        if code:
            return code
        if message.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._rebalances.expect_heartbeat(group, group.members[message.member_id])
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING_REBALANCE else ErrorCode.NONE

    # LeaveGroup.

    def leave(self, now_ms: int, request: Request, group: ClassicGroup) -> Result:
        message: LeaveGroupRequest = request.message
        out = Result()
        rows = [
            MemberResponse(
                member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=self._leave(one, group, out)
            )
            for one in message.members
        ]
        gone = [row.member_id or row.group_instance_id or "" for row in rows if not row.error_code]
        if gone and group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self._rebalances.prepare_or_complete(now_ms, group, f"{', '.join(gone)} left", out)
        elif gone:
            self._rebalances.complete_if_all_joined(now_ms, group, out)
        out.effects.append(Reply(request.token, LeaveGroupResponse(error_code=ErrorCode.NONE, members=rows)))
        return out

    def _leave(self, one: MemberIdentity, group: ClassicGroup, out: Result) -> ErrorCode:
        member_id = one.member_id
        if not member_id:
            # An administrator removes a static member, whoever holds the place.
            member_id = group.static_members.get(one.group_instance_id or "", "")
        elif member_id in group.pending_joins:
            group.remove(member_id)
            self._rebalances.expect_no_more(group, member_id)
            return ErrorCode.NONE
        else:
            code = group.member_refusal(member_id, one.group_instance_id)
            if code:
                return code
        member = group.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        logger.info("group %s: %s leaves (%s)", group.group_id, member_id, _reason(one.reason))
        self._rebalances.remove_member(group, member, out)
        return ErrorCode.NONE


def unknown_members(message: LeaveGroupRequest) -> LeaveGroupResponse:
    """The answer of a group that is not there."""
    code = ErrorCode.UNKNOWN_MEMBER_ID
    rows = [
        MemberResponse(member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=code)
        for one in message.members
    ]
    return LeaveGroupResponse(error_code=ErrorCode.NONE, members=rows)


def _sync_response(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.protocol_type or None,
        protocol_name=group.protocol_name,
        assignment=assignment,
    )


def _reason(text: str | None) -> str:
    return text or "no reason given"
