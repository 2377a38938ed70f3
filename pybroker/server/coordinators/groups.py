"""The group coordinator of a node: finds the shard of a group, brings requests to it, and follows the cluster's metadata.

Any thread may submit; `publish` runs on the thread that publishes metadata, after the replicas have taken up their logs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, NamedTuple
from uuid import uuid4

from pybroker.config import Config
from pybroker.coordinator.group.records import GROUP_RECORD_TYPES, SUPERSEDING
from pybroker.coordinator.group.settings import GroupSettings
from pybroker.coordinator.group.shard import GroupShard, TopicsChanged, TopicsDeleted
from pybroker.coordinator.hashing import partition_of
from pybroker.coordinator.runtime import (
    CoordinatorRuntime,
    Elected,
    HighWatermarkAdvanced,
    Requested,
    RequestedOfAll,
    Resigned,
    TransactionEnded,
)
from pybroker.coordinator.shard import DelayTimers, Effect, Load, Producer, Refuse, Reply, Request
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import EMPTY_IMAGE, MetadataImage
from pybroker.metadata.internal_topics import OFFSETS_TOPIC
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.records.compression import Codec
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.server.coordinators.cluster_view import ClusterOf
from pybroker.server.coordinators.driver import CoordinatorDriver, NewDriver
from pybroker.server.coordinators.log_writer import LogWriter
from pybroker.server.coordinators.shard_loader import LoadError, load_shard

logger = logging.getLogger(__name__)

_NAME: Final = "group-coordinator"


class Pending(NamedTuple):
    """Who waits for a shard's answer: one of the two is called, once, on any thread."""

    done: Callable[[Any], None]
    refused: Callable[[ErrorCode], None]


class GroupCoordinator:
    def __init__(
        self,
        config: Config,
        replicas: ReplicaManager,
        *,
        monotonic_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        new_uuid: Callable[[], str] = lambda: str(uuid4()),
        new_driver: NewDriver = CoordinatorDriver,
    ) -> None:
        """`new_uuid` gives the text of a random UUID, for member ids."""
        self._new_uuid = new_uuid
        self.settings = GroupSettings.of(config)
        self._replicas = replicas
        self._default_partitions = config.int("offsets.topic.num.partitions")
        self._linger_ms = config.int("group.coordinator.append.linger.ms")
        self._image = EMPTY_IMAGE
        self._cluster = ClusterOf(EMPTY_IMAGE)
        self._writer = LogWriter(OFFSETS_TOPIC, replicas, self._committed)
        self._runtime = CoordinatorRuntime(
            _NAME,
            self._writer,
            self._new_shard,
            commit_timeout_ms=lambda: config.int("offsets.commit.timeout.ms"),
            codec=Codec(config.int("offsets.topic.compression.codec")),
            linger_ms=self._linger_ms,
        )
        self._driver = new_driver(_NAME, self._runtime, now_ms=monotonic_ms, wall_ms=wall_ms, perform=_perform, load=self._load)

    def start(self) -> None:
        self._driver.start()

    def stop(self) -> None:
        self._driver.stop()

    def reconfigure(self, config: Config) -> None:
        self.settings.reconfigure(config)

    def _new_shard(self, partition: int, timers: DelayTimers) -> GroupShard:
        return GroupShard(partition, timers, self.settings, self._new_uuid, lambda: self._cluster)

    # Requests.

    def partition_of(self, group_id: str) -> int:
        topic = self._image.topics.get(OFFSETS_TOPIC)
        return partition_of(group_id, self._default_partitions if topic is None else len(topic.partitions))

    @property
    def partitions(self) -> list[int]:
        """Those that this broker leads."""
        return self._runtime.partitions

    def submit(
        self,
        partition: int,
        message: Any,
        pending: Pending,
        *,
        version: int = 0,
        client_id: str | None = None,
        client_host: str = "",
        verification_guard: int = 0,
    ) -> None:
        self._submit(Requested(partition, Request(message, pending, version, client_id or "", client_host, verification_guard)))

    def commits_at_once(self, partition: int) -> bool:
        """Whether what is written to that shard now is committed when the write returns."""
        return self._linger_ms <= 0 and self._writer.commits_at_once(partition)

    def submit_together(self, events: list[Requested]) -> bool:
        """Have requests decided in one round and answered before this returns, if their shards commit at once; False, with
        nothing done, if a round is under way."""
        return self._driver.submit_together(events)

    def end_transaction(
        self,
        partition: int,
        producer: Producer,
        coordinator_epoch: int,
        pending: Pending,
        *,
        commits: bool,
        version: int,
    ) -> None:
        """Write a marker into `partition`, and take in, or drop, the offsets that `producer` has committed there."""
        self._submit(TransactionEnded(partition, producer, coordinator_epoch, commits, pending, version))

    def _submit(self, event: Requested | TransactionEnded) -> None:
        partition = event.partition
        if self._writer.is_quick(partition):
            self._driver.submit(event)
        else:
            self._driver.submit_slow(event)

    def _committed(self, partition: int) -> None:
        self._driver.submit(HighWatermarkAdvanced(partition))

    # Metadata.

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        before, self._image = self._image, image
        self._cluster = ClusterOf(image)
        topic = image.topics.get(OFFSETS_TOPIC)
        gone = []
        for deleted in delta.deleted_topics.values():
            if deleted.name == OFFSETS_TOPIC:
                for partition in deleted.partitions:
                    self._resigned(partition)
            else:
                gone.append(deleted.name)
        if topic is not None:
            for partition in sorted(delta.changed_topics.get(topic.topic_id, ())):
                state = topic.partitions[partition]
                if state.leader == self._replicas.broker_id:
                    self._writer.watch(partition)
                    self._driver.submit_slow(Elected(partition, state.leader_epoch))
                else:
                    self._resigned(partition)
        if gone:
            self._driver.submit_slow(RequestedOfAll(Request(TopicsDeleted(tuple(gone)))))
        changed = [topic.name for topic_id in delta.changed_topics if (topic := image.topics_by_id.get(topic_id)) is not None]
        if changed or gone:
            has_new = any(name not in before.topics for name in changed)
            self._driver.submit_slow(RequestedOfAll(Request(TopicsChanged((*changed, *gone), has_new))))

    def _resigned(self, partition: int) -> None:
        self._writer.unwatch(partition)
        self._driver.submit_slow(Resigned(partition))

    def _load(self, wanted: Load) -> int:
        partition = self._replicas.partition(OFFSETS_TOPIC, wanted.partition)
        if isinstance(partition, ErrorCode):
            raise LoadError(f"{OFFSETS_TOPIC}-{wanted.partition}: {partition.name}")
        return load_shard(partition.log, wanted.shard, GROUP_RECORD_TYPES, SUPERSEDING)


def _perform(effect: Effect) -> None:
    pending: Pending | None = effect.token
    if pending is None:
        return
    if isinstance(effect, Reply):
        pending.done(effect.response)
    else:
        assert isinstance(effect, Refuse), effect
        pending.refused(effect.code)
