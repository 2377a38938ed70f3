"""The manager's regular work: retention, flushing, checkpoints, forgetting producers. Runs on the scheduler's threads.

An error in one log is logged and the next one has its turn; an I/O error counts against the log's directory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pybroker.log.log import Log
from pybroker.log.manager.scheduler import Repeated, Scheduler
from pybroker.log.manager.settings import ManagerSettings

if TYPE_CHECKING:
    from pybroker.log.manager.log_manager import LogManager

logger = logging.getLogger(__name__)


class Jobs:
    def __init__(self, manager: LogManager, now_ms: Callable[[], int]) -> None:
        self._manager = manager
        self._now_ms = now_ms
        self._repeated: list[Repeated] = []

    def start(self, scheduler: Scheduler, settings: ManagerSettings) -> None:
        manager = self._manager
        for name, task, interval_ms in (
            ("log retention", self.delete_old_segments, settings.retention_check_ms),
            ("log flush", self.flush_dirty_logs, settings.flush_check_ms),
            ("recovery point checkpoint", manager.checkpoint_recovery_points, settings.recovery_point_checkpoint_ms),
            ("log start offset checkpoint", manager.checkpoint_log_start_offsets, settings.log_start_checkpoint_ms),
            ("producer id expiry", self.expire_producers, settings.producer_id_check_ms),
        ):
            self._repeated.append(scheduler.every(name, task, interval_ms, first_ms=settings.initial_delay_ms))

    def stop(self) -> None:
        for repeated in self._repeated:
            repeated.cancel()
        self._repeated = []

    def delete_old_segments(self) -> None:
        """Of compacted logs the cleaner deletes, also what compact,delete lets go."""

        def delete(log: Log) -> None:
            if not log.config.is_compacted:
                log.delete_old_segments(self._now_ms())

        self._for_each("retention", delete)

    def flush_dirty_logs(self) -> None:
        def flush(log: Log) -> None:
            now_ms = self._now_ms()
            if now_ms - log.last_flush_ms >= log.config.flush_ms:
                log.flush(now_ms=now_ms)

        self._for_each("flush", flush)

    def expire_producers(self) -> None:
        def expire(log: Log) -> None:
            with log.lock:
                log.producers.remove_expired(self._now_ms())

        self._for_each("producer id expiry", expire)

    def _for_each(self, what: str, work: Callable[[Log], object]) -> None:
        manager = self._manager
        for log in manager.all_logs():
            directory = log.directory
            try:
                work(log)
            except Exception as error:
                if log.directory != directory or not self._is_known(log):
                    logger.debug("%s of %s: it was moved or removed meanwhile (%s)", what, log, error)
                elif isinstance(error, OSError):
                    manager.on_io_error(directory, error, doing=f"{what} of {log.partition}")
                else:
                    logger.exception("%s of %s failed", what, log)

    def _is_known(self, log: Log) -> bool:
        manager = self._manager
        return manager.get(log.partition) is log or manager.get(log.partition, is_future=True) is log
