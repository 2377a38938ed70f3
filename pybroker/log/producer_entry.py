"""What a partition remembers of one producer, and the values that tell of its transactions.

Plain objects that belong to `ProducerStates`. An entry keeps its last five batches, all of its current epoch, oldest first:
as many requests as an idempotent producer has in flight, so that any of them is known again when it is sent twice.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import count
from typing import Final, NamedTuple

from pybroker.protocol.records.batch import MAX_SEQUENCE, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP

BATCHES_KEPT: Final = 5
NO_TRANSACTION: Final = -1
NO_GUARD: Final = 0


class AppendOrigin(IntEnum):
    """Who appends; it decides how much is checked."""

    REPLICATION = 0  # from a leader, or from our own log when it is read again: judged already
    COORDINATOR = 1  # offset commits, which have no sequence numbers, and transaction markers
    CLIENT = 2
    RAFT_LEADER = 3


class BatchMetadata(NamedTuple):
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "epoch",
        "last_sequence",
        "last_timestamp",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int,
        epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp: int = NO_TIMESTAMP,
        current_txn_first_offset: int = NO_TRANSACTION,
        batch: BatchMetadata | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.current_txn_first_offset = current_txn_first_offset
        self.batches: list[BatchMetadata] = [] if batch is None else [batch]
        self.last_sequence = NO_SEQUENCE if batch is None else batch.last_sequence

    @property
    def has_transaction(self) -> bool:
        return self.current_txn_first_offset >= 0

    @property
    def last_data_offset(self) -> int:
        """Of the last record of the current epoch that is not a marker, or -1."""
        return self.batches[-1].last_offset if self.batches else -1

    def start_epoch(self, epoch: int) -> None:
        """No batch of another epoch is remembered."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
            self.last_sequence = NO_SEQUENCE

    def __repr__(self) -> str:
        return (
            f"ProducerEntry({self.producer_id}, epoch {self.epoch}, coordinator epoch {self.coordinator_epoch}, "
            f"timestamp {self.last_timestamp}, transaction from {self.current_txn_first_offset}, {self.batches})"
        )


class ActiveProducer(NamedTuple):
    """A producer as DescribeProducers shows it; -1 where there is no such thing."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


class CompletedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int  # that of the marker
    is_aborted: bool


_next_guard = count(NO_GUARD + 1).__next__


class Verification:
    """A transaction whose first batch waits until the coordinator has confirmed that it is open here (KIP-890).

    The guard is unique: an answer that comes after the transaction was aborted does not let a batch into the next one.
    """

    __slots__ = ("epoch", "guard", "lowest_sequence", "supports_epoch_bump", "timestamp")

    def __init__(self, sequence: int, epoch: int, *, supports_epoch_bump: bool, timestamp: int) -> None:
        self.guard = _next_guard()
        self.timestamp = timestamp
        self.supports_epoch_bump = supports_epoch_bump
        self.lowest_sequence = sequence
        self.epoch = epoch

    def note(self, sequence: int, epoch: int) -> None:
        """Several batches may wait: the lowest sequence of the newest epoch has to be written first."""
        if epoch > self.epoch or (epoch == self.epoch and sequence < self.lowest_sequence):
            self.epoch = epoch
            self.lowest_sequence = sequence
