"""Static members (KIP-345): a restart within the session timeout costs no rebalance, and nobody is there twice."""

from __future__ import annotations

import pytest
from unit.coordinator.group.members import Member, describe, finish, leave, stabilize
from unit.coordinator.worlds import World

from pybroker.protocol.errors import ErrorCode


@pytest.fixture
def world() -> World:
    return World()


def restarted(member: Member) -> Member:
    """The same instance in a new process, which knows nothing of its member id."""
    return Member(
        member.world,
        member.name,
        instance=member.instance,
        protocols=member.protocols,
        topics=member.topics,
        session_ms=member.session_ms,
        version=member.version,
    )


def test_a_static_member_needs_no_member_id_beforehand(world: World) -> None:
    member = Member(world, instance="i")
    assert not member.send_join().is_there
    world.advance(3000)
    assert describe(world).members[0].member_id.startswith("i-")


def test_a_restart_within_the_session_timeout_keeps_the_assignment_without_a_rebalance(world: World) -> None:
    leader, follower = Member(world, "leader", instance="a"), Member(world, "follower", instance="b")
    stabilize(leader, follower)
    again = restarted(follower)
    again.join()
    response = again.learn()
    assert (response.generation_id, response.leader, response.members) == (1, leader.id, [])
    assert again.id != follower.id
    assert again.sync().response.assignment == b"share of follower"
    assert leader.heartbeat() is ErrorCode.NONE


def test_a_rolling_restart_of_three_static_members_costs_no_rebalance(world: World) -> None:
    members = [Member(world, f"m{number}", instance=f"i{number}") for number in range(3)]
    stabilize(*members)
    for number in range(3):
        world.advance(5000)
        for member in members:
            assert member.heartbeat() is ErrorCode.NONE
        members[number] = restarted(members[number])
        members[number].join()
        assert members[number].learn().generation_id == 1
        assert members[number].sync().response.assignment == f"share of m{number}".encode()
    assert describe(world).group_state == "Stable"


def test_the_leader_that_comes_back_is_told_to_skip_the_assignment(world: World) -> None:
    leader, follower = Member(world, "leader", instance="a"), Member(world, "follower", instance="b")
    stabilize(leader, follower)
    again = restarted(leader)
    again.join()
    response = again.learn()
    assert response.skip_assignment
    assert response.leader == again.id
    assert len(response.members) == 2
    assert again.sync().response.assignment == b"share of leader"


def test_an_old_leader_that_comes_back_is_not_told_that_it_leads(world: World) -> None:
    leader = Member(world, "leader", instance="a", version=5)
    stabilize(leader)
    again = restarted(leader)
    again.join()
    response = again.learn()
    assert response.leader == leader.id
    assert (response.skip_assignment, response.members) == (False, [])
    assert again.sync().response.assignment == b"share of leader"


def test_a_second_holder_of_the_instance_id_fences_the_first(world: World) -> None:
    first = Member(world, "first", instance="i")
    stabilize(first)
    second = restarted(first)
    second.join()
    second.learn()
    assert first.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert first.commit(5) is ErrorCode.FENCED_INSTANCE_ID
    assert first.sync().refusal is ErrorCode.FENCED_INSTANCE_ID
    assert first.join().code is ErrorCode.FENCED_INSTANCE_ID
    assert first.leave() is ErrorCode.FENCED_INSTANCE_ID
    assert second.heartbeat() is ErrorCode.NONE


def test_the_first_is_fenced_also_while_it_waits(world: World) -> None:
    first = Member(world, "first", instance="i")
    waiting = first.send_join()
    second = restarted(first)
    second.join()
    assert waiting.code is ErrorCode.FENCED_INSTANCE_ID
    world.advance(3000)
    assert second.learn().generation_id == 1


def test_coming_back_before_the_assignment_starts_the_rebalance_over(world: World) -> None:
    leader, follower = Member(world, "leader", instance="a"), Member(world, "follower", instance="b")
    for member in (leader, follower):
        member.join()
    world.advance(6001)
    for member in (leader, follower):
        member.learn()
    follower.sync()
    again = restarted(follower)
    again.join()
    assert follower.syncing.refusal is ErrorCode.FENCED_INSTANCE_ID
    assert leader.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    leader.join()
    finish(leader, again)
    assert again.generation == 2


def test_coming_back_with_other_protocols_is_a_rebalance_if_that_changes_the_elected_one(world: World) -> None:
    member = Member(world, "m", instance="i", protocols=("range", "sticky"))
    stabilize(member)
    again = restarted(member)
    again.protocols = ("sticky",)
    again.join()
    assert again.learn().generation_id == 2
    assert again.joining.response.protocol_name == "sticky"


def test_a_static_member_that_stays_away_longer_than_its_session_is_removed(world: World) -> None:
    leader, follower = Member(world, "leader", instance="a", session_ms=60_000), Member(world, "follower", instance="b")
    stabilize(leader, follower)
    world.advance(10_001)
    assert leader.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    leader.join()
    assert leader.learn().generation_id == 2
    assert [member.group_instance_id for member in describe(world).members] == ["a"]


def test_a_static_member_that_is_late_for_a_rebalance_keeps_its_place(world: World) -> None:
    leader = Member(world, "leader", instance="a", rebalance_ms=20_000, session_ms=60_000)
    late = Member(world, "late", instance="b", rebalance_ms=20_000, session_ms=60_000)
    stabilize(leader, late)
    leader.join()
    world.advance(20_000)
    assert leader.learn().generation_id == 2
    assert {member.group_instance_id for member in leader.joining.response.members} == {"a", "b"}


def test_an_administrator_removes_a_static_member_by_its_instance_id(world: World) -> None:
    stabilize(Member(world, "a", instance="a"), Member(world, "b", instance="b"))
    assert leave(world, ("", "a"), ("", "c"), ("", None)) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert [member.group_instance_id for member in describe(world).members] == ["b"]


def test_a_return_that_cannot_be_stored_leaves_the_old_holder_in_place(world: World) -> None:
    member = Member(world, "m", instance="i")
    stabilize(member)
    world.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    again = restarted(member)
    assert again.join().code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert member.heartbeat() is ErrorCode.NONE
    world.log.refuses = ErrorCode.NONE
    assert again.join().response.generation_id == 1
    assert member.heartbeat() is ErrorCode.FENCED_INSTANCE_ID


def test_the_new_member_id_survives_the_coordinator(world: World) -> None:
    member = Member(world, "m", instance="i")
    stabilize(member)
    again = restarted(member)
    again.join()
    again.learn()
    world.begin()
    assert again.heartbeat() is ErrorCode.NONE
    assert member.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert again.sync().response.assignment == b"share of m"
