"""A partition's producer state with as much of a log around it as its tests need."""

from __future__ import annotations

from pathlib import Path

from pybroker.base.filesystem import OsFileSystem
from pybroker.log.files import TopicPartition
from pybroker.log.producer_entry import AppendOrigin, BatchMetadata, CompletedTransaction
from pybroker.log.producer_snapshot import snapshot_offsets
from pybroker.log.producer_state import ProducerStates
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records.batch import RecordBatch
from pybroker.protocol.records.builder import BatchBuilder
from pybroker.protocol.records.control import ControlType, end_transaction_marker

FILESYSTEM = OsFileSystem()
PARTITION = TopicPartition("topic", 0)
EXPIRATION_MS = 1000


def states_in(directory: Path, *, verifies_transactions: bool = False) -> ProducerStates:
    return ProducerStates(
        FILESYSTEM,
        str(directory),
        PARTITION,
        producer_id_expiration_ms=EXPIRATION_MS,
        verifies_transactions=verifies_transactions,
        snapshots=snapshot_offsets(FILESYSTEM, str(directory)),
    )


def data(
    producer_id: int = 1,
    epoch: int = 0,
    sequence: int = 0,
    *,
    count: int = 1,
    transactional: bool = False,
    timestamp: int = 0,
) -> RecordBatch:
    builder = BatchBuilder(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=transactional)
    for _ in range(count):
        builder.append(timestamp, None, b"value")
    return RecordBatch(builder.build())


def marker(
    producer_id: int = 1,
    epoch: int = 0,
    *,
    kind: ControlType = ControlType.COMMIT,
    coordinator_epoch: int = 0,
    timestamp: int = 0,
) -> RecordBatch:
    return RecordBatch(
        end_transaction_marker(
            kind,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=timestamp,
        )
    )


class FakeLog:
    """Appends batches one by one, and keeps them to be replayed."""

    def __init__(self, states: ProducerStates) -> None:
        self.states = states
        self.batches: list[RecordBatch] = []
        self.end = 0
        self.completed: list[CompletedTransaction] = []

    def append(
        self,
        batch: RecordBatch,
        origin: AppendOrigin | None = None,
        *,
        guard: int = 0,
        version: int = 0,
    ) -> BatchMetadata | None:
        """As a client's, or a coordinator's if it is a marker; the metadata of the batch that it repeats, if any."""
        if origin is None:
            origin = AppendOrigin.COORDINATOR if batch.is_control else AppendOrigin.CLIENT
        known = self.states.check(batch, origin, verification_guard=guard, transaction_version=version)
        if known is None:
            batch.stamp(self.end, 0)
            self.end = batch.next_offset
            self.batches.append(batch)
            self.replay(batch)
        return known

    def refuses(self, batch: RecordBatch, origin: AppendOrigin | None = None, *, guard: int = 0, version: int = 0) -> ErrorCode:
        """The code of the refusal, behind which the state is as it was."""
        before = self.described()
        try:
            self.append(batch, origin, guard=guard, version=version)
        except KafkaError as error:
            assert self.described() == before
            return error.code
        raise AssertionError(f"{batch} was not refused")

    def replay(self, batch: RecordBatch) -> None:
        completed = self.states.update(batch)
        if completed is not None:
            self.completed.append(completed)
            self.states.complete(completed)
        self.states.map_end_offset = batch.next_offset

    def replay_from_map_end(self) -> None:
        for batch in self.batches:
            if batch.base_offset >= self.states.map_end_offset:
                self.replay(batch)

    def truncate(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch.base_offset < offset]
        self.end = offset

    def described(self) -> object:
        states = self.states
        entries = [(repr(entry), states.verification(entry.producer_id)) for entry in states.entries()]
        return entries, states.first_unstable_offset, states.first_undecided_offset, states.map_end_offset
