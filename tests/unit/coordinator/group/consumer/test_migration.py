"""Groups that change their type under their members: a rolling upgrade to the consumer protocol, and the way back."""

from __future__ import annotations

import pytest
from unit.coordinator.group.consumer.consumers import Consumer, describe, settle
from unit.coordinator.group.members import Member, stabilize
from unit.coordinator.worlds import World

from pybroker.coordinator.group.settings import GroupSettings
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from pybroker.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
)


def cluster(**settings: bool) -> World:
    world = World(GroupSettings(**settings))  # type: ignore[arg-type]
    world.cluster.add("t", 4)
    return world


@pytest.fixture
def world() -> World:
    return cluster()


def encoded(*partitions: int) -> bytes:
    rows = [ConsumerProtocolAssignmentTopicPartition(topic="t", partitions=list(partitions))]
    return b"\0\1" + ConsumerProtocolAssignment(assigned_partitions=rows).encode(1)


class ClassicConsumer:
    """A classic, cooperative consumer that is given what it is to have by a coordinator of either kind."""

    def __init__(self, world: World, member_id: str = "", *, instance: str | None = None, owned: tuple[int, ...] = ()) -> None:
        self.world = world
        self.member_id = member_id
        self.instance = instance
        self.generation = -1
        self.owned = owned

    def join(self) -> ErrorCode:
        rows = [ConsumerProtocolSubscriptionTopicPartition(topic="t", partitions=list(self.owned))] if self.owned else []
        metadata = b"\0\1" + ConsumerProtocolSubscription(topics=["t"], owned_partitions=rows).encode(1)
        answer = self.world.ask(
            JoinGroupRequest(
                group_id="g",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=30_000,
                member_id=self.member_id,
                group_instance_id=self.instance,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
            ),
            9,
        )
        if answer.code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = answer.response.member_id
            self.generation = answer.response.generation_id
        return answer.code

    def sync(self) -> ErrorCode:
        answer = self.world.ask(
            SyncGroupRequest(
                group_id="g",
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[],
            ),
            5,
        )
        if answer.refusal is None and not answer.code:
            assignment, _ = ConsumerProtocolAssignment.decode_from(1, answer.response.assignment, 2)
            self.owned = tuple(one for row in assignment.assigned_partitions for one in row.partitions)
        return answer.code

    def heartbeat(self) -> ErrorCode:
        return self.world.ask(
            HeartbeatRequest(
                group_id="g", generation_id=self.generation, member_id=self.member_id, group_instance_id=self.instance
            ),
            4,
        ).code

    def follow(self) -> None:
        """Do as the coordinator says, until it says nothing."""
        for _ in range(10):
            code = self.heartbeat() if self.generation >= 0 else ErrorCode.REBALANCE_IN_PROGRESS
            if not code:
                return
            assert code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION), code
            assert self.join() in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)
            if self.generation >= 0:
                self.sync()
        raise AssertionError("it is told to join again and again")


def alone(world: World, name: str) -> Member:
    """The one member of a stable classic group."""
    member = Member(world, name)
    member.join()
    world.advance(6001)
    member.learn()
    member.sync({member.id: encoded(0, 1, 2, 3)})
    return member


def upgraded(world: World) -> tuple[ClassicConsumer, Consumer]:
    """A stable classic group of one that a consumer of the new protocol has joined."""
    former = alone(world, "old")
    old = ClassicConsumer(world, former.id, owned=(0, 1, 2, 3))
    old.generation = former.generation
    return old, Consumer(world, "new")


def test_a_rolling_upgrade_moves_partition_by_partition(world: World) -> None:
    old, new = upgraded(world)
    generation = old.generation
    assert new.heartbeat() == ErrorCode.NONE
    assert new.owned == set(), "all is still the classic member's"
    assert describe(new).group_epoch == generation + 1
    assert {member.member_type for member in describe(new).members} == {0, 1}
    assert old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    old.follow()
    assert len(old.owned) == 2
    settle(new)
    assert {partition for _, partition in new.owned} == set(range(4)) - set(old.owned)
    world.begin()
    assert old.heartbeat() == ErrorCode.NONE
    assert new.heartbeat() == ErrorCode.NONE


def test_the_last_classic_member_leaves_and_the_group_stays_one_of_consumers(world: World) -> None:
    old, new = upgraded(world)
    new.heartbeat()
    old.follow()
    answer = world.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=old.member_id)]), 5)
    assert [row.error_code for row in answer.response.members] == [ErrorCode.NONE]
    settle(new)
    assert len(new.owned) == 4


def test_the_last_consumer_leaves_and_the_group_is_classic_again(world: World) -> None:
    old, new = upgraded(world)
    new.heartbeat()
    old.follow()
    settle(new)
    assert new.leave() == ErrorCode.NONE
    world.advance(1)
    assert world.shard.groups["g"].type == "classic"
    assert world.shard.groups["g"].state_name == "PreparingRebalance"
    assert old.heartbeat() in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
    world.begin()
    assert world.shard.groups["g"].type == "classic"
    assert world.shard.groups["g"].members.keys() == {old.member_id}


