"""JoinGroup v0-9, SyncGroup v0-5, Heartbeat v0-4, LeaveGroup v0-5: members of classic groups.

Any thread; nothing here waits. What a version lacks is filled in on the way to the shard and taken out on the way back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pybroker.network.request import Request
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupResponse,
)
from pybroker.server.coordinators.groups import GroupCoordinator, Pending

# The first versions with these.
REBALANCE_TIMEOUT: Final = 1
NULL_PROTOCOL_NAME: Final = 7
SYNC_STATES_PROTOCOL: Final = 5
LEAVE_IN_BATCHES: Final = 3


class GroupHandlers:
    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def handle_join_group(self, request: Request, message: JoinGroupRequest) -> JoinGroupResponse | None:
        version = request.version
        if version < REBALANCE_TIMEOUT:
            message.rebalance_timeout_ms = message.session_timeout_ms
        settings = self._coordinator.settings
        if not message.group_id:
            return _join_error(version, ErrorCode.INVALID_GROUP_ID, message.member_id)
        if not settings.min_session_timeout_ms <= message.session_timeout_ms <= settings.max_session_timeout_ms:
            return _join_error(version, ErrorCode.INVALID_SESSION_TIMEOUT, message.member_id)

        def joined(response: JoinGroupResponse) -> None:
            if version < NULL_PROTOCOL_NAME and response.protocol_name is None:
                response.protocol_name = ""
            request.respond(response)

        self._submit(request, message, joined, lambda code: _join_error(version, code))
        return None

    def handle_sync_group(self, request: Request, message: SyncGroupRequest) -> SyncGroupResponse | None:
        lacks_protocol = message.protocol_type is None or message.protocol_name is None
        if request.version >= SYNC_STATES_PROTOCOL and lacks_protocol:
            return _sync_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not message.group_id:
            return _sync_error(ErrorCode.INVALID_GROUP_ID)
        self._submit(request, message, request.respond, _sync_error)
        return None

    def handle_heartbeat(self, request: Request, message: HeartbeatRequest) -> HeartbeatResponse | None:
        if not message.group_id:
            return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        self._submit(request, message, request.respond, _heartbeat_error)
        return None

    def handle_leave_group(self, request: Request, message: LeaveGroupRequest) -> LeaveGroupResponse | None:
        version = request.version
        if version < LEAVE_IN_BATCHES:
            message.members = [MemberIdentity(member_id=message.member_id)]
        if not message.group_id:
            return _leave_error(ErrorCode.INVALID_GROUP_ID)

        def left(response: LeaveGroupResponse) -> None:
            if version < LEAVE_IN_BATCHES:
                response.error_code = response.error_code or response.members[0].error_code
                response.members = []
            request.respond(response)

        self._submit(request, message, left, _leave_error)
        return None

    def _submit(
        self, request: Request, message: Any, done: Callable[[Any], None], error: Callable[[ErrorCode], Message]
    ) -> None:
        coordinator = self._coordinator
        coordinator.submit(
            coordinator.partition_of(message.group_id),
            message,
            Pending(done, lambda code: request.respond(error(code))),
            version=request.version,
            client_id=request.client_id,
            # As Java shows an address without a name.
            client_host=f"/{request.connection.peer[0]}",
        )


def _join_error(version: int, code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    name = "" if version < NULL_PROTOCOL_NAME else None
    return JoinGroupResponse(error_code=code, protocol_name=name, leader="", member_id=member_id, members=[])


def _sync_error(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, assignment=b"")


def _heartbeat_error(code: ErrorCode) -> HeartbeatResponse:
    # A shard that is being loaded gives everybody a new session.
    return HeartbeatResponse(error_code=ErrorCode.NONE if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code)


def _leave_error(code: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code, members=[])
