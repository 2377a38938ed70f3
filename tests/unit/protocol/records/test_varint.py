from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.protocol.records.varint import decode_varint, decode_varlong, encode_varint

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (-8192, "ff7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_known_bytes(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert decode_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@given(INT32, st.binary(max_size=3))
def test_int32_there_and_back(value: int, before: bytes) -> None:
    data = before + encode_varint(value)
    assert decode_varint(data, len(before)) == (value, len(data))


@given(INT64)
def test_int64_there_and_back(value: int) -> None:
    data = encode_varint(value)
    assert len(data) <= 10
    assert decode_varlong(data, 0) == (value, len(data))


def test_longer_than_needed_is_read() -> None:
    assert decode_varint(b"\x82\x80\x00", 0) == (1, 3)


def test_bits_beyond_the_width_are_dropped() -> None:
    assert decode_varint(b"\x82\x80\x80\x80\x70", 0) == (1, 5)
    assert decode_varlong(b"\x82" + b"\x80" * 8 + b"\x7e", 0) == (1, 10)


def test_too_long_and_too_short() -> None:
    with pytest.raises(ValueError, match="longer than 5 bytes"):
        decode_varint(b"\x80" * 5 + b"\x00", 0)
    with pytest.raises(ValueError, match="longer than 10 bytes"):
        decode_varlong(b"\x80" * 10 + b"\x00", 0)
    with pytest.raises(IndexError):
        decode_varint(b"\x80\x80", 0)
    with pytest.raises(IndexError):
        decode_varlong(b"", 0)
