from __future__ import annotations

import errno
import logging
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from unit.log.manager.helpers import OWNER, TOPIC_ID, Node, RecordingCleaner, crash, names, partition, values

from pybroker.base.ids import Uuid
from pybroker.config import load_text
from pybroker.log.checkpoints import CLEANER_CHECKPOINT, read_offsets, read_topic_id
from pybroker.log.cleaner.manager import CleanerManager, _Hold
from pybroker.log.cleaner.threads import LogCleaner
from pybroker.log.files import TopicPartition
from pybroker.log.log import Log
from pybroker.log.log_config import LogConfig
from pybroker.log.manager.log_manager import LogManager
from pybroker.log.manager.parallel import in_parallel
from pybroker.log.manager.scheduler import ThreadBackground
from pybroker.log.manager.settings import ManagerSettings
from pybroker.protocol.errors import ErrorCode, KafkaError

OTHER_ID = Uuid(b"another-topic-id")


def recovery_points(node: Node, number: int = 0) -> dict[tuple[str, int], int]:
    path = node.paths[number] / "recovery-point-offset-checkpoint"
    return {(topic, index): offset for (topic, index), offset in read_offsets(node.filesystem, str(path)).items()}


def dir_names(manager: LogManager) -> dict[str, set[str]]:
    return {
        path.rpartition("/")[2]: {log.directory.rpartition("/")[2] for log in logs.values()}
        for path, logs in manager.logs_by_dir().items()
    }


def test_settings_come_from_the_node_s_configuration() -> None:
    config = load_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.quorum.voters=1@localhost:9093\n"
        "log.dirs=/a,/b\nlog.retention.check.interval.ms=7\nlog.segment.delete.delay.ms=8\nnum.recovery.threads.per.data.dir=9\n"
        "cordoned.log.dirs=/b\n",
        "server.properties",
    ).config
    assert config is not None
    assert ManagerSettings.of(config) == ManagerSettings(
        log_dirs=("/a", "/b"), retention_check_ms=7, file_delete_delay_ms=8, recovery_threads=9, cordoned_log_dirs=("/b",)
    )


# Coming.


def test_a_new_partition_goes_to_the_directory_with_the_fewest(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=3)
    manager = node.loaded()
    for number in range(2):
        node.create(manager, number, preferred=str(node.paths[0]))
    node.create(manager, 2, preferred=str(node.paths[1]))
    for number in range(3, 6):
        node.create(manager, number)
    assert {name: len(logs) for name, logs in dir_names(manager).items()} == {"data-1": 2, "data-2": 2, "data-3": 2}


def test_a_new_log_holds_its_topic_id_and_is_found_again(tmp_path: Path) -> None:
    node = Node(tmp_path)
    manager = node.loaded()
    log = node.create(manager)
    assert read_topic_id(node.filesystem, f"{log.directory}/partition.metadata") == TOPIC_ID
    assert manager.get(partition(0)) is log
    assert manager.get(partition(1)) is None
    assert node.create(manager) is log


def test_another_topic_id_is_refused(tmp_path: Path) -> None:
    node = Node(tmp_path)
    manager = node.loaded()
    node.create(manager)
    with pytest.raises(KafkaError, match=r"orders-0 in .* is of topic id") as caught:
        manager.get_or_create(partition(0), OTHER_ID, node.config, is_new=True)
    assert caught.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_log_without_topic_id_gets_it_when_it_is_known(tmp_path: Path) -> None:
    node = Node(tmp_path)
    manager = node.loaded()
    log = manager.get_or_create(partition(0), None, node.config, is_new=True)
    assert not names(node.paths[0] / "orders-0") & {"partition.metadata"}
    assert node.create(manager) is log
    assert log.topic_id == TOPIC_ID
    assert read_topic_id(node.filesystem, f"{log.directory}/partition.metadata") == TOPIC_ID


def test_a_known_replica_is_not_made_anew_while_a_directory_is_offline(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=2)
    manager = node.loaded()
    manager.on_io_error(str(node.paths[0]), OSError(errno.EIO, "broken"))
    with pytest.raises(KafkaError, match=r"it may lie in .*data-1, which is offline") as caught:
        manager.get_or_create(partition(0), TOPIC_ID, node.config, is_new=False)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert node.create(manager).directory == str(node.paths[1] / "orders-0")


