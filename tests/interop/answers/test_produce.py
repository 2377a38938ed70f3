"""Produce 3-13: the same answer as Apache Kafka's, and the same records in the log afterwards."""

from __future__ import annotations

import struct
from typing import Any
from zlib import crc32

import pytest
from interop.answers.admin import delete_records, list_offsets
from interop.answers.case import Case, Pair, family
from interop.answers.steps import MIB, T0, Bytes, fetch, on, produce, records, stored, timed, topic
from support.batches import batch, sized_batch
from unit.protocol.records.batches import patched

from pybroker.protocol.records.compression import Codec

case = family(0)

NOW_FAR = T0 + 100 * 24 * 3_600_000


def message_set(magic: int, value: bytes = b"v", key: bytes | None = b"k") -> bytes:
    """One message as clients wrote it before there were batches."""
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", T0) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", 0, len(body) + 4, crc32(body)) + body


def of(name: str, data: Bytes | None, *, versions: str = "", **configs: Any) -> Case:
    """Write `data` and read the log."""
    return case(name, topic(**configs), produce(on(records=data)), fetch(on()), versions=versions)


GOOD = records(3)
CRC_AT, MAGIC_AT, COUNT_AT, LAST_DELTA_AT, ATTRIBUTES_AT, LENGTH_AT = 17, 16, 57, 23, 21, 8

BYTES: dict[str, Bytes | None] = {
    "one record": records(),
    "many records": records(500),
    "no bytes": b"",
    "empty batch": batch([]),
    "two batches": records(1) + records(2),
    "a batch and garbage": records(1) + b"garbage",
    "a batch and zeros": records(1) + bytes(61),
    "a batch and a part of one": records(1) + records(1)[:-3],
    "all but one byte": GOOD[:-1],
    "5 bytes": GOOD[:5],
    "12 bytes": GOOD[:12],
    "a wrong CRC": patched(GOOD, ">I", CRC_AT, 1, new_crc=False),
    "a base offset of its own": records(3, base_offset=7),
    "a leader epoch of its own": records(3, leader_epoch=5),
    "more records stated": patched(GOOD, ">i", COUNT_AT, 4),
    "fewer records stated": patched(GOOD, ">i", COUNT_AT, 2),
    "a wrong last offset": patched(GOOD, ">i", LAST_DELTA_AT, 7),
    "a negative last offset": patched(GOOD, ">i", LAST_DELTA_AT, -1),
    "magic 3": patched(GOOD, ">b", MAGIC_AT, 3, new_crc=False),
    "magic -1": patched(GOOD, ">b", MAGIC_AT, -1, new_crc=False),
    "length 0": patched(GOOD, ">i", LENGTH_AT, 0, new_crc=False),
    "a length too large": patched(GOOD, ">i", LENGTH_AT, 10_000, new_crc=False),
    "a negative length": patched(GOOD, ">i", LENGTH_AT, -5, new_crc=False),
    "a control batch": patched(GOOD, ">h", ATTRIBUTES_AT, 0x20),
    "a transactional batch without a producer": patched(GOOD, ">h", ATTRIBUTES_AT, 0x10),
    "append time claimed": patched(GOOD, ">h", ATTRIBUTES_AT, 0x08),
    "codec 5": patched(GOOD, ">h", ATTRIBUTES_AT, 5),
    "codec 7": patched(GOOD, ">h", ATTRIBUTES_AT, 7),
    "gzip stated, plain bytes": patched(GOOD, ">h", ATTRIBUTES_AT, 1),
    "unused attributes": patched(GOOD, ">h", ATTRIBUTES_AT, 0x4000),
    "a message set of magic 0": message_set(0),
    "a message set of magic 1": message_set(1),
    "a batch and a message set": records(1) + message_set(1),
    "keys and null values": batch([None, b"", b"x"], keys=[b"k", b"", None], timestamp=T0),
    "timestamps out of order": records(3, timestamps=[T0 + 5, T0, T0 + 3]),
    "timestamp -1": records(1, timestamps=[-1]),
    "timestamp 0": records(1, timestamps=[0]),
    "a negative timestamp": records(1, timestamps=[-7]),
    "from the far future": records(1, timestamps=[NOW_FAR]),
    "offsets with gaps": records(3, offsets=[0, 2, 5]),
}

