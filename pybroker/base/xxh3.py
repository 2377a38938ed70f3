"""XXH3 with 64 bits and no seed, as the xxHash specification has it: a hash that is stored and must be anybody's.

Consumer groups keep such a hash of what they know of their topics. The inputs are short; nothing here is for bulk data.
"""

from __future__ import annotations

import struct
from typing import Final

_SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_MASK: Final = (1 << 64) - 1
_P32_1, _P32_2, _P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P64_1, _P64_2, _P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P64_4, _P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MIX_1, _MIX_2 = 0x165667919E3779F9, 0x9FB21C651E98DF25

_STRIPE: Final = 64
_STRIPES_OF_BLOCK: Final = (len(_SECRET) - _STRIPE) // 8
_BLOCK: Final = _STRIPE * _STRIPES_OF_BLOCK

_U32: Final = struct.Struct("<I").unpack_from
_U64: Final = struct.Struct("<Q").unpack_from
_LANES: Final = struct.Struct("<8Q").unpack_from


def xxh3_64(data: bytes) -> int:
    """As an unsigned number."""
    length = len(data)
    if length <= 16:
        return _short(data, length)
    if length > 240:
        return _long(data, length)
    return _avalanche((length * _P64_1 + (_up_to_128(data, length) if length <= 128 else _up_to_240(data, length))) & _MASK)


def _short(data: bytes, length: int) -> int:
    if length > 8:
        low = _u64(data, 0) ^ _u64(_SECRET, 24) ^ _u64(_SECRET, 32)
        high = _u64(data, length - 8) ^ _u64(_SECRET, 40) ^ _u64(_SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche((length + swapped + high + _folded(low, high)) & _MASK)
    if length >= 4:
        keyed = _u32(data, length - 4) + (_u32(data, 0) << 32)
        keyed ^= _u64(_SECRET, 8) ^ _u64(_SECRET, 16)
        keyed ^= _rotated(keyed, 49) ^ _rotated(keyed, 24)
        keyed = keyed * _MIX_2 & _MASK
        keyed ^= (keyed >> 35) + length
        keyed = keyed * _MIX_2 & _MASK
        return keyed ^ keyed >> 28
    if length:
        combined = data[0] << 16 | data[length >> 1] << 24 | data[-1] | length << 8
        return _old_avalanche(combined ^ _u32(_SECRET, 0) ^ _u32(_SECRET, 4))
    return _old_avalanche(_u64(_SECRET, 56) ^ _u64(_SECRET, 64))


def _up_to_128(data: bytes, length: int) -> int:
    """Pairs of 16 bytes from both ends towards the middle."""
    total = 0
    for pair in range((length - 1) // 32 + 1):
        total += _mixed(data, 16 * pair, 32 * pair) + _mixed(data, length - 16 * (pair + 1), 32 * pair + 16)
    return total


def _up_to_240(data: bytes, length: int) -> int:
    """The first 128 bytes are stirred once before the rest comes; what is returned lacks the length's own share."""
    seed = length * _P64_1
    first = _avalanche((seed + sum([_mixed(data, 16 * one, 16 * one) for one in range(8)])) & _MASK)
    rest = sum([_mixed(data, 16 * one, 16 * (one - 8) + 3) for one in range(8, length // 16)])
    return first + rest + _mixed(data, length - 16, 136 - 17) - seed


def _long(data: bytes, length: int) -> int:
    lanes = [_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1]
    last_block = (length - 1) // _BLOCK
    for block in range(last_block + 1):
        stripes = _STRIPES_OF_BLOCK if block < last_block else (length - 1 - _BLOCK * last_block) // _STRIPE
        for stripe in range(stripes):
            _accumulate(lanes, data, block * _BLOCK + stripe * _STRIPE, stripe * 8)
        if block < last_block:
            keys = _LANES(_SECRET, len(_SECRET) - _STRIPE)
            for one in range(8):
                lanes[one] = (lanes[one] ^ lanes[one] >> 47 ^ keys[one]) * _P32_1 & _MASK
    _accumulate(lanes, data, length - _STRIPE, len(_SECRET) - _STRIPE - 7)
    total = length * _P64_1
    for one in range(0, 8, 2):
        total += _folded(lanes[one] ^ _u64(_SECRET, 11 + 8 * one), lanes[one + 1] ^ _u64(_SECRET, 19 + 8 * one))
    return _avalanche(total & _MASK)


def _accumulate(lanes: list[int], data: bytes, at: int, secret_at: int) -> None:
    values, keys = _LANES(data, at), _LANES(_SECRET, secret_at)
    for one in range(8):
        key = values[one] ^ keys[one]
        lanes[one ^ 1] = lanes[one ^ 1] + values[one] & _MASK
        lanes[one] = lanes[one] + (key & 0xFFFFFFFF) * (key >> 32) & _MASK


def _mixed(data: bytes, at: int, secret_at: int) -> int:
    return _folded(_u64(data, at) ^ _u64(_SECRET, secret_at), _u64(data, at + 8) ^ _u64(_SECRET, secret_at + 8))


def _folded(one: int, other: int) -> int:
    product = one * other
    return (product ^ product >> 64) & _MASK


def _avalanche(value: int) -> int:
    value = (value ^ value >> 37) * _MIX_1 & _MASK
    return value ^ value >> 32


def _old_avalanche(value: int) -> int:
    """That of XXH64."""
    value = (value ^ value >> 33) * _P64_2 & _MASK
    value = (value ^ value >> 29) * _P64_3 & _MASK
    return value ^ value >> 32


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _u32(data: bytes, at: int) -> int:
    (value,) = _U32(data, at)
    return int(value)


def _u64(data: bytes, at: int) -> int:
    (value,) = _U64(data, at)
    return int(value)
