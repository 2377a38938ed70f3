"""What worlds with coordinators have in common: the truth, which is what is committed, and the faults of disks and clocks.

Whatever the brokers do, the world looks at the high watermarks of their logs afterwards. What is below one was committed: it is
the same everywhere, every later leader has it, and the level takes it in, batch by batch, in order.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from bisect import bisect_left
from typing import Final

from pybroker.coordinator.hashing import partition_of
from pybroker.coordinator.shard import Effect
from pybroker.coordinator.transaction.transaction import MAX_EPOCH
from pybroker.log.files import TopicPartition
from pybroker.log.log import Log
from pybroker.log.log_config import LogConfig
from pybroker.metadata.image import NO_LEADER
from pybroker.metadata.internal_topics import INTERNAL_TOPICS
from pybroker.protocol.message import Message
from pybroker.protocol.records.batch import RecordBatch
from pybroker.replication.partition import Partition
from pybroker.testing.disk import SimDisk
from pybroker.testing.sim.broker_world import SECOND_US, BrokerWorld
from pybroker.testing.sim.clock import SimClock
from pybroker.testing.sim.coordinator_node import COORDINATORS, CoordinatorBroker
from pybroker.testing.sim.data_node import CALL_TIMEOUT_MS, Done, TalkingNode
from pybroker.testing.sim.disk_logs import DiskLogs
from pybroker.testing.sim.faults import Happenings
from pybroker.testing.sim.network import Call
from pybroker.testing.sim.outcome import Outcome
from pybroker.testing.sim.raft_checks import InvariantError
from pybroker.testing.sim.trace import Trace, brief

FIRST_CLIENT_ID: Final = 100
SMALL_INDEX_BYTES: Final = 4096


class Committed:
    """What is committed of a partition, as batches."""

    def __init__(self) -> None:
        self.batches: list[RecordBatch] = []
        self.end = 0
        self._starts: list[int] = []

    def add(self, batch: RecordBatch) -> None:
        self.batches.append(batch)
        self._starts.append(batch.base_offset)
        self.end = batch.next_offset

    def at(self, offset: int) -> RecordBatch | None:
        """The batch that begins there."""
        place = bisect_left(self._starts, offset)
        return self.batches[place] if place < len(self._starts) and self._starts[place] == offset else None


class Overheard(logging.Handler):
    """What the brokers log of their own mistakes: they would go on after them, a run does not."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.mistakes: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.mistakes.append(record)

    def check(self) -> None:
        for record in self.mistakes:
            assert record.exc_info is not None
            raise InvariantError(f"a broker says: {record.getMessage()}: {record.exc_info[1]!r}") from record.exc_info[1]


