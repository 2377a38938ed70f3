"""The sparse indexes of a segment: offset to file position, timestamp to offset.

Entries lie in a memory map that grows by doubling and is cut to its entries when the segment is done with; a file that
Apache Kafka left preallocated with zeros is read up to its last entry. Appends come from one thread, look-ups from any: each
index has a lock of its own, since to shrink a file under somebody's map would kill the process.
"""

from __future__ import annotations

import os
import threading
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from pybroker.base.filesystem import FileSystem, Mapping, nothing_lost

MAX_RELATIVE_OFFSET: Final = 2**31 - 1
NO_TIMESTAMP: Final = -1
FIRST_CAPACITY: Final = 4096
# Of an index with more entries than the first, a search begins within the second of where the entry would be at even distances.
EVEN_FROM: Final = 64
EVEN_WITHIN: Final = 2


class OffsetPosition(NamedTuple):
    offset: int
    position: int


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


class CorruptIndexError(Exception):
    """An index that must be rebuilt from its segment."""


class _Empty(bytes):
    """What stands for the map of an empty file, which cannot be mapped."""

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


_EMPTY: Final = _Empty()


class Index:
    """Fixed-size entries in ascending order, none of which is all zeros."""

    entry: ClassVar[Struct]

    __slots__ = ("_count", "_filesystem", "_is_dirty", "_lock", "_map", "_max_entries", "base_offset", "path")

    def __init__(self, filesystem: FileSystem, path: str, base_offset: int, max_bytes: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self._filesystem = filesystem
        self._max_entries = max_bytes // self.entry.size
        self._count = -1  # not looked at yet
        self._map: Mapping | None = None
        self._is_dirty = False
        self._lock = threading.Lock()

    @property
    def entry_count(self) -> int:
        with self._lock:
            self._opened()
            return self._count

    @property
    def is_full(self) -> bool:
        count = self._count
        return (count if count >= 0 else self.entry_count) >= self._max_entries

    @property
    def free_entries(self) -> int:
        count = self._count
        return self._max_entries - (count if count >= 0 else self.entry_count)

    @property
    def size_bytes(self) -> int:
        return self.entry_count * self.entry.size

    def create(self) -> None:
        """Make the file, empty, so that its absence later means a loss."""
        self._filesystem.open(self.path, create=True).close()
        self._count = 0
        self._is_dirty = True

    def set_max_bytes(self, max_bytes: int) -> None:
        self._max_entries = max_bytes // self.entry.size

    def trim(self) -> None:
        """Give back what the file has beyond its entries; further appends take it again."""
        with self._lock:
            # Another segment's opening may have cost this one its map, before the file was cut to size.
            self._opened()
            self._unmap(trimmed=True)

    def flush(self) -> None:
        """Entries and size of the file on disk."""
        with self._lock:
            if self._is_dirty:
                file = self._filesystem.open(self.path)
                try:
                    with nothing_lost(self.path):
                        if self._map is not None:
                            self._map.flush()
                        file.sync()
                finally:
                    file.close()
                self._is_dirty = False

    def release(self) -> None:
        """Let go of the map; the next use maps again."""
        with self._lock:
            self._unmap(trimmed=False)

    def close(self) -> None:
        with self._lock:
            self._unmap(trimmed=True)

    def moved(self, path: str) -> None:
        """The file has another name now."""
        with self._lock:
            self.path = path

    def rename(self, path: str) -> None:
        """Give the file, if there is one, another name; nobody looks for it by the old one in between."""
        with self._lock:
            if self._filesystem.exists(self.path):
                self._filesystem.rename(self.path, path)
            self.path = path

    def start_over(self, path: str) -> None:
        """Begin anew, empty, in another file."""
        with self._lock:
            self._unmap(trimmed=False)
            self.path = path
            file = self._filesystem.open(path, create=True)
            try:
                file.truncate(0)
            finally:
                file.close()
            self._count = 0
            self._is_dirty = True

    def _opened(self) -> Mapping:
        """The map of what the file holds, made if need be. Called with the lock held, as everything below."""
        mapping = self._map
        if mapping is None:
            file = self._filesystem.open(self.path)
            try:
                size = file.size()
                whole = size - size % self.entry.size
                mapping = file.map(whole) if whole else _EMPTY
            finally:
                file.close()
            self._map = mapping
            if not 0 <= self._count <= whole // self.entry.size:
                self._count = self._entries_in(mapping, whole // self.entry.size)
        return mapping

    def _entries_in(self, mapping: Mapping, count: int) -> int:
        """How many entries stand before the zeros that a file may be preallocated with."""
        size = self.entry.size
        zeros = bytes(size)
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if mapping[middle * size : middle * size + size] == zeros:
                high = middle
            else:
                low = middle + 1
        return low

    def _room_for_one(self) -> Mapping:
        mapping = self._opened()
        self._is_dirty = True
        capacity = len(mapping)
        if (self._count + 1) * self.entry.size > capacity:
            self._map = None
            mapping.close()
            file = self._filesystem.open(self.path)
            try:
                self._map = mapping = file.map(2 * capacity or FIRST_CAPACITY // self.entry.size * self.entry.size)
            finally:
                file.close()
        return mapping

    def _count_below(self, mapping: Mapping, column: int, limit: int) -> int:
        """How many entries have the column, which ascends, at or below `limit`."""
        unpack, size = self.entry.unpack_from, self.entry.size
        low, high = 0, self._count
        if high > EVEN_FROM:
            first, last = unpack(mapping, 0)[column], unpack(mapping, (high - 1) * size)[column]
            if limit >= last:
                return high
            if limit > first:
                # Entries mostly come at even distances: look around the place where it would be then.
                guess = (limit - first) * (high - 1) // (last - first)
                near = guess - EVEN_WITHIN
                if near > 0 and unpack(mapping, near * size)[column] <= limit:
                    low = near + 1
                near = guess + EVEN_WITHIN
                if near < high and unpack(mapping, near * size)[column] > limit:
                    high = near
        while low < high:
            middle = (low + high) // 2
            if unpack(mapping, middle * size)[column] <= limit:
                low = middle + 1
            else:
                high = middle
        return low

    def _cut(self, count: int) -> None:
        """Keep the first `count` entries; the rest becomes zeros, so that a crash finds none of it."""
        mapping = self._opened()
        size = self.entry.size
        if count < self._count:
            self._is_dirty = True
            with memoryview(mapping) as view:
                view[count * size : self._count * size] = bytes((self._count - count) * size)
            self._count = count

    def _unmap(self, *, trimmed: bool) -> None:
        mapping, self._map = self._map, None
        if mapping is None:
            return
        length = len(mapping)
        mapping.close()
        if trimmed and length != self._count * self.entry.size:
            self._is_dirty = True
            file = self._filesystem.open(self.path)
            try:
                file.truncate(self._count * self.entry.size)
            finally:
                file.close()

    def _check(self) -> Mapping:
        """Faults that both kinds share."""
        if not self._filesystem.exists(self.path):
            raise CorruptIndexError("the file is missing")
        file = self._filesystem.open(self.path, read_only=True)
        try:
            size = file.size()
        finally:
            file.close()
        if size % self.entry.size:
            raise CorruptIndexError(f"its {size} bytes are no multiple of {self.entry.size}")
        return self._opened()

    def _relative(self, offset: int) -> int:
        relative = offset - self.base_offset
        assert 0 <= relative <= MAX_RELATIVE_OFFSET, f"{os.path.basename(self.path)} cannot hold offset {offset}"
        return relative


_PLACE: Final = Struct(">ii")
_pack_place: Final = _PLACE.pack_into
_unpack_place: Final = _PLACE.unpack_from
_TIME: Final = Struct(">qi")
_pack_time: Final = _TIME.pack_into
_unpack_time: Final = _TIME.unpack_from


class OffsetIndex(Index):
    """Where in the segment the batch with a given last offset starts: 4 bytes relative offset, 4 bytes position."""

    entry = _PLACE

    __slots__ = ()

    def append(self, offset: int, position: int) -> None:
        """`offset` is the last one of the batch at `position`; both ascend."""
        relative = self._relative(offset)
        with self._lock:
            mapping, count = self._map, self._count
            if mapping is None or count * 8 + 8 > len(mapping):
                mapping = self._room_for_one()
                count = self._count
            self._is_dirty = True
            last = _unpack_place(mapping, count * 8 - 8)[0] if count else -1
            assert last < relative, f"offset {offset} is not behind the last entry"
            _pack_place(mapping, count * 8, relative, position)
            self._count = count + 1

    def lookup(self, offset: int) -> OffsetPosition:
        """The last entry at or below `offset`, or the start of the segment."""
        with self._lock:
            mapping = self._opened()
            count = self._count_below(mapping, 0, offset - self.base_offset)
            return self._at(mapping, count - 1) if count else OffsetPosition(self.base_offset, 0)

    def lookup_position(self, position: int) -> int:
        """The last position at or below `position` at which a batch is known to start."""
        with self._lock:
            mapping = self._opened()
            count = self._count_below(mapping, 1, position)
            return self._at(mapping, count - 1).position if count else 0

    def last(self) -> OffsetPosition:
        with self._lock:
            mapping = self._opened()
            return self._at(mapping, self._count - 1) if self._count else OffsetPosition(self.base_offset, 0)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at and behind `offset`."""
        with self._lock:
            self._cut(self._count_below(self._opened(), 0, offset - self.base_offset - 1))

    def sanity_check(self, log_bytes: int) -> None:
        with self._lock:
            mapping = self._check()
            if self._count:
                last = self._at(mapping, self._count - 1)
                if last.offset <= self.base_offset:
                    raise CorruptIndexError(f"its last offset {last.offset} is not behind its base offset {self.base_offset}")
                if not 0 <= last.position < log_bytes:
                    raise CorruptIndexError(f"its last position {last.position} is outside of the segment's {log_bytes} bytes")

    def _at(self, mapping: Mapping, number: int) -> OffsetPosition:
        relative, position = self.entry.unpack_from(mapping, number * 8)
        return OffsetPosition(self.base_offset + relative, position)


class TimeIndex(Index):
    """The highest timestamp so far and the last offset of the batch that has it: 8 bytes timestamp, 4 bytes relative offset."""

    entry = _TIME

    __slots__ = ()

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """An entry, if `timestamp` is above the last."""
        with self._lock:
            mapping = self._map or self._opened()
            count = self._count
            if timestamp > (_unpack_time(mapping, count * 12 - 12)[0] if count else NO_TIMESTAMP):
                _pack_time(self._room_for_one(), count * 12, timestamp, self._relative(offset))
                self._count = count + 1

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry at or below `timestamp`, or the start of the segment."""
        with self._lock:
            mapping = self._opened()
            count = self._count_below(mapping, 0, timestamp)
            return self._at(mapping, count - 1) if count else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def last(self) -> TimestampOffset:
        with self._lock:
            mapping = self._opened()
            return self._at(mapping, self._count - 1) if self._count else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at and behind `offset`."""
        with self._lock:
            self._cut(self._count_below(self._opened(), 1, offset - self.base_offset - 1))

    def sanity_check(self) -> None:
        with self._lock:
            mapping = self._check()
            if self._count:
                first, last = self._at(mapping, 0), self._at(mapping, self._count - 1)
                if last.timestamp < first.timestamp:
                    raise CorruptIndexError(f"its last timestamp {last.timestamp} is below its first {first.timestamp}")
                if last.offset < self.base_offset:
                    raise CorruptIndexError(f"its last offset {last.offset} is below its base offset {self.base_offset}")

    def _at(self, mapping: Mapping, number: int) -> TimestampOffset:
        timestamp, relative = self.entry.unpack_from(mapping, number * 12)
        return TimestampOffset(timestamp, self.base_offset + relative)
