from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.batches import batch, marker
from support.waiting import wait_until
from unit.log.manager.helpers import RecordingCleaner
from unit.server.handlers.nodes import NOW_MS, Replicas

from pybroker.base.ids import Uuid
from pybroker.log.files import TopicPartition
from pybroker.log.log import Log
from pybroker.log.producer_entry import AppendOrigin
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.internal.metadata_log import PartitionChangeRecord
from pybroker.protocol.records.control import ControlType
from pybroker.replication import log_dir_mover
from pybroker.replication.log_dir_mover import LogDirMover
from pybroker.replication.throttle import ReplicationThrottle

NAME = TopicPartition("orders", 0)


class Steps:
    """A background that does a step when told to."""

    def __init__(self) -> None:
        self.tasks: list[Callable[[], None]] = []

    def run(self, task: Callable[[], None], *, delay_ms: int = 0) -> None:
        self.tasks.append(task)

    def step(self) -> bool:
        if self.tasks:
            self.tasks.pop(0)()
        return bool(self.tasks)

    def run_all(self) -> int:
        steps = 1
        while self.step():
            steps += 1
        return steps


class Moving:
    """A broker with two log directories, and a topic in one of them."""

    def __init__(self, tmp_path: Path) -> None:
        self.replicas = Replicas(tmp_path, "a", "b")
        self.cleaner = RecordingCleaner()
        self.replicas.logs.cleaner = self.cleaner
        self.replicas.create("orders")
        self.steps = Steps()
        self.mover = LogDirMover(self.replicas.manager, self.steps, lambda: NOW_MS)
        self.partition = self.replicas.partition("orders")
        self.source = os.path.dirname(self.partition.log.directory)
        (self.destination,) = set(self.replicas.dirs) - {self.source}

    def produce(self, *values: bytes) -> None:
        self.replicas.manager.append(self.partition, batch(list(values), timestamp=NOW_MS), -1)

    @property
    def future(self) -> Log | None:
        return self.replicas.logs.get(NAME, is_future=True)

    def place(self) -> str:
        return os.path.dirname(self.partition.log.directory)


def values(log: Log) -> list[bytes]:
    return [
        bytes(record.value or b"")
        for found in log.batches()
        for record in found.records()
        if record.offset >= log.log_start_offset
    ]


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[Moving]:
    made = Moving(tmp_path)
    yield made
    made.replicas.logs.cleaner = None
    made.replicas.close()


def test_a_replica_moves_with_all_that_belongs_to_it(moving: Moving) -> None:
    log = moving.partition.log
    log.producers.verifies_transactions = False
    moving.produce(b"a", b"b")
    manager = moving.replicas.manager
    for sequence in (0, 1):
        records = batch([b"t"], timestamp=NOW_MS, producer_id=5, producer_epoch=0, sequence=sequence, transactional=True)
        manager.append(moving.partition, records, -1)
    abort = marker(ControlType.ABORT, 5, timestamp=NOW_MS)
    manager.append(moving.partition, abort, -1, origin=AppendOrigin.COORDINATOR, transaction_version=0)
    before = (values(log), log.producers.active_producers(), log.aborted_transactions(0, 9), log.leader_epochs.entries)
    moving.mover.move(moving.partition, moving.destination)
    moving.steps.run_all()
    moved = moving.partition.log
    assert moved is not log
    assert moved is moving.replicas.logs.get(NAME)
    assert (moving.place(), os.path.basename(moved.directory)) == (moving.destination, "orders-0")
    assert before == (
        values(moved),
        moved.producers.active_producers(),
        moved.aborted_transactions(0, 9),
        moved.leader_epochs.entries,
    )
    assert moved.high_watermark == moved.log_end_offset == moved.recovery_point == 5
    assert moving.future is None
    moving.produce(b"c")
    assert values(moved)[-1] == b"c"


def test_the_cleaner_leaves_the_partition_alone_while_it_moves(moving: Moving) -> None:
    moving.produce(b"a")
    moving.mover.move(moving.partition, moving.destination)
    assert moving.cleaner.calls == [("pause", NAME)]
    moving.steps.run_all()
    calls = [call for call in moving.cleaner.calls if call[0] in ("pause", "resume")]
    assert [call[0] for call in calls] == ["pause", "pause", "resume", "resume"]


def test_an_empty_replica_moves(moving: Moving) -> None:
    moving.mover.move(moving.partition, moving.destination)
    moving.steps.run_all()
    assert moving.place() == moving.destination
    moving.produce(b"a")
    assert values(moving.partition.log) == [b"a"]


