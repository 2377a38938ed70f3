from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.protocol.records.batches import NOW_MS, Drawn, drawn, patched, simple_batch

from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records.batch import RecordBatch, TimestampType, as_int64, increment_sequence, iter_batches
from pybroker.protocol.records.compression import Codec
from pybroker.protocol.records.validation import check_batch


def test_the_header_field_by_field() -> None:
    data = bytes.fromhex(
        "0000000000000005 00000041 00000007 02 5a8c4e2f 0014 00000002 0000000000000064 00000000000000c8"
        "0000000000000009 0003 0000000b 00000003" + "00" * 16
    )
    batch = RecordBatch(data)
    assert (batch.base_offset, batch.size_bytes, batch.partition_leader_epoch, batch.magic) == (5, 77, 7, 2)
    assert (batch.crc, batch.attributes, batch.last_offset_delta) == (0x5A8C4E2F, 0x14, 2)
    assert (batch.base_timestamp, batch.max_timestamp) == (100, 200)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.count) == (9, 3, 11, 3)
    assert (batch.last_offset, batch.next_offset, batch.last_sequence) == (7, 8, 13)
    assert (batch.codec, batch.timestamp_type) == (Codec.ZSTD, TimestampType.CREATE_TIME)
    assert (batch.is_transactional, batch.is_control, batch.has_producer_id) == (True, False, True)
    assert batch.delete_horizon_ms is None
    assert batch.end == len(data)


def test_the_view_copies_nothing() -> None:
    data = simple_batch()
    view = RecordBatch(b"before" + data, 6).view()
    assert view == data
    assert RecordBatch(data).view().obj is data


@given(st.lists(drawn(), max_size=4), st.integers(0, 60))
def test_a_run_of_batches(run: list[Drawn], cut: int) -> None:
    batches = [each.build() for each in run]
    data = b"".join(batches) + simple_batch()[:cut]
    assert [bytes(batch.view()) for batch in iter_batches(data)] == batches


def test_a_run_that_goes_wrong_in_the_middle() -> None:
    good = simple_batch()
    for bad, message in (
        (patched(good, ">i", 8, 13, new_crc=False), f"at byte {len(good)} states a size of 25 bytes"),
        (patched(good, ">i", 8, -1, new_crc=False), "states a size of 11 bytes; expected at least 61"),
        (patched(good, ">i", 8, 40, new_crc=False), "states a size of 52 bytes; expected at least 61"),
        (patched(good, ">b", 16, 3, new_crc=False), f"at byte {len(good)} has magic 3; expected 2"),
        (patched(good, ">b", 16, -1, new_crc=False), "has magic -1"),
    ):
        batches = iter_batches(good + bad)
        assert next(batches).size_bytes == len(good)
        with pytest.raises(KafkaError, match=message) as caught:
            next(batches)
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1])
def test_the_old_formats_are_refused(magic: int) -> None:
    old = patched(simple_batch(), ">b", 16, magic, new_crc=False)
    for data in (old, old[:40]):
        with pytest.raises(KafkaError, match=f"magic {magic}; expected 2") as caught:
            RecordBatch(data)
        assert caught.value.code == ErrorCode.INVALID_RECORD


def test_a_view_lies_inside_its_buffer() -> None:
    data = simple_batch()
    for short in (b"", data[:16], data[:60], data[:-1]):
        with pytest.raises(KafkaError) as caught:
            RecordBatch(short)
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(KafkaError, match="0 bytes remain"):
        RecordBatch(data, len(data) + 5)


@pytest.mark.parametrize("codec", Codec)
def test_stamping_the_place_leaves_the_crc_alone(codec: Codec) -> None:
    data = simple_batch(codec=codec)
    batch = RecordBatch(data)
    before = list(batch.records())
    batch.stamp(1000, 5)
    again = RecordBatch(data)
    check_batch(again)
    assert (again.base_offset, again.last_offset, again.partition_leader_epoch) == (1000, 1002, 5)
    assert (batch.base_offset, batch.partition_leader_epoch, batch.crc) == (1000, 5, again.crc)
    assert list(again.records()) == [each._replace(offset=each.offset + 1000) for each in before]


@pytest.mark.parametrize("codec", Codec)
def test_stamping_log_append_time(codec: Codec) -> None:
    data = simple_batch(codec=codec)
    batch = RecordBatch(data)
    batch.stamp_append_time(NOW_MS + 999)
    again = RecordBatch(data)
    check_batch(again)
    assert again.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert {each.timestamp for each in again.records()} == {NOW_MS + 999}
    assert (batch.crc, batch.max_timestamp, batch.attributes) == (again.crc, again.max_timestamp, again.attributes)
    again.stamp_max_timestamp(NOW_MS + 2)
    assert data == simple_batch(codec=codec)


def test_a_maximum_that_is_right_already_is_not_written() -> None:
    read_only = bytes(simple_batch())
    batch = RecordBatch(read_only)
    batch.stamp_max_timestamp(batch.max_timestamp)
    with pytest.raises(TypeError):
        batch.stamp_max_timestamp(batch.max_timestamp + 1)


def test_sequences_wrap() -> None:
    assert increment_sequence(2**31 - 1, 1) == 0
    assert increment_sequence(2**31 - 2, 5) == 3
    assert RecordBatch(simple_batch(producer_id=1, producer_epoch=0, base_sequence=2**31 - 1)).last_sequence == 1
    assert RecordBatch(simple_batch()).last_sequence == -1


def test_longs_wrap() -> None:
    assert [as_int64(value) for value in (0, -1, 2**63 - 1, 2**63, -(2**63) - 1)] == [
        0,
        -1,
        2**63 - 1,
        -(2**63),
        2**63 - 1,
    ]
