"""The coordinator moves: another broker replays the log and goes on, and members hardly notice."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from unit.coordinator.group.members import Member, commit, committed, describe, finish, send_commit, stabilize
from unit.coordinator.worlds import Answer, World

from pybroker.coordinator.group.settings import GroupSettings
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.groups import HeartbeatRequest, LeaveGroupRequest, ListGroupsRequest, MemberIdentity


def test_a_stable_group_goes_on_in_its_generation() -> None:
    world = World()
    first, second = Member(world, "first"), Member(world, "second")
    stabilize(first, second)
    first.commit(5)
    before = describe(world)
    world.begin()
    assert describe(world) == before
    assert first.heartbeat() is second.heartbeat() is ErrorCode.NONE
    assert second.sync().response.assignment == b"share of second"
    assert committed(world) == 5


def test_everybody_gets_a_whole_session_to_be_heard_of() -> None:
    world = World()
    member = Member(world)
    stabilize(member)
    world.advance(9000)
    world.begin()
    world.advance(9000)
    assert member.heartbeat() is ErrorCode.NONE
    world.advance(10_000)
    assert member.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_under_way_is_lost_and_members_find_their_old_generation() -> None:
    world = World()
    first, second = Member(world, "first"), Member(world, "second")
    stabilize(first)
    second.join()
    world.resign()
    assert second.joining.refusal is ErrorCode.NOT_COORDINATOR
    world.begin()
    assert first.heartbeat() is ErrorCode.NONE
    assert second.send_join().code is ErrorCode.UNKNOWN_MEMBER_ID
    second.id = ""
    second.join()
    first.join()
    finish(first, second)
    assert first.generation == 2


def test_a_member_that_a_rebalance_was_completed_for_does_not_lose_its_place_to_its_old_session() -> None:
    """After a load all sessions end in the same millisecond. The first of them, the dead leader's, completes the rebalance."""
    world = World()
    first, second = Member(world, "first"), Member(world, "second")
    stabilize(first, second)
    world.begin()
    second.topics = ("t", "u")
    second.join()
    assert not second.joining.is_there, "it waits for the leader to join again"
    world.advance(10_000)
    assert second.learn().generation_id == 2
    assert second.heartbeat() is ErrorCode.NONE
    assert second.sync({second.id: b"all"}).response.assignment == b"all"


def test_an_assignment_that_was_not_committed_was_never_given_out_and_never_was() -> None:
    world = World()
    member = Member(world)
    member.join()
    world.advance(3000)
    member.learn()
    world.log.lags = True
    member.sync({member.id: b"lost"})
    world.resign()
    assert member.syncing.refusal is ErrorCode.NOT_COORDINATOR
    world.log.lags = False
    world.log.truncate_to_committed()
    world.begin()
    assert describe(world).group_state == "Empty"
    assert member.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_that_is_too_large_for_the_new_limit_rebalances_and_turns_the_last_ones_away() -> None:
    world = World()
    members = [Member(world, f"m{number}") for number in range(3)]
    stabilize(*members)
    world.settings = GroupSettings(max_size=2)
    world.begin()
    assert members[0].heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    members[0].join()
    members[1].join()
    assert members[2].join().code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert members[0].learn().generation_id == 2
    assert len(members[0].joining.response.members) == 2


class Checker:
    """What must hold whatever happens: a generation has one assignment, and nobody else's share; what a client was told is
    committed stays committed."""

    def __init__(self) -> None:
        self.shares: dict[tuple[int, str], bytes] = {}
        self.owners: dict[tuple[int, bytes], str] = {}
        self.commits: list[tuple[int, Answer]] = []  # every one is of a higher offset

    def assigned(self, member: Member) -> None:
        share = member.syncing.response.assignment
        if not share:
            return
        # A static member stays itself through its restarts.
        who = member.instance or member.id
        assert self.shares.setdefault((member.generation, who), share) == share
        assert self.owners.setdefault((member.generation, share), who) == who

    def check_offsets(self, world: World) -> None:
        """Nothing that a client was told is committed is lost."""
        acknowledged = [offset for offset, answer in self.commits if answer.is_there and answer.refusal is None]
        stored = world.shard.committed.get("g", "t", 0)
        assert (-1 if stored is None else stored.offset) >= max(acknowledged, default=-1)