def test_a_log_is_copied_in_chunks_while_it_grows(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dir_mover, "CHUNK_BYTES", 100)
    for number in range(10):
        moving.produce(b"%d" % number)
    moving.mover.move(moving.partition, moving.destination)
    for number in range(10, 15):
        moving.steps.step()
        moving.produce(b"%d" % number)
        assert moving.place() == moving.source
    assert moving.steps.run_all() > 5
    assert moving.place() == moving.destination
    assert values(moving.partition.log) == [b"%d" % number for number in range(15)]


def test_a_log_that_starts_in_the_middle_of_a_batch_keeps_its_offsets(moving: Moving) -> None:
    moving.produce(b"a", b"b", b"c")
    moving.partition.log.advance_log_start_offset(2)
    moving.mover.move(moving.partition, moving.destination)
    moving.steps.run_all()
    moved = moving.partition.log
    assert (moved.log_start_offset, moved.log_end_offset, values(moved)) == (2, 3, [b"c"])


def test_a_log_whose_records_are_all_deleted_keeps_its_offsets(moving: Moving) -> None:
    moving.produce(b"a", b"b", b"c")
    moving.partition.log.advance_log_start_offset(3)
    moving.mover.move(moving.partition, moving.destination)
    moving.steps.run_all()
    moved = moving.partition.log
    assert moving.place() == moving.destination
    assert (moved.log_start_offset, moved.log_end_offset, moved.high_watermark) == (3, 3, 3)
    moving.produce(b"d")
    assert moved.log_end_offset == 4


def test_records_deleted_while_the_log_moves_stay_deleted(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dir_mover, "CHUNK_BYTES", 100)
    for number in range(10):
        moving.produce(b"%d" % number)
    moving.mover.move(moving.partition, moving.destination)
    moving.steps.step()
    moving.partition.log.advance_log_start_offset(6)
    moving.steps.run_all()
    moved = moving.partition.log
    assert (moved.log_start_offset, values(moved)) == (6, [b"6", b"7", b"8", b"9"])


def test_records_deleted_after_they_were_copied_stay_deleted(moving: Moving) -> None:
    for value in (b"a", b"b", b"c"):
        moving.produce(value)
    moving.mover.move(moving.partition, moving.destination)
    moving.steps.step()
    moving.partition.log.advance_log_start_offset(2)
    moving.steps.run_all()
    moved = moving.partition.log
    assert (moving.place(), moved.log_start_offset, values(moved)) == (moving.destination, 2, [b"c"])


def test_an_epoch_in_which_nothing_was_written_moves_too(moving: Moving) -> None:
    moving.produce(b"a")
    moving.partition.log.leader_epochs.assign(4, 1)
    moving.mover.move(moving.partition, moving.destination)
    moving.steps.run_all()
    assert moving.partition.log.leader_epochs.entries == ((0, 0), (4, 1))


def test_an_append_whose_high_watermark_comes_too_late_for_the_copy_is_committed_all_the_same(moving: Moving) -> None:
    moving.produce(b"a")
    moving.partition.log.append_as_leader(batch([b"b"], timestamp=NOW_MS), 0, NOW_MS)
    moving.mover.move(moving.partition, moving.destination)
    moving.steps.run_all()
    assert (moving.place(), moving.partition.log.high_watermark) == (moving.destination, 2)


def test_a_truncation_of_the_log_reaches_its_copy(moving: Moving) -> None:
    for value in (b"a", b"b", b"c"):
        moving.produce(value)
    moving.mover.move(moving.partition, moving.destination)
    moving.steps.step()
    assert moving.future is not None
    assert moving.future.log_end_offset == 3
    moving.replicas.logs.truncate_to({NAME: 1})
    moving.partition.log.lead(1, commits_at_once=True)
    moving.partition.log.append_as_leader(batch([b"x"], timestamp=NOW_MS), 1, NOW_MS)
    moving.partition.log.append_as_leader(batch([b"y"], timestamp=NOW_MS), 1, NOW_MS)
    moving.partition.log.append_as_leader(batch([b"z"], timestamp=NOW_MS), 1, NOW_MS)
    moving.steps.run_all()
    assert moving.place() == moving.destination
    assert values(moving.partition.log) == [b"a", b"x", b"y", b"z"]


