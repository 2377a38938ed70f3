"""What worlds of brokers have in common: a controller that never fails, brokers that do, and what happens to them.

A level says what runs on the brokers and who their clients are, what has to hold all the time, and what it means to be whole
again. First some seconds of faults: crashes, pauses, cuts of the network, reassignments, elections. Then everything is healed,
and within a bound all must be whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, Generic, TypeVar

from pybroker.base.ids import Uuid
from pybroker.config import Config, load_text
from pybroker.metadata.controller import elr
from pybroker.metadata.controller.controller import Controller
from pybroker.metadata.controller.feature_levels import default_levels
from pybroker.metadata.controller.features import ELR_VERSION, METADATA_VERSION, RELEASES
from pybroker.metadata.image import NO_LEADER, PartitionState
from pybroker.protocol.internal.metadata_log import FeatureLevelRecord
from pybroker.protocol.message import Message
from pybroker.protocol.messages import partitions, topics
from pybroker.testing.sim.clock import SimClock
from pybroker.testing.sim.data_node import CLUSTER, BrokerNode, ControllerNode
from pybroker.testing.sim.faults import Draw, Happenings, draw_cut
from pybroker.testing.sim.network import Network
from pybroker.testing.sim.node import SimNode
from pybroker.testing.sim.outcome import Outcome
from pybroker.testing.sim.raft_checks import InvariantError
from pybroker.testing.sim.schedule import Schedule
from pybroker.testing.sim.trace import Trace

SECOND_US: Final = 1_000_000
LIVENESS_US: Final = 60 * SECOND_US
LOOK_US: Final = 200_000

CONFIG: Final = """
process.roles=controller
node.id=0
listeners=CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
controller.quorum.voters=0@localhost:9093
log.dirs=/data
broker.session.timeout.ms=1000
broker.heartbeat.interval.ms=200
"""

B = TypeVar("B", bound=BrokerNode)


class BrokerWorld(ABC, Generic[B]):
    def __init__(self, seed: int, *, swarm: bool = False, trace: Trace | None = None) -> None:
        self.seed = seed
        self.random = random = Random(seed)
        self.schedule = Schedule()
        self.trace = trace
        self.draw = Draw(random, swarm=swarm)
        self.network = Network(self.schedule, random, self.draw.network())
        broker_count = random.choice((2, 3, 3, 3, 4))
        self.factor = min(broker_count, random.choice((2, 3, 3)))
        self.min_insync = random.choice((1, 2, 2))
        # What a DataSetting asks for.
        self.max_lag_ms = random.choice((300, 800, 3_000))
        self.wait_max_ms = random.choice((20, 200))
        self.fetchers = random.choice((1, 1, 2))
        self.facts = dict.fromkeys(("crashes", "cuts", "reassignments", "leader_epochs"), 0)

        self.controller = ControllerNode(
            self.schedule, SimClock(1_000_000), self.network, self._new_controller(), self._first_records()
        )
        self.brokers: dict[int, B] = {broker_id: self.new_broker(broker_id) for broker_id in range(1, broker_count + 1)}
        self.network.add(self.controller)
        for broker in self.brokers.values():
            self.network.add(broker)

    def _controller_config(self) -> Config:
        loaded = load_text(CONFIG + f"min.insync.replicas={self.min_insync}\n", "broker world")
        assert loaded.config is not None, loaded.problems
        return loaded.config

    def _new_controller(self) -> Controller:
        config = self._controller_config()
        return Controller(config, CLUSTER, new_uuid=self.new_uuid, draw_below=self.random.randrange)

    def _first_records(self) -> list[Message]:
        version = max(RELEASES.values())
        levels = {METADATA_VERSION: version} | {
            name: level for name, level in default_levels(version).items() if name != METADATA_VERSION and level
        }
        if self.random.random() < 0.5:
            levels.pop(ELR_VERSION)
        levels |= self.feature_levels()
        records: list[Message] = [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items() if level]
        return [*records, *elr.beginning(records, self._controller_config())]

    # What a level fills in.

    calm_us: int = SECOND_US  # before anything happens
    topics: Mapping[str, int]  # that are there from the beginning, with their partitions
    clients: Sequence[SimNode]

    @abstractmethod
    def new_broker(self, broker_id: int) -> B: ...

    @abstractmethod
    def check(self) -> None:
        """What holds at every moment."""

    @abstractmethod
    def stop_clients(self) -> None:
        """They come to an end with what they do: everything is healed."""

    @abstractmethod
    def is_whole(self) -> bool: ...

    @abstractmethod
    def check_end(self) -> None: ...

    @abstractmethod
    def standing(self) -> str:
        """For a run that does not become whole."""

    def feature_levels(self) -> Mapping[str, int]:
        """Beside the newest."""
        return {}

    def more_happenings(self, happenings: Happenings) -> None: ...

    # What a DataSetting has.

    @abstractmethod
    def config_of(self, topic: str) -> Any: ...

    def draw_below(self, bound: int) -> int:
        return self.random.randrange(bound)

    def say(self, node_id: int, text: str) -> None:
        if self.trace is not None:
            self.trace.add(self.schedule.now_us, f"node {node_id}", text)

    def new_uuid(self) -> Uuid:
        return Uuid(self.random.randbytes(16))

    def state_of(self, topic: str, index: int) -> PartitionState | None:
        """As the controller has it."""
        return self.controller.controller.image.partition(topic, index)

    def leader_of(self, topic: str, index: int) -> int:
        state = self.state_of(topic, index)
        return NO_LEADER if state is None else state.leader

    # What happens.

    def run(self) -> Outcome:
        error: BaseException | None = None
        try:
            self._run()
        except Exception as found:
            error = found
        for topic, count in self.topics.items():
            for index in range(count):
                state = self.state_of(topic, index)
                self.facts["leader_epochs"] += 0 if state is None else state.leader_epoch
        self.facts["crashes"] = sum(broker.crashes for broker in self.brokers.values())
        return Outcome(self.seed, error, self.schedule.steps, self.schedule.now_us // 1000, self.facts)

    def _run(self) -> None:
        self.controller.start()
        for broker in self.brokers.values():
            broker.start()
        self.wait_for("all brokers are in", lambda: self._unfenced() == len(self.brokers))
        for topic, count in self.topics.items():
            self._create_topic(topic, count)
        for client in self.clients:
            client.start()
        self.run_for(self.calm_us)
        happenings = self._happenings()
        for _ in range(self.random.choice((20, 40, 80))):
            self.run_for(LOOK_US)
            self.check()
        happenings.stop()
        self._heal()
        self.wait_for("all is whole", self.is_whole)
        self.check_end()

    def run_for(self, span_us: int) -> None:
        self.schedule.run_until(self.schedule.now_us + span_us)

    def wait_for(self, what: str, holds: Callable[[], bool]) -> None:
        end_us = self.schedule.now_us + LIVENESS_US
        while not holds():
            if self.schedule.now_us >= end_us:
                raise InvariantError(f"{LIVENESS_US // SECOND_US} s were not enough until {what}: {self.standing()}")
            self.run_for(LOOK_US)
            self.check()

    def _unfenced(self) -> int:
        return sum(not broker.fenced for broker in self.controller.controller.image.brokers.values())

    def _create_topic(self, name: str, count: int) -> None:
        topic = topics.CreatableTopic(
            name=name, num_partitions=count, replication_factor=self.factor, assignments=[], configs=[]
        )
        response: Any = self.controller.decide(topics.CreateTopicsRequest(topics=[topic], timeout_ms=1000))
        assert response.topics[0].error_code == 0, response

    def _happenings(self) -> Happenings:
        draw, happenings = self.draw, Happenings(self.schedule, self.random)
        happenings.add(draw.per_second(0.4), self._crash)
        happenings.add(draw.per_second(0.1), self._crash_all)
        happenings.add(draw.per_second(0.4), self._pause)
        happenings.add(draw.per_second(0.5), self._cut)
        happenings.add(draw.per_second(0.3), self._break)
        happenings.add(draw.per_second(0.3), self._elect)
        happenings.add(draw.per_second(0.3), self._reassign)
        self.more_happenings(happenings)
        return happenings

    def _crash(self) -> None:
        self.crash_one(self.random.choice(list(self.brokers.values())))

    def _crash_all(self) -> None:
        for broker in self.brokers.values():
            self.crash_one(broker)

    def crash_one(self, node: SimNode) -> None:
        """For a while."""
        if node.is_up:
            self.say(node.node_id, "crashes")
            node.crash()
            self.network.process_ended(node)
            self.schedule.after(self.random.randrange(3 * SECOND_US), self.restart, node)

    def restart(self, node: SimNode) -> None:
        self.say(node.node_id, "starts")
        node.start()

    def _pause(self) -> None:
        self.pause_one(self.random.choice(list(self.brokers.values())), 3 * SECOND_US)

    def pause_one(self, node: SimNode, longest_us: int) -> None:
        self.say(node.node_id, "stands still")
        node.pause()
        self.schedule.after(self.random.randrange(longest_us), self.resume, node)

    def resume(self, node: SimNode) -> None:
        if node.is_paused:
            self.say(node.node_id, "goes on")
            node.resume()
            node.arm()

    def _cut(self) -> None:
        self.facts["cuts"] += 1
        ways = draw_cut(self.random, self.network.nodes)
        self.say(-1, f"cut {ways}")
        self.network.cut(ways)
        self.schedule.after(self.random.randrange(3 * SECOND_US), self.network.mend, ways)

    def _break(self) -> None:
        a, b = self.random.sample(list(self.network.nodes), 2)
        self.network.break_connection(a, b)

    def _elect(self) -> None:
        self.controller.decide(partitions.ElectLeadersRequest(topic_partitions=None, timeout_ms=1000))

    def _reassign(self) -> None:
        replicas = self.random.sample(list(self.brokers), self.factor)
        name = self.random.choice(list(self.topics))
        index = self.random.randrange(self.topics[name])
        state = self.state_of(name, index)
        if state is None or state.adding_replicas or state.removing_replicas:
            return  # one at a time
        self.facts["reassignments"] += 1
        wanted = partitions.ReassignablePartition(partition_index=index, replicas=replicas)
        topic = partitions.ReassignableTopic(name=name, partitions=[wanted])
        self.say(-1, f"reassign {name}-{index} to {replicas}")
        self.controller.decide(partitions.AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=1000))

    def _heal(self) -> None:
        self.say(-1, "heal")
        self.network.faults.heal()
        self.network.heal()
        nodes: list[SimNode] = [*self.brokers.values(), *self.clients]
        for node in nodes:
            self.resume(node)
            node.start()
        self.stop_clients()

    # The end.

    def has_all_in_sync(self) -> bool:
        """All replicas are in sync and equally long."""
        for topic, count in self.topics.items():
            for index in range(count):
                state = self.state_of(topic, index)
                assert state is not None
                if state.leader == NO_LEADER or set(state.isr) != set(state.replicas) or state.adding_replicas:
                    return False
                ends = {self.ends_of(broker, topic, index) for broker in state.replicas}
                # What is not committed yet may still differ.
                if len(ends) > 1 or len(set(ends.pop())) > 1:
                    return False
        return True

    def ends_of(self, broker_id: int, topic: str, index: int) -> tuple[int, int]:
        """The end of a replica's log and its high watermark."""
        log = self.brokers[broker_id].log_of(topic, index)
        return (-1, -1) if log is None else (log.log_end_offset, log.high_watermark)

    def replication_standing(self) -> str:
        return "; ".join(
            f"{topic}-{index}: {self.state_of(topic, index)}, "
            + ", ".join(
                f"broker {broker_id} at {end}/{high_watermark}"
                for broker_id in self.brokers
                for end, high_watermark in (self.ends_of(broker_id, topic, index),)
            )
            for topic, count in self.topics.items()
            for index in range(count)
        )
