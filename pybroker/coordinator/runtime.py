"""Runs the shards of a coordinator: one event at a time each, records through the port, answers when they are committed.

Pure, and for one thread at a time: `run` takes a round of events and returns effects. A shard decides (`handle`) and changes
no hard state; its records are buffered and replayed at once, so that the next decision builds on them; at the end of the
round, or when they have lingered as long as is configured, they are appended as one batch per shard. What a decision leads to
goes out when the high watermark has passed everything that was written before it. If an append fails after its records were
replayed, nobody knows better than the log: the shard is thrown away and loaded again, as on a change of leader.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, TypeVar

from pybroker.coordinator.commitment import Commitment
from pybroker.coordinator.shard import (
    DelayTimers,
    Effect,
    Load,
    PartitionWriter,
    Producer,
    Refuse,
    Reply,
    Request,
    Result,
    Shard,
    Token,
    client_code,
)
from pybroker.coordinator.timers import Timers
from pybroker.protocol.errors import ErrorCode, KafkaError, ProtocolError
from pybroker.protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from pybroker.protocol.records.builder import BatchBuilder
from pybroker.protocol.records.compression import Codec
from pybroker.protocol.records.control import ControlType, end_transaction_marker

logger = logging.getLogger(__name__)

RETRY_LOAD_MS: Final = 1000
RETRY_TIMER_MS: Final = 500  # of what could not be written when it was due
# What a record takes beside its key and value, at most: length, attributes, deltas, sizes, no headers.
_RECORD_OVERHEAD: Final = 40
_BATCH_OVERHEAD: Final = 61


class _ShardTimers:
    __slots__ = ("_hosted", "_runtime")

    def __init__(self, runtime: CoordinatorRuntime[Any], hosted: _Hosted[Any]) -> None:
        self._runtime = runtime
        self._hosted = hosted

    def set(self, key: Hashable, delay_ms: int) -> None:
        runtime = self._runtime
        runtime.timers.set((self._hosted, key), runtime.now_ms + delay_ms)

    def cancel(self, key: Hashable) -> None:
        self._runtime.timers.cancel((self._hosted, key))


S = TypeVar("S", bound=Shard)


# Events.


class Elected(NamedTuple):
    """This broker leads `partition` in `epoch`."""

    partition: int
    epoch: int


class Resigned(NamedTuple):
    """This broker does not lead `partition` any more."""

    partition: int


class Loaded(NamedTuple):
    partition: int
    shard: Any
    end_offset: int


class LoadFailed(NamedTuple):
    partition: int
    shard: Any
    problem: str


class Requested(NamedTuple):
    partition: int
    request: Request


class RequestedOfAll(NamedTuple):
    """For every shard that is loaded."""

    request: Request


class TransactionEnded(NamedTuple):
    """A marker of the transaction coordinator for `partition`."""

    partition: int
    producer: Producer
    coordinator_epoch: int
    commits: bool
    token: Token
    transaction_version: int = 0


class HighWatermarkAdvanced(NamedTuple):
    partition: int


Event = Elected | Resigned | Loaded | LoadFailed | Requested | RequestedOfAll | TransactionEnded | HighWatermarkAdvanced


class Phase(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"


class _Hosted(Generic[S]):
    """A partition that this broker leads. Compared by identity: a partition that is led again is another one."""

    __slots__ = (
        "batch",
        "batch_due_ms",
        "batch_effects",
        "batch_limit",
        "commitment",
        "epoch",
        "next_offset",
        "partition",
        "phase",
        "shard",
    )

    shard: S

    def __init__(self, partition: int, epoch: int) -> None:
        self.partition = partition
        self.epoch = epoch
        self.phase = Phase.LOADING
        self.next_offset = 0  # of the next record, those in the open batch counted
        self.commitment = Commitment()
        self.batch: BatchBuilder | None = None
        self.batch_limit = 0
        self.batch_due_ms = 0  # when it has lingered for long enough
        self.batch_effects: list[Effect] = []


_UNLOADED: Final[Any] = None
_COMMIT_TIMEOUT: Final = "commit timeout"
_RETRY: Final = "retry"
_LINGER: Final = "linger"
# append.linger.ms: what a round brings together is written together, and nothing waits for more.
ADAPTIVE: Final = -1
_NO_SHARD: Final = {Phase.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Phase.FAILED: ErrorCode.NOT_COORDINATOR}


class CoordinatorRuntime(Generic[S]):
    def __init__(
        self,
        name: str,
        writer: PartitionWriter,
        new_shard: Callable[[int, DelayTimers], S],
        *,
        commit_timeout_ms: Callable[[], int],
        codec: Codec = Codec.NONE,
        base_sequence: int = 0,
        linger_ms: int = ADAPTIVE,
    ) -> None:
        """`name` is for the log: "group coordinator". `new_shard` makes an empty shard for a partition, whose batches are
        compressed with `codec` and have the `base_sequence` that Apache Kafka's coordinator of that name writes. A batch
        waits `linger_ms` for more records: 0, each decision is written by itself; ADAPTIVE, those of a round together."""
        self.timers = Timers()
        self.now_ms = 0
        self._name = name
        self._writer = writer
        self._new_shard = new_shard
        self._commit_timeout_ms = commit_timeout_ms
        self._base_sequence = base_sequence
        self._codec = codec
        self._linger_ms = linger_ms
        self._hosted: dict[int, _Hosted[S]] = {}
        self._open: dict[_Hosted[S], None] = {}  # with a batch that is not appended yet
        self._effects: list[Effect] = []
        self._wall_ms = 0

    @property
    def deadline_ms(self) -> int | None:
        """When it wants to be run again, at the latest."""
        return self.timers.next_deadline_ms

    @property
    def partitions(self) -> list[int]:
        """Those that are led here; any thread may ask."""
        return list(self._hosted)

    def shard_of(self, partition: int) -> S | None:
        """That which takes requests; None while there is none."""
        hosted = self._hosted.get(partition)
        return hosted.shard if hosted is not None and hosted.phase is Phase.ACTIVE else None

    def epoch_of(self, partition: int, shard: S) -> int | None:
        """In which this broker leads it, without a break since `shard` was loaded; any thread may ask."""
        hosted = self._hosted.get(partition)
        return hosted.epoch if hosted is not None and hosted.shard is shard else None

    def run(self, now_ms: int, wall_ms: int, events: Sequence[Event], *, fires_timers: bool = True) -> list[Effect]:
        """A round: `events` in order, then what is due: who was heard of in time has not timed out. `now_ms` does not jump;
        `wall_ms` is what records are dated by."""
        self.now_ms = now_ms
        self._wall_ms = wall_ms
        effects = self._effects = []
        for event in events:
            try:
                _HANDLE[type(event)](self, event)
            except Exception:
                # The others of the round, and their answers, are not to be lost with it.
                logger.exception("%s: %r failed", self._name, event)
        next_ms = self.timers.next_deadline_ms
        if fires_timers and next_ms is not None and next_ms <= now_ms:
            for key in self.timers.take_due(now_ms):
                self._timed_out(*key)  # type: ignore[misc]
        if self._open:
            for hosted in list(self._open):
                if self._linger_ms <= 0 or now_ms >= hosted.batch_due_ms:
                    self._flush(hosted)
        return effects

    # Leadership.

    def _elected(self, event: Elected) -> None:
        hosted = self._hosted.get(event.partition)
        if hosted is not None:
            if event.epoch <= hosted.epoch:
                return
            if event.epoch == hosted.epoch + 1 and hosted.phase is not Phase.FAILED:
                # Nobody else has led in between: what we know is what the log says.
                hosted.epoch = event.epoch
                if hosted.phase is Phase.ACTIVE:
                    # Of what was committed before this event it was not known in which epoch.
                    self._committed_up_to(hosted, self._writer.high_watermark(event.partition, event.epoch))
                return
            self._unload(hosted)
        self._load(event.partition, event.epoch)

    def _resigned(self, event: Resigned) -> None:
        hosted = self._hosted.get(event.partition)
        if hosted is not None:
            self._unload(hosted)
            logger.info("%s: partition %d is unloaded, this broker does not lead it any more", self._name, event.partition)

    def _load(self, partition: int, epoch: int) -> None:
        hosted: _Hosted[S] = _Hosted(partition, epoch)
        hosted.shard = self._new_shard(partition, _ShardTimers(self, hosted))
        self._hosted[partition] = hosted
        self._effects.append(Load(partition, epoch, hosted.shard))

    def _unload(self, hosted: _Hosted[S]) -> None:
        """Nobody gets the answer that waits for a commit, and what is parked is not ours to answer any more."""
        del self._hosted[hosted.partition]
        self._open.pop(hosted, None)
        waiting = hosted.commitment.take_all() + hosted.batch_effects
        hosted.batch_effects = []
        hosted.batch = None
        tokens = [effect.token for effect in waiting if isinstance(effect, (Reply, Refuse))]
        if hosted.phase is Phase.ACTIVE:
            tokens += hosted.shard.parked()
        self._effects += [Refuse(token, ErrorCode.NOT_COORDINATOR) for token in tokens]
        # Timers that are still to come, some of them in an hour, must not keep all that it knew.
        hosted.shard = _UNLOADED

    def _loaded(self, event: Loaded) -> None:
        hosted = self._hosted.get(event.partition)
        if hosted is None or hosted.shard is not event.shard:
            return
        hosted.phase = Phase.ACTIVE
        hosted.next_offset = event.end_offset
        hosted.commitment.reach(self._writer.high_watermark(event.partition, hosted.epoch))
        try:
            result = hosted.shard.loaded(self._wall_ms)
        except Exception as error:
            logger.exception("%s: partition %d does not begin", self._name, event.partition)
            self._load_failed(LoadFailed(event.partition, event.shard, repr(error)))
        else:
            self._take(hosted, result)

    def _load_failed(self, event: LoadFailed) -> None:
        hosted = self._hosted.get(event.partition)
        if hosted is None or hosted.shard is not event.shard:
            return
        hosted.phase = Phase.FAILED
        logger.error("%s: partition %d cannot be loaded: %s", self._name, event.partition, event.problem)
        self.timers.set((hosted, _RETRY), self.now_ms + RETRY_LOAD_MS)

    def _is_current(self, hosted: _Hosted[S]) -> bool:
        """Whether it was not unloaded meanwhile."""
        return self._hosted.get(hosted.partition) is hosted

    def _reload(self, hosted: _Hosted[S]) -> None:
        self._unload(hosted)
        self._load(hosted.partition, hosted.epoch)

    # Decisions.

    def _requested(self, event: Requested) -> None:
        hosted = self._hosted.get(event.partition)
        request = event.request
        if hosted is None:
            self._effects.append(Refuse(request.token, ErrorCode.NOT_COORDINATOR))
        elif hosted.phase is not Phase.ACTIVE:
            self._effects.append(Refuse(request.token, _NO_SHARD[hosted.phase]))
        else:
            self._decide(hosted, request)

    def _requested_of_all(self, event: RequestedOfAll) -> None:
        for hosted in list(self._hosted.values()):
            if hosted.phase is Phase.ACTIVE:
                self._decide(hosted, event.request)

    def _decide(self, hosted: _Hosted[S], request: Request) -> None:
        try:
            result = hosted.shard.handle(self._wall_ms, request)
        except KafkaError as error:
            result = Result(effects=[Refuse(request.token, client_code(error.code))])
        except Exception:
            logger.exception("%s: %r failed in partition %d", self._name, request.message, hosted.partition)
            result = Result(effects=[Refuse(request.token, ErrorCode.UNKNOWN_SERVER_ERROR)])
        self._take(hosted, result, request.verification_guard)

    def _timed_out(self, hosted: _Hosted[S], key: Hashable) -> None:
        if not self._is_current(hosted):
            return
        if key is _RETRY:
            self._reload(hosted)
        elif key is _COMMIT_TIMEOUT:
            self._give_up(hosted)
        elif key is _LINGER:
            pass  # the round ends with it
        else:
            try:
                result = hosted.shard.timed_out(self._wall_ms, key)
            except Exception:
                logger.exception("%s: the timer %r failed in partition %d", self._name, key, hosted.partition)
                is_done = False
            else:
                is_done = not self._take(hosted, result)
            if not is_done and self._is_current(hosted) and (hosted, key) not in self.timers:
                # Nobody else would ask for it again: a member whose session has expired, say.
                self.timers.set((hosted, key), self.now_ms + RETRY_TIMER_MS)

    def _take(self, hosted: _Hosted[S], result: Result, verification_guard: int = 0) -> bool:
        """Whether nothing came of it, since its records cannot be written now."""
        try:
            return self._take_in(hosted, result, verification_guard)
        except Exception:
            # Nobody knows what state the shard is in; the log does.
            logger.exception("%s: a decision failed in partition %d, which is loaded again", self._name, hosted.partition)
            self._effects += _refusals(result.effects, ErrorCode.UNKNOWN_SERVER_ERROR)
            if self._is_current(hosted):
                self._reload(hosted)
            return False

    def _take_in(self, hosted: _Hosted[S], result: Result, verification_guard: int) -> bool:
        if result.records:
            code = self._write(hosted, result, verification_guard)
            if code:
                self._refused(hosted, result, client_code(code))
                return True
        if result.on_written is not None and self._is_current(hosted):
            result.on_written()
        if result.effects:
            self._defer(hosted, result.effects)
        if not self._linger_ms and hosted.batch is not None:
            self._flush(hosted)
        return False

    def _refused(self, hosted: _Hosted[S], result: Result, code: ErrorCode) -> None:
        if result.on_refused is not None and self._is_current(hosted):
            self._defer(hosted, list(result.on_refused(code)))
        else:
            self._defer(hosted, _refusals(result.effects, code))

    def _ended(self, event: TransactionEnded) -> None:
        hosted = self._hosted.get(event.partition)
        if hosted is None or hosted.phase is not Phase.ACTIVE:
            code = ErrorCode.NOT_COORDINATOR if hosted is None else _NO_SHARD[hosted.phase]
            self._effects.append(Refuse(event.token, code))
            return
        marker = end_transaction_marker(
            ControlType.COMMIT if event.commits else ControlType.ABORT,
            producer_id=event.producer.producer_id,
            producer_epoch=event.producer.epoch,
            coordinator_epoch=event.coordinator_epoch,
            timestamp=self._wall_ms,
        )
        code = self._append_alone(hosted, marker, transaction_version=event.transaction_version)
        if not code and self._is_current(hosted):
            try:
                hosted.shard.replay_marker(event.producer, commits=event.commits)
            except Exception:
                logger.exception("%s: a marker cannot be replayed in partition %d", self._name, event.partition)
                self._reload(hosted)
        if code:
            self._effects.append(Refuse(event.token, client_code(code)))
        elif not self._is_current(hosted):
            self._effects.append(Refuse(event.token, ErrorCode.NOT_COORDINATOR))
        else:
            hosted.next_offset += 1
            self._committed_up_to(hosted, self._writer.high_watermark(hosted.partition, hosted.epoch))
            self._defer(hosted, [Reply(event.token, None)])

    # Writing.

    def _write(self, hosted: _Hosted[S], result: Result, verification_guard: int = 0) -> ErrorCode:
        """Put the records into the open batch and replay them; a code, with nothing done, if they cannot be written."""
        try:
            rows = [record.encoded() for record in result.records]
        except ProtocolError as error:
            # A name that is too long for its place in a record, say.
            logger.error("%s: what was decided in partition %d cannot be written: %s", self._name, hosted.partition, error)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        size = sum([len(key) + (0 if value is None else len(value)) + _RECORD_OVERHEAD for key, value in rows])
        batch = hosted.batch
        if batch is None or result.producer is not None or batch.size_bytes + size > hosted.batch_limit:
            limit = self._writer.max_batch_bytes(hosted.partition)
            if size + _BATCH_OVERHEAD > limit:
                return ErrorCode.MESSAGE_TOO_LARGE if result.is_atomic else self._write_in_halves(hosted, result)
            code = self._writer.refusal(hosted.partition)
            if code:
                return code
            if result.producer is not None:
                return self._write_transactional(hosted, result, rows, verification_guard)
            if batch is not None:
                self._flush(hosted)
                if not self._is_current(hosted):
                    return ErrorCode.NOT_LEADER_OR_FOLLOWER
            batch = self._open_batch(hosted, limit)
        for key, value in rows:
            batch.append(self._wall_ms, key, value)
        self._replay(hosted, result)
        return ErrorCode.NONE

    def _open_batch(self, hosted: _Hosted[S], limit: int) -> BatchBuilder:
        """In which records are gathered until it is appended: at the end of the round, or when they have lingered."""
        batch = hosted.batch = self._new_batch(None)
        hosted.batch_limit = limit
        self._open[hosted] = None
        if self._linger_ms > 0:
            hosted.batch_due_ms = self.now_ms + self._linger_ms
            self.timers.set((hosted, _LINGER), hosted.batch_due_ms)
        return batch

    def _write_in_halves(self, hosted: _Hosted[S], result: Result) -> ErrorCode:
        middle = len(result.records) // 2
        if not middle:
            return ErrorCode.MESSAGE_TOO_LARGE
        first = self._write(hosted, Result(result.records[:middle], is_atomic=False))
        return first or self._write(hosted, Result(result.records[middle:], is_atomic=False))

    def _write_transactional(
        self, hosted: _Hosted[S], result: Result, rows: Sequence[tuple[bytes, bytes | None]], verification_guard: int
    ) -> ErrorCode:
        """A batch of its own: the log looks at its producer, and may refuse it."""
        batch = self._new_batch(result.producer)
        for key, value in rows:
            batch.append(self._wall_ms, key, value)
        code = self._append_alone(hosted, batch.build(), verification_guard=verification_guard)
        if not code and self._is_current(hosted):
            self._replay(hosted, result)
            self._committed_up_to(hosted, self._writer.high_watermark(hosted.partition, hosted.epoch))
        return code

    def _new_batch(self, producer: Producer | None) -> BatchBuilder:
        producer_id, epoch = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH) if producer is None else producer
        return BatchBuilder(
            codec=self._codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self._base_sequence,
            transactional=producer is not None,
        )

    def _replay(self, hosted: _Hosted[S], result: Result) -> None:
        for record in result.records:
            hosted.shard.replay(hosted.next_offset, record, result.producer)
            hosted.next_offset += 1

    def _append_alone(self, hosted: _Hosted[S], batch: bytearray, **transaction: int) -> ErrorCode:
        """Append before anything is replayed; a refusal then changes nothing."""
        self._flush(hosted)
        if not self._is_current(hosted):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        try:
            offset = self._writer.append(hosted.partition, hosted.epoch, batch, **transaction)
        except Exception as error:
            return self._why_failed(error)
        if offset != hosted.next_offset:
            self._lost_track(hosted, offset)
        return ErrorCode.NONE

    def _flush(self, hosted: _Hosted[S]) -> None:
        batch, hosted.batch = hosted.batch, None
        self._open.pop(hosted, None)
        if batch is None:
            return
        first_offset = hosted.next_offset - batch.count
        effects, hosted.batch_effects = hosted.batch_effects, []
        try:
            offset = self._writer.append(hosted.partition, hosted.epoch, batch.build())
        except Exception as error:
            logger.error("%s: %d records of partition %d: %s", self._name, batch.count, hosted.partition, error)
            self._effects += _refusals(effects, client_code(self._why_failed(error)))
            self._reload(hosted)
            return
        if offset != first_offset:
            self._effects += _refusals(effects, ErrorCode.NOT_COORDINATOR)
            self._lost_track(hosted, offset)
            return
        self._committed_up_to(hosted, self._writer.high_watermark(hosted.partition, hosted.epoch))
        if effects:
            self._defer(hosted, effects)

    def _why_failed(self, error: Exception) -> ErrorCode:
        if isinstance(error, KafkaError):
            return error.code
        logger.error("%s: an append failed by an error of ours", self._name, exc_info=error)
        return ErrorCode.UNKNOWN_SERVER_ERROR

    def _lost_track(self, hosted: _Hosted[S], offset: int) -> None:
        logger.warning(
            "%s: partition %d was written to by another, up to offset %d; it is loaded again",
            *(self._name, hosted.partition, offset),
        )
        self._reload(hosted)

    # Commitment.

    def _defer(self, hosted: _Hosted[S], effects: list[Effect]) -> None:
        if not self._is_current(hosted):
            self._effects += _refusals(effects, ErrorCode.NOT_COORDINATOR)
        elif hosted.batch is not None:
            hosted.batch_effects += effects
        elif hosted.commitment.high_watermark >= hosted.next_offset:
            self._effects += effects
        else:
            deadline_ms = self.now_ms + self._commit_timeout_ms()
            # Earlier ones have earlier deadlines, or none any more.
            if (hosted, _COMMIT_TIMEOUT) not in self.timers:
                self.timers.set((hosted, _COMMIT_TIMEOUT), deadline_ms)
            hosted.commitment.wait(hosted.next_offset, deadline_ms, effects)

    def _high_watermark_advanced(self, event: HighWatermarkAdvanced) -> None:
        hosted = self._hosted.get(event.partition)
        if hosted is not None and hosted.phase is Phase.ACTIVE:
            self._committed_up_to(hosted, self._writer.high_watermark(event.partition, hosted.epoch))

    def _committed_up_to(self, hosted: _Hosted[S], high_watermark: int) -> None:
        self._effects += hosted.commitment.reach(high_watermark)
        if hosted.commitment.is_idle:
            self.timers.cancel((hosted, _COMMIT_TIMEOUT))

    def _give_up(self, hosted: _Hosted[S]) -> None:
        """Refuse whom the replicas have kept waiting for too long; what has to follow the commit still does."""
        tokens, next_ms = hosted.commitment.give_up(self.now_ms)
        code = client_code(ErrorCode.REQUEST_TIMED_OUT)
        self._effects += [Refuse(token, code) for token in tokens]
        if next_ms is not None:
            self.timers.set((hosted, _COMMIT_TIMEOUT), next_ms)


def _refusals(effects: Sequence[Effect], code: ErrorCode) -> list[Effect]:
    """In place of effects whose records are not in the log: what should have followed those must not happen."""
    return [Refuse(one.token, code) if isinstance(one, Reply) else one for one in effects if isinstance(one, (Reply, Refuse))]


_HANDLE: Final[dict[type, Callable[[Any, Any], None]]] = {
    Requested: CoordinatorRuntime._requested,
    HighWatermarkAdvanced: CoordinatorRuntime._high_watermark_advanced,
    RequestedOfAll: CoordinatorRuntime._requested_of_all,
    TransactionEnded: CoordinatorRuntime._ended,
    Elected: CoordinatorRuntime._elected,
    Resigned: CoordinatorRuntime._resigned,
    Loaded: CoordinatorRuntime._loaded,
    LoadFailed: CoordinatorRuntime._load_failed,
}
