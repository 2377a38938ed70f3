"""A coordinator's way to the log of its topic: appends through the replica manager, and the news that they are committed.

Called by whoever runs the coordinator's rounds. What no other replica has to have is committed when the append returns; of
anything else the replica manager tells when the high watermark moves, on the thread that moves it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import Final

from pybroker.log.files import TopicPartition
from pybroker.log.producer_entry import AppendOrigin
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.replication.partition import ALL_IN_SYNC
from pybroker.replication.replica_manager import ReplicaManager

NOTHING_COMMITTED: Final = -1


class LogWriter:
    def __init__(self, topic: str, replicas: ReplicaManager, on_committed: Callable[[int], None]) -> None:
        """`on_committed` is called with a watched partition whose high watermark may have moved; it must not block."""
        self.topic = topic
        self._replicas = replicas
        self._on_committed = on_committed
        self._appending = 0  # the thread that is inside `append`

    def watch(self, partition: int) -> None:
        """From now on tell when more of it is committed."""
        self._replicas.watch_commits(TopicPartition(self.topic, partition), partial(self._committed, partition))

    def unwatch(self, partition: int) -> None:
        self._replicas.watch_commits(TopicPartition(self.topic, partition), None)

    def _committed(self, partition: int) -> None:
        # Whoever appends looks at the high watermark afterwards anyway.
        if self._appending != get_ident():
            self._on_committed(partition)

    def is_quick(self, partition: int) -> bool:
        """Whether an append is one write to the page cache and no more, or is refused at once."""
        found = self._replicas.partition(self.topic, partition)
        return isinstance(found, ErrorCode) or found.appends_at_once()

    def commits_at_once(self, partition: int) -> bool:
        """Whether an append is quick, and no other replica has to have it."""
        found = self._replicas.partition(self.topic, partition)
        return not isinstance(found, ErrorCode) and found.is_alone and found.appends_at_once()

    # The coordinator's port.

    def refusal(self, partition: int) -> ErrorCode:
        found = self._replicas.partition(self.topic, partition)
        if isinstance(found, ErrorCode):
            return found
        leadership = found.leadership
        if leadership is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        has_enough = len(leadership.isr) >= leadership.needed(found.log.config.min_insync_replicas)
        return ErrorCode.NONE if has_enough else ErrorCode.NOT_ENOUGH_REPLICAS

    def max_batch_bytes(self, partition: int) -> int:
        found = self._replicas.partition(self.topic, partition)
        if isinstance(found, ErrorCode):
            return 1 << 30  # the append is refused for that
        config = found.log.config
        return min(config.max_message_bytes, config.segment_bytes)

    def append(
        self, partition: int, epoch: int, batch: bytearray, *, transaction_version: int = -1, verification_guard: int = 0
    ) -> int:
        found = self._replicas.partition(self.topic, partition)
        if isinstance(found, ErrorCode):
            raise KafkaError(found, f"{self.topic}-{partition} is not here.")
        if found.leader_epoch != epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{found.topic_partition} is led in epoch {found.leader_epoch}; the coordinator was loaded in {epoch}.",
            )
        self._appending = get_ident()
        try:
            appended = self._replicas.append(
                found,
                batch,
                ALL_IN_SYNC,
                origin=AppendOrigin.COORDINATOR,
                transaction_version=transaction_version,
                verification_guard=verification_guard,
            )
            self._replicas.wake(found)
        finally:
            self._appending = 0
        return appended.first_offset

    def high_watermark(self, partition: int, epoch: int) -> int:
        found = self._replicas.partition(self.topic, partition)
        if isinstance(found, ErrorCode):
            return NOTHING_COMMITTED
        log = found.log
        # In this order: a follower, which may have truncated what the coordinator wrote, has a high watermark, too. Whoever
        # leads in the epoch still has not followed since it began.
        high_watermark = log.high_watermark
        return high_watermark if log.is_led_in(epoch) else NOTHING_COMMITTED