def test_a_cordoned_directory_takes_no_new_partition_but_one_that_is_assigned_to_it(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=3)
    node.settings = replace(node.settings, cordoned_log_dirs=(str(node.paths[0]),))
    manager = node.loaded()
    assert [manager.is_cordoned(log_dir) for log_dir in manager.dirs] == [True, False, False]
    for number in range(4):
        node.create(manager, number)
    assert {name: len(logs) for name, logs in dir_names(manager).items()} == {"data-1": 0, "data-2": 2, "data-3": 2}
    node.create(manager, 4, preferred=str(node.paths[0]))
    manager.settings = replace(node.settings, cordoned_log_dirs=())
    node.create(manager, 5)
    assert {name: len(logs) for name, logs in dir_names(manager).items()} == {"data-1": 2, "data-2": 2, "data-3": 2}


def test_where_all_directories_are_cordoned_a_partition_of_this_node_still_finds_a_place(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=2)
    node.settings = replace(node.settings, cordoned_log_dirs=("*",))
    manager = node.loaded()
    assert all(manager.is_cordoned(log_dir) for log_dir in manager.dirs)
    for number in range(2):
        node.create(manager, number)
    assert {name: len(logs) for name, logs in dir_names(manager).items()} == {"data-1": 1, "data-2": 1}


def test_a_preferred_directory_must_be_one_of_ours_and_online(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=2)
    manager = node.loaded()
    with pytest.raises(KafkaError) as caught:
        node.create(manager, preferred=str(tmp_path / "elsewhere"))
    assert caught.value.code is ErrorCode.LOG_DIR_NOT_FOUND
    manager.on_io_error(str(node.paths[0]), OSError(errno.EIO, "broken"))
    with pytest.raises(KafkaError, match="is offline") as caught:
        node.create(manager, preferred=str(node.paths[0]))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_if_a_directory_breaks_at_the_creation_the_next_one_takes_the_log(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=2)
    manager = node.loaded()
    node.filesystem.break_under(node.paths[0], errno.EIO, ("make_dirs",))
    assert node.create(manager).directory == str(node.paths[1] / "orders-0")
    assert [failure.path for failure in node.failures] == [str(node.paths[0])]
    node.filesystem.break_under(node.paths[1], errno.ENOSPC, ("make_dirs",))
    with pytest.raises(KafkaError, match=r"No log directory could take orders-1 .*No space left") as caught:
        node.create(manager, 1)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert [log_dir.path for log_dir in manager.online_dirs] == [str(node.paths[1])]


# Going.


def test_a_deleted_log_is_renamed_at_once_and_removed_after_the_delay(tmp_path: Path) -> None:
    node = Node(tmp_path, file_delete_delay_ms=1000)
    manager = node.loaded()
    log = node.create(manager)
    node.append(log)
    node.create(manager, 1)
    manager.checkpoint_recovery_points()
    assert manager.async_delete(partition(0)) is log
    assert manager.get(partition(0)) is None
    (marked,) = (name for name in names(node.paths[0]) if name.endswith("-delete"))
    assert marked.startswith("orders-0.")
    assert set(recovery_points(node)) == {("orders", 1)}
    with pytest.raises(KafkaError, match="is closed"):
        node.append(log)
    assert node.create(manager) is not log
    node.scheduler.advance(999)
    assert marked in names(node.paths[0])
    node.scheduler.advance(1)
    assert marked not in names(node.paths[0])
    assert "orders-0" in names(node.paths[0])


def test_what_was_not_removed_before_a_stop_is_removed_after_the_next_start(tmp_path: Path) -> None:
    node = Node(tmp_path, file_delete_delay_ms=1000)
    manager = node.loaded()
    node.create(manager)
    manager.async_delete(partition(0))
    manager.shutdown()
    node.scheduler.advance(10**6)
    assert node.loaded().all_logs() == []
    assert any(name.endswith("-delete") for name in names(node.paths[0]))
    node.scheduler.advance(1000)
    assert not any(name.endswith("-delete") for name in names(node.paths[0]))


def test_deleting_what_is_not_there_is_nothing_unless_a_directory_is_offline(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=2)
    manager = node.loaded()
    assert manager.async_delete(partition(0)) is None
    manager.on_io_error(str(node.paths[0]), OSError(errno.EIO, "broken"))
    with pytest.raises(KafkaError, match=r"it may lie in .*data-1"):
        manager.async_delete(partition(0))