class SimulatedMember(Member):
    """Does what a client library does, one step at a time."""

    def __init__(self, world: World, name: str, checker: Checker, **options: Any) -> None:
        super().__init__(world, name, **options)
        self.checker = checker
        self.state = "out"
        self.last_commit = -1

    def step(self, offset: int) -> None:
        getattr(self, f"_{self.state}")(offset)

    def _rejoin(self, code: ErrorCode) -> None:
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.id = ""
        self.state = "out"

    def _out(self, offset: int) -> None:
        self.join()
        self.state = "joining"

    def _joining(self, offset: int) -> None:
        if not self.joining.is_there:
            return
        code = self.joining.code
        if code is not ErrorCode.NONE:
            self._rejoin(code)
            return
        response = self.learn()
        shares = {member.member_id: f"{number}".encode() for number, member in enumerate(response.members)}
        self.sync(None if response.skip_assignment or not self.leads else shares)
        self.state = "syncing"

    def _syncing(self, offset: int) -> None:
        if not self.syncing.is_there:
            return
        if self.syncing.code is not ErrorCode.NONE:
            self._rejoin(self.syncing.code)
            return
        self.checker.assigned(self)
        self.state = "stable"

    def _stable(self, offset: int) -> None:
        message = HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.id, group_instance_id=self.instance
        )
        beating = self.world.ask(message)
        if not beating.is_there:
            return
        code = beating.code
        if code is ErrorCode.NONE:
            sent = send_commit(self.world, offset, member_id=self.id, generation=self.generation, instance=self.instance)
            if not (sent.is_there and (sent.refusal or sent.response.topics[0].partitions[0].error_code)):
                self.checker.commits.append((offset, sent))
        elif code not in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            self._rejoin(code)


@pytest.mark.parametrize("seed", range(25))
def test_whatever_happens_there_is_one_owner_per_generation_and_in_the_end_the_group_is_stable(seed: int) -> None:
    draw = random.Random(seed)
    world = World(GroupSettings(initial_rebalance_delay_ms=draw.choice((0, 3000))))
    checker = Checker()
    static = draw.random() < 0.4
    members: list[SimulatedMember] = []
    numbers = itertools.count()

    def new_member(number: int) -> SimulatedMember:
        instance = f"i{number}" if static else None
        return SimulatedMember(world, f"m{number}", checker, instance=instance, rebalance_ms=draw.choice((6000, 60_000)))

    fault_rate = draw.choice((0.0, 0.02, 0.1))
    for step in range(draw.randrange(100, 400)):
        chance = draw.random()
        if chance < 0.05 and len(members) < 5:
            members.append(new_member(next(numbers)))
        elif chance < 0.05 + fault_rate and members:
            victim = draw.randrange(len(members))
            fault = draw.choice(("crash", "leave", "move", "refuse", "restart", "lag", "catch up", "fail"))
            if fault == "crash":
                members.pop(victim)
            elif fault == "leave":
                gone = members.pop(victim)
                identity = MemberIdentity(member_id=gone.id, group_instance_id=gone.instance)
                world.ask(LeaveGroupRequest(group_id="g", members=[identity]))
            elif fault == "move":
                world.resign()
                world.log.truncate_to_committed()
                world.begin()
                checker.check_offsets(world)
            elif fault == "lag":
                world.log.lags = True
            elif fault == "catch up":
                world.log.lags = False
                world.commit()
            elif fault == "fail":
                world.log.fails = ErrorCode.KAFKA_STORAGE_ERROR
            elif fault == "refuse":
                world.log.refuses = draw.choice((ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS))
            else:
                members[victim] = new_member(int(members[victim].name[1:]))
        for member in draw.sample(members, len(members)):
            member.step(step)
        world.advance(draw.randrange(3000))
        world.log.fails = ErrorCode.NONE
    # Heal.
    world.log.refuses = ErrorCode.NONE
    world.log.lags = False
    world.commit()
    checker.check_offsets(world)
    if not members:
        members.append(new_member(next(numbers)))
    for step in range(400):
        for member in members:
            member.step(1000 + step)
        world.advance(1000)
    assert {member.state for member in members} == {"stable"}
    described = describe(world)
    assert described.group_state == "Stable"
    assert {member.member_id for member in described.members} == {member.id for member in members}
    assert committed(world) == 1399


def test_many_groups_are_found_again_after_a_move() -> None:
    world = World()
    for number in range(50):
        commit(world, number, group=f"g{number}")
    world.begin()
    assert [committed(world, f"g{number}") for number in range(50)] == list(range(50))
    assert len(world.ask(ListGroupsRequest()).response.groups) == 50
