"""The power goes in the middle of a cleaning or of its swap: the log that comes back holds the same table, old files or new."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from unit.log.cleaner.compacted import CompactedLog
from unit.log.logs import PARTITION

from pybroker.log.cleaner.job import CleanedSegment, CleanerStats, CleaningJob
from pybroker.log.cleaner.runner import InlineRunner, Swap
from pybroker.protocol.records.batch import RecordBatch
from pybroker.protocol.records.control import ControlType
from pybroker.testing.disk import PowerCutError, SimDisk

SEEDS = int(os.environ.get("PYBROKER_CRASH_SEEDS", "200"))
OVERRIDES = {"segment.bytes": 1_048_576, "index.interval.bytes": 100, "file.delete.delay.ms": 1}


def filled(disk: SimDisk, rng: random.Random) -> CompactedLog:
    topic = CompactedLog("data", OVERRIDES, filesystem=disk)
    sequence = 0
    for number in range(rng.randint(2, 40)):
        rows = [(b"k%d" % rng.randrange(6), rng.choice((None, b"%d" % number))) for _ in range(rng.randint(1, 4))]
        if rng.random() < 0.3:
            topic.write(*rows, producer_id=9, sequence=sequence, transactional=True)
            sequence += len(rows)
            topic.end_transaction(9, rng.choice((ControlType.ABORT, ControlType.COMMIT)))
        else:
            topic.write(*rows, timestamp=100 + number)
        if rng.random() < 0.3:
            topic.roll()
    topic.roll()
    topic.log.flush()
    return topic


def begun(seed: int) -> tuple[SimDisk, CompactedLog]:
    rng = random.Random(seed)
    disk = SimDisk(rng)
    disk.make_dirs("data")
    topic = filled(disk, rng)
    disk.sync_dir("data")
    disk.sync_dir("")
    return disk, topic


def cleaned(topic: CompactedLog) -> None:
    topic.clean()
    topic.log._background.run_delayed()  # type: ignore[attr-defined]


def operations(seed: int) -> int:
    """How many it takes without a crash."""
    disk, topic = begun(seed)
    before = disk.operations
    cleaned(topic)
    return disk.operations - before


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_table_survives_a_crash_at_any_operation(seed: int) -> None:
    disk, topic = begun(seed)
    before, end = topic.table(), topic.log.log_end_offset
    written = {row.offset: row for row in topic.stored()}
    disk.cut_at = disk.operations + random.Random(seed).randint(1, operations(seed))
    with pytest.raises(PowerCutError):
        cleaned(topic)
    disk.crash()
    topic = CompactedLog("data", OVERRIDES, filesystem=disk, recovery_point=end)
    topic.log.set_high_watermark(end)
    assert topic.table() == before
    assert topic.log.log_end_offset == end
    for row in topic.stored():
        assert written[row.offset] == row
        found = topic.log.read(row.offset, 1).slice
        assert found is not None
        assert row.offset in [record.offset for record in RecordBatch(found.read()).records()]
    assert not [entry.name for entry in disk.scan(topic.log.directory) if entry.name.endswith((".cleaned", ".swap"))]
    topic.clean()
    assert topic.table() == before


class StoppedAt(InlineRunner):
    """Leaves the files as they are when the first segment is complete."""

    def clean(self, job: CleaningJob, swap: Swap) -> CleanerStats:
        def stop(cleaned: CleanedSegment) -> None:
            self.files = {path.name: path.read_bytes() for path in Path(job.directory).iterdir() if ".cleaned" in path.name}
            raise RuntimeError

        return super().clean(job, stop)


@pytest.mark.parametrize(
    ("suffixes", "is_taken"),
    [
        (("cleaned", "cleaned", "cleaned"), False),
        (("swap", "cleaned", "cleaned"), False),
        (("swap", "swap", "cleaned"), False),
        (("swap", "swap", "swap"), True),
    ],
)
def test_what_was_written_counts_once_all_its_files_are_called_swap(
    tmp_path: Path, suffixes: tuple[str, ...], is_taken: bool
) -> None:
    runner = StoppedAt(CompactedLog(tmp_path).filesystem)
    topic = CompactedLog(tmp_path, runner=runner)
    topic.write((b"a", b"1"), (b"a", b"2"))
    topic.roll()
    topic.clean()
    assert len(topic.stored()) == 2
    for (name, data), suffix in zip(sorted(runner.files.items(), key=lambda item: "log" not in item[0]), suffixes, strict=True):
        Path(topic.log.directory, name.removesuffix("cleaned") + suffix).write_bytes(data)
    topic.reopen()
    assert [row.offset for row in topic.stored()] == ([1] if is_taken else [0, 1])
    assert {path.suffix for path in Path(topic.log.directory).iterdir()} <= {".log", ".index", ".timeindex", ".snapshot", ""}
    assert topic.log.partition == PARTITION
