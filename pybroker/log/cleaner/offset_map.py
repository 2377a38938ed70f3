"""The latest offset of each key, in one flat buffer: 24 bytes a slot, the MD5 of the key and the offset.

Two keys with the same MD5 count as one, as in Apache Kafka. The hash names a bucket of slots, in which one call of C
looks for it; from a full bucket its second half leads on to others, in steps that reach all of them since their number is a
prime. So the table may be 99 % full, where steps of one would pass a hundred full buckets: a million keys take 24.2 MB.
Slots fill in order, and zeros are a free one. One thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from itertools import count
from math import isqrt
from struct import Struct
from typing import Final, Protocol, cast

SLOT_BYTES: Final = 24
MISSING: Final = -1
_OFFSET_AT: Final = 16
_BUCKET_SLOTS: Final = 32  # more take longer to search, with fewer more of them are full
_BUCKET_BYTES: Final = _BUCKET_SLOTS * SLOT_BYTES
_LAST_SLOT: Final = _BUCKET_BYTES - SLOT_BYTES
_FREE: Final = bytes(16)
_SPARE: Final = 0.01  # of the slots, where the number of keys is known beforehand

_pack_slot = Struct(">16sq").pack_into
_unpack_first = Struct(">Q").unpack_from
_unpack_second = Struct(">8xQ").unpack_from
_unpack_offset = Struct(">q").unpack_from


class _Hash(Protocol):
    def digest(self) -> bytes: ...


def _md5() -> Callable[[bytes], _Hash]:
    """CPython's own takes half as long for a short key as OpenSSL's, and is there where a FIPS mode forbids that one."""
    try:
        return cast("Callable[[bytes], _Hash]", import_module("_md5").md5)
    except ImportError:
        from hashlib import md5

        return lambda key: md5(key, usedforsecurity=False)


md5 = _md5()


class OffsetMap:
    __slots__ = ("_buckets", "_data", "_size", "capacity", "latest_offset")

    def __init__(self, buffer_bytes: int, load_factor: float = 0.9, *, max_keys: int | None = None) -> None:
        """At most `buffer_bytes`, of which the keys get the share of `load_factor`, and no more than `max_keys` need."""
        buckets = _prime_up_to(buffer_bytes // _BUCKET_BYTES)
        # Never wholly full: a search for what is not there ends at a free slot.
        self.capacity = min(int(buckets * _BUCKET_SLOTS * load_factor), buckets * _BUCKET_SLOTS - 1)
        if max_keys is not None and max_keys < self.capacity:
            self.capacity = max_keys + 1
            buckets = min(buckets, _prime_from(int(self.capacity * (1 + _SPARE)) // _BUCKET_SLOTS + 1))
        if self.capacity < 1:
            raise ValueError(
                f"A map of {buffer_bytes} bytes with load factor {load_factor} has no room for a key; raise "
                f"log.cleaner.dedupe.buffer.size or lower log.cleaner.threads"
            )
        self._buckets = buckets
        self._data = bytearray(buckets * _BUCKET_BYTES)
        self._size = 0
        self.latest_offset = MISSING

    def __len__(self) -> int:
        return self._size

    @property
    def size_bytes(self) -> int:
        return len(self._data)

    def put(self, key: bytes, offset: int) -> None:
        if not self.put_all(((offset, key),), offset):
            raise ValueError(f"the map is full with {self._size} keys")

    def put_all(self, keys: Iterable[tuple[int, bytes | None]], first_offset: int) -> bool:
        """Take in (offset, key) from `first_offset` on, in ascending offsets; False, and no more taken, once the map is full.

        As in Apache Kafka a full map takes no known key either: `latest_offset` is the last one that got in.
        """
        data, buckets, size, capacity, hashed = self._data, self._buckets, self._size, self.capacity, md5
        find, size_bytes = data.find, len(data)
        for offset, key in keys:
            if key is None or offset < first_offset:
                continue
            if size >= capacity:
                self._size = size
                return False
            digest = hashed(key).digest()
            bucket: int = _unpack_first(digest)[0] % buckets * _BUCKET_BYTES
            step = 0
            while (slot := find(digest, bucket, bucket + _BUCKET_BYTES)) < 0:
                if (free := find(_FREE, bucket, bucket + _BUCKET_BYTES)) >= 0:
                    # The zeros may begin in the offset of the slot before.
                    slot = bucket + -(-(free - bucket) // SLOT_BYTES) * SLOT_BYTES
                    size += 1
                    break
                step = step or _step(digest, buckets)
                bucket += step
                if bucket >= size_bytes:
                    bucket -= size_bytes
            _pack_slot(data, slot, digest, offset)
            self.latest_offset = offset
        self._size = size
        return True

    def get(self, key: bytes) -> int:
        """The latest offset of the key, or MISSING."""
        digest = md5(key).digest()
        bucket: int = _unpack_first(digest)[0] % self._buckets * _BUCKET_BYTES
        data = self._data
        step = 0
        while (slot := data.find(digest, bucket, bucket + _BUCKET_BYTES)) < 0:
            if data.startswith(_FREE, bucket + _LAST_SLOT):
                return MISSING
            step = step or _step(digest, self._buckets)
            bucket += step
            if bucket >= len(data):
                bucket -= len(data)
        offset: int = _unpack_offset(data, slot + _OFFSET_AT)[0]
        return offset

    def clear(self) -> None:
        self._data = bytearray(len(self._data))
        self._size = 0
        self.latest_offset = MISSING


def _step(digest: bytes, buckets: int) -> int:
    """In bytes, from a full bucket to the next in which the key may be. A sole bucket is never full."""
    step: int = (_unpack_second(digest)[0] % (buckets - 1) + 1) * _BUCKET_BYTES
    return step


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, isqrt(number) + 1))


def _prime_up_to(number: int) -> int:
    """1 and 0 pass for primes: a sole bucket, or none, needs no steps."""
    return next(candidate for candidate in range(number, -1, -1) if _is_prime(candidate))


def _prime_from(number: int) -> int:
    return next(candidate for candidate in count(number) if _is_prime(candidate))
