"""Consumer groups in virtual time: joins, reconciliation, fencing, timeouts, static members, expressions."""

from __future__ import annotations

import pytest
from unit.coordinator.group.consumer.consumers import REBALANCE_MS, SESSION_MS, Consumer, describe, settle
from unit.coordinator.worlds import World

from pybroker.coordinator.group.consumer import topic_automaton
from pybroker.coordinator.group.settings import GroupSettings
from pybroker.coordinator.group.shard import TopicsChanged
from pybroker.coordinator.runtime import RequestedOfAll
from pybroker.coordinator.shard import Request
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.groups import DeleteGroupsRequest, ListGroupsRequest


@pytest.fixture
def world() -> World:
    world = World()
    world.cluster.add("t", 6)
    return world


def partitions(*numbers: int, topic: str = "t") -> set[tuple[str, int]]:
    return {(topic, number) for number in numbers}


def changed(world: World, *names: str, has_new: bool = False) -> None:
    world.run(RequestedOfAll(Request(TopicsChanged(names, has_new))))


def test_the_first_member_gets_everything_with_its_first_heartbeat(world: World) -> None:
    first = Consumer(world, "first")
    assert first.heartbeat() == ErrorCode.NONE
    assert first.epoch == 2
    assert first.owned == partitions(0, 1, 2, 3, 4, 5)
    assert describe(first).group_state == "Stable"


def test_a_second_member_waits_until_the_first_has_given_up(world: World) -> None:
    first, second = Consumer(world, "first"), Consumer(world, "second")
    settle(first)
    first.gives_up = False
    second.heartbeat()
    assert second.owned == set(), "all is still the first member's"
    first.heartbeat()
    assert len(first.assigned) == 3, "it is told to give three up, ..."
    assert len(first.owned) == 6, "... and has not yet"
    assert first.epoch == 2, "a member stays in its epoch until it has given up"
    second.heartbeat()
    assert second.owned == set()
    first.owned = set(first.assigned)
    first.heartbeat()
    assert first.epoch == 3
    second.heartbeat()
    assert second.owned == partitions(0, 1, 2, 3, 4, 5) - first.owned
    assert describe(first).group_state == "Stable"


def test_who_stays_keeps_what_it_has_when_another_leaves(world: World) -> None:
    members = [Consumer(world, f"m{number}") for number in range(3)]
    for member in members:
        member.heartbeat()
    settle(*members)
    kept = {member.member_id: set(member.owned) for member in members}
    assert members[0].leave() == ErrorCode.NONE
    settle(*members[1:])
    for member in members[1:]:
        assert kept[member.member_id] < member.owned
        assert len(member.owned) == 3


