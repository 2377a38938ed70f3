"""What a coordinator's shard is, what it says, and the port that its records leave by. Values only; any thread."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from pybroker.coordinator.records import CoordinatorRecord
from pybroker.protocol.errors import ErrorCode

Token = Any  # whatever the shell answers by


# Effects.


class Reply(NamedTuple):
    """Answer the request of `token`."""

    token: Token
    response: Any


class Refuse(NamedTuple):
    """Tell the request of `token` that nothing came of it."""

    token: Token
    code: ErrorCode


class Load(NamedTuple):
    """Replay the log of `partition` into `shard`, then say so by Loaded or LoadFailed."""

    partition: int
    epoch: int
    shard: Any


Effect = Any


# What a shard is and says.


class Producer(NamedTuple):
    """The transaction that records belong to."""

    producer_id: int
    epoch: int


class Result:
    """A decision: records, and what follows once they are committed. Answers that the records' refusal turns into refusals
    may stand among the effects; `on_refused` says what follows instead, where that is not all. `on_written` changes what is
    not in the log, such as timers, once the records are replayed. Records that are not atomic may be spread over several
    batches, of which the last may be refused after the first are written."""

    __slots__ = ("effects", "is_atomic", "on_refused", "on_written", "producer", "records")

    def __init__(
        self,
        records: Iterable[CoordinatorRecord] = (),
        effects: Iterable[Effect] = (),
        *,
        producer: Producer | None = None,
        is_atomic: bool = True,
        on_refused: Callable[[ErrorCode], Sequence[Effect]] | None = None,
        on_written: Callable[[], None] | None = None,
    ) -> None:
        self.records = list(records)
        self.effects = list(effects)
        self.producer = producer
        self.is_atomic = is_atomic
        self.on_refused = on_refused
        self.on_written = on_written


class Request(NamedTuple):
    """A message for a shard, with what it has to know of the client."""

    message: Any
    token: Token = None
    version: int = 0
    client_id: str = ""
    client_host: str = ""
    # With which the log knows that the transaction coordinator has confirmed the request's transaction (KIP-890).
    verification_guard: int = 0


class DelayTimers(Protocol):
    """The timers of one shard, which says how long from now and never sees the clock."""

    def set(self, key: Hashable, delay_ms: int) -> None: ...

    def cancel(self, key: Hashable) -> None: ...


class Shard(Protocol):
    def handle(self, now_ms: int, request: Request) -> Result:
        """Decide. No hard state changes; what is not in the log (sessions, parked requests) may."""

    def timed_out(self, now_ms: int, key: Hashable) -> Result:
        """A timer that the shard has set is due."""

    def replay(self, offset: int, record: CoordinatorRecord, producer: Producer | None) -> None:
        """Take a record in, from the log or just decided: the only place where hard state changes."""

    def replay_marker(self, producer: Producer, *, commits: bool) -> None:
        """The transaction of `producer` has ended."""

    def loaded(self, now_ms: int) -> Result:
        """Everything in the log is replayed; from now on requests come."""

    def parked(self) -> list[Token]:
        """The requests that wait for something else to happen."""


class PartitionWriter(Protocol):
    """The port to the log of the coordinator's topic. It is never asked of a partition that this broker does not lead
    without saying so by a code."""

    def refusal(self, partition: int) -> ErrorCode:
        """Why an append would be refused now; NONE if it would not."""

    def max_batch_bytes(self, partition: int) -> int: ...

    def append(
        self, partition: int, epoch: int, batch: bytearray, *, transaction_version: int = -1, verification_guard: int = 0
    ) -> int:
        """The offset of the first record; KafkaError, with nothing appended, if it cannot be. A marker has the version of its
        transaction; records of a transaction have the guard under which that was verified."""

    def high_watermark(self, partition: int, epoch: int) -> int:
        """-1 unless the partition is led here in `epoch`: whoever follows may have other records at the same offsets."""


# What a client is told when a write fails: something that makes it try again, here or elsewhere.
_CLIENT_CODES: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def client_code(code: ErrorCode) -> ErrorCode:
    return _CLIENT_CODES.get(code, code)
