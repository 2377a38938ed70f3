"""Taking records out of a batch without decoding those that stay: their bytes hold only distances from the batch's base
offset and base timestamp, and both stay as they are.

Pure functions. The batch's CRC has been checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records import crc
from pybroker.protocol.records.batch import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    RecordBatch,
    as_int64,
)
from pybroker.protocol.records.compression import Codec, compress
from pybroker.protocol.records.varint import decode_raw_varint, decode_raw_varlong


class Span(NamedTuple):
    """A record by where its bytes lie in the payload."""

    offset: int
    key: bytes | None
    is_tombstone: bool
    timestamp_delta: int
    start: int
    end: int


def walk_spans(data: bytes, count: int, base_offset: int) -> Iterator[Span]:
    size = len(data)
    pos = index = 0
    new = tuple.__new__
    try:
        for index in range(count):
            start = pos
            raw = data[pos]
            if raw < 0x80:
                pos += 1
            elif data[pos + 1] < 0x80:
                raw += (data[pos + 1] << 7) - 0x80
                pos += 2
            else:
                raw, pos = decode_raw_varint(data, pos)
            end = pos + (raw >> 1)
            if raw & 1 or end > size:
                raise ValueError(f"record {index} ends at byte {end} of {size}")
            pos += 1
            raw = data[pos]
            if raw < 0x80:
                pos += 1
            else:
                raw, pos = decode_raw_varlong(data, pos)
            timestamp_delta = raw >> 1 if not raw & 1 else ~(raw >> 1)
            raw = data[pos]
            if raw < 0x80:
                pos += 1
            else:
                raw, pos = decode_raw_varint(data, pos)
            offset = base_offset + (raw >> 1 if not raw & 1 else ~(raw >> 1))
            raw = data[pos]
            if raw < 0x80:
                pos += 1
            else:
                raw, pos = decode_raw_varint(data, pos)
            if raw & 1:
                key = None
            else:
                raw = pos + (raw >> 1)
                key = data[pos:raw]
                pos = raw
            if pos >= end:
                raise ValueError(f"the fields of record {index} run beyond its end at byte {end}")
            # The sign of a varint is in the lowest bit of its first byte: a negative length is no value.
            yield new(Span, (offset, key, data[pos] & 1 == 1, timestamp_delta, start, end))
            pos = end
        if pos != size:
            raise ValueError(f"{size - pos} bytes follow the last")
    except (IndexError, ValueError) as error:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"Record {index} of the {count} from offset {base_offset} on is damaged: {error}."
        ) from None


def splice(batch: RecordBatch, payload: bytes, spans: list[Span]) -> RecordBatch:
    """`batch` with only `spans`, at least one, of its decompressed `payload` left."""
    parts = []
    run_start, run_end = spans[0].start, spans[0].start
    highest = spans[0].timestamp_delta
    for _, _, _, timestamp_delta, start, end in spans:
        if start != run_end:
            parts.append(payload[run_start:run_end])
            run_start = start
        run_end = end
        if timestamp_delta > highest:
            highest = timestamp_delta
    parts.append(payload[run_start:run_end])
    if batch.attributes & 0x07:
        parts = [_compressed(batch.codec, b"".join(parts))]
    out = bytearray(HEADER_BYTES)
    out += b"".join(parts)
    is_append_time = batch.attributes & LOG_APPEND_TIME_BIT
    HEADER.pack_into(
        out,
        0,
        batch.base_offset,
        len(out) - LOG_OVERHEAD,
        batch.partition_leader_epoch,
        MAGIC,
        0,
        batch.attributes,
        batch.last_offset_delta,
        batch.base_timestamp,
        batch.max_timestamp if is_append_time else as_int64(batch.base_timestamp + highest),
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        len(spans),
    )
    with memoryview(out) as view:
        out[17:21] = crc.crc32c(view[CRC_START:]).to_bytes(4, "big")
    return RecordBatch(out)


def _compressed(codec: Codec, data: bytes) -> bytes:
    return bytes(compress(codec, data, None))
