"""The threads that clean: each does one round after the other and waits log.cleaner.backoff.ms when there was nothing to do.

`LogCleaner` is what the log manager starts, stops and tells of changes. The threads themselves hardly take the GIL: the work
is in their processes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from pybroker.log.cleaner.cleaner import Cleaner
from pybroker.log.cleaner.manager import CleanerManager
from pybroker.log.cleaner.runner import Runner
from pybroker.log.files import TopicPartition

logger = logging.getLogger(__name__)


class CleanerThread:
    def __init__(self, name: str, cleaner: Cleaner, runner: Runner, clock_ms: Callable[[], int], backoff_ms: int) -> None:
        self._cleaner = cleaner
        self._runner = runner
        self._clock_ms = clock_ms
        self._backoff_ms = backoff_ms
        self._wake = threading.Condition()
        self._is_stopped = False
        self._is_woken = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Look for work now."""
        with self._wake:
            self._is_woken = True
            self._wake.notify()

    def stop(self) -> None:
        """End a cleaning that is under way, and the thread."""
        with self._wake:
            self._is_stopped = True
            self._wake.notify()
        self._runner.close()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._is_stopped:
            try:
                found = self._cleaner.clean_once(self._clock_ms()) is not None
            except Exception:
                logger.exception("the cleaner failed; it goes on after its backoff")
                found = False
            with self._wake:
                if not found and not self._is_stopped:
                    self._wake.wait_for(lambda: self._is_stopped or self._is_woken, self._backoff_ms / 1000)
                self._is_woken = False


class LogCleaner:
    """All cleaner threads of a node and the state they share."""

    def __init__(self, manager: CleanerManager, threads: list[CleanerThread]) -> None:
        self.manager = manager
        self._threads = threads
        self._changes = threading.Lock()
        self._is_running = False

    def start(self) -> None:
        with self._changes:
            self._is_running = True
            for thread in self._threads:
                thread.start()

    def stop(self) -> None:
        """Returns when nothing is being cleaned any more."""
        with self._changes:
            self._is_running = False
            for thread in self._threads:
                thread.stop()

    def replace_threads(self, threads: list[CleanerThread]) -> None:
        """Others take over, and run if the cleaner runs; cleanings that are under way are given up."""
        with self._changes:
            for thread in self._threads:
                thread.stop()
            self._threads = threads
            if self._is_running:
                for thread in threads:
                    thread.start()

    def pause(self, partition: TopicPartition) -> None:
        self.manager.pause(partition)

    def resume(self, partition: TopicPartition) -> None:
        self.manager.resume(partition)

    def truncated(self, partition: TopicPartition, log_dir: str, offset: int) -> None:
        self.manager.truncated(partition, log_dir, offset)

    def moved(self, partition: TopicPartition, source: str, destination: str) -> None:
        self.manager.moved(partition, source, destination)

    def removed(self, partition: TopicPartition, log_dir: str) -> None:
        self.manager.removed(partition, log_dir)

    def dir_failed(self, log_dir: str) -> None:
        self.manager.dir_failed(log_dir)
