"""The aborted transactions of a segment, `.txnindex`: what a read_committed fetch tells its consumer to leave out.

Rows of 34 bytes in ascending last offset, the offset of the ABORT marker. The file is made with the first row and opened
when it is first needed. A row is of a marker that is in the log already, so that a full disk is no reason to refuse it: it
stays in memory until there is room, and `flush` does not succeed before. One thread writes, any thread reads; readers of an
index known to be empty touch neither lock nor disk.
"""

from __future__ import annotations

import logging
import threading
from struct import Struct
from typing import Final, NamedTuple

from pybroker.base.filesystem import File, FileSystem, nothing_lost
from pybroker.log.index import CorruptIndexError

logger = logging.getLogger(__name__)

VERSION: Final = 0
_ROW: Final = Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int  # as of the marker: nothing below it is part of a transaction that ends later


class TransactionIndex:
    __slots__ = ("_file", "_filesystem", "_is_dirty", "_last_offset", "_lock", "_size", "_unwritten", "base_offset", "path")

    def __init__(self, filesystem: FileSystem, path: str, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self._filesystem = filesystem
        self._file: File | None = None
        self._size = -1  # in bytes, of whole rows; not looked at yet
        self._unwritten = b""  # the last of them, which the disk did not take
        self._last_offset = -1
        self._is_dirty = False
        self._lock = threading.Lock()

    @property
    def is_empty(self) -> bool:
        with self._lock:
            return self._looked() == 0

    def append(self, aborted: AbortedTransaction) -> None:
        with self._lock:
            size = self._looked()
            if aborted.last_offset <= self._last_offset:
                raise ValueError(
                    f"{self.path}: a transaction that ends at offset {aborted.last_offset} cannot follow one that ends "
                    f"at {self._last_offset}"
                )
            self._unwritten += _ROW.pack(VERSION, *aborted)
            self._size = size + _ROW.size
            self._last_offset = aborted.last_offset
            try:
                self._write()
            except OSError as error:
                logger.warning("%s: a row waits for the next flush: %s", self.path, error)

    def collect(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTransaction], bool]:
        """The transactions that reach into the offsets from `fetch_offset` to before `upper_bound`, and whether these are
        all: if not, the next segment's index may have more."""
        if self._size == 0:
            return [], False
        found = []
        for aborted in self.rows():
            if aborted.last_offset >= fetch_offset and aborted.first_offset < upper_bound:
                found.append(aborted)
            if aborted.last_stable_offset >= upper_bound:
                return found, True
        return found, False

    def rows(self) -> list[AbortedTransaction]:
        with self._lock:
            return self._rows()

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions that end at or behind `offset`."""
        with self._lock:
            kept = [row for row in self._rows() if row.last_offset < offset]
            if len(kept) * _ROW.size < self._looked():
                self._cut(len(kept) * _ROW.size)
            self._last_offset = kept[-1].last_offset if kept else -1

    def start_over(self, path: str) -> None:
        """Begin anew, empty, in another file, which is made with the first row."""
        with self._lock:
            self._file = None
            self.path = path
            if self._filesystem.exists(path):
                self._filesystem.remove(path)
            self._size, self._last_offset, self._is_dirty, self._unwritten = 0, -1, False, b""

    def sanity_check(self) -> None:
        """CorruptIndexError if the index cannot be right and must be rebuilt."""
        with self._lock:
            size = self._opened().size() if self._filesystem.exists(self.path) else 0
            if size % _ROW.size:
                raise CorruptIndexError(f"its {size} bytes are no multiple of {_ROW.size}")
            previous = self.base_offset - 1
            for row in self._rows():
                if row.last_offset < self.base_offset:
                    raise CorruptIndexError(f"its last offset {row.last_offset} is below its base offset {self.base_offset}")
                if row.last_offset <= previous:
                    raise CorruptIndexError(f"its last offset {row.last_offset} comes behind {previous}")
                previous = row.last_offset

    def flush(self) -> None:
        with self._lock:
            self._write()
            if self._is_dirty:
                file = self._opened()
                with nothing_lost(self.path):
                    file.sync()
                self._is_dirty = False

    def release(self) -> None:
        """Let go of the descriptor; the next use opens again."""
        with self._lock:
            self._file = None

    def moved(self, path: str) -> None:
        """The file has another name now."""
        with self._lock:
            self.path = path

    def rename(self, path: str) -> None:
        """Give the file, if there is one, another name."""
        with self._lock:
            if self._filesystem.exists(self.path):
                self._filesystem.rename(self.path, path)
            self.path = path

    # Called with the lock held.

    def _looked(self) -> int:
        if self._size < 0:
            size = self._opened().size() if self._filesystem.exists(self.path) else 0
            self._size = size - size % _ROW.size
            if self._size:
                self._last_offset = self._rows()[-1].last_offset
        return self._size

    def _write(self) -> None:
        if self._unwritten:
            self._is_dirty = True
            self._opened(create=True).write(self._size - len(self._unwritten), self._unwritten)
            self._unwritten = b""

    def _opened(self, *, create: bool = False) -> File:
        if self._file is None:
            self._file = self._filesystem.open(self.path, create=create)
        return self._file

    def _rows(self) -> list[AbortedTransaction]:
        size = self._looked()
        if not size:
            return []
        rows = []
        written = size - len(self._unwritten)
        data = (self._opened().read(0, written) if written else b"") + self._unwritten
        for version, *fields in _ROW.iter_unpack(data):
            if version != VERSION:
                raise CorruptIndexError(f"{self.path}: a row has version {version}; expected {VERSION}")
            rows.append(AbortedTransaction(*fields))
        return rows

    def _cut(self, size: int) -> None:
        written = self._size - len(self._unwritten)
        self._unwritten = self._unwritten[: max(0, size - written)]
        if size < written:
            self._is_dirty = True
            self._opened().truncate(size)
        self._size = size
