from __future__ import annotations

import pytest
from hypothesis import given
from unit.protocol.records.batches import NOW_MS, Drawn, batch_around, drawn

from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records.batch import RecordBatch
from pybroker.protocol.records.record import Record
from pybroker.protocol.records.varint import encode_varint as varint


@given(drawn())
def test_what_was_built_is_read(batch: Drawn) -> None:
    view = RecordBatch(batch.build())
    assert list(view.records()) == batch.read()
    assert list(view.keys()) == [(record.offset, record.key) for record in batch.records]


def test_records_outlive_the_buffer_they_came_in() -> None:
    data = Drawn((Record(0, NOW_MS, b"key", b"value", (("h", b"x"),)),)).build()
    records = RecordBatch(data).records()
    data[61:] = bytes(len(data) - 61)
    assert list(records) == [Record(0, NOW_MS, b"key", b"value", (("h", b"x"),))]


def test_header_keys_that_are_no_utf_8_keep_their_bytes() -> None:
    raw = b"\x00\x00\x00\x02k\x02v" + b"\x02" + b"\x04\xff\xfe" + b"\x02x"
    batch = RecordBatch(batch_around(varint(len(raw)) + raw))
    (record,) = batch.records()
    assert record.headers == (("\udcff\udcfe", b"x"),)
    assert Drawn((record,)).build()[61:] == bytes(batch.view()[61:])


def record_bytes(body: bytes) -> bytes:
    return varint(len(body)) + body


BROKEN = {
    "no bytes at all": (b"", "ends inside record 0 of the 1"),
    "length of -1": (b"\x01" + b"\x00\x00\x00\x02k\x02v\x00", "length of -1 bytes"),
    "length of 0": (b"\x00", "ends inside record 0"),
    "length beyond the payload": (varint(2**31 - 1) + b"\x00\x00\x00\x02k\x02v\x00", "2147483647 bytes where 8 remain"),
    "length too short": (varint(5) + b"\x00\x00\x00\x02k\x02v\x00", "states its end at byte 6"),
    "length too long": (varint(9) + b"\x00\x00\x00\x02k\x02v\x00z", "states its end at byte 10 .* run to byte 9"),
    "length of six bytes": (b"\xff" * 6 + b"\x00" * 9, "longer than 5 bytes"),
    "timestamp of eleven bytes": (record_bytes(b"\x00" + b"\xff" * 11 + b"\x00\x02k\x02v\x00"), "longer than 10 bytes"),
    "key beyond the record": (record_bytes(b"\x00\x00\x00" + varint(100) + b"k\x02v\x00"), "run to byte"),
    "value beyond the record": (record_bytes(b"\x00\x00\x00\x02k" + varint(100) + b"v\x00"), "run to byte"),
    "no header count": (record_bytes(b"\x00\x00\x00\x02k\x02v"), "not complete"),
    "negative header count": (record_bytes(b"\x00\x00\x00\x02k\x02v\x01"), "claims -1 headers"),
    "more headers than bytes": (record_bytes(b"\x00\x00\x00\x02k\x02v" + varint(10**6)), "claims 1000000 headers"),
    "header key null": (record_bytes(b"\x00\x00\x00\x02k\x02v\x02\x01\x02v"), "header 0: a key of -1 bytes"),
    "header key beyond": (record_bytes(b"\x00\x00\x00\x02k\x02v\x02\x7ehh"), "header 0: a key of 63 bytes"),
    "header value beyond": (record_bytes(b"\x00\x00\x00\x02k\x02v\x02\x02h\x7ev"), "header 0: a value of 63 bytes"),
    "bytes behind the last": (record_bytes(b"\x00\x00\x00\x02k\x02v\x00") + b"x", "1 bytes follow the 1 records"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_record_says_what_is_wrong(case: str) -> None:
    payload, message = BROKEN[case]
    with pytest.raises(KafkaError, match=message) as caught:
        list(RecordBatch(batch_around(payload)).records())
    assert caught.value.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("case", [case for case in BROKEN if case.startswith(("no bytes", "length", "key", "bytes"))])
def test_the_walk_over_keys_refuses_what_it_sees(case: str) -> None:
    payload, _ = BROKEN[case]
    if case in ("length too long", "length too short"):
        payload = varint(4) + payload[1:]  # the key itself no longer fits
    with pytest.raises(KafkaError):
        list(RecordBatch(batch_around(payload)).keys())


def test_any_negative_length_is_a_null() -> None:
    payload = record_bytes(b"\x00\x00\x00" + varint(-2) + varint(-9) + b"\x00")
    assert list(RecordBatch(batch_around(payload)).records()) == [Record(0, NOW_MS, None, None)]
    assert list(RecordBatch(batch_around(payload)).keys()) == [(0, None)]
