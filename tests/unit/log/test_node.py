"""The parts of the log store together, as a broker puts them together: manager, scheduler, cleaner processes, real files."""

from __future__ import annotations

import time
from pathlib import Path

from support.batches import batch
from support.waiting import wait_until

from pybroker.base.filesystem import OsFileSystem
from pybroker.base.ids import Uuid
from pybroker.config import Config, load_text
from pybroker.log.cleaner.setup import log_cleaner
from pybroker.log.files import TopicPartition
from pybroker.log.log_config import LogConfig
from pybroker.log.manager.directories import Owner
from pybroker.log.manager.log_manager import LogManager
from pybroker.log.manager.scheduler import ThreadBackground
from pybroker.log.manager.settings import ManagerSettings
from pybroker.log.open_segments import OpenSegments

STATE = TopicPartition("state", 0)
COMPACTED = LogConfig.of({"cleanup.policy": ("compact",), "segment.bytes": 4000, "min.cleanable.dirty.ratio": 0.01})


def config_of(directory: Path, *more: str) -> Config:
    lines = (
        "process.roles=broker,controller",
        "node.id=1",
        "listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "controller.listener.names=CONTROLLER",
        "controller.quorum.bootstrap.servers=localhost:9093",
        f"log.dirs={directory}",
        "log.cleaner.backoff.ms=10",
        *more,
    )
    loaded = load_text("\n".join(lines), "server.properties")
    assert loaded.config is not None, loaded.problems
    return loaded.config


class RunningNode:
    def __init__(self, directory: Path, *more: str) -> None:
        config = config_of(directory, *more)
        filesystem, open_segments = OsFileSystem(), OpenSegments()
        self.scheduler = ThreadBackground(2)
        self.manager = LogManager(
            filesystem,
            ManagerSettings.of(config),
            self.scheduler,
            now_ms=now_ms,
            owner=Owner("c", 1, writes_meta=True),
            open_segments=open_segments,
        )
        self.cleaner = log_cleaner(
            filesystem, config, [str(directory)], self.manager.current_logs, open_segments, clock_ms=now_ms
        )
        self.manager.cleaner = self.cleaner
        self.manager.load(lambda _: COMPACTED)
        self.manager.start()

    def stop(self) -> None:
        self.scheduler.stop()
        self.manager.shutdown(broker_epoch=1)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_a_node_compacts_beside_its_appends_and_comes_back_with_the_last_value_of_each_key(tmp_path: Path) -> None:
    node = RunningNode(tmp_path)
    log = node.manager.get_or_create(STATE, Uuid(b"state-topic-id-1"), COMPACTED, is_new=True)
    latest = {}
    for number in range(600):
        key, value = b"key-%d" % (number % 7), b"value %d " % number * 5
        log.append_as_leader(batch([value], keys=[key], timestamp=now_ms()), 0, now_ms())
        log.set_high_watermark(log.log_end_offset)
        latest[key] = value
    written = log.size_bytes
    last_rolled = log.active.base_offset
    assert node.cleaner is not None
    cleaner = node.cleaner.manager
    wait_until(lambda: (cleaner.checkpoint(STATE, str(tmp_path)) or 0) >= last_rolled, 60, lambda: f"{log} was not cleaned")
    assert log.size_bytes < written / 4
    node.stop()

    again = RunningNode(tmp_path)
    reopened = again.manager.get(STATE)
    assert reopened is not None
    assert reopened.log_end_offset == 600
    found = {record.key: record.value for each in reopened.batches() for record in each.records()}
    assert found == latest
    again.stop()


def test_without_the_cleaner_a_node_keeps_everything(tmp_path: Path) -> None:
    node = RunningNode(tmp_path, "log.cleaner.enable=false")
    assert node.cleaner is None
    log = node.manager.get_or_create(STATE, Uuid(b"state-topic-id-1"), COMPACTED, is_new=True)
    for _ in range(100):
        log.append_as_leader(batch([bytes(100)], keys=[b"k"], timestamp=now_ms()), 0, now_ms())
    node.stop()
    again = RunningNode(tmp_path, "log.cleaner.enable=false")
    reopened = again.manager.get(STATE)
    assert reopened is not None
    assert sum(each.count for each in reopened.batches()) == 100
    again.stop()
