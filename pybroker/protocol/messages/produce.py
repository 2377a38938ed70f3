"""Produce: record batches to partition leaders.

Versions 3-8 classic, 9 flexible, 10 tells of a new leader in the refusal, 12 lets a transactional write add its partition
by itself (KIP-890), 13 names topics by id.
"""

from __future__ import annotations

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.protocol.message import Message, Records, Struct, col


class ProduceRequest(Message, key=0, versions="3-13", flexible="9+"):
    transactional_id: str | None             = col("string", "3+", nullable="3+", default=None)
    acks:             int                    = col("int16")
    timeout_ms:       int                    = col("int32")
    topic_data:       list[TopicProduceData] = col("[]TopicProduceData")


class TopicProduceData(Struct):
    name:           str                        = col("string", "0-12", default="", ignorable=True)
    topic_id:       Uuid                       = col("uuid", "13+", default=ZERO_UUID, ignorable=True)
    partition_data: list[PartitionProduceData] = col("[]PartitionProduceData")


class PartitionProduceData(Struct):
    index:   int     = col("int32")
    records: Records = col("records", nullable="0+")


class ProduceResponse(Message, key=0, versions="3-13", flexible="9+"):
    responses:        list[TopicProduceResponse] = col("[]TopicProduceResponse")
    throttle_time_ms: int                        = col("int32", "1+", default=0, ignorable=True)
    node_endpoints:   list[NodeEndpoint]         = col("[]NodeEndpoint", "10+", default=[], tag=0)


class TopicProduceResponse(Struct):
    name:                str                            = col("string", "0-12", default="", ignorable=True)
    topic_id:            Uuid                           = col("uuid", "13+", default=ZERO_UUID, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = col("[]PartitionProduceResponse")


class PartitionProduceResponse(Struct):
    index:              int                             = col("int32")
    error_code:         int                             = col("int16")
    base_offset:        int                             = col("int64")
    log_append_time_ms: int                             = col("int64", "2+", default=-1, ignorable=True)
    log_start_offset:   int                             = col("int64", "5+", default=-1, ignorable=True)
    record_errors:      list[BatchIndexAndErrorMessage] = col("[]BatchIndexAndErrorMessage", "8+", default=[], ignorable=True)
    error_message:      str | None                      = col("string", "8+", nullable="8+", default=None, ignorable=True)
    current_leader:     LeaderIdAndEpoch | None         = col("LeaderIdAndEpoch", "10+", default=None, tag=0)


class BatchIndexAndErrorMessage(Struct):
    batch_index:               int        = col("int32", "8+")
    batch_index_error_message: str | None = col("string", "8+", nullable="8+", default=None)


class LeaderIdAndEpoch(Struct):
    leader_id:    int = col("int32", "10+", default=-1)
    leader_epoch: int = col("int32", "10+", default=-1)


class NodeEndpoint(Struct):
    node_id: int        = col("int32", "10+")
    host:    str        = col("string", "10+")
    port:    int        = col("int32", "10+")
    rack:    str | None = col("string", "10+", nullable="10+", default=None)
