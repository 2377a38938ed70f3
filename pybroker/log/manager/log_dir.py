"""One log directory: its lock, its id, and the checkpoints of the partitions in it.

A directory is online until an I/O error takes it away, and never comes back before a restart. Its checkpoints are written
by several threads, one at a time. A damaged checkpoint reads as an empty one: that costs a longer recovery, no records.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Final

from pybroker.base.filesystem import FileSystem, Lock
from pybroker.base.ids import Uuid
from pybroker.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    CorruptFileError,
    read_clean_shutdown,
    read_offsets,
    write_clean_shutdown,
    write_offsets,
)
from pybroker.log.files import TopicPartition

LOCK_FILE: Final = ".lock"

logger = logging.getLogger(__name__)


class LogDir:
    def __init__(self, filesystem: FileSystem, path: str) -> None:
        self.filesystem = filesystem
        self.path = path
        self.directory_id: Uuid | None = None
        self.failure: Exception | None = None  # why it is offline
        self.was_clean = False  # whether the last shutdown was
        self.is_loaded = False
        self.shutdown_epoch: int | None = None  # the broker's epoch at the last clean shutdown
        self.lock: Lock | None = None
        self._writing = threading.Lock()

    @property
    def is_online(self) -> bool:
        return self.failure is None

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def unlock(self) -> None:
        lock, self.lock = self.lock, None
        if lock is not None:
            lock.release()

    def read_recovery_points(self) -> dict[TopicPartition, int]:
        return self._read(RECOVERY_POINT_CHECKPOINT, "every log is recovered from its start")

    def write_recovery_points(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._write(RECOVERY_POINT_CHECKPOINT, offsets)

    def read_log_start_offsets(self) -> dict[TopicPartition, int]:
        return self._read(LOG_START_CHECKPOINT, "every log starts with its first segment, deleted records may show again")

    def write_log_start_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._write(LOG_START_CHECKPOINT, offsets)

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        return self._read(REPLICATION_CHECKPOINT, "every high watermark begins at the start of its log")

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._write(REPLICATION_CHECKPOINT, offsets)

    def read_cleaned_offsets(self) -> dict[TopicPartition, int] | None:
        """Up to where each log was compacted, as far as it ever was; None if nobody knows."""
        try:
            return read_offsets(self.filesystem, self.file(CLEANER_CHECKPOINT))
        except CorruptFileError as error:
            logger.warning("%s; recovery takes missing offsets for those of compacted records", error)
            return None

    def read_shutdown_mark(self) -> None:
        path = self.file(CLEAN_SHUTDOWN)
        self.was_clean = self.filesystem.exists(path)
        self.shutdown_epoch = read_clean_shutdown(self.filesystem, path)

    def remove_shutdown_mark(self) -> None:
        """Before the first log is opened, and on disk: a crash from now on is no clean shutdown."""
        if self.was_clean:
            self.filesystem.remove(self.file(CLEAN_SHUTDOWN))
            self.filesystem.sync_dir(self.path)

    def write_shutdown_mark(self, broker_epoch: int) -> None:
        write_clean_shutdown(self.filesystem, self.file(CLEAN_SHUTDOWN), broker_epoch)

    def _read(self, name: str, consequence: str) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self.filesystem, self.file(name))
        except CorruptFileError as error:
            logger.warning("%s; it is taken for empty: %s", error, consequence)
            return {}

    def _write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        with self._writing:
            write_offsets(self.filesystem, self.file(name), offsets)

    def __repr__(self) -> str:
        return f"LogDir({self.path})"
