"""A run at the cluster level: controllers and brokers, joined or apart, with topics made, changed and deleted, from one seed.

First some seconds of faults; then everything is healed, and within a bound one controller must be active, every broker
registered and unfenced, every partition led, and all images equal. A controller that fails on a request, which in production is
logged and answered, ends the run here.
"""

from __future__ import annotations

import errno
import logging
from random import Random
from typing import Final

from pybroker.base.ids import Uuid
from pybroker.config import Config
from pybroker.metadata.image import MetadataImage
from pybroker.protocol.message import Message
from pybroker.protocol.messages.raft import AddRaftVoterRequest, AddRaftVoterRequestListener, RemoveRaftVoterRequest
from pybroker.server.bootstrap import FormatPlan, InitialController
from pybroker.testing.disk import SimDisk
from pybroker.testing.sim.clock import SimClock
from pybroker.testing.sim.cluster_checks import NO_LEADER, ClusterChecks
from pybroker.testing.sim.cluster_node import CONTROLLER, ClusterNode, node_config
from pybroker.testing.sim.cluster_workload import REQUEST_TIMEOUT_MS, ClusterWorkload
from pybroker.testing.sim.faults import Draw, Happenings, draw_cut
from pybroker.testing.sim.network import Network
from pybroker.testing.sim.outcome import Outcome
from pybroker.testing.sim.raft_checks import InvariantError
from pybroker.testing.sim.raft_node import address_of
from pybroker.testing.sim.raft_world import CLIENT_ID, CLUSTER_ID, SECOND_US, Client
from pybroker.testing.sim.schedule import Schedule
from pybroker.testing.sim.trace import Trace, brief

LIVENESS_US: Final = 60 * SECOND_US
LOOK_US: Final = 100_000
FLAPS_PER_SECOND: Final = 40.0


