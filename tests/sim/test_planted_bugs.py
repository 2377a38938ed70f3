"""The simulator finds what it is there to find: a quorum with a classic mistake fails within 500 seeds.

Each mistake is put into the machine by hand, small enough to be made by anybody on a bad day.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.raft import VoteRequestPartitionData
from pybroker.protocol.records.batch import RecordBatch
from pybroker.raft import discovery, election, follower, leader
from pybroker.raft.events import Recovered, ReplicaKey
from pybroker.raft.log_view import LogView
from pybroker.raft.quorum import Quorum
from pybroker.raft.setting import QuorumSetting
from pybroker.raft.state import State
from pybroker.testing.sim.raft_checks import RaftChecks
from pybroker.testing.sim.raft_world import NewQuorum, RaftWorld, new_quorum

pytestmark = pytest.mark.sim

SEEDS = 500


def require_found(expected: str, plants: NewQuorum = new_quorum) -> None:
    """A seed sees something wrong, and some seed sees `expected`, which is what the mistake leads to."""
    for seed in range(SEEDS):
        error = RaftWorld(seed, swarm=True, new_quorum=plants).run().error
        if error is not None:
            # An assertion of the machine itself counts too: it stands in production as well.
            assert isinstance(error, AssertionError), error
            print(f"seed {seed}: {error}")
            if re.search(expected, str(error)):
                return
    raise AssertionError(f"{SEEDS} seeds saw nothing of {expected!r}")


def flushes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    right = LogView.append

    def append(log: LogView, batches: list[RecordBatch]) -> bool:
        changed = right(log, batches)
        log.flushed_offset = log.end_offset
        return changed

    monkeypatch.setattr(LogView, "append", append)


def test_records_count_before_they_are_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    flushes_at_once(monkeypatch)
    require_found("durable only on")


def test_records_that_counted_before_they_were_flushed_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same by what comes of it, without looking at disks."""
    flushes_at_once(monkeypatch)
    monkeypatch.setattr(RaftChecks, "_require_majority", lambda *_: None)
    require_found("the leader's log ends at|the leader lacks|the committed batch|no progress|told to truncate")


def test_a_vote_does_not_compare_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    right = election._grants

    def grants(state: State, candidate: ReplicaKey, partition: VoteRequestPartitionData) -> bool:
        partition.last_offset_epoch, partition.last_offset = state.log.last_epoch, state.log.end_offset
        return right(state, candidate, partition)

    monkeypatch.setattr(election, "_grants", grants)
    require_found("the leader's log ends at|the leader lacks")


def test_a_vote_does_not_look_at_its_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "refuses_voter_request", lambda state, node_id, epoch: ErrorCode.NONE)
    require_found("it voted for nodes|but its disk says|has two leaders")


def test_a_fetch_does_not_compare_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "_is_off_course", lambda state, asked: False)
    require_found("durable only on|log matching|the committed batch")


def test_a_vote_is_forgotten_over_a_crash() -> None:
    def forgetful(setting: QuorumSetting, recovered: Recovered, draw_below: Callable[[int], int]) -> Quorum:
        forgotten = replace(recovered, election=recovered.election._replace(voted=None))
        return new_quorum(setting, forgotten, draw_below)

    require_found("it voted for nodes", forgetful)


def test_a_candidate_has_not_flushed_what_it_is_elected_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes back from a crash with less, in the same epoch, and is given the same votes."""
    right = election._grants

    def grants(state: State, candidate: ReplicaKey, partition: VoteRequestPartitionData) -> bool:
        if not partition.pre_vote and state.voted == candidate:
            partition.last_offset_epoch, partition.last_offset = state.log.last_epoch, state.log.end_offset
        return right(state, candidate, partition)

    monkeypatch.setattr(election, "_grants", grants)
    monkeypatch.setattr(LogView, "is_flushed", True)
    monkeypatch.setattr(discovery, "can_fetch", can_fetch_what_is_flushed)
    monkeypatch.setattr(follower, "can_fetch", can_fetch_what_is_flushed)
    require_found("the leader's log ends at|the leader lacks")


def can_fetch_what_is_flushed(state: State) -> bool:
    """As it is right."""
    requests, log = state.requests, state.log
    is_fetching = requests.is_under_way(discovery.FETCH) or requests.is_under_way(discovery.FETCH_SNAPSHOT)
    return log.flushed_offset == log.end_offset and state.installing is None and not is_fetching


def test_a_majority_for_records_of_older_epochs_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figure 8 of the Raft paper."""
    right = leader.commit

    def commit(state: State) -> None:
        leading = state.leading
        assert leading is not None
        start, leading.epoch_start_offset = leading.epoch_start_offset, 0
        right(state)
        leading.epoch_start_offset = start

    monkeypatch.setattr(leader, "commit", commit)
    require_found("of an older epoch by itself")
