from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from unit.protocol.records.batches import NOW_MS, Drawn, batch_around, drawn, patched, simple_batch, with_crc

from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records.batch import RecordBatch, iter_batches
from pybroker.protocol.records.builder import BatchBuilder, rebuild
from pybroker.protocol.records.compression import Codec, compress
from pybroker.protocol.records.validation import RecordsSummary, check_batch, check_records, produced_batch

GOOD = simple_batch()


@given(drawn(gaps=False))
def test_what_a_producer_may_send(built: Drawn) -> None:
    data = built.build()
    batch = produced_batch(data, len(data))
    assert batch.view() == data
    summary = check_records(batch)
    timestamps = [record.timestamp for record in built.records]
    keyless = [index for index, record in enumerate(built.records) if record.key is None]
    assert (summary.min_timestamp, summary.max_timestamp) == (min(timestamps), max(timestamps))
    assert summary.first_without_key == (keyless[0] if keyless else -1)
    assert summary.payload_bytes == len(batch.payload())


REFUSED: dict[str, tuple[bytes | bytearray | None, ErrorCode, str]] = {
    "nothing": (None, ErrorCode.INVALID_RECORD, "0 bytes hold no whole record batch"),
    "no bytes": (b"", ErrorCode.INVALID_RECORD, "0 bytes hold no whole record batch"),
    "a part of a batch": (GOOD[:-1], ErrorCode.INVALID_RECORD, "hold no whole record batch"),
    "two batches": (GOOD + GOOD, ErrorCode.INVALID_RECORD, "several record batches"),
    "zeros behind it": (GOOD + bytes(40), ErrorCode.CORRUPT_MESSAGE, "states a size of 12 bytes"),
    "magic 0": (patched(GOOD, ">b", 16, 0), ErrorCode.INVALID_RECORD, "magic 0; expected 2"),
    "magic 1": (patched(GOOD, ">b", 16, 1), ErrorCode.INVALID_RECORD, "magic 1; expected 2"),
    "magic 3": (patched(GOOD, ">b", 16, 3), ErrorCode.CORRUPT_MESSAGE, "magic 3; expected 2"),
    "length 0": (patched(GOOD, ">i", 8, 0), ErrorCode.CORRUPT_MESSAGE, "size of 12 bytes; expected at least 61"),
    "length -1": (patched(GOOD, ">i", 8, -1), ErrorCode.CORRUPT_MESSAGE, "size of 11 bytes"),
    "length one less": (patched(GOOD, ">i", 8, len(GOOD) - 13), ErrorCode.CORRUPT_MESSAGE, "CRC"),
    "wrong CRC": (patched(GOOD, ">I", 17, 1, new_crc=False), ErrorCode.CORRUPT_MESSAGE, "states CRC 0x00000001"),
    "a flipped bit": (patched(GOOD, ">b", 70, 99, new_crc=False), ErrorCode.CORRUPT_MESSAGE, "its bytes give"),
    "base offset 7": (simple_batch(base_offset=7), ErrorCode.INVALID_RECORD, "base offset 7"),
    "no records": (patched(GOOD, ">i", 57, 0), ErrorCode.INVALID_RECORD, "states 0 records and last offset 2"),
    "negative count": (patched(GOOD, ">i", 57, -1), ErrorCode.INVALID_RECORD, "states -1 records"),
    "count too high": (patched(GOOD, ">i", 57, 4), ErrorCode.INVALID_RECORD, "states 4 records and last offset 2"),
    "last offset too low": (patched(GOOD, ">i", 23, 1), ErrorCode.INVALID_RECORD, "last offset 1"),
    "a control batch": (simple_batch(control=True), ErrorCode.INVALID_RECORD, "only brokers write those"),
    "no sequence": (simple_batch(producer_id=5, producer_epoch=0), ErrorCode.INVALID_RECORD, "base sequence -1"),
    "codec 5": (patched(GOOD, ">h", 21, 5), ErrorCode.UNKNOWN_SERVER_ERROR, "codec 5"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_producer_may_not_send(case: str) -> None:
    data, code, message = REFUSED[case]
    with pytest.raises(KafkaError, match=message) as caught:
        produced_batch(data)
    assert caught.value.code == code


@pytest.mark.parametrize("tail", [b"abc", GOOD[:-5]])
def test_a_part_of_a_batch_behind_the_batch_does_not_count(tail: bytes) -> None:
    assert produced_batch(GOOD + tail).view() == GOOD


def test_a_batch_larger_than_the_topic_takes() -> None:
    with pytest.raises(KafkaError, match=f"has {len(GOOD)} bytes; the topic takes at most 100") as caught:
        produced_batch(patched(GOOD, ">I", 17, 0, new_crc=False), 100)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", Codec)
def test_the_deep_check_finds_what_the_header_hides(codec: Codec) -> None:
    payload = RecordBatch(GOOD).payload()
    for count, plain, message in (
        (4, payload, "ends inside record 3 of the 4"),
        (2, payload, "bytes follow the 2 records"),
        (3, payload + b"x", "1 bytes follow"),
        (3, payload[:-1], "where .* remain"),
    ):
        batch = produced_batch(batch_around(compress(codec, plain), count, codec))
        with pytest.raises(KafkaError, match=message) as caught:
            check_records(batch)
        assert caught.value.code == ErrorCode.INVALID_RECORD


def test_offsets_must_be_sequential_in_a_produce_and_ascending_everywhere() -> None:
    builder = BatchBuilder()
    for offset in (0, 2, 3):
        builder.append(NOW_MS, b"k", b"v", offset=offset)
    batch = RecordBatch(builder.build())
    with pytest.raises(KafkaError, match="Record 1 of the batch has offset 2; expected 1"):
        check_records(batch)
    assert check_records(batch, sequential=False) == RecordsSummary(NOW_MS, NOW_MS, -1, 27)
    beyond = RecordBatch(patched(batch.view(), ">i", 23, 2))
    with pytest.raises(KafkaError, match="Record 2 of the batch has offset 3; expected 3 to 2"):
        check_records(beyond, sequential=False)


def test_the_summary_of_an_emptied_batch() -> None:
    empty = RecordBatch(rebuild(RecordBatch(GOOD), ()))
    assert check_records(empty) == RecordsSummary(-1, -1, -1, 0)


def everything(data: bytearray) -> None:
    """All that a broker may do with bytes that it did not write."""
    batch = produced_batch(data, 1_000_000)
    summary = check_records(batch, 100_000)
    assert len(list(batch.records(100_000))) == len(list(batch.keys(100_000))) == batch.count
    batch.stamp(2**40, 3)
    batch.stamp_max_timestamp(summary.max_timestamp)
    rebuild(batch, batch.records(100_000))


def shallow(data: bytearray) -> None:
    for batch in iter_batches(data):
        repr(batch)
        for walk in (batch.records, batch.keys):
            with suppress(KafkaError):
                for _ in walk(100_000):
                    pass
        with suppress(KafkaError):
            check_records(batch, 100_000, sequential=False)
            rebuild(batch, batch.records(100_000))
        check_batch(batch)


@settings(max_examples=400, deadline=None)
@given(drawn(max_size=500), st.data(), st.sampled_from((everything, shallow)))
def test_mutated_batches_raise_nothing_but_refusals(
    built: Drawn, data: st.DataObject, use: Callable[[bytearray], None]
) -> None:
    batch = built.build()
    if data.draw(st.booleans()):
        # Mutate below the compression, where a CRC and a codec no longer stand guard.
        payload = bytearray(RecordBatch(batch).payload())
        mutate(payload, data)
        batch = batch[:61] + compress(built.codec, payload)
    for _ in range(data.draw(st.integers(0, 2))):
        mutate(batch, data)
    if data.draw(st.booleans()) and len(batch) >= 61:
        batch = patched(batch, ">i", 8, len(batch) - 12)
    elif len(batch) > 21:
        batch = with_crc(batch)
    with suppress(KafkaError):
        use(batch)


def mutate(buffer: bytearray, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(buffer)))
    kind = data.draw(st.sampled_from(("flip", "cut", "insert", "extreme")))
    if kind == "flip" and at < len(buffer):
        buffer[at] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        del buffer[at : at + data.draw(st.integers(1, 20))]
    elif kind == "insert":
        buffer[at:at] = data.draw(st.binary(max_size=10))
    else:
        buffer[at : at + 8] = data.draw(st.sampled_from((b"\xff", b"\x80", b"\x7f", b"\x00"))) * 8


@given(st.binary(max_size=200))
@example(b"\xff" * 200)
@example(bytes(200))
def test_noise_raises_nothing_but_refusals(noise: bytes) -> None:
    for use in (everything, shallow):
        with suppress(KafkaError):
            use(bytearray(noise))


@given(st.binary(max_size=100), st.integers(-5, 2**31 - 1), st.sampled_from(Codec))
def test_noise_as_a_payload(noise: bytes, count: int, codec: Codec) -> None:
    batch = patched(batch_around(compress(codec, noise), 1, codec), ">i", 57, count)
    for use in (everything, shallow):
        with suppress(KafkaError):
            use(bytearray(batch))
