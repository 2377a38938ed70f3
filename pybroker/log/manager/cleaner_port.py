"""The port to compaction: what the manager tells whoever cleans the logs."""

from __future__ import annotations

from typing import Protocol

from pybroker.log.files import TopicPartition


class Cleaner(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None:
        """Returns when nothing is being cleaned any more."""

    def pause(self, partition: TopicPartition) -> None:
        """Give up the cleaning of `partition` that is under way, and begin none until `resume`."""

    def resume(self, partition: TopicPartition) -> None: ...

    def truncated(self, partition: TopicPartition, log_dir: str, offset: int) -> None:
        """Nothing at or behind `offset`, where the active segment begins, counts as cleaned."""

    def moved(self, partition: TopicPartition, source: str, destination: str) -> None:
        """The log now lies in another log directory; what is known of it goes along."""

    def removed(self, partition: TopicPartition, log_dir: str) -> None: ...

    def dir_failed(self, log_dir: str) -> None: ...
