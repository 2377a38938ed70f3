"""Committed offsets: commit, fetch (8 and later for many groups at once), delete. Version 10 names topics by id."""

from __future__ import annotations

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.protocol.message import Message, Struct, col


class OffsetCommitRequest(Message, key=8, versions="2-10", flexible="8+"):
    group_id:                      str                            = col("string")
    generation_id_or_member_epoch: int                            = col("int32", "1+", default=-1, ignorable=True)
    member_id:                     str                            = col("string", "1+", ignorable=True)
    group_instance_id:             str | None                     = col("string", "7+", nullable="7+", default=None)
    retention_time_ms:             int                            = col("int64", "2-4", default=-1, ignorable=True)
    topics:                        list[OffsetCommitRequestTopic] = col("[]OffsetCommitRequestTopic")


class OffsetCommitRequestTopic(Struct):
    name:       str                                = col("string", "0-9", default="", ignorable=True)
    topic_id:   Uuid                               = col("uuid", "10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = col("[]OffsetCommitRequestPartition")


class OffsetCommitRequestPartition(Struct):
    partition_index:        int        = col("int32")
    committed_offset:       int        = col("int64")
    committed_leader_epoch: int        = col("int32", "6+", default=-1, ignorable=True)
    committed_metadata:     str | None = col("string", nullable="0+")


class OffsetCommitResponse(Message, key=8, versions="2-10", flexible="8+"):
    throttle_time_ms: int                             = col("int32", "3+", default=0, ignorable=True)
    topics:           list[OffsetCommitResponseTopic] = col("[]OffsetCommitResponseTopic")


class OffsetCommitResponseTopic(Struct):
    name:       str                                 = col("string", "0-9", default="", ignorable=True)
    topic_id:   Uuid                                = col("uuid", "10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = col("[]OffsetCommitResponsePartition")


class OffsetCommitResponsePartition(Struct):
    partition_index: int = col("int32")
    error_code:      int = col("int16")


class OffsetFetchRequest(Message, key=9, versions="1-10", flexible="6+"):
    group_id:       str                                  = col("string", "0-7", default="")
    topics:         list[OffsetFetchRequestTopic] | None = col("[]OffsetFetchRequestTopic", "0-7", nullable="2-7", default=[])
    groups:         list[OffsetFetchRequestGroup]        = col("[]OffsetFetchRequestGroup", "8+", default=[])
    require_stable: bool                                 = col("bool", "7+", default=False)


class OffsetFetchRequestTopic(Struct):
    name:              str       = col("string", "0-7")
    partition_indexes: list[int] = col("[]int32", "0-7")


class OffsetFetchRequestGroup(Struct):
    group_id:     str                                   = col("string", "8+")
    member_id:    str | None                            = col("string", "9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int                                   = col("int32", "9+", default=-1, ignorable=True)
    topics:       list[OffsetFetchRequestTopics] | None = col("[]OffsetFetchRequestTopics", "8+", nullable="8+")


class OffsetFetchRequestTopics(Struct):
    name:              str       = col("string", "8-9", default="", ignorable=True)
    topic_id:          Uuid      = col("uuid", "10+", default=ZERO_UUID, ignorable=True)
    partition_indexes: list[int] = col("[]int32", "8+")


class OffsetFetchResponse(Message, key=9, versions="1-10", flexible="6+"):
    throttle_time_ms: int                            = col("int32", "3+", default=0, ignorable=True)
    topics:           list[OffsetFetchResponseTopic] = col("[]OffsetFetchResponseTopic", "0-7", default=[])
    error_code:       int                            = col("int16", "2-7", default=0, ignorable=True)
    groups:           list[OffsetFetchResponseGroup] = col("[]OffsetFetchResponseGroup", "8+", default=[])


class OffsetFetchResponseTopic(Struct):
    name:       str                                = col("string", "0-7")
    partitions: list[OffsetFetchResponsePartition] = col("[]OffsetFetchResponsePartition", "0-7")


class OffsetFetchResponsePartition(Struct):
    partition_index:        int        = col("int32", "0-7")
    committed_offset:       int        = col("int64", "0-7")
    committed_leader_epoch: int        = col("int32", "5-7", default=-1, ignorable=True)
    metadata:               str | None = col("string", "0-7", nullable="0-7")
    error_code:             int        = col("int16", "0-7")


class OffsetFetchResponseGroup(Struct):
    group_id:   str                             = col("string", "8+")
    topics:     list[OffsetFetchResponseTopics] = col("[]OffsetFetchResponseTopics", "8+")
    error_code: int                             = col("int16", "8+", default=0)


class OffsetFetchResponseTopics(Struct):
    name:       str                                 = col("string", "8-9", default="", ignorable=True)
    topic_id:   Uuid                                = col("uuid", "10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = col("[]OffsetFetchResponsePartitions", "8+")


class OffsetFetchResponsePartitions(Struct):
    partition_index:        int        = col("int32", "8+")
    committed_offset:       int        = col("int64", "8+")
    committed_leader_epoch: int        = col("int32", "8+", default=-1, ignorable=True)
    metadata:               str | None = col("string", "8+", nullable="8+")
    error_code:             int        = col("int16", "8+")


class OffsetDeleteRequest(Message, key=47, versions="0"):
    group_id: str                            = col("string")
    topics:   list[OffsetDeleteRequestTopic] = col("[]OffsetDeleteRequestTopic")


class OffsetDeleteRequestTopic(Struct):
    name:       str                                = col("string")
    partitions: list[OffsetDeleteRequestPartition] = col("[]OffsetDeleteRequestPartition")


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = col("int32")


class OffsetDeleteResponse(Message, key=47, versions="0"):
    error_code:       int                             = col("int16")
    throttle_time_ms: int                             = col("int32", default=0, ignorable=True)
    topics:           list[OffsetDeleteResponseTopic] = col("[]OffsetDeleteResponseTopic")


class OffsetDeleteResponseTopic(Struct):
    name:       str                                 = col("string")
    partitions: list[OffsetDeleteResponsePartition] = col("[]OffsetDeleteResponsePartition")


class OffsetDeleteResponsePartition(Struct):
    partition_index: int = col("int32")
    error_code:      int = col("int16")
