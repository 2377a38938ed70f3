"""Who does a cleaning: the port, and a runner that does it in the calling thread on any disk, for tests and the simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pybroker.base.filesystem import FileSystem
from pybroker.log.cleaner.cleaning import Cleaning, Progress, remove_cleaned
from pybroker.log.cleaner.job import CleanedSegment, CleanerStats, CleaningAbortedError, CleaningJob

Swap = Callable[[CleanedSegment], None]


class Runner(Protocol):
    def clean(self, job: CleaningJob, swap: Swap) -> CleanerStats:
        """Call `swap` with each segment that comes out. If it fails, no `.cleaned` file is left."""

    def abort(self) -> None:
        """Make a `clean` that is under way, or else the next, fail soon with CleaningAbortedError; from any thread."""

    def close(self) -> None: ...


class InlineRunner:
    def __init__(self, filesystem: FileSystem, progress: Progress | None = None) -> None:
        self._filesystem = filesystem
        self._progress = progress
        self._is_aborted = False

    def clean(self, job: CleaningJob, swap: Swap) -> CleanerStats:
        cleaning = Cleaning(self._filesystem, job, self._on_bytes)
        try:
            for segment in cleaning.run():
                swap(segment)
        except BaseException:
            remove_cleaned(self._filesystem, job.directory)
            raise
        finally:
            self._is_aborted = False
        return cleaning.stats

    def abort(self) -> None:
        self._is_aborted = True

    def close(self) -> None:
        self.abort()

    def _on_bytes(self, count: int) -> None:
        if self._is_aborted:
            raise CleaningAbortedError
        if self._progress is not None:
            self._progress(count)
