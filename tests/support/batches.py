"""Record batches for tests of the log: a line each to build, read back and compare."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pybroker.protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, RecordBatch, iter_batches
from pybroker.protocol.records.builder import BatchBuilder
from pybroker.protocol.records.compression import Codec
from pybroker.protocol.records.control import ControlType, end_transaction_marker

Row = tuple[bytes | None, bytes | None]


def batch(
    values: Sequence[bytes | None] = (b"value",),
    *,
    base_offset: int = 0,
    keys: Sequence[bytes | None] | None = None,
    timestamp: int = 1_000,
    timestamps: Sequence[int] | None = None,
    offsets: Sequence[int] | None = None,
    last_offset: int | None = None,
    codec: Codec = Codec.NONE,
    leader_epoch: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> bytearray:
    """A batch of `values`; `timestamps`, `keys` and `offsets` one for each, if given."""
    builder = BatchBuilder(
        base_offset,
        codec=codec,
        partition_leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    for number, value in enumerate(values):
        builder.append(
            timestamps[number] if timestamps else timestamp,
            keys[number] if keys else None,
            value,
            offset=offsets[number] if offsets else None,
        )
    return builder.build(last_offset=last_offset)


def sized_batch(size_bytes: int, **options: int) -> bytearray:
    """A batch of one record that takes just `size_bytes`, of which a header and some more is the least."""
    value_bytes = max(0, size_bytes - len(batch([b""], **options)))
    while len(built := batch([bytes(value_bytes)], **options)) > size_bytes:
        value_bytes -= 1
    assert len(built) == size_bytes, f"no value makes a batch of {size_bytes} bytes"
    return built


def marker(
    kind: ControlType,
    producer_id: int,
    *,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp: int = 1_000,
    base_offset: int = 0,
) -> bytearray:
    return end_transaction_marker(
        kind,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp=timestamp,
        base_offset=base_offset,
        partition_leader_epoch=0,
    )


def parsed(data: bytes | bytearray | memoryview) -> list[RecordBatch]:
    """Every batch in `data`, which ends where the last of them does."""
    batches = list(iter_batches(data))
    assert (batches[-1].end if batches else 0) == len(data), "there is more than whole batches"
    return batches


def records(data: bytes | bytearray | memoryview) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every record, markers too."""
    return [(record.offset, record.value) for found in parsed(data) for record in found.records()]


def joined(batches: Iterable[bytes | bytearray]) -> bytearray:
    return bytearray().join(batches)
