"""A node's log manager on real directories, with a clock and a scheduler that stand still until told to go on."""

from __future__ import annotations

import errno
import heapq
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pybroker.base.filesystem import Buffer, OsDirEntry, OsFile, OsFileSystem, OsLock
from pybroker.base.ids import Uuid
from pybroker.log.files import TopicPartition
from pybroker.log.log import Log
from pybroker.log.log_config import LogConfig
from pybroker.log.manager.cleaner_port import Cleaner
from pybroker.log.manager.directories import Owner
from pybroker.log.manager.failures import DirFailure
from pybroker.log.manager.log_manager import LogManager
from pybroker.log.manager.settings import ManagerSettings
from pybroker.protocol.records.builder import BatchBuilder

OWNER = Owner("cluster-of-the-test", 1, writes_meta=True)
TOPIC_ID = Uuid(b"topic-id-16bytes")
START_MS = 1_700_000_000_000


def partition(number: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, number)


@dataclass
class ManualScheduler:
    """What is due runs in `advance`, on the caller's thread; what is due at once runs at once."""

    now_ms: int = START_MS
    tasks: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    number: int = 0

    def clock(self) -> int:
        return self.now_ms

    def run(self, task: Callable[[], None], *, delay_ms: int = 0) -> None:
        if delay_ms:
            self._push(delay_ms, task)
        else:
            task()

    def every(self, name: str, task: Callable[[], None], interval_ms: int, *, first_ms: int = 0) -> ManualRepeated:
        repeated = ManualRepeated()

        def again() -> None:
            if not repeated.is_cancelled:
                task()
                self._push(interval_ms, again)

        self._push(first_ms, again)
        return repeated

    def advance(self, by_ms: int) -> None:
        end_ms = self.now_ms + by_ms
        while self.tasks and self.tasks[0][0] <= end_ms:
            self.now_ms, _, task = heapq.heappop(self.tasks)
            task()
        self.now_ms = end_ms

    def _push(self, delay_ms: int, task: Callable[[], None]) -> None:
        self.number += 1
        heapq.heappush(self.tasks, (self.now_ms + delay_ms, self.number, task))


@dataclass
class ManualRepeated:
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


class FaultyFile(OsFile):
    __slots__ = ("_check",)

    def __init__(self, path: str, flags: int, check: Callable[[str, str], None]) -> None:
        self._check = check
        super().__init__(path, flags)

    def write(self, position: int, data: Buffer) -> None:
        self._check("write", self.path)
        super().write(position, data)

    def sync(self) -> None:
        self._check("sync", self.path)
        super().sync()


class FaultyFileSystem(OsFileSystem):
    """The real disk, but whatever `break_under` names fails."""

    def __init__(self) -> None:
        self._broken: list[tuple[str, int, frozenset[str]]] = []
        self.failures = 0

    def break_under(self, path: Path | str, code: int = errno.EIO, operations: tuple[str, ...] = ()) -> None:
        """From now on `operations` (all that change or open something, if none is named) on paths under `path` fail."""
        self._broken.append((str(path), code, frozenset(operations)))

    def mend(self) -> None:
        self._broken = []

    def _check(self, operation: str, path: str) -> None:
        for prefix, code, operations in self._broken:
            if path.startswith(prefix) and (not operations or operation in operations):
                self.failures += 1
                raise OSError(code, os.strerror(code), path)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> FaultyFile:
        self._check("open", path)
        return FaultyFile(path, os.O_RDONLY if read_only else os.O_RDWR | (os.O_CREAT if create else 0), self._check)

    def scan(self, path: str) -> Iterator[OsDirEntry]:
        self._check("scan", path)
        return super().scan(path)

    def make_dirs(self, path: str) -> None:
        self._check("make_dirs", path)
        super().make_dirs(path)

    def rename(self, old: str, new: str) -> None:
        self._check("rename", old)
        super().rename(old, new)

    def remove(self, path: str) -> None:
        self._check("remove", path)
        super().remove(path)

    def lock(self, path: str) -> OsLock | None:
        self._check("lock", path)
        return super().lock(path)


@dataclass
class RecordingCleaner:
    calls: list[tuple[object, ...]] = field(default_factory=list)

    def start(self) -> None:
        self.calls.append(("start",))

    def stop(self) -> None:
        self.calls.append(("stop",))

    def pause(self, partition: TopicPartition) -> None:
        self.calls.append(("pause", partition))

    def resume(self, partition: TopicPartition) -> None:
        self.calls.append(("resume", partition))

    def truncated(self, partition: TopicPartition, log_dir: str, offset: int) -> None:
        self.calls.append(("truncated", partition, log_dir, offset))

    def moved(self, partition: TopicPartition, source: str, destination: str) -> None:
        self.calls.append(("moved", partition, source, destination))

    def removed(self, partition: TopicPartition, log_dir: str) -> None:
        self.calls.append(("removed", partition, log_dir))

    def dir_failed(self, log_dir: str) -> None:
        self.calls.append(("dir_failed", log_dir))


class Node:
    """A broker's log directories under `root`, and the managers that are started on them one after the other."""

    def __init__(self, root: Path, dirs: int = 1, **settings: int) -> None:
        self.paths = [root / f"data-{number}" for number in range(1, dirs + 1)]
        self.settings = ManagerSettings(log_dirs=tuple(map(str, self.paths)), **settings)  # type: ignore[arg-type]
        self.filesystem = FaultyFileSystem()
        self.scheduler = ManualScheduler()
        self.failures: list[DirFailure] = []
        self.config = LogConfig.of()

    def manager(self, owner: Owner | None = OWNER, cleaner: Cleaner | None = None) -> LogManager:
        return LogManager(
            self.filesystem,
            self.settings,
            self.scheduler,
            now_ms=self.scheduler.clock,
            owner=owner,
            cleaner=cleaner,
            on_dir_failure=self.failures.append,
        )

    def loaded(self, cleaner: Cleaner | None = None) -> LogManager:
        manager = self.manager(cleaner=cleaner)
        manager.load(lambda _: self.config)
        return manager

    def create(self, manager: LogManager, number: int = 0, **how: object) -> Log:
        return manager.get_or_create(partition(number), TOPIC_ID, self.config, is_new=True, **how)  # type: ignore[arg-type]

    def append(self, log: Log, value: bytes = b"value") -> int:
        return append(log, value, self.scheduler.now_ms)


def append(log: Log, value: bytes, now_ms: int) -> int:
    """One record; returns its offset."""
    builder = BatchBuilder()
    builder.append(now_ms, None, value)
    return log.append_as_leader(bytearray(builder.build()), 0, now_ms).first_offset


def values(log: Log) -> list[bytes | None]:
    return [None if record.value is None else bytes(record.value) for batch in log.batches() for record in batch.records()]


def crash(manager: LogManager) -> None:
    """The process is gone: nothing is written any more, the locks are free."""
    for log in manager.all_logs():
        log.close_files()
    for log_dir in manager.dirs:
        log_dir.unlock()


def names(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()}
