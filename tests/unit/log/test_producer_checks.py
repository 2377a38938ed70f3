from __future__ import annotations

from pathlib import Path

import pytest
from unit.log.producers import FakeLog, data, marker, states_in

from pybroker.log.producer_checks import marker_of
from pybroker.log.producer_entry import AppendOrigin
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records.batch import MAX_SEQUENCE, RecordBatch
from pybroker.protocol.records.builder import BatchBuilder
from pybroker.protocol.records.control import ControlType, control_key

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
INVALID_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
INVALID_STATE = ErrorCode.INVALID_TXN_STATE
FENCED = ErrorCode.TRANSACTION_COORDINATOR_FENCED
COORDINATOR = AppendOrigin.COORDINATOR
REPLICATION = AppendOrigin.REPLICATION
LAST_EPOCH = 2**15 - 1


@pytest.fixture
def log(tmp_path: Path) -> FakeLog:
    return FakeLog(states_in(tmp_path))


@pytest.fixture
def verifying(tmp_path: Path) -> FakeLog:
    return FakeLog(states_in(tmp_path, verifies_transactions=True))


# Sequences.


@pytest.mark.parametrize("sequence", [0, 7, MAX_SEQUENCE])
def test_an_unknown_producer_may_begin_anywhere(log: FakeLog, sequence: int) -> None:
    log.append(data(epoch=3, sequence=sequence))
    assert log.end == 1


def test_sequences_follow_each_other(log: FakeLog) -> None:
    log.append(data(sequence=0, count=3))
    log.append(data(sequence=3))
    log.append(data(sequence=4))
    assert log.end == 5


@pytest.mark.parametrize("sequence", [5, 3, MAX_SEQUENCE])
def test_a_gap_or_a_step_back_is_out_of_order(log: FakeLog, sequence: int) -> None:
    log.append(data(sequence=2, count=2))
    assert log.refuses(data(sequence=sequence)) is OUT_OF_ORDER


def test_sequences_wrap(log: FakeLog) -> None:
    log.append(data(sequence=MAX_SEQUENCE - 1, count=1))
    assert log.refuses(data(sequence=0)) is OUT_OF_ORDER
    log.append(data(sequence=MAX_SEQUENCE, count=1))
    log.append(data(sequence=0, count=2))
    assert log.end == 4


def test_a_batch_wraps_inside(log: FakeLog) -> None:
    log.append(data(sequence=MAX_SEQUENCE, count=3))
    assert log.refuses(data(sequence=1)) is OUT_OF_ORDER
    log.append(data(sequence=2))
    known = log.append(data(sequence=MAX_SEQUENCE, count=3))
    assert known is not None
    assert (known.first_offset, known.last_offset, known.first_sequence) == (0, 2, MAX_SEQUENCE)


def test_a_new_epoch_begins_at_0(log: FakeLog) -> None:
    log.append(data(epoch=1, sequence=9))
    assert log.refuses(data(epoch=2, sequence=10)) is OUT_OF_ORDER
    log.append(data(epoch=2, sequence=0))
    assert log.refuses(data(epoch=2, sequence=2)) is OUT_OF_ORDER


def test_behind_a_marker_of_a_new_epoch_it_begins_at_0(log: FakeLog) -> None:
    log.append(data(epoch=1, sequence=9, transactional=True))
    log.append(marker(epoch=2), version=2)
    assert log.refuses(data(epoch=2, sequence=10, transactional=True)) is OUT_OF_ORDER
    log.append(data(epoch=2, sequence=0, transactional=True))


def test_behind_a_marker_of_the_same_epoch_sequences_go_on(log: FakeLog) -> None:
    log.append(data(sequence=4, transactional=True))
    log.append(marker())
    assert log.refuses(data(sequence=0, transactional=True)) is OUT_OF_ORDER
    log.append(data(sequence=5, transactional=True))


@pytest.mark.parametrize("origin", [COORDINATOR, REPLICATION])
def test_only_clients_have_their_sequences_checked(log: FakeLog, origin: AppendOrigin) -> None:
    log.append(data(sequence=5))
    log.append(data(sequence=-1), origin)
    log.append(data(sequence=99), origin)
    log.append(data(epoch=1, sequence=7), origin)
    assert log.end == 4


def test_a_client_begins_at_0_behind_offset_commits(log: FakeLog) -> None:
    log.append(data(sequence=-1), COORDINATOR)
    assert log.refuses(data(sequence=1)) is OUT_OF_ORDER
    log.append(data(sequence=0))


def test_the_refusal_says_what_was_found_and_expected(log: FakeLog) -> None:
    log.append(data(producer_id=44, sequence=2))
    with pytest.raises(
        KafkaError, match=r"^OUT_OF_ORDER_SEQUENCE_NUMBER: Producer 44 sent topic-0 sequence 5 of epoch 0; expected 3\.$"
    ):
        log.append(data(producer_id=44, sequence=5))


# Duplicates.