class CoordinatorWorld(BrokerWorld[CoordinatorBroker]):
    calm_us = 2 * SECOND_US

    def __init__(self, seed: int, *, swarm: bool = False, trace: Trace | None = None) -> None:
        self.truth: dict[TopicPartition, Committed] = {}
        self._overheard = Overheard()
        self.broker_config = ""
        self.publish_us = 300
        self.max_producer_epoch = MAX_EPOCH
        self._segment_bytes = 1 << 20
        super().__init__(seed, swarm=swarm, trace=trace)
        self._segment_bytes = self.random.choice((5_000, 1 << 20))
        self.publish_us = self.random.choice((300, 100_000))
        self._configs: dict[bool, LogConfig] = {}
        self.facts |= dict.fromkeys(("power_losses", "clock_jumps", "committed_batches"), 0)
        self.clients: list[ClientNode] = []
        self.max_jump_ms = self.random.choice((100, 10_000, 1_000_000))

    def run(self) -> Outcome:
        logger = logging.getLogger("pybroker")
        before = logger.level, logger.propagate
        logger.addHandler(self._overheard)
        logger.setLevel(logging.ERROR)
        logger.propagate = False
        try:
            return super().run()
        finally:
            logger.removeHandler(self._overheard)
            logger.setLevel(before[0])
            logger.propagate = before[1]

    def new_broker(self, broker_id: int) -> CoordinatorBroker:
        clock = SimClock(self.random.randrange(1_000_000))
        disk = SimDisk(self.random)
        logs = DiskLogs(disk, self.config_of, lambda: self.brokers[broker_id].wall_ms())
        return CoordinatorBroker(self.schedule, broker_id, clock, self.network, logs, self)

    def add_client(self, client: ClientNode) -> None:
        self.clients.append(client)
        self.network.add(client)

    # What a CoordinatorSetting has.

    def config_of(self, topic: str) -> LogConfig:
        is_compacted = topic in INTERNAL_TOPICS
        config = self._configs.get(is_compacted)
        if config is None:
            config = self._configs[is_compacted] = LogConfig.of(
                {
                    "min.insync.replicas": self.min_insync,
                    "segment.bytes": self._segment_bytes,
                    "segment.index.bytes": SMALL_INDEX_BYTES,
                    "cleanup.policy": ["compact"] if is_compacted else ["delete"],
                }
            )
        return config

    def new_member_id(self) -> str:
        return self.new_uuid().hex()

    def observe(self, broker: CoordinatorBroker) -> None:
        seen = broker.seen
        for name, log in broker.logs.logs.items():
            before, now = seen.get(name, 0), log.high_watermark
            if now != before:
                seen[name] = now
                if now > before:
                    self._advanced(broker, log, before, now)

    def _advanced(self, broker: CoordinatorBroker, log: Log, before: int, after: int) -> None:
        """A replica says that everything below `after` is committed."""
        truth = self.truth.setdefault(log.partition, Committed())
        for batch in log.batches(before, after):
            if batch.base_offset < truth.end:
                known = truth.at(batch.base_offset)
                if known is None or bytes(known.view()) != bytes(batch.view()):
                    raise InvariantError(f"{log.partition}: broker {broker.node_id} has {batch}, and others {known}")
            elif batch.base_offset != truth.end:
                raise InvariantError(f"{log.partition}: {batch} is committed behind {truth.end}")
            else:
                truth.add(batch)
                self.facts["committed_batches"] += 1
                self.committed(log.partition, batch)
        self.advanced(log)

    # What a level fills in.

    @abstractmethod
    def committed(self, name: TopicPartition, batch: RecordBatch) -> None:
        """For the first time, somewhere."""

    def advanced(self, log: Log) -> None:
        """The high watermark of a replica."""

    def carries_out(self, broker: CoordinatorBroker, effect: Effect) -> None:
        """What a coordinator of the broker has decided."""

    # What holds.

    def check(self) -> None:
        """Whoever leads, as it and the controller agree, has all that was committed; and nobody stumbles."""
        self._overheard.check()
        for name, truth in self.truth.items():
            state = self.state_of(*name)
            if state is None or state.leader == NO_LEADER or not truth.batches:
                continue
            log = self.brokers[state.leader].log_of(*name)
            if log is None or not self.brokers[state.leader].is_up or not log.is_led_in(state.leader_epoch):
                continue
            last = truth.batches[-1]
            found = next(log.batches(last.base_offset, last.base_offset + 1), None)
            if found is None or bytes(found.view()) != bytes(last.view()):
                raise InvariantError(
                    f"{name}: leader {state.leader} of epoch {state.leader_epoch} lacks what was committed: {last}, not {found}"
                )

    # What happens.

    def more_happenings(self, happenings: Happenings) -> None:
        happenings.add(self.draw.per_second(0.2), self._lose_power)
        happenings.add(self.draw.per_second(0.2), self._jump)
        happenings.add(self.draw.per_second(0.5), self._crash_client)
        happenings.add(self.draw.per_second(0.5), self._pause_client)

    def _lose_power(self) -> None:
        """The disk had written what others may count on: what is committed, and what was fetched from leaders, who may hear of
        it yet. The rest may be torn. To lose more would only show that replicas in sync must not lose anything."""
        broker = self.random.choice(list(self.brokers.values()))
        if not broker.is_up:
            return
        self.facts["power_losses"] += 1
        self.say(broker.node_id, "loses power")
        for name, log in broker.logs.logs.items():
            partition = broker.replicas.partition(*name)
            is_leader = isinstance(partition, Partition) and partition.is_leader
            log.flush(min(self.truth[name].end, log.log_end_offset) if is_leader and name in self.truth else None)
        broker.loses_power = True
        self.crash_one(broker)

    def _jump(self) -> None:
        self.facts["clock_jumps"] += 1
        broker = self.random.choice(list(self.brokers.values()))
        broker.wall_offset_ms += self.random.randrange(-self.max_jump_ms, self.max_jump_ms)

    def _crash_client(self) -> None:
        self.crash_one(self.random.choice(self.clients))

    def _pause_client(self) -> None:
        self.pause_one(self.random.choice(self.clients), 5_000_000)

    # Views.

    def seen_leader(self, topic: str, index: int) -> int:
        """As some broker that lets clients in knows it."""
        serving = [broker for broker in self.brokers.values() if broker.is_up and broker.is_serving]
        if not serving:
            return NO_LEADER
        state = self.random.choice(serving).image.partition(topic, index)
        return NO_LEADER if state is None else state.leader

    def active_shard(self, topic: str, index: int) -> object | None:
        """Of the broker that leads the partition, if it is loaded."""
        leader = self.leader_of(topic, index)
        broker = self.brokers.get(leader)
        return None if broker is None or not broker.is_up else broker.shard_of(topic, index)

    def has_all_coordinators(self) -> bool:
        return all(
            self.active_shard(topic, index) is not None for topic in COORDINATORS for index in range(self.topics.get(topic, 0))
        )


class ClientNode(TalkingNode):
    """A process of a client, that finds the leaders of partitions, coordinators among them."""

    def __init__(self, world: CoordinatorWorld, number: int) -> None:
        super().__init__(world.schedule, FIRST_CLIENT_ID + number, SimClock(number), world.network)
        self.world = world
        self.is_stopping = False
        self._leaders: dict[tuple[str, int], int] = {}

    def say(self, text: str) -> None:
        self.world.say(self.node_id, text)

    def forget(self, topic: str, index: int) -> None:
        """Whoever was thought to lead it does not."""
        self._leaders.pop((topic, index), None)

    def known_leader(self, topic: str, index: int) -> int:
        leader = self._leaders.get((topic, index), NO_LEADER)
        if leader == NO_LEADER:
            leader = self.world.seen_leader(topic, index)
            if leader != NO_LEADER:
                self._leaders[topic, index] = leader
        return leader

    def ask_leader(
        self,
        topic: str,
        index: int,
        request: Message,
        version: int,
        done: Done,
        *,
        timeout_ms: int = CALL_TIMEOUT_MS,
        may_repeat: bool = False,
    ) -> None:
        leader = self.known_leader(topic, index)
        if leader == NO_LEADER:
            self.later(50, lambda: done(None))
            return

        def answered(response: Message | None) -> None:
            if response is None:
                self.forget(topic, index)
            if self.world.trace is not None:
                self.say(f"{brief(request)} at {leader}: {brief(response)}")
            done(response)

        self.ask(leader, request, answered, timeout_ms, version, may_repeat=may_repeat)

    def index_of(self, topic: str, key: str) -> int:
        """The partition of a coordinator's topic that a group, or a transactional id, belongs to."""
        return partition_of(key, self.world.topics[topic])

    def handle_request(self, call: Call) -> None: ...
