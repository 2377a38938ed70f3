from __future__ import annotations

import errno
import logging
import os
import shutil
import threading
from pathlib import Path

import pytest
from unit.log.cleaner.compacted import CompactedLog
from unit.log.manager.helpers import TOPIC_ID, Node, crash, names, partition, values

from pybroker.log.checkpoints import CLEANER_CHECKPOINT, read_clean_shutdown, read_offsets, read_topic_id
from pybroker.log.log import Log
from pybroker.log.log_config import LogConfig
from pybroker.log.manager import loading
from pybroker.log.manager.directories import LogDirError
from pybroker.log.manager.parallel import in_parallel


def torn(log: Log) -> int:
    """Leave half a batch behind the log, as a crash does; returns the size of the file."""
    path = Path(log.active.path(".log"))
    data = path.read_bytes()
    path.write_bytes(data + data[: len(data) // 3])
    return path.stat().st_size


def test_after_a_clean_stop_everything_is_there_and_nothing_is_recovered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path, dirs=2)
    manager = node.loaded()
    for number in range(6):
        log = node.create(manager, number)
        for text in (b"first", b"second"):
            node.append(log, text + str(number).encode())
    manager.shutdown(broker_epoch=42)
    for path in node.paths:
        mark = str(path / ".kafka_cleanshutdown")
        assert read_clean_shutdown(node.filesystem, mark) == 42
        points = read_offsets(node.filesystem, str(path / "recovery-point-offset-checkpoint"))
        assert set(points.values()) == {2}
        assert len(points) == 3
    with caplog.at_level(logging.INFO):
        again = node.manager()
        assert again.previous_broker_epoch == 42
        again.load(lambda _: node.config)
    assert not any((path / ".kafka_cleanshutdown").exists() for path in node.paths)
    for number in range(6):
        found = again.get(partition(number))
        assert found is not None
        assert values(found) == [b"first%d" % number, b"second%d" % number]
        assert (found.recovery_point, found.topic_id) == (2, TOPIC_ID)
    assert "cleanly closed" in caplog.text
    assert "loaded 6 logs in" in caplog.text


def test_a_loaded_log_holds_no_files_open_until_it_is_used(tmp_path: Path) -> None:
    node = Node(tmp_path)
    manager = node.loaded()
    for number in range(20):
        node.append(node.create(manager, number))
    manager.shutdown()
    again = node.loaded()
    opened = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    assert [path for path in opened if path.startswith(os.path.realpath(tmp_path))] == [f"{again.dirs[0].path}/.lock"]
    found = again.get(partition(7))
    assert found is not None
    assert node.append(found) == 1


def test_after_a_crash_a_torn_tail_is_cut_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = Node(tmp_path)
    manager = node.loaded()
    log = node.create(manager)
    for _ in range(3):
        node.append(log)
    crash(manager)
    size = torn(log)
    with caplog.at_level(logging.INFO):
        again = node.loaded()
    found = again.get(partition(0))
    assert found is not None
    assert found.log_end_offset == 3
    assert len(values(found)) == 3
    assert Path(found.active.path(".log")).stat().st_size < size
    assert "with recovery: it was not shut down cleanly" in caplog.text
    assert again.previous_broker_epoch is None


def test_a_crash_while_loading_is_not_taken_for_a_clean_stop(tmp_path: Path) -> None:
    node = Node(tmp_path)
    manager = node.loaded()
    log = node.create(manager)
    node.append(log)
    manager.shutdown()
    crash(node.loaded())
    torn(log)
    found = node.loaded().get(partition(0))
    assert found is not None
    assert found.log_end_offset == 1


def test_a_damaged_checkpoint_is_warned_of_and_taken_for_empty(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = Node(tmp_path)
    manager = node.loaded()
    node.append(node.create(manager))
    manager.shutdown()
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"):
        (node.paths[0] / name).write_text("0\n1\nnonsense\n")
    again = node.loaded()
    found = again.get(partition(0))
    assert found is not None
    assert (found.recovery_point, found.log_start_offset) == (0, 0)
    assert values(found) == [b"value"]
    assert again.dirs[0].read_high_watermarks() == {}
    for name in ("recovery-point", "log-start", "replication"):
        assert f"{name}-offset-checkpoint: line 3: found 'nonsense'" in caplog.text


def test_the_log_start_offset_survives_a_restart(tmp_path: Path) -> None:
    node = Node(tmp_path)
    manager = node.loaded()
    log = node.create(manager)
    for _ in range(3):
        node.append(log)
    log.set_high_watermark(3)
    log.advance_log_start_offset(2)
    manager.checkpoint_log_start_offsets()
    crash(manager)
    found = node.loaded().get(partition(0))
    assert found is not None
    assert found.log_start_offset == 2


def test_unknown_files_and_folders_survive_with_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = Node(tmp_path)
    manager = node.loaded()
    node.create(manager)
    manager.shutdown()
    root = node.paths[0]
    (root / "notes.txt").write_text("mine")
    (root / "lost+found").mkdir()
    (root / "lost+found" / "inode").write_text("found")
    (root / "__cluster_metadata-0").mkdir()
    (root / "__cluster_metadata-0" / "quorum-state").write_text("{}")
    (root / "remote-log-index-cache").mkdir()
    (root / "bootstrap.checkpoint").write_text("x")
    (root / "orders-0" / "README").write_text("keep")
    before = names(root)
    again = node.loaded()
    node.append(node.create(again))
    again.async_delete(partition(5))
    again.shutdown()
    assert names(root) == before
    assert (root / "notes.txt").read_text() == "mine"
    assert (root / "lost+found" / "inode").read_text() == "found"
    assert (root / "orders-0" / "README").read_text() == "keep"
    assert names(root / "__cluster_metadata-0") == {"quorum-state"}
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == [f"{root} holds what is no log and stays untouched: lost+found, notes.txt"]


def test_marked_directories_are_deleted_loaded_as_future_or_left_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path, dirs=2, file_delete_delay_ms=1000)
    manager = node.loaded()
    for number in range(4):
        node.append(node.create(manager, number, preferred=str(node.paths[0])))
    manager.shutdown()
    root = node.paths[0]
    (root / "orders-1").rename(root / f"orders-1.{'a' * 32}-delete")
    (root / "orders-2").rename(root / f"orders-2.{'b' * 32}-stray")
    shutil.copytree(root / "orders-3", node.paths[1] / f"orders-3.{'c' * 32}-future")
    again = node.loaded()
    assert {log.directory for log in again.all_logs()} == {
        str(root / "orders-0"),
        str(root / "orders-3"),
        str(node.paths[1] / f"orders-3.{'c' * 32}-future"),
    }
    future = again.get(partition(3), is_future=True)
    assert future is not None
    assert values(future) == [b"value"]
    assert again.get(partition(1)) is None
    node.scheduler.advance(999)
    assert f"orders-1.{'a' * 32}-delete" in names(root)
    node.scheduler.advance(1)
    assert f"orders-1.{'a' * 32}-delete" not in names(root)
    node.scheduler.advance(10**9)
    assert (root / f"orders-2.{'b' * 32}-stray" / "00000000000000000000.log").exists()
    assert "set aside: orders-2." in caplog.text


def test_a_partition_in_two_directories_is_refused_with_both_paths(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=2)
    manager = node.loaded()
    node.create(manager, preferred=str(node.paths[0]))
    manager.shutdown()
    shutil.copytree(node.paths[0] / "orders-0", node.paths[1] / "orders-0")
    with pytest.raises(LogDirError, match=r"orders-0 is in both .*/data-1/orders-0 and .*/data-2/orders-0; expected one"):
        node.loaded()
    shutil.rmtree(node.paths[1] / "orders-0")
    assert len(node.loaded().all_logs()) == 1


def test_a_log_of_an_older_topic_is_set_aside_while_loading(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=2)
    manager = node.loaded()
    node.append(node.create(manager, preferred=str(node.paths[0])))
    manager.shutdown()
    shutil.copytree(node.paths[0] / "orders-0", node.paths[1] / "orders-0")
    again = node.manager()
    again.load(lambda _: node.config, is_stray=lambda log: log.directory.startswith(str(node.paths[1])))
    assert [log.directory for log in again.all_logs()] == [str(node.paths[0] / "orders-0")]
    (stray,) = (name for name in names(node.paths[1]) if name.startswith("orders"))
    assert stray.endswith("-stray")
    assert (node.paths[1] / stray / "00000000000000000000.log").stat().st_size > 0


def test_every_topic_is_opened_with_its_own_config(tmp_path: Path) -> None:
    node = Node(tmp_path)
    manager = node.loaded()
    node.create(manager)
    manager.shutdown()
    special = LogConfig.of({"segment.bytes": 12345})
    again = node.manager()
    again.load({"orders": special}.__getitem__)
    assert [log.config for log in again.all_logs()] == [special]


def test_an_io_error_while_loading_takes_that_directory_offline(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=2)
    manager = node.loaded()
    for number in range(4):
        node.create(manager, number)
    manager.shutdown()
    node.filesystem.break_under(node.paths[0] / "orders", errno.EIO, ("scan",))
    again = node.loaded()
    assert [log_dir.path for log_dir in again.online_dirs] == [str(node.paths[1])]
    assert {log.directory.rpartition("/")[0] for log in again.all_logs()} == {str(node.paths[1])}
    (failure,) = node.failures
    assert failure.path == str(node.paths[0])
    again.shutdown()
    assert not (node.paths[0] / ".kafka_cleanshutdown").exists()
    assert (node.paths[1] / ".kafka_cleanshutdown").exists()


def test_a_damaged_partition_metadata_takes_its_directory_offline_and_names_the_file(tmp_path: Path) -> None:
    node = Node(tmp_path)
    manager = node.loaded()
    node.append(node.create(manager))
    manager.shutdown()
    (node.paths[0] / "orders-0" / "partition.metadata").write_text("version: 0\ntopic_id: nonsense")
    with pytest.raises(LogDirError, match=r"none of log\.dirs could be loaded .*orders-0/partition\.metadata: line 2"):
        node.loaded()
    (failure,) = node.failures
    assert failure.is_last


def test_half_a_partition_metadata_of_a_log_that_was_never_flushed_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path)
    manager = node.loaded()
    node.create(manager)
    manager.shutdown()
    (node.paths[0] / "orders-0" / "partition.metadata").write_text("")
    again = node.loaded()
    (log,) = again.all_logs()
    assert log.topic_id is None
    assert "orders-0: a crash came before the topic id was on disk" in caplog.text
    assert node.create(again) is log
    assert read_topic_id(node.filesystem, f"{log.directory}/partition.metadata") == log.topic_id == TOPIC_ID