def test_a_member_that_is_silent_for_its_session_is_removed(world: World) -> None:
    first, second = Consumer(world, "first"), Consumer(world, "second")
    first.heartbeat()
    second.heartbeat()
    settle(first, second)
    for _ in range(SESSION_MS // 5000):
        world.advance(5000)
        first.heartbeat()
    settle(first)
    assert len(first.owned) == 6
    assert second.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_sets_its_own_session_timeout(world: World) -> None:
    world.cluster.configs["g"] = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "7000"}
    member = Consumer(world, "m")
    settle(member)
    world.advance(49_000)
    assert member.heartbeat() == ErrorCode.NONE
    assert member.interval_ms == 7000
    world.advance(50_000)
    assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_give_up_is_removed_after_its_rebalance_timeout(world: World) -> None:
    first, second = Consumer(world, "first"), Consumer(world, "second")
    settle(first)
    first.gives_up = False
    second.heartbeat()
    for _ in range(REBALANCE_MS // 4000):
        assert first.heartbeat() == ErrorCode.NONE
        assert second.heartbeat() == ErrorCode.NONE
        world.advance(4000)
    assert first.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    settle(second)
    assert len(second.owned) == 6


def test_an_epoch_that_was_never_given_is_fenced(world: World) -> None:
    member = Consumer(world, "m")
    settle(member)
    member.epoch += 5
    answer = member.send()
    assert answer.code == ErrorCode.FENCED_MEMBER_EPOCH
    assert "greater member epoch (7) than the one known by the group coordinator (2)" in answer.response.error_message


def test_a_member_that_missed_an_answer_goes_on_in_the_epoch_before(world: World) -> None:
    member, other = Consumer(world, "m"), Consumer(world, "other")
    settle(member)
    other.heartbeat()
    settle(member, other)
    other.leave()
    world.advance(5000)
    lost = member.send()
    assert lost.response.member_epoch == member.epoch + 1
    assert member.heartbeat() == ErrorCode.NONE
    member.epoch -= 1
    member.owned |= partitions(0, 1, 2, 3, 4, 5, topic="t")
    assert member.heartbeat() == ErrorCode.NONE, "it owns nothing that it should not"
    member.epoch -= 2
    assert member.heartbeat() == ErrorCode.FENCED_MEMBER_EPOCH


def test_members_that_are_not_there(world: World) -> None:
    member = Consumer(world, "m")
    member.epoch = 3
    assert member.send().code == ErrorCode.GROUP_ID_NOT_FOUND
    settle(Consumer(world, "other"))
    assert member.send().code == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.leave() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_nobody_more() -> None:
    world = World(GroupSettings(consumer_max_size=1))
    world.cluster.add("t", 6)
    settle(Consumer(world, "first"))
    assert Consumer(world, "second").send().code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_new_partitions_are_assigned_with_the_next_heartbeats(world: World) -> None:
    members = [Consumer(world, "a"), Consumer(world, "b")]
    for member in members:
        member.heartbeat()
    settle(*members)
    world.cluster.add("t", 8)
    changed(world, "t")
    settle(*members)
    assert [len(member.owned) for member in members] == [4, 4]
    assert members[0].owned | members[1].owned == partitions(*range(8))


def test_a_topic_that_is_created_later_is_read_when_it_is_there(world: World) -> None:
    member = Consumer(world, "m", topics=("later",))
    settle(member)
    assert member.owned == set()
    world.cluster.add("later", 2)
    changed(world, "later", has_new=True)
    settle(member)
    assert member.owned == partitions(0, 1, topic="later")


def test_a_member_that_unsubscribes_gives_up_at_once(world: World) -> None:
    world.cluster.add("u", 1)
    member = Consumer(world, "m", topics=("t", "u"))
    settle(member)
    assert member.subscribe("u") == ErrorCode.NONE
    assert member.owned == partitions(0, topic="u")


def test_assignments_keep_their_distance(world: World) -> None:
    """consumer.assignment.interval.ms: members that come together are assigned together."""
    first, second, third = (Consumer(world, name) for name in ("a", "b", "c"))
    first.heartbeat()
    world.advance(100)
    second.heartbeat()
    third.heartbeat()
    assert describe(first).group_epoch == 4
    assert describe(first).assignment_epoch == 2
    assert describe(first).group_state == "Assigning"
    assert second.interval_ms == 900, "it is told to come when the group may be assigned again"
    world.advance(900)
    second.heartbeat()
    assert describe(first).assignment_epoch == 4


def test_the_distance_of_assignments_may_change_while_the_group_runs(world: World) -> None:
    first, second = (Consumer(world, name) for name in ("a", "b"))
    first.heartbeat()
    world.advance(100)
    world.settings.consumer_assignment_interval_ms = 50
    second.heartbeat()
    assert describe(first).assignment_epoch == 3


# Heartbeat intervals.


def test_heartbeats_are_rare_at_rest_and_frequent_while_there_is_news(world: World) -> None:
    first, second = Consumer(world, "first"), Consumer(world, "second")
    first.heartbeat()
    assert first.interval_ms == 200
    world.advance(4000)
    first.heartbeat()
    assert first.interval_ms == 2000, "half as long as nothing has happened"
    world.advance(60_000)
    assert first.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    settle(first)
    for _ in range(5):
        world.advance(5000)
        first.heartbeat()
    assert first.interval_ms == 5000
    second.heartbeat()
    assert second.interval_ms == 200, "it waits for what the first has to give up"


# Static members.


def test_a_static_member_that_comes_back_has_what_it_had(world: World) -> None:
    away, other = Consumer(world, "before", instance="i1"), Consumer(world, "other", instance="i2")
    away.heartbeat()
    other.heartbeat()
    settle(away, other)
    had, epoch = set(away.owned), describe(other).group_epoch
    assert away.go_away() == ErrorCode.NONE
    world.advance(5000)
    assert other.heartbeat() == ErrorCode.NONE
    assert len(other.owned) == 3, "nobody gets what it left"
    back = Consumer(world, "after", instance="i1")
    assert back.heartbeat() == ErrorCode.NONE
    assert back.owned == had
    assert describe(other).group_epoch == epoch, "no rebalance"
    assert away.heartbeat() == ErrorCode.UNRELEASED_INSTANCE_ID


def test_a_static_member_that_does_not_come_back_is_removed_after_its_session(world: World) -> None:
    away, other = Consumer(world, "away", instance="i1"), Consumer(world, "other")
    away.heartbeat()
    other.heartbeat()
    settle(away, other)
    away.go_away()
    for _ in range(10):
        world.advance(5000)
        other.heartbeat()
    settle(other)
    assert len(other.owned) == 6


def test_an_instance_id_that_another_holds_is_refused(world: World) -> None:
    settle(Consumer(world, "holder", instance="i1"))
    assert Consumer(world, "second", instance="i1").send().code == ErrorCode.UNRELEASED_INSTANCE_ID
    fenced = Consumer(world, "second", instance="i1")
    fenced.epoch = 1
    assert fenced.send().code == ErrorCode.FENCED_INSTANCE_ID
    unknown = Consumer(world, "third", instance="i9")
    unknown.epoch = 1
    assert unknown.send().code == ErrorCode.UNKNOWN_MEMBER_ID


# Expressions.


def test_an_expression_reads_the_topics_that_match_and_those_that_come(world: World) -> None:
    world.cluster.add("orders-1", 1)
    member = Consumer(world, "m", topics=None, regex="orders-.*")
    settle(member)
    assert member.owned == partitions(0, topic="orders-1")
    world.cluster.add("orders-2", 2)
    changed(world, "orders-2", has_new=True)
    world.advance(10_000)
    settle(member)
    assert member.owned == partitions(0, topic="orders-1") | partitions(0, 1, topic="orders-2")


def test_an_expression_that_becomes_too_costly_is_refused_to_newcomers_and_keeps_its_topics(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.cluster.add("orders-1", 1)
    settle(member := Consumer(world, "m", topics=None, regex="orders-[0-9]+"))
    monkeypatch.setattr(topic_automaton, "MAX_VISITED", 1)
    world.cluster.add("orders-2", 1)
    changed(world, "orders-2", has_new=True)
    world.advance(10_000)
    settle(member)
    assert member.owned == partitions(0, topic="orders-1")
    answer = Consumer(world, "n", topics=None, regex="orders-.+").send()
    assert answer.code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_an_expression_that_is_none_is_refused(world: World) -> None:
    answer = Consumer(world, "m", topics=None, regex="orders-(").send()
    assert answer.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert (
        answer.response.error_message == "SubscribedTopicRegex `orders-(` is not a valid regular expression: missing closing )."
    )


def test_the_last_reader_of_an_expression_takes_it_along(world: World) -> None:
    settle(member := Consumer(world, "m", topics=None, regex="t"))
    assert world.shard.groups["g"].regexes.keys() == {"t"}
    member.leave()
    assert world.shard.groups["g"].regexes == {}


# Assignors.


def test_the_assignor_that_most_ask_for(world: World) -> None:
    members = [Consumer(world, f"m{number}", assignor="range") for number in range(2)]
    for member in members:
        member.heartbeat()
    settle(*members)
    assert describe(members[0]).assignor_name == "range"
    assert members[0].owned == partitions(0, 1, 2)
    assert members[1].owned == partitions(3, 4, 5)


# Moving.


def test_another_coordinator_knows_all_from_the_log(world: World) -> None:
    members = [Consumer(world, f"m{number}") for number in range(3)]
    for member in members:
        member.heartbeat()
    settle(*members)
    before = describe(members[0])
    world.begin()
    assert describe(members[0]) == before
    for member in members:
        assert member.heartbeat() == ErrorCode.NONE
    assert describe(members[0]).group_epoch == before.group_epoch


def test_a_group_that_all_have_left_can_be_deleted(world: World) -> None:
    settle(member := Consumer(world, "m"))
    (row,) = world.ask(DeleteGroupsRequest(groups_names=["g"])).response.results
    assert row.error_code == ErrorCode.NON_EMPTY_GROUP
    member.leave()
    (listed,) = world.ask(ListGroupsRequest(states_filter=["empty"], types_filter=["consumer"])).response.groups
    assert (listed.group_id, listed.group_type, listed.protocol_type) == ("g", "consumer", "consumer")
    (row,) = world.ask(DeleteGroupsRequest(groups_names=["g"])).response.results
    assert row.error_code == ErrorCode.NONE
    assert world.shard.groups == {}
    world.begin()
    assert world.shard.groups == {}


def test_a_session_that_expires_while_nothing_can_be_written_expires_when_it_can(world: World) -> None:
    """Else the member would stay, and keep its partitions, until the coordinator moves."""
    gone, staying = Consumer(world, "gone"), Consumer(world, "staying")
    settle(gone, staying)
    world.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    world.advance(SESSION_MS + 1)
    world.log.refuses = ErrorCode.NONE
    staying.heartbeat()
    world.advance(1_000)
    settle(staying)
    assert staying.owned == partitions(0, 1, 2, 3, 4, 5)


def test_a_member_that_wants_to_leave_while_nothing_can_be_written_is_still_expected(world: World) -> None:
    leaving, staying = Consumer(world, "leaving"), Consumer(world, "staying")
    settle(leaving, staying)
    world.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    leaving.leave()
    world.log.refuses = ErrorCode.NONE
    for _ in range(SESSION_MS // 5_000 + 2):
        world.advance(5_000)
        staying.heartbeat()
    settle(staying)
    assert staying.owned == partitions(0, 1, 2, 3, 4, 5)


def test_a_coordinator_whose_clock_is_behind_assigns_at_once() -> None:
    """The last assignment then seems to lie ahead: nobody waits for the clock to catch up."""
    world = World(GroupSettings(consumer_assignment_interval_ms=1_000))
    world.cluster.add("t", 6)
    first = Consumer(world, "first")
    settle(first)
    world.clock_offset_ms -= 3_600_000
    second = Consumer(world, "second")
    settle(first, second)
    assert len(second.owned) == 3


def test_an_expression_is_looked_at_again_though_the_clock_was_set_back(world: World) -> None:
    member = Consumer(world, "first", topics=None, regex="t|u")
    settle(member)
    world.clock_offset_ms -= 3_600_000
    world.cluster.add("u", 2)
    changed(world, "u", has_new=True)
    settle(member)
    assert member.owned == partitions(0, 1, 2, 3, 4, 5) | partitions(0, 1, topic="u")


def test_a_new_topic_is_not_missed_when_the_news_cannot_be_written(world: World) -> None:
    member = Consumer(world, "m", topics=None, regex="t.*")
    settle(member)
    world.advance(20_000)
    world.cluster.add("t2", 1)
    changed(world, "t2", has_new=True)
    world.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert member.heartbeat() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.refuses = ErrorCode.NONE
    settle(member)
    assert ("t2", 0) in member.owned


def test_topics_that_come_while_the_coordinator_moves_are_not_missed(world: World) -> None:
    member = Consumer(world, "m", topics=None, regex="t.*")
    settle(member)
    world.advance(20_000)
    world.cluster.add("t2", 1)
    world.begin()
    settle(member)
    assert ("t2", 0) in member.owned


def test_who_is_told_to_give_up_by_an_answer_that_was_never_given_is_not_removed_for_it(world: World) -> None:
    """The deadline of a revocation follows the log: what could not be written asks nothing of anybody."""
    first, second = Consumer(world, "first", rebalance_ms=20_000), Consumer(world, "second")
    settle(first)
    second.heartbeat()
    world.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert first.heartbeat() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.refuses = ErrorCode.NONE
    assert second.leave() == ErrorCode.NONE
    first.epoch = 2
    world.advance(20_000)
    assert [member.member_id for member in describe(first).members] == ["first"]


def test_who_does_not_give_up_has_its_deadline_though_its_answer_could_not_be_written(world: World) -> None:
    first, second = Consumer(world, "first", rebalance_ms=20_000), Consumer(world, "second")
    settle(first)
    first.gives_up = False
    second.heartbeat()
    first.heartbeat()
    kept, first.owned = first.owned, set(first.assigned)
    world.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert first.heartbeat() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.refuses = ErrorCode.NONE
    first.owned = kept
    world.advance(20_000)
    assert first.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_sets_the_distance_of_its_own_assignments(world: World) -> None:
    world.cluster.configs["g"] = {"consumer.assignment.interval.ms": "7000"}
    first, second = Consumer(world, "first"), Consumer(world, "second")
    world.advance(10_000)
    first.heartbeat()
    second.heartbeat()
    assert describe(first).group_state == "Assigning"
    world.advance(6999)
    second.heartbeat()
    assert describe(first).group_state == "Assigning"
    world.advance(1)
    settle(first, second)
    assert len(second.owned) == 3


@pytest.mark.parametrize("others_read", [("t",), ("t", "u")], ids=["the same", "more"])
def test_a_coordinator_that_knows_less_than_the_one_before_it_assigns_what_it_knows(
    world: World, others_read: tuple[str, ...]
) -> None:
    """Partitions were added, and the broker that takes the group over has not heard of them yet."""
    world.cluster.add("u", 1)
    first = Consumer(world, "first")
    settle(first)
    whole = world.cluster.topics["t"]
    world.cluster.topics["t"] = whole._replace(partitions=2)
    world.begin()
    second = Consumer(world, "second", topics=others_read)
    assert second.heartbeat() == ErrorCode.NONE
    settle(first, second)
    assert len({*first.owned, *second.owned}) == 2 + len(others_read) - 1
    world.cluster.topics["t"] = whole
    changed(world, "t")
    settle(first, second)
    assert len({*first.owned, *second.owned}) == 6 + len(others_read) - 1
