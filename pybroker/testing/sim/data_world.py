"""A run at the data level: brokers that replicate partitions, with producers that want acks=all, from one seed.

What holds all the time: what was acknowledged is in every leader's log; no two replicas differ below their high watermarks;
nothing is committed that a member of the ISR does not have; how much is committed never goes back for a client. In the end all
replicas must be in sync and equal.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pybroker.log.files import TopicPartition
from pybroker.metadata.image import NO_LEADER, PartitionState
from pybroker.testing.sim.broker_world import BrokerWorld
from pybroker.testing.sim.clock import SimClock
from pybroker.testing.sim.data_log import MemoryLog, MemoryLogs, Record
from pybroker.testing.sim.data_node import TOPIC, BrokerNode, ProducerNode
from pybroker.testing.sim.data_reader import ReaderNode
from pybroker.testing.sim.raft_checks import InvariantError
from pybroker.testing.sim.trace import Trace


class DataWorld(BrokerWorld[BrokerNode]):
    def __init__(self, seed: int, *, swarm: bool = False, trace: Trace | None = None) -> None:
        self._committed: dict[TopicPartition, list[Record]] = {}
        super().__init__(seed, swarm=swarm, trace=trace)
        random = self.random
        self.partition_count = random.choice((1, 2, 3))
        self.topics = {TOPIC: self.partition_count}
        self._config = SimpleNamespace(min_insync_replicas=self.min_insync)
        self._batch_records = random.choice((1, 3, 50))
        self.acked: dict[int, list[int]] = {index: [] for index in range(self.partition_count)}
        self.facts |= dict.fromkeys(("acknowledged", "committed", "told"), 0)
        self.producer = ProducerNode(
            self.schedule,
            SimClock(0),
            self.network,
            self.partition_count,
            lambda index: self.leader_of(TOPIC, index),
            self._acked,
            random.choice((1, 10, 60)),
        )
        self.reader = ReaderNode(self.schedule, SimClock(0), self.network, self.partition_count, self._state, self._told)
        self.clients = [self.producer, self.reader]
        for client in self.clients:
            self.network.add(client)

    def new_broker(self, broker_id: int) -> BrokerNode:
        def new_log(name: TopicPartition) -> MemoryLog:
            return MemoryLog(name, self._config, self._batch_records, self._advanced)

        clock = SimClock(self.random.randrange(1_000_000))
        return BrokerNode(self.schedule, broker_id, clock, self.network, MemoryLogs(new_log), self)

    def config_of(self, topic: str) -> Any:
        return self._config

    def stop_clients(self) -> None:
        self.producer.is_stopping = True

    # What holds.

    def _acked(self, partition: int, sequence: int, offset: int) -> None:
        if sequence != len(self.acked[partition]):
            raise InvariantError(f"{partition}: {sequence} is acknowledged after {len(self.acked[partition])} others")
        self.acked[partition].append(offset)
        self.facts["acknowledged"] += 1
        committed = self._committed.get(TopicPartition(TOPIC, partition), [])
        if offset >= len(committed) or committed[offset].sequence != sequence:
            raise InvariantError(f"{partition}: {sequence} was acknowledged at {offset}, where it is not committed")

    def _told(self) -> None:
        self.facts["told"] += 1

    def _advanced(self, log: MemoryLog, before: int, after: int) -> None:
        """A replica says that everything below `after` is committed."""
        self.facts["committed"] += 1
        committed = self._committed.setdefault(log.partition, [])
        known = committed[before:after]
        if known != log.records[before : before + len(known)]:
            raise InvariantError(f"{log.partition}: below {after} there is {log.records[before:after]}, and elsewhere {known}")
        new = log.records[len(committed) : after]
        if new:
            committed += new
            self._check_isr(log, after)

    def _check_isr(self, log: MemoryLog, after: int) -> None:
        """What has just been committed is on every replica that the controller may make the leader."""
        state = self._state(log.partition.partition)
        if state is None:
            return
        for broker_id in {*state.isr, *state.eligible_leader_replicas}:
            records = self.brokers[broker_id].logs.logs.get(log.partition)
            has = [] if records is None else records.records
            if has[after - 1 : after] != log.records[after - 1 : after]:
                raise InvariantError(
                    f"{log.partition}: {after - 1} is committed, and broker {broker_id}, which may lead, does not have it"
                )

    def check(self) -> None:
        """Whoever leads, as it and the controller agree, has all that was committed."""
        for index in range(self.partition_count):
            state = self._state(index)
            if state is None or state.leader == NO_LEADER:
                continue
            name = TopicPartition(TOPIC, index)
            log = self.brokers[state.leader].logs.logs.get(name)
            committed = self._committed.get(name, [])
            if log is not None and log.is_led_in(state.leader_epoch) and log.records[: len(committed)] != committed:
                raise InvariantError(f"{name}: leader {state.leader} of epoch {state.leader_epoch} lacks what was committed")

    def _state(self, index: int) -> PartitionState | None:
        return self.state_of(TOPIC, index)

    # The end.

    def is_whole(self) -> bool:
        return self.has_all_in_sync()

    def standing(self) -> str:
        return self.replication_standing()

    def check_end(self) -> None:
        for index, offsets in self.acked.items():
            name = TopicPartition(TOPIC, index)
            state = self._state(index)
            assert state is not None
            logs = [self.brokers[broker].logs.logs[name] for broker in state.replicas]
            for log in logs:
                if log.records != logs[0].records:
                    raise InvariantError(f"{name}: the replicas differ after all: {log.records[-5:]}, {logs[0].records[-5:]}")
            for sequence, offset in enumerate(offsets):
                if logs[0].records[offset].sequence != sequence:
                    raise InvariantError(f"{name}: {sequence} was acknowledged at {offset}; there is {logs[0].records[offset]}")
            if [record.sequence for record in logs[0].records] != list(range(len(logs[0].records))):
                raise InvariantError(f"{name}: the records are not each once and in order")