class Complaints(logging.Handler):
    """What the code under test logs as an error, and would survive in production."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.first: logging.LogRecord | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self.first is None:
            self.first = record


class ClusterWorld:
    def __init__(self, seed: int, *, swarm: bool = False, trace: Trace | None = None, is_flapping: bool = False) -> None:
        """With `is_flapping` there is one fault only: connections break again and again, and nothing else does."""
        self.seed = seed
        self.random = random = Random(seed)
        self.schedule = Schedule()
        self.trace = trace
        draw = Draw(random, swarm=swarm)
        self.network = Network(self.schedule, random, draw.network())
        self.network.copies_through_bytes = random.random() < 0.2
        self.disk_faults = draw.disk()
        if is_flapping:
            self.network.faults.heal()
            self.disk_faults.heal()
        self.checks = ClusterChecks()
        self._complaints = Complaints()
        self._next_request = 0

        controller_count = random.choice((1, 2, 3, 3, 3, 4, 5))
        broker_count = random.randrange(1, 8)
        voters = range(1, 1 + controller_count)
        combined = random.randrange(min(controller_count, broker_count) + 1) if random.random() < 0.5 else 0
        brokers = [*range(1, 1 + combined), *range(101, 101 + broker_count - combined)]
        self.keys: dict[str, object] = self._draw_keys()
        if is_flapping:
            self.keys |= {"pybroker.broker.death.grace.ms": 100, "pybroker.controller.quorum.death.grace.ms": 100}
        self.nodes: dict[int, ClusterNode] = {}
        self._voters, self._brokers = voters, brokers
        self.workload = ClusterWorkload(random, self.checks, self.nodes, brokers, self._ask)
        plans = self._draw_plans()
        for node_id in sorted({*voters, *brokers}):
            config = node_config(node_id, is_controller=node_id in voters, is_broker=node_id in brokers, keys=self.keys)
            self._add_node(config, plans.get(node_id, FormatPlan()))
        self.client = Client(self.schedule, CLIENT_ID, SimClock(0))
        self.network.add(self.client)
        self.client.start()

        self._fault_us = int((20 if is_flapping else 3 + 6 * random.random()) * SECOND_US)
        self._happenings = Happenings(self.schedule, random)
        happens = self._happenings.add
        happens(2.0, self.workload.create_topic)
        happens(1.0, self.workload.change_config)
        happens(0.3, self.workload.create_partitions)
        happens(0.2, self.workload.delete_topic)
        happens(3.0, self.workload.change_isr)
        happens(0.3, self.workload.elect_preferred)
        happens(0.5, self.workload.reassign)
        happens(0.5, self.workload.allocate_producer_ids)
        if is_flapping:
            happens(FLAPS_PER_SECOND, self._break)
            return
        happens(draw.per_second(0.3), self._crash_one)
        happens(draw.per_second(0.1), self._lose_power)
        happens(draw.per_second(0.05), self._crash_all)
        happens(draw.per_second(0.3), self._pause_one)
        happens(draw.per_second(0.3), self._cut)
        happens(draw.per_second(1.0), self._break)
        happens(draw.per_second(0.2), self._jump_clock)
        happens(draw.per_second(0.2), self._drift_clock)
        happens(draw.per_second(0.2), self._shut_down_broker)
        happens(draw.per_second(0.3), self._cut_power_in_a_step)
        happens(draw.per_second(0.1), self._fill_disk)
        happens(draw.per_second(0.05), self._break_disk)
        happens(draw.per_second(0.2), self._resign)
        if self._is_dynamic and random.random() < 0.5:
            happens(draw.per_second(0.1), self._replace_disk)
        elif self._is_dynamic:
            # Not both: who removes living voters beside one whose disk is gone is left without a majority.
            happens(draw.per_second(0.3), self._remove_voter)
            happens(draw.per_second(0.3), self._add_voter)

    def _draw_keys(self) -> dict[str, object]:
        random = self.random
        timeout_ms = random.choice((200, 500))
        session_ms = random.choice((1_000, 3_000))
        return {
            "controller.quorum.election.timeout.ms": timeout_ms,
            "controller.quorum.election.backoff.max.ms": timeout_ms,
            "controller.quorum.fetch.timeout.ms": 2 * timeout_ms,
            "controller.quorum.request.timeout.ms": random.choice((500, 1_500)),
            "controller.quorum.fetch.max.bytes": random.choice((500, 1_048_576)),
            "controller.quorum.fetch.snapshot.max.bytes": random.choice((700, 1_048_576)),
            "pybroker.controller.quorum.death.grace.ms": random.choice((0, 100, 300)),
            "broker.session.timeout.ms": session_ms,
            "broker.heartbeat.interval.ms": session_ms // 5,
            "pybroker.broker.death.grace.ms": random.choice((0, 100, 300)),
            "unclean.leader.election.interval.ms": 1_000,
            "leader.imbalance.check.interval.seconds": 2,
            "metadata.max.idle.interval.ms": random.choice((0, 500)),
            "metadata.log.max.record.bytes.between.snapshots": random.choice((1_500, 10_000, 20_971_520)),
            "metadata.max.retention.bytes": random.choice((4_000, 104_857_600)),
            # Small ones turn the larger decisions into metadata transactions.
            "internal.metadata.max.batch.size.in.bytes": random.choice((400, 8_388_608)),
            "internal.metadata.log.segment.bytes": random.choice((2_000, 1_048_576)),
            "offsets.topic.replication.factor": 1,
        }

    def _draw_plans(self) -> dict[int, FormatPlan]:
        """How the controllers' disks are formatted: for voters in the configuration, for voters in the log, or for a first one
        whom the others join."""
        random, voters = self.random, self._voters
        names = [f"{address_of(id_).host}:{address_of(id_).port}" for id_ in voters]
        kind = random.choice(("static", "static", "initial", "standalone"))
        self._is_dynamic = kind != "static"
        if kind == "static":
            self.keys["controller.quorum.voters"] = ",".join(f"{id_}@{name}" for id_, name in zip(voters, names, strict=True))
            return {}
        self.keys["controller.quorum.bootstrap.servers"] = ",".join(names)
        self.keys["controller.quorum.auto.join.enable"] = "true"
        if kind == "standalone":
            others = dict.fromkeys(voters, FormatPlan(no_initial_controllers=True))
            return others | {voters[0]: FormatPlan(standalone=True)}
        initial = tuple(
            InitialController(id_, address_of(id_).host, address_of(id_).port, Uuid(random.randbytes(16))) for id_ in voters
        )
        return dict.fromkeys(voters, FormatPlan(initial_controllers=initial))

    def _add_node(self, config: Config, plan: FormatPlan) -> None:
        node = ClusterNode(
            self.schedule,
            config,
            SimClock(1_000_000 + self.random.randrange(1_000_000)),
            random=self.random,
            network=self.network,
            disk_faults=self.disk_faults,
            cluster_id=CLUSTER_ID,
            plan=plan,
            checks=self.checks.quorum,
            on_image=self._image_published,
            on_answer=lambda node, request, response: self.workload.answered(node, request, response),
            trace=self.trace,
        )
        node.on_crash = self._restart_later
        self.nodes[node.node_id] = node
        self.network.add(node)

    # Running it.

    def run(self) -> Outcome:
        logger = logging.getLogger("pybroker")
        level, propagates = logger.level, logger.propagate
        logger.addHandler(self._complaints)
        logger.setLevel(logging.ERROR)
        logger.propagate = False
        error: BaseException | None = None
        try:
            for node in self.nodes.values():
                node.start()
            self._run_until(self._fault_us)
            self._heal()
            self._require_liveness()
        except Exception as caught:  # whatever the code under test raises is a finding
            error = caught
        finally:
            logger.removeHandler(self._complaints)
            logger.setLevel(level)
            logger.propagate = propagates
        checks = self.checks
        return Outcome(
            seed=self.seed,
            error=error,
            steps=self.schedule.steps,
            virtual_ms=self.schedule.now_us // 1000,
            facts={
                "crashes": sum(node.crashes for node in self.nodes.values()),
                "power_cuts": sum(node.power_cuts for node in self.nodes.values()),
                "failed_writes": sum(node.failed_writes for node in self.nodes.values()),
                "records": checks.next_offset,
                "answers": self.workload.answers,
                "topics": len(checks.names),
                "fences": checks.fences,
                "leader_changes": checks.leader_changes,
                "unclean_elections": checks.unclean_elections,
                "images_compared": checks.images_compared,
            },
        )

    def _run_until(self, end_us: int) -> None:
        while self.schedule.now_us < end_us:
            self.schedule.run_until(min(end_us, self.schedule.now_us + LOOK_US))
            complaint = self._complaints.first
            if complaint is not None:
                cause = complaint.exc_info[1] if complaint.exc_info else None
                raise InvariantError(f"logged as an error: {complaint.getMessage()}: {cause!r}") from cause

    def say(self, text: str) -> None:
        if self.trace is not None:
            self.trace.add(self.schedule.now_us, "", f"*** {text}")

    def _heal(self) -> None:
        self.say("all faults end")
        self._happenings.stop()
        self.network.faults.heal()
        self.network.heal()
        self.disk_faults.heal()
        for node in self.nodes.values():
            self._mend_disk(node.disk)
            node.disk.cut_at = None
            node.clock.set_rate(self.schedule.now_us, 1_000_000)
            node.resume()
            node.start()
            node.arm()

    def _require_liveness(self) -> None:
        end_us = self.schedule.now_us + LIVENESS_US
        asked_us: int | None = None
        problem: str | None = "not looked at"
        while self.schedule.now_us < end_us:
            self._run_until(self.schedule.now_us + LOOK_US)
            problem = self._what_is_missing()
            if problem is not None:
                continue
            if asked_us is not None and self._is_created(self.workload.last_topic):
                self._compare_images()
                return
            problem = "no topic can be created"
            if asked_us is None or self.schedule.now_us > asked_us + SECOND_US:
                asked_us = self.schedule.now_us
                self.workload.create_topic(is_careful=True)
        positions = "; ".join(node.describe() for node in self.nodes.values())
        raise InvariantError(f"not well within {LIVENESS_US // SECOND_US} s after the faults ended: {problem}: {positions}")

    def _what_is_missing(self) -> str | None:
        active = self._active()
        if active is None:
            return "no controller is active"
        image = active.image
        for node in self.nodes.values():
            if not node.is_up:
                return f"node {node.node_id} is down"
            if node.image.offset != image.offset:
                return f"node {node.node_id} has metadata up to {node.image.offset}, the controller up to {image.offset}"
        for broker_id in self._brokers:
            known = image.brokers.get(broker_id)
            if known is None or known.incarnation_id != self.nodes[broker_id].incarnation_id or not known.is_active:
                return f"broker {broker_id} is {known}"
        for controller_id in self._voters:
            controller = image.controllers.get(controller_id)
            if controller is None or controller.incarnation_id != self.nodes[controller_id].incarnation_id:
                return f"controller {controller_id} is {controller}"
        for topic in image.topics.values():
            for index, state in topic.partitions.items():
                if state.leader == NO_LEADER:
                    return f"{topic.name}-{index} has no leader: {state}"
        return None

    def _compare_images(self) -> None:
        for node in self.nodes.values():
            self.checks.require_same(node.node_id, node.image)

    def _active(self) -> ClusterNode | None:
        found = [node for node in self.nodes.values() if node.is_up and node.replica is not None and node.replica.is_active]
        return max(found, key=lambda node: node.replica.quorum.epoch if node.replica else 0, default=None)

    def _is_created(self, name: str) -> bool:
        return all(name in node.image.topics for node in self.nodes.values())

    # What the nodes tell.

    def _image_published(self, node: ClusterNode, image: MetadataImage) -> None:
        self.checks.published(node.node_id, image, node.entries)

    def _ask(self, message: Message, is_careful: bool) -> None:
        is_right = is_careful or self.random.random() < 0.9
        node = self._active() if is_right else self.nodes[self.random.choice(self._voters)]
        if node is not None and not node.is_paused:
            self._next_request += 1
            self.say(f"node {node.node_id} is asked: {brief(message)}")
            self.network.send(self.client, self._next_request, node.node_id, message, REQUEST_TIMEOUT_MS)

    # What goes wrong.

    def _some(self) -> ClusterNode | None:
        up = [node for node in self.nodes.values() if node.is_up]
        return self.random.choice(up) if up else None

    def _crash_one(self) -> None:
        node = self._some()
        if node is not None:
            node.crash()

    def _lose_power(self) -> None:
        node = self._some()
        if node is not None:
            node.loses_power = True
            node.crash()

    def _cut_power_in_a_step(self) -> None:
        node = self._some()
        if node is not None:
            node.disk.cut_at = node.disk.operations + 1 + self.random.randrange(40)

    def _fill_disk(self) -> None:
        node = self._some()
        if node is not None:
            self.say(f"the disk of node {node.node_id} is full")
            node.disk.capacity_bytes = node.disk.used_bytes + self.random.choice((0, 200, 2_000))
            self.schedule.after(self.random.randrange(2 * SECOND_US), self._mend_disk, node.disk)

    def _break_disk(self) -> None:
        node = self._some()
        if node is not None:
            self.say(f"the disk of node {node.node_id} is broken for a while")
            node.disk.broken["/"] = errno.EIO
            self.schedule.after(self.random.randrange(2 * SECOND_US), self._mend_disk, node.disk)

    def _mend_disk(self, disk: SimDisk) -> None:
        disk.capacity_bytes = None
        disk.broken.clear()

    def _resign(self) -> None:
        """As a leader that stops does: some are then gone for a while."""
        active = self._active()
        if active is not None and not active.is_paused:
            is_final = self.random.random() < 0.5
            self.say(f"node {active.node_id} is asked to resign{' for good' if is_final else ''}")
            active.act(lambda: active.resign(is_final=is_final))
            if is_final and active.is_up:
                active.after_us(self.random.randrange(300_000), active.crash)

    def _crash_all(self) -> None:
        self.say("all lose power")
        for node in self.nodes.values():
            node.loses_power = node.is_up
            node.crash()

    def _restart_later(self, node: ClusterNode) -> None:
        delay_us = self.random.choice((10_000, 300_000, 3 * SECOND_US))
        self.schedule.after(int(delay_us * self.random.random()), node.start)

    def _pause_one(self) -> None:
        node = self._some()
        if node is not None and not node.is_paused:
            self.say(f"node {node.node_id} stands still")
            node.pause()
            self.schedule.after(int(self.random.choice((300_000, 4 * SECOND_US)) * self.random.random()), self._resume, node)

    def _resume(self, node: ClusterNode) -> None:
        if node.is_paused:
            self.say(f"node {node.node_id} goes on")
            node.resume()

    def _cut(self) -> None:
        ways = draw_cut(self.random, self.nodes)
        self.say(f"cut {ways}")
        self.network.cut(ways)
        self.schedule.after(int(self.random.choice((500_000, 4 * SECOND_US)) * self.random.random()), self.network.mend, ways)

    def _break(self) -> None:
        if len(self.nodes) > 1:
            a, b = self.random.sample(list(self.nodes), 2)
            self.say(f"connections between {a} and {b} break")
            self.network.break_connection(a, b)

    def _jump_clock(self) -> None:
        """Forward only: what measures time in a process does not go back."""
        node = self._some()
        if node is not None:
            node.clock.jump(self.schedule.now_us, self.random.randrange(2_000))
            node.arm()

    def _drift_clock(self) -> None:
        node = self._some()
        if node is not None:
            node.clock.set_rate(self.schedule.now_us, self.random.randint(900_000, 1_100_000))
            node.arm()

    def _replace_disk(self) -> None:
        """Of a controller that is no broker, while all agree on the voters and what is lost is a minority of them."""
        lost = self.nodes[self.random.choice(self._voters)]
        if lost.node_id in self._brokers:
            return
        sets = []
        for id_ in self._voters:
            replica = self.nodes[id_].replica
            if replica is None:
                return
            sets.append([voter.key for voter in replica.quorum.voters])
        if any(voters != sets[0] for voters in sets):
            return
        gone = [key for key in sets[0] if key.id == lost.node_id or self.nodes[key.id].directory_id != key.directory_id]
        if 2 * len(gone) < len(sets[0]):
            self.say(f"the disk of node {lost.node_id} is replaced")
            lost.replace_disk()

    def _shut_down_broker(self) -> None:
        node = self.nodes[self.random.choice(self._brokers)]
        if node.is_up and not node.is_paused:
            self.say(f"broker {node.node_id} is asked to stop")
            node.act(node.begin_controlled_shutdown)

    def _remove_voter(self) -> None:
        active = self._active()
        if active is None or active.replica is None:
            return
        voters = list(active.replica.quorum.voters)
        if len(voters) > 1:
            key = self.random.choice(voters).key
            self._ask(
                RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=key.id, voter_directory_id=key.directory_id), False
            )

    def _add_voter(self) -> None:
        node = self.nodes[self.random.choice(self._voters)]
        if node.directory_id is not None:
            at = address_of(node.node_id)
            request = AddRaftVoterRequest(
                cluster_id=CLUSTER_ID,
                timeout_ms=self.random.choice((200, 2_000)),
                voter_id=node.node_id,
                voter_directory_id=node.directory_id,
                listeners=[AddRaftVoterRequestListener(name=CONTROLLER, host=at.host, port=at.port)],
            )
            self._ask(request, False)
