"""`cleaner-offset-checkpoint` of each log directory: up to where each compacted log has been cleaned.

Under the manager's lock. A file that cannot be read counts as empty, at the cost of cleaning everything once more. What is
known counts at once, whether its file can be written or not: `write_behind` tries again, for those that could not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from pybroker.base.filesystem import FileSystem
from pybroker.log.checkpoints import CLEANER_CHECKPOINT, CorruptFileError, read_offsets, write_offsets
from pybroker.log.files import TopicPartition

Offsets = dict[TopicPartition, int]

logger = logging.getLogger(__name__)


class CleanerCheckpoints:
    def __init__(self, filesystem: FileSystem, log_dirs: Iterable[str], on_error: Callable[[str, OSError], None]) -> None:
        """`on_error` is told of a change whose file could not be read or written: none of them raises an OSError."""
        self._filesystem = filesystem
        self._on_error = on_error
        self._dirs: dict[str, Offsets | None] = dict.fromkeys(log_dirs)
        self._behind: set[str] = set()

    def get(self, log_dir: str, partition: TopicPartition) -> int | None:
        return self._offsets(log_dir).get(partition)

    def set(self, log_dir: str, partition: TopicPartition, offset: int) -> None:
        self._change(log_dir, lambda offsets: offsets | {partition: offset})

    def lower(self, log_dir: str, partition: TopicPartition, offset: int) -> None:
        """To `offset`, if it stands behind that."""
        self._change(
            log_dir, lambda offsets: offsets | {partition: offset} if offsets.get(partition, offset) > offset else offsets
        )

    def remove(self, log_dir: str, partition: TopicPartition) -> None:
        self._change(log_dir, lambda offsets: {key: offset for key, offset in offsets.items() if key != partition})

    def move(self, partition: TopicPartition, source: str, destination: str) -> None:
        moved: Offsets = {}

        def taken(offsets: Offsets) -> Offsets:
            left = dict(offsets)
            if (offset := left.pop(partition, None)) is not None:
                moved[partition] = offset
            return left

        self._change(source, taken)
        self._change(destination, lambda offsets: offsets | moved)

    def keep(self, log_dir: str, partitions: Collection[TopicPartition]) -> None:
        """Drop what is known of logs that are not there any more."""
        self._change(log_dir, lambda offsets: {key: offset for key, offset in offsets.items() if key in partitions})

    def write_behind(self) -> None:
        """Once more, what could not be written."""
        for log_dir in list(self._behind):
            self._change(log_dir, lambda offsets: offsets)

    def forget_dir(self, log_dir: str) -> None:
        """The directory has failed: neither read nor write it."""
        self._dirs.pop(log_dir, None)
        self._behind.discard(log_dir)

    def _offsets(self, log_dir: str) -> Offsets:
        if log_dir not in self._dirs:
            return {}
        offsets = self._dirs[log_dir]
        if offsets is None:
            try:
                offsets = read_offsets(self._filesystem, f"{log_dir}/{CLEANER_CHECKPOINT}")
            except CorruptFileError as error:
                logger.warning("%s; all compacted logs in %s count as dirty", error, log_dir)
                offsets = {}
            self._dirs[log_dir] = offsets
        return offsets

    def _change(self, log_dir: str, change: Callable[[Offsets], Offsets]) -> None:
        if log_dir not in self._dirs:
            return
        try:
            before = self._offsets(log_dir)
            after = self._dirs[log_dir] = change(before)
            if after != before or log_dir in self._behind:
                self._behind.add(log_dir)
                write_offsets(self._filesystem, f"{log_dir}/{CLEANER_CHECKPOINT}", after)
                self._behind.discard(log_dir)
        except OSError as error:
            self._on_error(log_dir, error)
