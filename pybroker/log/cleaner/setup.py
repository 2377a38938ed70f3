"""Makes a node's cleaner from its configuration: so many threads, each with its share of memory and of the rate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pybroker.base.filesystem import FileSystem
from pybroker.config import Config
from pybroker.log.cleaner.cleaner import Cleaner, OnDiskError
from pybroker.log.cleaner.job import CleanerConfig
from pybroker.log.cleaner.manager import CleanerManager
from pybroker.log.cleaner.process import CleanerProcess
from pybroker.log.cleaner.threads import CleanerThread, LogCleaner
from pybroker.log.files import TopicPartition
from pybroker.log.log import Log
from pybroker.log.open_segments import OpenSegments


def log_cleaner(
    filesystem: FileSystem,
    config: Config,
    log_dirs: Iterable[str],
    logs: Callable[[], Mapping[TopicPartition, Log]],
    open_segments: OpenSegments,
    *,
    clock_ms: Callable[[], int],
    on_disk_error: OnDiskError | None = None,
) -> LogCleaner | None:
    """For the log manager to start; None where log.cleaner.enable is false. `logs` gives all current logs of the node."""
    if not config["log.cleaner.enable"]:
        return None
    manager = CleanerManager(filesystem, log_dirs, logs)
    count = config["log.cleaner.threads"]
    threads = []
    for number in range(count):
        runner = CleanerProcess(filesystem)
        share = CleanerConfig(
            dedupe_buffer_bytes=config["log.cleaner.dedupe.buffer.size"] // count,
            load_factor=config["log.cleaner.io.buffer.load.factor"],
            # Half of it to read with, half to write with.
            io_buffer_bytes=config["log.cleaner.io.buffer.size"] // count // 2,
            max_bytes_per_second=config["log.cleaner.io.max.bytes.per.second"] / count,
        )
        cleaner = Cleaner(manager, runner, open_segments, share, on_disk_error=on_disk_error)
        name = f"log-cleaner-{number}"
        threads.append(CleanerThread(name, cleaner, runner, clock_ms, config["log.cleaner.backoff.ms"]))
    return LogCleaner(manager, threads)
