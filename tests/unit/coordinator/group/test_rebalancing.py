"""Classic groups as the textbook tells them: members come, go, die, and the generations follow each other."""

from __future__ import annotations

import pytest
from unit.coordinator.group.members import Member, describe, finish, leave, stabilize
from unit.coordinator.worlds import World

from pybroker.coordinator.group.settings import GroupSettings
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.consumer_offsets import GroupMetadataValue
from pybroker.protocol.messages.groups import SyncGroupRequest


@pytest.fixture
def world() -> World:
    return World()


def test_a_consumer_joins_waits_for_company_and_leads(world: World) -> None:
    alone = Member(world, "alone")
    first = alone.send_join()
    assert first.code is ErrorCode.MEMBER_ID_REQUIRED
    alone.join()
    assert alone.id.startswith("alone-")
    world.advance(2999)
    assert not alone.joining.is_there
    assert describe(world).group_state == "PreparingRebalance"
    world.advance(1)
    response = alone.learn()
    assert (response.generation_id, response.protocol_name, response.leader) == (1, "range", alone.id)
    assert [member.member_id for member in response.members] == [alone.id]
    assert describe(world).group_state == "CompletingRebalance"
    assert alone.sync({alone.id: b"everything"}).response.assignment == b"everything"
    described = describe(world)
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert described.members[0].member_assignment == b"everything"


def test_each_member_that_comes_during_the_first_delay_prolongs_it_up_to_the_rebalance_timeout(world: World) -> None:
    members = [Member(world, f"m{number}", rebalance_ms=10_000) for number in range(6)]
    members[0].join()
    for member in members[1:4]:
        world.advance(2000)
        member.join()
        assert not member.joining.is_there
    world.advance(3000)
    assert not members[0].joining.is_there
    # 3 s, then 3 s because of m1 and m2, then 3 s because of m3: by then nobody has come any more.
    world.advance(10_000 - 9000)
    assert members[0].learn().generation_id == 1
    assert len(members[0].joining.response.members) == 4


def test_without_a_delay_the_first_member_is_answered_in_the_next_round() -> None:
    world = World(GroupSettings(initial_rebalance_delay_ms=0))
    eager = Member(world)
    eager.join()
    world.advance(0)
    assert eager.learn().generation_id == 1


def test_a_second_consumer_joins_and_the_first_learns_of_it_by_its_heartbeat(world: World) -> None:
    first, second = Member(world, "first"), Member(world, "second")
    stabilize(first)
    assert first.heartbeat() is ErrorCode.NONE
    second.join()
    assert not second.joining.is_there
    assert first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    first.join()
    finish(first, second)
    assert first.generation == second.generation == 2
    assert first.leads
    assert not second.leads
    assert second.joining.response.members == []
    assert first.heartbeat() is second.heartbeat() is ErrorCode.NONE


def test_who_does_not_come_back_within_the_rebalance_timeout_is_left_behind(world: World) -> None:
    slow, second = Member(world, "slow", rebalance_ms=20_000), Member(world, "second", rebalance_ms=20_000)
    stabilize(slow)
    second.join()
    for _ in range(4):
        world.advance(5000)
        slow.heartbeat()
    assert second.learn().generation_id == 2
    assert second.leads
    assert slow.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert slow.send_join().code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_consumer_dies_and_the_others_go_on_without_it(world: World) -> None:
    survivor, victim = Member(world, "survivor"), Member(world, "victim")
    stabilize(survivor, victim)
    for _ in range(4):
        world.advance(3000)
        survivor.heartbeat()
    assert survivor.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    survivor.join()
    finish(survivor)
    assert survivor.generation == 2
    assert [member.member_id for member in describe(world).members] == [survivor.id]


def test_a_commit_keeps_the_session_alive_as_a_heartbeat_does(world: World) -> None:
    member = Member(world)
    stabilize(member)
    for offset in range(5):
        world.advance(9000)
        assert member.commit(offset) is ErrorCode.NONE
    assert describe(world).group_state == "Stable"


def test_while_it_waits_for_the_others_a_member_needs_no_heartbeats(world: World) -> None:
    first, second = Member(world, "first", session_ms=6000), Member(world, "second", session_ms=60_000)
    stabilize(first, second)
    first.topics = ("t", "u")
    first.join()
    world.advance(30_000)
    assert not first.joining.is_there
    second.join()
    assert first.learn().generation_id == 2


def test_a_new_member_that_vanishes_while_it_waits_is_given_up_after_five_minutes(world: World) -> None:
    first, ghost = Member(world, "first", rebalance_ms=900_000, session_ms=900_000), Member(world, "ghost")
    stabilize(first)
    ghost.join()
    world.advance(299_999)
    assert len(describe(world).members) == 2
    world.advance(1)
    assert ghost.joining.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert len(describe(world).members) == 1


