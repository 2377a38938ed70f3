"""Makes a node's cleaner from its configuration: so many threads, each with its share of memory and of the rate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from pybroker.base.filesystem import FileSystem
from pybroker.config import Config
from pybroker.log.cleaner.cleaner import Cleaner
from pybroker.log.cleaner.job import CleanerConfig
from pybroker.log.cleaner.manager import CleanerManager, OnDiskError
from pybroker.log.cleaner.process import CleanerProcess
from pybroker.log.cleaner.threads import CleanerThread, LogCleaner
from pybroker.log.files import TopicPartition
from pybroker.log.log import Log
from pybroker.log.open_segments import OpenSegments


@dataclass(slots=True, frozen=True)
class CleanerSettings:
    threads: int
    backoff_ms: int
    share: CleanerConfig  # of each thread

    @classmethod
    def of(cls, config: Config) -> Self:
        count = config.int("log.cleaner.threads")
        share = CleanerConfig(
            dedupe_buffer_bytes=config["log.cleaner.dedupe.buffer.size"] // count,
            load_factor=config["log.cleaner.io.buffer.load.factor"],
            # Half of it to read with, half to write with.
            io_buffer_bytes=config["log.cleaner.io.buffer.size"] // count // 2,
            max_bytes_per_second=config["log.cleaner.io.max.bytes.per.second"] / count,
        )
        return cls(count, config["log.cleaner.backoff.ms"], share)


def log_cleaner(
    filesystem: FileSystem,
    config: Config,
    log_dirs: Iterable[str],
    logs: Callable[[], Mapping[TopicPartition, Log]],
    open_segments: OpenSegments,
    *,
    clock_ms: Callable[[], int],
    on_disk_error: OnDiskError | None = None,
) -> NodeLogCleaner | None:
    """For the log manager to start; None where log.cleaner.enable is false. `logs` gives all current logs of the node."""
    if not config["log.cleaner.enable"]:
        return None
    manager = CleanerManager(filesystem, log_dirs, logs, on_disk_error)

    def threads_for(settings: CleanerSettings) -> list[CleanerThread]:
        threads = []
        for number in range(settings.threads):
            runner = CleanerProcess(filesystem)
            cleaner = Cleaner(manager, runner, open_segments, settings.share)
            threads.append(CleanerThread(f"log-cleaner-{number}", cleaner, runner, clock_ms, settings.backoff_ms))
        return threads

    return NodeLogCleaner(manager, threads_for, CleanerSettings.of(config))


class NodeLogCleaner(LogCleaner):
    """A cleaner whose threads are replaced when their settings change."""

    def __init__(
        self, manager: CleanerManager, threads_for: Callable[[CleanerSettings], list[CleanerThread]], settings: CleanerSettings
    ) -> None:
        super().__init__(manager, threads_for(settings))
        self._threads_for = threads_for
        self._settings = settings

    def reconfigure(self, config: Config) -> None:
        """Go on as `config` says. A cleaning under way is given up, and begun anew when it is that log's turn again."""
        settings = CleanerSettings.of(config)
        if settings != self._settings:
            self._settings = settings
            self.replace_threads(self._threads_for(settings))
