"""Raw members of groups: a connection each, requests encoded by the tables, and many of them asked before any is answered."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from interop.broker_process import ask
from perf.bench.frames import CLIENT_ID, framed
from perf.bench.raw_client import connect, parsed_address
from support.waiting import wait_until

from pybroker.protocol.api_table import APIS
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.groups import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from pybroker.protocol.messages.headers import ResponseHeader

# The last in which a member gets its id with its first join.
JOIN_VERSION = 3
SYNC_VERSION = 3
HEARTBEAT_VERSION = 4
READY_S = 60.0
_BY_KEY = {api.key: api for api in APIS}
_INT32 = struct.Struct(">i")
_NOT_YET = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


class Line:
    """A connection of which one asks, and reads the answers later."""

    def __init__(self, address: str, client_id: str = CLIENT_ID) -> None:
        self._client_id = client_id
        self.socket = connect(parsed_address(address))
        self._asked: list[tuple[int, int]] = []

    def send(self, request: Message, version: int) -> None:
        assert request.KEY is not None
        self._asked.append((request.KEY, version))
        self.socket.sendall(framed(request, version, client_id=self._client_id))

    def receive(self) -> Any:
        """The answer to the first request that has none yet."""
        return self.decoded(self.receive_frame())

    def receive_frame(self) -> bytes:
        (size,) = _INT32.unpack(self._exactly(4))
        return self._exactly(size)

    def decoded(self, data: bytes) -> Any:
        key, version = self._asked.pop(0)
        api = _BY_KEY[key]
        _, position = ResponseHeader.decode_from(api.response_header_version(version), data, 0)
        message, _ = api.response.decode_from(version, data, position)
        return message

    def ask(self, request: Message, version: int) -> Any:
        self.send(request, version)
        return self.receive()

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            assert more, "the broker closed the connection"
            data += more
        return bytes(data)

    def close(self) -> None:
        self.socket.close()


@dataclass(slots=True)
class RawMember:
    """A member of a classic group on a connection of its own."""

    line: Line
    group: str
    member_id: str = ""
    generation: int = -1
    leader: str = ""

    def join(self) -> None:
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=protocols,
        )
        self.line.send(request, JOIN_VERSION)

    def joined(self) -> None:
        answer = self.line.receive()
        assert answer.error_code == ErrorCode.NONE, answer
        self.member_id, self.generation, self.leader = answer.member_id, answer.generation_id, answer.leader

    def is_asked_to_rejoin(self) -> bool:
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
        return bool(self.line.ask(request, HEARTBEAT_VERSION).error_code == ErrorCode.REBALANCE_IN_PROGRESS)

    def sync(self, members: Sequence[RawMember]) -> None:
        rows = [SyncGroupRequestAssignment(member_id=one.member_id, assignment=b"share") for one in members]
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=rows if self.member_id == self.leader else [],
        )
        self.line.send(request, SYNC_VERSION)

    def synced(self) -> None:
        answer = self.line.receive()
        assert (answer.error_code, answer.assignment) == (ErrorCode.NONE, b"share"), answer


def wait_for_coordinator(address: str, group: str) -> None:
    """Until a group can be joined: the topic of offsets is made on first use."""

    def is_ready() -> bool:
        (row,) = ask(address, FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), None).coordinators
        if row.error_code:
            return False
        (found,) = ask(address, DescribeGroupsRequest(groups=[group]), None).groups
        return found.error_code not in _NOT_YET

    wait_until(is_ready, READY_S, lambda: f"no coordinator for {group} at {address}")


def formed(address: str, groups: Sequence[str], size: int) -> list[RawMember]:
    """Groups of `size` members each, all of them stable."""
    wait_for_coordinator(address, groups[0])
    by_group = [[RawMember(Line(address), group) for _ in range(size)] for group in groups]
    # Every group has one member first: whoever comes later makes it join again, in one more generation.
    for members in by_group:
        members[0].join()
    for members in by_group:
        members[0].joined()
    if size > 1:
        for members in by_group:
            for one in members[1:]:
                one.join()
        for members in by_group:
            # Not before the others are in: of whoever rejoins a group that does not rebalance nothing comes.
            wait_until(members[0].is_asked_to_rejoin, READY_S, lambda: "nobody joins")
            members[0].join()
        for members in by_group:
            for one in members:
                one.joined()
    for members in by_group:
        for one in members:
            one.sync(members)
    for members in by_group:
        for one in members:
            one.synced()
    return [one for members in by_group for one in members]
