from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest
from unit.log.manager.helpers import Node, partition

from pybroker.log.log import Log
from pybroker.log.log_config import LogConfig
from pybroker.log.manager.log_manager import LogManager
from pybroker.protocol.records.builder import BatchBuilder


def started(node: Node) -> LogManager:
    manager = node.loaded()
    manager.start()
    return manager


def fill(node: Node, log: Log, segments: int = 3) -> None:
    for _ in range(segments):
        node.append(log)
        log.roll(node.scheduler.now_ms)
    log.set_high_watermark(log.log_end_offset)


def test_retention_is_checked_at_its_interval(tmp_path: Path) -> None:
    node = Node(tmp_path, initial_delay_ms=100, retention_check_ms=1000)
    node.config = LogConfig.of({"retention.ms": 500})
    manager = started(node)
    log = node.create(manager)
    fill(node, log)
    node.scheduler.advance(100)
    assert log.log_start_offset == 0
    node.scheduler.advance(999)
    assert log.log_start_offset == 0
    node.scheduler.advance(1)
    assert log.log_start_offset == 3


@pytest.mark.parametrize("policy", [("compact",), ("compact", "delete")])
def test_compacted_logs_are_left_to_the_cleaner(tmp_path: Path, policy: tuple[str, ...]) -> None:
    node = Node(tmp_path, initial_delay_ms=0, retention_check_ms=1000)
    node.config = LogConfig.of({"retention.bytes": 0, "retention.ms": 0})
    manager = started(node)
    log = node.create(manager)
    fill(node, log)
    log.update_config(LogConfig.of({"cleanup.policy": policy, "retention.ms": 0}))
    node.scheduler.advance(5000)
    assert log.log_start_offset == 0


def test_a_log_is_flushed_when_flush_ms_is_over(tmp_path: Path) -> None:
    node = Node(tmp_path, initial_delay_ms=100, flush_check_ms=100)
    node.config = LogConfig.of({"flush.ms": 250})
    manager = started(node)
    log = node.create(manager)
    node.append(log)
    node.scheduler.advance(200)
    assert log.recovery_point == 0
    node.scheduler.advance(100)
    assert (log.recovery_point, log.last_flush_ms) == (1, node.scheduler.now_ms)


def test_the_checkpoints_are_written_at_their_intervals(tmp_path: Path) -> None:
    node = Node(tmp_path, initial_delay_ms=0, recovery_point_checkpoint_ms=1000, log_start_checkpoint_ms=2000)
    manager = started(node)
    log = node.create(manager)
    node.scheduler.advance(0)
    node.append(log)
    node.append(log)
    log.set_high_watermark(2)
    log.advance_log_start_offset(1)
    log.flush()
    (log_dir,) = manager.dirs
    node.scheduler.advance(1000)
    assert log_dir.read_recovery_points() == {partition(0): 2}
    assert log_dir.read_log_start_offsets() == {}
    node.scheduler.advance(1000)
    assert log_dir.read_log_start_offsets() == {partition(0): 1}


def test_silent_producers_are_forgotten(tmp_path: Path) -> None:
    node = Node(tmp_path, initial_delay_ms=0, producer_id_check_ms=1000, producer_id_expiration_ms=5000)
    manager = started(node)
    log = node.create(manager)
    builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0)
    builder.append(node.scheduler.now_ms, None, b"value")
    log.append_as_leader(bytearray(builder.build()), 0, node.scheduler.now_ms)
    node.scheduler.advance(4999)
    assert len(log.producers.entries()) == 1
    node.scheduler.advance(1001)
    assert len(log.producers.entries()) == 0


def test_an_error_in_one_log_does_not_keep_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path, initial_delay_ms=0, flush_check_ms=100)
    node.config = LogConfig.of({"flush.ms": 0})
    manager = started(node)
    logs = [node.create(manager, number) for number in range(3)]
    for log in logs:
        node.append(log)

    def broken(*_: object, **__: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(logs[0], "flush", broken)
    with caplog.at_level(logging.ERROR):
        node.scheduler.advance(0)
    assert [log.recovery_point for log in logs] == [0, 1, 1]
    assert "flush of Log(" in caplog.text
    assert node.failures == []


def test_an_io_error_of_a_job_takes_the_directory_offline(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=2, initial_delay_ms=0, flush_check_ms=100)
    node.config = LogConfig.of({"flush.ms": 0})
    manager = started(node)
    logs = [node.create(manager, number) for number in range(4)]
    for log in logs:
        node.append(log)
    node.filesystem.break_under(node.paths[0], errno.EIO, ("sync",))
    node.scheduler.advance(0)
    assert [failure.path for failure in node.failures] == [str(node.paths[0])]
    assert [log.recovery_point for log in logs] == [0, 1, 0, 1]


def test_after_a_stop_no_job_runs(tmp_path: Path) -> None:
    node = Node(tmp_path, initial_delay_ms=100)
    manager = started(node)
    node.create(manager)
    manager.shutdown()
    before = {path.name: path.stat().st_mtime_ns for path in node.paths[0].iterdir()}
    node.scheduler.advance(10**7)
    assert {path.name: path.stat().st_mtime_ns for path in node.paths[0].iterdir()} == before
