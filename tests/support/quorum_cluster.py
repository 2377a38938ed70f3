"""Several quorum machines in virtual time, with disks and a network in memory, and a transcript of what they do.

Everything is exact: a message takes `delay_ms`, a flush `flush_ms`, and the random draws are those of a seed. A replica that
crashes loses what it did not flush; its connections break, which the others learn at once.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.protocol.internal.control_records import KRaftVersionRecord, VotersRecord
from pybroker.protocol.message import Message
from pybroker.protocol.messages import api_versions
from pybroker.protocol.records.batch import RecordBatch, iter_batches
from pybroker.protocol.records.builder import BatchBuilder
from pybroker.protocol.records.control import ControlType, control_type
from pybroker.raft import events as e
from pybroker.raft.quorum import Quorum
from pybroker.raft.setting import QuorumSetting
from pybroker.raft.voters import Voter, VoterSet

LISTENER = "CONTROLLER"


def address_of(node_id: int) -> e.Address:
    return e.Address(f"host{node_id}", 9093)


def directory_of(node_id: int, disk: int = 0) -> Uuid:
    return Uuid(bytes([node_id & 0xFF, disk]) + bytes(13) + b"\x07")


def key_of(node_id: int, disk: int = 0) -> e.ReplicaKey:
    return e.ReplicaKey(node_id, directory_of(node_id, disk))


def batch_of(offset: int, epoch: int, *values: bytes) -> bytes:
    builder = BatchBuilder(offset, partition_leader_epoch=epoch)
    for value in values:
        builder.append(0, None, value)
    return bytes(builder.build())


@dataclass
class Disk:
    """What survives a crash, as far as it was flushed."""

    election: e.ElectionState = field(default_factory=e.ElectionState)
    batches: list[RecordBatch] = field(default_factory=list)
    start_offset: int = 0
    flushed_offset: int = 0
    snapshots: dict[e.SnapshotId, bytes] = field(default_factory=dict)
    snapshot_voters: dict[e.SnapshotId, tuple[int, VotersRecord | None]] = field(default_factory=dict)

    @property
    def end_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else self.start_offset

    @property
    def snapshot(self) -> e.SnapshotId | None:
        return max(self.snapshots, default=None)

    def truncate(self, end_offset: int) -> None:
        while self.batches and self.batches[-1].next_offset > end_offset:
            assert self.batches.pop().base_offset >= end_offset, "truncation within a batch"
        self.flushed_offset = min(self.flushed_offset, end_offset)

    def recovered(self) -> e.Recovered:
        snapshot = self.snapshot
        epochs: list[e.EpochStart] = []
        version, voters = 0, []
        if snapshot is not None:
            version, record = self.snapshot_voters.get(snapshot, (0, None))
            if record is not None:
                voters.append(e.VotersAt(snapshot.end_offset - 1, record))
            if snapshot.end_offset == self.start_offset > 0:
                epochs.append(e.EpochStart(snapshot.epoch, snapshot.end_offset))
        for batch in self.batches:
            if not epochs or batch.partition_leader_epoch > epochs[-1].epoch:
                epochs.append(e.EpochStart(batch.partition_leader_epoch, batch.base_offset))
            for kind, offset, value in control_rows(batch):
                if kind is ControlType.KRAFT_VERSION:
                    version = KRaftVersionRecord.decode(0, value).k_raft_version
                elif kind is ControlType.KRAFT_VOTERS:
                    voters.append(e.VotersAt(offset, VotersRecord.decode(0, value)))
        return e.Recovered(self.election, self.start_offset, self.end_offset, tuple(epochs), snapshot, version, tuple(voters))

    def entries(self) -> list[tuple[int, int]]:
        """(epoch, offset) of every record."""
        return [
            (batch.partition_leader_epoch, offset)
            for batch in self.batches
            for offset in range(batch.base_offset, batch.next_offset)
        ]

    def values(self) -> list[bytes]:
        return [record.value or b"" for batch in self.batches if not batch.is_control for record in batch.records()]


def control_rows(batch: RecordBatch) -> Iterable[tuple[ControlType | None, int, bytes]]:
    if batch.is_control:
        for record in batch.records():
            yield control_type(record.key), record.offset, record.value or b""


class Replica:
    def __init__(self, cluster: Cluster, setting: QuorumSetting) -> None:
        self.cluster = cluster
        self.setting = setting
        self.id = setting.own.id
        self.disk = Disk()
        self.quorum: Quorum | None = None
        self.life = 0  # what was sent in an earlier one comes back to nobody
        self.flushes = True
        self.kraft_versions = (0, 1)  # what its ApiVersions says
        self.tokens: dict[int, Callable[[Message], None]] = {}
        self.parts: dict[e.SnapshotId, bytes] = {}
        self.high_watermark = 0
        self.announced: list[tuple[int, int | None]] = []

    @property
    def q(self) -> Quorum:
        assert self.quorum is not None, f"{self.id} is down"
        return self.quorum


@dataclass(eq=False)
class Call:
    """A request that is under way."""

    source: int
    target: int
    fail: Callable[[], None]
    is_over: bool = False


class Cluster:
    """`static` voters by id, or `dynamic` ones written into a bootstrap snapshot; `observers` besides."""

    def __init__(
        self,
        static: Iterable[int] = (),
        *,
        dynamic: Iterable[int] = (),
        observers: Iterable[int] = (),
        controllers: Iterable[int] = (),
        seed: int = 1,
        **setting: object,
    ) -> None:
        self.now_ms = 1_000_000
        self.random = random.Random(seed)
        self.delay_ms = 1
        self.flush_ms = 1
        self.lines: list[str] = []
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._token = 0
        self.cut: set[tuple[int, int]] = set()  # (from, to): messages are lost
        self._calls: list[Call] = []
        self.replicas: dict[int, Replica] = {}
        self.options = setting
        static, dynamic = list(static), list(dynamic)
        addresses = {id_: address_of(id_) for id_ in static}
        self.bootstrap = tuple(address_of(id_) for id_ in dynamic)
        self.static = addresses
        for id_ in [*static, *dynamic]:
            self.add(id_)
        if dynamic:
            voters = VoterSet(Voter(key_of(id_), ((LISTENER, address_of(id_)),), 0, 1) for id_ in dynamic)
            for id_ in dynamic:
                self.replicas[id_].disk.snapshots[e.SnapshotId(0, 0)] = b"bootstrap"
                self.replicas[id_].disk.snapshot_voters[e.SnapshotId(0, 0)] = (1, voters.record())
        for id_ in observers:
            self.add(id_, can_vote=False)
        for id_ in controllers:
            self.add(id_)

    def add(self, id_: int, *, can_vote: bool = True, disk: int = 0, **options: object) -> Replica:
        setting = QuorumSetting(
            cluster_id="cluster",
            own=key_of(id_, disk),
            can_vote=can_vote,
            listener=LISTENER,
            endpoints={LISTENER: address_of(id_)} if can_vote else {},
            static_voters=self.static,
            bootstrap_servers=self.bootstrap,
            **(self.options | options),  # type: ignore[arg-type]
        )
        self.replicas[id_] = Replica(self, setting)
        return self.replicas[id_]

    def __getitem__(self, id_: int) -> Quorum:
        return self.replicas[id_].q

    # Time.

    def at(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._order, action))

    def run(self, for_ms: int) -> None:
        self.run_until(lambda: False, for_ms)

    def run_until(self, is_done: Callable[[], bool], within_ms: int = 20_000) -> bool:
        end_ms = self.now_ms + within_ms
        while not is_done():
            due = [(r.q.deadline_ms, r.id) for r in self.replicas.values() if r.quorum and r.q.deadline_ms is not None]
            next_ms, id_ = min(due, default=(end_ms + 1, -1))
            if self._queue and self._queue[0][0] <= next_ms:
                if self._queue[0][0] > end_ms:
                    break
                at_ms, _, action = heapq.heappop(self._queue)
                self.now_ms = max(self.now_ms, at_ms)
                action()
            elif next_ms <= end_ms:
                self.now_ms = max(self.now_ms, next_ms)
                self.step(id_, e.DeadlinePassed())
            else:
                break
        else:
            return True
        self.now_ms = end_ms
        return False

    def leader(self) -> int | None:
        """Whom a majority of those that live follow."""
        up = [r for r in self.replicas.values() if r.quorum is not None]
        leaders = [r for r in up if r.q.is_leader]
        if not leaders:
            return None
        latest = max(leaders, key=lambda r: r.q.epoch)
        voters = [r for r in up if r.id in latest.q.voters.by_id]
        follow = [r for r in voters if r.q.leader_id == latest.id and r.q.epoch == latest.q.epoch]
        return latest.id if len(follow) > len(latest.q.voters) // 2 else None

    def elect(self, within_ms: int = 20_000) -> int:
        found = self.run_until(lambda: self.leader() is not None, within_ms)
        assert found, "no leader\n" + self.transcript()
        leader = self.leader()
        assert leader is not None
        return leader

    # Replicas.

    def start(self, *ids: int) -> None:
        for id_ in ids or self.replicas:
            replica = self.replicas[id_]
            replica.quorum = Quorum(replica.setting, replica.disk.recovered(), draw_below=self.random.randrange)
            replica.life += 1
            replica.high_watermark = 0
            self.say(id_, "starts")
            self.step(id_, e.Started())

    def crash(self, id_: int) -> None:
        replica = self.replicas[id_]
        replica.quorum = None
        replica.tokens.clear()
        replica.parts.clear()
        replica.disk.truncate(self._whole(replica))
        self.say(id_, "crashes")
        for other in list(self.replicas):
            if other != id_ and not self.is_cut(id_, other):
                self.disconnect(other, id_)

    def disconnect(self, id_: int, node_id: int) -> None:
        """The connections of `id_` with the node break: what was asked over them fails."""
        self.step(id_, e.NodeLost(node_id))
        for call in [call for call in self._calls if (call.source, call.target) == (id_, node_id)]:
            self._end(call)
            call.fail()

    def _end(self, call: Call) -> bool:
        """Whether it was under way until now."""
        if call.is_over:
            return False
        call.is_over = True
        self._calls.remove(call)
        return True

    @staticmethod
    def _whole(replica: Replica) -> int:
        """The end of the last batch that was flushed."""
        ends = [b.next_offset for b in replica.disk.batches if b.next_offset <= replica.disk.flushed_offset]
        return max(ends, default=replica.disk.start_offset)

    def is_cut(self, source: int, target: int) -> bool:
        return (source, target) in self.cut

    def partition(self, *ids: int) -> None:
        """Cut `ids` off from all others, in both directions."""
        for inside in ids:
            for outside in self.replicas:
                if outside not in ids:
                    self.cut |= {(inside, outside), (outside, inside)}

    def heal(self) -> None:
        self.cut.clear()

    def propose(self, *values: bytes) -> int:
        """To the leader; the offset behind the records."""
        leader = self.leader()
        assert leader is not None
        return self.propose_to(leader, *values)

    def propose_to(self, id_: int, *values: bytes) -> int:
        q = self[id_]
        self.step(id_, e.Proposed(q.epoch, batch_of(q.log_end_offset, q.epoch, *values)))
        return q.log_end_offset

    def ask(self, id_: int, message: Message) -> list[Message]:
        """A request from outside; the answer is in the list when it has come."""
        answers: list[Message] = []
        self.request(id_, message, answers.append)
        return answers

    def request(self, id_: int, message: Message, answer: Callable[[Message], None]) -> None:
        replica = self.replicas[id_]
        self._token += 1
        replica.tokens[self._token] = answer
        self.step(id_, e.RequestReceived(self._token, message))

    # Effects.

    def step(self, id_: int, event: e.Event) -> None:
        replica = self.replicas[id_]
        if replica.quorum is None:
            return
        for effect in replica.quorum.step(self.now_ms, event):
            self._run(replica, effect)

    def say(self, id_: int, text: str) -> None:
        self.lines.append(f"{self.now_ms - 1_000_000:>6} {id_}: {text}")

    def transcript(self) -> str:
        return "\n".join(self.lines)

    def _run(self, replica: Replica, effect: e.Effect) -> None:
        id_, disk = replica.id, replica.disk
        match effect:
            case e.PersistElection(state):
                disk.election = state
                voted = "" if state.voted is None else f", votes for {state.voted.id}"
                self.say(id_, f"epoch {state.epoch}, leader {state.leader_id}{voted}")
            case e.AnnounceLeader(epoch, leader_id):
                replica.announced.append((epoch, leader_id))
            case e.AdvanceHighWatermark(offset):
                assert offset > replica.high_watermark or not offset
                replica.high_watermark = offset
                self.say(id_, f"committed up to {offset}")
            case e.AppendRecords(data):
                batches = list(iter_batches(data))
                assert batches[0].base_offset == disk.end_offset
                disk.batches += batches
                if replica.flushes:
                    self._flush_later(replica)
            case e.TruncateLog(end_offset):
                self.say(id_, f"truncates to {end_offset}")
                disk.truncate(end_offset)
            case e.Send():
                self._send(replica, effect)
            case e.Respond(token, message):
                replica.tokens.pop(token)(message)
            case e.RespondWithRecords(token, message, offset, _):
                chosen = [bytes(b.view()) for b in disk.batches if b.next_offset > offset]
                assert chosen, f"{id_} has nothing at {offset}"
                message.responses[0].partitions[0].records = b"".join(chosen)  # type: ignore[attr-defined]
                replica.tokens.pop(token)(message)
            case e.RespondWithSnapshot(token, message, snapshot, position, max_bytes):
                partition = message.topics[0].partitions[0]  # type: ignore[attr-defined]
                data = disk.snapshots.get(snapshot)
                if data is None:
                    partition.error_code = 98
                elif position >= len(data):
                    partition.error_code = 99
                else:
                    partition.size = len(data)
                    partition.unaligned_records = data[position : position + max_bytes]
                replica.tokens.pop(token)(message)
            case e.StoreSnapshotChunk(snapshot, position, data):
                replica.parts[snapshot] = replica.parts.get(snapshot, b"")[:position] + data
            case e.InstallSnapshot(snapshot):
                self._install(replica, snapshot)
            case e.Trace(text):
                self.say(id_, text)

    def flush(self, id_: int) -> None:
        replica = self.replicas[id_]
        replica.disk.flushed_offset = replica.disk.end_offset
        self.step(id_, e.Flushed(replica.disk.end_offset))

    def _flush_later(self, replica: Replica) -> None:
        life = replica.life

        def flush() -> None:
            if replica.life == life and replica.quorum is not None:
                self.flush(replica.id)

        self.at(self.flush_ms, flush)

    def _install(self, replica: Replica, snapshot: e.SnapshotId) -> None:
        disk, data = replica.disk, replica.parts.pop(snapshot)
        source = next(r.disk for r in self.replicas.values() if r.disk.snapshots.get(snapshot) == data)
        version, voters = source.snapshot_voters.get(snapshot, (0, None))
        disk.snapshots[snapshot] = data
        disk.snapshot_voters[snapshot] = (version, voters)
        disk.batches.clear()
        disk.start_offset = disk.flushed_offset = snapshot.end_offset
        self.say(replica.id, f"installs {snapshot.end_offset}-{snapshot.epoch}")
        self.at(0, lambda: self.step(replica.id, e.SnapshotInstalled(snapshot, version, voters)))

    def snapshot(self, id_: int, data: bytes, *, move_start: bool = True) -> e.SnapshotId:
        """Let the replica take one at its high watermark, and drop the log before it."""
        replica = self.replicas[id_]
        q, disk = replica.q, replica.disk
        end = q.high_watermark
        assert end is not None
        epoch = max(epoch for epoch, offset in disk.entries() if offset < end)
        snapshot = e.SnapshotId(end, epoch)
        disk.snapshots[snapshot] = data
        disk.snapshot_voters[snapshot] = (q.kraft_version, q.voters.record() if q.kraft_version else None)
        self.step(id_, e.SnapshotTaken(snapshot))
        if move_start:
            disk.batches = [b for b in disk.batches if b.base_offset >= end]
            disk.start_offset = end
            self.step(id_, e.LogStartMoved(end))
        return snapshot

    # The network.

    def _send(self, replica: Replica, send: e.Send) -> None:
        life = replica.life
        target = next((r for r in self.replicas.values() if address_of(r.id) == send.address), None)
        target_id = -1 if target is None else target.id

        def back(event: e.Event) -> None:
            if replica.life == life:
                self.step(replica.id, event)

        call = Call(replica.id, target_id, lambda: back(e.RequestFailed(send.request_id)))
        self._calls.append(call)

        def fail() -> None:
            if self._end(call):
                call.fail()

        def arrive() -> None:
            if call.is_over:
                return
            if target is None or self.replicas[target_id].quorum is None:
                if target is not None:
                    back(e.NodeLost(target_id))
                fail()
            elif self.is_cut(replica.id, target_id):
                self.at(send.timeout_ms, fail)
            elif isinstance(send.message, api_versions.ApiVersionsRequest):
                assert send.message.client_software_name, "a real node does not answer who has no name"
                assert send.message.client_software_version
                answer(self._versions(self.replicas[target_id]))
            else:
                self.request(target_id, send.message, answer)
                self.at(send.timeout_ms, fail)

        def answer(message: Message) -> None:
            if not self.is_cut(target_id, replica.id):
                self.at(self.delay_ms, lambda: deliver(message))

        def deliver(message: Message) -> None:
            if self._end(call):
                back(e.ResponseReceived(send.request_id, message))

        self.at(self.delay_ms, arrive)

    @staticmethod
    def _versions(target: Replica) -> api_versions.ApiVersionsResponse:
        least, most = target.kraft_versions
        features = [api_versions.SupportedFeatureKey(name="kraft.version", min_version=least, max_version=most)]
        return api_versions.ApiVersionsResponse(error_code=0, api_keys=[], supported_features=features)


__all__ = ["LISTENER", "ZERO_UUID", "Cluster", "Replica", "address_of", "batch_of", "directory_of", "key_of"]
