"""Which log is cleaned next, and who may not be cleaned now.

Cleaner threads take the dirtiest log and give it back; others pause a partition, which ends a cleaning of it that is under
way, and resume it. Any thread, under one lock; nothing slow happens under it but a checkpoint's write. A partition is idle,
in progress, aborted (in progress, but somebody waits for it to end), or paused so many times. An I/O error never ends what
somebody else is at: it goes to `on_disk_error`, when the lock is free again, and to nobody else.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum

from pybroker.base.filesystem import FileSystem
from pybroker.log.cleaner.checkpoint import CleanerCheckpoints
from pybroker.log.cleaner.dirtiness import Dirtiness, dirtiness
from pybroker.log.cleaner.job import CleaningAbortedError
from pybroker.log.files import TopicPartition
from pybroker.log.log import Log

logger = logging.getLogger(__name__)

OnDiskError = Callable[[str, OSError], None]


class CleaningState(Enum):
    IDLE = "idle"
    IN_PROGRESS = "in progress"
    ABORTED = "aborted"
    PAUSED = "paused"


class _Hold:
    __slots__ = ("abort", "is_in_progress", "pauses")

    def __init__(self, abort: Callable[[], None] | None = None, pauses: int = 0) -> None:
        self.abort = abort
        self.is_in_progress = abort is not None
        self.pauses = pauses


class CleanerManager:
    def __init__(
        self,
        filesystem: FileSystem,
        log_dirs: Iterable[str],
        logs: Callable[[], Mapping[TopicPartition, Log]],
        on_disk_error: OnDiskError | None = None,
    ) -> None:
        """`logs` gives all current logs of the node, whatever their policy; `on_disk_error` is told the log directory whose
        disk refused something, and why."""
        self._logs = logs
        self._on_disk_error = on_disk_error
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._errors: list[tuple[str, OSError]] = []  # to be told
        self._checkpoints = CleanerCheckpoints(filesystem, log_dirs, lambda *error: self._errors.append(error))
        self._holds: dict[TopicPartition, _Hold] = {}
        self._uncleanable: set[TopicPartition] = set()
        self.max_dirty_ratio = 0.0

    # For a cleaner.

    def take_dirtiest(self, now_ms: int, abort: Callable[[], None]) -> Dirtiness | None:
        """The log to clean next, now in progress; `abort` is called, from any thread, if it must be given up."""
        with self._changing():
            self._checkpoints.write_behind()
            looked_at = [self._looked_at(log, now_ms) for log in self._free_compacted_logs()]
            candidates = [found for found in looked_at if found is not None and found.clean_bytes + found.cleanable_bytes > 0]
            self.max_dirty_ratio = max((found.ratio for found in candidates), default=0.0)
            wanting = [found for found in candidates if found.wants_cleaning]
            if not wanting:
                return None
            dirtiest = max(wanting, key=lambda found: found.ratio)
            self._holds[dirtiest.log.partition] = _Hold(abort)
            return dirtiest

    def cleaned(self, log: Log, end_offset: int | None) -> None:
        """Give a log back; `end_offset` is up to where it is clean now, None if the cleaning came to nothing."""
        with self._changing():
            hold = self._holds[log.partition]
            try:
                if end_offset is not None and not hold.pauses:
                    self._checkpoints.keep(log_dir_of(log), self._logs().keys())
                    self._checkpoints.set(log_dir_of(log), log.partition, end_offset)
            finally:
                self._give_back(log.partition)

    def take_deletable(self) -> list[Log]:
        """Compacted logs, for retention; those that only compact may have segments before the log start offset, too."""
        with self._lock:
            found = self._free_compacted_logs()
            for log in found:
                self._holds[log.partition] = _Hold(_nothing)
            return found

    def deleted(self, logs: Iterable[Log]) -> None:
        with self._lock:
            for log in logs:
                self._give_back(log.partition)

    def check_not_aborted(self, partition: TopicPartition) -> None:
        if self.state(partition) is CleaningState.ABORTED:
            raise CleaningAbortedError

    def disk_failed(self, log: Log, error: OSError) -> None:
        """An access to the log failed; whether that is more than a shortage is for whoever hears of it to say."""
        logger.error("%s: the disk refused something while the log was cleaned: %s", log.partition, error)
        if self._on_disk_error is not None:
            self._on_disk_error(log_dir_of(log), error)

    def set_aside(self, partition: TopicPartition, reason: object) -> None:
        """The partition is not cleaned any more, until a restart or until it is deleted."""
        with self._lock:
            self._uncleanable.add(partition)
        logger.error("%s cannot be cleaned and is left alone from now on: %s", partition, reason)

    # For everybody else.

    def state(self, partition: TopicPartition) -> CleaningState:
        with self._lock:
            hold = self._holds.get(partition)
            if hold is None:
                return CleaningState.IDLE
            if not hold.is_in_progress:
                return CleaningState.PAUSED
            return CleaningState.ABORTED if hold.pauses else CleaningState.IN_PROGRESS

    def pause(self, partition: TopicPartition) -> None:
        """End a cleaning of the partition that is under way, wait for its end, begin none before as many calls of `resume`."""
        with self._lock:
            hold = self._holds.setdefault(partition, _Hold())
            hold.pauses += 1
            if hold.abort is not None:
                hold.abort()
            while hold.is_in_progress:
                self._changed.wait()

    def resume(self, partition: TopicPartition) -> None:
        with self._lock:
            hold = self._holds.get(partition)
            assert hold is not None, f"{partition} is not paused"
            assert hold.pauses, f"{partition} is not paused"
            hold.pauses -= 1
            if not hold.pauses and not hold.is_in_progress:
                del self._holds[partition]

    def checkpoint(self, partition: TopicPartition, log_dir: str) -> int | None:
        with self._lock:
            return self._checkpoints.get(log_dir, partition)

    def truncated(self, partition: TopicPartition, log_dir: str, offset: int) -> None:
        """Nothing at or behind `offset` counts as cleaned."""
        with self._changing():
            self._checkpoints.lower(log_dir, partition, offset)

    def moved(self, partition: TopicPartition, source: str, destination: str) -> None:
        with self._changing():
            self._checkpoints.move(partition, source, destination)

    def removed(self, partition: TopicPartition, log_dir: str) -> None:
        with self._changing():
            self._checkpoints.remove(log_dir, partition)
            self._uncleanable.discard(partition)

    def dir_failed(self, log_dir: str) -> None:
        with self._lock:
            self._checkpoints.forget_dir(log_dir)

    @property
    def uncleanable(self) -> Collection[TopicPartition]:
        with self._lock:
            return frozenset(self._uncleanable)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Holds the lock, and tells of the I/O errors that came up meanwhile when it is free again: they may end in a call
        that takes locks of logs."""
        with self._lock:
            yield
            errors, self._errors = self._errors, []
        if self._on_disk_error is not None:
            for log_dir, error in errors:
                self._on_disk_error(log_dir, error)

    # Called with the lock held.

    def _free_compacted_logs(self) -> list[Log]:
        return [
            log
            for partition, log in self._logs().items()
            if log.config.is_compacted and partition not in self._holds and partition not in self._uncleanable
        ]

    def _looked_at(self, log: Log, now_ms: int) -> Dirtiness | None:
        log_dir = log_dir_of(log)
        try:
            found = dirtiness(log, self._checkpoints.get(log_dir, log.partition), now_ms)
        except OSError as error:
            self._errors.append((log_dir, error))
            return None
        except Exception as error:
            # One log that cannot be looked at must not keep the others from being cleaned.
            self.set_aside(log.partition, error)
            return None
        if found.is_checkpoint_invalid:
            self._checkpoints.set(log_dir, log.partition, found.first_dirty_offset)
        return found

    def _give_back(self, partition: TopicPartition) -> None:
        hold = self._holds[partition]
        hold.is_in_progress, hold.abort = False, None
        if not hold.pauses:
            del self._holds[partition]
        self._changed.notify_all()


def log_dir_of(log: Log) -> str:
    return os.path.dirname(log.directory)


def _nothing() -> None:
    pass
