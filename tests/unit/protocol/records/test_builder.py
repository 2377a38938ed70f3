from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.protocol.records.batches import NOW_MS, Drawn, batch_around, drawn, simple_batch

from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records.batch import RecordBatch, TimestampType
from pybroker.protocol.records.builder import BatchBuilder, rebuild
from pybroker.protocol.records.compression import Codec
from pybroker.protocol.records.validation import check_batch, check_records
from pybroker.protocol.records.varint import encode_varint as varint


@given(drawn())
def test_the_header_follows_from_the_rows(built: Drawn) -> None:
    batch = RecordBatch(built.build())
    check_batch(batch)
    timestamps = [record.timestamp for record in built.records]
    assert batch.base_offset == built.base_offset
    assert batch.last_offset == built.records[-1].offset
    assert batch.count == len(built.records)
    assert batch.codec == built.codec
    assert batch.is_transactional == built.transactional
    if built.append_time_ms is None:
        assert (batch.timestamp_type, batch.max_timestamp) == (TimestampType.CREATE_TIME, max(timestamps))
    else:
        assert (batch.timestamp_type, batch.max_timestamp) == (TimestampType.LOG_APPEND_TIME, built.append_time_ms)
    assert batch.delete_horizon_ms == built.delete_horizon_ms
    assert batch.base_timestamp == (timestamps[0] if built.delete_horizon_ms is None else built.delete_horizon_ms)


def test_offsets_and_size_while_building() -> None:
    builder = BatchBuilder(10)
    assert builder.append(NOW_MS, None, b"a") == 10
    assert builder.append(NOW_MS, None, b"b", offset=15) == 15
    assert builder.append(NOW_MS, None, b"c") == 16
    assert (builder.next_offset, builder.count) == (17, 3)
    size = builder.size_bytes
    assert len(builder.build()) == size
    with pytest.raises(AssertionError, match="the next is 17"):
        builder.append(NOW_MS, None, b"d", offset=16)


@given(drawn(), st.data())
def test_compaction_keeps_offsets_producer_and_range(built: Drawn, data: st.DataObject) -> None:
    batch = RecordBatch(built.build())
    kept = [record for record in batch.records() if data.draw(st.booleans())]
    left = RecordBatch(rebuild(batch, kept, delete_horizon_ms=data.draw(st.sampled_from((None, NOW_MS)))))
    check_batch(left)
    assert list(left.records()) == kept
    assert (left.base_offset, left.last_offset, left.last_sequence) == (
        batch.base_offset,
        batch.last_offset,
        batch.last_sequence,
    )
    assert (left.producer_id, left.producer_epoch) == (batch.producer_id, batch.producer_epoch)
    assert left.partition_leader_epoch == batch.partition_leader_epoch


def test_an_emptied_batch_keeps_its_header() -> None:
    batch = RecordBatch(simple_batch(codec=Codec.LZ4, base_offset=40, producer_id=3, producer_epoch=1, base_sequence=8))
    empty = RecordBatch(rebuild(batch, ()))
    check_batch(empty)
    assert (empty.size_bytes, empty.count, empty.codec) == (61, 0, Codec.NONE)
    assert (empty.base_offset, empty.last_offset, empty.last_sequence) == (40, 42, 10)
    assert (empty.base_timestamp, empty.max_timestamp) == (-1, NOW_MS + 2)
    assert list(empty.records()) == []


def test_a_rewrite_refuses_offsets_that_a_hostile_producer_mixed_up() -> None:
    def record(delta: int) -> bytes:
        return varint(8) + b"\x00\x00" + varint(delta) + b"\x02k\x02v\x00"

    for deltas in ((1, 0), (0, 0), (0, 5), (-1, 0)):
        batch = RecordBatch(batch_around(b"".join(map(record, deltas)), 2))
        with pytest.raises(KafkaError, match="has offset") as caught:
            rebuild(batch, batch.records())
        assert caught.value.code == ErrorCode.INVALID_RECORD


def test_a_timestamp_that_leaves_int64_wraps_as_in_java() -> None:
    body = b"\x00" + varint(2**63 - 1) + b"\x00\x02k\x02v\x00"
    batch = RecordBatch(batch_around(varint(len(body)) + body))
    wrapped = NOW_MS + 2**63 - 1 - 2**64
    assert check_records(batch).max_timestamp == wrapped
    left = RecordBatch(rebuild(batch, batch.records()))
    assert (left.base_timestamp, left.max_timestamp) == (wrapped, -1)
