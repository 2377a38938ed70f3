"""Records of `__consumer_offsets`: committed offsets and classic groups.

A record's key starts with its type id (`key`), a value with its version. Type 0 is what brokers before 0.9.1 wrote.
"""

from __future__ import annotations

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.protocol.message import Message, Struct, col


class LegacyOffsetCommitKey(Message, key=0, versions="0"):
    group:     str = col("string", "0")
    topic:     str = col("string", "0")
    partition: int = col("int32", "0")


class LegacyOffsetCommitValue(Message, key=0, versions="0"):
    offset:           int = col("int64", "0")
    metadata:         str = col("string", "0")
    commit_timestamp: int = col("int64", "0")


class OffsetCommitKey(Message, key=1, versions="0"):
    group:     str = col("string", "0")
    topic:     str = col("string", "0")
    partition: int = col("int32", "0")


class OffsetCommitValue(Message, key=1, versions="0-4", flexible="4+"):
    offset:           int  = col("int64")
    leader_epoch:     int  = col("int32", "3+", default=-1, ignorable=True)
    metadata:         str  = col("string")
    commit_timestamp: int  = col("int64")
    expire_timestamp: int  = col("int64", "1", default=-1, ignorable=True)
    topic_id:         Uuid = col("uuid", "4+", default=ZERO_UUID, tag=0, ignorable=True)


class GroupMetadataKey(Message, key=2, versions="0"):
    group: str = col("string", "0")


class GroupMetadataValue(Message, key=2, versions="0-4", flexible="4+"):
    protocol_type:           str                  = col("string")
    generation:              int                  = col("int32")
    protocol:                str | None           = col("string", nullable="0+")
    leader:                  str | None           = col("string", nullable="0+")
    current_state_timestamp: int                  = col("int64", "2+", default=-1, ignorable=True)
    members:                 list[MemberMetadata] = col("[]MemberMetadata")


class MemberMetadata(Struct):
    member_id:         str        = col("string")
    group_instance_id: str | None = col("string", "3+", nullable="3+", default=None, ignorable=True)
    client_id:         str        = col("string")
    client_host:       str        = col("string")
    rebalance_timeout: int        = col("int32", "1+", default=-1, ignorable=True)
    session_timeout:   int        = col("int32")
    subscription:      bytes      = col("bytes")
    assignment:        bytes      = col("bytes")
