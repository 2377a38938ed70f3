"""What idempotence costs an append, in µs: check and update of one batch, and a snapshot of many producers."""

from __future__ import annotations

from pathlib import Path

import pytest
from perf.measure import best_us, report

from pybroker.base.filesystem import OsFileSystem
from pybroker.log.files import TopicPartition
from pybroker.log.producer_entry import ProducerEntry
from pybroker.log.producer_snapshot import read_snapshot, write_snapshot
from pybroker.log.producer_state import ProducerStates
from pybroker.protocol.records.batch import MAX_SEQUENCE, RecordBatch
from pybroker.protocol.records.builder import BatchBuilder

pytestmark = pytest.mark.perf

RECORDS = 16


def states(tmp_path: Path) -> ProducerStates:
    return ProducerStates(OsFileSystem(), str(tmp_path), TopicPartition("perf", 0), verifies_transactions=False)


def batch_of(producer_id: int, *, transactional: bool = False) -> RecordBatch:
    with_id = producer_id >= 0
    builder = BatchBuilder(
        producer_id=producer_id,
        producer_epoch=0 if with_id else -1,
        base_sequence=0 if with_id else -1,
        transactional=transactional,
    )
    for _ in range(RECORDS):
        builder.append(1_700_000_000_000, None, b"value")
    return RecordBatch(builder.build())


@pytest.mark.parametrize(
    ("what", "producer_id", "transactional", "bar"),
    [
        ("a batch in sequence", 7, False, 1.5),
        ("a batch of an open transaction", 7, True, 2.0),
        ("a batch without producer id", -1, False, 0.25),
    ],
)
def test_check_and_update(tmp_path: Path, what: str, producer_id: int, transactional: bool, bar: float) -> None:
    known = states(tmp_path)
    for other in range(1000, 2000):
        known.update(batch_of(other))
    batch = batch_of(producer_id, transactional=transactional)
    check, update = known.check, known.update

    def append() -> None:
        check(batch)
        update(batch)
        batch.base_sequence = (batch.base_sequence + RECORDS) & MAX_SEQUENCE
        batch.base_offset += RECORDS

    def only_the_test() -> None:
        batch.base_sequence = (batch.base_sequence + RECORDS) & MAX_SEQUENCE
        batch.base_offset += RECORDS

    if producer_id < 0:
        report(f"check + update, {what}", best_us(lambda: (check(batch), update(batch))), "µs", bar)
        return
    append_us = best_us(append)
    batch.base_sequence = 0
    report(f"check + update, {what}", append_us - best_us(only_the_test), "µs", bar)


def test_snapshot_of_10000_producers(tmp_path: Path) -> None:
    known = states(tmp_path)
    for producer_id in range(10_000):
        known.update(batch_of(producer_id))
    entries: list[ProducerEntry] = list(known.entries())
    filesystem, path = OsFileSystem(), str(tmp_path / "00000000000000000016.snapshot")
    report(
        "snapshot of 10,000 producers, written",
        best_us(lambda: write_snapshot(filesystem, path, entries, sync=False)) / 1e3,
        "ms",
    )
    report("snapshot of 10,000 producers, read", best_us(lambda: read_snapshot(filesystem, path)) / 1e3, "ms")
