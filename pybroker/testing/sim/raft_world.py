"""A run at the raft level: a quorum of one to five voters with spares and observers, from one seed.

First some seconds of faults under a stream of proposals, snapshots and changes of voters; then everything is healed, and the
quorum must have one leader, equal logs and a new commit within a bound. One thread; nothing is drawn but from the seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from pybroker.base.ids import Uuid
from pybroker.protocol.message import Message
from pybroker.protocol.messages.raft import (
    AddRaftVoterRequest,
    AddRaftVoterRequestListener,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    RemoveRaftVoterRequest,
)
from pybroker.raft.events import Address, KRaftVersionProposed, Recovered, ReplicaKey, ResignRequested, SnapshotId
from pybroker.raft.quorum import Quorum
from pybroker.raft.setting import METADATA_TOPIC, QuorumSetting
from pybroker.raft.voters import Voter, VoterSet
from pybroker.testing.sim.clock import SimClock
from pybroker.testing.sim.faults import Draw, Happenings, draw_cut
from pybroker.testing.sim.network import Call, Network
from pybroker.testing.sim.node import SimNode
from pybroker.testing.sim.outcome import Outcome
from pybroker.testing.sim.raft_checks import InvariantError, RaftChecks
from pybroker.testing.sim.raft_node import RaftNode, address_of
from pybroker.testing.sim.raft_store import RaftStore, Snapshot
from pybroker.testing.sim.schedule import Schedule
from pybroker.testing.sim.trace import Trace, brief

SECOND_US: Final = 1_000_000
CLUSTER_ID: Final = "simulated-cluster-id00"
LISTENER: Final = "CONTROLLER"
CLIENT_ID: Final = 1000
MAX_JUMP_MS: Final = 1_500
LIVENESS_US: Final = 30 * SECOND_US
LOOK_US: Final = 200_000
UNLUCKY_BELOW: Final = 10

NewQuorum = Callable[[QuorumSetting, Recovered, Callable[[int], int]], Quorum]


def new_quorum(setting: QuorumSetting, recovered: Recovered, draw_below: Callable[[int], int]) -> Quorum:
    return Quorum(setting, recovered, draw_below=draw_below)


class Client(SimNode):
    """Somebody who asks for changes of voters and takes whatever answer comes."""

    def boot(self) -> None: ...

    def lose_memory(self) -> None: ...

    def next_deadline_ms(self) -> int | None:
        return None

    def handle_deadline(self) -> None: ...

    def handle_request(self, call: Call) -> None: ...

    def handle_request_dropped(self, call: Call) -> None: ...

    def handle_response(self, request_id: int, message: Message) -> None: ...

    def handle_failure(self, request_id: int) -> None: ...

    def handle_node_lost(self, node_id: int) -> None: ...


class RaftWorld:
    def __init__(
        self,
        seed: int,
        *,
        swarm: bool = False,
        trace: Trace | None = None,
        new_quorum: NewQuorum = new_quorum,
        new_store: Callable[[ReplicaKey, tuple[SnapshotId, Snapshot] | None], RaftStore] = RaftStore,
    ) -> None:
        self.seed = seed
        self.random = random = Random(seed)
        self.schedule = Schedule()
        self.trace = trace
        draw = Draw(random, swarm=swarm)
        self.network = Network(self.schedule, random, draw.network())
        self.network.copies_through_bytes = random.random() < 0.05
        self.disk_faults = draw.disk()
        self.stores: dict[ReplicaKey, RaftStore] = {}
        self.checks = RaftChecks(self._voters_of, self.stores.get)
        self._new_quorum = new_quorum
        self._new_store = new_store
        self._next_directory = 0
        self._asked_to_join: set[ReplicaKey] = set()
        self._asked_to_leave: set[ReplicaKey] = set()
        self._next_request = 0
        self._next_value = 0

        voter_count = random.choice((1, 2, 3, 3, 3, 4, 5, 5, 5))
        self.is_dynamic = random.random() < 0.5
        spare_count = random.randrange(3) if self.is_dynamic else 0
        controllers = range(1, 1 + voter_count + spare_count)
        observers = range(101, 101 + random.randrange(3))
        self._voters = range(1, 1 + voter_count)
        self._controllers = controllers
        timeout_ms = random.choice((100, 200, 400))
        self._setting = QuorumSetting(
            cluster_id=CLUSTER_ID,
            own=ReplicaKey(0),
            listener=LISTENER,
            static_voters={} if self.is_dynamic else {id_: address_of(id_) for id_ in self._voters},
            bootstrap_servers=tuple(address_of(id_) for id_ in controllers) if self.is_dynamic else (),
            election_timeout_ms=timeout_ms,
            election_backoff_max_ms=timeout_ms,
            fetch_timeout_ms=2 * timeout_ms,
            request_timeout_ms=random.choice((200, 500, 1500)),
            retry_backoff_ms=random.choice((20, 80)),
            fetch_max_bytes=random.choice((100, 300, 1_048_576)),
            fetch_snapshot_max_bytes=random.choice((200, 1_048_576)),
            death_grace_ms=random.choice((0, 50, 300)),
            auto_join=self.is_dynamic and random.random() < 0.5,
        )
        keys = {id_: self._new_key(id_) for id_ in (*controllers, *observers)}
        bootstrap = self._bootstrap_snapshot(keys) if self.is_dynamic else None
        self.nodes: dict[int, RaftNode] = {}
        for id_, key in keys.items():
            store = self._add_store(key, bootstrap if id_ in self._voters else None)
            self._add_node(id_, store)
        self.client = Client(self.schedule, CLIENT_ID, SimClock(0))
        self.network.add(self.client)
        self.client.start()

        self._fault_us = int((2 + 6 * random.random()) * SECOND_US)
        self._vote_crash = draw.probability(0.05)
        self._office_crash = draw.probability(0.2)
        self._install_crash = draw.probability(0.2)
        self._is_unlucky = random.random() < 0.2
        self._happenings = Happenings(self.schedule, random)
        happens = self._happenings.add
        happens(random.choice((2.0, 6.0, 20.0)), self._propose)
        happens(draw.per_second(0.5), self._take_snapshot)
        happens(draw.per_second(0.3), self._crash_one)
        happens(draw.per_second(0.3), self._crash_in_step)
        happens(draw.per_second(0.08), self._crash_all)
        happens(draw.per_second(0.3), self._pause_one)
        happens(draw.per_second(0.5), self._cut)
        happens(draw.per_second(0.4), self._break)
        happens(draw.per_second(0.2), self._jump_clock)
        happens(draw.per_second(0.2), self._drift_clock)
        happens(draw.per_second(0.5), self._ring_early)
        happens(draw.per_second(0.2), self._resign)
        happens(draw.per_second(0.3), self._describe)
        self._stumble = 0.0
        if random.random() < 0.1:
            # Leaders that give up when others have not flushed what is committed, and successors that crash as they stand.
            self.disk_faults.slow_flush, self.disk_faults.slow_flush_us = 0.5, 200_000
            self._stumble = 0.5
            happens(100.0, self._give_up_before_a_flush)
        self._new_address = draw.probability(0.1)
        is_upgraded = not self.is_dynamic and random.random() < 0.3
        if is_upgraded:
            happens(0.5, self._upgrade)
        if self.is_dynamic or is_upgraded:
            happens(draw.per_second(0.6), self._add_voter)
            happens(draw.per_second(0.5), self._remove_voter)
        if self.is_dynamic:
            # While voters have no directory ids, an empty disk passes for the one that voted.
            happens(draw.per_second(0.1), self._wipe)

    # Making it.

    def _new_key(self, node_id: int) -> ReplicaKey:
        self._next_directory += 1
        return ReplicaKey(node_id, Uuid(node_id.to_bytes(8, "big") + self._next_directory.to_bytes(8, "big")))

    def _bootstrap_snapshot(self, keys: dict[int, ReplicaKey]) -> tuple[SnapshotId, Snapshot]:
        voters = VoterSet(Voter(keys[id_], ((LISTENER, address_of(id_)),), 0, 1) for id_ in self._voters)
        return SnapshotId(0, 0), Snapshot(0, 1, voters.record())

    def _add_store(self, key: ReplicaKey, bootstrap: tuple[SnapshotId, Snapshot] | None) -> RaftStore:
        store = self.stores[key] = self._new_store(key, bootstrap)
        return store

    def _add_node(self, node_id: int, store: RaftStore) -> None:
        node = RaftNode(
            self.schedule,
            node_id,
            SimClock(1_000_000 + self.random.randrange(1_000_000)),
            random=self.random,
            network=self.network,
            disk_faults=self.disk_faults,
            checks=self.checks,
            store=store,
            new_quorum=self._boot_quorum,
            trace=self.trace,
        )
        node.on_crash = self._restart_later
        node.on_vote = self._maybe_crash_voter
        node.on_office = self._maybe_crash_leader
        node.on_install = self._maybe_crash_installer
        self.nodes[node_id] = node
        self.network.add(node)

    def _boot_quorum(self, store: RaftStore, recovered: Recovered) -> Quorum:
        id_ = store.key.id
        can_vote = id_ in self._controllers
        # One that moved tells the leader so; it is reached at its old address too.
        port = address_of(id_).port + (self.random.random() < self._new_address)
        endpoints = {LISTENER: Address(address_of(id_).host, port)}
        setting = replace(self._setting, own=store.key, can_vote=can_vote, endpoints=endpoints)
        return self._new_quorum(setting, recovered, self._draw_below)

    def _draw_below(self, bound: int) -> int:
        """What the replicas draw. In unlucky runs about the same, so that they stand at the same time."""
        return self.random.randrange(min(bound, UNLUCKY_BELOW) if self._is_unlucky else bound)

    def _voters_of(self, store: RaftStore) -> list[ReplicaKey]:
        """The voters that the end of a replica's log says; those of the configuration while it says none."""
        _, record = store.voters_before(store.live.end_offset)
        if record is not None:
            return [ReplicaKey(one.voter_id, one.voter_directory_id) for one in record.voters]
        return [] if self.is_dynamic else [self.nodes[id_].store.key for id_ in self._voters]

    # Running it.

    def run(self) -> Outcome:
        error: BaseException | None = None
        try:
            for node in self.nodes.values():
                node.start()
            self.schedule.run_until(self._fault_us)
            self._heal()
            self._require_liveness()
        except Exception as caught:  # whatever the code under test raises is a finding
            error = caught
        checks = self.checks
        return Outcome(
            seed=self.seed,
            error=error,
            steps=self.schedule.steps,
            virtual_ms=self.schedule.now_us // 1000,
            facts={
                "crashes": sum(node.crashes for node in self.nodes.values()),
                "elections": checks.elections,
                "commits": len(checks.committed),
                "acknowledged": checks.acknowledged,
                "truncations": checks.truncations,
                "snapshots_installed": checks.snapshots_installed,
                "voter_changes": checks.voter_changes,
            },
        )

    def say(self, text: str) -> None:
        if self.trace is not None:
            self.trace.add(self.schedule.now_us, "", f"*** {text}")

    def _heal(self) -> None:
        self.say("all faults end")
        self._happenings.stop()
        self._vote_crash = self._office_crash = self._install_crash = self._stumble = 0.0
        self._is_unlucky = False
        self.network.faults.heal()
        self.network.heal()
        self.disk_faults.heal()
        for node in self.nodes.values():
            node.crash_countdown = 0
            node.clock.set_rate(self.schedule.now_us, 1_000_000)
            node.resume()
            node.start()
            node.arm()

    def _require_liveness(self) -> None:
        """One leader, equal logs, and a commit that began after the faults ended."""
        end_us = self.schedule.now_us + LIVENESS_US
        goal: int | None = None
        while self.schedule.now_us < end_us:
            self.schedule.run_until(self.schedule.now_us + LOOK_US)
            leader = self._leader()
            if leader is None:
                continue
            if goal is None:
                goal = self.checks.commit_end
                leader.propose([b"after the faults"])
            elif self.checks.commit_end > goal and self._are_equal(leader):
                return
            elif leader.store.live.end_offset == leader.progress.high_watermark:
                goal = None  # it was lost with an old leader
        raise InvariantError(f"no progress within {LIVENESS_US // SECOND_US} s after the faults ended: {self._positions()}")

    def _leader(self) -> RaftNode | None:
        leading = [node for node in self.nodes.values() if node.leading_epoch is not None and node.is_up and not node.is_paused]
        return max(leading, key=lambda node: node.leading_epoch or 0, default=None)

    def _are_equal(self, leader: RaftNode) -> bool:
        end = leader.store.live.end_offset
        return all(
            node.store.live.end_offset == end and node.progress.high_watermark == end and node.progress.next_offset == end
            for node in self.nodes.values()
        )

    def _positions(self) -> str:
        return "; ".join(node.describe() for node in self.nodes.values())

    # What happens to it.

    def _some(self) -> RaftNode | None:
        up = [node for node in self.nodes.values() if node.is_up]
        # Leaders twice as often: what befalls them matters most.
        up += [node for node in up if node.leading_epoch is not None]
        return self.random.choice(up) if up else None

    def _propose(self) -> None:
        leader = self._leader() if self.random.random() < 0.8 else self._some()
        if leader is None or leader.is_paused:
            return
        # Many small batches now and then: a tail that takes others several fetches.
        for _ in range(self.random.choice((1, 1, 1, 1, 8))):
            if leader.leading_epoch is None:
                return
            count = 1 + self.random.randrange(3)
            values = [b"%d" % (self._next_value + at) * self.random.choice((1, 30)) for at in range(count)]
            self._next_value += count
            leader.propose(values)

    def _take_snapshot(self) -> None:
        node = self._some()
        if node is not None and not node.is_paused:
            node.take_snapshot()

    def _crash_one(self) -> None:
        node = self._some()
        if node is not None:
            self.say(f"crash of node {node.node_id}")
            node.crash()

    def _crash_in_step(self) -> None:
        node = self._some()
        if node is not None and not node.is_paused:
            node.crash_countdown = 1 + self.random.randrange(6)

    def _maybe_crash_voter(self, node: RaftNode) -> None:
        """Soon after its vote is on disk: before or after it is told."""
        if node.store.election.voted == node.store.key and self.random.random() < self._stumble:
            faults = self.network.faults  # about when its requests arrive, and before they are answered
            node.after_us(faults.min_delay_us + self.random.randrange(faults.spread_us), node.crash)
        elif self.random.random() < self._vote_crash:
            node.crash_countdown = 1 + self.random.randrange(3)

    def _maybe_crash_installer(self, node: RaftNode) -> None:
        """Soon after a snapshot has its name: the log may still be the old one."""
        if self.random.random() < self._install_crash:
            node.crash_countdown = 1 + self.random.randrange(3)

    def _maybe_crash_leader(self, node: RaftNode) -> None:
        """Soon after its election, when others have some of its log and little is committed."""
        if self.random.random() < self._office_crash:
            node.after_us(self.random.choice((3_000, 30_000)) * self.random.randrange(8) // 8, node.crash)

    def _crash_all(self) -> None:
        self.say("crash of the whole cluster")
        for node in self.nodes.values():
            node.crash()

    def _restart_later(self, node: RaftNode) -> None:
        delay_us = self.random.choice((10_000, 300_000, 2 * SECOND_US))
        if self.random.random() < self._stumble:
            delay_us = 10_000
        self.schedule.after(int(delay_us * self.random.random()), node.start)

    def _pause_one(self) -> None:
        node = self._some()
        if node is not None and not node.is_paused:
            self.say(f"node {node.node_id} stands still")
            node.pause()
            self.schedule.after(int(self.random.choice((300_000, 2 * SECOND_US)) * self.random.random()), self._resume, node)

    def _resume(self, node: RaftNode) -> None:
        if node.is_paused:
            self.say(f"node {node.node_id} goes on")
            node.resume()

    def _cut(self) -> None:
        leader = self._leader()
        if leader is not None and self.random.random() < 0.4:
            # With a minority on its side it goes on writing what will be in nobody else's log.
            others = [id_ for id_ in self._voters if id_ != leader.node_id]
            near = others[: self.random.randrange(len(others) // 2 + 1)] if others else []
            far = [id_ for id_ in self.nodes if id_ != leader.node_id and id_ not in near]
            ways = [way for id_ in far for way in ((leader.node_id, id_), (id_, leader.node_id))]
        else:
            ways = draw_cut(self.random, self.nodes)
        self.say(f"cut {ways}")
        self.network.cut(ways)
        self.schedule.after(int(self.random.choice((400_000, 3 * SECOND_US)) * self.random.random()), self._mend, ways)

    def _mend(self, ways: list[tuple[int, int]]) -> None:
        self.say(f"mended {ways}")
        self.network.mend(ways)

    def _break(self) -> None:
        if len(self.nodes) > 1:
            a, b = self.random.sample(list(self.nodes), 2)
            self.say(f"connections between {a} and {b} break")
            self.network.break_connection(a, b)

    def _jump_clock(self) -> None:
        node = self._some()
        if node is not None:
            delta_ms = self.random.randint(-MAX_JUMP_MS, MAX_JUMP_MS)
            self.say(f"the clock of node {node.node_id} jumps by {delta_ms} ms")
            node.clock.jump(self.schedule.now_us, delta_ms)
            node.arm()

    def _drift_clock(self) -> None:
        node = self._some()
        if node is not None:
            node.clock.set_rate(self.schedule.now_us, self.random.randint(900_000, 1_100_000))
            node.arm()

    def _ring_early(self) -> None:
        node = self._some()
        if node is not None and not node.is_paused:
            node.handle_deadline()

    def _resign(self) -> None:
        """As a leader that stops does: some are then gone for a while."""
        leader = self._leader()
        if leader is not None:
            is_final = self.random.random() < 0.5
            self.say(f"node {leader.node_id} is asked to resign{' for good' if is_final else ''}")
            leader.step(ResignRequested(is_final))
            if is_final:
                leader.after_us(self.random.randrange(300_000), leader.crash)

    def _give_up_before_a_flush(self) -> None:
        """A leader comes back from a crash at once and says that its epoch is over; a follower has not flushed what it got."""
        leader = self._leader()
        if leader is None:
            return
        end = self.checks.commit_end
        voters = [self.nodes[key.id].store for key in self._voters_of(leader.store)]
        if any(store.durable.end_offset < end == store.live.end_offset for store in voters):
            leader.crash()
            leader.start()

    def _describe(self) -> None:
        topic = DescribeQuorumRequestTopicData(
            topic_name=METADATA_TOPIC, partitions=[DescribeQuorumRequestPartitionData(partition_index=0)]
        )
        self._ask_leader(DescribeQuorumRequest(topics=[topic]))

    # Changes of voters.

    def _ask_leader(self, message: Message) -> None:
        leader = self._leader() if self.random.random() < 0.9 else self._some()
        if leader is not None:
            self._next_request += 1
            self.say(f"node {leader.node_id} is asked: {brief(message)}")
            self.network.send(self.client, self._next_request, leader.node_id, message, 5_000)

    def _upgrade(self) -> None:
        """From voters in the configuration to voters in the log."""
        leader = self._leader()
        if leader is not None:
            self.say(f"node {leader.node_id} is asked to raise kraft.version")
            leader.step(KRaftVersionProposed(1))

    def _add_voter(self) -> None:
        node = self.nodes[self.random.choice(self._controllers)]
        self._asked_to_join.add(node.store.key)
        listener = AddRaftVoterRequestListener(name=LISTENER, host=address_of(node.node_id).host, port=address_of(0).port)
        self._ask_leader(
            AddRaftVoterRequest(
                cluster_id=CLUSTER_ID,
                timeout_ms=self.random.choice((500, 5_000)),
                voter_id=node.node_id,
                voter_directory_id=node.store.key.directory_id,
                listeners=[listener],
            )
        )

    def _remove_voter(self) -> None:
        leader = self._leader()
        if leader is None:
            return
        voters = self._voters_of(leader.store)
        gone = [key for key in voters if self.nodes[key.id].store.key != key]
        if not gone and len(voters) < 2:
            return
        key = self.random.choice(gone or voters)
        self._asked_to_leave.add(key)
        self._ask_leader(RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=key.id, voter_directory_id=key.directory_id))

    def _wipe(self) -> None:
        """A node comes back with an empty disk. Only as long as what is lost is a minority of every set that may count, without
        those who are about to leave it, and never one that is about to be added: that would be a voter that nobody can bring
        back."""
        node = self.nodes[self.random.choice(self._controllers)]
        key = node.store.key
        is_coming = self._setting.auto_join or key in self._asked_to_join
        for other in self.nodes.values():
            for voters in other.store.voters_that_may_count(self.checks.commit_end):
                members = [ReplicaKey(one.voter_id, one.voter_directory_id) for one in voters.voters]
                lost = [one for one in members if one == key or self.nodes[one.id].store.key != one]
                kept = set(members) - set(lost) - self._asked_to_leave
                if (is_coming and key not in members) or (key in members and len(lost) >= len(kept)):
                    return
        self.say(f"the disk of node {node.node_id} is replaced")
        node.crash()
        node.store = self._add_store(self._new_key(node.node_id), None)
