"""A record batch (format v2) as a view over bytes that stay where they are.

A `RecordBatch` unpacks the 61-byte header once; its fields are plain slots. It always lies wholly inside its buffer and
has magic 2; whether its CRC and its rules hold is for `validation`. Offset and leader epoch are outside the CRC and
stamped in place, timestamps are inside and stamped with a new CRC; nothing is encoded anew. Not for two threads at once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from struct import Struct

from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records import crc
from pybroker.protocol.records.compression import DEFAULT_MAX_BYTES, Buffer, Codec, codec_of, decompress
from pybroker.protocol.records.record import Record, walk_keys, walk_records

MAGIC = 2
LOG_OVERHEAD = 12  # base offset and length: what the length does not count
HEADER_BYTES = 61
CRC_START = 21  # the CRC covers the attributes and all behind them
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
MAX_SEQUENCE = 2**31 - 1

LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

_MAGIC_AT = 16
_MIN_SIZE = LOG_OVERHEAD + 14  # of any magic; the least that Apache Kafka takes for a batch at all
HEADER = Struct(">qiibIhiqqqhii")
unpack_header = HEADER.unpack_from
pack_place = Struct(">qii").pack_into
_pack_crc = Struct(">I").pack_into
_pack_attributes = Struct(">h").pack_into
_pack_max_timestamp = Struct(">q").pack_into
_unpack_length = Struct(">i").unpack_from
_unpack_magic = Struct(">b").unpack_from


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class RecordBatch:
    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "buffer",
        "count",
        "crc",
        "last_offset_delta",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "size_bytes",
        "start",
    )

    buffer: memoryview
    start: int
    base_offset: int
    size_bytes: int
    partition_leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    def __init__(self, buffer: Buffer, start: int = 0) -> None:
        view = buffer if type(buffer) is memoryview else memoryview(buffer)
        self.buffer = view
        self.start = start
        try:
            (
                self.base_offset,
                length,
                self.partition_leader_epoch,
                magic,
                self.crc,
                self.attributes,
                self.last_offset_delta,
                self.base_timestamp,
                self.max_timestamp,
                self.producer_id,
                self.producer_epoch,
                self.base_sequence,
                self.count,
            ) = unpack_header(view, start)
        except struct.error:
            raise _short_header(view, start) from None
        self.size_bytes = size = length + LOG_OVERHEAD
        if magic != MAGIC:
            raise wrong_magic(magic, start)
        if size < HEADER_BYTES or start + size > len(view):
            raise _wrong_size(size, len(view) - start, start)

    @property
    def magic(self) -> int:
        return MAGIC

    @property
    def end(self) -> int:
        return self.start + self.size_bytes

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def codec(self) -> Codec:
        return codec_of(self.attributes)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def delete_horizon_ms(self) -> int | None:
        """From when on compaction may drop tombstones and markers (KIP-534): kept in place of the base timestamp."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    def view(self) -> memoryview:
        """The batch's bytes, not copied."""
        return self.buffer[self.start : self.start + self.size_bytes]

    def compute_crc(self) -> int:
        return crc.crc32c(self.buffer[self.start + CRC_START : self.start + self.size_bytes])

    def payload(self, max_bytes: int = DEFAULT_MAX_BYTES) -> bytes:
        """The records' bytes, decompressed: a copy that outlives the buffer."""
        raw = self.buffer[self.start + HEADER_BYTES : self.start + self.size_bytes]
        if not self.attributes & 0x07:
            return raw.tobytes()
        if not self.count and not raw:
            return b""
        return decompress(codec_of(self.attributes), raw, max_bytes)

    def records(self, max_bytes: int = DEFAULT_MAX_BYTES) -> Iterator[Record]:
        """The records, one by one; a broken one raises INVALID_RECORD when its turn comes."""
        append_time = self.max_timestamp if self.attributes & LOG_APPEND_TIME_BIT else None
        return walk_records(self.payload(max_bytes), self.count, self.base_offset, self.base_timestamp, append_time)

    def keys(self, max_bytes: int = DEFAULT_MAX_BYTES) -> Iterator[tuple[int, bytes | None]]:
        """(offset, key) of every record, without reading values, headers and timestamps."""
        return walk_keys(self.payload(max_bytes), self.count, self.base_offset)

    def stamp(self, base_offset: int, partition_leader_epoch: int) -> None:
        """Give the batch its place in the log; the CRC does not cover it."""
        pack_place(self.buffer, self.start, base_offset, self.size_bytes - LOG_OVERHEAD, partition_leader_epoch)
        self.base_offset = base_offset
        self.partition_leader_epoch = partition_leader_epoch

    def stamp_append_time(self, now_ms: int) -> None:
        """Turn the batch to LogAppendTime: every record then has the timestamp `now_ms`."""
        self._stamp_timestamp(self.attributes | LOG_APPEND_TIME_BIT, now_ms)

    def stamp_max_timestamp(self, max_timestamp: int) -> None:
        """Correct the highest timestamp of a CreateTime batch; no new CRC where it was right already."""
        self._stamp_timestamp(self.attributes & ~LOG_APPEND_TIME_BIT, max_timestamp)

    def _stamp_timestamp(self, attributes: int, max_timestamp: int) -> None:
        if self.attributes == attributes and self.max_timestamp == max_timestamp:
            return
        buffer, start = self.buffer, self.start
        _pack_attributes(buffer, start + 21, attributes)
        _pack_max_timestamp(buffer, start + 35, max_timestamp)
        self.attributes = attributes
        self.max_timestamp = max_timestamp
        self.crc = self.compute_crc()
        _pack_crc(buffer, start + 17, self.crc)

    def __repr__(self) -> str:
        return (
            f"RecordBatch(offsets {self.base_offset}..{self.last_offset}, {self.count} records, "
            f"{self.size_bytes} bytes, epoch {self.partition_leader_epoch}, attributes {self.attributes:#x}, "
            f"producer {self.producer_id}/{self.producer_epoch}/{self.base_sequence})"
        )


