"""Records of `__transaction_state`: the whole of a transaction under its transactional id, the last of which counts."""

from __future__ import annotations

from typing import Final

from pybroker.coordinator.records import CoordinatorRecord, RecordTypes
from pybroker.coordinator.transaction.transaction import TAGGED_FIELDS, State, Transaction
from pybroker.protocol.internal.transaction_state import PartitionsSchema, TransactionLogKey, TransactionLogValue
from pybroker.protocol.records.batch import NO_PRODUCER_EPOCH

TRANSACTION_RECORD_TYPES: Final[RecordTypes] = {0: (TransactionLogKey, TransactionLogValue)}
SUPERSEDING: Final = frozenset((b"\0\0",))


def transaction_record(transaction: Transaction, version: int) -> CoordinatorRecord:
    """As a cluster at `version` of transaction.version writes it; a tombstone of one that is dead."""
    key = TransactionLogKey(transactional_id=transaction.transactional_id)
    if transaction.state is State.DEAD:
        return CoordinatorRecord(key, None)
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(partition)
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None
        if transaction.state is State.EMPTY
        else [PartitionsSchema(topic=topic, partition_ids=partitions) for topic, partitions in topics.items()],
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.client_version,
    )
    if version >= TAGGED_FIELDS:
        return CoordinatorRecord(key, value, 1)
    # There is no place for what only transaction version 2 makes use of.
    value.previous_producer_id = value.next_producer_id = -1
    value.client_transaction_version = 0
    return CoordinatorRecord(key, value, 0)


def transaction_of(transactional_id: str, value: TransactionLogValue, last_epoch: int = NO_PRODUCER_EPOCH) -> Transaction:
    return Transaction(
        transactional_id,
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        value.transaction_last_update_timestamp_ms,
        State(value.transaction_status),
        frozenset((row.topic, partition) for row in value.transaction_partitions or () for partition in row.partition_ids),
        value.transaction_start_timestamp_ms,
        value.previous_producer_id,
        value.next_producer_id,
        last_epoch,
        value.client_transaction_version,
    )