class FullCheckpoint:
    """A node with a real cleaner's bookkeeping, and directories whose `cleaner-offset-checkpoint` finds no room."""

    def __init__(self, tmp_path: Path) -> None:
        self.node = node = Node(tmp_path, dirs=2, file_delete_delay_ms=1000)
        node.config = LogConfig.of({"cleanup.policy": ("compact",)})
        self.manager = node.manager()
        self.cleaner = CleanerManager(
            node.filesystem,
            [str(path) for path in node.paths],
            self.manager.current_logs,
            self.manager.on_io_error,  # type: ignore[arg-type]
        )
        self.manager.cleaner = LogCleaner(self.cleaner, [])
        self.manager.load(lambda _: node.config)

    def cleaned(self, number: int, where: int = 0) -> Log:
        log = self.node.create(self.manager, number, preferred=str(self.node.paths[where]))
        self.cleaner._checkpoints.set(str(self.node.paths[where]), log.partition, 7)
        return log

    def fill(self, code: int = errno.ENOSPC) -> None:
        for path in self.node.paths:
            self.node.filesystem.break_under(path / CLEANER_CHECKPOINT, code, ("write",))

    def written(self, number: int) -> dict[TopicPartition, int]:
        return read_offsets(self.node.filesystem, str(self.node.paths[number] / CLEANER_CHECKPOINT))


def test_compacted_logs_are_deleted_though_the_cleaner_finds_no_room_to_note_it(tmp_path: Path) -> None:
    full = FullCheckpoint(tmp_path)
    logs = [full.cleaned(number) for number in range(3)]
    full.fill()
    assert full.manager.async_delete_all([log.partition for log in logs]) == {}
    assert full.manager.all_logs() == []
    full.node.scheduler.advance(1000)
    assert not any(name.startswith("orders") for name in names(full.node.paths[0]))
    assert full.node.failures == []
    full.node.filesystem.mend()
    full.cleaner.take_dirtiest(0, lambda: None)
    assert full.written(0) == {}, "it is noted when there is room again"


def test_a_compacted_replica_moves_off_a_full_disk_whole(tmp_path: Path) -> None:
    full = FullCheckpoint(tmp_path)
    node, current = full.node, full.cleaned(0)
    future = node.create(full.manager, is_future=True, preferred=str(node.paths[1]))
    full.fill()
    node.filesystem.break_under(node.paths[0] / "orders-0", errno.ENOSPC, ("rename",))
    assert full.manager.replace_current_with_future(partition(0)) is future
    assert full.manager.get(partition(0)) is future
    with pytest.raises(KafkaError, match="is closed"):
        current.delete_old_segments(0)
    assert "orders-0" in names(node.paths[0])
    node.filesystem.mend()
    node.scheduler.advance(2000)
    assert not any(name.startswith("orders") for name in names(node.paths[0]))
    assert full.cleaner.checkpoint(partition(0), str(node.paths[1])) == 7
    full.manager.shutdown()
    assert dir_names(node.loaded()) == {"data-1": set(), "data-2": {"orders-0"}}


def test_a_future_log_whose_directory_fails_as_it_takes_over_costs_the_current_one_nothing(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=2)
    manager = node.loaded()
    current = node.create(manager, preferred=str(node.paths[0]))
    future = node.create(manager, is_future=True, preferred=str(node.paths[1]))
    rename = future.rename_directory

    def failing(name: str) -> None:
        rename(name)
        manager.on_io_error(str(node.paths[1]), OSError(errno.EIO, "broken"))

    future.rename_directory = failing  # type: ignore[assignment, method-assign]
    with pytest.raises(KafkaError, match="is offline"):
        manager.replace_current_with_future(partition(0))
    assert manager.get(partition(0)) is current
    assert node.append(current) == 0


def test_a_broken_disk_under_the_cleaner_s_checkpoint_takes_its_directory_offline(tmp_path: Path) -> None:
    full = FullCheckpoint(tmp_path)
    log = full.cleaned(0)
    full.fill(errno.EIO)
    full.cleaner._holds[log.partition] = _Hold(lambda: None)
    full.cleaner.cleaned(log, 8)
    assert [failure.path for failure in full.node.failures] == [str(full.node.paths[0])]


