"""Batches between us and kafka-python's record classes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from unit.protocol.records.batches import Drawn, drawn

from pybroker.protocol.records.batch import RecordBatch
from pybroker.protocol.records.compression import Codec
from pybroker.protocol.records.control import ControlType, end_transaction_marker
from pybroker.protocol.records.record import Record
from pybroker.protocol.records.validation import check_batch, check_records, produced_batch

default_records: Any = pytest.importorskip("kafka.record.default_records")
memory_records: Any = pytest.importorskip("kafka.record.memory_records")

many = settings(max_examples=200, deadline=None)


def as_record(theirs: Any) -> Record:
    return Record(theirs.offset, theirs.timestamp, theirs.key, theirs.value, tuple(theirs.headers))


@many
@given(drawn(max_size=100_000))
def test_kafka_python_reads_what_we_build(built: Drawn) -> None:
    data = bytes(built.build())
    (batch,) = memory_records.MemoryRecords(data)
    ours = RecordBatch(data)
    assert batch.validate_crc()
    assert [as_record(record) for record in batch] == built.read()
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (
        ours.base_offset,
        ours.last_offset,
        ours.next_offset,
    )
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (
        ours.producer_id,
        ours.producer_epoch,
        ours.base_sequence,
        ours.last_sequence,
    )
    assert (batch.compression_type, batch.is_transactional) == (ours.codec, ours.is_transactional)
    assert batch.timestamp_type == ours.timestamp_type
    assert batch.max_timestamp == ours.max_timestamp


@many
@given(drawn(gaps=False, max_size=100_000))
def test_we_read_what_kafka_python_builds(built: Drawn) -> None:
    builder = default_records.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(built.codec),
        is_transactional=built.transactional,
        producer_id=built.producer_id,
        producer_epoch=built.producer_epoch,
        base_sequence=built.base_sequence,
        batch_size=2**30,
    )
    for record in built.records:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    data = bytes(builder.build())
    batch = produced_batch(data)
    assert list(batch.records()) == list(built.records)
    assert batch.codec in (built.codec, Codec.NONE)  # it sends what does not shrink as it is
    assert batch.is_transactional == built.transactional
    assert check_records(batch).max_timestamp == batch.max_timestamp
    if batch.codec is Codec.NONE:
        ours = Drawn(
            built.records,
            producer_id=built.producer_id,
            producer_epoch=built.producer_epoch,
            base_sequence=built.base_sequence,
            transactional=built.transactional,
            partition_leader_epoch=0,
        )
        assert ours.build() == data


@pytest.mark.parametrize("codec", Codec)
def test_each_codec_does_compress(codec: Codec) -> None:
    builder = default_records.DefaultRecordBatchBuilder(2, int(codec), False, -1, -1, -1, 2**30)
    for offset in range(500):
        builder.append(offset, 1, b"key", b"the same value again and again", [])
    batch = produced_batch(bytes(builder.build()))
    assert batch.codec is codec
    assert len(list(batch.keys())) == 500


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_kafka_python_reads_our_markers(kind: ControlType) -> None:
    data = bytes(
        end_transaction_marker(kind, producer_id=5, producer_epoch=1, coordinator_epoch=3, timestamp=7, base_offset=44)
    )
    check_batch(RecordBatch(data))
    (batch,) = memory_records.MemoryRecords(data)
    assert batch.is_control_batch
    (record,) = batch
    assert (record.offset, record.abort, record.commit) == (44, kind is ControlType.ABORT, kind is ControlType.COMMIT)
