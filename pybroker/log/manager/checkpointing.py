"""Writes the offsets of the logs to the checkpoints of their directories: where recovery begins, where logs start, how far
they are replicated.

Any thread, one at a time: offsets are read and written in one go, so that no older ones are written over newer ones.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from pybroker.log.files import TopicPartition
from pybroker.log.manager.log_dir import LogDir
from pybroker.log.manager.online_logs import LogTable, OnlineLogs

Offsets = dict[TopicPartition, int]


class Checkpointing:
    def __init__(self, logs: OnlineLogs) -> None:
        self._logs = logs
        self._lock = threading.Lock()
        self._is_stopped = False

    def write_recovery_points(self, dirs: Iterable[LogDir] | None = None) -> None:
        """Of all directories, unless some are given; what is offline or not loaded is left out."""
        self._write("recovery points", LogDir.write_recovery_points, recovery_points, dirs)

    def write_log_start_offsets(self, dirs: Iterable[LogDir] | None = None) -> None:
        self._write("log start offsets", LogDir.write_log_start_offsets, log_start_offsets, dirs)

    def write_high_watermarks(self) -> None:
        self._write("high watermarks", LogDir.write_high_watermarks, high_watermarks, None)

    def after_change_in(self, dirs: Iterable[LogDir]) -> None:
        """A log came to `dirs`, or went."""
        dirs = list(dirs)
        self.write_recovery_points(dirs)
        self.write_log_start_offsets(dirs)

    def stop(self) -> None:
        """Nothing is being written any more when this returns, and nothing will be."""
        with self._lock:
            self._is_stopped = True

    def _write(
        self,
        what: str,
        write: Callable[[LogDir, Offsets], None],
        offsets_of: Callable[[LogTable], Offsets],
        dirs: Iterable[LogDir] | None,
    ) -> None:
        logs = self._logs
        with self._lock:
            if self._is_stopped:
                return
            by_dir = logs.by_dir()
            for log_dir in logs.dirs if dirs is None else dirs:
                table = by_dir.get(log_dir.path)
                # What is not loaded yet must not fall out of the checkpoint.
                if table is None or not log_dir.is_loaded:
                    continue
                try:
                    write(log_dir, offsets_of(table))
                except OSError as error:
                    logs.on_io_error(log_dir.path, error, doing=f"writing the checkpoint of the {what}")


def recovery_points(logs: LogTable) -> Offsets:
    return {partition: log.recovery_point for partition, log in logs.items()}


def log_start_offsets(logs: LogTable) -> Offsets:
    """Only where records were deleted inside of the first segment: otherwise its name says it."""
    return {
        partition: log.log_start_offset
        for partition, log in logs.items()
        if (segments := log.segments) and log.log_start_offset > segments[0].base_offset
    }


def high_watermarks(logs: LogTable) -> Offsets:
    return {partition: log.high_watermark for partition, log in logs.items()}