def test_a_log_that_there_was_no_room_for_leaves_nothing_behind(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=2)
    manager = node.loaded()
    node.filesystem.break_under(node.paths[0] / "orders-0", errno.ENOSPC, ("open",))
    assert node.create(manager).directory == str(node.paths[1] / "orders-0")
    assert not any(name.startswith("orders") for name in names(node.paths[0]))
    node.filesystem.mend()
    manager.shutdown()
    assert dir_names(node.loaded()) == {"data-1": set(), "data-2": {"orders-0"}}


def test_a_directory_that_was_there_before_a_log_could_not_be_made_in_it_stays(tmp_path: Path) -> None:
    node = Node(tmp_path)
    manager = node.loaded()
    (node.paths[0] / "orders-0").mkdir()
    (node.paths[0] / "orders-0" / "notes").touch()
    node.filesystem.break_under(node.paths[0] / "orders-0" / "0", errno.ENOSPC, ("open",))
    with pytest.raises(KafkaError, match="No log directory could take orders-0"):
        node.create(manager)
    assert (node.paths[0] / "orders-0" / "notes").exists()


def test_a_log_on_a_disk_without_room_for_another_name_is_deleted_later(tmp_path: Path) -> None:
    node = Node(tmp_path, file_delete_delay_ms=1000)
    manager = node.loaded()
    node.create(manager)
    node.filesystem.break_under(node.paths[0] / "orders-0", errno.ENOSPC, ("rename",))
    manager.async_delete(partition(0))
    node.scheduler.advance(1500)
    assert "orders-0" in names(node.paths[0])
    node.filesystem.mend()
    node.scheduler.advance(2000)
    assert not any(name.startswith("orders") for name in names(node.paths[0]))


def test_a_log_waiting_to_be_deleted_lets_the_new_one_of_its_name_be(tmp_path: Path) -> None:
    node = Node(tmp_path, file_delete_delay_ms=1000)
    manager = node.loaded()
    node.create(manager)
    node.filesystem.break_under(node.paths[0] / "orders-0", errno.ENOSPC, ("rename",))
    manager.async_delete(partition(0))
    node.filesystem.mend()
    log = node.create(manager)
    node.scheduler.advance(3000)
    assert "orders-0" in names(node.paths[0])
    assert node.append(log) == 0


def test_a_late_reader_keeps_no_file_of_a_deleted_log_open(tmp_path: Path) -> None:
    node = Node(tmp_path, file_delete_delay_ms=1000)
    manager = node.loaded()
    log = node.create(manager)
    node.append(log)
    manager.async_delete(partition(0))
    assert values(log) == [b"value"]
    node.scheduler.advance(1000)
    assert len(manager._open_segments) == 0


def test_a_failed_removal_does_not_keep_the_others(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=2)
    manager = node.loaded()
    for number in range(4):
        node.create(manager, number)
    (broken,) = {log.partition for log in manager.all_logs() if log.directory == str(node.paths[0] / "orders-0")}
    node.filesystem.break_under(node.paths[0] / "orders-0", errno.EIO, ("rename",))
    errors = manager.async_delete_all([partition(number) for number in range(4)])
    assert errors[broken].code is ErrorCode.KAFKA_STORAGE_ERROR
    assert [log_dir.path for log_dir in manager.online_dirs] == [str(node.paths[1])]
    assert manager.all_logs() == []
    assert not any(name in names(node.paths[1]) for name in ("orders-1", "orders-3"))


def test_a_replica_moves_to_another_directory(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=2, file_delete_delay_ms=1000)
    cleaner = RecordingCleaner()
    manager = node.loaded(cleaner)
    current = node.create(manager, preferred=str(node.paths[0]))
    future = node.create(manager, is_future=True, preferred=str(node.paths[1]))
    assert future.directory.startswith(f"{node.paths[1]}/orders-0.")
    assert future.directory.endswith("-future")
    for log in (current, future):
        node.append(log, b"the same")
    current.set_high_watermark(1)
    manager.checkpoint_recovery_points()
    assert manager.replace_current_with_future(partition(0)) is future
    assert manager.get(partition(0)) is future
    assert manager.current_logs() == {partition(0): future}
    assert manager.get(partition(0), is_future=True) is None
    assert future.directory == str(node.paths[1] / "orders-0")
    assert future.high_watermark == 1
    assert values(future) == [b"the same"]
    assert ("moved", partition(0), str(node.paths[0]), str(node.paths[1])) in cleaner.calls
    assert recovery_points(node) == {}
    assert set(recovery_points(node, 1)) == {("orders", 0)}
    node.append(future, b"goes on")
    node.scheduler.advance(1000)
    assert not any(name.startswith("orders") for name in names(node.paths[0]))
    manager.shutdown()
    (again,) = node.loaded().all_logs()
    assert values(again) == [b"the same", b"goes on"]


