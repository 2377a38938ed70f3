"""Data partitions in virtual time: some seeds for every change, and mistakes planted in replication that they find."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy
from typing import Any

import pytest
from sim.seeds import same_under_two_hash_seeds

from pybroker.log.log import TimestampedOffset
from pybroker.metadata.image import PartitionState
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.fetch import FetchPartition
from pybroker.replication.isr import Follower, Leadership
from pybroker.replication.partition import Partition
from pybroker.server.handlers.offsets import OffsetHandlers
from pybroker.testing.sim.__main__ import main
from pybroker.testing.sim.data_log import MemoryLog
from pybroker.testing.sim.data_world import DataWorld
from pybroker.testing.sim.trace import Trace

pytestmark = pytest.mark.sim

SEEDS = 300


@pytest.mark.parametrize("swarm", [False, True])
def test_seeds(swarm: bool, capsys: pytest.CaptureFixture[str]) -> None:
    failed = main(["--level", "data", "--seeds", "25", *(["--swarm"] if swarm else [])])
    print(shown := capsys.readouterr().out)
    assert not failed, shown


def test_a_seed_is_a_run_and_a_trace_changes_nothing() -> None:
    for seed in range(4):
        quiet, loud = DataWorld(seed, swarm=True).run(), DataWorld(seed, swarm=True, trace=Trace(10)).run()
        assert (quiet.steps, quiet.facts) == (loud.steps, loud.facts)


def test_a_seed_is_a_run_whatever_the_hash_seed() -> None:
    same_under_two_hash_seeds("data", 4)


def test_seeds_see_what_they_are_meant_to_see() -> None:
    facts = [DataWorld(seed, swarm=True).run().facts for seed in range(25)]
    assert sum(one["acknowledged"] for one in facts) > 1000
    assert sum(one["leader_epochs"] for one in facts) > 100
    assert sum(one["told"] for one in facts) > 1000
    assert sum(one["crashes"] for one in facts) > 30
    assert sum(one["reassignments"] for one in facts) > 20


def require_found(expected: str) -> None:
    for seed in range(SEEDS):
        error = DataWorld(seed, swarm=True).run().error
        if error is not None:
            print(f"seed {seed}: {error}")
            if re.search(expected, str(error)):
                return
    raise AssertionError(f"{SEEDS} seeds saw nothing of {expected!r}")


def replaced(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, wrong: Callable[..., Any]) -> None:
    """Put `wrong` in the place of a method; it gets the right one first."""
    right = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *given, **named: wrong(right, *given, **named))


LOST = "lacks what was committed|does not have it|goes on with|where it is not committed|and elsewhere|was acknowledged at"


def test_a_follower_cuts_its_log_back_to_its_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    """As before KIP-101."""

    def update(right: Any, partition: Partition, state: PartitionState) -> Any:
        effects = right(partition, state)
        if not partition.is_leader:
            partition.log.truncate_to(partition.log.high_watermark)  # type: ignore[call-arg]
        return effects

    replaced(monkeypatch, Partition, "update", update)
    require_found(LOST)


def test_a_follower_does_not_cut_back_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryLog, "truncate_to", lambda log, offset: log.leader_epochs.truncate_from_end(offset))
    require_found("and elsewhere|differ|not enough until|goes on with")


def test_the_high_watermark_passes_a_member_of_the_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    def holds_back(right: Any, leadership: Leadership, follower: Follower, now_ms: int, end_offset: int) -> bool:
        slowest = min(leadership.followers.values(), key=lambda one: one.end_offset)
        return right(leadership, follower, now_ms, end_offset) and follower is not slowest

    replaced(monkeypatch, Leadership, "_holds_back", holds_back)
    require_found(LOST)


def test_the_short_way_of_a_fetch_counts_one_of_another_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    def kept_up(right: Any, partition: Partition, asked: FetchPartition, replica_id: int, replica_epoch: int) -> bool | None:
        taken_for = copy(asked)
        taken_for.current_leader_epoch = taken_for.last_fetched_epoch = partition.leader_epoch
        return bool(right(partition, taken_for, replica_id, replica_epoch)) or None

    replaced(monkeypatch, Partition, "follower_kept_up", kept_up)
    require_found(LOST)


def test_a_new_member_counts_only_when_the_controller_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    def propose(right: Any, leadership: Leadership, isr: Any) -> Any:
        proposal = right(leadership, isr)
        leadership.maximal_isr = leadership.isr
        return proposal

    replaced(monkeypatch, Leadership, "_propose", propose)
    monkeypatch.setattr(Follower, "is_caught_up", lambda follower, end, now_ms, max_lag_ms: follower.end_offset == end)
    require_found(LOST)


def test_one_that_is_asked_to_leave_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def propose(right: Any, leadership: Leadership, isr: Any) -> Any:
        proposal = right(leadership, isr)
        leadership.maximal_isr = frozenset(isr)
        return proposal

    replaced(monkeypatch, Leadership, "_propose", propose)
    require_found(LOST)


def test_a_new_leader_tells_clients_what_it_knows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which may be less than the last one told (KIP-207)."""

    def offset_for(right: Any, handlers: OffsetHandlers, partition: Partition, *given: Any) -> TimestampedOffset | None:
        return TimestampedOffset(partition.log.high_watermark, -1, partition.leader_epoch)

    replaced(monkeypatch, OffsetHandlers, "_offset_for", offset_for)
    require_found("a client was told")


def test_a_leader_takes_fetches_of_another_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a follower that has parted from it, and does not know yet, counts as one that has its records."""

    def refusal(right: Any, partition: Partition, epoch: int, **named: Any) -> ErrorCode:
        return right(partition, -1, **named)

    def read(right: Any, partition: Partition, *given: Any, **named: Any) -> Any:
        return right(partition, *given, **(named | {"last_fetched_epoch": -1}))

    replaced(monkeypatch, Partition, "refusal", refusal)
    replaced(monkeypatch, Partition, "read", read)
    require_found(LOST + "|differ|not enough until")


def test_a_follower_takes_what_a_leader_of_an_old_epoch_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "follows_in", lambda partition, leader_epoch: True)
    monkeypatch.setattr("pybroker.replication.fetchers.FetcherDriver.remove", lambda driver, keys: None)
    require_found(LOST + "|differ|not enough until")


def test_a_replica_joins_before_it_has_what_the_last_leaders_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    def may_join(right: Any, leadership: Leadership, follower: Follower, end_offset: int) -> bool:
        return follower.end_offset >= 0 and leadership._is_eligible(follower)

    replaced(monkeypatch, Leadership, "_may_join", may_join)
    require_found(LOST)
