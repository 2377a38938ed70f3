"""Groups in virtual time: some seeds for every change, and mistakes planted in the coordinator that they find."""

from __future__ import annotations

from typing import Any

import pytest
from sim.seeds import found_in, replaced, same_under_two_hash_seeds

from pybroker.coordinator.group.classic.group import ClassicGroup
from pybroker.coordinator.group.consumer.group import ConsumerGroup
from pybroker.coordinator.group.offsets import Offsets
from pybroker.coordinator.group.shard import GroupShard
from pybroker.coordinator.runtime import CoordinatorRuntime, Resigned
from pybroker.protocol.errors import ErrorCode
from pybroker.server.coordinators.groups import GroupCoordinator
from pybroker.server.coordinators.shard_loader import _Reader
from pybroker.testing.sim.__main__ import main
from pybroker.testing.sim.group_world import GroupWorld
from pybroker.testing.sim.trace import Trace

pytestmark = pytest.mark.sim


@pytest.mark.parametrize("swarm", [False, True])
def test_seeds(swarm: bool, capsys: pytest.CaptureFixture[str]) -> None:
    failed = main(["--level", "groups", "--seeds", "15", *(["--swarm"] if swarm else [])])
    print(shown := capsys.readouterr().out)
    assert not failed, shown


def test_a_seed_is_a_run_and_a_trace_changes_nothing() -> None:
    for seed in range(3):
        quiet, loud = GroupWorld(seed, swarm=True).run(), GroupWorld(seed, swarm=True, trace=Trace(10)).run()
        assert (quiet.steps, quiet.facts) == (loud.steps, loud.facts)


def test_a_seed_is_the_same_run_whatever_the_hashes_are() -> None:
    same_under_two_hash_seeds("groups", 5)


def test_seeds_see_what_they_are_meant_to_see() -> None:
    facts = [GroupWorld(seed, swarm=True).run().facts for seed in range(30)]
    assert sum(one["commits"] for one in facts) > 500
    assert sum(one["fetches"] for one in facts) > 300
    assert sum(one["leader_epochs"] for one in facts) > 100
    assert sum(one["crashes"] for one in facts) > 30
    assert sum(one["power_losses"] for one in facts) > 5
    assert sum(one["clock_jumps"] for one in facts) > 5
    assert sum(one["topics"] for one in facts) > 20


def test_answers_go_out_before_the_records_are_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    def defer(right: Any, runtime: CoordinatorRuntime[Any], hosted: Any, effects: list[Any]) -> None:
        if hosted.batch is not None or not runtime._is_current(hosted):
            right(runtime, hosted, effects)
        else:
            runtime._effects += effects

    replaced(monkeypatch, CoordinatorRuntime, "_defer", defer)
    found_in(GroupWorld, "and is not committed|is held by|the log says")


def test_a_commit_of_an_old_generation_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(right: Any, group: Any, committer: Any) -> ErrorCode:
        code = right(group, committer)
        return ErrorCode.NONE if code is ErrorCode.ILLEGAL_GENERATION else code

    replaced(monkeypatch, ClassicGroup, "commit_refusal", refusal)
    found_in(GroupWorld, "is committed by")


def test_a_commit_of_somebody_who_is_no_member_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsumerGroup, "commit_refusal", lambda group, committer: ErrorCode.NONE)
    monkeypatch.setattr(ConsumerGroup, "partition_check", lambda group, committer: None)
    found_in(GroupWorld, "is committed by|a broker says")


def test_assignments_of_consumers_are_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that takes over gives partitions away that others hold."""

    def replay_consumers(right: Any, shard: GroupShard, offset: int, record: Any, producer: Any) -> None:
        if shard._is_loaded or type(record.key).__name__ != "ConsumerGroupCurrentMemberAssignmentKey":
            right(shard, offset, record, producer)

    from pybroker.coordinator.group import shard as module

    right = GroupShard._replay_consumers
    for kind, handler in list(module._REPLAYS.items()):
        if handler is right:
            monkeypatch.setitem(module._REPLAYS, kind, lambda *given: replay_consumers(right, *given))
    found_in(GroupWorld, "is held by|in the log|the log says|its log says|a broker says|is committed by|not enough")


def test_a_load_forgets_what_it_has_read_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets, of which only the last of many counts."""
    monkeypatch.setattr(_Reader, "flush", lambda reader: reader._latest.clear())
    found_in(GroupWorld, "the log says|its log says")


def test_a_shard_that_was_unloaded_is_taken_up_again_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[Any, Any] = {}

    def resigned(right: Any, runtime: CoordinatorRuntime[Any], event: Resigned) -> None:
        hosted = runtime._hosted.get(event.partition)
        if hosted is not None and hosted.phase.name == "ACTIVE":
            kept[runtime, event.partition] = hosted.shard
        right(runtime, event)

    def loaded(right: Any, runtime: CoordinatorRuntime[Any], event: Any) -> None:
        hosted = runtime._hosted.get(event.partition)
        shard = kept.pop((runtime, event.partition), None)
        if hosted is not None and hosted.shard is event.shard and shard is not None:
            hosted.shard = shard
            shard._timers = event.shard._timers
            event = event._replace(shard=shard)
        right(runtime, event)

    from pybroker.coordinator import runtime as module

    replaced_in(monkeypatch, module, Resigned, resigned)
    replaced_in(monkeypatch, module, module.Loaded, loaded)
    found_in(GroupWorld, "the log says|its log says|is committed by|a broker says|is held by|follows|not enough")


def replaced_in(monkeypatch: pytest.MonkeyPatch, module: Any, kind: type, wrong: Any) -> None:
    right = module._HANDLE[kind]
    monkeypatch.setitem(module._HANDLE, kind, lambda runtime, event: wrong(right, runtime, event))


def test_two_members_of_a_group_are_given_the_same_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the former owner to let go."""
    monkeypatch.setattr(ConsumerGroup, "is_free_for", lambda group, member: lambda topic_id, partition: True)
    found_in(GroupWorld, "in the log|at the same time")


def test_a_consumer_that_is_refused_takes_the_answers_of_those_who_wait_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would have made a classic group one of consumers, and those who wait for a rebalance are forgotten before it has."""
    from pybroker.coordinator.group.consumer import membership as module

    right = module.upgraded

    def upgraded(group: ClassicGroup, *given: Any) -> Any:
        decided = right(group, *given)
        for member in group.members.values():
            member.join = member.sync = None
        return decided

    monkeypatch.setattr(module, "upgraded", upgraded)
    found_in(GroupWorld, "was never answered")


def test_offsets_of_a_topic_that_is_gone_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards that are loaded when it is deleted, or cannot write then, never hear of it again."""
    monkeypatch.setattr(Offsets, "tombstones_of_gone_topics", lambda offsets: [])
    found_in(GroupWorld, "of a topic that is gone")


def test_offsets_of_a_topic_that_came_again_at_once_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    def publish(right: Any, coordinator: GroupCoordinator, delta: Any, image: Any) -> None:
        for topic_id, topic in list(delta.deleted_topics.items()):
            if topic.name in image.topics:
                del delta.deleted_topics[topic_id]
        right(coordinator, delta, image)

    replaced(monkeypatch, GroupCoordinator, "publish", publish)
    found_in(GroupWorld, "of a topic that is gone")
