"""Producer ids and transactions.

InitProducerId to EndTxn are the producer's side, WriteTxnMarkers the coordinator's word to partition leaders; from
AddPartitionsToTxn v4 on brokers verify in batches. AllocateProducerIds takes a block of ids from the controller.
"""

from __future__ import annotations

from pybroker.protocol.message import Message, Struct, col


class InitProducerIdRequest(Message, key=22, versions="0-6", flexible="2+", unstable=True):
    transactional_id:       str | None = col("string", nullable="0+")
    transaction_timeout_ms: int        = col("int32")
    producer_id:            int        = col("int64", "3+", default=-1)
    producer_epoch:         int        = col("int16", "3+", default=-1)
    enable2_pc:             bool       = col("bool", "6+", default=False)
    keep_prepared_txn:      bool       = col("bool", "6+", default=False)


class InitProducerIdResponse(Message, key=22, versions="0-6", flexible="2+"):
    throttle_time_ms:           int = col("int32", default=0, ignorable=True)
    error_code:                 int = col("int16")
    producer_id:                int = col("int64", default=-1)
    producer_epoch:             int = col("int16")
    ongoing_txn_producer_id:    int = col("int64", "6+", default=-1)
    ongoing_txn_producer_epoch: int = col("int16", "6+", default=-1)


class AddPartitionsToTxnRequest(Message, key=24, versions="0-5", flexible="3+"):
    transactions:                  list[AddPartitionsToTxnTransaction] = col("[]AddPartitionsToTxnTransaction", "4+", default=[])
    v3_and_below_transactional_id: str                                 = col("string", "0-3", default="")
    v3_and_below_producer_id:      int                                 = col("int64", "0-3", default=0)
    v3_and_below_producer_epoch:   int                                 = col("int16", "0-3", default=0)
    v3_and_below_topics:           list[AddPartitionsToTxnTopic]       = col("[]AddPartitionsToTxnTopic", "0-3", default=[])


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str                           = col("string", "4+")
    producer_id:      int                           = col("int64", "4+")
    producer_epoch:   int                           = col("int16", "4+")
    verify_only:      bool                          = col("bool", "4+", default=False)
    topics:           list[AddPartitionsToTxnTopic] = col("[]AddPartitionsToTxnTopic", "4+")


class AddPartitionsToTxnTopic(Struct):
    name:       str       = col("string")
    partitions: list[int] = col("[]int32")


class AddPartitionsToTxnResponse(Message, key=24, versions="0-5", flexible="3+"):
    throttle_time_ms:              int                                 = col("int32", default=0)
    error_code:                    int                                 = col("int16", "4+", default=0, ignorable=True)
    results_by_transaction:        list[AddPartitionsToTxnResult]      = col("[]AddPartitionsToTxnResult", "4+", default=[])
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = col("[]AddPartitionsToTxnTopicResult", "0-3", default=[])


class AddPartitionsToTxnResult(Struct):
    transactional_id: str                                 = col("string", "4+")
    topic_results:    list[AddPartitionsToTxnTopicResult] = col("[]AddPartitionsToTxnTopicResult", "4+")


class AddPartitionsToTxnTopicResult(Struct):
    name:                 str                                     = col("string")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = col("[]AddPartitionsToTxnPartitionResult")


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index:      int = col("int32")
    partition_error_code: int = col("int16")


class AddOffsetsToTxnRequest(Message, key=25, versions="0-4", flexible="3+"):
    transactional_id: str = col("string")
    producer_id:      int = col("int64")
    producer_epoch:   int = col("int16")
    group_id:         str = col("string")


