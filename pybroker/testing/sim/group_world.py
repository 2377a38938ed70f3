"""A run at the level of groups: members of both protocols, on coordinators that move, from one seed. Topics come, grow, go and
come again as others.

What holds all the time: in the log nobody commits without the right to, and no partition belongs to two members; no two members
ever hold a partition by the same generation, and no two that the log knows hold it at the same time; an acknowledged commit is
in the log, and what is fetched is what the log says. In the end every group settles, with every partition held once, the
coordinator's shard is what a replay of its log gives and knows no offset of a topic that is gone, and every request that
reached a broker which is still up has been answered.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.coordinator.group.records import GROUP_RECORD_TYPES
from pybroker.coordinator.group.shard import GroupShard
from pybroker.coordinator.records import decode_record
from pybroker.log.files import TopicPartition
from pybroker.metadata.internal_topics import OFFSETS_TOPIC
from pybroker.protocol.internal import consumer_group_records, consumer_offsets
from pybroker.protocol.messages import consumer_groups, topics
from pybroker.protocol.records.batch import RecordBatch
from pybroker.testing.sim.broker_world import SECOND_US
from pybroker.testing.sim.coordinator_world import CoordinatorWorld
from pybroker.testing.sim.faults import Happenings
from pybroker.testing.sim.group_members import (
    CLASSIC,
    CONSUMER,
    Claim,
    ClassicMember,
    ConsumerMember,
    GroupMember,
    Subscription,
    fetch_offset,
)
from pybroker.testing.sim.raft_checks import InvariantError
from pybroker.testing.sim.replays import check_group_replay
from pybroker.testing.sim.trace import Trace, brief

LINGER_MS: Final = "group.coordinator.append.linger.ms"
MIXED: Final = "mixed"
NO_OFFSET: Final = -1
SETTLE_US: Final = 4 * SECOND_US
REGEX: Final = "t.*|u"
DELETED: Final = "u"  # and created again
MORE_TOPICS: Final = ("t2", "t3")
MAX_PARTITIONS: Final = 6


class Reading(NamedTuple):
    """An OffsetFetch under way: how much was committed when it went out, and to whom."""

    end: int
    leader: int
    leader_epoch: int


class GroupTruth:
    """A group, as the committed log has it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.generation: int | None = None  # of a classic group; None: it is none
        self.held: dict[str, frozenset[tuple[Uuid, int]]] = {}  # by the members of a consumer group, also what they give up
        # What a member has held since it came to its epoch, and that: a commit which is under way while it gives a partition
        # up may come late, and its epoch, all that a coordinator goes by, is the same until it has given up everything.
        self.held_in_epoch: dict[str, tuple[int, frozenset[tuple[Uuid, int]]]] = {}
        self._expelled: set[str] = set()
        # Those that came back, under the same id, and were not told yet what they have: one that never heard that its session
        # was over believes it has what it had. JoinGroup takes it as it is, here and in Apache Kafka, for in a consumer group
        # an id that was just given out is as unknown.
        self.returned: set[str] = set()
        self.is_consumer = False
        # (offset in the log, committed offset) by partition; NO_OFFSET where it was deleted
        self.offsets: dict[tuple[str, int], list[tuple[int, int]]] = {}

    def take_assignment(
        self, member_id: str, value: consumer_group_records.ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        if value is None:
            self.held.pop(member_id, None)
            self.held_in_epoch.pop(member_id, None)
            self._expelled.add(member_id)
            return
        if member_id in self._expelled:
            self._expelled.discard(member_id)
            self.returned.add(member_id)
        topics = [*value.assigned_partitions, *value.partitions_pending_revocation]
        held = frozenset((topic.topic_id, index) for topic in topics for index in topic.partitions)
        self.held[member_id] = held
        epoch, before = self.held_in_epoch.get(member_id, (-1, held))
        self.held_in_epoch[member_id] = (value.member_epoch, held | before if epoch == value.member_epoch else held)

    def check_disjoint(self) -> None:
        owners: dict[tuple[Uuid, int], str] = {}
        for member_id, held in sorted(self.held.items()):
            for one in sorted(held):
                other = owners.setdefault(one, member_id)
                if other != member_id:
                    raise InvariantError(f"{self.name}: partition {one[1]} belongs to {member_id} and to {other} in the log")


class GroupWorld(CoordinatorWorld):
    def __init__(self, seed: int, *, swarm: bool = False, trace: Trace | None = None) -> None:
        super().__init__(seed, swarm=swarm, trace=trace)
        random = self.random
        data = {"t": random.choice((1, 3, 5)), "u": random.choice((1, 2))}
        self.topics: dict[str, int] = {OFFSETS_TOPIC: random.choice((1, 1, 2)), **data}
        self.broker_config = random.choice(("", "", f"{LINGER_MS}=0\n", f"{LINGER_MS}=7\n"))
        self.groups: dict[str, GroupTruth] = {}
        self.kinds: dict[str, str] = {}  # of groups; only classic ones count their generations without end
        self.cooperative: set[str] = set()
        self.held: dict[tuple[str, int, str, int], str] = {}  # group, generation, partition: who holds it
        self.facts |= dict.fromkeys(("commits", "fetches", "generations", "topics"), 0)
        self.unread: set[tuple[str, str, int]] = set()  # what is still to be fetched in the end
        self.topic_changes = 0
        self._names: dict[Uuid, str] = {}  # of all topics that ever were
        self._newest: dict[str, Uuid] = {}
        self._is_quiet = False  # every broker knows all there is to know
        self._committed_for: dict[int, Uuid] = {}  # topics by value
        self._values = 0
        for number in range(random.choice((1, 2, 3))):
            self._add_group(f"g{number}", list(data))

    def _add_group(self, group: str, topics: Sequence[str]) -> None:
        random = self.random
        kind = random.choice((CLASSIC, CLASSIC, CONSUMER, CONSUMER, MIXED))
        self.kinds[group] = kind
        subscription = Subscription(
            random.choice((topics, topics[:1])),
            REGEX if kind == CONSUMER and random.random() < 0.4 else "",
            is_cooperative=random.random() < 0.5,
        )
        if subscription.is_cooperative:
            self.cooperative.add(group)
        commit_ms = random.choice((30, 150))
        for place in range(random.choice((1, 2, 3, 4))):
            own = random.choice((CLASSIC, CONSUMER)) if kind == MIXED else kind
            instance = f"{group}-i{place}" if random.random() < 0.3 else None
            new = ClassicMember if own == CLASSIC else ConsumerMember
            self.add_client(new(self, self, len(self.clients), group, subscription, instance, commit_ms))

    @property
    def members(self) -> list[GroupMember]:
        return [one for one in self.clients if isinstance(one, GroupMember)]

    # What a GroupSetting has.

    def topic_id_of(self, topic: str) -> Uuid:
        self._learn_topics()
        return self._newest[topic]

    def topic_of(self, topic_id: Uuid) -> str:
        self._learn_topics()
        return self._names[topic_id]

    def partitions_of(self, topic: str) -> int:
        return self.topics.get(topic, 0)

    def _learn_topics(self) -> None:
        for topic in self.controller.controller.image.topics.values():
            self._names[topic.topic_id] = topic.name
            self._newest[topic.name] = topic.topic_id

    def next_value(self) -> int:
        self._values += 1
        return self._values

    def truth_of(self, group: str) -> GroupTruth:
        if group not in self.groups:
            self.groups[group] = GroupTruth(group)
        return self.groups[group]

    def owns(self, member: GroupMember) -> None:
        if self.kinds[member.group] == CLASSIC:
            for topic, partition, _ in sorted(member.owned):
                other = self.held.setdefault((member.group, member.epoch, topic, partition), member.identity)
                if other != member.identity:
                    raise InvariantError(
                        f"{member.group}: {topic}-{partition} is held by {member.identity} and by {other} in generation "
                        f"{member.epoch}"
                    )
        self.truth_of(member.group).returned.discard(member.member_id)
        self._check_holders(member.group)

    def _check_holders(self, group: str) -> None:
        """Of those that the log knows as members of a consumer group."""
        truth = self.truth_of(group)
        owners: dict[tuple[Uuid, int], str] = {}
        for member in self.members:
            is_told = member.member_id in truth.held and member.member_id not in truth.returned
            if member.group == group and member.is_up and is_told:
                for one in sorted(member.owned):
                    other = owners.setdefault((one.topic_id, one.partition), member.member_id)
                    if other != member.member_id:
                        raise InvariantError(f"{group}: {one} is held by {member.member_id} and by {other} at the same time")

    def commit_acknowledged(self, group: str, topic: str, partition: int, value: int) -> None:
        self.facts["commits"] += 1
        history = self.truth_of(group).offsets.get((topic, partition), [])
        if not any(value == one for _, one in history):
            raise InvariantError(f"{group}: {value} was acknowledged for {topic}-{partition}, and is not committed")

    def reading(self, group: str, leader: int) -> Reading:
        index = self._index_of(group)
        truth = self.truth.get(TopicPartition(OFFSETS_TOPIC, index))
        state = self.state_of(OFFSETS_TOPIC, index)
        epoch = state.leader_epoch if state is not None and state.leader == leader else -1
        return Reading(0 if truth is None else truth.end, leader, epoch)

    def fetched(self, began: Reading, group: str, topic: str, partition: int, value: int) -> None:
        self.facts["fetches"] += 1
        history = self.truth_of(group).offsets.get((topic, partition), [])
        now = self.reading(group, began.leader)
        if began.leader_epoch < 0 or began.leader_epoch != now.leader_epoch:
            # A coordinator that is none any more and does not know it says what it knows.
            possible = [NO_OFFSET] + [one for _, one in history]
        else:
            place = bisect_left(history, (began.end, 0))
            possible = [one for _, one in history[max(0, place - 1) :]]
            if not place or topic == DELETED:
                possible.append(NO_OFFSET)
        if value not in possible:
            raise InvariantError(f"{group}: {value} was fetched for {topic}-{partition}; the log says {possible[:5]}")
        if self._is_quiet and value != NO_OFFSET and self._committed_for[value] != self.topic_id_of(topic):
            raise InvariantError(f"{group}: {value} was fetched for {topic}-{partition}, of a topic that is gone")
        self.unread.discard((group, topic, partition))

    def _index_of(self, group: str) -> int:
        return self.clients[0].index_of(OFFSETS_TOPIC, group)

    # The log.

    def committed(self, name: TopicPartition, batch: RecordBatch) -> None:
        if name.topic != OFFSETS_TOPIC or batch.is_control:
            return
        touched: dict[str, GroupTruth] = {}
        for row in batch.records():
            record = decode_record(GROUP_RECORD_TYPES, row.key, row.value)
            assert record is not None, row
            key: Any = record.key
            value: Any = record.value
            group = self.truth_of(getattr(key, "group", None) or key.group_id)
            match key:
                case consumer_offsets.OffsetCommitKey():
                    committed = NO_OFFSET
                    if value is not None:
                        self._check_claim(group, key, value)
                        committed = value.offset
                        self._committed_for[committed] = value.topic_id
                    elif key.topic != DELETED:
                        raise InvariantError(f"{group.name}: the offset of {key.topic}-{key.partition} is deleted")
                    group.offsets.setdefault((key.topic, key.partition), []).append((row.offset, committed))
                case consumer_offsets.GroupMetadataKey():
                    self._take_generation(group, value)
                case consumer_group_records.ConsumerGroupMetadataKey():
                    group.is_consumer = value is not None
                case consumer_group_records.ConsumerGroupCurrentMemberAssignmentKey():
                    touched[group.name] = group
                    group.take_assignment(key.member_id, value)
        for group in touched.values():
            group.check_disjoint()

    def _take_generation(self, group: GroupTruth, value: Any) -> None:
        if value is None:
            group.generation = None
            return
        if group.generation is not None and value.generation < group.generation:
            raise InvariantError(f"{group.name}: generation {value.generation} follows {group.generation}")
        self.facts["generations"] += value.generation != group.generation
        group.generation = value.generation

    def _check_claim(self, group: GroupTruth, key: Any, value: Any) -> None:
        claim = Claim.of(value.metadata)
        if group.is_consumer:
            _, held = group.held_in_epoch.get(claim.member_id, (-1, frozenset()))
            # By its name alone nobody knows whether a topic is still the one that a member was given.
            is_right = (key.topic, key.partition) in {(self.topic_of(topic_id), index) for topic_id, index in held}
        else:
            # Who keeps its partitions while it joins commits in a generation whose assignment may never come to the log.
            is_ahead = group.generation is not None and claim.generation > group.generation
            is_right = claim.generation == group.generation or (is_ahead and group.name in self.cooperative)
        if not is_right:
            raise InvariantError(
                f"{group.name}: {key.topic}-{key.partition} is committed by {claim}; the log is at generation "
                f"{group.generation} with {sorted(group.held)}"
            )

    # What happens.

    def more_happenings(self, happenings: Happenings) -> None:
        super().more_happenings(happenings)
        happenings.add(self.draw.per_second(0.5), self._leave)
        happenings.add(self.draw.per_second(2), self._intrude)
        happenings.add(self.draw.per_second(0.2), self._grow)
        happenings.add(self.draw.per_second(0.2), self._delete)
        happenings.add(self.draw.per_second(0.2), self._create)

    def _leave(self) -> None:
        member = self.random.choice(self.members)
        if member.is_up and not member.is_paused:
            self.say(member.node_id, "leaves")
            member.leave()
            member.arm()

    def _intrude(self) -> None:
        """Somebody who wants to join with what is no expression; and may find a classic group in the middle of a rebalance."""
        member = self.random.choice(self.members)
        request = consumer_groups.ConsumerGroupHeartbeatRequest(
            group_id=member.group,
            member_id=self.new_member_id(),
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=[],
            subscribed_topic_regex="(",
            topic_partitions=[],
        )
        self.clients[0].ask_leader(OFFSETS_TOPIC, member.index, request, 1, lambda response: None)

    def _grow(self) -> None:
        name = self.random.choice([name for name in self.topics if name != OFFSETS_TOPIC])
        count = self.topics[name] + 1
        if count <= MAX_PARTITIONS:
            self.say(-1, f"{name} grows to {count}")
            grown = topics.CreatePartitionsTopic(name=name, count=count, assignments=None)
            request = topics.CreatePartitionsRequest(topics=[grown], timeout_ms=1000, validate_only=False)
            self._changed(name, count, self.controller.decide(request))

    def _delete(self) -> None:
        """For a while, or for no time at all."""
        if DELETED in self.topics:
            self.say(-1, f"{DELETED} is deleted")
            request = topics.DeleteTopicsRequest(
                topics=[topics.DeleteTopicState(name=DELETED, topic_id=ZERO_UUID)], timeout_ms=1000
            )
            self._changed(DELETED, 0, self.controller.decide(request))
            delay_us = self.random.choice((0, self.random.randrange(2 * SECOND_US)))
            if delay_us:
                self.schedule.after(delay_us, self._create_again)
            else:
                self._create_again()

    def _create_again(self) -> None:
        if DELETED not in self.topics:
            self._create_data(DELETED)

    def _create(self) -> None:
        name = self.random.choice(MORE_TOPICS)
        if name not in self.topics:
            self._create_data(name)

    def _create_data(self, name: str) -> None:
        count = self.random.choice((1, 2))
        self.say(-1, f"{name} is created with {count}")
        wanted = topics.CreatableTopic(
            name=name, num_partitions=count, replication_factor=self.factor, assignments=[], configs=[]
        )
        self._changed(name, count, self.controller.decide(topics.CreateTopicsRequest(topics=[wanted], timeout_ms=1000)))

    def _changed(self, name: str, count: int, response: Any) -> None:
        """Unless too few brokers are there for it."""
        rows = getattr(response, "topics", None) or getattr(response, "results", None) or response.responses
        if rows[0].error_code:
            return
        self.facts["topics"] += 1
        self.topic_changes += 1
        if count:
            self.topics[name] = count
        else:
            del self.topics[name]
        self._learn_topics()

    def stop_clients(self) -> None:
        self._create_again()
        for member in self.members:
            member.is_stopping = True

    # The end.

    def is_whole(self) -> bool:
        return (
            self.has_all_in_sync()
            and self.has_all_coordinators()
            and all(self._is_settled(group) for group in {one.group for one in self.members})
        )

    def _is_settled(self, group: str) -> bool:
        members = [one for one in self.members if one.group == group]
        if not all(one.is_settled for one in members) or len({one.epoch for one in members}) > 1:
            return False
        # Consumers of the classic protocol know topics by their names.
        held = sorted(
            (one.topic, one.partition)
            for member in members
            for one in member.owned
            if member.kind == CLASSIC or one.topic_id == self.topic_id_of(one.topic)
        )
        read = {topic for topic in self.topics for one in members if one.subscription.reads(topic)}
        return held == sorted((topic, index) for topic in read for index in range(self.topics[topic]))

    def standing(self) -> str:
        members = ", ".join(
            f"{one.group}/{one.kind} {one.node_id} {one.identity} epoch {one.epoch} holds {sorted(one.owned)}"
            f"{'' if one.is_settled else ', not settled'}{', away' if one.is_away else ''}"
            for one in self.members
        )
        return f"{members}; {self.replication_standing()}"

    def check_end(self) -> None:
        self._is_quiet = True
        left = {(group, *one) for group, truth in self.groups.items() for one in truth.offsets}
        self.unread = left

        def are_read() -> bool:
            for group, topic, partition in sorted(left):
                fetch_offset(self.clients[0], self, group, topic, partition)
            return not left

        self.wait_for("all offsets are fetched", are_read)
        # Sessions of processes that are gone, and hold nothing, expire yet.
        self.run_for(SETTLE_US)
        self.wait_for("all is whole again", self.is_whole)
        self._check_answered()
        for index in range(self.topics[OFFSETS_TOPIC]):
            names = sorted(one for one in self.groups if self._index_of(one) == index)
            check_group_replay(self, index, names)
            self._check_topics(index, names)

    def _check_answered(self) -> None:
        """Nothing has happened for a while that a request could still wait for."""
        for broker in self.brokers.values():
            for call, came_us in broker.unanswered.items():
                if self.schedule.now_us - came_us > SETTLE_US:
                    raise InvariantError(
                        f"{brief(call.message)} of {call.source.node_id} at {broker.node_id} was never answered"
                    )

    def _check_topics(self, index: int, groups: Sequence[str]) -> None:
        shard = self.active_shard(OFFSETS_TOPIC, index)
        assert isinstance(shard, GroupShard), f"nobody coordinates {OFFSETS_TOPIC}-{index}"
        for group in groups:
            for topic, partitions in shard.committed.of_group(group).items():
                for partition, committed in partitions.items():
                    if committed.topic_id != self.topic_id_of(topic):
                        raise InvariantError(f"{group}: there is an offset of {topic}-{partition}, of a topic that is gone")
