"""What a broker demands of batches, in two depths.

`produced_batch` and `check_batch` look at header and CRC: a leader's normal path. `check_records` walks the records, for
where a rule needs it. The codes are those with which Apache Kafka 4.3 answers a produce: tests/interop/records holds them
against its own log, and names the cases where we are stricter.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from pybroker.protocol.errors import ErrorCode, KafkaError, MalformedRecordsError
from pybroker.protocol.records import crc
from pybroker.protocol.records.batch import CONTROL_BIT, CRC_START, NO_TIMESTAMP, RecordBatch, as_int64, iter_batches
from pybroker.protocol.records.compression import DEFAULT_MAX_BYTES, Buffer, codec_of
from pybroker.protocol.records.record import walk_records


class RecordsSummary(NamedTuple):
    """What a walk found. The timestamps are the records' own, whatever type the batch states; the highest is -1 or more."""

    min_timestamp: int
    max_timestamp: int
    first_without_key: int  # index of the record, -1 if all have keys
    payload_bytes: int


def produced_batch(records: Buffer | None, max_batch_bytes: int | None = None) -> RecordBatch:
    """The one batch of a partition in a produce request, checked by header and CRC.

    Bytes behind it that begin no batch or only a part of one do not count: append the batch's `view()`.
    """
    view = memoryview(b"" if records is None else records)
    try:
        batch = RecordBatch(view)
    except KafkaError:
        batch = _only_batch(view)
    else:
        if batch.size_bytes != len(view):
            batch = _only_batch(view)
    if batch.base_offset != 0:
        raise _invalid(f"The batch has base offset {batch.base_offset}; a producer's begins at 0.")
    if max_batch_bytes is not None:
        check_size(batch, max_batch_bytes)
    check_batch(batch)
    if batch.attributes & 0x07:
        codec_of(batch.attributes)
    count = batch.count
    if count <= 0 or count != batch.last_offset_delta + 1:
        raise _invalid(
            f"The batch states {count} records and last offset {batch.last_offset_delta}; "
            f"expected at least one record and the last offset one below their number."
        )
    if batch.attributes & CONTROL_BIT:
        raise _invalid("The batch is a control batch; only brokers write those.")
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        raise _invalid(
            f"The batch of producer id {batch.producer_id} has base sequence {batch.base_sequence}; expected 0 or more."
        )
    return batch


def check_size(batch: RecordBatch, max_batch_bytes: int) -> None:
    if batch.size_bytes > max_batch_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The batch has {batch.size_bytes} bytes; the topic takes at most {max_batch_bytes} (max.message.bytes).",
        )


def check_batch(batch: RecordBatch) -> None:
    """The CRC, of a batch from anywhere; size and magic were checked when the view was made."""
    start = batch.start
    found = crc.crc32c(batch.buffer[start + CRC_START : start + batch.size_bytes])
    if found != batch.crc:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"The batch of {batch.size_bytes} bytes at offset {batch.base_offset} states CRC {batch.crc:#010x} "
            f"but its bytes give {found:#010x}.",
        )


def check_records(batch: RecordBatch, max_bytes: int = DEFAULT_MAX_BYTES, *, sequential: bool = True) -> RecordsSummary:
    """Walk every record; `sequential` demands offsets without gaps, which only a batch straight from a producer has."""
    payload = batch.payload(max_bytes)
    lowest = None
    highest = NO_TIMESTAMP
    first_without_key = -1
    expected = batch.base_offset
    last_offset = batch.last_offset
    records = walk_records(payload, batch.count, batch.base_offset, batch.base_timestamp, None)
    for index, (offset, timestamp, key, _, _) in enumerate(records):
        if offset != expected and sequential:
            raise _invalid(f"Record {index} of the batch has offset {offset}; expected {expected}.")
        if not expected <= offset <= last_offset:
            raise _invalid(f"Record {index} of the batch has offset {offset}; expected {expected} to {last_offset}.")
        expected = offset + 1
        if timestamp > highest:
            highest = timestamp
        if lowest is None or timestamp < lowest:
            lowest = timestamp
        if key is None and first_without_key < 0:
            first_without_key = index
    return RecordsSummary(
        NO_TIMESTAMP if lowest is None else as_int64(lowest),
        as_int64(highest),
        first_without_key,
        len(payload),
    )


def _only_batch(view: memoryview) -> RecordBatch:
    try:
        batches = list(islice(iter_batches(view), 2))
    except KafkaError as error:
        raise MalformedRecordsError(error.code, error.message) from error
    if len(batches) != 1:
        found = "several record batches" if batches else "no whole record batch"
        raise MalformedRecordsError(
            ErrorCode.INVALID_RECORD, f"A partition's {len(view)} bytes hold {found}; expected exactly one."
        )
    return batches[0]


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