def iter_batches(buffer: Buffer, start: int = 0) -> Iterator[RecordBatch]:
    """The batches that lie in `buffer` one behind the other, as far as they are whole.

    A part of a batch at the end is left alone, as at the end of a fetch response or a file: the last batch's `end` tells.
    """
    view = memoryview(buffer)
    size = len(view)
    while size - start >= LOG_OVERHEAD:
        (length,) = _unpack_length(view, start + 8)
        if length + LOG_OVERHEAD < _MIN_SIZE:
            raise _wrong_size(length + LOG_OVERHEAD, size - start, start)
        if size - start <= _MAGIC_AT:
            return
        (magic,) = _unpack_magic(view, start + _MAGIC_AT)
        if magic != MAGIC:
            raise wrong_magic(magic, start)
        if length > size - start - LOG_OVERHEAD:
            return
        batch = RecordBatch(view, start)
        yield batch
        start += batch.size_bytes


def increment_sequence(sequence: int, increment: int) -> int:
    """Sequence numbers wrap to 0 behind 2^31-1."""
    return (sequence + increment) & MAX_SEQUENCE


def as_int64(value: int) -> int:
    """`value` wrapped as Java's longs do: a timestamp delta of a hostile batch can lead out of them."""
    return (value + 2**63) % 2**64 - 2**63


def wrong_magic(magic: int, start: int) -> KafkaError:
    # The old formats are well formed but refused since Kafka 4 (KIP-724); any other number is corruption.
    code = ErrorCode.INVALID_RECORD if 0 <= magic < MAGIC else ErrorCode.CORRUPT_MESSAGE
    return KafkaError(code, f"The batch at byte {start} has magic {magic}; expected {MAGIC}.")


def _wrong_size(size: int, remaining: int, start: int) -> KafkaError:
    expected = f"at least {HEADER_BYTES}" if size < HEADER_BYTES else f"at most the {remaining} that remain"
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"The batch at byte {start} states a size of {size} bytes; expected {expected}."
    )


def _short_header(view: memoryview, start: int) -> KafkaError:
    remaining = max(0, len(view) - start)
    if remaining > _MAGIC_AT and view[start + _MAGIC_AT] != MAGIC:
        (magic,) = _unpack_magic(view, start + _MAGIC_AT)
        return wrong_magic(magic, start)
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE,
        f"{remaining} bytes remain for the batch at byte {start}; its header alone takes {HEADER_BYTES}.",
    )
