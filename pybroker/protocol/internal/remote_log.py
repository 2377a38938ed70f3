"""Records of `__remote_log_metadata`: segments in tiered storage, by their type id (`key`)."""

from __future__ import annotations

from pybroker.base.ids import Uuid
from pybroker.protocol.message import Message, Struct, col


class RemoteLogSegmentMetadataRecord(Message, key=0, versions="0", flexible="0+"):
    remote_log_segment_id:    RemoteLogSegmentIdEntry       = col("RemoteLogSegmentIdEntry")
    start_offset:             int                           = col("int64")
    end_offset:               int                           = col("int64")
    broker_id:                int                           = col("int32")
    max_timestamp_ms:         int                           = col("int64")
    event_timestamp_ms:       int                           = col("int64")
    segment_leader_epochs:    list[SegmentLeaderEpochEntry] = col("[]SegmentLeaderEpochEntry")
    segment_size_in_bytes:    int                           = col("int32")
    custom_metadata:          bytes | None                  = col("bytes", nullable="0+", default=None)
    remote_log_segment_state: int                           = col("int8")
    txn_index_empty:          bool                          = col("bool", default=False, tag=0)


class RemoteLogSegmentIdEntry(Struct):
    topic_id_partition: TopicIdPartitionEntry = col("TopicIdPartitionEntry")
    id:                 Uuid                  = col("uuid")


class TopicIdPartitionEntry(Struct):
    name:      str  = col("string")
    id:        Uuid = col("uuid")
    partition: int  = col("int32")


class SegmentLeaderEpochEntry(Struct):
    leader_epoch: int = col("int32")
    offset:       int = col("int64")


class RemoteLogSegmentMetadataUpdateRecord(Message, key=1, versions="0", flexible="0+"):
    remote_log_segment_id:    RemoteLogSegmentIdEntry = col("RemoteLogSegmentIdEntry")
    broker_id:                int                     = col("int32")
    event_timestamp_ms:       int                     = col("int64")
    custom_metadata:          bytes | None            = col("bytes", nullable="0+", default=None)
    remote_log_segment_state: int                     = col("int8")


class RemotePartitionDeleteMetadataRecord(Message, key=2, versions="0", flexible="0+"):
    topic_id_partition:            TopicIdPartitionEntry = col("TopicIdPartitionEntry")
    broker_id:                     int                   = col("int32")
    event_timestamp_ms:            int                   = col("int64")
    remote_partition_delete_state: int                   = col("int8")


class RemoteLogSegmentMetadataSnapshotRecord(Message, key=3, versions="0", flexible="0+"):
    segment_id:               Uuid                          = col("uuid")
    start_offset:             int                           = col("int64")
    end_offset:               int                           = col("int64")
    broker_id:                int                           = col("int32")
    max_timestamp_ms:         int                           = col("int64")
    event_timestamp_ms:       int                           = col("int64")
    segment_leader_epochs:    list[SegmentLeaderEpochEntry] = col("[]SegmentLeaderEpochEntry")
    segment_size_in_bytes:    int                           = col("int32")
    custom_metadata:          bytes | None                  = col("bytes", nullable="0+", default=None)
    remote_log_segment_state: int                           = col("int8")
    txn_index_empty:          bool                          = col("bool", default=False, tag=0)
