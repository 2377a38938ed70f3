"""The invariants of the quorum, held against what the replicas do: they know nothing of how the quorum machine works.

Each is told at the step in which it could break: records appended or cut off, elections persisted, votes given, leaders
announced, high watermarks advanced. A broken one raises `InvariantError`, whose text says what was found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from pybroker.raft.events import ElectionState, ReplicaKey, SnapshotId
from pybroker.testing.sim.raft_store import RaftStore, Snapshot, StoredBatch, fold, parse_control


class InvariantError(AssertionError):
    """What the simulator looks for."""


class Committed(NamedTuple):
    batch: StoredBatch
    checksum: int  # of everything up to and with it
    in_epoch: int  # or in an earlier one


class Progress:
    """What a replica has seen committed in its present life: the raft level's state machine."""

    __slots__ = ("checksum", "high_watermark", "next_offset")

    def __init__(self, next_offset: int, checksum: int) -> None:
        self.high_watermark = 0
        self.next_offset = next_offset
        self.checksum = checksum


class RaftChecks:
    def __init__(
        self, voters_of: Callable[[RaftStore], Iterable[ReplicaKey]], stores: Callable[[ReplicaKey], RaftStore | None]
    ) -> None:
        self._voters_of = voters_of  # the voters at the end of a replica's log
        self._stores = stores
        self.committed: dict[int, Committed] = {}  # by base offset
        self.commit_end = 0
        self._checksum_at: dict[int, int] = {0: 0}
        self._links: dict[tuple[int, int], tuple[bytes, int | None]] = {}  # (offset, epoch): data, epoch of the batch before
        self._leaders: dict[int, int] = {}
        self._ballots: dict[tuple[ReplicaKey, int], int] = {}  # (voter, epoch): candidate
        self._granted: dict[tuple[int, int], list[ReplicaKey]] = {}  # (epoch, candidate): voters
        self._elections: dict[ReplicaKey, ElectionState] = {}
        self.acknowledged = 0
        self.elections = 0
        self.truncations = 0
        self.snapshots_installed = 0
        self.voter_changes = 0

    # The log.

    def appended(self, store: RaftStore, before: StoredBatch | None, batch: StoredBatch) -> None:
        """Log matching: where two logs have a batch of the same offset and epoch, it is the same, and so is all before."""
        place = (batch.base_offset, batch.epoch)
        previous = None if before is None else before.epoch
        link = self._links.get(place)
        if link is None:
            self._links[place] = (batch.data, previous)
        else:
            require(link[0] == batch.data, store, f"log matching: another batch at offset {place[0]} in epoch {place[1]}")
            if link[1] is None:
                self._links[place] = (batch.data, previous)
            else:
                require(
                    previous is None or previous == link[1],
                    store,
                    f"log matching: offset {place[0]} of epoch {place[1]} follows epoch {previous}, elsewhere {link[1]}",
                )
        require(
            before is None or before.epoch <= batch.epoch,
            store,
            f"epochs go back from {previous} to {batch.epoch} at {place[0]}",
        )

    def truncated(self, store: RaftStore, progress: Progress, gone: list[StoredBatch], end_offset: int) -> None:
        self.truncations += 1
        require(
            end_offset >= progress.high_watermark,
            store,
            f"truncated to {end_offset}, below its own high watermark {progress.high_watermark}",
        )
        for batch in gone:
            known = self.committed.get(batch.base_offset)
            require(
                known is None or known.batch.data != batch.data,
                store,
                f"a committed batch at offset {batch.base_offset} of epoch {batch.epoch} was cut off",
            )

    # What is committed.

    def advanced(self, store: RaftStore, progress: Progress, offset: int, leading_epoch: int | None = None) -> None:
        """Committed records never change, and a replica's high watermark never goes back. A leader counts majorities only for
        records of its own epoch, with which the older ones are committed."""
        require(
            offset >= progress.high_watermark, store, f"the high watermark went back from {progress.high_watermark} to {offset}"
        )
        progress.high_watermark = offset
        live = store.live
        require(offset <= live.end_offset, store, f"high watermark {offset} is beyond the end of the log, {live.end_offset}")
        if leading_epoch is not None:
            last = live.find(offset - 1)
            require(
                last is not None and last.epoch == leading_epoch,
                store,
                f"it leads epoch {leading_epoch}, but committed offset {offset - 1} of an older epoch by itself",
            )
        while progress.next_offset < offset:
            batch = live.find(progress.next_offset)
            require(batch is not None, store, f"offset {progress.next_offset} is committed but not in the log")
            assert batch is not None
            if batch.next_offset > offset:
                break
            self._commit(store, progress, batch)

    def _commit(self, store: RaftStore, progress: Progress, batch: StoredBatch) -> None:
        progress.checksum = fold(progress.checksum, batch)
        progress.next_offset = batch.next_offset
        known = self.committed.get(batch.base_offset)
        if known is None:
            require(
                batch.base_offset == self.commit_end,
                store,
                f"committed offset {batch.base_offset}, but the committed log goes to {self.commit_end}",
            )
            self._require_majority(store, batch)
            self.committed[batch.base_offset] = Committed(batch, progress.checksum, store.election.epoch)
            self.commit_end = batch.next_offset
            self._checksum_at[batch.next_offset] = progress.checksum
            self.voter_changes += batch.is_control and bool(parse_control(batch.data).voters)
            return
        require(
            known.batch.data == batch.data,
            store,
            f"the committed batch at offset {batch.base_offset} was of epoch {known.batch.epoch}, now of {batch.epoch}",
        )
        require(known.checksum == progress.checksum, store, f"what is committed before {batch.next_offset} is not what it was")

    def _require_majority(self, store: RaftStore, batch: StoredBatch) -> None:
        """What is committed is safe on the disks of a majority of the voters."""
        voters = list(self._voters_of(store))
        holders = [voter for voter in voters if self._is_durable(voter, batch)]
        require(
            2 * len(holders) > len(voters),
            store,
            f"offset {batch.base_offset} of epoch {batch.epoch} was committed, "
            f"but is durable only on {_names(holders)} of the voters {_names(voters)}",
        )

    def _is_durable(self, voter: ReplicaKey, batch: StoredBatch) -> bool:
        store = self._stores(voter)
        if store is None:
            return False
        latest = store.latest_snapshot
        if latest is not None and latest.end_offset >= batch.next_offset:
            return True
        held = store.durable.find(batch.base_offset)
        return held is not None and held.data == batch.data

    def snapshot_seen(self, store: RaftStore, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        """A snapshot that was fetched holds what was committed before its end."""
        self.snapshots_installed += 1
        expected = self._checksum_at.get(snapshot_id.end_offset)
        require(
            expected == snapshot.checksum,
            store,
            f"snapshot {snapshot_id} is not what is committed there (the committed log goes to {self.commit_end})",
        )

    def acknowledge(self, batch: StoredBatch) -> None:
        """A client was told that its records are committed: they are, and `elected` holds every later leader to that."""
        known = self.committed.get(batch.base_offset)
        if known is None or known.batch.data != batch.data:
            raise InvariantError(f"records at offset {batch.base_offset} were acknowledged, but are not committed")
        self.acknowledged += 1

    # Elections.

    def persisted(self, store: RaftStore, state: ElectionState) -> None:
        before = self._elections.get(store.key, ElectionState())
        require(state.epoch >= before.epoch, store, f"its epoch went back from {before.epoch} to {state.epoch}")
        self._elections[store.key] = state
        if state.voted is not None:
            self._ballot(store, state.epoch, state.voted.id)

    def granted(self, store: RaftStore, epoch: int, candidate_id: int) -> None:
        """It answered a Vote with yes: durable before it is sent."""
        self._ballot(store, epoch, candidate_id)
        self._granted.setdefault((epoch, candidate_id), []).append(store.key)
        state = store.election
        require(
            state.epoch == epoch and state.voted is not None and state.voted.id == candidate_id,
            store,
            f"it granted node {candidate_id} its vote in epoch {epoch}, but its disk says {state}",
        )

    def _ballot(self, store: RaftStore, epoch: int, candidate_id: int) -> None:
        ballot = self._ballots.setdefault((store.key, epoch), candidate_id)
        require(ballot == candidate_id, store, f"it voted for nodes {ballot} and {candidate_id} in epoch {epoch}")

    def announced(self, store: RaftStore, epoch: int, leader_id: int) -> None:
        known = self._leaders.setdefault(epoch, leader_id)
        require(known == leader_id, store, f"epoch {epoch} has two leaders, nodes {known} and {leader_id}")

    def elected(self, store: RaftStore, epoch: int) -> None:
        """A leader has the votes of a majority, and whatever was committed before."""
        node_id = store.key.id
        self.elections += 1
        self.announced(store, epoch, node_id)
        voters = list(self._voters_of(store))
        given = [*self._granted.get((epoch, node_id), ())]
        if self._ballots.get((store.key, epoch)) == node_id:
            given.append(store.key)
        ayes = [voter for voter in voters if voter in given]
        require(
            2 * len(ayes) > len(voters),
            store,
            f"it leads epoch {epoch} with the votes of {_names(ayes)}, no majority of {_names(voters)}",
        )
        self._require_committed(store, epoch)

    def _require_committed(self, store: RaftStore, epoch: int) -> None:
        """All that was committed in earlier epochs; who wins an old election too late may lack what came since."""
        latest = store.latest_snapshot
        start = latest.end_offset if latest is not None else 0
        earlier = [one for one in self.committed.values() if one.in_epoch < epoch]
        commit_end = earlier[-1].batch.next_offset if earlier else 0
        require(
            store.live.end_offset >= commit_end or start >= commit_end,
            store,
            f"the leader's log ends at {store.live.end_offset}, the committed log at {commit_end}",
        )
        held = {batch.base_offset: batch for batch in store.live.batches}
        for batch, _, _ in earlier:
            offset = batch.base_offset
            if batch.next_offset > start:
                found = held.get(offset)
                require(
                    found is not None and found.data == batch.data,
                    store,
                    f"the leader lacks the committed batch at offset {offset} of epoch {batch.epoch}",
                )


def require(condition: bool, store: RaftStore, text: str) -> None:
    if not condition:
        raise InvariantError(f"node {store.key.id}: {text}")


def _names(keys: list[ReplicaKey]) -> str:
    return "{" + ", ".join(f"{key.id}" for key in keys) + "}"
