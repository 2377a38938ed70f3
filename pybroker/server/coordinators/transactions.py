"""The transaction coordinator of a node: finds the shard of a transactional id, brings requests to it, has markers sent.

Any thread may submit; `publish` runs on the thread that publishes metadata, after the replicas have taken up their logs.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from pybroker.config import Config
from pybroker.coordinator.hashing import partition_of
from pybroker.coordinator.runtime import CoordinatorRuntime, Elected, HighWatermarkAdvanced, Requested, Resigned
from pybroker.coordinator.shard import DelayTimers, Effect, Load, Refuse, Reply, Request
from pybroker.coordinator.transaction.records import SUPERSEDING, TRANSACTION_RECORD_TYPES
from pybroker.coordinator.transaction.requests import (
    EndTransaction,
    InitProducer,
    MarkersWritten,
    NeedsProducerId,
    SendMarkers,
)
from pybroker.coordinator.transaction.settings import TransactionSettings
from pybroker.coordinator.transaction.shard import TransactionShard
from pybroker.coordinator.transaction.transaction import TopicPartition
from pybroker.metadata.controller.features import transaction_version
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import EMPTY_IMAGE, MetadataImage
from pybroker.metadata.internal_topics import TRANSACTIONS_TOPIC
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.records.batch import NO_SEQUENCE
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.server.coordinators.driver import CoordinatorDriver, NewDriver
from pybroker.server.coordinators.groups import Pending
from pybroker.server.coordinators.log_writer import LogWriter
from pybroker.server.coordinators.marker_sender import RETRY_MS
from pybroker.server.coordinators.shard_loader import LoadError, load_shard
from pybroker.server.producer_ids import ProducerIds
from pybroker.server.timer_thread import TimerThread

logger = logging.getLogger(__name__)

_NAME: Final = "transaction-coordinator"


class TransactionCoordinator:
    def __init__(
        self,
        config: Config,
        replicas: ReplicaManager,
        producer_ids: ProducerIds,
        timer: TimerThread,
        *,
        wall_ms: Callable[[], int],
        new_driver: NewDriver = CoordinatorDriver,
    ) -> None:
        self.settings = TransactionSettings.of(config)
        self.send_markers: Callable[[SendMarkers], None] | None = None  # set before it is started
        self.on_leaders_moved: list[Callable[[], None]] = []  # called when the image has other leaders
        self._replicas = replicas
        self._producer_ids = producer_ids
        self._timer = timer
        self._local = threading.local()  # .orders: those that wait for the thread that is inside `_send`
        self._default_partitions = config.int("transaction.state.log.num.partitions")
        self.image = EMPTY_IMAGE
        self._writer = LogWriter(TRANSACTIONS_TOPIC, replicas, self._committed)
        self._runtime = CoordinatorRuntime(
            _NAME,
            self._writer,
            self._new_shard,
            commit_timeout_ms=lambda: config.int("request.timeout.ms"),
            base_sequence=NO_SEQUENCE,
        )
        self._driver = new_driver(
            _NAME, self._runtime, now_ms=timer.now_ms, wall_ms=wall_ms, perform=self._perform, load=self._load
        )

    def start(self) -> None:
        assert self.send_markers is not None
        self._driver.start()

    def stop(self) -> None:
        self._driver.stop()

    def _new_shard(self, partition: int, timers: DelayTimers) -> TransactionShard:
        return TransactionShard(partition, timers, self.settings, lambda: transaction_version(self.image))

    # Requests.

    def partition_of(self, transactional_id: str) -> int:
        topic = self.image.topics.get(TRANSACTIONS_TOPIC)
        return partition_of(transactional_id, self._default_partitions if topic is None else len(topic.partitions))

    @property
    def partitions(self) -> list[int]:
        """Those that this broker leads."""
        return self._runtime.partitions

    def leader_of(self, transactional_id: str) -> int | None:
        """The broker that coordinates it; None while there is no such topic."""
        state = self.image.partition(TRANSACTIONS_TOPIC, self.partition_of(transactional_id))
        return None if state is None else state.leader

    def unknown(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Those that must not be added to a transaction: the metadata by which markers go does not have them, so that its end
        would take them for gone. They may be new, and known to the replicas and others before."""
        image = self.image
        return {one for one in partitions if image.partition(*one) is None}

    def submit(self, transactional_id: str, message: Any, pending: Pending) -> None:
        self.submit_to(self.partition_of(transactional_id), message, pending)

    def submit_to(self, partition: int, message: Any, pending: Pending) -> None:
        event = Requested(partition, Request(message, pending))
        if self._writer.is_quick(partition):
            self._driver.submit(event)
        else:
            self._driver.submit_slow(event)

    def submit_with_id(self, message: InitProducer | EndTransaction, pending: Pending) -> None:
        """With a new producer id, if it turns out to need one."""

        def taken(producer_id: int | None) -> None:
            if producer_id is None:
                # As Kafka says it: old clients take other words for it for fatal.
                pending.refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            else:
                self.submit_with_id(message._replace(new_producer_id=producer_id), pending)

        def done(response: Any) -> None:
            if isinstance(response, NeedsProducerId):
                self._producer_ids.take(taken)
            else:
                pending.done(response)

        self.submit(message.transactional_id, message, Pending(done, pending.refused))

    def _committed(self, partition: int) -> None:
        self._driver.submit(HighWatermarkAdvanced(partition))

    # Markers.

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, SendMarkers):
            self._send(effect)
        elif isinstance(effect, Reply):
            effect.token.done(effect.response)
        else:
            assert isinstance(effect, Refuse), effect
            effect.token.refused(effect.code)

    def _send(self, order: SendMarkers) -> None:
        """One after the other: markers that are written at once lead to the next round, and that to more of them."""
        orders: deque[SendMarkers] | None = getattr(self._local, "orders", None)
        if orders is not None:
            orders.append(order)
            return
        assert self.send_markers is not None
        self._local.orders = orders = deque((order,))
        try:
            while orders:
                self.send_markers(orders.popleft())
        finally:
            self._local.orders = None

    def epoch_of(self, order: SendMarkers) -> int | None:
        """The epoch of the order's shard; None if that was given up since, even if this broker leads the partition again."""
        return self._runtime.epoch_of(order.shard.partition, order.shard)

    def markers_written(self, order: SendMarkers) -> None:
        def refused(code: ErrorCode) -> None:
            if self.epoch_of(order) is not None:
                logger.info("%s: its end is not written yet: %s", order.transactional_id, code.name)
                self._timer.add(self._timer.now_ms() + RETRY_MS, partial(self.markers_written, order))

        self.submit_to(order.shard.partition, MarkersWritten(order.prepared), Pending(lambda _: None, refused))

    # Metadata.

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.image = image
        topic = image.topics.get(TRANSACTIONS_TOPIC)
        for deleted in delta.deleted_topics.values():
            if deleted.name == TRANSACTIONS_TOPIC:
                for partition in deleted.partitions:
                    self._resigned(partition)
        if topic is not None:
            for partition in sorted(delta.changed_topics.get(topic.topic_id, ())):
                state = topic.partitions[partition]
                if state.leader == self._replicas.broker_id:
                    self._writer.watch(partition)
                    self._driver.submit_slow(Elected(partition, state.leader_epoch))
                else:
                    self._resigned(partition)
        if delta.changed_topics or delta.deleted_topics:
            for look_again in self.on_leaders_moved:
                look_again()

    def _resigned(self, partition: int) -> None:
        self._writer.unwatch(partition)
        self._driver.submit_slow(Resigned(partition))

    def _load(self, wanted: Load) -> int:
        partition = self._replicas.partition(TRANSACTIONS_TOPIC, wanted.partition)
        if isinstance(partition, ErrorCode):
            raise LoadError(f"{TRANSACTIONS_TOPIC}-{wanted.partition}: {partition.name}")
        return load_shard(partition.log, wanted.shard, TRANSACTION_RECORD_TYPES, SUPERSEDING)