def test_each_of_the_last_five_batches_is_known_again(log: FakeLog) -> None:
    for number in range(6):
        log.append(data(sequence=2 * number, count=2, timestamp=number))
    assert log.refuses(data(sequence=0, count=2)) is OUT_OF_ORDER
    for number in range(1, 6):
        assert log.append(data(sequence=2 * number, count=2)) == (2 * number + 1, 2 * number + 1, 1, number)
    assert log.end == 12


@pytest.mark.parametrize(("sequence", "count"), [(2, 1), (3, 1), (2, 3), (1, 3)])
def test_only_the_very_same_range_is_a_duplicate(log: FakeLog, sequence: int, count: int) -> None:
    log.append(data(sequence=2, count=2))
    assert log.refuses(data(sequence=sequence, count=count)) is OUT_OF_ORDER


def test_another_epoch_is_no_duplicate(log: FakeLog) -> None:
    log.append(data(epoch=1, sequence=0))
    assert log.refuses(data(epoch=0, sequence=0)) is INVALID_EPOCH
    assert log.append(data(epoch=2, sequence=0)) is None
    assert log.end == 2


def test_a_duplicate_is_known_after_its_transaction(log: FakeLog) -> None:
    log.append(data(transactional=True))
    log.append(marker())
    assert log.append(data(transactional=True)) is not None


@pytest.mark.parametrize("origin", [COORDINATOR, REPLICATION])
def test_only_clients_repeat_themselves(log: FakeLog, origin: AppendOrigin) -> None:
    log.append(data())
    assert log.append(data(), origin) is None
    assert log.end == 2


def test_offset_commits_have_no_sequence_to_be_known_by(log: FakeLog) -> None:
    log.append(data(sequence=-1), COORDINATOR)
    assert log.append(data(sequence=-1), COORDINATOR) is None


# Epochs.


@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, COORDINATOR, AppendOrigin.RAFT_LEADER])
@pytest.mark.parametrize("transactional", [False, True])
def test_an_old_epoch_is_refused(log: FakeLog, origin: AppendOrigin, transactional: bool) -> None:
    log.append(data(epoch=4))
    assert log.refuses(data(epoch=3, transactional=transactional), origin) is INVALID_EPOCH


def test_an_old_epoch_of_a_leader_stands(log: FakeLog, caplog: pytest.LogCaptureFixture) -> None:
    log.append(data(epoch=4))
    log.append(data(epoch=3, sequence=8), REPLICATION)
    assert "A batch of producer 1 for topic-0 has epoch 3; expected 4 or more." in caplog.text
    entry = log.states.entry(1)
    assert entry is not None
    assert (entry.epoch, entry.last_sequence, len(entry.batches)) == (3, 8, 1)


# Transactions.


def test_a_transaction_must_be_ended_before_anything_else(log: FakeLog, caplog: pytest.LogCaptureFixture) -> None:
    log.append(data(sequence=0, transactional=True))
    assert log.refuses(data(sequence=1)) is INVALID_STATE
    assert log.refuses(data(sequence=-1), COORDINATOR) is INVALID_STATE
    log.append(data(sequence=1), REPLICATION)
    assert "a batch outside of the transaction that it began at offset 0" in caplog.text


@pytest.mark.parametrize("version", [0, 1])
def test_a_marker_may_have_the_same_epoch_or_a_higher_one(log: FakeLog, version: int) -> None:
    log.append(data(epoch=4, transactional=True))
    assert log.refuses(marker(epoch=3), version=version) is INVALID_EPOCH
    log.append(marker(epoch=4), version=version)
    log.append(marker(epoch=6), version=version)


def test_with_transaction_version_2_a_marker_has_a_higher_epoch(log: FakeLog) -> None:
    log.append(data(epoch=4, transactional=True))
    assert log.refuses(marker(epoch=3), version=2) is INVALID_EPOCH
    assert log.refuses(marker(epoch=4), version=2) is INVALID_EPOCH
    log.append(marker(epoch=5), version=2)
    assert log.completed == [(1, 0, 1, False)]


def test_with_transaction_version_2_the_same_marker_may_come_again(log: FakeLog) -> None:
    log.append(data(epoch=4, transactional=True))
    log.append(marker(epoch=5), version=2)
    log.append(marker(epoch=5), version=2)
    assert log.refuses(marker(epoch=4), version=2) is INVALID_EPOCH
    log.append(data(epoch=5, transactional=True))
    assert log.refuses(marker(epoch=5), version=2) is INVALID_EPOCH


def test_the_last_epoch_cannot_rise(log: FakeLog) -> None:
    log.append(data(epoch=LAST_EPOCH, transactional=True))
    log.append(marker(epoch=LAST_EPOCH), version=2)
    assert len(log.completed) == 1


def test_a_marker_of_an_old_coordinator_is_fenced(log: FakeLog) -> None:
    log.append(data(transactional=True))
    log.append(marker(coordinator_epoch=5))
    assert log.refuses(marker(coordinator_epoch=4)) is FENCED
    assert log.refuses(marker(epoch=1, coordinator_epoch=4), version=2) is FENCED
    log.append(marker(coordinator_epoch=5))
    log.append(marker(coordinator_epoch=6))


