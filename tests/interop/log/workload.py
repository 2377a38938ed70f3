"""What our log is given to write in these tests, and what must be found afterwards: a small model of a partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from interop.log.clients import Row, rows
from interop.log.dumps import DumpedAbort, DumpedProducer
from interop.log.our_log import OurPartition
from interop.log.seen import Abort, ProducerRow

from pybroker.protocol.records.batch import RecordBatch
from pybroker.protocol.records.builder import BatchBuilder
from pybroker.protocol.records.compression import Codec
from pybroker.protocol.records.control import ControlType, end_transaction_marker
from pybroker.protocol.records.record import Record

COORDINATOR_EPOCH = 3
# Producer ids that no Apache Kafka of these tests comes to give away.
IDEMPOTENT = 900_000
TRANSACTIONAL = 910_000


@dataclass(slots=True)
class _Producer:
    producer_id: int
    producer_epoch: int
    next_sequence: int = 0
    first_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = -1
    last_timestamp: int = -1
    coordinator_epoch: int = -1
    txn_start_offset: int = -1
    txn_offsets: list[int] = field(default_factory=list)


class Workload:
    """Batches as producers and coordinators send them, in order, and the model's view of the log they make.

    `snapshots[n]` are the producers before batch n, and `snapshots[-1]` after the last one.
    """

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.batches: list[bytearray] = []
        self.base_offsets: list[int] = []
        self.records: list[Record] = []
        self.aborts: list[DumpedAbort] = []
        self.end_offset = 0
        self.snapshots: list[list[DumpedProducer]] = [[]]
        self._aborted_offsets: set[int] = set()
        self._producers: dict[int, _Producer] = {}

    def add(
        self, batch: Sequence[Row], codec: Codec = Codec.NONE, *, producer_id: int = -1, transactional: bool = False
    ) -> None:
        """A batch of a producer: with an id it is idempotent, `transactional` in its open transaction."""
        producer = self._producer(producer_id) if producer_id >= 0 else None
        builder = BatchBuilder(
            codec=codec,
            producer_id=producer_id,
            producer_epoch=producer.producer_epoch if producer else -1,
            base_sequence=producer.next_sequence if producer else -1,
            transactional=transactional,
        )
        for row in batch:
            builder.append(*row)
        start = self.end_offset
        self.records += (Record(start + index, *row) for index, row in enumerate(batch))
        newest = max(row.timestamp for row in batch)
        if producer:
            producer.first_sequence = producer.next_sequence
            producer.next_sequence += len(batch)
            producer.last_offset = start + len(batch) - 1
            producer.offset_delta = len(batch) - 1
            producer.last_timestamp = newest
            if transactional:
                producer.txn_offsets += range(start, start + len(batch))
                if producer.txn_start_offset < 0:
                    producer.txn_start_offset = start
        self._append(builder.build(), len(batch))

    def end(self, producer_id: int, *, commit: bool) -> None:
        """The coordinator's marker."""
        producer = self._producers[producer_id]
        marker = end_transaction_marker(
            ControlType.COMMIT if commit else ControlType.ABORT,
            producer_id=producer_id,
            producer_epoch=producer.producer_epoch,
            coordinator_epoch=COORDINATOR_EPOCH,
            timestamp=self.now_ms,
        )
        started, producer.txn_start_offset = producer.txn_start_offset, -1
        producer.last_timestamp = self.now_ms
        producer.coordinator_epoch = COORDINATOR_EPOCH
        if not commit:
            self._aborted_offsets.update(producer.txn_offsets)
            stable = min((other.txn_start_offset for other in self._open()), default=self.end_offset + 1)
            self.aborts.append(DumpedAbort(producer_id, started, self.end_offset, stable))
        producer.txn_offsets = []
        self._append(marker, 1)

    @property
    def stable_offset(self) -> int:
        return min((producer.txn_start_offset for producer in self._open()), default=self.end_offset)

    @property
    def committed(self) -> list[Record]:
        """What a read_committed consumer sees."""
        end = self.stable_offset
        return [record for record in self.records if record.offset not in self._aborted_offsets and record.offset < end]

    @property
    def fetched_aborts(self) -> list[Abort]:
        return sorted(Abort(abort.producer_id, abort.first_offset) for abort in self.aborts)

    @property
    def producers(self) -> list[ProducerRow]:
        return [
            ProducerRow(
                producer.producer_id,
                producer.producer_epoch,
                producer.next_sequence - 1,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.txn_start_offset,
            )
            for _, producer in sorted(self._producers.items())
        ]

    def stamped(self, leader_epoch: int) -> list[RecordBatch]:
        """The batches as they must lie in the log."""
        made = []
        for data, offset in zip(self.batches, self.base_offsets, strict=True):
            batch = RecordBatch(bytearray(data))
            batch.stamp(offset, leader_epoch)
            made.append(batch)
        return made

    def write(self, ours: OurPartition, leader_epoch: int, start: int = 0, end: int | None = None) -> None:
        """Append the batches from number `start` to before number `end`."""
        for data, offset in zip(self.batches[start:end], self.base_offsets[start:end], strict=True):
            assert ours.append(bytearray(data), leader_epoch=leader_epoch, now_ms=self.now_ms) == offset

    def _producer(self, producer_id: int) -> _Producer:
        return self._producers.setdefault(producer_id, _Producer(producer_id, producer_epoch=producer_id % 7))

    def _open(self) -> list[_Producer]:
        return [producer for producer in self._producers.values() if producer.txn_start_offset >= 0]

    def _append(self, data: bytearray, count: int) -> None:
        self.batches.append(data)
        self.base_offsets.append(self.end_offset)
        self.end_offset += count
        self.snapshots.append([_dumped(producer) for _, producer in sorted(self._producers.items())])


