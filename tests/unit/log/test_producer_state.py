from __future__ import annotations

from pathlib import Path
from shutil import rmtree
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.log.producers import EXPIRATION_MS, FakeLog, data, marker, states_in

from pybroker.log.producer_entry import ActiveProducer, CompletedTransaction
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records.batch import RecordBatch
from pybroker.protocol.records.builder import BatchBuilder
from pybroker.protocol.records.control import ControlType


@pytest.fixture
def log(tmp_path: Path) -> FakeLog:
    return FakeLog(states_in(tmp_path))


def reopened(tmp_path: Path, log: FakeLog, *, start: int = 0, now_ms: int = 0) -> FakeLog:
    """The log as it is found after a restart."""
    again = FakeLog(states_in(tmp_path))
    again.batches, again.end = log.batches, log.end
    again.states.truncate_and_reload(start, log.end, now_ms)
    again.replay_from_map_end()
    return again


def test_batches_without_a_producer_id_leave_no_trace(log: FakeLog) -> None:
    builder = BatchBuilder()
    builder.append(0, None, b"value")
    log.append(RecordBatch(builder.build()))
    assert log.states.is_empty
    assert len(log.states.entries()) == 0


def test_active_producers(log: FakeLog) -> None:
    log.append(data(5, epoch=2, sequence=7, timestamp=50))
    log.append(data(6, transactional=True, timestamp=51))
    log.append(data(7, transactional=True, timestamp=52))
    log.append(marker(7, coordinator_epoch=9, timestamp=60))
    assert log.states.active_producers() == [
        ActiveProducer(5, 2, 7, 50, -1, -1),
        ActiveProducer(6, 0, 0, 51, -1, 1),
        ActiveProducer(7, 0, 0, 60, 9, -1),
    ]
    assert len(log.states.entries()) == 3
    assert not log.states.is_empty


def test_a_marker_of_a_batch_with_log_append_time_counts_from_that(log: FakeLog) -> None:
    batch = marker(timestamp=5)
    batch.stamp_append_time(77)
    log.append(batch)
    entry = log.states.entry(1)
    assert entry is not None
    assert entry.last_timestamp == 77


# Transactions.


@pytest.mark.parametrize(("kind", "is_aborted"), [(ControlType.COMMIT, False), (ControlType.ABORT, True)])
def test_a_marker_completes_a_transaction(log: FakeLog, kind: ControlType, is_aborted: bool) -> None:
    log.append(data(sequence=0, count=3, transactional=True))
    log.append(data(sequence=3, count=2, transactional=True))
    log.append(marker(kind=kind))
    assert log.completed == [CompletedTransaction(1, 0, 5, is_aborted)]
    assert not log.states.has_ongoing_transaction(1, 0)


def test_a_marker_without_a_transaction_completes_none(log: FakeLog) -> None:
    log.append(marker())
    assert log.completed == []
    assert log.states.first_unstable_offset is None
    assert len(log.states.entries()) == 1


def test_unstable_until_the_marker_is_replicated(log: FakeLog) -> None:
    log.append(data(1, transactional=True))
    log.append(data(2, transactional=True))
    assert (log.states.first_undecided_offset, log.states.first_unstable_offset) == (0, 0)
    log.append(marker(1))
    assert (log.states.first_undecided_offset, log.states.first_unstable_offset) == (1, 0)
    log.states.on_high_watermark_updated(2)
    assert log.states.first_unstable_offset == 0
    log.states.on_high_watermark_updated(3)
    assert log.states.first_unstable_offset == 1
    log.append(marker(2))
    log.states.on_high_watermark_updated(4)
    assert (log.states.first_undecided_offset, log.states.first_unstable_offset) == (None, None)


def test_transactions_complete_in_another_order_than_they_began(log: FakeLog) -> None:
    for producer_id in (1, 2, 3):
        log.append(data(producer_id, transactional=True))
    for producer_id in (3, 1, 2):
        log.append(marker(producer_id))
    seen = []
    for high_watermark in range(7):
        log.states.on_high_watermark_updated(high_watermark)
        seen.append(log.states.first_unstable_offset)
    assert seen == [0, 0, 0, 0, 0, 1, None]


