"""A node's replica of the metadata: joins the quorum machine, its files, the loader of what is committed, and, while this
replica leads, the controller.

A plain object of one thread, stepped with the time: no clock, no thread, no socket; files only through the store. Whatever
is decided is answered when it is committed and published. A write that fails is a crash of the replica, not of the
process: `restart` begins it anew from what is on disk, and meanwhile the last image stands.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from pybroker.metadata.controller.controller import Controller
from pybroker.metadata.controller.decisions import Result
from pybroker.metadata.controller.features import TRANSACTIONS, metadata_version, record_version
from pybroker.metadata.controller.refusals import refused
from pybroker.metadata.image import MetadataImage
from pybroker.protocol.errors import ErrorCode, ProtocolError
from pybroker.protocol.internal.control_records import VotersRecord
from pybroker.protocol.internal.metadata_log import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
)
from pybroker.protocol.message import Message
from pybroker.protocol.messages.fetch import FetchResponse
from pybroker.protocol.messages.raft import FetchSnapshotResponse
from pybroker.raft.events import (
    AdvanceHighWatermark,
    AnnounceLeader,
    AppendRecords,
    DeadlinePassed,
    Effect,
    Event,
    Flushed,
    InstallSnapshot,
    KRaftVersionProposed,
    LogStartMoved,
    PersistElection,
    Proposed,
    Recovered,
    ResignRequested,
    Respond,
    RespondWithRecords,
    RespondWithSnapshot,
    Send,
    SnapshotBroken,
    SnapshotId,
    SnapshotInstalled,
    SnapshotTaken,
    Started,
    StoreSnapshotChunk,
    Trace,
    TruncateLog,
)
from pybroker.raft.quorum import Quorum
from pybroker.server.metadata_snapshot import SnapshotError, record_batches
from pybroker.server.quorum.loader import MetadataLoader, Publisher
from pybroker.server.quorum.store import MetadataStore

logger = logging.getLogger(__name__)

Done = Callable[[Message], None]

NEVER_MS: Final = 1 << 62


class Outbox(Protocol):
    """The ways out of the replica. Nothing here may block."""

    def send(self, order: Send) -> None: ...

    def respond(self, token: int, message: Message) -> None: ...

    def write_snapshot(self, job: SnapshotJob) -> None:
        """Write it, on any thread, and say `snapshot_written` when it is durable, `snapshot_failed` if it could not be."""


class SnapshotJob(NamedTuple):
    snapshot: SnapshotId
    path: str
    image: MetadataImage
    kraft_version: int
    voters: VotersRecord | None
    timestamp_ms: int


class ReplicaSettings(NamedTuple):
    node_id: int
    max_batch_bytes: int
    max_idle_ms: int  # metadata.max.idle.interval.ms
    snapshot_bytes: int  # metadata.log.max.record.bytes.between.snapshots
    snapshot_interval_ms: int  # metadata.log.max.snapshot.interval.ms, 0 for never


class _DecisionError(Exception):
    """The controller could not decide, or what it decided cannot be written; it is logged, and nothing is done."""


class _Pending(NamedTuple):
    """Decided, and to be answered when everything before `end_offset` is committed."""

    end_offset: int
    request: Message
    version: int
    response: Message
    done: Done


class _Encoded(NamedTuple):
    """Records, those of their transaction among them, as they are to be written from `offset` on."""

    offset: int
    records: list[Message]
    data: bytes


class MetadataReplica:
    def __init__(
        self,
        settings: ReplicaSettings,
        store: MetadataStore,
        outbox: Outbox,
        *,
        new_quorum: Callable[[Recovered], Quorum],
        publish: Publisher,
        new_controller: Callable[[MetadataImage], Controller] | None = None,
        first_records: Callable[[], Sequence[Message]] = tuple,
        on_leader: Callable[[int, int | None], None] = lambda epoch, leader_id: None,
    ) -> None:
        """`publish` hears of every change, `on_leader` who leads which epoch. `new_controller` makes the controller of one
        that may lead; `first_records` begin a new cluster's log."""
        self.loader = MetadataLoader(publish)
        self.controller: Controller | None = None
        self.is_failed = False
        self._settings = settings
        self._store = store
        self._outbox = outbox
        self._new_quorum = new_quorum
        self._new_controller = new_controller
        self._first_records = first_records
        self._on_leader = on_leader
        self.quorum = new_quorum(store.recovered())
        self._pending: deque[_Pending] = deque()
        self._high_watermark = 0
        self._claimed_epoch: int | None = None  # led, but the controller has not begun
        self._last_proposal_ms = 0
        self._snapshot_job: SnapshotId | None = None  # being written, perhaps since before a restart
        self._snapshot_due_ms = NEVER_MS
        self._bytes_since_snapshot = 0

    def start(self, now_ms: int) -> None:
        latest = self._store.latest_snapshot
        if latest is not None:
            with self._store.open_snapshot(latest) as content:
                self.loader.replace(latest, content.records())
        self._snapshot_taken_at(now_ms)
        self._bytes_since_snapshot = self._store.size_from(self.loader.next_offset)
        self.step(now_ms, Started())

    def restart(self, now_ms: int) -> None:
        """After a failure: as a new process would, but for the image, which only ever holds what is committed."""
        self._store.reopen(now_ms)
        self.quorum = self._new_quorum(self._store.recovered())
        self.is_failed = False
        self.step(now_ms, Started())

    @property
    def image(self) -> MetadataImage:
        return self.loader.image

    @property
    def is_active(self) -> bool:
        """Whether this replica's controller decides."""
        return self.controller is not None

    @property
    def deadline_ms(self) -> int:
        if self.is_failed:
            return NEVER_MS
        deadline_ms = NEVER_MS if self.quorum.deadline_ms is None else self.quorum.deadline_ms
        controller = self.controller
        if controller is not None:
            if controller.deadline_ms is not None:
                deadline_ms = min(deadline_ms, controller.deadline_ms)
            if self._settings.max_idle_ms and self.quorum.has_followers:
                deadline_ms = min(deadline_ms, self._last_proposal_ms + self._settings.max_idle_ms)
        return min(deadline_ms, self._snapshot_due_ms)

    # What happens to it.

    def step(self, now_ms: int, event: Event) -> None:
        """Something the quorum machine must know."""
        if self.is_failed:
            return
        events = deque([event])
        while events:
            for effect in self.quorum.step(now_ms, events.popleft()):
                self._run(now_ms, effect, events)
        self._load(now_ms)

    def deadline_passed(self, now_ms: int) -> None:
        """Harmless too early."""
        if self.is_failed:
            return
        quorum_ms = self.quorum.deadline_ms
        if quorum_ms is not None and quorum_ms <= now_ms:
            self.step(now_ms, DeadlinePassed())
        controller = self.controller
        if controller is not None and controller.deadline_ms is not None and controller.deadline_ms <= now_ms:
            try:
                self._decide(now_ms, lambda: controller.tick(now_ms))
            except _DecisionError:
                # It would be due again at once, and whoever is dead would never be fenced: another may do better.
                self.step(now_ms, ResignRequested())
        idle_ms = self._settings.max_idle_ms
        if self.controller is not None and idle_ms and self._last_proposal_ms + idle_ms <= now_ms:
            if self.quorum.has_followers:
                self._propose(now_ms, [NoOpRecord()])
            else:
                self._last_proposal_ms = now_ms
        if self._snapshot_due_ms <= now_ms:
            self._begin_snapshot(now_ms)

    def end_round(self, now_ms: int) -> None:
        """Make durable what was written since the last time, one flush for all of it; and what is written upon that."""
        while not self.is_failed and (end_offset := self._store.flush(now_ms)) is not None:
            self.step(now_ms, Flushed(end_offset))

    def submit(self, now_ms: int, request: Message, version: int, done: Done) -> None:
        """Have the controller decide; `done` gets the response when that is committed and published here."""
        assert Controller.handles(request), f"the controller knows no {type(request).__name__}"
        controller = self.controller
        if controller is None:
            if self.is_failed:
                self._refuse(
                    request, version, done, ErrorCode.KAFKA_STORAGE_ERROR, "The metadata log of this node cannot be written."
                )
            else:
                self._refuse(request, version, done, ErrorCode.NOT_CONTROLLER, "The active controller is another node.")
            return
        try:
            result = self._decide(now_ms, lambda: controller.handle(now_ms, request, version))
        except _DecisionError:
            self._refuse(request, version, done, ErrorCode.UNKNOWN_SERVER_ERROR, "The controller failed on this request.")
            return
        except Exception as error:
            self._refuse(request, version, done, ErrorCode.KAFKA_STORAGE_ERROR, f"The metadata log cannot be written: {error}")
            raise
        assert result is not None
        if self.controller is None:
            self._refuse(request, version, done, ErrorCode.NOT_CONTROLLER, "The controller resigned.")
        else:
            # Without records of its own it was decided by what others wrote, which may not be committed yet.
            self._pending.append(_Pending(self.quorum.log_end_offset, request, version, result.response, done))
            self._answer()

    def snapshot_written(self, now_ms: int, snapshot: SnapshotId) -> None:
        if snapshot != self._snapshot_job:
            return
        self._snapshot_job = None
        if not self._store.leads_to(snapshot):
            # What it stands for was committed, but lost here by a failure since; the next start goes on behind it.
            return
        self._store.taken(snapshot)
        self._snapshot_taken_at(now_ms)
        self.step(now_ms, SnapshotTaken(snapshot))
        start = self._store.clean(now_ms)
        if start is not None:
            self.step(now_ms, LogStartMoved(start))

    def snapshot_failed(self, snapshot: SnapshotId) -> None:
        """The next one is due as ever."""
        if snapshot == self._snapshot_job:
            self._snapshot_job = None

    def fail(self, reason: str) -> None:
        """The files cannot be trusted: nothing is done or answered until `restart`."""
        self.is_failed = True
        self._resigned(ErrorCode.KAFKA_STORAGE_ERROR, f"The metadata log of this node has failed: {reason}")
        self._on_leader(self.quorum.epoch, None)

    # Effects.

    def _run(self, now_ms: int, effect: Effect, events: deque[Event]) -> None:
        match effect:
            case Send():
                self._outbox.send(effect)
            case Respond(token, message):
                self._outbox.respond(token, message)
            case RespondWithRecords(token, message, offset, max_bytes):
                assert isinstance(message, FetchResponse)
                message.responses[0].partitions[0].records = self._store.read(offset, max_bytes) or b""
                self._outbox.respond(token, message)
            case AppendRecords(data):
                self._bytes_since_snapshot += len(data)
                self._store.append(data, now_ms)
            case AdvanceHighWatermark(offset):
                self._high_watermark = offset
                self._store.set_high_watermark(offset)
            case PersistElection(state):
                self._store.persist_election(state, self.quorum.kraft_version)
            case AnnounceLeader(epoch, leader_id):
                self._leader_changed(epoch, leader_id)
            case TruncateLog(end_offset):
                self._store.truncate_to(end_offset, now_ms)
            case RespondWithSnapshot(token, message, snapshot, position, max_bytes):
                assert isinstance(message, FetchSnapshotResponse)
                self._outbox.respond(token, self._with_chunk(message, snapshot, position, max_bytes))
            case StoreSnapshotChunk(snapshot, position, data):
                self._store.store_chunk(snapshot, position, data)
            case InstallSnapshot(snapshot):
                self._install(now_ms, snapshot, events)
            case Trace(text):
                logger.info("%s", text)

    def _install(self, now_ms: int, snapshot: SnapshotId, events: deque[Event]) -> None:
        try:
            installed = self._store.install(snapshot, now_ms)
        except SnapshotError as error:
            logger.warning("a snapshot of the metadata is fetched again: %s", error)
            events.append(SnapshotBroken(snapshot))
            return
        with installed as content:
            self.loader.replace(snapshot, content.records())
            events.append(SnapshotInstalled(snapshot, content.kraft_version, content.voters))
        self._snapshot_taken_at(now_ms)

    def _with_chunk(
        self, message: FetchSnapshotResponse, snapshot: SnapshotId, position: int, max_bytes: int
    ) -> FetchSnapshotResponse:
        row = message.topics[0].partitions[0]
        chunk = self._store.read_chunk(snapshot, position, max_bytes)
        if chunk is None:
            row.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
        elif position > chunk[0]:
            row.error_code = ErrorCode.POSITION_OUT_OF_RANGE
        else:
            row.size, row.unaligned_records = chunk
        return message

    def _leader_changed(self, epoch: int, leader_id: int | None) -> None:
        if leader_id == self._settings.node_id:
            self._claimed_epoch = epoch
            return
        self._resigned(ErrorCode.NOT_CONTROLLER, "The active controller is another node.")
        self._on_leader(epoch, leader_id)

    def _resigned(self, code: ErrorCode, reason: str) -> None:
        """What was not committed may be lost, or not: whoever asked must ask the next controller."""
        self._claimed_epoch = None
        self.controller = None
        pending, self._pending = self._pending, deque()
        for one in pending:
            self._refuse(one.request, one.version, one.done, code, reason)

    # What is committed.

    def _load(self, now_ms: int) -> None:
        loader, end = self.loader, self._high_watermark
        if loader.next_offset < end:
            loader.replay(self._store.entries(loader.next_offset, end))
            loader.publish()
            self._maybe_begin_snapshot(now_ms)
        if self._claimed_epoch is not None:
            self._claim(now_ms, self._claimed_epoch)
        self._answer()

    def _answer(self) -> None:
        while self._pending and self._pending[0].end_offset <= self._high_watermark:
            one = self._pending.popleft()
            _call(one.done, one.response)

    def _claim(self, now_ms: int, epoch: int) -> None:
        """Begin to decide, once everything before this epoch, and its first record, is committed and loaded."""
        quorum = self.quorum
        start_offset = quorum.epoch_start_offset
        if self._new_controller is None or start_offset is None or self.loader.next_offset <= start_offset:
            return
        self._claimed_epoch = None
        self.controller = self._new_controller(self.loader.image)
        self.controller.start(now_ms)
        logger.info("this node is the active controller, in epoch %d from offset %d on", epoch, quorum.log_end_offset)
        if self.loader.in_transaction:
            logger.warning("a metadata transaction was left open by the controller before; it is aborted")
            self._write(now_ms, self._encoded(now_ms, [AbortTransactionRecord(reason="the controller changed")]))
        if not self.image.features:
            self._propose(now_ms, self._first_records())
        self._on_leader(epoch, self._settings.node_id)

    # Decisions.

    def _decide(self, now_ms: int, decide: Callable[[], Result | None]) -> Result | None:
        """Decide by everything that was written, committed or not, and write what comes of it."""
        controller, quorum = self.controller, self.quorum
        assert controller is not None
        if controller.next_offset < quorum.log_end_offset:
            controller.advance(quorum.log_end_offset - 1, quorum.epoch)
        try:
            result = decide()
        except Exception as error:
            logger.exception("the controller failed")
            raise _DecisionError from error
        if result is not None and result.records:
            self._propose(now_ms, result.records)
        if result is not None and result.kraft_version is not None:
            self.step(now_ms, KRaftVersionProposed(result.kraft_version))
        return result

    def _propose(self, now_ms: int, records: Sequence[Message]) -> None:
        """_DecisionError if there is no way to write `records` down."""
        try:
            batches = self._encoded(now_ms, records)
        except ProtocolError as error:
            logger.exception("what the controller decided cannot be written")
            raise _DecisionError from error
        written = self._write(now_ms, batches)
        controller = self.controller
        if controller is None:
            return
        try:
            for offset, record in written:
                controller.replay(offset, self.quorum.epoch, record)
        except Exception:
            # It now believes something else than the log says: another replica, or this one anew, must take over.
            logger.exception("the controller cannot follow its own records, and resigns")
            self.step(now_ms, ResignRequested())

    def _encoded(self, now_ms: int, records: Sequence[Message]) -> _Encoded:
        """As they are to follow the log; ProtocolError if one is beyond what its message can carry."""
        quorum, limit = self.quorum, self._settings.max_batch_bytes
        controller = self.controller
        level = metadata_version(self.image if controller is None else controller.image)
        versioned = [(record, record_version(type(record), level)) for record in records]
        offset, epoch = quorum.log_end_offset, quorum.epoch
        batches = list(record_batches(versioned, offset, epoch, now_ms, limit))
        if len(batches) > 1 and level >= TRANSACTIONS:
            versioned = [(BeginTransactionRecord(), 0), *versioned, (EndTransactionRecord(), 0)]
            batches = list(record_batches(versioned, offset, epoch, now_ms, limit))
        return _Encoded(offset, [record for record, _version in versioned], b"".join(batches))

    def _write(self, now_ms: int, encoded: _Encoded) -> list[tuple[int, Message]]:
        """Append to the log of the quorum; all of it counts, or nothing. What was written, with its offsets."""
        self._last_proposal_ms = now_ms
        self.step(now_ms, Proposed(self.quorum.epoch, encoded.data))
        return list(enumerate(encoded.records, encoded.offset))

    @staticmethod
    def _refuse(request: Message, version: int, done: Done, code: ErrorCode, message: str) -> None:
        _call(done, refused(request, code, message, version))

    # Snapshots.

    def _snapshot_taken_at(self, now_ms: int) -> None:
        interval_ms = self._settings.snapshot_interval_ms
        self._snapshot_due_ms = now_ms + interval_ms if interval_ms else NEVER_MS
        self._bytes_since_snapshot = 0

    def _maybe_begin_snapshot(self, now_ms: int) -> None:
        if self._bytes_since_snapshot >= self._settings.snapshot_bytes:
            self._begin_snapshot(now_ms)

    def _begin_snapshot(self, now_ms: int) -> None:
        self._snapshot_taken_at(now_ms)
        image = self.image
        snapshot = SnapshotId(image.offset + 1, image.epoch)
        latest = self._store.latest_snapshot
        newest = 0 if latest is None else latest.end_offset
        if self._snapshot_job is not None or snapshot.end_offset <= newest:
            return
        self._snapshot_job = snapshot
        kraft_version, voters = self.quorum.voters_at(image.offset)
        path = self._store.path_of(snapshot)
        self._outbox.write_snapshot(SnapshotJob(snapshot, path, image, kraft_version, voters, now_ms))


def _call(done: Done, response: Message) -> None:
    try:
        done(response)
    except Exception:
        logger.exception("the answer %s could not be given", type(response).__name__)
