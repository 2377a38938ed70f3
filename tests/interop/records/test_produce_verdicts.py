"""Good and bad batches as a broker takes them: what Apache Kafka's own log answers, and what we do.

`STRICTER` names where we differ on purpose: Apache Kafka stores batches there that no consumer reads rightly, or trips
over itself and answers UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

import time

import pytest
from interop.records.record_lines import RecordLines
from unit.protocol.records.batches import batch_around, patched, simple_batch

from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records.batch import LOG_APPEND_TIME_BIT, RecordBatch
from pybroker.protocol.records.builder import BatchBuilder
from pybroker.protocol.records.compression import Codec, compress
from pybroker.protocol.records.validation import check_records, produced_batch
from pybroker.protocol.records.varint import encode_varint as varint

GOOD = simple_batch()


def without_crc(layout: str, at: int, value: int) -> bytearray:
    return patched(GOOD, layout, at, value, new_crc=False)


def headers() -> dict[str, bytes | bytearray]:
    sizes = {f"length {size}": without_crc(">i", 8, size) for size in (0, 13, 14, 40, 48, -1, -(2**31))}
    magics = {f"magic {magic}": without_crc(">b", 16, magic) for magic in (0, 1, 3, -1)}
    codecs = {f"codec {number}": patched(GOOD, ">h", 21, number) for number in (5, 6, 7)}
    counts = {f"count {count}": patched(GOOD, ">i", 57, count) for count in (2, 4, 0, -1)}
    return {
        "good": GOOD,
        "no bytes": b"",
        "5 bytes": GOOD[:5],
        "16 bytes": GOOD[:16],
        "all but one byte": GOOD[:-1],
        "two batches": GOOD + GOOD,
        "3 bytes behind": GOOD + b"abc",
        "zeros behind": GOOD + bytes(40),
        "ones behind": GOOD + b"\xff" * 40,
        "a part of a batch behind": GOOD + GOOD[:-5],
        **sizes,
        "length one more": without_crc(">i", 8, len(GOOD) - 11),
        "length one less": without_crc(">i", 8, len(GOOD) - 13),
        "header cut off": patched(GOOD[:26], ">i", 8, 14),
        **magics,
        "wrong CRC": without_crc(">I", 17, 1),
        "base offset 7": simple_batch(base_offset=7),
        "base offset -1": without_crc(">q", 0, -1),
        **counts,
        "last offset delta 1": patched(GOOD, ">i", 23, 1),
        "last offset delta -1": patched(GOOD, ">i", 23, -1),
        "one record less than stated": patched(patched(GOOD, ">i", 57, 4), ">i", 23, 3),
        "one record more than stated": patched(patched(GOOD, ">i", 57, 2), ">i", 23, 1),
        "control": simple_batch(control=True),
        "transactional without producer id": simple_batch(transactional=True),
        "producer id without sequence": simple_batch(producer_id=5, producer_epoch=0),
        "producer id without epoch": simple_batch(producer_id=5, base_sequence=0),
        "idempotent": simple_batch(producer_id=5, producer_epoch=0, base_sequence=0),
        "transactional": simple_batch(producer_id=5, producer_epoch=0, base_sequence=0, transactional=True),
        "unused attributes": patched(GOOD, ">h", 21, 0x7F80),
        **codecs,
    }


def compressed(codec: Codec) -> dict[str, bytes | bytearray]:
    payload = RecordBatch(GOOD).payload()
    packed = compress(codec, payload)
    return {
        "good": simple_batch(codec=codec),
        "garbage": batch_around(b"garbage!" * 5, 3, codec),
        "no bytes": batch_around(b"", 3, codec),
        "truncated": batch_around(packed[:-10], 3, codec),
        "truncated by one": batch_around(packed[:-1], 3, codec),
        "half": batch_around(packed[: len(packed) // 2], 3, codec),
        "8 bytes behind": batch_around(packed + b"abcdefgh", 3, codec),
        "1 byte behind": batch_around(packed + b"a", 3, codec),
        "twice": batch_around(packed + packed, 3, codec),
        "a byte behind the records": batch_around(compress(codec, payload + b"x"), 3, codec),
        "records cut off": batch_around(compress(codec, payload[:-1]), 3, codec),
        "one record less than stated": batch_around(packed, 4, codec),
        "one record more than stated": batch_around(packed, 2, codec),
    }


def records() -> dict[str, bytes]:
    def of(body: bytes) -> bytes:
        return varint(len(body)) + body

    return {
        "offset delta 5": of(b"\0\0" + varint(5) + b"\x02k\x02v\0"),
        "offset delta -1": of(b"\0\0" + varint(-1) + b"\x02k\x02v\0"),
        "key length -2": of(b"\0\0\0" + varint(-2) + b"\x02v\0"),
        "value length -2": of(b"\0\0\0\x02k" + varint(-2) + b"\0"),
        "key too long": of(b"\0\0\0" + varint(100) + b"k\x02v\0"),
        "headers -1": of(b"\0\0\0\x02k\x02v\x01"),
        "headers 50": of(b"\0\0\0\x02k\x02v" + varint(50)),
        "headers 1000000": of(b"\0\0\0\x02k\x02v" + varint(1_000_000)),
        "header key null": of(b"\0\0\0\x02k\x02v\x02\x01\x02v"),
        "header key not UTF-8": of(b"\0\0\0\x02k\x02v\x02\x02\xff\x02v"),
        "header value length -2": of(b"\0\0\0\x02k\x02v\x02\x02h" + varint(-2)),
        "length too short": varint(5) + b"\0\0\0\x02k\x02v\0",
        "length too long": varint(9) + b"\0\0\0\x02k\x02v\0z",
        "length -1": b"\x01\0\0\0\x02k\x02v\0",
        "length 0": b"\0",
        "length 2^31-1": varint(2**31 - 1) + b"\0\0\0\x02k\x02v\0",
        "varint of 6 bytes": b"\xff" * 6 + b"\0\0\0\x02k\x02v\0",
        "varlong of 11 bytes": of(b"\0" + b"\xff" * 11 + b"\0\x02k\x02v\0"),
        "varint beyond 32 bits": of(b"\0\0\0\x82\x80\x80\x80\x70k\x02v\0"),
        "varint longer than need be": of(b"\0\x80\x80\0\0\x02k\x02v\0"),
        "attributes set": of(b"\x7f\0\0\x02k\x02v\0"),
        "a byte behind": of(b"\0\0\0\x02k\x02v\0") + b"x",
        "no bytes": b"",
        "timestamp below 0": of(b"\0" + varint(-(10**14)) + b"\0\x02k\x02v\0"),
        "no key": of(b"\0\0\0\x01\x02v\0"),
    }


CASES: dict[str, bytes | bytearray] = {
    **{f"header: {name}": data for name, data in headers().items()},
    **{f"{codec.name}: {name}": data for codec in list(Codec)[1:] for name, data in compressed(codec).items()},
    **{
        f"record, {codec.name}: {name}": batch_around(compress(codec, payload), 1, codec)
        for codec in (Codec.NONE, Codec.GZIP, Codec.ZSTD)
        for name, payload in records().items()
    },
}

# Streams that no decompressor gets to the end of.
UNREADABLE = (
    *(f"{codec.name}: {part}" for codec in list(Codec)[1:] for part in ("garbage", "truncated", "truncated by one", "half")),
    *(f"{codec.name}: no bytes" for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)),
    "SNAPPY: 8 bytes behind",
    "ZSTD: 8 bytes behind",
    "ZSTD: 1 byte behind",
)

# (what Apache Kafka answers, what we answer)
STRICTER = {
    "header: header cut off": ("UNKNOWN_SERVER_ERROR", "CORRUPT_MESSAGE"),
    "record, NONE: offset delta 5": ("NONE", "INVALID_RECORD"),
    "record, NONE: offset delta -1": ("NONE", "INVALID_RECORD"),
    "record, GZIP: offset delta 5": ("UNKNOWN_SERVER_ERROR", "INVALID_RECORD"),
    "record, GZIP: offset delta -1": ("UNKNOWN_SERVER_ERROR", "INVALID_RECORD"),
    "record, ZSTD: offset delta 5": ("UNKNOWN_SERVER_ERROR", "INVALID_RECORD"),
    "record, ZSTD: offset delta -1": ("UNKNOWN_SERVER_ERROR", "INVALID_RECORD"),
    "record, NONE: varint of 6 bytes": ("UNKNOWN_SERVER_ERROR", "INVALID_RECORD"),
    "record, GZIP: length too short": ("NONE", "INVALID_RECORD"),
    "record, GZIP: length -1": ("NONE", "INVALID_RECORD"),
    "record, GZIP: length 2^31-1": ("NONE", "INVALID_RECORD"),
    "record, ZSTD: length too short": ("NONE", "INVALID_RECORD"),
    "record, ZSTD: length -1": ("NONE", "INVALID_RECORD"),
    "record, ZSTD: length 2^31-1": ("NONE", "INVALID_RECORD"),
    **dict.fromkeys(UNREADABLE, ("UNKNOWN_SERVER_ERROR", "INVALID_RECORD")),
}


def our_verdict(data: bytes | bytearray, leader_epoch: int) -> tuple[str, bytearray | None]:
    """The code, and what a log would hold at offset 0 of this leader epoch."""
    buffer = bytearray(data)
    try:
        batch = produced_batch(buffer)
        summary = check_records(batch)
    except KafkaError as refusal:
        return refusal.code.name, None
    batch.stamp(0, leader_epoch)
    batch.stamp_max_timestamp(summary.max_timestamp)
    return ErrorCode.NONE.name, bytearray(batch.view())


@pytest.mark.parametrize("case", CASES)
def test_the_same_verdict(java: RecordLines, case: str) -> None:
    answer = java.produce(CASES[case], 9)
    code, stored = our_verdict(CASES[case], 9)
    if case in STRICTER:
        assert (answer["code"], code) == STRICTER[case]
        return
    assert code == answer["code"], answer
    if stored is not None:
        assert stored == bytearray.fromhex(answer["hex"])


def test_a_batch_larger_than_the_topic_takes(java: RecordLines) -> None:
    with pytest.raises(KafkaError) as caught:
        produced_batch(GOOD, len(GOOD) - 1)
    assert caught.value.code.name == java.produce(GOOD, max_message_bytes=str(len(GOOD) - 1))["code"]
    assert java.produce(GOOD, max_message_bytes=str(len(GOOD)))["code"] == "NONE"
    assert produced_batch(GOOD, len(GOOD)).size_bytes == len(GOOD)


@pytest.mark.parametrize("codec", Codec)
def test_the_append_time_is_stamped_byte_for_byte_as_java_does(java: RecordLines, codec: Codec) -> None:
    data = simple_batch(50, codec=codec)
    stored = bytearray.fromhex(java.produce(data, 3, message_timestamp_type="LogAppendTime")["hex"])
    append_time_ms = RecordBatch(stored).max_timestamp
    assert abs(append_time_ms - time.time() * 1000) < 3_600_000
    batch = produced_batch(data)
    batch.stamp(0, 3)
    batch.stamp_append_time(append_time_ms)
    assert data == stored


@pytest.mark.parametrize("codec", Codec)
def test_a_producer_that_claims_append_time_is_turned_back_to_create_time(java: RecordLines, codec: Codec) -> None:
    """The highest timestamp stays what the header stated: no walk is needed for that."""
    data = simple_batch(codec=codec, append_time_ms=int(time.time() * 1000))
    stored = bytearray.fromhex(java.produce(data, 3)["hex"])
    batch = produced_batch(data)
    assert batch.attributes & LOG_APPEND_TIME_BIT
    batch.stamp(0, 3)
    batch.stamp_max_timestamp(batch.max_timestamp)
    assert data == stored


@pytest.mark.parametrize("codec", Codec)
def test_a_compacted_topic_wants_keys(java: RecordLines, codec: Codec) -> None:
    builder = BatchBuilder(codec=codec)
    now_ms = int(time.time() * 1000)
    for key in (b"a", None, b"c", None):
        builder.append(now_ms, key, b"v")
    data = builder.build()
    assert java.produce(data, cleanup_policy="compact")["code"] == ErrorCode.INVALID_RECORD.name
    assert java.produce(data)["code"] == "NONE"
    assert check_records(produced_batch(data)).first_without_key == 1
