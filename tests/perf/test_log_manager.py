"""How long a node takes to open and to close its logs, and what they cost in memory while nobody uses them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from perf.measure import report

from pybroker.base.filesystem import OsFileSystem
from pybroker.log.files import TopicPartition
from pybroker.log.log_config import LogConfig
from pybroker.log.manager.log_manager import LogManager
from pybroker.log.manager.scheduler import ThreadBackground
from pybroker.log.manager.settings import ManagerSettings
from pybroker.protocol.records.builder import BatchBuilder

pytestmark = pytest.mark.perf

PARTITIONS = 1000
ROUNDS = 3


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def manager_on(path: str) -> LogManager:
    settings = ManagerSettings(log_dirs=(path,))
    return LogManager(OsFileSystem(), settings, ThreadBackground(10), now_ms=wall_ms)


def resident_mib() -> float:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def open_all(path: str) -> None:
    """What a fresh process sees: prints seconds, MiB and descriptors for the opening of all logs."""
    config = LogConfig.of()
    manager = manager_on(path)
    before_mib, before_fds = resident_mib(), len(os.listdir("/proc/self/fd"))
    start = time.perf_counter()
    manager.load(lambda _: config)
    took = time.perf_counter() - start
    assert len(manager.all_logs()) == PARTITIONS
    print(took, resident_mib() - before_mib, len(os.listdir("/proc/self/fd")) - before_fds)
    start = time.perf_counter()
    manager.shutdown()
    print(time.perf_counter() - start)


def test_1000_cleanly_closed_partitions(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    config = LogConfig.of()
    manager = manager_on(path)
    manager.load(lambda _: config)
    builder = BatchBuilder(producer_id=1, producer_epoch=0, base_sequence=0)
    for _ in range(10):
        builder.append(wall_ms(), b"key", bytes(100))
    batch = builder.build()
    start = time.perf_counter()
    for number in range(PARTITIONS):
        log = manager.get_or_create(TopicPartition("perf", number), None, config, is_new=True)
        log.append_as_leader(bytearray(batch), 0, wall_ms())
    report("1,000 partitions made, each with a batch", time.perf_counter() - start, "s")
    start = time.perf_counter()
    manager.shutdown()
    report("the first clean stop of them", time.perf_counter() - start, "s")
    rounds = []
    for _ in range(ROUNDS):
        code = f"from perf.test_log_manager import open_all; open_all({path!r})"
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(["tests", "."])}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        rounds.append([float(number) for number in done.stdout.split()])
    best = [min(column) for column in zip(*rounds, strict=True)]
    report("1,000 cleanly closed partitions opened", best[0], "s", 1.5)
    report("memory they take", best[1], "MiB", 40)
    report("file descriptors they hold", best[2], "")
    report("clean stop with nothing to flush", best[3], "s")
