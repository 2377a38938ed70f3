"""The assignors: everything is assigned, once, evenly, and nobody loses what another does not need."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from pybroker.base.ids import Uuid
from pybroker.coordinator.group.consumer.assignors import Assignment, MemberSpec, assign_range, assign_uniform


def topic(number: int) -> Uuid:
    return Uuid(bytes(15) + bytes([number]))


A, B, C = topic(1), topic(2), topic(3)


def owners(assignment: Mapping[str, Assignment]) -> dict[tuple[Uuid, int], str]:
    """Each partition has one."""
    out: dict[tuple[Uuid, int], str] = {}
    for member, topics in assignment.items():
        for name, partitions in topics.items():
            for partition in partitions:
                assert (name, partition) not in out
                out[name, partition] = member
    return out


def test_range_gives_the_same_number_of_every_topic_to_one_member() -> None:
    members = {name: MemberSpec(None, frozenset((A, B))) for name in ("m1", "m2")}
    assignment = assign_range(members, {A: 3, B: 3}, True)
    assert assignment == {"m1": {A: {0, 1}, B: {0, 1}}, "m2": {A: {2}, B: {2}}}


def test_range_keeps_the_place_of_a_static_member_whatever_its_id() -> None:
    before = {"x": MemberSpec("i1", frozenset((A,))), "b": MemberSpec("i2", frozenset((A,)))}
    after = {"a": MemberSpec("i2", frozenset((A,))), "z": MemberSpec("i1", frozenset((A,)))}
    assert assign_range(before, {A: 3}, True)["x"] == assign_range(after, {A: 3}, True)["z"]


def test_uniform_keeps_what_fits() -> None:
    members = {"m1": MemberSpec(None, frozenset((A,)), {A: (0, 1, 2, 3)}), "m2": MemberSpec(None, frozenset((A,)))}
    assignment = assign_uniform(members, {A: 4}, True)
    assert assignment == {"m1": {A: {0, 1}}, "m2": {A: {2, 3}}}


def test_nobody_reads_anything() -> None:
    assert assign_uniform({"m": MemberSpec(None, frozenset())}, {}, True) == {}
    assert assign_uniform({}, {}, True) == {}


@pytest.mark.parametrize("seed", range(40))
def test_any_group(seed: int) -> None:
    rng = random.Random(seed)
    counts = {one: rng.randint(1, 9) for one in (A, B, C)}
    same = rng.random() < 0.5
    members: dict[str, MemberSpec] = {}
    assignment: Mapping[str, Assignment] = {}
    for step in range(6):
        if step and rng.random() < 0.3:
            members.pop(rng.choice(sorted(members)))
        topics = frozenset(counts) if same else frozenset(rng.sample(sorted(counts), rng.randint(1, 3)))
        members[f"m{step}"] = MemberSpec(None, topics)
        members = {one: spec._replace(assigned=assignment.get(one, {})) for one, spec in members.items()}
        read = {one: counts[one] for spec in members.values() for one in spec.topics}
        before = owners({one: spec.assigned for one, spec in members.items()})
        assignment = assign_uniform(members, read, same)
        now = owners(assignment)
        assert now.keys() == {(one, partition) for one, count in read.items() for partition in range(count)}
        assert all(one in members[member].topics for (one, _), member in now.items())
        loads = {one: sum(map(len, assignment.get(one, {}).values())) for one in members}
        for (one, _), member in now.items():
            readers = [other for other, spec in members.items() if one in spec.topics]
            assert loads[member] - min(loads[other] for other in readers) <= 1, "another could have taken it"
        if same and step == 0:
            assert not before
