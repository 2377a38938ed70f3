"""What is asked of a group of any type; whoever adds a type fills this in and gives the shard its requests and records."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple, Protocol

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.coordinator.records import CoordinatorRecord
from pybroker.protocol.errors import ErrorCode


class GroupType(StrEnum):
    """As ListGroups shows and filters them."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class Committer(NamedTuple):
    """Who commits, in its own words; a simple consumer is no member and has no generation."""

    member_id: str
    instance_id: str | None
    generation: int  # of a classic group, or the member epoch
    is_transactional: bool
    version: int  # of the API


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None = None  # given by the client, in old versions
    topic_id: Uuid = ZERO_UUID
    record_offset: int = -1  # in the log of the shard


class Group(Protocol):
    @property
    def group_id(self) -> str: ...

    @property
    def type(self) -> GroupType: ...

    @property
    def state_name(self) -> str: ...

    @property
    def protocol_type(self) -> str:
        """Empty for a group of simple consumers."""

    @property
    def is_empty(self) -> bool:
        """No members, now or before long: it may be deleted, and groups of another type may take its name."""

    def commit_refusal(self, committer: Committer) -> ErrorCode: ...

    def partition_check(self, committer: Committer) -> Callable[[Uuid, int], ErrorCode] | None:
        """What else has to be asked for each partition, by topic id, of one who may commit; None if nothing has."""

    def fetch_refusal(self, member_id: str | None, member_epoch: int) -> ErrorCode: ...

    def offset_delete_refusal(self) -> ErrorCode: ...

    def delete_refusal(self) -> ErrorCode: ...

    def is_subscribed_to(self, topic: str) -> bool: ...

    def retention_start_ms(self, committed: CommittedOffset) -> int | None:
        """From when on offsets.retention.minutes count for an offset; None if they do not."""

    def tombstones(self) -> list[CoordinatorRecord]: ...
