"""The logs of a simulated broker, on a simulated disk: real logs, and as much of a `LogManager` as replication needs.

When a process is killed every byte stays; when the power fails what was not flushed is kept, lost or torn. The high watermarks
come back as they were checkpointed last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, Final

from pybroker.base.ids import Uuid
from pybroker.log.background import Inline
from pybroker.log.files import TopicPartition, parse_dir
from pybroker.log.loader import open_log
from pybroker.log.log import Log
from pybroker.log.log_config import LogConfig
from pybroker.log.open_segments import OpenSegments
from pybroker.protocol.errors import KafkaError
from pybroker.testing.disk import SimDisk

DIRECTORY: Final = "/data"


class DiskLogs:
    """A broker's LogManager and its only directory."""

    def __init__(self, disk: SimDisk, config_of: Callable[[str], LogConfig], now_ms: Callable[[], int]) -> None:
        self.disk = disk
        self.logs: dict[TopicPartition, Log] = {}
        self.path = DIRECTORY
        self.online_dirs = [self]
        self.settings = SimpleNamespace(file_delete_delay_ms=0)
        self._config_of = config_of
        self._now_ms = now_ms
        self._background = Inline()
        self._open_segments = OpenSegments(1000)
        self._checkpoint: dict[TopicPartition, int] = {}
        disk.make_dirs(DIRECTORY)
        disk.sync_dir("/")

    def reopen(self) -> None:
        """A new process finds what is there."""
        self._background = Inline()
        self._open_segments = OpenSegments(1000)
        self.logs = {}
        for entry in sorted(self.disk.scan(DIRECTORY)):
            found = parse_dir(entry.name)
            if found is not None and found.mark is None:
                self.logs[found.partition] = self._open(found.partition, None)

    def _open(self, name: TopicPartition, topic_id: Uuid | None) -> Log:
        return open_log(
            self.disk,
            f"{DIRECTORY}/{name}",
            name,
            self._config_of(name.topic),
            now_ms=self._now_ms(),
            background=self._background,
            open_segments=self._open_segments,
            topic_id=topic_id,
        )

    def get(self, name: TopicPartition) -> Log | None:
        return self.logs.get(name)

    def get_or_create(self, name: TopicPartition, topic_id: Uuid, *_: object, **__: object) -> Log:
        if name not in self.logs:
            self.logs[name] = self._open(name, topic_id)
        return self.logs[name]

    def dir_with_id(self, directory_id: object) -> None:
        return None

    def directory_id_of(self, log: Log) -> None:
        return None

    def async_delete_all(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, KafkaError]:
        for name in names:
            log = self.logs.pop(name, None)
            if log is not None:
                log.delete()
            self._checkpoint.pop(name, None)
        return {}

    def truncate_to(self, offsets: Mapping[TopicPartition, int]) -> None:
        for name, offset in offsets.items():
            self.logs[name].truncate_to(offset, self._now_ms())

    def truncate_fully_and_start_at(self, name: TopicPartition, offset: int) -> None:
        self.logs[name].truncate_fully_and_start_at(offset, self._now_ms())

    def on_io_error(self, directory: str, error: OSError, **_: Any) -> None:
        raise AssertionError(f"{directory}: nothing is wrong with the disk") from error

    def checkpoint(self) -> None:
        self._checkpoint = {name: log.high_watermark for name, log in self.logs.items()}

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        return self._checkpoint

    # The end of a process.

    def kill(self) -> None:
        self.disk.kill()

    def lose_power(self) -> None:
        self.disk.crash()
        # What it says of what is lost, nobody believes.
        self._checkpoint = {}