def test_to_where_it_is_nothing_moves(moving: Moving) -> None:
    moving.mover.move(moving.partition, moving.source)
    assert moving.future is None
    assert moving.steps.tasks == []
    assert moving.cleaner.calls == []


def test_asked_twice_it_moves_once(moving: Moving) -> None:
    moving.produce(b"a")
    moving.mover.move(moving.partition, moving.destination)
    future = moving.future
    moving.mover.move(moving.partition, moving.destination)
    assert moving.future is future
    assert len(moving.steps.tasks) == 1


def test_back_to_where_it_is_ends_the_move(moving: Moving) -> None:
    moving.produce(b"a")
    moving.mover.move(moving.partition, moving.destination)
    moving.steps.step()
    moving.mover.move(moving.partition, moving.source)
    assert moving.future is None
    moving.steps.run_all()
    assert moving.place() == moving.source
    assert [call[0] for call in moving.cleaner.calls] == ["pause", "resume"]
    moving.mover.move(moving.partition, moving.destination)
    moving.steps.run_all()
    assert (moving.place(), values(moving.partition.log)) == (moving.destination, [b"a"])


class LateLock:
    """Taken only after `before` was done, once."""

    def __init__(self, lock: Any, before: Callable[[], object]) -> None:
        self._lock = lock
        self._before: Callable[[], object] | None = before

    def __enter__(self) -> None:
        before, self._before = self._before, None
        if before is not None:
            before()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_back_to_where_it_was_until_the_move_ended_a_moment_ago_is_a_move(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving.produce(b"a")
    moving.mover.move(moving.partition, moving.destination)
    monkeypatch.setattr(moving.mover, "_lock", LateLock(moving.mover._lock, moving.steps.run_all))
    moving.mover.move(moving.partition, moving.source)
    moving.steps.run_all()
    assert moving.place() == moving.source
    assert values(moving.partition.log) == [b"a"]


def test_a_topic_deleted_while_it_moves(moving: Moving) -> None:
    moving.produce(b"a")
    moving.mover.move(moving.partition, moving.destination)
    moving.steps.step()
    moving.replicas.delete("orders")
    moving.steps.run_all()
    assert moving.replicas.logs.all_logs() == []
    assert [call[0] for call in moving.cleaner.calls if call[0] != "removed"].count("resume") == 2


def test_a_destination_that_fails_ends_the_move_and_the_replica_stays(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    moving.produce(b"a")
    moving.mover.move(moving.partition, moving.destination)
    assert moving.future is not None

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(moving.future, "append_as_follower", fail)
    moving.steps.run_all()
    assert moving.future is None
    assert [one.path for one in moving.replicas.logs.offline_dirs] == [moving.destination]
    moving.produce(b"b")
    assert (moving.place(), values(moving.partition.log)) == (moving.source, [b"a", b"b"])


def test_a_destination_that_is_full_ends_the_move_and_stays_online(
    moving: Moving, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    moving.produce(b"a")
    moving.mover.move(moving.partition, moving.destination)
    assert moving.future is not None

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(moving.future, "append_as_follower", fail)
    moving.steps.run_all()
    assert moving.future is None
    assert moving.replicas.logs.offline_dirs == []
    assert "its move between log directories ends" in caplog.text
    assert moving.place() == moving.source


def test_a_bug_ends_the_move_and_is_told(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    moving.produce(b"a")
    moving.mover.move(moving.partition, moving.destination)

    def fail(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(moving.future, "append_as_follower", fail)
    with pytest.raises(ValueError, match="a bug"):
        moving.steps.step()
    assert moving.future is None
    assert [call[0] for call in moving.cleaner.calls] == ["pause", "resume"]


def test_no_move_begins_while_a_directory_is_offline(moving: Moving) -> None:
    moving.replicas.logs.on_io_error(moving.destination, OSError(errno.EIO, "no"))
    with pytest.raises(KafkaError) as caught:
        moving.mover.move(moving.partition, moving.destination)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert moving.steps.tasks == []


def test_a_move_waits_while_it_is_faster_than_its_throttle(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dir_mover, "CHUNK_BYTES", 100)
    for number in range(10):
        moving.produce(b"%d" % number)
    now_ms = 0
    throttle = ReplicationThrottle(1, lambda: 100, lambda topic: ("*",), lambda: now_ms)
    LogDirMover(moving.replicas.manager, moving.steps, lambda: NOW_MS, throttle).move(moving.partition, moving.destination)
    for _ in range(10):
        moving.steps.step()
    assert moving.future is not None
    assert 0 < moving.future.log_end_offset < 10
    while moving.steps.step():
        now_ms += 1000
    assert moving.place() == moving.destination
    assert now_ms > 2000
    assert values(moving.partition.log) == [b"%d" % number for number in range(10)]


def test_a_move_that_a_stop_interrupted_goes_on_at_the_next_start(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dir_mover, "CHUNK_BYTES", 100)
    for number in range(10):
        moving.produce(b"%d" % number)
    moving.mover.move(moving.partition, moving.destination)
    moving.steps.step()
    steps = Steps()
    again = LogDirMover(moving.replicas.manager, steps, lambda: NOW_MS)
    again.resume()
    steps.run_all()
    assert moving.place() == moving.destination
    assert values(moving.partition.log) == [b"%d" % number for number in range(10)]


def test_whatever_is_acknowledged_while_a_log_moves_back_and_forth_is_there(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_dir_mover, "CHUNK_BYTES", 4096)
    mover = LogDirMover(moving.replicas.manager, moving.replicas.scheduler, lambda: NOW_MS)
    acknowledged: list[bytes] = []
    is_over = threading.Event()

    def produce() -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            try:
                moving.produce(b"%d" % number)
            except KafkaError as error:
                assert error.code.retriable, error
            else:
                acknowledged.append(b"%d" % number)

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        for _ in range(4):
            for target in (moving.destination, moving.source):
                mover.move(moving.partition, target)
                wait_until(
                    lambda target=target: moving.place() == target and moving.future is None,  # type: ignore[misc]
                    30,
                    lambda: f"it is in {moving.place()}",
                )
    finally:
        is_over.set()
        producer.join(30)
    log = moving.partition.log
    assert values(log) == acknowledged
    assert len(acknowledged) > 8
    assert log.high_watermark == log.log_end_offset == len(acknowledged)


# What the controller knows.


class NoFetchers:
    def follow(self, partitions: object) -> None:
        pass

    def leave(self, partitions: object) -> None:
        pass

    def stop(self) -> None:
        pass


class Controller:
    """Is told of directories; answers, and has the metadata say so, when told to."""

    def __init__(self, moving: Moving) -> None:
        self.moving = moving
        dirs = moving.replicas.logs.dirs
        self.names = {log_dir.directory_id: log_dir.path for log_dir in dirs if log_dir.directory_id is not None}
        self.told: list[str] = []
        self.unanswered: list[Callable[[bool], None] | None] = []
        moving.replicas.manager.replicate(NoFetchers(), lambda *_: None, self.assign)  # type: ignore[arg-type]
        self.answer()
        self.publish(moving.source)
        self.told.clear()

    def assign(self, key: tuple[Uuid, int], directory_id: Uuid, answered: Callable[[bool], None] | None = None) -> None:
        assert key == self.moving.partition.key
        self.told.append(self.names[directory_id])
        self.answer(is_accepted=False)  # of what was said before
        self.unanswered.append(answered)

    def answer(self, *, is_accepted: bool = True) -> None:
        unanswered, self.unanswered = self.unanswered, []
        for answered in unanswered:
            if answered is not None:
                answered(is_accepted)

    def publish(self, path: str) -> None:
        (directory_id,) = (one for one, name in self.names.items() if name == path)
        topic_id, index = self.moving.partition.key
        self.moving.replicas.apply(PartitionChangeRecord(topic_id=topic_id, partition_id=index, directories=[directory_id]))


def test_a_replica_is_in_its_new_directory_only_after_the_controller_says_so(moving: Moving) -> None:
    controller = Controller(moving)
    moving.produce(b"a")
    moving.mover.move(moving.partition, moving.destination)
    moving.steps.run_all()
    assert (controller.told, moving.place()) == ([moving.destination], moving.source)
    moving.produce(b"b")
    controller.answer()
    moving.steps.run_all()
    assert (moving.place(), values(moving.partition.log)) == (moving.destination, [b"a", b"b"])


def test_a_directory_that_the_controller_refuses_ends_the_move(moving: Moving, caplog: pytest.LogCaptureFixture) -> None:
    controller = Controller(moving)
    moving.mover.move(moving.partition, moving.destination)
    moving.steps.run_all()
    controller.answer(is_accepted=False)
    moving.steps.run_all()
    assert (moving.place(), moving.future) == (moving.source, None)
    assert "the controller does not count it" in caplog.text
    assert controller.told == [moving.destination, moving.source]


def test_a_move_taken_back_before_the_controller_answered_has_it_think_of_the_old_directory_again(moving: Moving) -> None:
    """Its metadata says so still, but the request for the other directory is on its way."""
    controller = Controller(moving)
    moving.mover.move(moving.partition, moving.destination)
    moving.steps.run_all()
    moving.mover.move(moving.partition, moving.source)
    controller.answer()
    moving.steps.run_all()
    assert controller.told == [moving.destination, moving.source]
    assert (moving.place(), moving.future) == (moving.source, None)


def test_there_and_back_before_the_metadata_says_so_ends_where_the_replica_is(moving: Moving) -> None:
    controller = Controller(moving)
    for target in (moving.destination, moving.source):
        moving.mover.move(moving.partition, target)
        moving.steps.run_all()
        controller.answer()
        moving.steps.run_all()
        assert moving.place() == target
    assert controller.told[-1] == moving.source
    controller.publish(moving.destination)
    controller.publish(moving.source)
    controller.told.clear()
    moving.mover.move(moving.partition, moving.destination)
    moving.steps.run_all()
    assert controller.told == [moving.destination]


@pytest.mark.parametrize("failing", ["source", "destination"])
def test_a_directory_that_fails_between_the_controller_s_word_and_the_move_s_end_is_known_to_it(
    moving: Moving, failing: str
) -> None:
    controller = Controller(moving)
    moving.produce(b"a")
    moving.mover.move(moving.partition, moving.destination)
    moving.steps.run_all()
    controller.publish(moving.destination)
    path = getattr(moving, failing)
    moving.replicas.logs.on_io_error(path, OSError(errno.EIO, "broken"))
    moving.replicas.manager.dir_failed(path)
    controller.answer()
    moving.steps.run_all()
    # If that one failed, the controller knows that it is lost.
    assert controller.told[-1] == moving.source
    if failing == "destination":
        assert (moving.place(), values(moving.partition.log)) == (moving.source, [b"a"])


def test_a_stop_lets_no_replica_move_without_the_controller_s_word(moving: Moving) -> None:
    Controller(moving)
    moving.mover.move(moving.partition, moving.destination)
    moving.replicas.manager.stop_replicating()
    moving.steps.run_all()
    assert moving.place() == moving.source
    assert moving.future is not None


def test_a_future_log_takes_over_at_the_start_if_it_is_the_replica_and_alone(moving: Moving) -> None:
    controller = Controller(moving)
    moving.produce(b"a")
    moving.mover.move(moving.partition, moving.destination)
    moving.steps.step()
    manager, logs = moving.replicas.manager, moving.replicas.logs
    future = moving.future
    assert future is not None
    assert not manager.is_assigned(future, moving.replicas.image)
    controller.publish(moving.destination)
    assert manager.is_assigned(future, moving.replicas.image)
    assert logs.recover_abandoned_futures(lambda log: True) == [], "the current one may have more"


def test_records_deleted_just_before_they_are_read_do_not_end_the_move(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (b"a", b"b", b"c"):
        moving.produce(value)
    log = moving.partition.log
    read = log.read

    def late(*args: Any) -> Any:
        log.advance_log_start_offset(2)
        return read(*args)

    monkeypatch.setattr(log, "read", late)
    moving.mover.move(moving.partition, moving.destination)
    moving.steps.run_all()
    assert (moving.place(), values(moving.partition.log)) == (moving.destination, [b"c"])


def test_records_truncated_just_before_they_are_read_do_not_end_the_move(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in (b"a", b"b"):
        moving.produce(value)
    log = moving.partition.log
    moving.mover.move(moving.partition, moving.destination)
    moving.steps.step()
    read = log.read

    def late(*args: Any) -> Any:
        moving.replicas.logs.truncate_to({NAME: 1})
        return read(*args)

    monkeypatch.setattr(log, "read", late)
    moving.steps.run_all()
    assert (moving.place(), values(moving.partition.log)) == (moving.destination, [b"a"])


def test_an_offset_that_is_out_of_range_without_a_change_ends_the_move(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    moving.produce(b"a")

    def lost(*_: object) -> None:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "it is not there")

    monkeypatch.setattr(moving.partition.log, "read", lost)
    moving.mover.move(moving.partition, moving.destination)
    moving.steps.run_all()
    assert (moving.place(), moving.future) == (moving.source, None)
