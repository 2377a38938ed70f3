"""Loading the logs of one directory at the start: what lies there, in which order it is opened, and the progress of it.

What is neither a partition nor a file of ours is left alone, with one line of warning.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from pybroker.config.types import LONG_MAX
from pybroker.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
)
from pybroker.log.files import DELETE, STRAY, PartitionDir, parse_dir
from pybroker.log.log import Log
from pybroker.log.manager.log_dir import LOCK_FILE, LogDir
from pybroker.log.manager.parallel import Crew
from pybroker.log.recovery import OrderedMap

METADATA_TOPIC: Final = "__cluster_metadata"
REMOTE_INDEX_CACHE: Final = "remote-log-index-cache"
PROGRESS_LOGS: Final = 500
PROGRESS_MS: Final = 5000
NAMES_SHOWN: Final = 10

_OUR_FILES: Final = frozenset(
    (
        CLEAN_SHUTDOWN,
        CLEANER_CHECKPOINT,
        LOCK_FILE,
        LOG_START_CHECKPOINT,
        META_PROPERTIES,
        RECOVERY_POINT_CHECKPOINT,
        REPLICATION_CHECKPOINT,
        "bootstrap.checkpoint",
    )
)

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Contents:
    """What lies in a log directory."""

    logs: list[PartitionDir] = field(default_factory=list)  # the future ones too
    to_delete: list[PartitionDir] = field(default_factory=list)
    strays: list[PartitionDir] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


class OpenLog(Protocol):
    def __call__(
        self,
        log_dir: LogDir,
        found: PartitionDir,
        *,
        log_start_offset: int,
        recovery_point: int,
        cleaned_to: int,
        map_segments: OrderedMap,
    ) -> Log: ...


def contents_of(log_dir: LogDir) -> Contents:
    contents = Contents()
    for entry in log_dir.filesystem.scan(log_dir.path):
        name = entry.name
        if not entry.is_dir:
            if name.removesuffix(".tmp") not in _OUR_FILES:
                contents.unknown.append(name)
        elif (found := parse_dir(name)) is None:
            if name != REMOTE_INDEX_CACHE:
                contents.unknown.append(name)
        elif found.partition.topic == METADATA_TOPIC:
            continue
        elif found.mark == DELETE:
            contents.to_delete.append(found)
        elif found.mark == STRAY:
            contents.strays.append(found)
        else:
            contents.logs.append(found)
    return contents


def load_dir(log_dir: LogDir, open_log: OpenLog, threads: int, now_ms: Callable[[], int]) -> Contents:
    """Open every log of the directory through `open_log`; the mark of the clean shutdown is used up.

    `threads`, this one among them, share the logs and the segments of those that need recovery.
    """
    log_dir.remove_shutdown_mark()
    recovery_points = log_dir.read_recovery_points()
    log_start_offsets = log_dir.read_log_start_offsets()
    cleaned_offsets = {} if log_dir.was_clean else log_dir.read_cleaned_offsets()
    contents = contents_of(log_dir)
    _report(log_dir, contents)
    progress = Progress(log_dir, len(contents.logs), now_ms)
    crew = Crew(f"log-recovery-{log_dir.path}", threads)

    def load(found: PartitionDir) -> None:
        recovery_point = recovery_points.get(found.partition, 0)
        log = open_log(
            log_dir,
            found,
            log_start_offset=log_start_offsets.get(found.partition, 0),
            recovery_point=recovery_point,
            cleaned_to=LONG_MAX if cleaned_offsets is None else cleaned_offsets.get(found.partition, 0),
            map_segments=crew.map,
        )
        progress.loaded(is_behind=log.log_end_offset > recovery_point)

    crew.run(load, contents.logs)
    log_dir.is_loaded = True
    return contents


class Progress:
    """Says how far the loading is, every so many logs and seconds. Any thread."""

    def __init__(self, log_dir: LogDir, total: int, now_ms: Callable[[], int]) -> None:
        self._log_dir = log_dir
        self._total = total
        self._now_ms = now_ms
        self._reported_ms = now_ms()
        self._count = 0
        self._recovered = 0
        self._lock = threading.Lock()

    def loaded(self, *, is_behind: bool) -> None:
        """`is_behind`: the log went on behind its recovery point."""
        with self._lock:
            self._count += 1
            if is_behind and not self._log_dir.was_clean:
                self._recovered += 1
            now_ms = self._now_ms()
            if self._count == self._total or (self._count % PROGRESS_LOGS and now_ms - self._reported_ms < PROGRESS_MS):
                return
            self._reported_ms = now_ms
            logger.info(
                "loaded %d of %d logs in %s, %d needed recovery", self._count, self._total, self._log_dir.path, self._recovered
            )


def _report(log_dir: LogDir, contents: Contents) -> None:
    if not contents.logs:
        logger.info("no logs in %s yet", log_dir.path)
    elif log_dir.was_clean:
        logger.info("loading %d logs from %s, cleanly closed", len(contents.logs), log_dir.path)
    else:
        logger.info("loading %d logs from %s with recovery: it was not shut down cleanly", len(contents.logs), log_dir.path)
    if contents.strays:
        names = _some([stray.name for stray in contents.strays])
        logger.warning("%s holds logs of partitions that are not this node's, set aside: %s", log_dir.path, names)
    if contents.unknown:
        logger.warning("%s holds what is no log and stays untouched: %s", log_dir.path, _some(contents.unknown))


def _some(names: list[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(sorted(names)[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
