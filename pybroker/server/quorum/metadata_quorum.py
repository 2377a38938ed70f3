"""The thread that runs a node's metadata replica, and what the rest of the node may ask of it.

Everything that happens to the replica comes through one inbox: requests to the controller, messages of other replicas,
answers to ours, connections that broke. The thread takes all there is as a round, then flushes once. The inbox needs no limit
of its own: a connection waits for its answer before it sends again, and connections have one. Images go to the publishing
thread, and so do answers of the controller: they are given when what they speak of is done on this node.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple, Protocol

from pybroker.base.address import Address
from pybroker.metadata.controller.controller import Controller
from pybroker.metadata.controller.features import KRAFT_VERSION, unsupported
from pybroker.metadata.controller.refusals import refused
from pybroker.metadata.image import MetadataImage
from pybroker.network.request import Request
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.raft.events import (
    NodeLost,
    RequestDropped,
    RequestFailed,
    RequestReceived,
    ResignRequested,
    ResponseReceived,
    Send,
    SnapshotId,
)
from pybroker.raft.quorum import Quorum
from pybroker.server.quorum.publishing import Publishing
from pybroker.server.quorum.replica import Done, MetadataReplica, SnapshotJob
from pybroker.server.quorum.store import MetadataLogError, MetadataStore

logger = logging.getLogger(__name__)

MAX_ROUND: Final = 1000
MAX_WAIT_MS: Final = 3_600_000
# How long a leader that stops waits for the others to hear of it.
GOODBYE_MS: Final = 500
RETRY_MS: Final = 1000

Work = Callable[[int], None]


class Peers(Protocol):
    """How messages reach other nodes."""

    def send(self, address: Address, request: Message, timeout_ms: int, done: Callable[[Message | None], None]) -> None:
        """`done` gets the answer, or None if there is none, once, on any thread."""


class Leader(NamedTuple):
    """Who leads the quorum as far as this node knows; `id` is None while nobody does."""

    epoch: int
    id: int | None


class MetadataQuorum:
    """Also the replica's outbox, on the quorum's own thread."""

    def __init__(
        self,
        store: MetadataStore,
        new_replica: Callable[[MetadataQuorum], MetadataReplica],
        *,
        peers: Peers,
        now_ms: Callable[[], int],
        write_snapshot: Callable[[SnapshotJob], None],
    ) -> None:
        """`write_snapshot` may take its time, on a thread of its own."""
        self.leader = Leader(0, None)
        self.last_leader_id: int | None = None  # the leader, or who led last while nobody does
        self.publishing = Publishing()
        self._store = store
        self._peers = peers
        self._now_ms = now_ms
        self._write_snapshot = write_snapshot
        self._replica = new_replica(self)
        self._inbox: SimpleQueue[Work | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="metadata-quorum", daemon=True)
        # Held while something is put into the inbox, so that nothing is put behind the end of it.
        self._inbox_lock = threading.Lock()
        self._is_stopped = False
        self._is_failing = False  # a write failed, and has not succeeded since
        self._is_dead = False  # a flush failed: nobody knows what is on disk
        self._retry_at_ms: int | None = None
        self._tokens: dict[int, _Waiting] = {}
        self._next_token = 0
        self._in_flight = 0
        self._new_leader_heard: list[Callable[[], None]] = []
        self._first_high_watermark: int | None = None

    # Any thread.

    @property
    def image(self) -> MetadataImage:
        """As it is applied on this node."""
        return self.publishing.image

    @property
    def is_active(self) -> bool:
        """Whether this node's controller decides."""
        return self._replica.is_active

    @property
    def has_failed(self) -> bool:
        """Whether the log of this node cannot be written now: it knows nothing of who leads, and refuses what it is asked."""
        # Not what the replica says of itself, which takes every attempt to begin anew for a success.
        return self._is_failing or self._is_dead

    @property
    def leader_address(self) -> Address | None:
        """Where the leader of the quorum is reached, if that is known."""
        return self._replica.quorum.leader_address

    @property
    def has_caught_up(self) -> bool:
        """Whether everything is applied here that was committed when this node first heard of it, the cluster's first records
        among it."""
        first = self._first_high_watermark
        return first is not None and self.image.offset + 1 >= first and bool(self.image.features)

    def standing(self) -> str:
        """For people: how far this replica is."""
        quorum = self._replica.quorum
        voters = ", ".join(str(voter.key.id) for voter in quorum.voters) or "not known yet"
        leader = "no leader" if quorum.leader_id is None else f"leader {quorum.leader_id}"
        return f"voters {voters}; {leader} in epoch {quorum.epoch}; metadata up to offset {self.image.offset}"

    def finalized_features(self) -> Mapping[str, int]:
        """Those that this release supports, the quorum's own among them."""
        image, kraft_version = self.image, self._replica.quorum.kraft_version
        kraft = {KRAFT_VERSION: kraft_version} if kraft_version else {}
        unknown = unsupported(image.features)
        return {name: level for name, level in image.features.items() if name not in unknown} | kraft

    def on_new_leader(self, heard: Callable[[], None]) -> None:
        """Have `heard` called, on the quorum's thread, whenever another replica leads than before."""
        self._new_leader_heard.append(heard)

    def start(self) -> None:
        """MetadataLogError if the files are not usable after all."""
        self.publishing.start()
        self._replica.start(self._now_ms())
        self._replica.end_round(self._now_ms())
        self._note_high_watermark()
        self._thread.start()

    def submit(self, request: Message, version: int, done: Done) -> None:
        """See ControllerChannel. A request that cannot be taken is answered at once."""
        assert Controller.handles(request), f"the controller knows no {type(request).__name__}"

        def decided(response: Message) -> None:
            self.publishing.post(partial(done, response))

        if not self._post(lambda now_ms: self._replica.submit(now_ms, request, version, decided)):
            done(refused(request, ErrorCode.NOT_CONTROLLER, "The controller of this node is not running.", version))

    def forward(self, request: Request, message: Message, done: Callable[[Message | None], None]) -> None:
        """As `submit`, on behalf of the client that sent `request`; also what only the quorum machine can answer."""
        if Controller.handles(message):
            self.submit(message, request.version, done)
        else:
            self.receive(message, done, lambda: done(None))

    def receive(self, message: Message, done: Done, give_up: Callable[[], None], connection: Hashable | None = None) -> None:
        """A message for the quorum machine; `give_up` is called instead of `done` if it is not running. Of a `connection` that
        is closed nothing is kept."""

        def take(now_ms: int) -> None:
            if self._replica.is_failed:
                give_up()
                return
            self._next_token += 1
            self._tokens[self._next_token] = _Waiting(done, give_up, connection)
            self._replica.step(now_ms, RequestReceived(self._next_token, message))

        if not self._post(take):
            give_up()

    def connection_closed(self, connection: Hashable) -> None:
        """Nobody waits for the answers to what came over it."""

        def drop(now_ms: int) -> None:
            for token in [token for token, waiting in self._tokens.items() if waiting.connection is connection]:
                del self._tokens[token]
                self._replica.step(now_ms, RequestDropped(token))

        self._post(drop)

    def address_lost(self, address: Address) -> None:
        """Every connection to that address broke, or it refuses new ones."""

        def tell(now_ms: int) -> None:
            quorum = self._replica.quorum
            if quorum.leader_id is not None and quorum.leader_address == address:
                self._replica.step(now_ms, NodeLost(quorum.leader_id))

        self._post(tell)

    def with_controller(self, act: Callable[[int, Controller], None]) -> None:
        """Have `act` done to the active controller, if it is this node's."""

        def run(now_ms: int) -> None:
            if self._replica.controller is not None:
                act(now_ms, self._replica.controller)

        self._post(run)

    def stop(self) -> None:
        """Answer what was submitted, resign, then end. Does nothing the second time."""
        with self._inbox_lock:
            if self._is_stopped:
                return
            self._is_stopped = True
            self._inbox.put(self._say_goodbye)
        if self._thread.ident is not None:
            self._thread.join()
        self.publishing.stop()
        self._store.close()

    def _post(self, work: Work) -> bool:
        with self._inbox_lock:
            if self._is_stopped:
                return False
            self._inbox.put(work)
            return True

    # The replica's outbox, on the thread.

    def send(self, order: Send) -> None:
        self._in_flight += 1
        asker = self._replica.quorum

        def done(message: Message | None) -> None:
            event = RequestFailed(order.request_id) if message is None else ResponseReceived(order.request_id, message)
            self._inbox.put(partial(self._answered, asker, event))

        self._peers.send(order.address, order.message, order.timeout_ms, done)

    def _answered(self, asker: Quorum, event: RequestFailed | ResponseReceived, now_ms: int) -> None:
        self._in_flight -= 1
        # One that began anew since counts its requests anew, too.
        if asker is self._replica.quorum:
            self._replica.step(now_ms, event)

    def respond(self, token: int, message: Message) -> None:
        waiting = self._tokens.pop(token, None)
        if waiting is not None:
            waiting.done(message)

    def write_snapshot(self, job: SnapshotJob) -> None:
        threading.Thread(target=self._snapshot, args=(job,), name="metadata-snapshot", daemon=True).start()

    def _snapshot(self, job: SnapshotJob) -> None:
        try:
            self._write_snapshot(job)
        except Exception as error:
            logger.error(
                "snapshot %s of the metadata could not be written: %s",
                *(job.snapshot, error),
                exc_info=None if isinstance(error, OSError) else error,
            )
            self._post(lambda now_ms: self._replica.snapshot_failed(job.snapshot))
        else:
            self._post(partial(self._snapshot_written, job.snapshot))

    def _snapshot_written(self, snapshot: SnapshotId, now_ms: int) -> None:
        logger.info("wrote snapshot %s of the metadata", snapshot)
        self._replica.snapshot_written(now_ms, snapshot)

    def leader_changed(self, epoch: int, leader_id: int | None) -> None:
        self.leader = Leader(epoch, leader_id)
        if leader_id is not None:
            self.last_leader_id = leader_id
            logger.info("node %d leads the metadata quorum in epoch %d", leader_id, epoch)
            for heard in self._new_leader_heard:
                heard()

    # The thread.

    def _run(self) -> None:
        goes_on = True
        while goes_on:
            taken, goes_on = self._take()
            self._run_round(taken)

    def _take(self) -> tuple[list[Work], bool]:
        """What is in the inbox, waiting for the first or the deadline; and whether more can come, None being the end."""
        taken: list[Work] = []
        deadline_ms = self._replica.deadline_ms if self._retry_at_ms is None else self._retry_at_ms
        wait_ms = min(max(deadline_ms - self._now_ms(), 0), MAX_WAIT_MS)
        try:
            work = self._inbox.get(timeout=wait_ms / 1000)
            while work is not None:
                taken.append(work)
                if len(taken) == MAX_ROUND:
                    return taken, True
                work = self._inbox.get_nowait()
        except Empty:
            return taken, True
        return taken, False

    def _run_round(self, taken: list[Work]) -> None:
        for work in taken:
            self._guarded(work)
        if self._retry_at_ms is not None and self._retry_at_ms <= self._now_ms():
            self._guarded(self._retry)
        if self._replica.deadline_ms <= self._now_ms():
            self._guarded(self._replica.deadline_passed)
        self._guarded(self._flush)
        self._note_high_watermark()

    def _note_high_watermark(self) -> None:
        high_watermark = self._replica.quorum.high_watermark
        if self._first_high_watermark is None and high_watermark is not None:
            # Seen by whoever waits for it once everything before it is applied.
            self.publishing.post(lambda: setattr(self, "_first_high_watermark", high_watermark))

    def _guarded(self, work: Work) -> None:
        try:
            work(self._now_ms())
        except OSError as error:
            if not self._is_dead:
                if not self._is_failing:
                    logger.error("the metadata log cannot be written: %s. It is tried again.", error)
                self._is_failing = True
                self._retry_at_ms = self._now_ms() + RETRY_MS
                self._fail(str(error))
        except MetadataLogError as error:
            self._die(str(error))
        except Exception as error:
            logger.exception("the metadata replica failed")
            self._die(repr(error))

    def _flush(self, now_ms: int) -> None:
        try:
            self._replica.end_round(now_ms)
        except OSError as error:
            # What is on disk now nobody knows; only a restart, which reads it, can tell.
            self._die(f"a flush of the metadata log failed: {error}")

    def _retry(self, now_ms: int) -> None:
        self._retry_at_ms = None
        self._replica.restart(now_ms)
        self._is_failing = False
        logger.info("the metadata log is written again")

    def _die(self, reason: str) -> None:
        if not self._is_dead:
            self._is_dead = True
            logger.critical("the metadata of this node is not kept up any more: %s. Restart it when the cause is gone.", reason)
        self._retry_at_ms = None
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        self._replica.fail(reason)
        tokens, self._tokens = self._tokens, {}
        for waiting in tokens.values():
            waiting.give_up()

    def _say_goodbye(self, now_ms: int) -> None:
        """Nothing is taken in any more; a leader tells the others that it goes, so that they need not find out."""
        self._guarded(self._flush)
        was_leader = self._replica.quorum.is_leader
        self._guarded(lambda now_ms: self._replica.step(now_ms, ResignRequested(is_final=True)))
        end_ms = now_ms + GOODBYE_MS
        while was_leader and self._in_flight and (left_ms := end_ms - self._now_ms()) > 0:
            try:
                work = self._inbox.get(timeout=left_ms / 1000)
            except Empty:
                break
            if work is not None:
                self._guarded(work)
        tokens, self._tokens = self._tokens, {}
        for waiting in tokens.values():
            waiting.give_up()
        self._inbox.put(None)


class _Waiting(NamedTuple):
    """Another node, for an answer of the quorum machine."""

    done: Done
    give_up: Callable[[], None]
    connection: Hashable | None
