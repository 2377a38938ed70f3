"""`cleaner-offset-checkpoint` of each log directory: up to where each compacted log has been cleaned.

Under the manager's lock. A file that cannot be read counts as empty, at the cost of cleaning everything once more.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from pybroker.base.filesystem import FileSystem
from pybroker.log.checkpoints import CLEANER_CHECKPOINT, CorruptFileError, read_offsets, write_offsets
from pybroker.log.files import TopicPartition

logger = logging.getLogger(__name__)


class CleanerCheckpoints:
    def __init__(self, filesystem: FileSystem, log_dirs: Iterable[str]) -> None:
        self._filesystem = filesystem
        self._dirs: dict[str, dict[TopicPartition, int] | None] = dict.fromkeys(log_dirs)

    def get(self, log_dir: str, partition: TopicPartition) -> int | None:
        return self._offsets(log_dir).get(partition)

    def set(self, log_dir: str, partition: TopicPartition, offset: int) -> None:
        self._write(log_dir, self._offsets(log_dir) | {partition: offset})

    def remove(self, log_dir: str, partition: TopicPartition) -> None:
        offsets = dict(self._offsets(log_dir))
        if offsets.pop(partition, None) is not None:
            self._write(log_dir, offsets)

    def keep(self, log_dir: str, partitions: Collection[TopicPartition]) -> None:
        """Drop what is known of logs that are not there any more."""
        offsets = self._offsets(log_dir)
        kept = {partition: offset for partition, offset in offsets.items() if partition in partitions}
        if len(kept) < len(offsets):
            self._write(log_dir, kept)

    def forget_dir(self, log_dir: str) -> None:
        """The directory has failed: neither read nor write it."""
        self._dirs.pop(log_dir, None)

    def _offsets(self, log_dir: str) -> dict[TopicPartition, int]:
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

    def _write(self, log_dir: str, offsets: dict[TopicPartition, int]) -> None:
        if log_dir in self._dirs:
            write_offsets(self._filesystem, f"{log_dir}/{CLEANER_CHECKPOINT}", offsets)
            self._dirs[log_dir] = offsets
