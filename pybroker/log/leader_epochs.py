"""The leader epochs of a partition and the offset at which each began, in memory and in `leader-epoch-checkpoint`.

Epochs and start offsets both ascend strictly. One thread at a time changes them, under the log's lock; any thread reads:
`entries` is a tuple that is replaced, never changed. The file never lacks an epoch that was assigned; after a truncation
it may hold too many for a while, which the truncation at the next start of the log puts right.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import Final, NamedTuple

from pybroker.base.filesystem import FileSystem
from pybroker.log.checkpoints import read_epochs, write_epochs

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1

logger = logging.getLogger(__name__)


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


Entries = tuple[EpochEntry, ...]

_epoch = attrgetter("epoch")
_start_offset = attrgetter("start_offset")


class LeaderEpochs:
    __slots__ = ("_filesystem", "_flush_lock", "_is_unwritten", "_path", "entries", "latest_epoch")

    entries: Entries
    latest_epoch: int | None  # a plain attribute: appends look at it

    def __init__(self, filesystem: FileSystem, path: str, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._filesystem = filesystem
        self._path = path
        self._flush_lock = threading.Lock()
        self._is_unwritten = False  # a truncation
        self._replace(())
        for epoch, start_offset in entries:
            self._assign(epoch, start_offset)

    @classmethod
    def open(cls, filesystem: FileSystem, path: str) -> LeaderEpochs:
        """As the checkpoint has them; CorruptFileError if that cannot be read."""
        return cls(filesystem, path, read_epochs(filesystem, path))

    @property
    def earliest(self) -> EpochEntry | None:
        entries = self.entries
        return entries[0] if entries else None

    @property
    def latest(self) -> EpochEntry | None:
        entries = self.entries
        return entries[-1] if entries else None

    def entry(self, epoch: int) -> EpochEntry | None:
        entries = self.entries
        at = bisect_left(entries, epoch, key=_epoch)
        return entries[at] if at < len(entries) and entries[at].epoch == epoch else None

    def previous_epoch(self, epoch: int | None = None) -> int | None:
        """The epoch before `epoch`, or before the latest."""
        entries = self.entries
        at = len(entries) - 1 if epoch is None else bisect_left(entries, epoch, key=_epoch)
        return entries[at - 1].epoch if at > 0 else None

    def next_epoch(self, epoch: int) -> int | None:
        entries = self.entries
        at = bisect_right(entries, epoch, key=_epoch)
        return entries[at].epoch if at < len(entries) else None

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch in which the record at `offset` was, or would be, written."""
        entries = self.entries
        at = bisect_right(entries, offset, key=_start_offset)
        return entries[at - 1].epoch if at else None

    def end_offset_for(self, requested_epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch not above the requested one, and the offset at which it ended.

        Undefined where the requested epoch is undefined or above all. For one below all, whose records are gone: that epoch
        itself and the start of the first one, from where a follower can go on.
        """
        entries = self.entries
        if requested_epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if entries and entries[-1].epoch == requested_epoch:
            return requested_epoch, log_end_offset
        higher = bisect_right(entries, requested_epoch, key=_epoch)
        if higher == len(entries):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        epoch = entries[higher - 1].epoch if higher else requested_epoch
        return epoch, entries[higher].start_offset

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` began at `start_offset`; True if that was new, and is then on disk.

        What is known already changes nothing. Entries that contradict the new one, by a higher epoch or a start offset at or
        behind its own, go: the log has been truncated below them.
        """
        return self.assign_all(((epoch, start_offset),))

    def assign_all(self, entries: Iterable[tuple[int, int]]) -> bool:
        """As `assign` for each, with one write: for epochs that come from remote storage."""
        before = self.entries
        changed = [self._assign(epoch, start_offset) for epoch, start_offset in entries]
        if not any(changed):
            return False
        try:
            self.flush()
        except OSError:
            # Not assigned: whoever tries again, when the disk has room, writes it again.
            self._replace(before)
            raise
        return True

    def truncate_from_end(self, end_offset: int, *, flush: bool = True) -> bool:
        """Forget the epochs that began at or behind `end_offset`; True if there were any, or the file may still have some.

        With `flush=False` the caller has `flush` run later, on a thread that may wait for the disk.
        """
        return self._changed(_without_end(self.entries, end_offset), flush)

    def truncate_from_start(self, start_offset: int, *, flush: bool = True) -> bool:
        """Forget the epochs that ended at or before `start_offset`; the one that covers it then begins there."""
        return self._changed(_without_start(self.entries, start_offset), flush)

    def clear(self, *, flush: bool = True) -> bool:
        return self._changed((), flush)

    def flush(self, *, missing_dir_ok: bool = False) -> None:
        """Write the checkpoint. A late one may find that the partition's directory was deleted or renamed meanwhile."""
        with self._flush_lock:
            try:
                write_epochs(self._filesystem, self._path, self.entries)
                self._is_unwritten = False
            except FileNotFoundError:
                if not missing_dir_ok:
                    raise
                logger.warning("%s could not be written, its directory is gone: right if the partition is deleted", self._path)

    def moved(self, path: str) -> None:
        """The checkpoint has another path now."""
        with self._flush_lock:
            self._path = path

    def _assign(self, epoch: int, start_offset: int) -> bool:
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"{self._path}: epoch {epoch} at offset {start_offset}; expected both to be 0 or more")
        entries = self.entries
        if entries and epoch == entries[-1].epoch and start_offset >= entries[-1].start_offset:
            return False
        kept = len(entries)
        while kept and (entries[kept - 1].epoch >= epoch or entries[kept - 1].start_offset >= start_offset):
            kept -= 1
        removed = entries[kept:]
        # An epoch in which nothing was written gives way to the next one in silence.
        if len(removed) > 1 or (removed and removed[0].start_offset != start_offset):
            logger.warning("%s: epoch %d at offset %d removed %s", self._path, epoch, start_offset, list(map(tuple, removed)))
        self._replace((*entries[:kept], EpochEntry(epoch, start_offset)))
        return True

    def _changed(self, entries: Entries, flush: bool) -> bool:
        if entries == self.entries and not self._is_unwritten:
            return False
        self._replace(entries)
        self._is_unwritten = True
        if flush:
            self.flush()
        return True

    def _replace(self, entries: Entries) -> None:
        self.entries = entries
        self.latest_epoch = entries[-1].epoch if entries else None


def _without_end(entries: Entries, end_offset: int) -> Entries:
    return entries[: bisect_left(entries, end_offset, key=_start_offset)] if end_offset >= 0 else entries


def _without_start(entries: Entries, start_offset: int) -> Entries:
    covering = bisect_right(entries, start_offset, key=_start_offset) - 1
    if covering < 0:
        return entries
    return (EpochEntry(entries[covering].epoch, start_offset), *entries[covering + 1 :])
