"""Hashes as Java has them: which partition of a coordinator's topic a group belongs to, and in what order a HashMap goes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, TypeVar

T = TypeVar("T")

_SMALLEST_TABLE: Final = 16


def java_hash(text: str) -> int:
    """Of the UTF-16 code units, as an int32."""
    hashed = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        hashed = (31 * hashed + (high << 8 | low)) & 0xFFFFFFFF
    return hashed - (1 << 32) if hashed >= 1 << 31 else hashed


def uuid_hash(uuid: bytes) -> int:
    """Of a Kafka Uuid, as 32 bits without a sign."""
    both = int.from_bytes(uuid[:8], "big") ^ int.from_bytes(uuid[8:], "big")
    return (both >> 32) ^ (both & 0xFFFFFFFF)


def partition_of(key: str, partitions: int) -> int:
    """The smallest int32 has no opposite: Kafka takes 0 for it."""
    hashed = java_hash(key)
    return (0 if hashed == -(1 << 31) else abs(hashed)) % partitions


def in_table_order(items: Collection[T], hash_of: Callable[[T], int], *, is_copy: bool = False) -> list[T]:
    """`items` as Java goes through a HashMap or HashSet with these keys: by bucket. Apache Kafka's assignors choose in that
    order. A table that was filled as a copy of another collection has room for a little more than one that grew."""
    least = max(int(len(items) / 0.75) + 1, _SMALLEST_TABLE) if is_copy else _SMALLEST_TABLE
    size = _SMALLEST_TABLE
    while size < least or len(items) > size * 3 // 4:
        size *= 2

    def bucket(item: T) -> int:
        hashed = hash_of(item) & 0xFFFFFFFF
        return (hashed ^ hashed >> 16) & size - 1

    return sorted(items, key=bucket)
