"""Records of `__transaction_state`: one per transactional id, the latest counts."""

from __future__ import annotations

from pybroker.protocol.message import Message, Struct, col


class TransactionLogKey(Message, key=0, versions="0"):
    transactional_id: str = col("string", "0")


class TransactionLogValue(Message, key=0, versions="0-1", flexible="1+"):
    producer_id:                          int                           = col("int64")
    previous_producer_id:                 int                           = col("int64", "1+", default=-1, tag=0)
    next_producer_id:                     int                           = col("int64", "1+", default=-1, tag=1)
    producer_epoch:                       int                           = col("int16")
    next_producer_epoch:                  int                           = col("int16", "1+", default=-1, tag=3)
    transaction_timeout_ms:               int                           = col("int32")
    transaction_status:                   int                           = col("int8")
    transaction_partitions:               list[PartitionsSchema] | None = col("[]PartitionsSchema", nullable="0+")
    transaction_last_update_timestamp_ms: int                           = col("int64")
    transaction_start_timestamp_ms:       int                           = col("int64")
    client_transaction_version:           int                           = col("int16", "1+", default=0, tag=2)


class PartitionsSchema(Struct):
    topic:         str       = col("string")
    partition_ids: list[int] = col("[]int32")
