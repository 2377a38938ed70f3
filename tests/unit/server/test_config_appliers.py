"""Changed configs, from the metadata to the parts of a node that run by them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.batches import batch
from support.waiting import wait_until
from unit.server.clusters import Cluster, node_file, topic_id_of

from pybroker.base.filesystem import OsFileSystem
from pybroker.config import Config
from pybroker.log.cleaner.setup import log_cleaner
from pybroker.log.files import TopicPartition
from pybroker.log.log import Log
from pybroker.log.manager.directories import Owner
from pybroker.log.manager.log_manager import LogManager
from pybroker.log.manager.scheduler import ThreadBackground
from pybroker.log.manager.settings import ManagerSettings
from pybroker.log.open_segments import OpenSegments
from pybroker.metadata.image import ResourceType
from pybroker.server.config_appliers import apply_changes
from pybroker.server.dynamic_config import NodeConfig

BROKER, TOPIC = ResourceType.BROKER, ResourceType.TOPIC
DEADLINE_S = 60


class Sockets:
    def __init__(self) -> None:
        self.configs: list[Config] = []

    def reconfigure(self, config: Config) -> None:
        self.configs.append(config)


class Node:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        # A cleaner that looks once, at the start, and then in an hour.
        self.config = NodeConfig(node_file({"log.dirs": str(directory), "log.cleaner.backoff.ms": "3600000"}))
        self.cluster = Cluster(self.config.publish)
        filesystem, open_segments = OsFileSystem(), OpenSegments()
        self.background = ThreadBackground(2)
        self.logs = LogManager(
            filesystem,
            ManagerSettings.of(self.config.current),
            self.background,
            now_ms=now_ms,
            owner=Owner("c", 1, writes_meta=True),
            open_segments=open_segments,
        )
        self.cleaner = log_cleaner(
            filesystem, self.config.current, [str(directory)], self.logs.current_logs, open_segments, clock_ms=now_ms
        )
        self.sockets = Sockets()
        apply_changes(self.config, self.logs, self.background, self.cleaner, self.sockets)
        self.logs.cleaner = self.cleaner
        self.logs.load(self.config.config_of)
        self.logs.start()

    def log(self, topic: str) -> Log:
        self.cluster.topic(topic)
        name = TopicPartition(topic, 0)
        return self.logs.get_or_create(name, topic_id_of(topic), self.config.config_of(topic), is_new=True)

    def set(self, key: str, value: str | None, *, name: str = "") -> None:
        self.cluster.config(BROKER, name, {key: value})

    def set_topic(self, topic: str, key: str, value: str | None) -> None:
        self.cluster.config(TOPIC, topic, {key: value})

    def stop(self) -> None:
        self.background.stop()
        self.logs.shutdown()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.stop()


def test_a_changed_default_reaches_every_log_but_those_with_an_override(node: Node) -> None:
    orders, payments = node.log("orders"), node.log("payments")
    node.set_topic("orders", "segment.bytes", "2097152")
    node.set("log.segment.bytes", "4194304")
    assert (orders.config.segment_bytes, payments.config.segment_bytes) == (2097152, 4194304)
    node.set_topic("orders", "segment.bytes", None)
    assert orders.config.segment_bytes == 4194304
    node.set("log.segment.bytes", None)
    assert (orders.config.segment_bytes, payments.config.segment_bytes) == (1073741824, 1073741824)


def test_a_topics_config_reaches_its_own_logs_only(node: Node) -> None:
    orders, payments = node.log("orders"), node.log("payments")
    before = payments.config
    node.set_topic("orders", "max.message.bytes", "1000")
    assert orders.config.max_message_bytes == 1000
    assert payments.config is before


def test_a_bad_config_leaves_the_logs_as_they_are(node: Node) -> None:
    orders = node.log("orders")
    node.set("message.max.bytes", "2000")
    before = orders.config
    node.set("message.max.bytes", "very many")
    node.set_topic("orders", "retention.ms", "soon")
    assert orders.config == before


def test_the_log_manager_goes_by_new_settings(node: Node) -> None:
    log = node.log("orders")
    node.set("num.recovery.threads.per.data.dir", "4")
    node.set("producer.id.expiration.ms", "5000")
    node.set("log.segment.delete.delay.ms", "123")
    expected = replace(
        ManagerSettings.of(node.config.static),
        recovery_threads=4,
        producer_id_expiration_ms=5000,
        file_delete_delay_ms=123,
    )
    assert node.logs.settings == expected
    assert log.producers.producer_id_expiration_ms == 5000
    node.set("transaction.partition.verification.enable", "false")
    assert log.producers.verifies_transactions is False


def test_the_background_threads_are_as_many_as_told(node: Node) -> None:
    node.set("background.threads", "3")
    assert node.background._limit == 3


def test_the_socket_server_is_told_of_its_own_configs_only(node: Node) -> None:
    node.set("log.retention.ms", "5000")
    assert node.sockets.configs == []
    node.set("max.connections", "7")
    node.set("listener.name.plaintext.max.connections", "5", name="1")
    first, second = node.sockets.configs
    assert first.int("max.connections") == 7
    assert second.for_listener("PLAINTEXT", "max.connections") == 5


def test_the_cleaner_goes_by_new_settings_without_a_restart(node: Node) -> None:
    log = node.log("state")
    node.cluster.config(
        TOPIC, "state", {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
    )
    for _ in range(30):
        log.append_as_leader(batch([bytes(100_000)], keys=[b"k"], timestamp=now_ms()), 0, now_ms())
    log.set_high_watermark(log.log_end_offset)
    assert node.cleaner is not None
    checkpoints = node.cleaner.manager
    node.set("log.cleaner.backoff.ms", "10")
    wait_until(
        lambda: (checkpoints.checkpoint(TopicPartition("state", 0), str(node.directory)) or 0) >= log.active.base_offset,
        DEADLINE_S,
        lambda: f"{log} was not cleaned",
    )