def _dumped(producer: _Producer) -> DumpedProducer:
    return DumpedProducer(
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.txn_start_offset if producer.txn_start_offset >= 0 else None,
        producer.last_timestamp,
        producer.first_sequence,
        producer.next_sequence - 1,
        producer.last_offset,
        producer.offset_delta,
        producer.last_timestamp,  # the file keeps one for both
    )


def everything(now_ms: int, *, open_transaction: bool = False) -> Workload:
    """Every codec, with and without producer ids, committed, aborted and interleaved transactions, old timestamps between
    new ones, batches of one record and of 11 KiB; with `open_transaction` the last one has no end."""
    made = Workload(now_ms)
    moment = now_ms - 100_000
    for turn in range(4):
        for codec in Codec:
            made.add(rows(20, moment, start=len(made.records)), codec)
            made.add(rows(15, moment - 50_000, start=len(made.records)), codec, producer_id=IDEMPOTENT + codec)
            made.add(rows(1, moment, start=len(made.records)), codec)
        for codec in Codec:
            made.add(rows(10, moment, start=len(made.records)), codec, producer_id=TRANSACTIONAL, transactional=True)
            made.add(rows(12, moment, start=len(made.records)), codec, producer_id=TRANSACTIONAL + 1, transactional=True)
            made.add(rows(5, moment, start=len(made.records)), codec)
        made.end(TRANSACTIONAL, commit=turn % 2 == 0)
        made.add(rows(7, moment, start=len(made.records)), producer_id=TRANSACTIONAL + 1, transactional=True)
        made.end(TRANSACTIONAL + 1, commit=turn % 2 == 1)
        made.add(rows(30, moment, start=len(made.records), size=400))
        moment += 20_000
    if open_transaction:
        made.add(rows(10, moment, start=len(made.records)), Codec.ZSTD, producer_id=TRANSACTIONAL + 2, transactional=True)
        made.add(rows(10, moment, start=len(made.records)), Codec.ZSTD)
    return made
