"""Fetch: record batches to consumers, to followers, and to the replicas of the metadata quorum.

7 brings incremental sessions, 9 the leader epoch, 11 racks, 12 flexible and divergence by epoch, 13 topic ids, 15 the replica
state in a tag, 16 endpoints of new leaders, 17 the replica's directory, 18 the follower's high watermark.
"""

from __future__ import annotations

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.protocol.message import Message, Records, Struct, col


class FetchRequest(Message, key=1, versions="4-18", flexible="12+"):
    cluster_id:            str | None           = col("string", "12+", nullable="12+", default=None, tag=0, ignorable=True)
    replica_id:            int                  = col("int32", "0-14", default=-1)
    replica_state:         ReplicaState | None  = col("ReplicaState", "15+", default=None, tag=1)
    max_wait_ms:           int                  = col("int32")
    min_bytes:             int                  = col("int32")
    max_bytes:             int                  = col("int32", "3+", default=2147483647, ignorable=True)
    isolation_level:       int                  = col("int8", "4+", default=0, ignorable=True)
    session_id:            int                  = col("int32", "7+", default=0, ignorable=True)
    session_epoch:         int                  = col("int32", "7+", default=-1, ignorable=True)
    topics:                list[FetchTopic]     = col("[]FetchTopic")
    forgotten_topics_data: list[ForgottenTopic] = col("[]ForgottenTopic", "7+", default=[])
    rack_id:               str                  = col("string", "11+", default="", ignorable=True)


class ReplicaState(Struct):
    replica_id:    int = col("int32", "15+", default=-1)
    replica_epoch: int = col("int64", "15+", default=-1)


class FetchTopic(Struct):
    topic:      str                  = col("string", "0-12", default="", ignorable=True)
    topic_id:   Uuid                 = col("uuid", "13+", default=ZERO_UUID, ignorable=True)
    partitions: list[FetchPartition] = col("[]FetchPartition")


class FetchPartition(Struct):
    partition:            int  = col("int32")
    current_leader_epoch: int  = col("int32", "9+", default=-1, ignorable=True)
    fetch_offset:         int  = col("int64")
    last_fetched_epoch:   int  = col("int32", "12+", default=-1)
    log_start_offset:     int  = col("int64", "5+", default=-1, ignorable=True)
    partition_max_bytes:  int  = col("int32")
    replica_directory_id: Uuid = col("uuid", "17+", default=ZERO_UUID, tag=0, ignorable=True)
    high_watermark:       int  = col("int64", "18+", default=9223372036854775807, tag=1, ignorable=True)


class ForgottenTopic(Struct):
    topic:      str       = col("string", "7-12", default="", ignorable=True)
    topic_id:   Uuid      = col("uuid", "13+", default=ZERO_UUID, ignorable=True)
    partitions: list[int] = col("[]int32", "7+")


class FetchResponse(Message, key=1, versions="4-18", flexible="12+"):
    throttle_time_ms: int                          = col("int32", "1+", default=0, ignorable=True)
    error_code:       int                          = col("int16", "7+", default=0, ignorable=True)
    session_id:       int                          = col("int32", "7+", default=0)
    responses:        list[FetchableTopicResponse] = col("[]FetchableTopicResponse")
    node_endpoints:   list[NodeEndpoint]           = col("[]NodeEndpoint", "16+", default=[], tag=0)


class FetchableTopicResponse(Struct):
    topic:      str                 = col("string", "0-12", default="", ignorable=True)
    topic_id:   Uuid                = col("uuid", "13+", default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionData] = col("[]PartitionData")


class PartitionData(Struct):
    partition_index:        int                             = col("int32")
    error_code:             int                             = col("int16")
    high_watermark:         int                             = col("int64")
    last_stable_offset:     int                             = col("int64", "4+", default=-1, ignorable=True)
    log_start_offset:       int                             = col("int64", "5+", default=-1, ignorable=True)
    diverging_epoch:        EpochEndOffset | None           = col("EpochEndOffset", "12+", default=None, tag=0)
    current_leader:         LeaderIdAndEpoch | None         = col("LeaderIdAndEpoch", "12+", default=None, tag=1)
    snapshot_id:            SnapshotId | None               = col("SnapshotId", "12+", default=None, tag=2)
    aborted_transactions:   list[AbortedTransaction] | None = col("[]AbortedTransaction", "4+", nullable="4+", ignorable=True)
    preferred_read_replica: int                             = col("int32", "11+", default=-1)
    records:                Records                         = col("records", nullable="0+")


class EpochEndOffset(Struct):
    epoch:      int = col("int32", "12+", default=-1)
    end_offset: int = col("int64", "12+", default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id:    int = col("int32", "12+", default=-1)
    leader_epoch: int = col("int32", "12+", default=-1)


class SnapshotId(Struct):
    end_offset: int = col("int64", default=-1)
    epoch:      int = col("int32", default=-1)


class AbortedTransaction(Struct):
    producer_id:  int = col("int64", "4+")
    first_offset: int = col("int64", "4+")


class NodeEndpoint(Struct):
    node_id: int        = col("int32", "16+")
    host:    str        = col("string", "16+")
    port:    int        = col("int32", "16+")
    rack:    str | None = col("string", "16+", nullable="16+", default=None)