def test_the_last_stable_offset_that_goes_to_the_index(log: FakeLog) -> None:
    log.append(data(1, transactional=True))
    log.append(data(2, transactional=True))
    assert log.states.last_stable_offset(CompletedTransaction(1, 0, 2, True)) == 1
    assert log.states.last_stable_offset(CompletedTransaction(2, 1, 2, True)) == 0
    log.append(marker(1))
    assert log.states.last_stable_offset(CompletedTransaction(2, 1, 3, True)) == 4


def test_what_was_not_begun_cannot_be_completed(log: FakeLog) -> None:
    with pytest.raises(AssertionError, match="was not begun"):
        log.states.complete(CompletedTransaction(1, 0, 5, True))


# Expiry.


def test_idle_producers_expire_but_not_in_a_transaction(log: FakeLog) -> None:
    log.append(data(1, timestamp=0))
    log.append(data(2, timestamp=1))
    log.append(data(3, transactional=True, timestamp=0))
    assert log.states.remove_expired(EXPIRATION_MS - 1) == 0
    assert log.states.remove_expired(EXPIRATION_MS) == 1
    assert [entry.producer_id for entry in log.states.entries()] == [2, 3]
    assert log.states.remove_expired(10**9) == 1
    assert log.states.has_ongoing_transaction(3, 0)


def test_verifications_expire(log: FakeLog) -> None:
    log.states.start_verification(1, 0, 0, supports_epoch_bump=False, now_ms=50)
    log.states.remove_expired(EXPIRATION_MS + 49)
    assert log.states.verification(1) is not None
    log.states.remove_expired(EXPIRATION_MS + 50)
    assert log.states.verification(1) is None


# Snapshots.


def test_a_snapshot_is_taken_once_an_offset(tmp_path: Path, log: FakeLog) -> None:
    assert log.states.take_snapshot() is None
    log.append(data())
    assert log.states.take_snapshot() == str(tmp_path / "00000000000000000001.snapshot")
    assert log.states.take_snapshot(sync=False) is None
    log.append(data(sequence=1))
    assert log.states.take_snapshot(sync=False) == str(tmp_path / "00000000000000000002.snapshot")
    assert log.states.snapshots.offsets == [1, 2]


