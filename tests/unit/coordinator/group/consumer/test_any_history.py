"""Random histories of a consumer group: members join, leave, crash, lag, change their minds; coordinators move; replicas lose
what was not committed. At no time two live members own a partition; committed offsets do not go back; in the end it settles."""

from __future__ import annotations

import random

import pytest
from unit.coordinator.group.consumer.consumers import Consumer, settle
from unit.coordinator.group.consumer.test_offsets import commit
from unit.coordinator.worlds import World

from pybroker.coordinator.group.shard import TopicsChanged
from pybroker.coordinator.runtime import RequestedOfAll
from pybroker.coordinator.shard import Request
from pybroker.protocol.errors import ErrorCode

STEPS = 150


class History:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World()
        self.world.cluster.add("t", 5)
        self.world.cluster.add("u", 2)
        self.members: list[Consumer] = []
        self.stopped: list[Consumer] = []  # crashed: they own nothing and say nothing
        self.committed: dict[int, int] = {}
        self._names = iter(range(1_000_000))

    def step(self) -> None:
        rng, world = self.rng, self.world
        world.advance(rng.choice((0, 50, 500, 2000, 5000)))
        chance = rng.random()
        if not self.members or (chance < 0.08 and len(self.members) < 6):
            self._join()
        elif chance < 0.12:
            self.members.pop(rng.randrange(len(self.members))).leave()
        elif chance < 0.16:
            gone = self.members.pop(rng.randrange(len(self.members)))
            gone.owned.clear()
            self.stopped.append(gone)
        elif chance < 0.20:
            rng.choice(self.members).subscribe(*rng.sample(("t", "u"), rng.randint(1, 2)))
        elif chance < 0.23:
            self._grow()
        elif chance < 0.27:
            world.begin()
        elif chance < 0.32:
            member = rng.choice(self.members)
            member.gives_up = not member.gives_up
            if member.gives_up:
                member.owned &= member.assigned
        elif chance < 0.36:
            rng.choice(self.members).send()  # the answer is lost
        elif chance < 0.5:
            self._commit()
        else:
            rng.choice(self.members).heartbeat()
        self.check()

    def _join(self) -> None:
        topics = self.rng.sample(("t", "u"), self.rng.randint(1, 2))
        regex = self.rng.choice((None, None, "t|u"))
        member = Consumer(self.world, f"m{next(self._names)}", topics=None if regex else topics, regex=regex)
        member.assignor = self.rng.choice((None, "range", "uniform"))
        self.members.append(member)
        member.heartbeat()

    def _grow(self) -> None:
        topic = self.world.cluster.topic(self.rng.choice(("t", "u")))
        assert topic is not None
        if topic.partitions < 9:
            self.world.cluster.add(topic.name, topic.partitions + 1)
            self.world.run(RequestedOfAll(Request(TopicsChanged((topic.name,), False))))

    def _commit(self) -> None:
        member = self.rng.choice(self.members)
        mine = sorted(partition for name, partition in member.owned & member.assigned if name == "t")
        if mine and member.epoch > 0:
            partition = self.rng.choice(mine)
            offset = self.committed.get(partition, 0) + 1
            if commit(member, partition, offset) == ErrorCode.NONE:
                self.committed[partition] = offset

    def check(self) -> None:
        group = self.world.shard.groups.get("g")
        known = {} if group is None else group.members
        owners: dict[tuple[str, int], str] = {}
        for member in self.members:
            if member.member_id not in known or known[member.member_id].epoch < 0:
                continue  # it was removed and will hear of it: its session, or its time to give up, is over
            for place in member.owned:
                assert place not in owners, f"{place} is owned by {owners[place]} and by {member.member_id}"
                owners[place] = member.member_id
        for partition, offset in self.committed.items():
            stored = self.world.shard.committed.get("g", "t", partition)
            assert stored is not None
            assert stored.offset == offset

    def heal(self) -> None:
        self.world.advance(46_000)  # all sessions are over
        for member in self.members:
            member.gives_up = True
            member.owned.clear()
            member.epoch = 0
        if not self.members:
            self._join()
        for member in self.members:
            assert member.heartbeat() == ErrorCode.NONE
        settle(*self.members, rounds=60)
        self.check()
        has = set().union(*(member.owned for member in self.members))
        for name, topic in self.world.cluster.topics.items():
            if any(member.regex or name in (member.topics or ()) for member in self.members):
                assert {partition for one, partition in has if one == name} == set(range(topic.partitions))


@pytest.mark.parametrize("seed", range(60))
def test_one_owner_no_lost_commit_and_it_settles(seed: int) -> None:
    history = History(seed)
    for _ in range(STEPS):
        history.step()
    history.heal()
