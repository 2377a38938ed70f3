"""The producers of a partition: what makes them idempotent, and which transactions are open.

The log calls it under its own lock, in two steps around an append: `check` judges a batch and changes nothing, `update`
takes in what was written, with its offsets. No clock in here. `map_end_offset` says up to which offset of the log the state
reaches: behind a load, replay from there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from heapq import heappop, heappush
from typing import Final

from pybroker.base.filesystem import FileSystem
from pybroker.log.files import TopicPartition
from pybroker.log.producer_checks import check_data, check_marker, check_verified, marker_of
from pybroker.log.producer_entry import (
    BATCHES_KEPT,
    NO_GUARD,
    NO_TRANSACTION,
    ActiveProducer,
    AppendOrigin,
    BatchMetadata,
    CompletedTransaction,
    ProducerEntry,
    Verification,
)
from pybroker.log.producer_snapshot import SnapshotFiles
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records.batch import CONTROL_BIT, MAX_SEQUENCE, NO_SEQUENCE, TRANSACTIONAL_BIT, RecordBatch
from pybroker.protocol.records.control import ControlType

UNKNOWN_TRANSACTION_VERSION: Final = -1

_CLIENT: Final = AppendOrigin.CLIENT
_COORDINATOR: Final = AppendOrigin.COORDINATOR
_KIND_BITS: Final = TRANSACTIONAL_BIT | CONTROL_BIT
_new_tuple = tuple.__new__


class ProducerStates:
    __slots__ = (
        "_last_snapshot_offset",
        "_ongoing",
        "_producers",
        "_unreplicated",
        "_verifications",
        "map_end_offset",
        "partition",
        "producer_id_expiration_ms",
        "snapshots",
        "verifies_transactions",
    )

    def __init__(
        self,
        filesystem: FileSystem,
        directory: str,
        partition: TopicPartition,
        *,
        producer_id_expiration_ms: int = 86_400_000,
        verifies_transactions: bool = True,
        snapshots: Iterable[int] = (),
    ) -> None:
        """`snapshots` are the offsets of those in `directory`, as `snapshot_offsets` finds them."""
        self.partition = partition
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.verifies_transactions = verifies_transactions
        self.snapshots = SnapshotFiles(filesystem, directory, snapshots)
        self.map_end_offset = 0
        self._last_snapshot_offset = 0
        self._producers: dict[int, ProducerEntry] = {}
        self._verifications: dict[int, Verification] = {}
        # First offset to producer id. Transactions begin at the end of the log, so they stand in order.
        self._ongoing: OrderedDict[int, int] = OrderedDict()
        # (first offset, last offset) of completed transactions, a heap; those that the high watermark has passed leave it
        # when they come to its top.
        self._unreplicated: list[tuple[int, int]] = []

    # An append.

    def check(
        self,
        batch: RecordBatch,
        origin: AppendOrigin = _CLIENT,
        *,
        verification_guard: int = NO_GUARD,
        transaction_version: int = UNKNOWN_TRANSACTION_VERSION,
    ) -> BatchMetadata | None:
        """Judge a batch about to be appended; KafkaError if it must not be.

        A client's batch that is in the log already is answered with where it is: then nothing is to be appended.
        `transaction_version` is needed with a marker, unless that is replicated.
        """
        producer_id = batch.producer_id
        if producer_id < 0:
            return None
        entry = self._producers.get(producer_id)
        attributes = batch.attributes
        if origin is _CLIENT and entry is not None and entry.epoch == batch.producer_epoch:
            base_sequence = batch.base_sequence
            last_sequence = (base_sequence + batch.last_offset_delta) & MAX_SEQUENCE
            for known in entry.batches:
                if known[0] == last_sequence and (last_sequence - known[2]) & MAX_SEQUENCE == base_sequence:
                    return known
            if (
                (entry.last_sequence + 1) & MAX_SEQUENCE == base_sequence
                and attributes & _KIND_BITS == (TRANSACTIONAL_BIT if entry.current_txn_first_offset >= 0 else 0)
                and producer_id not in self._verifications
            ):
                return None
        if entry is None:
            entry = ProducerEntry(producer_id)
        verification = self._verifications.get(producer_id)
        if attributes & TRANSACTIONAL_BIT and (origin is _CLIENT or origin is _COORDINATOR):
            guard = NO_GUARD if verification is None else verification.guard
            is_verified = not self.verifies_transactions or (guard != NO_GUARD and guard == verification_guard)
            check_verified(self.partition, entry, batch, is_verified=is_verified)
        if attributes & CONTROL_BIT:
            check_marker(self.partition, entry, batch, origin, transaction_version)
        else:
            check_data(self.partition, entry, batch, origin, verification)
        return None

    def update(self, batch: RecordBatch) -> CompletedTransaction | None:
        """Take in a batch that is in the log now.

        A marker that ends a transaction gives it back: `last_stable_offset` of it goes to the transaction index if it was
        aborted, then `complete` it.
        """
        producer_id = batch.producer_id
        if producer_id < 0:
            return None
        entry = self._producers.get(producer_id)
        if entry is None:
            entry = self._producers[producer_id] = ProducerEntry(producer_id)
        attributes = batch.attributes
        if attributes & CONTROL_BIT:
            return self._update_by_marker(entry, batch)
        if entry.epoch != batch.producer_epoch:
            entry.start_epoch(batch.producer_epoch)
        base_sequence = batch.base_sequence
        delta = batch.last_offset_delta
        sequence = (base_sequence + delta) & MAX_SEQUENCE if base_sequence != NO_SEQUENCE else NO_SEQUENCE
        timestamp = batch.max_timestamp
        batches = entry.batches
        if len(batches) == BATCHES_KEPT:
            del batches[0]
        batches.append(_new_tuple(BatchMetadata, (sequence, batch.base_offset + delta, delta, timestamp)))
        entry.last_sequence = sequence
        entry.last_timestamp = timestamp
        if attributes & TRANSACTIONAL_BIT:
            if entry.current_txn_first_offset < 0:
                entry.current_txn_first_offset = batch.base_offset
                self._ongoing[batch.base_offset] = producer_id
            self._verifications.pop(producer_id, None)
        return None

    def _update_by_marker(self, entry: ProducerEntry, batch: RecordBatch) -> CompletedTransaction | None:
        marker = marker_of(batch)
        completed = None
        if marker is not None:
            if entry.has_transaction:
                is_aborted = marker.kind is ControlType.ABORT
                first_offset = entry.current_txn_first_offset
                completed = CompletedTransaction(entry.producer_id, first_offset, batch.base_offset, is_aborted)
            entry.start_epoch(batch.producer_epoch)
            entry.coordinator_epoch = marker.coordinator_epoch
            entry.last_timestamp = marker.timestamp
            entry.current_txn_first_offset = NO_TRANSACTION
        if batch.is_transactional:
            verification = self._verifications.get(entry.producer_id)
            # A producer that raises its epoch with every transaction may wait in the next one already (KIP-890).
            if verification and not (verification.supports_epoch_bump and verification.epoch == batch.producer_epoch):
                del self._verifications[entry.producer_id]
        return completed

    # Transactions.

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """What it will be when `completed` is: for the transaction index, before the transaction is completed here."""
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def complete(self, completed: CompletedTransaction) -> None:
        """It stays unstable until the high watermark is behind its marker."""
        producer_id = self._ongoing.pop(completed.first_offset, None)
        assert producer_id == completed.producer_id, f"{self.partition}: {completed} was not begun"
        heappush(self._unreplicated, (completed.first_offset, completed.last_offset))

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        unreplicated = self._unreplicated
        while unreplicated and unreplicated[0][1] < high_watermark:
            heappop(unreplicated)

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the oldest transaction without a marker begins."""
        return next(iter(self._ongoing)) if self._ongoing else None

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction begins that has no marker, or one at or above the high watermark."""
        undecided = self.first_undecided_offset
        if not self._unreplicated:
            return undecided
        unreplicated = self._unreplicated[0][0]
        return unreplicated if undecided is None else min(undecided, unreplicated)

    def has_ongoing_transaction(self, producer_id: int, epoch: int) -> bool:
        entry = self._producers.get(producer_id)
        return entry is not None and entry.current_txn_first_offset >= 0 and entry.epoch == epoch

    # Verification (KIP-890).

    def start_verification(self, producer_id: int, sequence: int, epoch: int, *, supports_epoch_bump: bool, now_ms: int) -> int:
        """The guard with which a batch is to be checked once the coordinator has confirmed its transaction.

        NO_GUARD if the transaction is open here already, so that nobody needs to be asked.
        """
        entry = self._producers.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {producer_id} has epoch {epoch} for {self.partition}; expected {entry.epoch} or more.",
            )
        if self.has_ongoing_transaction(producer_id, epoch):
            return NO_GUARD
        verification = self._verifications.get(producer_id)
        if verification is None:
            verification = Verification(sequence, epoch, supports_epoch_bump=supports_epoch_bump, timestamp=now_ms)
            self._verifications[producer_id] = verification
        verification.note(sequence, epoch)
        return verification.guard

    def verification(self, producer_id: int) -> Verification | None:
        return self._verifications.get(producer_id)

    # The producers.

    @property
    def is_empty(self) -> bool:
        return not self._producers and not self._unreplicated

    def entry(self, producer_id: int) -> ProducerEntry | None:
        return self._producers.get(producer_id)

    def entries(self) -> Collection[ProducerEntry]:
        """A live view."""
        return self._producers.values()

    def active_producers(self) -> list[ActiveProducer]:
        return [
            ActiveProducer(
                producer_id=entry.producer_id,
                epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_first_offset=entry.current_txn_first_offset,
            )
            for entry in self._producers.values()
        ]

    def remove_expired(self, now_ms: int) -> int:
        """Forget producers without a transaction and verifications that are older than producer.id.expiration.ms."""
        expired = [entry.producer_id for entry in self._producers.values() if self._is_expired(entry, now_ms)]
        for producer_id in expired:
            del self._producers[producer_id]
        latest = now_ms - self.producer_id_expiration_ms
        for producer_id in [key for key, waiting in self._verifications.items() if waiting.timestamp <= latest]:
            del self._verifications[producer_id]
        return len(expired)

    def _is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        return entry.current_txn_first_offset < 0 and now_ms - entry.last_timestamp >= self.producer_id_expiration_ms

    # Snapshots.

    def take_snapshot(self, *, sync: bool = True) -> str | None:
        """Write the state as of `map_end_offset`, unless that is no further than the last snapshot; the path of the new one."""
        if self.map_end_offset <= self._last_snapshot_offset:
            return None
        path = self.snapshots.write(self.map_end_offset, self._producers.values(), sync=sync)
        self._last_snapshot_offset = self.map_end_offset
        return path

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Bring the state back to an offset at or before `log_end_offset`; from `map_end_offset` on it is to be replayed.

        Snapshots outside of the log go. A state that ends just at `log_end_offset` stays as it is.
        """
        self.snapshots.delete_outside(log_start_offset, log_end_offset)
        if log_end_offset == self.map_end_offset:
            self.on_log_start_offset_incremented(log_start_offset)
            return
        self._clear()
        loaded = self.snapshots.load_latest()
        self.map_end_offset = self._last_snapshot_offset = log_start_offset if loaded is None else loaded[0]
        if loaded is not None:
            entries = [entry for entry in loaded[1] if not self._is_expired(entry, now_ms)]
            self._producers = {entry.producer_id: entry for entry in entries}
            ongoing = ((entry.current_txn_first_offset, entry.producer_id) for entry in entries if entry.has_transaction)
            self._ongoing = OrderedDict(sorted(ongoing))

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything, snapshots too."""
        self._clear()
        self.snapshots.delete_all()
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def on_log_start_offset_incremented(self, log_start_offset: int) -> None:
        """Producers whose records are gone stay known until they expire."""
        self.on_high_watermark_updated(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        latest = self.snapshots.latest
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    def _clear(self) -> None:
        self._producers = {}
        self._ongoing.clear()
        self._unreplicated.clear()