def test_a_restart_knows_the_last_batch_of_each_producer(tmp_path: Path, log: FakeLog) -> None:
    log.append(data(1, sequence=0))
    log.append(data(1, sequence=1))
    log.append(data(2, transactional=True))
    log.states.take_snapshot()
    again = reopened(tmp_path, log)
    assert again.states.map_end_offset == 3
    assert again.states.first_unstable_offset == 2
    assert again.append(data(1, sequence=1)) is not None
    assert again.refuses(data(1, sequence=0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    again.append(data(1, sequence=2))
    again.append(marker(2))
    assert again.completed == [(2, 2, 4, False)]


def test_what_is_behind_the_snapshot_is_replayed(tmp_path: Path, log: FakeLog) -> None:
    log.append(data(1, sequence=0))
    log.states.take_snapshot()
    log.append(data(1, sequence=1))
    states = states_in(tmp_path)
    states.truncate_and_reload(0, log.end, 0)
    assert states.map_end_offset == 1
    again = reopened(tmp_path, log)
    assert repr(again.states.entry(1)) == repr(log.states.entry(1))
    assert again.states.take_snapshot() is not None


def test_expired_producers_are_not_loaded(tmp_path: Path, log: FakeLog) -> None:
    log.append(data(1, timestamp=0))
    log.append(data(2, timestamp=1))
    log.append(data(3, transactional=True, timestamp=0))
    log.states.take_snapshot()
    again = reopened(tmp_path, log, now_ms=EXPIRATION_MS)
    assert [entry.producer_id for entry in again.states.entries()] == [2, 3]


def test_without_a_snapshot_all_of_the_log_is_replayed(tmp_path: Path, log: FakeLog) -> None:
    states = states_in(tmp_path)
    states.truncate_and_reload(7, 20, 0)
    assert states.map_end_offset == 7
    assert states.take_snapshot() is None


def test_a_damaged_snapshot_costs_a_longer_replay_only(tmp_path: Path, log: FakeLog) -> None:
    log.append(data(1, sequence=0))
    log.states.take_snapshot()
    log.append(data(1, sequence=1))
    newest = log.states.take_snapshot()
    assert newest is not None
    Path(newest).write_bytes(b"\0\1damaged")
    states = states_in(tmp_path)
    states.truncate_and_reload(0, log.end, 0)
    assert states.map_end_offset == 1
    assert not Path(newest).exists()
    again = reopened(tmp_path, log)
    assert repr(again.states.entry(1)) == repr(log.states.entry(1))


def test_a_truncation_goes_back_to_a_snapshot(log: FakeLog) -> None:
    log.append(data(1, sequence=0))
    log.states.take_snapshot()
    log.append(data(1, sequence=1, transactional=True))
    log.append(marker(1))
    log.append(data(1, sequence=2, transactional=True))
    log.states.take_snapshot()
    log.truncate(2)
    log.states.truncate_and_reload(0, 2, 0)
    assert log.states.snapshots.offsets == [1]
    assert log.states.first_unstable_offset is None
    log.replay_from_map_end()
    assert log.states.first_unstable_offset == 1
    log.append(data(1, sequence=2, transactional=True))
    assert log.states.first_undecided_offset == 1


def test_a_truncation_to_where_the_state_ends_keeps_it(log: FakeLog) -> None:
    log.append(data(1, sequence=0))
    log.states.take_snapshot()
    log.append(data(1, sequence=1))
    log.states.truncate_and_reload(1, 2, 0)
    assert log.states.map_end_offset == 2
    assert log.states.snapshots.offsets == []
    entry = log.states.entry(1)
    assert entry is not None
    assert len(entry.batches) == 2


def test_a_full_truncation(tmp_path: Path, log: FakeLog) -> None:
    log.append(data(1, sequence=0, transactional=True))
    log.append(marker(1))
    log.states.take_snapshot()
    log.states.truncate_fully_and_start_at(50)
    assert log.states.is_empty
    assert log.states.first_unstable_offset is None
    assert log.states.map_end_offset == 50
    assert not list(tmp_path.glob("*.snapshot"))
    assert log.states.take_snapshot() is not None


def test_the_log_start_moves_up(log: FakeLog) -> None:
    log.append(data(1, transactional=True))
    log.append(marker(1))
    log.states.on_log_start_offset_incremented(1)
    assert log.states.first_unstable_offset == 0
    log.states.on_log_start_offset_incremented(2)
    assert log.states.first_unstable_offset is None
    assert len(log.states.entries()) == 1
    log.states.on_log_start_offset_incremented(9)
    assert log.states.map_end_offset == 9
    assert log.states.take_snapshot() is None


# Against a model: producers as lists of what was accepted, transactions as (first offset, marker's offset).


class Accepted(NamedTuple):
    epoch: int
    sequence: int
    count: int
    offset: int


class Model:
    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.accepted: dict[int, list[Accepted]] = {}
        self.open: dict[int, int] = {}
        self.ended: list[tuple[int, int]] = []
        self.high_watermark = 0

    def first_unstable(self) -> int | None:
        unreplicated = [first for first, last in self.ended if last >= self.high_watermark]
        return min([*self.open.values(), *unreplicated], default=None)

    def expected_sequence(self, producer_id: int) -> int:
        accepted = self.accepted.get(producer_id, [])
        if not accepted or accepted[-1].epoch != self.epochs[producer_id]:
            return 0
        return accepted[-1].sequence + accepted[-1].count

    def known(self, producer_id: int) -> list[Accepted]:
        return [row for row in self.accepted.get(producer_id, []) if row.epoch == self.epochs[producer_id]][-5:]


Step = (
    st.tuples(st.just("send"), st.integers(0, 2), st.integers(1, 3))
    | st.tuples(st.just("send"), st.integers(0, 2), st.integers(1, 3))
    | st.tuples(st.just("again"), st.integers(0, 2), st.integers(0, 7))
    | st.tuples(st.just("gap"), st.integers(0, 2), st.integers(1, 3))
    | st.tuples(st.just("bump"), st.integers(0, 2), st.just(0))
    | st.tuples(st.just("end"), st.integers(0, 2), st.integers(0, 1))
    | st.tuples(st.just("replicated"), st.integers(0, 10), st.just(0))
    | st.tuples(st.just("snapshot"), st.just(0), st.just(0))
    | st.tuples(st.just("restart"), st.just(0), st.just(0))
)


@settings(max_examples=300, deadline=None)
@given(st.lists(Step, max_size=60))
def test_as_a_model_that_remembers_everything(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    directory = tmp_path_factory.getbasetemp() / "model"
    rmtree(directory, ignore_errors=True)
    directory.mkdir()
    model = Model()
    log = FakeLog(states_in(directory))
    for what, number, detail in steps:
        epoch = model.epochs.get(number, 0)
        if what == "send":
            model.epochs[number] = epoch
            sequence = model.expected_sequence(number)
            offset = log.end
            assert log.append(data(number, epoch, sequence, count=detail, transactional=True)) is None
            model.accepted.setdefault(number, []).append(Accepted(epoch, sequence, detail, offset))
            model.open.setdefault(number, offset)
        elif what == "again" and model.accepted.get(number):
            row = model.accepted[number][-1 - detail % len(model.accepted[number])]
            batch = data(number, row.epoch, row.sequence, count=row.count, transactional=True)
            if row.epoch < epoch:
                assert log.refuses(batch) is ErrorCode.INVALID_PRODUCER_EPOCH
            elif row in model.known(number):
                found = log.append(batch)
                assert found is not None
                assert (found.first_offset, found.last_offset) == (row.offset, row.offset + row.count - 1)
            else:
                assert log.refuses(batch) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        elif what == "gap" and number in model.epochs:
            batch = data(number, epoch, model.expected_sequence(number) + detail, transactional=True)
            assert log.refuses(batch) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        elif what in ("bump", "end") and number in model.epochs:
            model.epochs[number] = epoch = epoch + (what == "bump")
            log.append(marker(number, epoch, kind=ControlType(detail)))
            if number in model.open:
                model.ended.append((model.open.pop(number), log.end - 1))
        elif what == "replicated":
            model.high_watermark = min(log.end, model.high_watermark + number)
            log.states.on_high_watermark_updated(model.high_watermark)
        elif what == "snapshot":
            log.states.take_snapshot(sync=False)
        elif what == "restart":
            latest = log.states.snapshots.latest or 0
            log = reopened(directory, log)
            log.states.on_high_watermark_updated(model.high_watermark)
            # A snapshot does not tell of transactions that are decided but not replicated, nor does Apache Kafka's.
            model.ended = [(first, last) for first, last in model.ended if last >= latest]
            for rows in model.accepted.values():
                before = [row for row in rows if row.offset < latest]
                rows[:] = [*before[-1:], *(row for row in rows if row.offset >= latest)]
        assert log.states.first_unstable_offset == model.first_unstable()
        assert log.states.first_undecided_offset == min(model.open.values(), default=None)
        for producer_id in model.epochs:
            entry = log.states.entry(producer_id)
            assert entry is not None
            assert entry.epoch == model.epochs[producer_id]
            assert entry.has_transaction == (producer_id in model.open)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(-1, 4), st.booleans(), st.booleans()), max_size=30))
def test_a_check_changes_nothing_and_a_refused_batch_neither(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int, int, bool, bool]]
) -> None:
    log = FakeLog(states_in(tmp_path_factory.getbasetemp()))
    for producer_id, epoch, sequence, transactional, is_marker in rows:
        batch = marker(producer_id, epoch) if is_marker else data(producer_id, epoch, sequence, transactional=transactional)
        before = log.described()
        try:
            log.states.check(batch, transaction_version=0)
        except KafkaError:
            assert log.described() == before
            continue
        assert log.described() == before
        log.append(batch)
