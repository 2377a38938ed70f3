"""A segment: record batches in one file, as they came over the wire, and the indexes that find them.

One thread appends (the log's lock sees to it), any thread reads: a reader looks only at bytes below a position it was given
by the log, and those never change. Files are opened at first use and let go when too many are open.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from pybroker.base.filesystem import Buffer, File, FileSystem, nothing_lost
from pybroker.log.files import CLEANED, INDEX, LOG, SEGMENT_SUFFIXES, TIME_INDEX, TRANSACTION_INDEX, file_name
from pybroker.log.index import MAX_RELATIVE_OFFSET, NO_TIMESTAMP, CorruptIndexError, OffsetIndex, TimeIndex, TimestampOffset
from pybroker.log.log_config import LogConfig
from pybroker.log.open_segments import OpenSegments
from pybroker.log.transaction_index import TransactionIndex
from pybroker.protocol.records.batch import HEADER_BYTES, LOG_OVERHEAD, RecordBatch

FIRST_SCAN_BYTES: Final = 512
SCAN_BYTES: Final = 32 * 1024
RECOVERY_READ_BYTES: Final = 4 * 1024 * 1024
# A segment of this size takes room on the disk ahead of its writes: a share of what it holds, up to a bound. A write of 128 KiB
# costs 29 µs instead of 38 then (ext4).
ROOM_FROM_BYTES: Final = 1024 * 1024
ROOM_SHARE: Final = 8
MAX_ROOM_BYTES: Final = 4 * 1024 * 1024

# Of a batch header: base offset, length, last offset delta.
_unpack_place = Struct(">qi11xi").unpack_from
_PLACE_BYTES: Final = 27


# A batch with its place stamped, its last offset, its highest timestamp. A plain tuple: every append makes one.
StampedBatch = tuple[memoryview, int, int]


class FileSlice:
    """Bytes of a file that are on their way to a reader; keeps the file open."""

    __slots__ = ("file", "length", "next_offset", "position")

    def __init__(self, file: File, position: int, length: int, next_offset: int | None = None) -> None:
        self.file = file
        self.position = position
        self.length = length
        self.next_offset = next_offset  # of the batch behind it, if its header was seen

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        return self.file.read(self.position, self.length)

    def __repr__(self) -> str:
        return f"FileSlice({self.file.path}, {self.position}, {self.length})"


class BatchPlace(NamedTuple):
    """Where a batch lies in its segment."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int

    @property
    def end(self) -> int:
        return self.position + self.size_bytes


