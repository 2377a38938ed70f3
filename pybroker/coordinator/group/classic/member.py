"""A member of a classic group: what it can do, what it was assigned, and which request of it waits for the others."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from pybroker.coordinator.shard import Token
from pybroker.protocol.internal.consumer_offsets import MemberMetadata
from pybroker.protocol.messages.groups import DescribedGroupMember, JoinGroupResponseMember

# Protocols in the order of the member's preference, each with what the leader is told of the member under it.
Protocols = tuple[tuple[str, bytes], ...]

NO_ASSIGNMENT: Final = b""


class ClassicMember:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = NO_ASSIGNMENT,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.join: Token = None  # the JoinGroup that waits for the other members
        self.sync: Token = None  # the SyncGroup that waits for the leader's
        self.is_new = False  # it has had no answer to its first JoinGroup yet

    def renamed(self, member_id: str) -> ClassicMember:
        """The same static member after a restart, under its new id."""
        return ClassicMember(
            member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.protocols,
            self.assignment,
        )

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def is_awaiting_join(self) -> bool:
        return self.join is not None

    @property
    def is_excused(self) -> bool:
        """Whether it needs no heartbeats, since it waits for us. A new member may be gone without our noticing."""
        return not self.is_new and (self.join is not None or self.sync is not None)

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise AssertionError(f"member {self.member_id} does not know protocol {protocol}")

    def vote(self, candidates: Collection[str]) -> str:
        """The first of its protocols that all members know."""
        return next(name for name, _ in self.protocols if name in candidates)

    # As others are shown it.

    def as_record(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )

    def as_joined(self, protocol: str | None) -> JoinGroupResponseMember:
        return JoinGroupResponseMember(
            member_id=self.member_id, group_instance_id=self.instance_id, metadata=self.metadata(protocol)
        )

    def as_described(self, metadata: bytes) -> DescribedGroupMember:
        return DescribedGroupMember(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            member_metadata=metadata,
            member_assignment=self.assignment,
        )