def test_progress_is_logged_on_the_way(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path)
    manager = node.loaded()
    for number in range(5):
        node.append(node.create(manager, number))
    manager.all_logs()[0].flush()
    manager.checkpoint_recovery_points()
    crash(manager)
    monkeypatch.setattr(loading, "PROGRESS_LOGS", 2)
    with caplog.at_level(logging.INFO):
        node.loaded()
    lines = [record.getMessage() for record in caplog.records if "of 5 logs" in record.getMessage()]
    assert [line.split(",")[0] for line in lines] == [
        f"loaded 2 of 5 logs in {node.paths[0]}",
        f"loaded 4 of 5 logs in {node.paths[0]}",
    ]
    assert lines[1].endswith(("3 needed recovery", "4 needed recovery"))


def test_in_parallel_works_on_all_items_with_so_many_threads() -> None:
    meeting = threading.Barrier(3)
    done: list[int] = []

    def work(item: int) -> None:
        if item < 3:
            meeting.wait(10)
        done.append(item)

    in_parallel("test", 3, work, range(10))
    assert sorted(done) == list(range(10))


def test_in_parallel_raises_the_first_error_and_begins_nothing_more() -> None:
    done: list[int] = []

    def work(item: int) -> None:
        if item == 2:
            raise ValueError("item 2")
        done.append(item)

    with pytest.raises(ValueError, match="item 2"):
        in_parallel("test", 1, work, range(10))
    assert done == [0, 1]


