"""What a leader does to a batch before it is appended: judge it by the topic's rules, and stamp or rewrite what they ask for.

Header and CRC are enough on the normal path; what is compressed is decompressed once, and records are walked only where a
rule is about them. Pure, and done before the log's lock is taken. The bytes that came in are the bytes that are written,
unless the topic wants another codec.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from pybroker.base.filesystem import Buffer
from pybroker.config.types import LONG_MAX
from pybroker.log.log_config import LogConfig
from pybroker.log.producer_entry import AppendOrigin
from pybroker.log.segment import StampedBatch
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records import crc
from pybroker.protocol.records.batch import (
    CRC_START,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    MAX_SEQUENCE,
    RecordBatch,
)
from pybroker.protocol.records.builder import rebuild
from pybroker.protocol.records.validation import check_records, check_size, produced_batch

_CLIENT = AppendOrigin.CLIENT
_CODEC_BITS = 0x07

# A batch header without leader epoch and base timestamp.
_unpack_plain = Struct(">qi4xbIhi8xqqhii").unpack_from

# One without attributes, base timestamp, and what is behind the id of the producer.
_unpack_fetched = Struct(">qiibI2xi8xqq").unpack_from

# The batch, its length as it says it, how many records it has, their highest timestamp, the id of its producer. A plain tuple:
# every append makes one.
PlainBatch = tuple[memoryview, int, int, int, int]


def plain_batches(
    batches: Sequence[memoryview], config: LogConfig, now_ms: int, wanted_attributes: int = 0
) -> list[PlainBatch]:
    """Those of `batches`, up to the first that needs more care, that a topic takes as they are: without an offset yet, not
    compressed, with timestamps of their own, not too large, whole; of no transaction, unless `wanted_attributes` say that all
    are. For a topic whose config `takes_batches_as_they_are`. All are of no idempotent producer, or of one in its sequence:
    then, if the producer may append the first, it may append them all.
    """
    plain: list[PlainBatch] = []
    latest_ms = now_ms + config.timestamp_after_max_ms
    max_length = config.max_message_bytes - LOG_OVERHEAD
    crc32c = crc.crc32c
    producer = -1
    following = (-1, -1)  # epoch and sequence
    for data in batches:
        size = len(data)
        if size < HEADER_BYTES:
            break
        base_offset, length, magic, crc_stated, attributes, last_delta, max_timestamp, producer_id, epoch, sequence, count = (
            _unpack_plain(data)
        )
        if (
            magic != MAGIC
            or base_offset
            or attributes != wanted_attributes
            or length != size - LOG_OVERHEAD
            or length > max_length
            or last_delta < 0
            or count != last_delta + 1
            or not 0 <= max_timestamp <= latest_ms
            or crc32c(data[CRC_START:]) != crc_stated
        ):
            break
        if plain and (producer_id != producer or (producer >= 0 and (epoch, sequence) != following)):
            break
        if producer_id >= 0:
            producer, following = producer_id, (epoch, (sequence + count) & MAX_SEQUENCE)
        plain.append((data, length, count, max_timestamp, producer_id))
    return plain


def fetched_batches(records: memoryview, end_offset: int, leader_epoch: int) -> tuple[list[StampedBatch], list[RecordBatch]]:
    """The batches that a leader sent to a log which ends at `end_offset` in `leader_epoch`: all of them, and those of producers
    that keep count. None at all if some of them need more care: broken, of a later epoch, with a gap before them, cut off.
    """
    stamped: list[StampedBatch] = []
    of_producers: list[RecordBatch] = []
    start, size = 0, len(records)
    crc32c = crc.crc32c
    while size - start >= HEADER_BYTES:
        base_offset, length, epoch, magic, crc_stated, last_delta, max_timestamp, producer_id = _unpack_fetched(records, start)
        end = start + LOG_OVERHEAD + length
        if (
            magic != MAGIC
            or epoch != leader_epoch
            or base_offset != end_offset
            or last_delta < 0
            or not start + HEADER_BYTES <= end <= size
            or crc32c(records[start + CRC_START : end]) != crc_stated
        ):
            return [], []
        end_offset = base_offset + last_delta + 1
        stamped.append((records[start:end], end_offset - 1, max_timestamp))
        if producer_id >= 0:
            of_producers.append(RecordBatch(records, start))
        start = end
    return (stamped, of_producers) if start == size else ([], [])


def prepare_batch(records: Buffer, config: LogConfig, now_ms: int, origin: AppendOrigin) -> RecordBatch:
    """The batch in `records`, ready to be given its offset; KafkaError if the topic does not take it."""
    view = memoryview(records)
    if view.readonly:
        view = memoryview(bytearray(view))
    batch = produced_batch(view, config.max_message_bytes) if origin is _CLIENT else RecordBatch(view)
    _check_segment(batch, config)
    codec = config.codec
    recompresses = codec is not None and batch.attributes & _CODEC_BITS != codec and not batch.is_control
    if origin is _CLIENT:
        if config.is_compacted:
            _check_keys(batch)
        if not config.is_append_time:
            _check_timestamps(batch, config, now_ms)
        if batch.attributes & _CODEC_BITS and not (recompresses or _is_about_records(config)):
            batch.payload()  # no consumer could get past a batch that cannot be decompressed
    if codec is not None and recompresses:
        batch = RecordBatch(rebuild(batch, batch.records(), codec=codec, level=config.codec_level))
        # In another codec it may have become too large.
        check_size(batch, config.max_message_bytes)
        _check_segment(batch, config)
    if config.is_append_time:
        batch.stamp_append_time(now_ms)
    elif batch.attributes & LOG_APPEND_TIME_BIT:
        batch.stamp_max_timestamp(batch.max_timestamp)
    return batch


def _check_segment(batch: RecordBatch, config: LogConfig) -> None:
    if batch.size_bytes > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"The batch has {batch.size_bytes} bytes; a segment takes at most {config.segment_bytes} (segment.bytes).",
        )


def _is_about_records(config: LogConfig) -> bool:
    """Whether a rule of the topic has had every record of a client's batch walked."""
    return config.is_compacted or not (config.is_append_time or config.timestamp_before_max_ms == LONG_MAX)


def _check_keys(batch: RecordBatch) -> None:
    if check_records(batch).first_without_key >= 0:
        keyless = [number for number, record in enumerate(batch.records()) if record.key is None]
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"Record {keyless[0]} of the batch has no key; a compacted topic needs one.",
            records=keyless,
        )


def _check_timestamps(batch: RecordBatch, config: LogConfig, now_ms: int) -> None:
    """The highest timestamp stands in the header; the lowest only the records tell."""
    highest_allowed = now_ms + config.timestamp_after_max_ms
    if batch.max_timestamp > highest_allowed:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"Timestamp {batch.max_timestamp} is {batch.max_timestamp - now_ms} ms ahead of the broker's clock; at most "
            f"{config.timestamp_after_max_ms} are allowed (message.timestamp.after.max.ms).",
            records=[number for number, record in enumerate(batch.records()) if record.timestamp > highest_allowed],
        )
    if config.timestamp_before_max_ms < LONG_MAX:
        lowest_allowed = now_ms - config.timestamp_before_max_ms
        lowest = check_records(batch).min_timestamp
        if 0 <= lowest < lowest_allowed:
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                f"Timestamp {lowest} is {now_ms - lowest} ms behind the broker's clock; at most "
                f"{config.timestamp_before_max_ms} are allowed (message.timestamp.before.max.ms).",
                records=[number for number, record in enumerate(batch.records()) if 0 <= record.timestamp < lowest_allowed],
            )