def test_the_last_one_leaves_and_the_log_says_that_the_group_is_empty(world: World) -> None:
    member = Member(world)
    stabilize(member)
    assert member.leave() is ErrorCode.NONE
    described = describe(world)
    assert (described.group_state, described.protocol_type, described.members) == ("Empty", "consumer", [])
    _, value = world.log.rows()[-1]
    assert isinstance(value, GroupMetadataValue)
    assert (value.generation, value.protocol, value.leader, value.members) == (2, None, None, [])


def test_the_leader_leaves_and_another_leads(world: World) -> None:
    leader, other = Member(world, "leader"), Member(world, "other")
    stabilize(leader, other)
    leader.leave()
    assert other.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    other.join()
    assert other.learn().leader == other.id


def test_several_leave_at_once_in_one_rebalance(world: World) -> None:
    members = [Member(world, f"m{number}") for number in range(4)]
    stabilize(*members)
    codes = leave(world, (members[1].id, None), ("nobody", None), (members[2].id, None))
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    for member in (members[0], members[3]):
        assert member.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        member.join()
    assert members[0].learn().generation_id == 2


def test_a_follower_that_joins_again_unchanged_does_not_disturb_the_others(world: World) -> None:
    leader, follower = Member(world, "leader"), Member(world, "follower")
    stabilize(leader, follower)
    assert follower.join().response.generation_id == 1
    assert leader.heartbeat() is ErrorCode.NONE


def test_a_leader_that_joins_again_asks_for_a_new_assignment(world: World) -> None:
    leader, follower = Member(world, "leader"), Member(world, "follower")
    stabilize(leader, follower)
    leader.join()
    assert not leader.joining.is_there
    assert follower.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    follower.join()
    finish(leader, follower)
    assert leader.generation == 2


def test_other_topics_of_a_member_are_worth_a_rebalance(world: World) -> None:
    leader, follower = Member(world, "leader"), Member(world, "follower")
    stabilize(leader, follower)
    follower.topics = ("t", "u")
    follower.join()
    assert leader.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_who_missed_the_answer_to_its_join_gets_it_again(world: World) -> None:
    member = Member(world)
    member.join()
    world.advance(3000)
    assert member.learn().generation_id == 1
    again = member.join().response
    assert (again.generation_id, len(again.members)) == (1, 1)


# The protocol that all know.


def test_the_protocol_with_the_most_votes_wins_among_those_that_all_know(world: World) -> None:
    stabilize(
        voters := Member(world, "a", protocols=("range", "sticky")),
        Member(world, "b", protocols=("sticky", "range", "own")),
        Member(world, "c", protocols=("own", "sticky", "range")),
    )
    assert voters.joining.response.protocol_name == "sticky"


def test_a_member_without_a_common_protocol_is_turned_away(world: World) -> None:
    stabilize(Member(world, "a", protocols=("range", "sticky")), Member(world, "b", protocols=("range",)))
    assert Member(world, "c", protocols=("sticky",)).send_join().code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert Member(world, "d", protocol_type="connect").send_join().code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_connect_workers_form_a_group_of_their_own_type(world: World) -> None:
    worker = Member(world, "worker", protocol_type="connect", protocols=("sessioned", "compatible"))
    stabilize(worker)
    assert describe(world).protocol_type == "connect"


# Fencing.


def test_a_stale_generation_may_neither_beat_nor_sync_nor_commit(world: World) -> None:
    first, second = Member(world, "first"), Member(world, "second")
    stabilize(first)
    stale = first.generation
    second.join()
    first.join()
    finish(first, second)
    assert first.heartbeat(stale) is ErrorCode.ILLEGAL_GENERATION
    assert first.commit(5, stale) is ErrorCode.ILLEGAL_GENERATION
    assert first.sync(generation_id=stale).refusal is ErrorCode.ILLEGAL_GENERATION
    assert first.commit(5) is ErrorCode.NONE


def test_before_the_assignment_nobody_commits(world: World) -> None:
    member = Member(world)
    member.join()
    world.advance(3000)
    member.learn()
    assert member.commit(5) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_does_not_know_members_of_another(world: World) -> None:
    member = Member(world)
    stabilize(member)
    member.group = "other"
    assert member.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert member.leave() is ErrorCode.UNKNOWN_MEMBER_ID
    assert member.sync().refusal is ErrorCode.UNKNOWN_MEMBER_ID
    assert member.send_join().code is ErrorCode.UNKNOWN_MEMBER_ID


# SyncGroup.