def test_a_recovery_point_behind_what_recovery_could_save_does_not_stay_on_disk(tmp_path: Path) -> None:
    """It would vouch for the records that are written in the place of the lost ones, and that nobody has flushed."""
    node = Node(tmp_path)
    manager = node.loaded()
    log = node.create(manager)
    for _ in range(3):
        node.append(log, b"value")
    log.flush()
    manager.checkpoint_recovery_points()
    crash(manager)
    path = Path(log.active.path(".log"))
    path.write_bytes(path.read_bytes()[:-1])
    recovered = node.loaded().get(partition(0))
    assert recovered is not None
    assert recovered.log_end_offset == 2
    points = read_offsets(node.filesystem, str(node.paths[0] / "recovery-point-offset-checkpoint"))
    assert points == {partition(0): 0}, "the segment was read from its start, and its new indexes are not on disk"


@pytest.mark.parametrize("damage", ["none", "cleaner's"])
def test_a_topic_that_is_compacted_no_more_keeps_its_records_without_a_recovery_point(tmp_path: Path, damage: str) -> None:
    node = Node(tmp_path)
    compacted = CompactedLog(node.paths[0], {"segment.bytes": 160})
    for first, second in (b"ab", b"cb", b"db"):
        compacted.write((bytes([first]), b"value"))
        compacted.write((bytes([second]), b"value"))
        compacted.roll()
    assert compacted.clean() is not None
    compacted.log.flush()
    bases, end = [segment.base_offset for segment in compacted.log.segments], compacted.log.log_end_offset
    assert len(bases) > 2
    assert compacted.log.segments[0].next_offset() < bases[1]
    compacted.log.close_files()
    if damage != "none":
        (node.paths[0] / CLEANER_CHECKPOINT).write_text("nonsense")
    (log,) = node.loaded().all_logs()
    assert ([segment.base_offset for segment in log.segments], log.log_end_offset) == (bases, end)


def test_too_few_open_files_are_no_fault_of_a_directory_and_refuse_the_start(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=2)
    manager = node.loaded()
    node.append(node.create(manager, preferred=str(node.paths[0])))
    manager.shutdown()
    node.filesystem.break_under(node.paths[0] / "orders-0", errno.EMFILE, ("open",))
    with pytest.raises(LogDirError, match="more open files"):
        node.loaded()
    assert node.failures == []
    node.filesystem.mend()
    (log,) = node.loaded().all_logs()
    assert values(log) == [b"value"]