def test_a_group_that_is_classic_for_a_moment_gives_nothing_away_that_somebody_still_holds(world: World) -> None:
    old, new = upgraded(world)
    new.heartbeat()
    assert old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "it is to give half of it up, and has not yet"
    assert new.leave() == ErrorCode.NONE
    world.advance(1)
    assert world.shard.groups["g"].type == "classic"
    another = Consumer(world, "another")
    another.heartbeat()
    another.heartbeat()
    assert another.owned == set(), "all is still the classic member's"
    old.follow()
    settle(another)
    assert {partition for _, partition in another.owned} == set(range(4)) - set(old.owned)


def test_a_silent_classic_member_is_removed_after_its_own_session(world: World) -> None:
    old, new = upgraded(world)
    new.heartbeat()
    world.advance(10_000)
    settle(new)
    assert len(new.owned) == 4
    assert old.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_that_is_told_to_join_and_does_not_is_removed(world: World) -> None:
    old, new = upgraded(world)
    new.heartbeat()
    for _ in range(15):
        assert old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        world.advance(4000)
        new.heartbeat()
    assert old.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("parks_a_sync", [False, True])
def test_a_consumer_that_is_refused_leaves_the_rebalance_of_a_classic_group_alone(world: World, parks_a_sync: bool) -> None:
    leader, waiting = alone(world, "leader"), Member(world, "waiting")
    parked = waiting.join()
    if parks_a_sync:
        leader.join()
        leader.learn()
        waiting.learn()
        parked = waiting.sync()
    assert not parked.is_there
    assert Consumer(world, "new", topics=None, regex="(").heartbeat() == ErrorCode.INVALID_REGULAR_EXPRESSION
    world.settings.consumer_max_size = 2
    assert Consumer(world, "new").heartbeat() == ErrorCode.GROUP_MAX_SIZE_REACHED
    if not parks_a_sync:
        assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        leader.join()
        leader.learn()
        waiting.learn()
        parked = waiting.sync()
    leader.sync({leader.id: b"one", waiting.id: b"other"})
    assert parked.response.assignment == b"other"


def test_an_upgrade_that_cannot_be_written_leaves_the_rebalance_of_a_classic_group_alone(world: World) -> None:
    alone(world, "leader")
    waiting, new = Member(world, "waiting"), Consumer(world, "new")
    waiting.join()
    world.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert new.heartbeat() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not waiting.joining.is_there
    world.log.refuses = ErrorCode.NONE
    assert new.heartbeat() == ErrorCode.NONE
    assert waiting.joining.code is ErrorCode.REBALANCE_IN_PROGRESS


def test_who_is_refused_again_and_again_keeps_no_dead_member_of_a_classic_group_alive(world: World) -> None:
    old, _ = upgraded(world)
    for _ in range(11):
        assert Consumer(world, "new", topics=None, regex="(").heartbeat() == ErrorCode.INVALID_REGULAR_EXPRESSION
        world.advance(1000)
    assert old.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_whose_joining_cannot_be_written_has_no_more_time_to_join(world: World) -> None:
    old, new = upgraded(world)
    new.heartbeat()
    assert old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(59):
        world.advance(1000)
        new.heartbeat()
        assert old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    world.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert old.join() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.refuses = ErrorCode.NONE
    old.heartbeat()
    world.advance(1000)
    assert old.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID, "a minute ago it was told"
    settle(new)
    assert len(new.owned) == 4


def test_migration_that_is_off() -> None:
    world = cluster(can_upgrade=False, can_downgrade=False)
    _, new = upgraded(world)
    answer = new.send()
    assert answer.code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "online upgrade is disabled" in answer.response.error_message
    other = cluster(can_upgrade=False, can_downgrade=False)
    settle(Consumer(other, "new"))
    assert ClassicConsumer(other).join() == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_group_of_another_protocol_type_is_not_for_consumers(world: World) -> None:
    worker = Member(world, "worker", protocol_type="connect")
    stabilize(worker)
    assert Consumer(world, "new").send().code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_static_member_goes_back_to_the_classic_protocol_and_keeps_its_share(world: World) -> None:
    new = Consumer(world, "new", instance="i1")
    settle(new)
    old = ClassicConsumer(world, instance="i2")
    for _ in range(6):
        old.follow()
        world.advance(1000)
        new.heartbeat()
    assert len(old.owned) == 2
    back = ClassicConsumer(world, instance="i1")
    assert back.join() == ErrorCode.NONE
    group = world.shard.groups["g"]
    assert group.type == "classic"
    assert group.state_name == "Stable"
    assert back.sync() == ErrorCode.NONE
    assert set(back.owned) | set(old.owned) == set(range(4))
    assert old.heartbeat() == ErrorCode.NONE, "nobody else is disturbed"
