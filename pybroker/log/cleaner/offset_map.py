"""The latest offset of each key, in one flat buffer: 24 bytes a slot, the MD5 of the key and the offset.

Two keys with the same MD5 count as one, as in Apache Kafka. The hash names a bucket of eight slots, in which one call of C
looks for it; a full bucket runs over into the next. Slots fill in order, and zeros are a free one. One thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from struct import Struct
from typing import Final, Protocol, cast

SLOT_BYTES: Final = 24
MISSING: Final = -1
_OFFSET_AT: Final = 16
_BUCKET_SLOTS: Final = 8
_BUCKET_BYTES: Final = _BUCKET_SLOTS * SLOT_BYTES
_LAST_SLOT: Final = _BUCKET_BYTES - SLOT_BYTES
_FREE: Final = bytes(16)

_pack_slot = Struct(">16sq").pack_into
_unpack_first = Struct(">Q").unpack_from
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
        """At most `buffer_bytes` large, and no larger than `max_keys` need."""
        buckets = buffer_bytes // _BUCKET_BYTES
        if max_keys is not None:
            buckets = min(buckets, int((max_keys + 1) / load_factor) // _BUCKET_SLOTS + 1)
        # Never wholly full: a search for what is not there ends at a free slot.
        self.capacity = min(int(buckets * _BUCKET_SLOTS * load_factor), buckets * _BUCKET_SLOTS - 1)
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
        find = data.find
        for offset, key in keys:
            if key is None or offset < first_offset:
                continue
            if size >= capacity:
                self._size = size
                return False
            digest = hashed(key).digest()
            bucket: int = _unpack_first(digest)[0] % buckets * _BUCKET_BYTES
            while (slot := find(digest, bucket, bucket + _BUCKET_BYTES)) < 0:
                if (free := find(_FREE, bucket, bucket + _BUCKET_BYTES)) >= 0:
                    # The zeros may begin in the offset of the slot before.
                    slot = bucket + -(-(free - bucket) // SLOT_BYTES) * SLOT_BYTES
                    size += 1
                    break
                bucket += _BUCKET_BYTES
                if bucket == len(data):
                    bucket = 0
            _pack_slot(data, slot, digest, offset)
            self.latest_offset = offset
        self._size = size
        return True

    def get(self, key: bytes) -> int:
        """The latest offset of the key, or MISSING."""
        digest = md5(key).digest()
        bucket: int = _unpack_first(digest)[0] % self._buckets * _BUCKET_BYTES
        data = self._data
        slot = data.find(digest, bucket, bucket + _BUCKET_BYTES)
        while slot < 0:
            if data.startswith(_FREE, bucket + _LAST_SLOT):
                return MISSING
            bucket += _BUCKET_BYTES
            if bucket == len(data):
                bucket = 0
            slot = data.find(digest, bucket, bucket + _BUCKET_BYTES)
        offset: int = _unpack_offset(data, slot + _OFFSET_AT)[0]
        return offset

    def clear(self) -> None:
        self._data = bytearray(len(self._data))
        self._size = 0
        self.latest_offset = MISSING
