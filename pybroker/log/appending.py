"""What a leader does to a batch before it is appended: judge it by the topic's rules, and stamp or rewrite what they ask for.

Header and CRC are enough on the normal path; records are walked only where a rule is about them. Pure, and done before the
log's lock is taken. The bytes that came in are the bytes that are written, unless the topic wants another codec.
"""

from __future__ import annotations

from pybroker.base.filesystem import Buffer
from pybroker.config.types import LONG_MAX
from pybroker.log.log_config import LogConfig
from pybroker.log.producer_entry import AppendOrigin
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records.batch import LOG_APPEND_TIME_BIT, RecordBatch
from pybroker.protocol.records.builder import rebuild
from pybroker.protocol.records.validation import check_records, produced_batch

_CLIENT = AppendOrigin.CLIENT
_CODEC_BITS = 0x07


def prepare_batch(records: Buffer, config: LogConfig, now_ms: int, origin: AppendOrigin) -> RecordBatch:
    """The batch in `records`, ready to be given its offset; KafkaError if the topic does not take it."""
    view = memoryview(records)
    if view.readonly:
        view = memoryview(bytearray(view))
    batch = produced_batch(view, config.max_message_bytes) if origin is _CLIENT else RecordBatch(view)
    if batch.size_bytes > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"The batch has {batch.size_bytes} bytes; a segment takes at most {config.segment_bytes} (segment.bytes).",
        )
    if origin is _CLIENT:
        if config.is_compacted:
            _check_keys(batch)
        if not config.is_append_time:
            _check_timestamps(batch, config, now_ms)
    if config.codec is not None and batch.attributes & _CODEC_BITS != config.codec and not batch.is_control:
        batch = RecordBatch(rebuild(batch, batch.records(), codec=config.codec, level=config.codec_level))
    if config.is_append_time:
        batch.stamp_append_time(now_ms)
    elif batch.attributes & LOG_APPEND_TIME_BIT:
        batch.stamp_max_timestamp(batch.max_timestamp)
    return batch


def _check_keys(batch: RecordBatch) -> None:
    keyless = check_records(batch).first_without_key
    if keyless >= 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"Record {keyless} of the batch has no key; a compacted topic needs one.")


def _check_timestamps(batch: RecordBatch, config: LogConfig, now_ms: int) -> None:
    """The highest timestamp stands in the header; the lowest only the records tell."""
    if batch.max_timestamp - now_ms > config.timestamp_after_max_ms:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"Timestamp {batch.max_timestamp} is {batch.max_timestamp - now_ms} ms ahead of the broker's clock; at most "
            f"{config.timestamp_after_max_ms} are allowed (message.timestamp.after.max.ms).",
        )
    if config.timestamp_before_max_ms < LONG_MAX:
        lowest = check_records(batch).min_timestamp
        if 0 <= lowest < now_ms - config.timestamp_before_max_ms:
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                f"Timestamp {lowest} is {now_ms - lowest} ms behind the broker's clock; at most "
                f"{config.timestamp_before_max_ms} are allowed (message.timestamp.before.max.ms).",
            )