class Segment:
    __slots__ = (
        "_bytes_since_index_entry",
        "_dir",
        "_file",
        "_filesystem",
        "_index_interval_bytes",
        "_is_longer",
        "_max",
        "_naming",
        "_open_segments",
        "_reserved",
        "_rolling_timestamp",
        "_suffix",
        "base_offset",
        "created_ms",
        "index",
        "size_bytes",
        "time_index",
        "transaction_index",
        "used",
    )

    def __init__(
        self,
        filesystem: FileSystem,
        directory: str,
        base_offset: int,
        config: LogConfig,
        open_segments: OpenSegments,
        *,
        size_bytes: int = 0,
        created_ms: int = 0,
        suffix: str = "",
    ) -> None:
        """A segment whose files are, or will be, in `directory`, with `suffix` behind their names."""
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.created_ms = created_ms
        self.used = False
        self._filesystem = filesystem
        self._dir = directory
        self._suffix = suffix
        self._open_segments = open_segments
        self._index_interval_bytes = config.index_interval_bytes
        self._file: File | None = None
        self._naming = threading.Lock()  # held while the file changes its name, or is opened by it
        self._is_longer = False  # the file than what it holds: by room taken in advance, or by a write that came to nothing
        self._reserved = ROOM_FROM_BYTES  # up to here the file grows without more room being taken for it
        self._bytes_since_index_entry = 0
        self._max: TimestampOffset | None = None  # the highest timestamp, read from the index when first asked for
        self._rolling_timestamp: int | None = None
        self.index = OffsetIndex(filesystem, self.path(INDEX), base_offset, config.segment_index_bytes)
        self.time_index = TimeIndex(filesystem, self.path(TIME_INDEX), base_offset, config.segment_index_bytes)
        self.transaction_index = TransactionIndex(filesystem, self.path(TRANSACTION_INDEX), base_offset)

    def path(self, suffix: str) -> str:
        return f"{self._dir}/{file_name(self.base_offset, suffix)}{self._suffix}"

    @property
    def file(self) -> File:
        self.used = True
        return self._file or self._open()

    def _open(self, *, create: bool = False) -> File:
        with self._naming:
            file = self._file
            if file is None:
                file = self._file = self._filesystem.open(self.path(LOG), create=create)
                self._open_segments.opened(self)
        return file

    # Writing.

    def create(self, config: LogConfig) -> None:
        """Make the files, so that the segment is there when the log is next opened."""
        try:
            file = self._open(create=True)
            if config.preallocate:
                self._is_longer = True
                file.truncate(config.segment_bytes)
            self.index.create()
            self.time_index.create()
        except OSError:
            self.forget()
            raise

    def append(self, data: Buffer, batches: Sequence[RecordBatch]) -> None:
        """`batches` are those in `data`, offsets assigned. On an OSError nothing has been appended."""
        position = self.size_bytes
        before = self._max, self._bytes_since_index_entry
        file = self._file or self.file
        if position + len(data) > self._reserved:
            self._reserve(file, position + len(data))
        try:
            file.write(position, data)
        except OSError:
            self._is_longer = True
            raise
        try:
            for batch in batches:
                self._note(position, batch.base_offset + batch.last_offset_delta, batch.max_timestamp, batch.size_bytes)
                position += batch.size_bytes
        except OSError:
            self._is_longer = True
            self._max, self._bytes_since_index_entry = before
            self._drop_entries(batches[0].base_offset)
            raise
        self.size_bytes = position

    def append_plain(
        self,
        batches: Sequence[StampedBatch],
        first_offset: int,
        segment_bytes: int,
        roll_ms: int,
        whole: memoryview | None = None,
    ) -> int:
        """As `append`, of as many of `batches` as need no new segment, by one write; 0, with nothing done, if not even the
        first fits or files would have to be opened. Where they lie one behind the other in `whole`, all or none."""
        file, started, highest = self._file, self._rolling_timestamp, self._max
        if file is None or started is None or highest is None:
            return 0
        start = position = self.size_bytes
        latest = started + roll_ms
        last = self.base_offset + MAX_RELATIVE_OFFSET
        pieces: list[memoryview] = []
        # Each of them may take an entry.
        for data, last_offset, max_timestamp in batches[: min(self.index.free_entries, self.time_index.free_entries)]:
            position += len(data)
            if position > segment_bytes or max_timestamp > latest or last_offset > last:
                break
            pieces.append(data)
        if not pieces or (whole is not None and len(pieces) < len(batches)):
            return 0
        if position > self._reserved:
            self._reserve(file, position)
        try:
            file.write(start, pieces[0] if len(pieces) == 1 else b"".join(pieces) if whole is None else whole)
        except OSError:
            self._is_longer = True
            raise
        position = start
        unindexed, interval = self._bytes_since_index_entry, self._index_interval_bytes
        try:
            # `_note` in the open: every request passes here.
            for data, (_, last_offset, max_timestamp) in zip(pieces, batches, strict=False):
                if max_timestamp > highest.timestamp:
                    highest = TimestampOffset(max_timestamp, last_offset)
                if unindexed > interval:
                    self.index.append(last_offset, position)
                    self.time_index.maybe_append(*highest)
                    unindexed = 0
                unindexed += len(data)
                position += len(data)
        except OSError:
            self._is_longer = True
            self._drop_entries(first_offset)
            raise
        self._max, self._bytes_since_index_entry, self.size_bytes = highest, unindexed, position
        return len(pieces)

    def _reserve(self, file: File, end: int) -> None:
        self._reserved = end + min(end // ROOM_SHARE, MAX_ROOM_BYTES)
        self._is_longer = True
        file.reserve(self.size_bytes, self._reserved - self.size_bytes)

    def _note(self, position: int, last_offset: int, max_timestamp: int, size_bytes: int) -> None:
        """Index a batch at `position`, if it is time for an entry."""
        highest = self._max or self.highest_timestamp
        if max_timestamp > highest.timestamp:
            self._max = highest = TimestampOffset(max_timestamp, last_offset)
        if self._rolling_timestamp is None and max_timestamp >= 0:
            self._rolling_timestamp = max_timestamp
        if self._bytes_since_index_entry > self._index_interval_bytes:
            self.index.append(last_offset, position)
            self.time_index.maybe_append(*highest)
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += size_bytes

    def _drop_entries(self, offset: int) -> None:
        """Those from `offset` on, which were made for batches that are not appended after all."""
        self.index.truncate_to(offset)
        self.time_index.truncate_to(offset)

    def can_hold(self, offset: int) -> bool:
        return 0 <= offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def should_roll(
        self, incoming_bytes: int, max_timestamp: int, last_offset: int, now_ms: int, config: LogConfig, jitter_ms: int
    ) -> bool:
        """Whether the next append must go to a new segment."""
        size = self.size_bytes
        if size > config.segment_bytes - incoming_bytes:
            return size > 0
        if size > 0 and self._waited_ms(now_ms, max_timestamp) > config.roll_ms - jitter_ms:
            return True
        return self.index.is_full or self.time_index.is_full or not self.can_hold(last_offset)

    def _waited_ms(self, now_ms: int, max_timestamp: int) -> int:
        """How long the segment has been filling: by the records' own time, if they have one."""
        if self._rolling_timestamp is None and self.size_bytes:
            first = self.first_batch()
            if first is not None and first.max_timestamp >= 0:
                self._rolling_timestamp = first.max_timestamp
        if self._rolling_timestamp is not None:
            return max_timestamp - self._rolling_timestamp if max_timestamp >= 0 else 0
        return now_ms - self.created_ms

    def became_inactive(self) -> None:
        """The last entry of the time index tells the segment's highest timestamp; then the files are cut to size."""
        self._cut_to_size()
        self.time_index.maybe_append(*self.highest_timestamp)
        self.index.trim()
        self.time_index.trim()

    def _cut_to_size(self) -> None:
        """A start that finds the clean stop it expects takes the file for what the segment holds."""
        if self._is_longer:
            self.file.truncate(self.size_bytes)
            self._is_longer = False

    def flush(self) -> None:
        file = self.file
        with nothing_lost(file.path):
            file.sync()
        self.index.flush()
        self.time_index.flush()
        self.transaction_index.flush()

    def truncate_to(self, offset: int) -> int:
        """Drop the batches from `offset` on; returns how many bytes went, for good: they are off the disk too."""
        place = self.locate(offset, self.size_bytes)
        if place is None:
            return 0
        for index in (self.index, self.time_index, self.transaction_index):
            index.truncate_to(offset)
            # Now: if nothing is appended later, no flush comes, and after a clean stop indexes are believed.
            index.flush()
        self.file.truncate(place.position)
        self.file.sync()
        dropped, self.size_bytes = self.size_bytes - place.position, place.position
        self._reserved = max(ROOM_FROM_BYTES, place.position)
        self._bytes_since_index_entry = 0
        self._max = None
        if place.position == 0:
            self._rolling_timestamp = None
        self._max = self._highest_by_scan()
        return dropped

    # Reading.

    def locate(self, offset: int, limit: int) -> BatchPlace | None:
        """The first batch that reaches `offset`, among those that end by the position `limit`."""
        for place in self.places(self.index.lookup(offset).position, limit):
            if place.last_offset >= offset:
                return place
        return None

    def places(self, position: int, limit: int) -> Iterator[BatchPlace]:
        """The batches from `position`, where one starts, to `limit`, by their headers alone."""
        file = self.file
        chunk, start, read_bytes = b"", position, FIRST_SCAN_BYTES
        while position + _PLACE_BYTES <= limit:
            at = position - start
            if at + _PLACE_BYTES > len(chunk):
                # Small batches are read many at once, of large ones little more than the header.
                if 0 < at < len(chunk) + _PLACE_BYTES and read_bytes < SCAN_BYTES:
                    read_bytes *= 4
                chunk, start, at = file.read(position, min(read_bytes, limit - position)), position, 0
                if len(chunk) < _PLACE_BYTES:
                    return
            base_offset, length, last_offset_delta = _unpack_place(chunk, at)
            size = length + LOG_OVERHEAD
            if size < HEADER_BYTES or position + size > limit:
                return
            yield BatchPlace(position, size, base_offset, base_offset + last_offset_delta)
            position += size

    def slice_from(self, first: BatchPlace, max_bytes: int, limit: int) -> FileSlice:
        """Whole batches from `first` on: as many as `max_bytes` take, but one at least, none beyond `limit`."""
        start = first.position
        stop = min(start + max_bytes, limit)
        next_offset = None
        if stop <= first.end:
            stop = first.end
        elif stop < limit:
            stop, next_offset = self._batch_end_before(first, stop, limit)
        return FileSlice(self.file, start, stop - start, next_offset)

    def _batch_end_before(self, first: BatchPlace, stop: int, limit: int) -> tuple[int, int | None]:
        """The last position up to `stop` where a batch ends, and the offset of the next batch, if there is a whole one.

        The index knows a position near it, headers lead on from there.
        """
        position = max(first.end, self.index.lookup_position(stop))
        for place in self.places(position, limit):
            if place.end > stop:
                return position, place.base_offset
            position = place.end
        return position, None

    def batches(self, position: int = 0, limit: int | None = None) -> Iterator[tuple[int, RecordBatch]]:
        """(position, batch) from `position` on, bytes and all; stops before what is not a whole batch of format v2."""
        limit = self.size_bytes if limit is None else limit
        file = self.file
        while position + HEADER_BYTES <= limit:
            chunk = memoryview(file.read(position, min(RECOVERY_READ_BYTES, limit - position)))
            at = 0
            while at + HEADER_BYTES <= len(chunk):
                size = _unpack_place(chunk, at)[1] + LOG_OVERHEAD
                if size < HEADER_BYTES or position + at + size > limit:
                    return
                if at + size > len(chunk):
                    break
                yield position + at, RecordBatch(chunk[at : at + size])
                at += size
            if at == 0:
                # A batch larger than a read: take it whole.
                size = _unpack_place(chunk, 0)[1] + LOG_OVERHEAD
                yield position, RecordBatch(file.read(position, size))
                at = size
            position += at

    def batch_at(self, position: int) -> RecordBatch:
        """The batch that is known to start at `position`."""
        file = self.file
        size = _unpack_place(file.read(position, _PLACE_BYTES), 0)[1] + LOG_OVERHEAD
        return RecordBatch(file.read(position, size))

    def first_batch(self) -> RecordBatch | None:
        header = self.file.read(0, HEADER_BYTES)
        if len(header) < HEADER_BYTES:
            return None
        size = _unpack_place(header, 0)[1] + LOG_OVERHEAD
        return RecordBatch(self.file.read(0, size)) if HEADER_BYTES <= size <= self.size_bytes else None

    def next_offset(self) -> int:
        """The offset behind the last batch."""
        end = self.base_offset
        if not self.size_bytes:
            return end
        for place in self.places(self.index.last().position, self.size_bytes):
            end = place.last_offset + 1
        return end

    @property
    def highest_timestamp(self) -> TimestampOffset:
        """The highest timestamp of any batch, with the last offset of that batch; -1 if there is none."""
        highest = self._max
        if highest is None:
            highest = self.time_index.last()
            if highest.timestamp < 0 and self.size_bytes:
                # An entry of timestamp 0 at the base offset is all zeros, which an index takes for no entry.
                first = self.first_batch()
                if first is not None and first.max_timestamp == 0:
                    highest = TimestampOffset(0, first.last_offset)
            self._max = highest
        return highest

    def retention_timestamp(self) -> int:
        """What the age of the segment counts from."""
        timestamp = self.highest_timestamp.timestamp
        return timestamp if timestamp >= 0 else self._filesystem.modified_ms(self.path(LOG))

    # Recovery.

    def sanity_check(self, *, is_complete: bool = False) -> None:
        """CorruptIndexError if an index cannot be right and must be rebuilt; `is_complete`: nothing has to be added to it."""
        self.index.sanity_check(self.size_bytes)
        self.time_index.sanity_check()
        self.transaction_index.sanity_check()
        if is_complete and not self.time_index.entry_count:
            first = self.first_batch()
            if first is not None and first.max_timestamp > 0:
                raise CorruptIndexError("the time index is empty, though there are records with a timestamp")

    def complete_time_index(self) -> None:
        """Add the last entry, which a crash just behind a roll may have cost; CorruptIndexError if there is a wrong one."""
        last = self.time_index.last()
        if last.timestamp >= 0:
            place = self.locate(last.offset, self.size_bytes)
            batch = None if place is None else RecordBatch(self.file.read(place.position, place.size_bytes))
            if batch is None or (batch.last_offset, batch.max_timestamp) != (last.offset, last.timestamp):
                raise CorruptIndexError(f"no batch ends at offset {last.offset} with timestamp {last.timestamp}")
        self._max = self._highest_by_scan()
        self.time_index.maybe_append(*self._max)

    def index_batch(self, position: int, batch: RecordBatch) -> None:
        """For a rebuild, which goes over every batch in order."""
        self._note(position, batch.last_offset, batch.max_timestamp, batch.size_bytes)

    def start_rebuild(self) -> None:
        """Empty indexes, ready to be filled again by `index_batch`. They are made aside, since a crash in the middle must not
        leave some that look whole."""
        self.index.start_over(self.path(INDEX) + CLEANED)
        self.time_index.start_over(self.path(TIME_INDEX) + CLEANED)
        self.transaction_index.start_over(self.path(TRANSACTION_INDEX) + CLEANED)
        self._bytes_since_index_entry = 0
        self._max = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self._rolling_timestamp = None

    def end_indexing(self) -> None:
        """Behind the last batch: offset and time index are whole, though aside, and nothing stays open."""
        self.time_index.maybe_append(*self.highest_timestamp)
        for index in (self.index, self.time_index):
            index.trim()
        self.forget()

    def end_rebuild(self, valid_bytes: int, *, sync: bool) -> int:
        """Cut the file at `valid_bytes`, and the indexes take their place; returns how many bytes were no whole valid batch.

        With `sync` they are on disk then, as they are whenever something was cut off. Otherwise the next `flush` sees to it,
        and a crash before that must have them built again.
        """
        dropped = self.size_bytes - valid_bytes
        sync = sync or dropped > 0 or not valid_bytes
        if dropped > 0:
            self.file.truncate(valid_bytes)
            self.file.sync()
            self.size_bytes = valid_bytes
        for index in (self.index, self.time_index, self.transaction_index):
            if sync:
                index.flush()
            final = index.path.removesuffix(CLEANED)
            if self._filesystem.exists(index.path):
                self._filesystem.rename(index.path, final)
            elif self._filesystem.exists(final):
                self._filesystem.remove(final)
            index.moved(final)
        if sync:
            self._filesystem.sync_dir(self._dir)
        return dropped

    def _highest_by_scan(self) -> TimestampOffset:
        """After a truncation the last entry may not be the highest timestamp: look at the batches behind it."""
        highest = self.time_index.last()
        for _, batch in self.batches(self.index.lookup(highest.offset).position):
            if batch.max_timestamp > highest.timestamp:
                highest = TimestampOffset(batch.max_timestamp, batch.last_offset)
        return highest

    # Files.

    def update_config(self, config: LogConfig) -> None:
        self._index_interval_bytes = config.index_interval_bytes
        self.index.set_max_bytes(config.segment_index_bytes)
        self.time_index.set_max_bytes(config.segment_index_bytes)

    def change_suffix(self, suffix: str) -> None:
        """Rename every file of the segment that exists."""
        with self._naming:
            old = self.path(LOG)
            if self._filesystem.exists(old):
                self._filesystem.rename(old, f"{self._dir}/{file_name(self.base_offset, LOG)}{suffix}")
            self._suffix = suffix
        self.index.rename(self.path(INDEX))
        self.time_index.rename(self.path(TIME_INDEX))
        self.transaction_index.rename(self.path(TRANSACTION_INDEX))

    def directory_moved(self, directory: str) -> None:
        self._dir = directory
        self.index.moved(self.path(INDEX))
        self.time_index.moved(self.path(TIME_INDEX))
        self.transaction_index.moved(self.path(TRANSACTION_INDEX))

    def delete(self) -> None:
        """Remove every file of the segment that exists. Takes long for a large one: not on a thread that serves."""
        self.forget()
        # A rebuild that was begun has indexes aside.
        aside = (self.index.path, self.time_index.path, self.transaction_index.path)
        for path in dict.fromkeys((*aside, *map(self.path, SEGMENT_SUFFIXES))):
            if self._filesystem.exists(path):
                self._filesystem.remove(path)

    def release(self) -> None:
        """Let go of descriptors and maps; whoever still sends from the file keeps it open."""
        self._file = None
        self.index.release()
        self.time_index.release()
        self.transaction_index.release()

    def forget(self) -> None:
        """As `release`, for good: it no longer counts among the open ones."""
        with self._naming:
            self._open_segments.closed(self)
            self.release()

    def close(self) -> None:
        """As `release`, with the highest timestamp noted, the files cut to what they hold, and the indexes on disk: after a
        clean stop they are believed."""
        if self._max is not None:
            self.time_index.maybe_append(*self._max)
        self._cut_to_size()
        with self._naming:
            if self._file is not None:
                self._open_segments.closed(self)
                self._file = None
        self.index.close()
        self.time_index.close()
        if self.size_bytes:
            for index in (self.index, self.time_index, self.transaction_index):
                index.flush()
        self.transaction_index.release()
