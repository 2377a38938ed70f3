"""Each invariant of the quorum, broken once by hand."""

from __future__ import annotations

import pytest
from support.batches import batch

from pybroker.base.ids import Uuid
from pybroker.raft.events import ElectionState, ReplicaKey, SnapshotId
from pybroker.testing.sim.raft_checks import InvariantError, Progress, RaftChecks
from pybroker.testing.sim.raft_store import RaftStore, Snapshot

KEYS = [ReplicaKey(id_, Uuid(bytes([id_]) * 16)) for id_ in (1, 2, 3)]


class Quorum:
    """Three voters whose logs a test writes as it likes."""

    def __init__(self) -> None:
        self.stores = {key: RaftStore(key, None) for key in KEYS}
        self.checks = RaftChecks(lambda store: KEYS, self.stores.get)
        self.progress = {key: Progress(0, 0) for key in KEYS}

    def append(self, node_id: int, epoch: int, value: bytes = b"x", *, flushes: bool = True) -> None:
        store = self.stores[KEYS[node_id - 1]]
        before = store.live.batches[-1] if store.live.batches else None
        data = bytes(batch([value], base_offset=store.live.end_offset, leader_epoch=epoch))
        self.checks.appended(store, before, store.append(data)[0])
        if flushes:
            store.begin_flush()
            store.finish_flush()

    def advance(self, node_id: int, offset: int) -> None:
        key = KEYS[node_id - 1]
        self.checks.advanced(self.stores[key], self.progress[key], offset)

    def truncate(self, node_id: int, end_offset: int) -> None:
        key = KEYS[node_id - 1]
        store = self.stores[key]
        self.checks.truncated(store, self.progress[key], store.truncate(end_offset), end_offset)

    def persist(self, node_id: int, state: ElectionState) -> None:
        store = self.stores[KEYS[node_id - 1]]
        store.election = state
        self.checks.persisted(store, state)

    def grant(self, node_id: int, epoch: int, candidate_id: int) -> None:
        self.persist(node_id, ElectionState(epoch, None, KEYS[candidate_id - 1]))
        self.checks.granted(self.stores[KEYS[node_id - 1]], epoch, candidate_id)

    def elect(self, node_id: int, epoch: int, *voters: int) -> None:
        self.persist(node_id, ElectionState(epoch, None, KEYS[node_id - 1]))
        for voter in voters:
            self.grant(voter, epoch, node_id)
        self.checks.elected(self.stores[KEYS[node_id - 1]], epoch)


def broken(text: str) -> pytest.RaisesExc[InvariantError]:
    return pytest.raises(InvariantError, match=text)


def test_a_quorum_that_keeps_the_rules() -> None:
    quorum = Quorum()
    quorum.elect(1, 1, 2)
    for node_id in (1, 2):
        quorum.append(node_id, 1)
        quorum.append(node_id, 1, b"y")
    quorum.append(3, 1)
    quorum.advance(1, 2)
    quorum.advance(3, 1)
    quorum.elect(2, 2, 3)
    assert quorum.checks.commit_end == 2


def test_two_leaders_in_an_epoch() -> None:
    quorum = Quorum()
    quorum.elect(1, 1, 2)
    with broken("epoch 1 has two leaders"):
        quorum.checks.announced(quorum.stores[KEYS[2]], 1, 3)


def test_a_leader_without_a_majority() -> None:
    with broken(r"votes of \{1\}, no majority of \{1, 2, 3\}"):
        Quorum().elect(1, 1)


def test_two_votes_in_an_epoch() -> None:
    quorum = Quorum()
    quorum.grant(2, 1, 1)
    with broken("voted for nodes 1 and 3 in epoch 1"):
        quorum.grant(2, 1, 3)


def test_a_vote_that_is_not_on_disk() -> None:
    quorum = Quorum()
    with broken("granted node 1 its vote in epoch 1, but its disk says"):
        quorum.checks.granted(quorum.stores[KEYS[1]], 1, 1)


def test_an_epoch_that_goes_back() -> None:
    quorum = Quorum()
    quorum.persist(1, ElectionState(5))
    with broken("epoch went back from 5 to 4"):
        quorum.persist(1, ElectionState(4))


def test_a_leader_that_lacks_what_is_committed() -> None:
    quorum = Quorum()
    for node_id in (1, 2):
        quorum.append(node_id, 1)
    quorum.advance(1, 1)
    with broken("the leader's log ends at 0, the committed log at 1"):
        quorum.elect(3, 2, 2)


def test_a_leader_that_has_something_else_there() -> None:
    quorum = Quorum()
    for node_id in (1, 2):
        quorum.append(node_id, 1)
    quorum.append(3, 2)
    quorum.advance(1, 1)
    with broken("lacks the committed batch at offset 0 of epoch 1"):
        quorum.elect(3, 3, 2)


def test_a_committed_record_that_changes() -> None:
    quorum = Quorum()
    for node_id in (1, 2):
        quorum.append(node_id, 1)
    quorum.append(3, 2)
    quorum.advance(2, 1)
    with broken("the committed batch at offset 0 was of epoch 1, now of 2"):
        quorum.advance(3, 1)


def test_a_commit_that_is_not_on_a_majority_of_the_disks() -> None:
    quorum = Quorum()
    quorum.append(1, 1)
    quorum.append(2, 1, flushes=False)
    with broken(r"durable only on \{1\} of the voters"):
        quorum.advance(1, 1)


def test_a_committed_record_that_is_cut_off() -> None:
    quorum = Quorum()
    for node_id in (1, 2):
        quorum.append(node_id, 1)
    quorum.advance(1, 1)
    with broken("a committed batch at offset 0 of epoch 1 was cut off"):
        quorum.truncate(2, 0)
    with broken("below its own high watermark 1"):
        quorum.truncate(1, 0)


def test_a_high_watermark_that_goes_back_or_too_far() -> None:
    quorum = Quorum()
    for node_id in (1, 2):
        quorum.append(node_id, 1)
    quorum.advance(1, 1)
    with broken("went back from 1 to 0"):
        quorum.advance(1, 0)
    with broken("beyond the end of the log"):
        quorum.advance(2, 5)


def test_a_leader_that_counts_a_majority_for_an_older_epoch() -> None:
    quorum = Quorum()
    for node_id in (1, 2):
        quorum.append(node_id, 1)
    store = quorum.stores[KEYS[0]]
    with broken("leads epoch 3, but committed offset 0 of an older epoch"):
        quorum.checks.advanced(store, quorum.progress[KEYS[0]], 1, 3)


def test_logs_that_do_not_match() -> None:
    quorum = Quorum()
    quorum.append(1, 1)
    with broken("another batch at offset 0 in epoch 1"):
        quorum.append(2, 1, b"other")
    quorum = Quorum()
    quorum.append(1, 1)
    quorum.append(1, 3)
    quorum.append(2, 2)
    with broken("offset 1 of epoch 3 follows epoch 2, elsewhere 1"):
        quorum.append(2, 3)
    quorum = Quorum()
    quorum.append(1, 3)
    with broken("epochs go back from 3 to 2"):
        quorum.append(1, 2)


def test_a_snapshot_of_something_else() -> None:
    quorum = Quorum()
    with broken("is not what is committed there"):
        quorum.checks.snapshot_seen(quorum.stores[KEYS[0]], SnapshotId(4, 1), Snapshot(7, 0, None))


def test_an_acknowledged_record_that_is_not_committed() -> None:
    quorum = Quorum()
    quorum.append(1, 1)
    with broken("acknowledged, but are not committed"):
        quorum.checks.acknowledge(quorum.stores[KEYS[0]].live.batches[0])
