"""Which logs a node has, and in which of its directories; and what an I/O error does to that.

Any thread. Lookups take no lock; `_lock` is held only while the tables change and nothing is taken under it, so that an I/O
error can be reported from anywhere, under any lock. A log in the tables lies in a directory that is online.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from pybroker.log.files import TopicPartition
from pybroker.log.log import Log
from pybroker.log.manager.directories import LogDirError
from pybroker.log.manager.failures import DirFailure, is_shortage
from pybroker.log.manager.log_dir import LogDir
from pybroker.protocol.errors import ErrorCode, KafkaError

SHORTAGE_REPORT_MS: Final = 10_000

LogTable = dict[TopicPartition, Log]

logger = logging.getLogger(__name__)


class OnlineLogs:
    def __init__(self, dirs: list[LogDir], now_ms: Callable[[], int], on_dir_failure: Callable[[DirFailure], None]) -> None:
        self.dirs = dirs
        self._now_ms = now_ms
        self._on_dir_failure = on_dir_failure
        self._lock = threading.Lock()
        self._current: LogTable = {}
        self._future: LogTable = {}
        self._counts: Counter[str] = Counter()
        self._shortage_reported_ms: dict[str, int] = {}

    # Directories.

    @property
    def online_dirs(self) -> list[LogDir]:
        return [log_dir for log_dir in self.dirs if log_dir.is_online]

    @property
    def offline_dirs(self) -> list[LogDir]:
        return [log_dir for log_dir in self.dirs if not log_dir.is_online]

    def dir_of(self, path: str) -> LogDir:
        """The log directory that `path` is, or lies in."""
        for log_dir in self.dirs:
            if path == log_dir.path or path.startswith(log_dir.path + "/"):
                return log_dir
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is in none of log.dirs.")

    # Logs.

    def get(self, partition: TopicPartition, *, is_future: bool = False) -> Log | None:
        return (self._future if is_future else self._current).get(partition)

    def all(self) -> list[Log]:
        """Future logs too."""
        with self._lock:
            return [*self._current.values(), *self._future.values()]

    def current(self) -> LogTable:
        with self._lock:
            return dict(self._current)

    def futures(self) -> list[Log]:
        with self._lock:
            return list(self._future.values())

    def by_dir(self) -> dict[str, LogTable]:
        """Future logs too; every online directory is there."""
        tables: dict[str, LogTable] = {log_dir.path: {} for log_dir in self.online_dirs}
        for log in self.all():
            # One that went offline meanwhile has no table.
            if (table := tables.get(parent_of(log))) is not None:
                table[log.partition] = log
        return tables

    def count_in(self, log_dir: LogDir) -> int:
        """How many logs the directory has, future ones too."""
        return self._counts[log_dir.path]

    def add(self, log: Log, *, is_future: bool = False) -> bool:
        """False, and the log is closed, if its directory went offline meanwhile."""
        with self._lock:
            table = self._future if is_future else self._current
            if (other := table.get(log.partition)) is not None:
                first, second = sorted((other.directory, log.directory))
                raise LogDirError(
                    f"{log.partition} is in both {first} and {second}; expected one. A failure may have fallen into its move "
                    "between the two: delete one of them, best that on the disk that failed."
                )
            if self.dir_of(log.directory).is_online:
                self._put(table, log)
                return True
        log.close_files()
        return False

    def take(self, partition: TopicPartition, *, is_future: bool) -> Log | None:
        """Out of the tables, if it is there."""
        with self._lock:
            return self._pop(self._future if is_future else self._current, partition)

    def promote(self, partition: TopicPartition) -> bool:
        """The future log is the current one from now on; False if its directory has just failed."""
        with self._lock:
            if (future := self._pop(self._future, partition)) is None:
                return False
            self._pop(self._current, partition)
            self._put(self._current, future)
            return True

    def clear(self) -> None:
        with self._lock:
            self._current = {}
            self._future = {}
            self._counts.clear()

    def _put(self, table: LogTable, log: Log) -> None:
        table[log.partition] = log
        self._counts[parent_of(log)] += 1

    def _pop(self, table: LogTable, partition: TopicPartition) -> Log | None:
        log = table.pop(partition, None)
        if log is not None:
            self._counts[parent_of(log)] -= 1
        return log

    # Failure.

    def on_io_error(self, path: str, error: OSError, *, doing: str = "an access") -> bool:
        """An access to something at `path` failed with `error`; True if its log directory is offline for it.

        A full disk leaves the directory online: reads go on, and appends once there is room. So does a file that is not there
        any more: a log that was deleted, or cleaned, while somebody read it.
        """
        log_dir = self.dir_of(path)
        if isinstance(error, FileNotFoundError) and log_dir.is_online and log_dir.filesystem.exists(log_dir.path):
            logger.warning("%s failed in %s: %s; it was removed meanwhile", doing, log_dir.path, error)
            return False
        if is_shortage(error) and log_dir.is_online:
            now_ms = self._now_ms()
            if now_ms - self._shortage_reported_ms.get(log_dir.path, -SHORTAGE_REPORT_MS) >= SHORTAGE_REPORT_MS:
                self._shortage_reported_ms[log_dir.path] = now_ms
                logger.error("%s failed in %s: %s; it goes on when there is room again", doing, log_dir.path, error)
            return False
        self.take_offline(log_dir, error, doing)
        return True

    @contextmanager
    def storage(self, log: Log, doing: str) -> Iterator[None]:
        """An I/O error under it counts against the log's directory, and ends the request."""
        directory = log.directory
        try:
            yield
        except OSError as error:
            self.on_io_error(directory, error, doing=doing)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log.partition}: {doing} failed: {error}") from error

    def take_offline(self, log_dir: LogDir, error: Exception, doing: str) -> None:
        gone: list[Log] = []
        with self._lock:
            if not log_dir.is_online:
                return
            log_dir.failure = error
            is_last = not self.online_dirs
            for table in (self._current, self._future):
                for partition, log in list(table.items()):
                    if parent_of(log) == log_dir.path:
                        gone.append(log)
                        self._pop(table, partition)
        for log in gone:
            try:
                log.close_files()
            except Exception as close_error:
                logger.debug("closing %s: %s", log, close_error)
        log_dir.unlock()
        self.report_failure(log_dir, doing, len(gone), is_last=is_last)

    def report_failure(self, log_dir: LogDir, doing: str, logs: int, *, is_last: bool) -> None:
        error = log_dir.failure
        assert error is not None
        consequence = f"; its {logs} logs are offline" if logs else ""
        logger.error("log directory %s is offline since %s failed: %s%s", log_dir.path, doing, error, consequence)
        if is_last:
            logger.critical("all of log.dirs are offline (%s): the node cannot go on", paths_of(self.dirs))
        self._on_dir_failure(DirFailure(log_dir.path, log_dir.directory_id, error, is_last))


def parent_of(log: Log) -> str:
    """The path of the log directory that the log lies in."""
    return os.path.dirname(log.directory)


def paths_of(dirs: Iterable[LogDir]) -> str:
    return ", ".join(log_dir.path for log_dir in dirs)
