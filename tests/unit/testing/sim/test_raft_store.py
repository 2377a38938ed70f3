"""The raft level's disk loses what was not flushed, and nothing else."""

from __future__ import annotations

import random

import pytest
from support.batches import batch

from pybroker.raft.events import ElectionState, ReplicaKey, SnapshotId
from pybroker.testing.sim.raft_store import RaftStore, Snapshot, decode_snapshot

SEEDS = 50


def new_store(*epochs: int) -> RaftStore:
    """A log of one record for each epoch, all flushed."""
    store = RaftStore(ReplicaKey(1), None)
    for epoch in epochs:
        append(store, epoch)
    flush(store)
    return store


def append(store: RaftStore, epoch: int, count: int = 1) -> None:
    store.append(bytes(batch([b"x"] * count, base_offset=store.live.end_offset, leader_epoch=epoch)))


def flush(store: RaftStore) -> int:
    store.begin_flush()
    return store.finish_flush()


def epochs_of(store: RaftStore) -> list[int]:
    return [one.epoch for one in store.live.batches]


def test_a_crash_keeps_a_prefix_of_what_was_not_flushed() -> None:
    seen = set()
    for seed in range(SEEDS):
        store = new_store(1, 1)
        append(store, 2)
        append(store, 3)
        store.crash(random.Random(seed))
        seen.add(tuple(epochs_of(store)))
    assert seen == {(1, 1), (1, 1, 2), (1, 1, 2, 3)}


def test_a_flush_covers_what_was_there_when_it_began() -> None:
    seen = set()
    for seed in range(SEEDS):
        store = new_store(1)
        append(store, 2)
        store.begin_flush()
        append(store, 3)
        assert store.finish_flush() == 2
        store.crash(random.Random(seed))
        seen.add(tuple(epochs_of(store)))
    assert seen == {(1, 2), (1, 2, 3)}


def test_a_truncation_during_a_flush_lowers_what_the_flush_makes_safe() -> None:
    seen = set()
    for seed in range(SEEDS):
        store = new_store(1)
        append(store, 2)
        store.begin_flush()
        store.truncate(1)
        append(store, 3)
        assert store.finish_flush() == 1
        store.crash(random.Random(seed))
        seen.add(tuple(epochs_of(store)))
    assert seen == {(1, 2), (1,), (1, 3)}


def test_a_truncation_inside_a_batch_is_refused() -> None:
    store = RaftStore(ReplicaKey(1), None)
    append(store, 1, count=3)
    with pytest.raises(AssertionError, match="inside a batch"):
        store.truncate(1)


def test_a_read_gives_one_batch_at_least_and_no_more_than_was_asked_for() -> None:
    store = new_store(1, 2, 3)
    size = len(store.live.batches[0].data)
    assert len(store.live.read(1, 1)) == size
    assert len(store.live.read(0, 2 * size)) == 2 * size
    assert store.live.read(3, 1000) == b""


def test_a_start_finds_epochs_election_and_snapshot() -> None:
    store = new_store(1, 1, 4)
    store.election = ElectionState(4, 1, None)
    store.put_snapshot(SnapshotId(2, 1), Snapshot(7, 0, None), 300)
    store.clean(SnapshotId(2, 1))
    recovered = store.recovered()
    assert (recovered.log_start_offset, recovered.log_end_offset) == (2, 3)
    assert recovered.epochs == ((4, 2),)
    assert recovered.snapshot == SnapshotId(2, 1)
    assert recovered.election.epoch == 4


def test_an_installed_snapshot_is_the_whole_log_even_over_a_crash() -> None:
    source, store = new_store(1), new_store(1, 1)
    source.put_snapshot(SnapshotId(9, 3), Snapshot(42, 0, None), 100)
    data = source.snapshots[SnapshotId(9, 3)]
    append(store, 2)
    store.begin_flush()
    store.store_chunk(SnapshotId(9, 3), 0, data[:60])
    store.store_chunk(SnapshotId(9, 3), 60, data[60:])
    assert store.install(SnapshotId(9, 3)).checksum == 42
    assert not store.is_flushing
    store.crash(random.Random(0))
    assert store.recovered().log_end_offset == 9
    assert store.recovered().epochs == ((3, 9),)
    assert decode_snapshot(store.snapshots[SnapshotId(9, 3)]).checksum == 42


def test_a_log_that_was_flushed_less_far_than_its_snapshot_goes_on_behind_it() -> None:
    for seed in range(SEEDS):
        store = new_store(1)
        append(store, 1)
        store.put_snapshot(SnapshotId(2, 1), Snapshot(7, 0, None), 0)
        store.crash(random.Random(seed))
        assert store.live.end_offset == 2
