"""Writes the markers that end transactions into the partitions that this broker leads, whoever's coordinator they come from.

Any thread; nothing here waits. A marker counts when all replicas in sync have it. Those for `__consumer_offsets` go through
the group coordinator, whose shards take in what the transaction committed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from pybroker.coordinator.shard import Producer
from pybroker.log.producer_entry import AppendOrigin
from pybroker.metadata.internal_topics import OFFSETS_TOPIC
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
)
from pybroker.protocol.records.control import ControlType, end_transaction_marker
from pybroker.replication.delayed_produce import DelayedProduce, Uncommitted
from pybroker.replication.partition import ALL_IN_SYNC, Partition
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.server.coordinators.groups import GroupCoordinator, Pending

logger = logging.getLogger(__name__)

# What the transaction coordinator does not expect of a partition: it is to try again, wherever the leader is then.
_NOT_READY: Final = frozenset(
    (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
)

Done = Callable[[list[WritableTxnMarkerResult]], None]


class MarkerWriter:
    def __init__(self, replicas: ReplicaManager, groups: GroupCoordinator, timeout_ms: Callable[[], int]) -> None:
        """`timeout_ms` is request.timeout.ms."""
        self._replicas = replicas
        self._groups = groups
        self._timeout_ms = timeout_ms

    def write(self, markers: Sequence[WritableTxnMarker], done: Done) -> None:
        """`done` gets a code for every partition, of each producer once, when the last of them is known."""
        results: dict[int, WritableTxnMarkerResult] = {}
        waiting = _Countdown(lambda: done(list(results.values())))
        for marker in markers:
            result = results.setdefault(marker.producer_id, WritableTxnMarkerResult(producer_id=marker.producer_id, topics=[]))
            for topic in marker.topics:
                rows = [
                    WritableTxnMarkerPartitionResult(partition_index=index, error_code=ErrorCode.NONE)
                    for index in topic.partition_indexes
                ]
                result.topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=rows))
                for row in rows:
                    waiting.expect()
                    self._write_one(marker, topic.name, row, waiting.came)
        waiting.came()

    def _write_one(
        self, marker: WritableTxnMarker, topic: str, row: WritableTxnMarkerPartitionResult, came: Callable[[], None]
    ) -> None:
        def refused(code: ErrorCode) -> None:
            row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NOT_READY else code
            came()

        partition = self._replicas.partition(topic, row.partition_index)
        if isinstance(partition, ErrorCode):
            refused(partition)
        elif topic == OFFSETS_TOPIC:
            self._groups.end_transaction(
                row.partition_index,
                Producer(marker.producer_id, marker.producer_epoch),
                marker.coordinator_epoch,
                Pending(lambda _: came(), refused),
                commits=marker.transaction_result,
                version=marker.transaction_version,
            )
        else:
            try:
                self._append(marker, partition, row, came)
            except KafkaError as error:
                refused(error.code)
            except Exception:
                # The others of the request are written, and wait for their verdicts together.
                logger.exception("a marker for %s-%d", topic, row.partition_index)
                refused(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _append(
        self,
        marker: WritableTxnMarker,
        partition: Partition,
        row: WritableTxnMarkerPartitionResult,
        came: Callable[[], None],
    ) -> None:
        replicas, leadership = self._replicas, partition.leadership
        batch = end_transaction_marker(
            ControlType.COMMIT if marker.transaction_result else ControlType.ABORT,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=replicas.now_ms(),
        )
        appended = replicas.append(
            partition,
            batch,
            ALL_IN_SYNC,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=marker.transaction_version,
        )
        replicas.wake(partition)
        uncommitted = Uncommitted(partition, leadership, appended.last_offset + 1, row)
        if uncommitted.is_settled():
            came()
            return
        deadline_ms = replicas.monotonic_ms() + self._timeout_ms()
        replicas.produces.watch(DelayedProduce([uncommitted], came), [partition.topic_partition], deadline_ms)


class _Countdown:
    """Calls `done` when everything that was expected, and the one who expects, has come."""

    def __init__(self, done: Callable[[], None]) -> None:
        self._done = done
        self._missing = 1
        self._lock = threading.Lock()

    def expect(self) -> None:
        with self._lock:
            self._missing += 1

    def came(self) -> None:
        with self._lock:
            self._missing -= 1
            is_last = not self._missing
        if is_last:
            self._done()
