"""Brokers to share coordinators: the delivery state of share partitions, kept in `__share_group_state`."""

from __future__ import annotations

from pybroker.base.ids import Uuid
from pybroker.protocol.message import Message, Struct, col


class InitializeShareGroupStateRequest(Message, key=83, versions="0", flexible="0+"):
    group_id: str                       = col("string")
    topics:   list[InitializeStateData] = col("[]InitializeStateData")


class InitializeStateData(Struct):
    topic_id:   Uuid                                                = col("uuid")
    partitions: list[InitializeShareGroupStateRequestPartitionData] = col("[]InitializeShareGroupStateRequestPartitionData")


class InitializeShareGroupStateRequestPartitionData(Struct):
    partition:    int = col("int32")
    state_epoch:  int = col("int32")
    start_offset: int = col("int64")


class InitializeShareGroupStateResponse(Message, key=83, versions="0", flexible="0+"):
    results: list[InitializeStateResult] = col("[]InitializeStateResult")


class InitializeStateResult(Struct):
    topic_id:   Uuid                                                   = col("uuid")
    partitions: list[InitializeShareGroupStateResponsePartitionResult] = col("[]InitializeShareGroupStateResponsePartitionResult")


class InitializeShareGroupStateResponsePartitionResult(Struct):
    partition:     int        = col("int32")
    error_code:    int        = col("int16")
    error_message: str | None = col("string", nullable="0+", default=None)


class ReadShareGroupStateRequest(Message, key=84, versions="0", flexible="0+"):
    group_id: str                 = col("string")
    topics:   list[ReadStateData] = col("[]ReadStateData")


class ReadStateData(Struct):
    topic_id:   Uuid                                          = col("uuid")
    partitions: list[ReadShareGroupStateRequestPartitionData] = col("[]ReadShareGroupStateRequestPartitionData")


class ReadShareGroupStateRequestPartitionData(Struct):
    partition:    int = col("int32")
    leader_epoch: int = col("int32")


class ReadShareGroupStateResponse(Message, key=84, versions="0", flexible="0+"):
    results: list[ReadStateResult] = col("[]ReadStateResult")


class ReadStateResult(Struct):
    topic_id:   Uuid                                             = col("uuid")
    partitions: list[ReadShareGroupStateResponsePartitionResult] = col("[]ReadShareGroupStateResponsePartitionResult")


class ReadShareGroupStateResponsePartitionResult(Struct):
    partition:     int              = col("int32")
    error_code:    int              = col("int16")
    error_message: str | None       = col("string", nullable="0+", default=None)
    state_epoch:   int              = col("int32")
    start_offset:  int              = col("int64")
    state_batches: list[StateBatch] = col("[]StateBatch")


class StateBatch(Struct):
    first_offset:   int = col("int64")
    last_offset:    int = col("int64")
    delivery_state: int = col("int8")
    delivery_count: int = col("int16")


class WriteShareGroupStateRequest(Message, key=85, versions="0-1", flexible="0+"):
    group_id: str                  = col("string")
    topics:   list[WriteStateData] = col("[]WriteStateData")


class WriteStateData(Struct):
    topic_id:   Uuid                                           = col("uuid")
    partitions: list[WriteShareGroupStateRequestPartitionData] = col("[]WriteShareGroupStateRequestPartitionData")


class WriteShareGroupStateRequestPartitionData(Struct):
    partition:               int              = col("int32")
    state_epoch:             int              = col("int32")
    leader_epoch:            int              = col("int32")
    start_offset:            int              = col("int64")
    delivery_complete_count: int              = col("int32", "1+", default=-1, ignorable=True)
    state_batches:           list[StateBatch] = col("[]StateBatch")


class WriteShareGroupStateResponse(Message, key=85, versions="0-1", flexible="0+"):
    results: list[WriteStateResult] = col("[]WriteStateResult")


class WriteStateResult(Struct):
    topic_id:   Uuid                                              = col("uuid")
    partitions: list[WriteShareGroupStateResponsePartitionResult] = col("[]WriteShareGroupStateResponsePartitionResult")


class WriteShareGroupStateResponsePartitionResult(Struct):
    partition:     int        = col("int32")
    error_code:    int        = col("int16")
    error_message: str | None = col("string", nullable="0+", default=None)


class DeleteShareGroupStateRequest(Message, key=86, versions="0", flexible="0+"):
    group_id: str                   = col("string")
    topics:   list[DeleteStateData] = col("[]DeleteStateData")


class DeleteStateData(Struct):
    topic_id:   Uuid                                            = col("uuid")
    partitions: list[DeleteShareGroupStateRequestPartitionData] = col("[]DeleteShareGroupStateRequestPartitionData")


class DeleteShareGroupStateRequestPartitionData(Struct):
    partition: int = col("int32")


class DeleteShareGroupStateResponse(Message, key=86, versions="0", flexible="0+"):
    results: list[DeleteStateResult] = col("[]DeleteStateResult")


class DeleteStateResult(Struct):
    topic_id:   Uuid                                               = col("uuid")
    partitions: list[DeleteShareGroupStateResponsePartitionResult] = col("[]DeleteShareGroupStateResponsePartitionResult")


class DeleteShareGroupStateResponsePartitionResult(Struct):
    partition:     int        = col("int32")
    error_code:    int        = col("int16")
    error_message: str | None = col("string", nullable="0+", default=None)


class ReadShareGroupStateSummaryRequest(Message, key=87, versions="0-1", flexible="0+"):
    group_id: str                        = col("string")
    topics:   list[ReadStateSummaryData] = col("[]ReadStateSummaryData")


class ReadStateSummaryData(Struct):
    topic_id:   Uuid                                                 = col("uuid")
    partitions: list[ReadShareGroupStateSummaryRequestPartitionData] = col("[]ReadShareGroupStateSummaryRequestPartitionData")


class ReadShareGroupStateSummaryRequestPartitionData(Struct):
    partition:    int = col("int32")
    leader_epoch: int = col("int32")


class ReadShareGroupStateSummaryResponse(Message, key=87, versions="0-1", flexible="0+"):
    results: list[ReadStateSummaryResult] = col("[]ReadStateSummaryResult")


class ReadStateSummaryResult(Struct):
    topic_id:   Uuid                                                    = col("uuid")
    partitions: list[ReadShareGroupStateSummaryResponsePartitionResult] = col("[]ReadShareGroupStateSummaryResponsePartitionResult")


class ReadShareGroupStateSummaryResponsePartitionResult(Struct):
    partition:               int        = col("int32")
    error_code:              int        = col("int16")
    error_message:           str | None = col("string", nullable="0+", default=None)
    state_epoch:             int        = col("int32")
    leader_epoch:            int        = col("int32")
    start_offset:            int        = col("int64")
    delivery_complete_count: int        = col("int32", "1+", default=-1, ignorable=True)
