"""Fetch 4-18 without sessions: the same answer as Apache Kafka's."""

from __future__ import annotations

import pytest
from interop.answers.admin import deleted_records
from interop.answers.case import Case, Pair, family
from interop.answers.steps import (
    AT_MOST_MS,
    LONG_MS,
    MIB,
    T0,
    by,
    fetch,
    on,
    producer,
    records,
    stored,
    timed,
    topic,
    while_waiting,
    written,
)
from support.batches import sized_batch

from pybroker.protocol.records.builder import BatchBuilder
from pybroker.protocol.records.compression import Codec

case = family(1)

LOG = (topic(), written(count=3), written(count=2), written(count=5))  # batches at 0-2, 3-4, 5-9


def at(name: str, *rows: object, versions: str = "", **options: object) -> Case:
    return case(name, *LOG, fetch(*rows, **options), versions=versions)  # type: ignore[arg-type]


def with_headers() -> bytearray:
    builder = BatchBuilder()
    builder.append(T0, b"k", b"v", (("a", b"1"), ("a", None), ("ü", b"")))
    builder.append(T0, None, None)
    return builder.build()


CASES = [
    *(at(f"at offset {offset}", on(offset=offset)) for offset in (0, 1, 2, 3, 4, 9, 10)),
    *(at(f"out of range at {offset}", on(offset=offset)) for offset in (-1, -2, 11, 2**62, -(2**63), 2**63 - 1)),
    case("an empty log", topic(), fetch(on(offset=0))),
    case("an empty log, beyond", topic(), fetch(on(offset=1))),
    at("an unknown topic", on("nobody")),
    at("an unknown topic beside a known one", on("nobody"), on("t")),
    at("the zero topic id", on("="), versions="13+"),
    at("an unknown partition", on("t", 1)),
    at("a negative partition", on("t", -1)),
    at("the largest partition", on("t", 2**31 - 1)),
    at("known and unknown partitions", on("t", 0), on("t", 1), on("t", 7)),
    at("a bad name", on("=no/such"), versions="4-12"),
    at("an empty name", on("="), versions="4-12"),
    at("no topics"),
    *(at(f"replica {number}", on(), replica_id=number) for number in (-2, -3, 1, 5)),
    at("a partition twice", on("t", 0, offset=0), on("t", 0, offset=5)),
    at("a topic twice", on("t", 0), on("nobody", 0), on("t", 0, offset=5)),
    *(at(f"leader epoch {epoch}", on(epoch=epoch), versions="9+") for epoch in (-2, -1, 0, 1, 100)),
    *(at(f"last fetched epoch {epoch}", on(offset=3, last_epoch=epoch), versions="12+") for epoch in (-2, -1, 0, 1, 9)),
    at("last fetched epoch at the end", on(offset=10, last_epoch=0), versions="12+"),
    at("last fetched epoch beyond the end", on(offset=11, last_epoch=0), versions="12+"),
    at("a log start offset of a consumer", on(log_start=2), versions="5+"),
    *(at(f"partition max bytes {size}", on(max_bytes=size)) for size in (0, 1, 60, 61, 150, 300, 2**31 - 1)),
    *(at(f"partition max bytes {size} from the middle", on(offset=4, max_bytes=size)) for size in (0, 1, 100, 250)),
    at("negative partition max bytes", on(max_bytes=-1)),
    *(at(f"max bytes {size}", on(), max_bytes=size) for size in (0, 1, 61, 150, 300, -1)),
    at("negative min bytes", on(), min_bytes=-1),
    at("negative max wait", on(offset=10), min_bytes=1, max_wait_ms=-1),
    case(
        "max bytes over several partitions",
        topic("t", 3),
        *(written("t", 2, partition) for partition in range(3)),
        fetch(*(on("t", partition) for partition in range(3)), max_bytes=100),
        fetch(*(on("t", partition) for partition in range(3)), max_bytes=1),
        fetch(*(on("t", partition) for partition in range(3)), max_bytes=200),
        fetch(*(on("t", partition, max_bytes=1) for partition in range(3))),
    ),
    case(
        "the first batch is larger than allowed",
        topic(),
        stored(on(records=sized_batch(5000))),
        stored(on(records=sized_batch(100))),
        fetch(on(max_bytes=100)),
        fetch(on(), max_bytes=100),
        fetch(on(offset=1, max_bytes=50)),
        fetch(on(offset=1, max_bytes=150)),
    ),
    case(
        "an oversize batch in the second partition",
        topic("t", 2),
        written("t", 1, 0),
        stored(on("t", 1, records=sized_batch(5000))),
        fetch(on("t", 0), on("t", 1, max_bytes=100)),
        fetch(on("t", 1, max_bytes=100), on("t", 0)),
        fetch(on("t", 0, offset=1), on("t", 1, max_bytes=100)),
    ),
    case(
        "several segments",
        topic(segment_bytes=1048576, segment_jitter_ms=0),
        *(stored(on(records=sized_batch(400_000, timestamp=1))) for _ in range(5)),
        fetch(on(max_bytes=900_000)),
        fetch(on(offset=1, max_bytes=900_000)),
        fetch(on(offset=3, max_bytes=4 * MIB)),
        versions="16+",
    ),
    *(case(f"{codec.name} batches", topic(), written(count=20, codec=codec), fetch(on(offset=7))) for codec in Codec),
    case("null keys and empty keys", topic(), stored(on(records=records(3, keys=[b"", None, b"k"]))), fetch(on())),
    case("headers", topic(), stored(on(records=with_headers())), fetch(on())),
    case("append time", topic(message_timestamp_type="LogAppendTime"), written(count=3), fetch(on())),
    case("recompressed by the topic", topic(compression_type="gzip"), written(count=9), fetch(on()), ignore="payload"),
    case("uncompressed by the topic", topic(compression_type="uncompressed"), written(count=9, codec=Codec.ZSTD), fetch(on())),
    case(
        "after records were deleted",
        *LOG,
        deleted_records("t", 4),
        fetch(on(offset=4)),
        fetch(on(offset=3)),
        fetch(on(offset=0)),
    ),
    case("after all records were deleted", *LOG, deleted_records("t", -1), fetch(on(offset=10)), fetch(on(offset=9))),
    case(
        "read committed", *LOG, fetch(on(), isolation=1), fetch(on(offset=10), isolation=1), fetch(on(offset=11), isolation=1)
    ),
    at("isolation level 2", on(), isolation=2),
    at("isolation level -1", on(), isolation=-1),
    case("of an idempotent producer", topic(), producer(), stored(on(records=by("p", 0, 3))), fetch(on())),
    # Waiting
    case(
        "nothing new: waits its time",
        *LOG,
        timed(fetch(on(offset=10), max_wait_ms=300, min_bytes=1), 290, AT_MOST_MS),
        versions="17+",
    ),
    case("nothing new, min bytes 0: at once", *LOG, timed(fetch(on(offset=10), max_wait_ms=LONG_MS), 0, AT_MOST_MS)),
    case("enough is there: at once", *LOG, timed(fetch(on(), max_wait_ms=LONG_MS, min_bytes=1), 0, AT_MOST_MS)),
    case(
        "not enough is there: waits, then answers",
        *LOG,
        timed(fetch(on(), max_wait_ms=300, min_bytes=100_000), 290, AT_MOST_MS),
        versions="17+",
    ),
    case(
        "min bytes above max bytes: at once",
        *LOG,
        timed(fetch(on(), max_wait_ms=LONG_MS, min_bytes=1000, max_bytes=100), 0, AT_MOST_MS),
    ),
    case("an error: at once", *LOG, timed(fetch(on(offset=99), max_wait_ms=LONG_MS, min_bytes=1), 0, AT_MOST_MS)),
    case("an unknown topic: at once", *LOG, timed(fetch(on("nobody"), max_wait_ms=LONG_MS, min_bytes=1), 0, AT_MOST_MS)),
    case(
        "an error beside an empty partition: at once",
        topic("t", 2),
        timed(fetch(on("t", 0), on("t", 1, offset=5), max_wait_ms=LONG_MS, min_bytes=1), 0, AT_MOST_MS),
    ),
    case("no partitions: at once", topic(), timed(fetch(max_wait_ms=LONG_MS, min_bytes=1), 0, AT_MOST_MS)),
    case(
        "woken by a produce",
        *LOG,
        while_waiting(fetch(on(offset=10), max_wait_ms=LONG_MS, min_bytes=1), written(count=1), at_most_ms=AT_MOST_MS),
        versions="18",
    ),
    case(
        "not woken by too little",
        *LOG,
        while_waiting(
            fetch(on(offset=10), max_wait_ms=700, min_bytes=1000), written(count=1), at_least_ms=650, at_most_ms=AT_MOST_MS
        ),
        versions="18",
    ),
    case(
        "woken when the sum over partitions is enough",
        topic("t", 2),
        while_waiting(
            fetch(on("t", 0), on("t", 1), max_wait_ms=LONG_MS, min_bytes=140),
            written("t", 1, 0),
            written("t", 1, 1),
            at_most_ms=AT_MOST_MS,
        ),
        versions="18",
    ),
    case("a rack", *LOG, fetch(on(), rack="r1"), versions="11+"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_same_answer(pair: Pair, case: Case) -> None:
    pair.compare(case)