def test_a_move_needs_both_logs(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=2)
    manager = node.loaded()
    with pytest.raises(KafkaError, match="The current log of orders-0 is offline or not there"):
        manager.replace_current_with_future(partition(0))
    node.create(manager)
    with pytest.raises(KafkaError, match="The future log of orders-0"):
        manager.replace_current_with_future(partition(0))


def test_a_move_whose_old_log_is_gone_is_finished_at_the_next_start_if_the_new_one_is_the_replica(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=2)
    manager = node.loaded()
    node.create(manager, preferred=str(node.paths[0]))
    future = node.create(manager, is_future=True, preferred=str(node.paths[1]))
    node.append(future)
    manager.shutdown()
    again = node.loaded()
    assert again.recover_abandoned_futures(lambda log: True) == [], "the old one may have more"
    again.shutdown()
    shutil.rmtree(node.paths[0] / "orders-0")
    again = node.loaded()
    assert again.recover_abandoned_futures(lambda log: False) == []
    node.filesystem.break_under(node.paths[1] / "orders-0", errno.ENOSPC, ("rename",))
    assert again.recover_abandoned_futures(lambda log: True) == [], "a full disk does not end the start"
    node.filesystem.mend()
    assert again.recover_abandoned_futures(lambda log: log.directory.startswith(str(node.paths[1]))) == [partition(0)]
    assert dir_names(again) == {"data-1": set(), "data-2": {"orders-0"}}


def test_a_future_log_does_not_take_over_from_one_that_may_be_offline(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=2)
    manager = node.loaded()
    node.create(manager, preferred=str(node.paths[0]))
    node.create(manager, is_future=True, preferred=str(node.paths[1]))
    manager.on_io_error(str(node.paths[0]), OSError(errno.EIO, "broken"))
    assert manager.recover_abandoned_futures(lambda log: True) == []


def test_a_truncation_is_told_to_the_cleaner_and_to_the_checkpoint(tmp_path: Path) -> None:
    node = Node(tmp_path)
    cleaner = RecordingCleaner()
    manager = node.loaded(cleaner)
    log = node.create(manager)
    for _ in range(4):
        node.append(log)
        log.roll(node.scheduler.now_ms)
    log.flush()
    manager.truncate_to({partition(0): 2, partition(9): 0})
    assert (log.log_end_offset, recovery_points(node)) == (2, {("orders", 0): 2})
    where = str(node.paths[0])
    truncated = ("truncated", partition(0), where, log.active.base_offset)
    assert cleaner.calls == [("pause", partition(0)), truncated, ("resume", partition(0))]
    cleaner.calls.clear()
    manager.truncate_fully_and_start_at(partition(0), 100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    assert cleaner.calls == [("pause", partition(0)), ("truncated", partition(0), where, 100), ("resume", partition(0))]


def test_a_new_topic_config_reaches_its_logs_and_ends_a_cleaning(tmp_path: Path) -> None:
    node = Node(tmp_path)
    cleaner = RecordingCleaner()
    node.config = LogConfig.of({"cleanup.policy": ("compact",)})
    manager = node.loaded(cleaner)
    log = node.create(manager)
    other = manager.get_or_create(partition(0, "payments"), TOPIC_ID, node.config, is_new=True)
    deleted = LogConfig.of({"cleanup.policy": ("delete",)})
    manager.update_configs(lambda _: deleted, ("orders",))
    assert (log.config, other.config) == (deleted, node.config)
    assert cleaner.calls == [("pause", partition(0)), ("resume", partition(0))]


# Checkpoints.


def test_high_watermarks_are_kept_per_directory(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=2)
    manager = node.loaded()
    for number in range(2):
        log = node.create(manager, number)
        for _ in range(number + 1):
            node.append(log)
        log.set_high_watermark(number + 1)
    manager.checkpoint_high_watermarks()
    assert [log_dir.read_high_watermarks() for log_dir in manager.dirs] == [{partition(0): 1}, {partition(1): 2}]
    manager.dirs[0].write_high_watermarks({partition(7): 70})
    assert manager.dirs[0].read_high_watermarks() == {partition(7): 70}


def test_only_a_log_start_inside_of_a_segment_is_checkpointed(tmp_path: Path) -> None:
    node = Node(tmp_path)
    manager = node.loaded()
    for number in range(2):
        log = node.create(manager, number)
        node.append(log)
        node.append(log)
        log.set_high_watermark(2)
    log.advance_log_start_offset(1)
    manager.checkpoint_log_start_offsets()
    assert manager.dirs[0].read_log_start_offsets() == {partition(1): 1}


# Failure.


def test_an_io_error_takes_its_directory_offline_once_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path, dirs=2)
    cleaner = RecordingCleaner()
    manager = node.loaded(cleaner)
    logs = [node.create(manager, number) for number in range(4)]
    node.filesystem.break_under(node.paths[0], errno.EIO, ("write",))
    with pytest.raises(OSError, match="Input/output error") as caught:
        node.append(logs[0])
    with caplog.at_level(logging.ERROR):
        assert manager.on_io_error(logs[0].directory, caught.value, doing="an append")
        assert manager.on_io_error(logs[2].directory, caught.value, doing="an append")
    (failure,) = node.failures
    assert failure.path == str(node.paths[0])
    assert failure.directory_id is not None
    assert failure.directory_id == manager.dirs[0].directory_id
    assert failure.error is caught.value
    assert not failure.is_last
    assert caplog.text.count(f"log directory {node.paths[0]} is offline since an append failed: [Errno 5]") == 1
    assert dir_names(manager) == {"data-2": {"orders-1", "orders-3"}}
    assert manager.get(partition(0)) is None
    assert manager.dir_with_id(failure.directory_id) is None
    assert cleaner.calls == [("dir_failed", str(node.paths[0]))]
    lock = node.filesystem.lock(str(node.paths[0] / ".lock"))
    assert lock is not None
    lock.release()
    with pytest.raises(KafkaError, match="is closed"):
        node.append(logs[2])
    node.append(logs[1])
    manager.checkpoint_recovery_points()
    manager.shutdown()
    assert (node.paths[1] / ".kafka_cleanshutdown").exists()
    assert not (node.paths[0] / ".kafka_cleanshutdown").exists()


