"""What the quorum knows of its log without reading it."""

from __future__ import annotations

import pytest
from support.quorum_cluster import LISTENER, address_of, batch_of, key_of

from pybroker.protocol.records.batch import iter_batches
from pybroker.protocol.records.control import control_batch
from pybroker.raft import events as e
from pybroker.raft.leader import voter_rows
from pybroker.raft.log_view import LogView
from pybroker.raft.voters import Voter, VoterSet, address_at, endpoints

FIXED = VoterSet.of_addresses({1: address_of(1), 2: address_of(2)}, LISTENER)


def voters(*ids: int) -> VoterSet:
    return VoterSet(Voter(key_of(id_), ((LISTENER, address_of(id_)),), 0, 1) for id_ in ids)


def empty() -> LogView:
    return LogView(e.Recovered(e.ElectionState(), 0, 0, (), None, 0, ()), FIXED)


def append(log: LogView, data: bytes | bytearray) -> bool:
    return log.append(list(iter_batches(data)))


def voters_batch(offset: int, epoch: int, *ids: int) -> bytes:
    rows = voter_rows(1, voters(*ids))
    return bytes(control_batch(rows, timestamp=0, base_offset=offset, partition_leader_epoch=epoch))


def filled() -> LogView:
    """Epoch 1 at 0..2, epoch 3 at 3..4, epoch 4 at 5."""
    log = empty()
    assert not append(log, batch_of(0, 1, b"a", b"b", b"c") + batch_of(3, 3, b"d", b"e") + batch_of(5, 4, b"f"))
    return log


@pytest.mark.parametrize(("epoch", "end"), [(0, (0, 0)), (1, (1, 3)), (2, (1, 3)), (3, (3, 5)), (4, (4, 6)), (9, (4, 6))])
def test_where_an_epoch_ends(epoch: int, end: tuple[int, int]) -> None:
    assert filled().epoch_end(epoch) == end


@pytest.mark.parametrize(("offset", "epoch"), [(1, 1), (3, 1), (4, 3), (5, 3), (6, 4)])
def test_the_epoch_before_an_offset(offset: int, epoch: int) -> None:
    assert filled().epoch_before(offset) == epoch


def test_truncation_takes_epochs_and_voters_back() -> None:
    log = filled()
    log.flushed(6)
    assert append(log, voters_batch(6, 4, 1, 2, 3))
    assert (log.kraft_version, log.voters, log.voters_offset) == (1, voters(1, 2, 3), 7)
    assert append(log, voters_batch(8, 5, 1, 3))
    assert log.earlier_voters == voters(1, 2, 3)
    log.truncate(8)
    assert (log.voters, log.last_epoch, log.end_offset, log.flushed_offset) == (voters(1, 2, 3), 4, 8, 6)
    log.truncate(4)
    assert (log.kraft_version, log.voters, log.voters_offset) == (0, FIXED, -1)
    assert (log.last_epoch, log.flushed_offset) == (3, 4)
    log.truncate(0)
    assert (log.last_epoch, log.epoch_end(4)) == (0, (4, 0))


def test_what_is_durable_is_never_beyond_the_end() -> None:
    log = filled()
    log.flushed(99)
    assert log.flushed_offset == 6
    log.flushed(3)
    assert log.flushed_offset == 6


def test_a_batch_must_follow_the_end_in_offset_and_epoch() -> None:
    log = filled()
    with pytest.raises(AssertionError, match="does not follow the log's end 6"):
        append(log, batch_of(7, 4, b"x"))
    with pytest.raises(AssertionError, match="older than the log's last epoch 4"):
        append(log, batch_of(6, 3, b"x"))


def test_a_snapshot_begins_the_log_anew_and_keeps_its_epoch() -> None:
    log = filled()
    log.install(e.SnapshotId(20, 7), 1, voters(2, 3).record())
    assert (log.start_offset, log.end_offset, log.flushed_offset, log.last_epoch) == (20, 20, 20, 7)
    assert (log.voters, log.kraft_version, log.voters_offset) == (voters(2, 3), 1, 19)
    append(log, batch_of(20, 8, b"x"))
    log.truncate(20)
    assert (log.last_epoch, log.epoch_before(20), log.epoch_end(7)) == (7, 7, (7, 20))


def test_a_start_behind_a_snapshot() -> None:
    recovered = e.Recovered(
        e.ElectionState(8),
        20,
        22,
        (e.EpochStart(7, 20), e.EpochStart(8, 21)),
        e.SnapshotId(20, 7),
        1,
        (e.VotersAt(19, voters(1, 2).record()), e.VotersAt(21, voters(1).record())),
    )
    log = LogView(recovered, VoterSet())
    assert log.voters == voters(1)
    log.truncate(20)
    assert (log.last_epoch, log.voters, log.kraft_version) == (7, voters(1, 2), 1)


def test_the_start_moves_only_behind_a_snapshot() -> None:
    log = filled()
    with pytest.raises(AssertionError, match="no snapshot stands for what went"):
        log.move_start(3)
    log.snapshot_taken(e.SnapshotId(3, 1))
    log.snapshot_taken(e.SnapshotId(2, 1))
    assert log.snapshot == e.SnapshotId(3, 1)
    log.move_start(3)
    assert log.start_offset == 3


class TestVoterSets:
    def test_a_record_and_back(self) -> None:
        assert VoterSet.of_record(voters(1, 2, 3).record()) == voters(1, 2, 3)

    def test_a_voter_is_its_node_and_its_disk_if_that_is_known(self) -> None:
        assert key_of(2) in voters(1, 2)
        assert key_of(2, disk=1) not in voters(1, 2)
        assert key_of(3) not in voters(1, 2)
        assert key_of(2, disk=1) in FIXED

    def test_endpoints_compare_in_any_order(self) -> None:
        pairs = [("A", address_of(1)), ("B", address_of(2))]
        record = VoterSet([Voter(key_of(1), tuple(reversed(pairs)))]).record()
        assert VoterSet.of_record(record) == VoterSet([Voter(key_of(1), endpoints(pairs))])

    def test_changes_leave_the_old_set_as_it_is(self) -> None:
        before = voters(1, 2)
        assert before.with_voter(next(iter(voters(3)))) == voters(1, 2, 3)
        assert before.without(1) == voters(2)
        assert before == voters(1, 2)

    @pytest.mark.parametrize(("count", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
    def test_majorities(self, count: int, majority: int) -> None:
        assert voters(*range(count)).majority == majority

    def test_endpoints(self) -> None:
        assert address_at(voters(1).endpoints_of(1), LISTENER) == address_of(1)
        assert address_at(voters(1).endpoints_of(1), "OTHER") is None
        assert voters(1).endpoints_of(7) == ()
