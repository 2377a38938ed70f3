"""Batches between us and Apache Kafka's own classes: each reads what the other built, uncompressed ones byte for byte."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from interop.records.record_lines import RecordLines, described, row
from unit.protocol.records.batches import NOW_MS, Drawn, drawn

from pybroker.protocol.records.batch import RecordBatch, iter_batches
from pybroker.protocol.records.builder import BatchBuilder, rebuild
from pybroker.protocol.records.compression import Codec
from pybroker.protocol.records.control import ControlType, control_batch, control_type, end_transaction_marker
from pybroker.protocol.records.record import Record
from pybroker.protocol.records.validation import check_batch

many = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def built_by_java(java: RecordLines, batch: Drawn) -> bytearray:
    return java.bytes_of("build", **batch.settings(), records=[row(record) for record in batch.records])


@many
@given(st.lists(drawn(max_size=200_000), min_size=1, max_size=3))
def test_java_reads_what_we_build(java: RecordLines, run: list[Drawn]) -> None:
    data = b"".join(batch.build() for batch in run)
    assert java.read(data) == [described(batch) for batch in iter_batches(data)]
    assert [each["records"] for each in java.read(data)] == [[row(record) for record in batch.read()] for batch in run]


@many
@given(drawn(max_size=200_000))
def test_we_read_what_java_builds(java: RecordLines, drawn_batch: Drawn) -> None:
    data = built_by_java(java, drawn_batch)
    (batch,) = iter_batches(data)
    check_batch(batch)
    assert list(batch.records()) == drawn_batch.read()
    assert list(batch.keys()) == [(record.offset, record.key) for record in drawn_batch.records]
    assert java.read(data) == [described(batch)]


@many
@given(drawn(codecs=(Codec.NONE,), max_size=200_000))
def test_uncompressed_batches_are_equal_byte_for_byte(java: RecordLines, batch: Drawn) -> None:
    assert built_by_java(java, batch) == batch.build()


@pytest.mark.parametrize("codec", Codec)
def test_large_records_that_do_not_compress(java: RecordLines, codec: Codec) -> None:
    noise = random.Random(codec)
    records = tuple(Record(n, NOW_MS, noise.randbytes(n * 1000), noise.randbytes(n * 300_000)) for n in range(4))
    batch = Drawn(records, codec=codec)
    ours, theirs = batch.build(), built_by_java(java, batch)
    assert java.read(ours)[0]["records"] == [row(record) for record in records]
    assert list(RecordBatch(theirs).records()) == list(records)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("level", [1, 5, 9])
def test_every_level_is_read_by_java(java: RecordLines, codec: Codec, level: int) -> None:
    builder = BatchBuilder(codec=codec, level=level)
    for number in range(2000):
        builder.append(NOW_MS, None, b'{"id": %d, "amount": %d}' % (number, number * number % 9973))
    data = builder.build()
    assert java.read(data) == [described(RecordBatch(data))]


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
@pytest.mark.parametrize("epochs", [(0, 0), (7, 12), (32767, 2**31 - 1)])
def test_transaction_markers_are_equal(java: RecordLines, kind: ControlType, epochs: tuple[int, int]) -> None:
    producer_epoch, coordinator_epoch = epochs
    fields = {
        "producer_id": 2**33,
        "producer_epoch": producer_epoch,
        "coordinator_epoch": coordinator_epoch,
        "timestamp": NOW_MS,
        "base_offset": 99,
        "partition_leader_epoch": 4,
    }
    ours = end_transaction_marker(kind, **fields)
    assert java.bytes_of("marker", kind=int(kind), **fields) == ours
    assert java.read(ours) == [described(RecordBatch(ours))]


@pytest.mark.parametrize("voters", [[], [1], [1, 2, 3000]])
def test_leader_change_is_equal(java: RecordLines, voters: list[int]) -> None:
    place = {"timestamp": NOW_MS, "base_offset": 5, "partition_leader_epoch": 8}
    theirs = java.bytes_of("leaderChange", leader=1, voters=voters, **place)
    (record,) = RecordBatch(theirs).records()
    assert control_type(record.key) is ControlType.LEADER_CHANGE
    assert record.value is not None
    assert control_batch([(ControlType.LEADER_CHANGE, record.value)], **place) == theirs


@many
@given(drawn(codecs=(Codec.NONE,)), st.data())
def test_what_compaction_leaves_is_equal(java: RecordLines, built: Drawn, data: st.DataObject) -> None:
    original = built.build()
    batch = RecordBatch(original)
    kept = [record for record in batch.records() if data.draw(st.booleans())]
    theirs = java.bytes_of("filter", hex=original.hex(), keep=[record.offset for record in kept], horizon=NOW_MS + 7)
    gets_horizon = batch.delete_horizon_ms is None and any(record.value is None for record in kept)
    if len(kept) == batch.count and not gets_horizon:
        ours = original
    else:
        ours = rebuild(batch, kept, delete_horizon_ms=NOW_MS + 7 if gets_horizon else None)
    assert java.read(ours) == java.read(theirs)
    assert ours == theirs


@pytest.mark.parametrize("transactional", [False, True])
def test_an_empty_header_is_equal(java: RecordLines, transactional: bool) -> None:
    producer = {"producer_id": 8, "producer_epoch": 3, "base_sequence": 11, "partition_leader_epoch": 6}
    builder = BatchBuilder(40, transactional=transactional, **producer)
    ours = builder.build(last_offset=44, max_timestamp=NOW_MS)
    theirs = java.bytes_of("empty", base_offset=40, last_offset=44, timestamp=NOW_MS, transactional=transactional, **producer)
    assert ours == theirs
