"""Building record batches: for the internal topics, for control records, for rewriting after compaction, for tests.

A plain object of one thread. Rows come in ascending offsets, gaps allowed; the result is a bytearray, so that it can be
stamped in place like one that a client sent.
"""

from __future__ import annotations

from collections.abc import Iterable

from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records import crc
from pybroker.protocol.records.batch import (
    CONTROL_BIT,
    CRC_START,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    RecordBatch,
    as_int64,
)
from pybroker.protocol.records.compression import Codec, compress
from pybroker.protocol.records.record import NO_HEADERS, Headers, Record, encode_record

MAX_OFFSET_DELTA = 2**31 - 1
_CRC_BYTES = slice(17, 21)


class BatchBuilder:
    """Collects rows, then `build()`s the batch.

    `append_time_ms` makes it a LogAppendTime batch; `delete_horizon_ms` takes the place of the base timestamp.
    """

    __slots__ = (
        "_append_time_ms",
        "_attributes",
        "_base_timestamp",
        "_codec",
        "_level",
        "_max_timestamp",
        "_out",
        "_producer",
        "base_offset",
        "count",
        "next_offset",
        "partition_leader_epoch",
    )

    def __init__(
        self,
        base_offset: int = 0,
        *,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        append_time_ms: int | None = None,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        partition_leader_epoch: int = NO_LEADER_EPOCH,
        transactional: bool = False,
        control: bool = False,
        delete_horizon_ms: int | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.count = 0
        self.partition_leader_epoch = partition_leader_epoch
        self._codec = codec
        self._level = level
        self._append_time_ms = append_time_ms
        self._producer = (producer_id, producer_epoch, base_sequence)
        self._attributes = (
            (LOG_APPEND_TIME_BIT if append_time_ms is not None else 0)
            | (TRANSACTIONAL_BIT if transactional else 0)
            | (CONTROL_BIT if control else 0)
            | (DELETE_HORIZON_BIT if delete_horizon_ms is not None else 0)
        )
        self._base_timestamp = delete_horizon_ms
        self._max_timestamp = NO_TIMESTAMP
        self._out = bytearray(HEADER_BYTES)

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = NO_HEADERS,
        offset: int | None = None,
    ) -> int:
        """Add a record at `offset`, or at the next one, and return its offset."""
        if offset is None:
            offset = self.next_offset
        delta = offset - self.base_offset
        assert offset >= self.next_offset, f"offset {offset}, but the next is {self.next_offset}"
        assert delta <= MAX_OFFSET_DELTA, f"offset {offset} is too far from the base offset {self.base_offset}"
        if self._base_timestamp is None:
            self._base_timestamp = timestamp
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        encode_record(self._out, delta, timestamp - self._base_timestamp, key, value, headers)
        self.next_offset = offset + 1
        self.count += 1
        return offset

    @property
    def size_bytes(self) -> int:
        """What the batch takes uncompressed."""
        return len(self._out)

    def build(self, *, last_offset: int | None = None, max_timestamp: int | None = None) -> bytearray:
        """The batch, once; the builder is then spent.

        A rewrite keeps the original `last_offset`, and if it kept no record, the original `max_timestamp` too.
        """
        if last_offset is None:
            last_offset = self.next_offset - 1
        assert last_offset >= self.next_offset - 1, f"last offset {last_offset} but a record has {self.next_offset - 1}"
        out = self._out
        attributes, base_timestamp, codec = self._attributes, self._base_timestamp, self._codec
        if not self.count:
            attributes, base_timestamp, codec = attributes & ~DELETE_HORIZON_BIT, None, Codec.NONE
        if codec is not Codec.NONE:
            packed = compress(codec, memoryview(out)[HEADER_BYTES:], self._level)
            out = bytearray(HEADER_BYTES)
            out += packed
        if self._append_time_ms is not None:
            max_timestamp = self._append_time_ms
        elif max_timestamp is None:
            max_timestamp = self._max_timestamp
        HEADER.pack_into(
            out,
            0,
            self.base_offset,
            len(out) - LOG_OVERHEAD,
            self.partition_leader_epoch,
            MAGIC,
            0,
            attributes | codec,
            last_offset - self.base_offset,
            NO_TIMESTAMP if base_timestamp is None else base_timestamp,
            max_timestamp,
            *self._producer,
            self.count,
        )
        with memoryview(out) as view:
            out[_CRC_BYTES] = crc.crc32c(view[CRC_START:]).to_bytes(4, "big")
        return out


def rebuild(
    batch: RecordBatch,
    records: Iterable[Record],
    *,
    codec: Codec | None = None,
    level: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """`batch` with only `records` of it left, offsets, producer and flags kept: what compaction writes.

    Without a record the header alone remains, which keeps the producer's last sequence and the offset range alive.
    """
    horizon = batch.delete_horizon_ms if delete_horizon_ms is None else delete_horizon_ms
    append_time_ms = batch.max_timestamp if batch.attributes & LOG_APPEND_TIME_BIT else None
    builder = BatchBuilder(
        batch.base_offset,
        codec=batch.codec if codec is None else codec,
        level=level,
        append_time_ms=append_time_ms,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        partition_leader_epoch=batch.partition_leader_epoch,
        transactional=batch.is_transactional,
        control=batch.is_control,
        delete_horizon_ms=horizon,
    )
    last_offset = batch.last_offset
    for record in records:
        if not builder.next_offset <= record.offset <= last_offset:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"A record of {batch!r} has offset {record.offset}; expected {builder.next_offset} to {last_offset}.",
            )
        builder.append(as_int64(record.timestamp), record.key, record.value, record.headers, record.offset)
    empty = builder.count == 0
    return builder.build(last_offset=last_offset, max_timestamp=batch.max_timestamp if empty else None)