def test_when_the_last_directory_goes_the_callback_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = Node(tmp_path, dirs=2)
    manager = node.loaded()
    for path in node.paths:
        manager.on_io_error(str(path), OSError(errno.EIO, "broken"))
    assert [failure.is_last for failure in node.failures] == [False, True]
    assert "all of log.dirs are offline" in caplog.text


def test_a_full_disk_leaves_the_directory_online(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = Node(tmp_path)
    manager = node.loaded()
    log = node.create(manager)
    node.append(log, b"before")
    node.filesystem.break_under(node.paths[0], errno.ENOSPC, ("write",))
    for _ in range(3):
        with pytest.raises(OSError, match="No space left") as caught:
            node.append(log)
        assert not manager.on_io_error(log.directory, caught.value, doing="an append")
    manager.checkpoint_recovery_points()
    assert caplog.text.count(f"an append failed in {node.paths[0]}: [Errno 28]") == 1
    assert node.failures == []
    assert values(log) == [b"before"]
    node.filesystem.mend()
    assert node.append(log, b"after") == 1
    assert values(log) == [b"before", b"after"]


def test_a_flush_that_found_no_room_is_final_since_the_next_one_would_not_miss_what_is_lost(tmp_path: Path) -> None:
    """A disk that allocates late says so only then, and forgets what it could not write."""
    node = Node(tmp_path, dirs=2)
    manager = node.loaded()
    log = node.create(manager)
    log.update_config(replace(log.config, flush_ms=0))
    node.append(log)
    node.filesystem.break_under(node.paths[0], errno.ENOSPC, ("sync",))
    manager.jobs.flush_dirty_logs()
    assert [failure.path for failure in node.failures] == [str(node.paths[0])]


def test_an_io_error_in_the_background_counts_against_the_directory(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=2)
    manager = node.loaded()
    log = node.create(manager)
    node.append(log)
    node.filesystem.break_under(node.paths[0], errno.EIO, ("sync",))
    log.roll(node.scheduler.now_ms)
    assert [failure.path for failure in node.failures] == [str(node.paths[0])]
    assert manager.get(partition(0)) is None


def test_a_deletion_of_segments_that_comes_after_that_of_the_log_is_no_failure(tmp_path: Path) -> None:
    node = Node(tmp_path, file_delete_delay_ms=10)
    manager = node.loaded()
    log = node.create(manager)
    for _ in range(3):
        node.append(log)
        log.roll(node.scheduler.now_ms)
    log.truncate_to(1, node.scheduler.now_ms)
    manager.async_delete(partition(0))
    node.scheduler.advance(10**6)
    assert node.failures == []
    assert not any(name.startswith("orders") for name in names(node.paths[0]))


def test_an_io_error_in_a_checkpoint_takes_the_directory_offline(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=2)
    manager = node.loaded()
    node.filesystem.break_under(node.paths[1] / "recovery-point", errno.EIO)
    manager.checkpoint_recovery_points()
    assert [failure.path for failure in node.failures] == [str(node.paths[1])]


# Stop.


def test_what_does_not_close_well_is_not_marked_clean(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=2)
    manager = node.loaded()
    for number in range(4):
        node.append(node.create(manager, number))
    node.filesystem.break_under(node.paths[0] / "orders-2", errno.EIO, ("sync",))
    manager.shutdown()
    assert not (node.paths[0] / ".kafka_cleanshutdown").exists()
    assert (node.paths[1] / ".kafka_cleanshutdown").exists()
    node.filesystem.mend()
    assert len(node.loaded().all_logs()) == 4


def test_a_stop_is_done_once_and_nothing_comes_after_it(tmp_path: Path) -> None:
    node = Node(tmp_path)
    cleaner = RecordingCleaner()
    manager = node.loaded(cleaner)
    manager.start()
    node.append(node.create(manager))
    manager.shutdown(3)
    other = node.loaded()
    manager.shutdown(4)
    manager.checkpoint_recovery_points()
    node.scheduler.advance(10**7)
    assert cleaner.calls == [("start",), ("stop",)]
    assert recovery_points(node) == {("orders", 0): 1}
    assert not (node.paths[0] / ".kafka_cleanshutdown").exists()
    with pytest.raises(KafkaError, match="the broker is stopping"):
        node.create(manager, 1)
    crash(other)


def test_a_directory_that_was_never_loaded_keeps_its_mark_and_its_checkpoints(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.manager().shutdown(1)
    assert not (node.paths[0] / ".kafka_cleanshutdown").exists()
    manager = node.loaded()
    node.append(node.create(manager))
    manager.shutdown(2)
    early = node.manager()
    early.checkpoint_recovery_points()
    early.shutdown(3)
    assert recovery_points(node) == {("orders", 0): 1}
    assert node.manager().previous_broker_epoch == 2


# All at once.


def test_many_threads_and_a_broken_disk_at_the_same_time(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=3, file_delete_delay_ms=1, initial_delay_ms=1, flush_check_ms=1, recovery_point_checkpoint_ms=1)
    node.config = LogConfig.of({"flush.ms": 0, "segment.bytes": 1024, "file.delete.delay.ms": 1})
    background = ThreadBackground(4)
    manager = LogManager(
        node.filesystem,
        node.settings,
        background,
        now_ms=node.scheduler.clock,
        owner=OWNER,
        on_dir_failure=node.failures.append,
    )
    manager.load(lambda _: node.config)
    manager.start()
    unexpected: list[Exception] = []

    def work(worker: int) -> None:
        for turn in range(40):
            one = partition(turn % 5, f"topic-{worker}")
            try:
                log = manager.get_or_create(one, TOPIC_ID, node.config, is_new=True)
                try:
                    for _ in range(5):
                        node.append(log, bytes(200))
                except OSError as error:
                    manager.on_io_error(log.directory, error)
                if turn % 7 == 6:
                    manager.async_delete(one)
                if worker == 0 and turn == 20:
                    node.filesystem.break_under(node.paths[0], errno.EIO, ("write", "sync", "rename"))
            except KafkaError as error:
                if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                    unexpected.append(error)
            except Exception as error:
                unexpected.append(error)

    in_parallel("workers", 4, work, range(4))
    assert background.stop(30)
    assert unexpected == []
    assert [failure.path for failure in node.failures] == [str(node.paths[0])]
    ends = {log.partition: log.log_end_offset for log in manager.all_logs()}
    assert ends
    manager.shutdown()
    node.filesystem.mend()
    again = node.manager()
    again.load(lambda _: node.config, is_stray=lambda log: log.directory.startswith(str(node.paths[0])))
    assert {log.partition: log.log_end_offset for log in again.all_logs()} == ends
