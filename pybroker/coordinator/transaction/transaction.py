"""What a shard knows of a transactional id: its producer, the state of its transaction, and where each state leads.

Values only: a transaction is replaced by its successor, never changed. What the log has no place for is `last_epoch`: a
coordinator that takes over does not know it, and a retry that crosses over is fenced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final

from pybroker.coordinator.shard import Producer
from pybroker.protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

NO_TIMESTAMP: Final = -1
FIRST_EPOCH: Final = 0
# The last epoch is given to no producer: by it the one with the epoch before can still be fenced.
MAX_EPOCH: Final = 2**15 - 1
# Levels of transaction.version: from which on records have tagged fields, and an epoch ends with its transaction (KIP-890).
TAGGED_FIELDS: Final = 1
EPOCH_BUMP: Final = 2

TopicPartition = tuple[str, int]


class State(IntEnum):
    """The numbers stand in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    # Nobody writes them: the first is told by a tombstone, the second is passed on the way from Ongoing to PrepareAbort.
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """As clients see it."""
        return _LABELS[self]

    @property
    def is_prepared(self) -> bool:
        """It is decided, and the partitions are still to hear of it."""
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        return self in (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


_LABELS: Final = {state: "".join(word.title() for word in state.name.split("_")) for state in State}

# Where each state leads.
TRANSITIONS: Final[Mapping[State, tuple[State, ...]]] = {
    # A producer comes (again); a first partition; an end of nothing (with KIP-890 that raises the epoch); expiry.
    State.EMPTY: (State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD),
    # More partitions; the producer's decision; a fenced or late producer's transaction is aborted.
    State.ONGOING: (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT, State.PREPARE_EPOCH_FENCE),
    # Every partition has its marker.
    State.PREPARE_COMMIT: (State.COMPLETE_COMMIT,),
    State.PREPARE_ABORT: (State.COMPLETE_ABORT,),
    State.COMPLETE_COMMIT: (State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD),
    State.COMPLETE_ABORT: (State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD),
    State.PREPARE_EPOCH_FENCE: (State.PREPARE_ABORT,),
    State.DEAD: (),
}


@dataclass(slots=True, frozen=True)
class Transaction:
    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    updated_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    # The producer id that takes over when this one, which is out of epochs, has its last marker.
    next_producer_id: int = NO_PRODUCER_ID
    # That of the producer's last successful request for a new one, so that its retry is known.
    last_epoch: int = NO_PRODUCER_EPOCH
    client_version: int = 0  # the transaction.version that its producer speaks

    @property
    def producer(self) -> Producer:
        return Producer(self.producer_id, self.epoch)

    @property
    def bumps_epochs(self) -> bool:
        return self.client_version >= EPOCH_BUMP

    def has_expired(self, now_ms: int, expiration_ms: int) -> bool:
        return self.state.is_idle and self.updated_ms <= now_ms - expiration_ms

    def is_late(self, now_ms: int) -> bool:
        return self.state is State.ONGOING and self.started_ms + self.timeout_ms < now_ms

    def to(self, state: State, now_ms: int, **changes: Any) -> Transaction:
        """Its successor in `state`."""
        assert state in TRANSITIONS[self.state], f"{self} goes to {state.name}"
        return replace(self, state=state, updated_ms=now_ms, previous_producer_id=self.producer_id, **changes)

    # The steps.

    def initialised(self, now_ms: int, producer: Producer, last_epoch: int, timeout_ms: int) -> Transaction:
        return self.to(
            State.EMPTY,
            now_ms,
            producer_id=producer.producer_id,
            epoch=producer.epoch,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=NO_TIMESTAMP,
        )

    def with_partitions(self, now_ms: int, partitions: Iterable[TopicPartition], client_version: int) -> Transaction:
        return self.to(
            State.ONGOING,
            now_ms,
            partitions=self.partitions.union(partitions),
            started_ms=self.started_ms if self.state is State.ONGOING else now_ms,
            client_version=client_version,
        )

    def prepared(
        self, now_ms: int, client_version: int, *, commits: bool, producer: Producer, next_producer_id: int = NO_PRODUCER_ID
    ) -> Transaction:
        """`producer` has decided, of a transaction or, to be rid of its epoch, of nothing."""
        changes: dict[str, Any] = {"client_version": client_version, "next_producer_id": next_producer_id}
        if client_version >= EPOCH_BUMP:
            # One that was fenced by the last epoch has that already.
            changes |= {"epoch": producer.epoch + 1, "last_epoch": producer.epoch}
        if self.state is not State.ONGOING:
            changes["started_ms"] = now_ms
        return self.to(State.PREPARE_COMMIT if commits else State.PREPARE_ABORT, now_ms, **changes)

    def fenced(self, now_ms: int, version: int, max_epoch: int = MAX_EPOCH) -> Transaction:
        """The coordinator has decided: to abort, under an epoch that its producer does not have."""
        last_epoch = self.epoch if version >= EPOCH_BUMP else NO_PRODUCER_EPOCH
        # Others may have handed out the last epoch, which a log then takes for the marker's, too.
        epoch = min(self.epoch + 1, max_epoch)
        fence = self.to(State.PREPARE_EPOCH_FENCE, now_ms, epoch=epoch, last_epoch=last_epoch, client_version=version)
        return fence.to(State.PREPARE_ABORT, now_ms)

    def completed(self, now_ms: int) -> Transaction:
        changes: dict[str, Any] = {"partitions": frozenset(), "next_producer_id": NO_PRODUCER_ID}
        if self.next_producer_id != NO_PRODUCER_ID:
            changes |= {"producer_id": self.next_producer_id, "epoch": FIRST_EPOCH}
        return self.to(State.COMPLETE_COMMIT if self.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT, now_ms, **changes)

    def expired(self, now_ms: int) -> Transaction:
        """Nobody has used its transactional id for long."""
        return self.to(State.DEAD, now_ms)