CASES = [
    *(of(name, data) for name, data in BYTES.items()),
    of("null records", None, versions="13"),
    *(of(f"{codec.name}", records(20, codec=codec)) for codec in Codec),
    *(
        of(f"{codec.name} to a {kind} topic", records(20, codec=codec), compression_type=kind, versions="12+")
        for codec in (Codec.NONE, Codec.GZIP, Codec.ZSTD)
        for kind in ("uncompressed", codec.name.lower() if codec else "producer")
    ),
    # Which partition
    case("an unknown topic", produce(on("nobody", records=GOOD))),
    case("the zero topic id", produce(on("=", records=GOOD)), versions="13"),
    case("an empty name", produce(on("=", records=GOOD)), versions="3-12"),
    case("a bad name", produce(on("=no/such", records=GOOD)), versions="3-12"),
    *(case(f"partition {index}", topic(), produce(on("t", index, records=GOOD))) for index in (1, -1, 2**31 - 1)),
    case("several partitions", topic("t", 3), produce(*(on("t", index, records=records(index + 1)) for index in range(3)))),
    case(
        "good and bad partitions",
        topic("t", 2),
        produce(
            on("t", 0, records=GOOD),
            on("t", 1, records=BYTES["a wrong CRC"]),
            on("t", 2, records=GOOD),
            on("nobody", records=GOOD),
        ),
        fetch(on("t", 0)),
    ),
    case(
        "a good partition and one without records",
        topic("t", 2),
        produce(on("t", 0, records=GOOD), on("t", 1, records=None)),
        fetch(on("t", 0)),
        versions="13",
    ),
    case(
        "a good partition and an old message set",
        topic("t", 2),
        produce(on("t", 0, records=GOOD), on("t", 1, records=message_set(1))),
        fetch(on("t", 0)),
    ),
    case(
        "a good partition and two batches",
        topic("t", 2),
        produce(on("t", 0, records=GOOD), on("t", 1, records=GOOD + GOOD)),
        fetch(on("t", 0)),
    ),
    case("a partition twice", topic(), produce(on(records=records(1)), on(records=records(2))), fetch(on())),
    case(
        "a topic twice", topic("t", 2), produce(on("t", 0, records=GOOD), on("nobody", records=GOOD), on("t", 1, records=GOOD))
    ),
    case("no topics", produce()),
    case("the metadata topic", produce(on("=__cluster_metadata", records=GOOD)), versions="3-12"),
    # Acks
    *(case(f"acks {acks}", topic(), produce(on(records=GOOD), acks=acks), fetch(on())) for acks in (1, -1, 2, -2, 32767)),
    case("acks 0: no answer", topic(), produce(on(records=GOOD), acks=0, silent=True), list_offsets(on(at=-1)), fetch(on())),
    case("acks 0 to an unknown topic: closed", topic(), produce(on("nobody", records=GOOD), acks=0), versions="12+"),
    case("acks 0 with a wrong CRC: closed", topic(), produce(on(records=BYTES["a wrong CRC"]), acks=0), versions="12+"),
    case("acks 0 without topics", topic(), produce(acks=0, silent=True), list_offsets(on(at=-1)), versions="12+"),
    case("acks all with too few replicas", topic(min_insync_replicas=2), produce(on(records=GOOD)), fetch(on())),
    case("acks 1 with too few replicas", topic(min_insync_replicas=2), produce(on(records=GOOD), acks=1), fetch(on())),
    *(case(f"timeout {ms}", topic(), produce(on(records=GOOD), timeout_ms=ms)) for ms in (0, -1, 2**31 - 1)),
    case("answers at once", topic(), timed(produce(on(records=GOOD)), 0, 500)),
    # What a topic takes
    case(
        "as large as the topic takes, and one byte more",
        topic(max_message_bytes=500),
        produce(on(records=sized_batch(500, timestamp=T0))),
        produce(on(records=sized_batch(501, timestamp=T0))),
        fetch(on()),
    ),
    case(
        "as large as the broker takes, and one byte more",
        topic(),
        produce(on(records=sized_batch(1_000_000, timestamp=T0))),
        produce(on(records=sized_batch(1_000_001, timestamp=T0))),
        versions="12+",
    ),
    case(
        "larger than a segment",
        topic(max_message_bytes=3 * MIB, segment_bytes=MIB),
        produce(on(records=sized_batch(MIB, timestamp=T0))),
        produce(on(records=sized_batch(MIB + 1, timestamp=T0))),
        versions="12+",
    ),
    case(
        "compressed it is small enough",
        topic(max_message_bytes=500),
        produce(on(records=batch([bytes(5000)], codec=Codec.ZSTD, timestamp=T0))),
        versions="7+",
    ),
    of("a compacted topic, all with keys", records(2, keys=[b"a", b"b"]), cleanup_policy="compact"),
    of("a compacted topic, one without a key", records(3, keys=[b"a", None, b"c"]), cleanup_policy="compact"),
    of("a compacted topic, none with a key", records(3), cleanup_policy="compact"),
    of("a compacted topic, compressed without keys", records(3, codec=Codec.GZIP), cleanup_policy="compact"),
    of("a compacted and deleted topic without keys", records(3), cleanup_policy="compact,delete"),
    of("append time", records(3), message_timestamp_type="LogAppendTime"),
    of("append time, compressed", records(3, codec=Codec.LZ4), message_timestamp_type="LogAppendTime"),
    of(
        "append time, recompressed",
        records(3, codec=Codec.LZ4),
        message_timestamp_type="LogAppendTime",
        compression_type="uncompressed",
    ),
    *(
        of(f"a time before the limit, {codec.name}", records(3, codec=codec), message_timestamp_before_max_ms=1000)
        for codec in (Codec.NONE, Codec.GZIP)
    ),
    *(
        of(
            f"a time after the limit, {codec.name}",
            records(2, timestamps=[T0, NOW_FAR], codec=codec),
            message_timestamp_after_max_ms=1000,
        )
        for codec in (Codec.NONE, Codec.GZIP)
    ),
    of("a time within the limits", records(3), message_timestamp_before_max_ms=7_200_000, message_timestamp_after_max_ms=1000),
    of(
        "a time after the limit, but append time",
        records(1, timestamps=[NOW_FAR]),
        message_timestamp_type="LogAppendTime",
        message_timestamp_after_max_ms=1000,
    ),
    case(
        "the log start offset after a deletion",
        topic(),
        stored(on(records=records(5))),
        delete_records(on(offset=3), version=2),
        produce(on(records=GOOD)),
    ),
    case("transactional id on plain records", topic(), produce(on(records=GOOD), transactional_id="x"), fetch(on())),
    case(
        "a gap that a producer left in the offsets, recompressed",
        topic(compression_type="gzip"),
        produce(on(records=records(3, offsets=[0, 2, 5]))),
        fetch(on()),
        ignore="payload",
        versions="12+",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_same_answer(pair: Pair, case: Case) -> None:
    pair.compare(case)