class AddOffsetsToTxnResponse(Message, key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int = col("int32", default=0)
    error_code:       int = col("int16")


class EndTxnRequest(Message, key=26, versions="0-5", flexible="3+"):
    transactional_id: str  = col("string")
    producer_id:      int  = col("int64")
    producer_epoch:   int  = col("int16")
    committed:        bool = col("bool")


class EndTxnResponse(Message, key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int = col("int32", default=0)
    error_code:       int = col("int16")
    producer_id:      int = col("int64", "5+", default=-1, ignorable=True)
    producer_epoch:   int = col("int16", "5+", default=-1, ignorable=True)


class WriteTxnMarkersRequest(Message, key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarker] = col("[]WritableTxnMarker")


class WritableTxnMarker(Struct):
    producer_id:         int                          = col("int64")
    producer_epoch:      int                          = col("int16")
    transaction_result:  bool                         = col("bool")
    topics:              list[WritableTxnMarkerTopic] = col("[]WritableTxnMarkerTopic")
    coordinator_epoch:   int                          = col("int32")
    transaction_version: int                          = col("int8", "2+", default=0, ignorable=True)


class WritableTxnMarkerTopic(Struct):
    name:              str       = col("string")
    partition_indexes: list[int] = col("[]int32")


class WriteTxnMarkersResponse(Message, key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarkerResult] = col("[]WritableTxnMarkerResult")


class WritableTxnMarkerResult(Struct):
    producer_id: int                                = col("int64")
    topics:      list[WritableTxnMarkerTopicResult] = col("[]WritableTxnMarkerTopicResult")


class WritableTxnMarkerTopicResult(Struct):
    name:       str                                    = col("string")
    partitions: list[WritableTxnMarkerPartitionResult] = col("[]WritableTxnMarkerPartitionResult")


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = col("int32")
    error_code:      int = col("int16")


class TxnOffsetCommitRequest(Message, key=28, versions="0-5", flexible="3+"):
    transactional_id:  str                               = col("string")
    group_id:          str                               = col("string")
    producer_id:       int                               = col("int64")
    producer_epoch:    int                               = col("int16")
    generation_id:     int                               = col("int32", "3+", default=-1)
    member_id:         str                               = col("string", "3+", default="")
    group_instance_id: str | None                        = col("string", "3+", nullable="3+", default=None)
    topics:            list[TxnOffsetCommitRequestTopic] = col("[]TxnOffsetCommitRequestTopic")


class TxnOffsetCommitRequestTopic(Struct):
    name:       str                                   = col("string")
    partitions: list[TxnOffsetCommitRequestPartition] = col("[]TxnOffsetCommitRequestPartition")


class TxnOffsetCommitRequestPartition(Struct):
    partition_index:        int        = col("int32")
    committed_offset:       int        = col("int64")
    committed_leader_epoch: int        = col("int32", "2+", default=-1, ignorable=True)
    committed_metadata:     str | None = col("string", nullable="0+")


class TxnOffsetCommitResponse(Message, key=28, versions="0-5", flexible="3+"):
    throttle_time_ms: int                                = col("int32", default=0)
    topics:           list[TxnOffsetCommitResponseTopic] = col("[]TxnOffsetCommitResponseTopic")


class TxnOffsetCommitResponseTopic(Struct):
    name:       str                                    = col("string")
    partitions: list[TxnOffsetCommitResponsePartition] = col("[]TxnOffsetCommitResponsePartition")


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = col("int32")
    error_code:      int = col("int16")


class DescribeProducersRequest(Message, key=61, versions="0", flexible="0+"):
    topics: list[TopicRequest] = col("[]TopicRequest")


class TopicRequest(Struct):
    name:              str       = col("string")
    partition_indexes: list[int] = col("[]int32")


class DescribeProducersResponse(Message, key=61, versions="0", flexible="0+"):
    throttle_time_ms: int                 = col("int32", default=0)
    topics:           list[TopicResponse] = col("[]TopicResponse")


class TopicResponse(Struct):
    name:       str                     = col("string")
    partitions: list[PartitionResponse] = col("[]PartitionResponse")


class PartitionResponse(Struct):
    partition_index:  int                 = col("int32")
    error_code:       int                 = col("int16")
    error_message:    str | None          = col("string", nullable="0+", default=None)
    active_producers: list[ProducerState] = col("[]ProducerState")


class ProducerState(Struct):
    producer_id:              int = col("int64")
    producer_epoch:           int = col("int32")
    last_sequence:            int = col("int32", default=-1)
    last_timestamp:           int = col("int64", default=-1)
    coordinator_epoch:        int = col("int32")
    current_txn_start_offset: int = col("int64", default=-1)


class DescribeTransactionsRequest(Message, key=65, versions="0", flexible="0+"):
    transactional_ids: list[str] = col("[]string")


class DescribeTransactionsResponse(Message, key=65, versions="0", flexible="0+"):
    throttle_time_ms:   int                                                = col("int32", default=0)
    transaction_states: list[DescribeTransactionsResponseTransactionState] = col("[]DescribeTransactionsResponseTransactionState")


class DescribeTransactionsResponseTransactionState(Struct):
    error_code:                int             = col("int16")
    transactional_id:          str             = col("string")
    transaction_state:         str             = col("string")
    transaction_timeout_ms:    int             = col("int32")
    transaction_start_time_ms: int             = col("int64")
    producer_id:               int             = col("int64")
    producer_epoch:            int             = col("int16")
    topics:                    list[TopicData] = col("[]TopicData")


class TopicData(Struct):
    topic:      str       = col("string")
    partitions: list[int] = col("[]int32")


class ListTransactionsRequest(Message, key=66, versions="0-2", flexible="0+"):
    state_filters:            list[str]  = col("[]string")
    producer_id_filters:      list[int]  = col("[]int64")
    duration_filter:          int        = col("int64", "1+", default=-1)
    transactional_id_pattern: str | None = col("string", "2+", nullable="2+", default=None)


class ListTransactionsResponse(Message, key=66, versions="0-2", flexible="0+"):
    throttle_time_ms:      int                                            = col("int32", default=0)
    error_code:            int                                            = col("int16")
    unknown_state_filters: list[str]                                      = col("[]string")
    transaction_states:    list[ListTransactionsResponseTransactionState] = col("[]ListTransactionsResponseTransactionState")


class ListTransactionsResponseTransactionState(Struct):
    transactional_id:  str = col("string")
    producer_id:       int = col("int64")
    transaction_state: str = col("string")


class AllocateProducerIdsRequest(Message, key=67, versions="0", flexible="0+"):
    broker_id:    int = col("int32")
    broker_epoch: int = col("int64", default=-1)


class AllocateProducerIdsResponse(Message, key=67, versions="0", flexible="0+"):
    throttle_time_ms:  int = col("int32", default=0)
    error_code:        int = col("int16")
    producer_id_start: int = col("int64")
    producer_id_len:   int = col("int32")
