"""The rules by which a batch of a producer may follow what the partition knows of that producer.

Pure functions: what is against a rule raises KafkaError. The rules and their order are those of Apache Kafka 4.3;
tests/interop/log/test_state_files.py holds them against its own classes.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from pybroker.log.files import TopicPartition
from pybroker.log.producer_entry import AppendOrigin, ProducerEntry, Verification
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records.batch import MAX_SEQUENCE, NO_PRODUCER_EPOCH, RecordBatch
from pybroker.protocol.records.control import ControlType, control_type, marker_coordinator_epoch

MAX_EPOCH: Final = 2**15 - 1
EPOCH_BUMP_VERSION: Final = 2  # from this transaction version on every transaction has an epoch of its own (KIP-890)

logger = logging.getLogger(__name__)


class Marker(NamedTuple):
    kind: ControlType
    coordinator_epoch: int
    timestamp: int


def marker_of(batch: RecordBatch) -> Marker | None:
    """The transaction marker in a control batch; None where compaction has left only the header of it."""
    record = next(batch.records(), None)
    if record is None:
        return None
    kind = control_type(record.key)
    if kind is not ControlType.ABORT and kind is not ControlType.COMMIT:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"Producer {batch.producer_id} wrote a control record of type {kind}; expected COMMIT or ABORT.",
        )
    return Marker(kind, marker_coordinator_epoch(record.value), record.timestamp)


def check_verified(partition: TopicPartition, entry: ProducerEntry, batch: RecordBatch, *, is_verified: bool) -> None:
    """No transactional batch gets into the log unless its coordinator knows of the transaction (KIP-890)."""
    if entry.has_transaction and entry.epoch == batch.producer_epoch:
        return
    if batch.producer_epoch < entry.epoch:
        raise _old_epoch(partition, entry, batch, f"{entry.epoch} or more")
    if not is_verified and not batch.is_control:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"The batch of producer {entry.producer_id} for {partition} is not part of an ongoing transaction.",
        )


def check_data(
    partition: TopicPartition,
    entry: ProducerEntry,
    batch: RecordBatch,
    origin: AppendOrigin,
    verification: Verification | None,
) -> None:
    if batch.producer_epoch < entry.epoch:
        _refuse(origin, _old_epoch(partition, entry, batch, f"{entry.epoch} or more"))
    if origin is AppendOrigin.CLIENT:
        _check_sequence(partition, entry, batch, verification)
    if entry.has_transaction and not batch.is_transactional:
        _refuse(
            origin,
            KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {entry.producer_id} sent {partition} a batch outside of the transaction that it began at offset "
                f"{entry.current_txn_first_offset}; expected that to be ended first.",
            ),
        )


def check_marker(
    partition: TopicPartition, entry: ProducerEntry, batch: RecordBatch, origin: AppendOrigin, transaction_version: int
) -> None:
    assert transaction_version >= 0 or origin is AppendOrigin.REPLICATION, f"{partition}: a marker of no transaction version"
    marker = marker_of(batch)
    if marker is None:
        return
    epoch = batch.producer_epoch
    if transaction_version < EPOCH_BUMP_VERSION:
        if epoch < entry.epoch:
            _refuse(origin, _old_epoch(partition, entry, batch, f"{entry.epoch} or more"))
    elif epoch <= entry.epoch:
        # The same marker again, sent since its answer was lost, changes nothing. The last epoch has no next one to rise to.
        is_retry = epoch == entry.epoch and (not entry.has_transaction or epoch == MAX_EPOCH)
        if not is_retry:
            _refuse(origin, _old_epoch(partition, entry, batch, f"more than {entry.epoch}"))
    if marker.coordinator_epoch < entry.coordinator_epoch:
        _refuse(
            origin,
            KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"A marker of producer {entry.producer_id} for {partition} has coordinator epoch {marker.coordinator_epoch}; "
                f"expected {entry.coordinator_epoch} or more.",
            ),
        )


def _check_sequence(
    partition: TopicPartition, entry: ProducerEntry, batch: RecordBatch, verification: Verification | None
) -> None:
    sequence = batch.base_sequence
    if verification is not None:
        if verification.supports_epoch_bump and sequence != 0 and not entry.batches:
            raise _out_of_order(partition, batch, "0, as the first one of an epoch")
        if sequence > verification.lowest_sequence:
            raise _out_of_order(partition, batch, f"{verification.lowest_sequence}, which waits for the same verification")
    if entry.epoch == NO_PRODUCER_EPOCH:
        # Nothing is known of it: new, or expired, or its records were deleted.
        return
    if batch.producer_epoch != entry.epoch:
        if sequence != 0:
            raise _out_of_order(partition, batch, f"0, as the first one behind epoch {entry.epoch}")
    elif sequence != (entry.last_sequence + 1) & MAX_SEQUENCE:
        raise _out_of_order(partition, batch, f"{(entry.last_sequence + 1) & MAX_SEQUENCE}")


def _out_of_order(partition: TopicPartition, batch: RecordBatch, expected: str) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Producer {batch.producer_id} sent {partition} sequence {batch.base_sequence} of epoch {batch.producer_epoch}; "
        f"expected {expected}.",
    )


def _old_epoch(partition: TopicPartition, entry: ProducerEntry, batch: RecordBatch, expected: str) -> KafkaError:
    what = "A marker" if batch.is_control else "A batch"
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"{what} of producer {entry.producer_id} for {partition} has epoch {batch.producer_epoch}; expected {expected}.",
    )


def _refuse(origin: AppendOrigin, error: KafkaError) -> None:
    """What a leader has written stands, however odd."""
    if origin is not AppendOrigin.REPLICATION:
        raise error
    logger.warning("replicated all the same: %s", error.message)