def test_markers_of_a_leader_stand(log: FakeLog, caplog: pytest.LogCaptureFixture) -> None:
    log.append(data(epoch=4, transactional=True))
    log.append(marker(epoch=4, coordinator_epoch=5))
    log.append(marker(epoch=3, coordinator_epoch=4), REPLICATION, version=-1)
    assert "A marker of producer 1 for topic-0 has epoch 3; expected 4 or more." in caplog.text
    assert "has coordinator epoch 4; expected 5 or more." in caplog.text


def test_a_marker_has_a_transaction_version(log: FakeLog) -> None:
    with pytest.raises(AssertionError, match="a marker of no transaction version"):
        log.append(marker(), version=-1)


def test_a_control_batch_without_its_record_says_nothing(log: FakeLog) -> None:
    builder = BatchBuilder(producer_id=1, producer_epoch=0, transactional=True, control=True)
    batch = RecordBatch(builder.build(last_offset=0, max_timestamp=5))
    assert marker_of(batch) is None
    log.append(data(epoch=5, transactional=True))
    log.append(batch, REPLICATION)
    assert log.completed == []
    assert log.states.first_unstable_offset == 0


@pytest.mark.parametrize("key", [control_key(ControlType.LEADER_CHANGE), b"\0\0\0\x63", b"", None])
def test_other_control_records_are_no_markers(log: FakeLog, key: bytes | None) -> None:
    builder = BatchBuilder(producer_id=1, producer_epoch=0, transactional=True, control=True)
    builder.append(0, key, bytes(6))
    assert log.refuses(RecordBatch(builder.build()), COORDINATOR) is ErrorCode.INVALID_RECORD


# Verification (KIP-890).


def verify(log: FakeLog, batch: RecordBatch, *, bump: bool = False) -> int:
    return log.states.start_verification(
        batch.producer_id, batch.base_sequence, batch.producer_epoch, supports_epoch_bump=bump, now_ms=0
    )


def test_a_transaction_begins_only_with_its_guard(verifying: FakeLog) -> None:
    batch = data(transactional=True)
    assert verifying.refuses(batch) is INVALID_STATE
    guard = verify(verifying, batch)
    assert verifying.refuses(batch) is INVALID_STATE
    assert verifying.refuses(batch, guard=guard + 1) is INVALID_STATE
    verifying.append(batch, guard=guard)
    assert verifying.states.verification(1) is None
    verifying.append(data(sequence=1, transactional=True))
    assert verify(verifying, data(sequence=2)) == 0


def test_offset_commits_are_verified_too(verifying: FakeLog) -> None:
    batch = data(sequence=-1, transactional=True)
    assert verifying.refuses(batch, COORDINATOR) is INVALID_STATE
    verifying.append(batch, COORDINATOR, guard=verify(verifying, batch))


def test_markers_replicas_and_plain_batches_need_no_guard(verifying: FakeLog) -> None:
    verifying.append(marker())
    verifying.append(data(producer_id=2, transactional=True), REPLICATION)
    verifying.append(data(producer_id=3))


def test_a_guard_does_not_outlive_an_abort(verifying: FakeLog) -> None:
    batch = data(epoch=1, transactional=True)
    guard = verify(verifying, batch)
    verifying.append(marker(epoch=1, kind=ControlType.ABORT))
    assert verifying.refuses(batch, guard=guard) is INVALID_STATE
    assert verify(verifying, batch) != guard


def test_the_marker_of_the_epoch_that_waits_leaves_its_guard(verifying: FakeLog) -> None:
    batch = data(epoch=5, transactional=True)
    guard = verify(verifying, batch, bump=True)
    verifying.append(marker(epoch=5), version=2)
    verifying.append(batch, guard=guard)
    assert verifying.states.has_ongoing_transaction(1, 5)


def test_the_lowest_sequence_that_waits_goes_first(log: FakeLog) -> None:
    verify(log, data(sequence=8))
    verify(log, data(sequence=5))
    assert log.refuses(data(sequence=8, transactional=True)) is OUT_OF_ORDER
    log.append(data(sequence=5, transactional=True))


def test_with_epoch_bumps_an_unknown_producer_begins_at_0(log: FakeLog) -> None:
    verify(log, data(sequence=5), bump=True)
    assert log.refuses(data(sequence=5, transactional=True)) is OUT_OF_ORDER
    verify(log, data(sequence=0), bump=True)
    log.append(data(sequence=0, transactional=True))


def test_an_old_epoch_is_not_verified(verifying: FakeLog) -> None:
    verifying.append(data(epoch=3))
    with pytest.raises(KafkaError, match=r"^INVALID_PRODUCER_EPOCH: Producer 1 has epoch 2 for topic-0; expected 3 or more\.$"):
        verify(verifying, data(epoch=2))


def test_an_open_transaction_of_an_older_epoch_does_not_count(verifying: FakeLog) -> None:
    first = data(epoch=1, transactional=True)
    verifying.append(first, guard=verify(verifying, first))
    assert verify(verifying, data(epoch=2)) != 0
    assert verifying.refuses(data(epoch=2, sequence=0, transactional=True)) is INVALID_STATE
