"""Batches for tests: drawn by hypothesis, by hand, and broken on purpose."""

from __future__ import annotations

import struct
from dataclasses import asdict, dataclass
from typing import Any

from hypothesis import strategies as st

from pybroker.protocol.records import crc
from pybroker.protocol.records.batch import HEADER, HEADER_BYTES
from pybroker.protocol.records.builder import BatchBuilder
from pybroker.protocol.records.compression import Codec
from pybroker.protocol.records.record import Record

NOW_MS = 1_760_000_000_000


@dataclass(frozen=True)
class Drawn:
    """What a batch is built of."""

    records: tuple[Record, ...]
    base_offset: int = 0
    codec: Codec = Codec.NONE
    append_time_ms: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    partition_leader_epoch: int = -1
    transactional: bool = False
    delete_horizon_ms: int | None = None

    def settings(self) -> dict[str, Any]:
        settings = asdict(self)
        del settings["records"]
        return settings

    def build(self) -> bytearray:
        builder = BatchBuilder(**self.settings())
        for record in self.records:
            builder.append(record.timestamp, record.key, record.value, record.headers, record.offset)
        return builder.build()

    def read(self) -> list[Record]:
        """The records as a reader sees them."""
        if self.append_time_ms is None:
            return list(self.records)
        return [record._replace(timestamp=self.append_time_ms) for record in self.records]


def blobs(max_size: int) -> st.SearchStrategy[bytes]:
    short = st.binary(max_size=20)
    repeated = st.builds(lambda text, times: text * times, st.binary(min_size=1, max_size=9), st.integers(1, max_size // 9))
    return st.one_of(short, short, repeated)


@st.composite
def drawn(draw: st.DrawFn, codecs: tuple[Codec, ...] = tuple(Codec), gaps: bool = True, max_size: int = 9000) -> Drawn:
    base_offset = draw(st.sampled_from((0, 1, 12345, 2**40))) if gaps else 0
    offset = base_offset
    headers = st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), st.none() | blobs(60))
    records = []
    for _ in range(draw(st.integers(1, 12))):
        offset += draw(st.sampled_from((0, 0, 0, 1, 70, 100_000))) if gaps else 0
        timestamp = draw(st.sampled_from((NOW_MS, 0)) | st.integers(NOW_MS - 10**6, NOW_MS + 10**6))
        key, value = draw(st.none() | blobs(300)), draw(st.none() | blobs(max_size))
        records.append(Record(offset, timestamp, key, value, tuple(draw(st.lists(headers, max_size=3)))))
        offset += 1
    producer = draw(st.sampled_from(((-1, -1, -1), (7, 0, 0), (2**40, 32767, 2**31 - 3))))
    return Drawn(
        tuple(records),
        base_offset,
        draw(st.sampled_from(codecs)),
        draw(st.sampled_from((None, None, NOW_MS + 5))) if gaps else None,
        *producer,
        partition_leader_epoch=draw(st.sampled_from((-1, 0, 77))),
        transactional=producer[0] >= 0 and draw(st.booleans()),
        delete_horizon_ms=draw(st.sampled_from((None, None, NOW_MS + 99))) if gaps else None,
    )


def simple_batch(count: int = 3, **settings: Any) -> bytearray:
    builder = BatchBuilder(**settings)
    for index in range(count):
        builder.append(NOW_MS + index, b"key%d" % index, b"value%d" % index * 4)
    return builder.build()


def with_crc(batch: bytes | bytearray) -> bytearray:
    out = bytearray(batch)
    struct.pack_into(">I", out, 17, crc.crc32c(memoryview(out)[21:]))
    return out


def patched(batch: bytes | bytearray, layout: str, at: int, value: int, *, new_crc: bool = True) -> bytearray:
    out = bytearray(batch)
    struct.pack_into(layout, out, at, value)
    return with_crc(out) if new_crc else out


def batch_around(payload: bytes, count: int = 1, codec: int = 0) -> bytearray:
    """A producer's batch with the right header and CRC around any payload."""
    out = bytearray(HEADER_BYTES) + payload
    HEADER.pack_into(out, 0, 0, len(out) - 12, -1, 2, 0, codec, count - 1, NOW_MS, NOW_MS, -1, -1, -1, count)
    return with_crc(out)
