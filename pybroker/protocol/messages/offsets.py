"""Positions in a partition: offsets by time, the end of a leader epoch, and the new start after a deletion."""

from __future__ import annotations

from pybroker.protocol.message import Message, Struct, col


class ListOffsetsRequest(Message, key=2, versions="1-11", flexible="6+"):
    replica_id:      int                    = col("int32")
    isolation_level: int                    = col("int8", "2+", default=0)
    topics:          list[ListOffsetsTopic] = col("[]ListOffsetsTopic")
    timeout_ms:      int                    = col("int32", "10+", default=0, ignorable=True)


class ListOffsetsTopic(Struct):
    name:       str                        = col("string")
    partitions: list[ListOffsetsPartition] = col("[]ListOffsetsPartition")


class ListOffsetsPartition(Struct):
    partition_index:      int = col("int32")
    current_leader_epoch: int = col("int32", "4+", default=-1, ignorable=True)
    timestamp:            int = col("int64")


class ListOffsetsResponse(Message, key=2, versions="1-11", flexible="6+"):
    throttle_time_ms: int                            = col("int32", "2+", default=0, ignorable=True)
    topics:           list[ListOffsetsTopicResponse] = col("[]ListOffsetsTopicResponse")


class ListOffsetsTopicResponse(Struct):
    name:       str                                = col("string")
    partitions: list[ListOffsetsPartitionResponse] = col("[]ListOffsetsPartitionResponse")


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = col("int32")
    error_code:      int = col("int16")
    timestamp:       int = col("int64", "1+", default=-1)
    offset:          int = col("int64", "1+", default=-1)
    leader_epoch:    int = col("int32", "4+", default=-1)


class OffsetForLeaderEpochRequest(Message, key=23, versions="2-4", flexible="4+"):
    replica_id: int                        = col("int32", "3+", default=-2, ignorable=True)
    topics:     list[OffsetForLeaderTopic] = col("[]OffsetForLeaderTopic")


class OffsetForLeaderTopic(Struct):
    topic:      str                            = col("string")
    partitions: list[OffsetForLeaderPartition] = col("[]OffsetForLeaderPartition")


class OffsetForLeaderPartition(Struct):
    partition:            int = col("int32")
    current_leader_epoch: int = col("int32", "2+", default=-1, ignorable=True)
    leader_epoch:         int = col("int32")


class OffsetForLeaderEpochResponse(Message, key=23, versions="2-4", flexible="4+"):
    throttle_time_ms: int                              = col("int32", "2+", default=0, ignorable=True)
    topics:           list[OffsetForLeaderTopicResult] = col("[]OffsetForLeaderTopicResult")


class OffsetForLeaderTopicResult(Struct):
    topic:      str                  = col("string")
    partitions: list[EpochEndOffset] = col("[]EpochEndOffset")


class EpochEndOffset(Struct):
    error_code:   int = col("int16")
    partition:    int = col("int32")
    leader_epoch: int = col("int32", "1+", default=-1, ignorable=True)
    end_offset:   int = col("int64", default=-1)


class DeleteRecordsRequest(Message, key=21, versions="0-2", flexible="2+"):
    topics:     list[DeleteRecordsTopic] = col("[]DeleteRecordsTopic")
    timeout_ms: int                      = col("int32")


class DeleteRecordsTopic(Struct):
    name:       str                          = col("string")
    partitions: list[DeleteRecordsPartition] = col("[]DeleteRecordsPartition")


class DeleteRecordsPartition(Struct):
    partition_index: int = col("int32")
    offset:          int = col("int64")


class DeleteRecordsResponse(Message, key=21, versions="0-2", flexible="2+"):
    throttle_time_ms: int                            = col("int32", default=0)
    topics:           list[DeleteRecordsTopicResult] = col("[]DeleteRecordsTopicResult")


class DeleteRecordsTopicResult(Struct):
    name:       str                                = col("string")
    partitions: list[DeleteRecordsPartitionResult] = col("[]DeleteRecordsPartitionResult")


class DeleteRecordsPartitionResult(Struct):
    partition_index: int = col("int32")
    low_watermark:   int = col("int64")
    error_code:      int = col("int16")
