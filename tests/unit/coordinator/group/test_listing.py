from __future__ import annotations

from unit.coordinator.group.members import Member, commit, describe, stabilize
from unit.coordinator.worlds import World

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.groups import DescribeGroupsRequest, ListGroupsRequest


def listed(world: World, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> dict[str, tuple[str, str, str]]:
    message = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    response = world.ask(message).response
    return {row.group_id: (row.group_state, row.group_type, row.protocol_type) for row in response.groups}


def test_groups_are_listed_by_state_and_type_in_any_case() -> None:
    world = World()
    commit(world, 1, group="simple")
    stabilize(Member(world, group="stable"))
    Member(world, group="new").join()
    assert listed(world) == {
        "simple": ("Empty", "classic", ""),
        "stable": ("Stable", "classic", "consumer"),
        "new": ("PreparingRebalance", "classic", "consumer"),
    }
    assert set(listed(world, ("sTABLE", " empty "))) == {"stable", "simple"}
    assert set(listed(world, ("Dead",))) == set()
    assert set(listed(world, (), ("Classic",))) == {"simple", "stable", "new"}
    assert set(listed(world, (), ("consumer",))) == set()
    assert set(listed(world, ("Empty",), ("classic",))) == {"simple"}


def test_a_described_member_shows_what_it_said_and_what_it_got_once_the_group_is_stable() -> None:
    world = World()
    member = Member(world, "client", instance="i")
    member.join()
    (before,) = describe(world).members
    assert (before.member_metadata, before.member_assignment) == (b"", b"")
    world.advance(3000)
    member.learn()
    member.sync({member.id: b"mine"})
    (after,) = describe(world).members
    assert (after.client_id, after.client_host, after.group_instance_id) == ("client", "/127.0.0.1", "i")
    assert after.member_assignment == b"mine"
    assert after.member_metadata.startswith(b"\0\0")


def test_a_group_that_is_not_there_is_dead_and_an_error_in_new_versions() -> None:
    world = World()
    for version, code in ((5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)):
        (row,) = world.ask(DescribeGroupsRequest(groups=["nobody"]), version).response.groups
        assert (row.group_state, row.error_code) == ("Dead", code)
