"""One broker's replicas over real logs, with a clock that stands still, for tests of handlers."""

from __future__ import annotations

from pathlib import Path

from pybroker.base.filesystem import OsFileSystem
from pybroker.base.ids import Uuid
from pybroker.base.purgatory import Purgatory
from pybroker.base.timer import Timer
from pybroker.log.files import TopicPartition
from pybroker.log.log_config import LogConfig
from pybroker.log.manager.directories import Owner
from pybroker.log.manager.log_manager import LogManager
from pybroker.log.manager.scheduler import ThreadBackground
from pybroker.log.manager.settings import ManagerSettings
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import EMPTY_IMAGE, MetadataImage
from pybroker.protocol.internal.metadata_log import PartitionRecord, RemoveTopicRecord, TopicRecord
from pybroker.protocol.message import Message
from pybroker.replication.partition import Partition
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.server.handlers.transactional_produce import TransactionalProduce

BROKER = 1
NOW_MS = 1_700_000_000_000


def unverified(replicas: Replicas) -> TransactionalProduce:
    """Of a broker whose transactions no coordinator has to confirm."""
    return TransactionalProduce(replicas.manager, lambda check: check.done({}), lambda: False)


class Replicas:
    """A ReplicaManager with topics made by metadata records, as on a node."""

    def __init__(self, tmp_path: Path, *dirs: str) -> None:
        self.now_ms = NOW_MS
        self.monotonic_ms = 0
        self.timer = Timer(0)
        self.configs: dict[str, dict[str, object]] = {}
        self.scheduler = ThreadBackground(1)
        self.dirs = [str(tmp_path / name) for name in dirs or ("data",)]
        self.logs = LogManager(
            OsFileSystem(),
            ManagerSettings(log_dirs=tuple(self.dirs)),
            self.scheduler,
            now_ms=lambda: self.now_ms,
            owner=Owner("cluster", BROKER, writes_meta=True),
        )
        self.logs.load(self.config_of)
        self.fetches: Purgatory[TopicPartition] = Purgatory(self.timer)
        self.manager = ReplicaManager(self.logs, BROKER, self.config_of, lambda: self.now_ms, self.fetches)
        self.image: MetadataImage = EMPTY_IMAGE
        self.apply()

    def config_of(self, topic: str) -> LogConfig:
        return LogConfig.of(self.configs.get(topic))

    def apply(self, *records: Message) -> None:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.image(self.image.offset + len(records), 1)
        self.manager.publish(delta, self.image)

    def create(
        self, topic: str, partitions: int = 1, *, leader: int = BROKER, leader_epoch: int = 0, **configs: object
    ) -> Uuid:
        self.configs[topic] = {name.replace("_", "."): value for name, value in configs.items()}
        topic_id = Uuid(topic.encode().ljust(16, b"-"))
        replicas = sorted({BROKER, leader})
        self.apply(
            TopicRecord(name=topic, topic_id=topic_id),
            *(
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=replicas,
                    isr=replicas,
                    removing_replicas=[],
                    adding_replicas=[],
                    leader=leader,
                    leader_epoch=leader_epoch,
                    partition_epoch=0,
                )
                for index in range(partitions)
            ),
        )
        return topic_id

    def delete(self, topic: str) -> None:
        self.apply(RemoveTopicRecord(topic_id=self.image.topics[topic].topic_id))

    def partition(self, topic: str, index: int = 0) -> Partition:
        found = self.manager.partition(topic, index)
        assert isinstance(found, Partition), found
        return found

    def advance(self, ms: int) -> None:
        """Let time pass, and what is due with it."""
        self.monotonic_ms += ms
        for entry in self.timer.take_due(self.monotonic_ms):
            entry.run()

    def close(self) -> None:
        self.scheduler.stop()
        self.logs.shutdown()