def test_members_wait_for_the_leaders_assignment_and_get_their_own_share(world: World) -> None:
    leader, follower, forgotten = (Member(world, name) for name in ("leader", "follower", "forgotten"))
    for member in (leader, follower, forgotten):
        member.join()
    world.advance(6001)
    for member in (leader, follower, forgotten):
        member.learn()
    follower.sync()
    forgotten.sync()
    assert not follower.syncing.is_there
    leader.sync({leader.id: b"1", follower.id: b"2"})
    assert [one.syncing.response.assignment for one in (leader, follower, forgotten)] == [b"1", b"2", b""]


def test_the_assignment_is_given_out_when_it_is_committed_not_before(world: World) -> None:
    member = Member(world)
    member.join()
    world.advance(3000)
    member.learn()
    world.log.lags = True
    member.sync({member.id: b"mine"})
    assert not member.syncing.is_there
    world.commit()
    assert member.syncing.response.assignment == b"mine"


def test_who_waits_for_an_assignment_when_another_joins_starts_over(world: World) -> None:
    leader, follower, late = (Member(world, name) for name in ("leader", "follower", "late"))
    for member in (leader, follower):
        member.join()
    world.advance(6001)
    for member in (leader, follower):
        member.learn()
    follower.sync()
    late.join()
    assert follower.syncing.refusal is ErrorCode.REBALANCE_IN_PROGRESS
    for member in (leader, follower):
        member.join()
    finish(leader, follower, late)
    assert late.generation == 2


def test_a_member_that_never_syncs_is_removed_after_the_rebalance_timeout(world: World) -> None:
    leader, silent = Member(world, "leader", rebalance_ms=20_000), Member(world, "silent", rebalance_ms=20_000)
    for member in (leader, silent):
        member.join()
    world.advance(6001)
    for member in (leader, silent):
        member.learn()
    leader.sync({leader.id: b"1", silent.id: b"2"})
    for _ in range(4):
        world.advance(5000)
        leader.heartbeat()
        silent.heartbeat()
    assert silent.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert leader.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_assignment_that_cannot_be_stored_is_asked_for_again(world: World) -> None:
    leader, follower = Member(world, "leader"), Member(world, "follower")
    for member in (leader, follower):
        member.join()
    world.advance(6001)
    for member in (leader, follower):
        member.learn()
    follower.sync()
    world.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert leader.sync({leader.id: b"1"}).refusal is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert follower.syncing.refusal is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert leader.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    world.log.refuses = ErrorCode.NONE
    for member in (leader, follower):
        member.join()
    finish(leader, follower)


def test_an_assignment_that_fits_no_batch_is_refused(world: World) -> None:
    leader = Member(world)
    leader.join()
    world.advance(3000)
    leader.learn()
    assert leader.sync({leader.id: b"x" * 2_000_000}).refusal is ErrorCode.UNKNOWN_SERVER_ERROR
    assert describe(world).group_state == "PreparingRebalance"


def test_another_protocol_than_the_elected_one_is_refused(world: World) -> None:
    member = Member(world)
    stabilize(member)
    assert member.sync(protocol_name="sticky").refusal is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert member.sync(protocol_type="connect").refusal is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (
        world.ask(SyncGroupRequest(group_id="g", generation_id=1, member_id=member.id, assignments=[])).code is ErrorCode.NONE
    )


# Limits.


def test_a_group_takes_no_more_members_than_it_may() -> None:
    world = World(GroupSettings(max_size=2))
    first, second = Member(world, "first"), Member(world, "second")
    stabilize(first, second)
    assert Member(world, "third").send_join().code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert first.heartbeat() is ErrorCode.NONE
    second.leave()
    first.join()
    finish(first)
    assert Member(world, "third").join().is_there is False


def test_a_member_id_that_is_not_used_in_time_is_forgotten(world: World) -> None:
    undecided = Member(world, session_ms=6000)
    undecided.id = undecided.send_join().response.member_id
    world.advance(6000)
    assert undecided.send_join().code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_id_that_is_not_used_holds_up_a_rebalance_no_longer_than_that(world: World) -> None:
    first, undecided = Member(world, "first"), Member(world, "undecided", session_ms=6000)
    stabilize(first)
    undecided.send_join()
    first.join()
    assert not first.joining.is_there
    world.advance(6000)
    assert first.learn().generation_id == 2


def test_old_clients_need_no_member_id_beforehand(world: World) -> None:
    old = Member(world, "old", version=3)
    joining = old.send_join()
    assert not joining.is_there
    world.advance(3000)
    assert joining.response.member_id.startswith("old-")


def test_who_sends_a_second_join_is_not_counted_twice(world: World) -> None:
    member = Member(world)
    first = member.join()
    second = member.send_join()
    assert first.code is ErrorCode.REBALANCE_IN_PROGRESS
    world.advance(3000)
    assert second.response.generation_id == 1


def test_a_group_that_cannot_be_written_down_is_not_there() -> None:
    world = World()
    world.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert Member(world).send_join().code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert describe(world).group_state == "Dead"
