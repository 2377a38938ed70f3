"""Zigzag varints as records use them: seven bits a byte, low end first, the sign in the lowest bit.

Pure functions. Decoding gives the value and the position behind it; it raises IndexError where the bytes end too early
and ValueError where they go on too long, which the record walks turn into one KafkaError. Bits beyond 32 or 64 are
dropped, as Java's shifts do.
"""

from __future__ import annotations

MAX_VARINT_BYTES = 5
MAX_VARLONG_BYTES = 10


def _encode(zigzag: int) -> bytes:
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


# Indexed by the value itself: a negative one counts from the end.
_ONE_BYTE = [_encode(value << 1) for value in range(64)] + [_encode(-value * 2 - 1) for value in range(-64, 0)]


def encode_varint(value: int) -> bytes:
    """`value` as a zigzag varint; the same bytes serve int32 and int64."""
    if -64 <= value < 64:
        return _ONE_BYTE[value]
    zigzag = value << 1 if value >= 0 else -value * 2 - 1
    if zigzag < 0x4000:
        return bytes((zigzag & 0x7F | 0x80, zigzag >> 7))
    return _encode(zigzag)


def decode_raw_varint(data: bytes | bytearray | memoryview, pos: int) -> tuple[int, int]:
    """The 32 bits at `pos`, sign still folded in, and the position behind them."""
    byte = data[pos]
    pos += 1
    raw = byte & 0x7F
    shift = 7
    while byte > 0x7F:
        if shift == 35:
            raise ValueError(f"a varint is longer than {MAX_VARINT_BYTES} bytes")
        byte = data[pos]
        pos += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
    return raw & 0xFFFFFFFF, pos


def decode_raw_varlong(data: bytes | bytearray | memoryview, pos: int) -> tuple[int, int]:
    """The 64 bits at `pos`, sign still folded in, and the position behind them."""
    byte = data[pos]
    pos += 1
    raw = byte & 0x7F
    shift = 7
    while byte > 0x7F:
        if shift == 70:
            raise ValueError(f"a varlong is longer than {MAX_VARLONG_BYTES} bytes")
        byte = data[pos]
        pos += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
    return raw & 0xFFFFFFFFFFFFFFFF, pos


def decode_varint(data: bytes | bytearray | memoryview, pos: int) -> tuple[int, int]:
    """The int32 at `pos` and the position behind it."""
    raw, pos = decode_raw_varint(data, pos)
    return (raw >> 1) ^ -(raw & 1), pos


def decode_varlong(data: bytes | bytearray | memoryview, pos: int) -> tuple[int, int]:
    """The int64 at `pos` and the position behind it."""
    raw, pos = decode_raw_varlong(data, pos)
    return (raw >> 1) ^ -(raw & 1), pos
