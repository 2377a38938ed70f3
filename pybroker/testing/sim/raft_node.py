"""A replica of the quorum on a simulated node: runs the effects of the quorum machine on a disk in memory and the network."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Final

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse, SupportedFeatureKey
from pybroker.protocol.messages.fetch import FetchResponse
from pybroker.protocol.messages.raft import FetchSnapshotResponse, VoteRequest, VoteResponse
from pybroker.protocol.records.builder import BatchBuilder
from pybroker.raft.events import (
    Address,
    AdvanceHighWatermark,
    AnnounceLeader,
    AppendRecords,
    DeadlinePassed,
    Effect,
    Event,
    Flushed,
    InstallSnapshot,
    LogStartMoved,
    NodeLost,
    PersistElection,
    Proposed,
    Recovered,
    RequestDropped,
    RequestFailed,
    RequestReceived,
    Respond,
    RespondWithRecords,
    RespondWithSnapshot,
    ResponseReceived,
    Send,
    SnapshotId,
    SnapshotInstalled,
    SnapshotTaken,
    Started,
    StoreSnapshotChunk,
    TruncateLog,
)
from pybroker.raft.events import (
    Trace as TraceEffect,
)
from pybroker.raft.quorum import Quorum
from pybroker.testing.sim.clock import SimClock
from pybroker.testing.sim.faults import DiskFaults
from pybroker.testing.sim.network import Call, Network
from pybroker.testing.sim.node import SimNode
from pybroker.testing.sim.raft_checks import Progress, RaftChecks, require
from pybroker.testing.sim.raft_store import RaftStore, Snapshot, StoredBatch, decode_snapshot
from pybroker.testing.sim.schedule import Schedule
from pybroker.testing.sim.trace import Trace, brief

PORT: Final = 9093
API_VERSIONS: Final = ApiVersionsResponse(
    error_code=0,
    api_keys=[],
    supported_features=[SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)],
)


def address_of(node_id: int) -> Address:
    return Address(f"node{node_id}", PORT)


def node_at(address: Address) -> int:
    return int(address.host.removeprefix("node"))


class RaftNode(SimNode):
    def __init__(
        self,
        schedule: Schedule,
        node_id: int,
        clock: SimClock,
        *,
        random: Random,
        network: Network,
        disk_faults: DiskFaults,
        checks: RaftChecks,
        store: RaftStore,
        new_quorum: Callable[[RaftStore, Recovered], Quorum],
        trace: Trace | None,
    ) -> None:
        super().__init__(schedule, node_id, clock)
        self.store = store
        self.quorum: Quorum | None = None
        self.leading_epoch: int | None = None
        self.progress = Progress(0, 0)
        self.crash_countdown = 0  # effects until a crash between two of them
        self.on_crash: Callable[[RaftNode], None] = lambda node: None
        self.on_vote: Callable[[RaftNode], None] = lambda node: None
        self.on_install: Callable[[RaftNode], None] = lambda node: None
        self.on_office: Callable[[RaftNode], None] = lambda node: None
        self._random = random
        self._network = network
        self._disk_faults = disk_faults
        self._checks = checks
        self._new_quorum = new_quorum
        self._trace = trace
        self._calls: dict[int, Call] = {}
        self._dropped: set[int] = set()
        self._next_token = 0
        self._proposals: deque[StoredBatch] = deque()
        self._is_writing_snapshot = False
        self._is_installing = False
        self._runners: dict[type[Any], Callable[[Any], None]] = {
            PersistElection: self._persist,
            AppendRecords: self._append,
            TruncateLog: self._truncate,
            Send: self._send,
            Respond: self._respond,
            RespondWithRecords: self._respond_with_records,
            RespondWithSnapshot: self._respond_with_snapshot,
            StoreSnapshotChunk: self._store_chunk,
            InstallSnapshot: self._install,
            AdvanceHighWatermark: self._advance,
            AnnounceLeader: self._announce,
            TraceEffect: lambda effect: None,
        }

    # The process.

    def boot(self) -> None:
        store = self.store
        latest = store.latest_snapshot
        self.progress = Progress(0, 0)
        if latest is not None:
            self.progress = Progress(latest.end_offset, decode_snapshot(store.snapshots[latest]).checksum)
        self.quorum = self._new_quorum(store, store.recovered())
        self.step(Started())

    def lose_memory(self) -> None:
        self.say("crashed")
        self.quorum = None
        self.leading_epoch = None
        self.crash_countdown = 0
        self._calls.clear()
        self._dropped.clear()
        self._proposals.clear()
        self._is_writing_snapshot = self._is_installing = False
        self.store.crash(self._random)
        self._network.process_ended(self)
        self.on_crash(self)

    def next_deadline_ms(self) -> int | None:
        return None if self.quorum is None else self.quorum.deadline_ms

    def handle_deadline(self) -> None:
        self.step(DeadlinePassed())

    def handle_request(self, call: Call) -> None:
        if isinstance(call.message, ApiVersionsRequest):  # a node answers it without asking its replica
            self._network.respond(call, API_VERSIONS)
            return
        self._next_token += 1
        call.token = self._next_token
        self._calls[call.token] = call
        self.step(RequestReceived(call.token, call.message))

    def handle_request_dropped(self, call: Call) -> None:
        if self._calls.pop(call.token, None) is not None:
            self._dropped.add(call.token)
            self.step(RequestDropped(call.token))

    def handle_response(self, request_id: int, message: Message) -> None:
        self.step(ResponseReceived(request_id, message))

    def handle_failure(self, request_id: int) -> None:
        self.step(RequestFailed(request_id))

    def handle_node_lost(self, node_id: int) -> None:
        self.step(NodeLost(node_id))

    def step(self, event: Event) -> None:
        quorum = self.quorum
        assert quorum is not None
        if self._trace is not None:
            self.say(f"> {brief(event)}")
        runners = self._runners
        for effect in quorum.step(self.now_ms(), event):
            if self._trace is not None:
                self._say_effect(effect)
            runners[type(effect)](effect)
            if self.crash_countdown:
                self.crash_countdown -= 1
                if not self.crash_countdown:
                    self.crash()
                    return
        if self.store.needs_flush and not self.store.is_flushing:
            self._begin_flush()
        self.arm()

    # Effects.

    def _persist(self, effect: PersistElection) -> None:
        self.store.election = effect.state
        self._checks.persisted(self.store, effect.state)
        if effect.state.voted is not None:
            self.on_vote(self)

    def _append(self, effect: AppendRecords) -> None:
        live = self.store.live
        before = live.batches[-1] if live.batches else None
        for batch in self.store.append(effect.data):
            self._checks.appended(self.store, before, batch)
            before = batch

    def _truncate(self, effect: TruncateLog) -> None:
        gone = self.store.truncate(effect.end_offset)
        self._checks.truncated(self.store, self.progress, gone, effect.end_offset)

    def _send(self, effect: Send) -> None:
        self._network.send(self, effect.request_id, node_at(effect.address), effect.message, effect.timeout_ms)

    def _respond(self, effect: Respond) -> None:
        self._answer(effect.token, effect.message)

    def _respond_with_records(self, effect: RespondWithRecords) -> None:
        message = effect.message
        assert isinstance(message, FetchResponse)
        message.responses[0].partitions[0].records = self.store.live.read(effect.offset, effect.max_bytes)
        self._answer(effect.token, message)

    def _respond_with_snapshot(self, effect: RespondWithSnapshot) -> None:
        message = effect.message
        assert isinstance(message, FetchSnapshotResponse)
        row = message.topics[0].partitions[0]
        data = self.store.snapshots.get(effect.snapshot)
        if data is None:
            row.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
        elif effect.position > len(data):
            row.error_code = ErrorCode.POSITION_OUT_OF_RANGE
        else:
            row.size = len(data)
            row.unaligned_records = data[effect.position : effect.position + effect.max_bytes]
        self._answer(effect.token, message)

    def _answer(self, token: int, message: Message) -> None:
        call = self._calls.pop(token, None)
        if call is None:
            require(token in self._dropped, self.store, f"request {token} was answered twice: {brief(message)}")
            self._dropped.remove(token)
            return
        request = call.message
        if isinstance(message, VoteResponse) and message.topics and isinstance(request, VoteRequest):
            vote = request.topics[0].partitions[0]
            if message.topics[0].partitions[0].vote_granted and not vote.pre_vote:
                self._checks.granted(self.store, vote.replica_epoch, vote.replica_id)
        self._network.respond(call, message)

    def _store_chunk(self, effect: StoreSnapshotChunk) -> None:
        self.store.store_chunk(effect.snapshot, effect.position, bytes(effect.data))

    def _install(self, effect: InstallSnapshot) -> None:
        snapshot = self.store.install(effect.snapshot)
        self._checks.snapshot_seen(self.store, effect.snapshot, snapshot)
        self.progress.next_offset, self.progress.checksum = effect.snapshot.end_offset, snapshot.checksum
        self._is_installing = True
        event = SnapshotInstalled(effect.snapshot, snapshot.kraft_version, snapshot.voters)
        self.after_us(self._random.randrange(5_000), self._installed, event)
        self.on_install(self)

    def _installed(self, event: SnapshotInstalled) -> None:
        self._is_installing = False
        self.step(event)

    def _advance(self, effect: AdvanceHighWatermark) -> None:
        self._checks.advanced(self.store, self.progress, effect.offset, self.leading_epoch)
        while self._proposals and self._proposals[0].next_offset <= effect.offset:
            self._checks.acknowledge(self._proposals.popleft())

    def _announce(self, effect: AnnounceLeader) -> None:
        if effect.leader_id == self.node_id:
            self.leading_epoch = effect.epoch
            self._checks.elected(self.store, effect.epoch)
            self.on_office(self)
            return
        self.leading_epoch = None
        self._proposals.clear()
        if effect.leader_id is not None:
            self._checks.announced(self.store, effect.epoch, effect.leader_id)

    # The disk.

    def _begin_flush(self) -> None:
        faults, draw = self._disk_faults, self._random.random
        took_us = int(draw() * faults.max_flush_us)
        if draw() < faults.slow_flush:
            took_us += int(draw() * faults.slow_flush_us)
        self.store.begin_flush()
        self.after_us(took_us, self._flushed, self.store.flushes)

    def _flushed(self, flush: int) -> None:
        if flush == self.store.flushes and self.store.is_flushing:  # not one that a new log made void
            self.step(Flushed(self.store.finish_flush()))

    # What the workload asks.

    def propose(self, values: list[bytes]) -> None:
        """As the controller would, while this replica leads."""
        assert self.leading_epoch is not None
        builder = BatchBuilder(self.store.live.end_offset, partition_leader_epoch=self.leading_epoch)
        now_ms = self.now_ms()
        for value in values:
            builder.append(now_ms, None, value)
        self.step(Proposed(self.leading_epoch, bytes(builder.build())))
        live = self.store.live
        if self.leading_epoch is not None and live.batches and self.progress.high_watermark < live.end_offset:
            self._proposals.append(live.batches[-1])

    def take_snapshot(self) -> None:
        """Of what this replica has seen committed; it takes a while until it is on disk."""
        store, end_offset = self.store, self.progress.next_offset
        latest = store.latest_snapshot
        last = store.live.find(end_offset - 1)
        if self._is_writing_snapshot or last is None or (latest is not None and latest.end_offset >= end_offset):
            return
        self._is_writing_snapshot = True
        kraft_version, voters = store.voters_before(end_offset)
        snapshot = Snapshot(self.progress.checksum, kraft_version, voters)
        self.after_us(self._random.randrange(50_000), self._snapshot_written, SnapshotId(end_offset, last.epoch), snapshot)

    def _snapshot_written(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        self._is_writing_snapshot = False
        latest = self.store.latest_snapshot
        if self._is_installing or (latest is not None and latest >= snapshot_id):
            return
        self.store.put_snapshot(snapshot_id, snapshot, self._random.choice((0, 300, 3_000)))
        self.step(SnapshotTaken(snapshot_id))
        if self.is_up and self._random.random() < 0.7:
            self.after_us(self._random.randrange(500_000), self._clean, snapshot_id)

    def _clean(self, snapshot_id: SnapshotId) -> None:
        if snapshot_id in self.store.snapshots and not self._is_installing:
            self.store.clean(snapshot_id)
            self.step(LogStartMoved(self.store.log_start_offset))

    # For people.

    def say(self, text: str) -> None:
        if self._trace is not None:
            self._trace.add(self.schedule.now_us, self.describe(), text)

    def describe(self) -> str:
        quorum, store = self.quorum, self.store
        what = "down" if quorum is None else f"{quorum.role.value} e{quorum.epoch}"
        return f"node {self.node_id} {what} [{store.log_start_offset}..{self.progress.high_watermark}..{store.live.end_offset})"

    def _say_effect(self, effect: Effect) -> None:
        if isinstance(effect, TraceEffect):
            self.say(f"    # {effect.text}")
        else:
            self.say(f"    < {brief(effect)}")
