"""Our log as the interop tests use it: the one place here that knows the API of pybroker.log.

`opened(directory)` opens a partition's directory, `OurPartition` is what the tests may ask of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interop.log.seen import Abort, ProducerRow

from pybroker.base.filesystem import OsFileSystem
from pybroker.log.background import Inline
from pybroker.log.cleaner.cleaner import Cleaner
from pybroker.log.cleaner.manager import CleanerManager
from pybroker.log.cleaner.runner import InlineRunner
from pybroker.log.files import TopicPartition
from pybroker.log.loader import open_log
from pybroker.log.log import Log
from pybroker.log.log_config import LogConfig
from pybroker.log.open_segments import OpenSegments
from pybroker.log.producer_entry import AppendOrigin
from pybroker.protocol.records.batch import RecordBatch, iter_batches
from pybroker.protocol.records.control import ControlType, control_type
from pybroker.protocol.records.record import Record


class OurPartition:
    """An open log of ours, in the terms of `seen.Seen`. It leads alone, so everything in it is committed."""

    def __init__(self, log: Log) -> None:
        self.log = log

    @property
    def start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def stable_offset(self) -> int:
        return self.log.last_stable_offset

    def read(self, offset: int, max_bytes: int) -> bytes:
        """The batches from the one that holds `offset` on, as a fetch would bring them; empty at the end of the log."""
        found = self.log.read(offset, max_bytes).slice
        return b"" if found is None else found.read()

    def aborts(self, start: int, end: int) -> list[Abort]:
        """The aborted transactions that a read_committed fetch of the offsets from `start` to before `end` names."""
        return [Abort(row.producer_id, row.first_offset) for row in self.log.aborted_transactions(start, end)]

    def offset_for(self, timestamp: int) -> tuple[int, int]:
        """(offset, timestamp) as ListOffsets answers for a time or for -1 to -5; (-1, -1) for a time beyond all records."""
        found = self.log.offset_for_timestamp(timestamp)
        return (-1, -1) if found is None else (found.offset, found.timestamp)

    def leader_epochs(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return [(entry.epoch, entry.start_offset) for entry in self.log.leader_epochs.entries]

    def producers(self) -> list[ProducerRow]:
        """By producer id."""
        return sorted(ProducerRow(*row) for row in self.log.producers.active_producers())

    def append(self, batch: bytearray, *, leader_epoch: int, now_ms: int) -> int:
        """Append as leader what a producer sent, or a marker as the coordinator does; the offset of its first record."""
        origin = AppendOrigin.COORDINATOR if RecordBatch(batch).is_control else AppendOrigin.CLIENT
        done = self.log.append_as_leader(batch, leader_epoch, now_ms, origin=origin, transaction_version=1)
        self.log.set_high_watermark(self.log.log_end_offset)
        return done.first_offset

    def delete_records(self, before_offset: int, *, now_ms: int) -> None:
        """Move the log start offset up and let go of the segments that lie wholly below it."""
        self.log.advance_log_start_offset(before_offset)
        self.log.delete_old_segments(now_ms)

    # What follows needs only what is above.

    def batches(self, max_bytes: int = 1 << 20) -> bytes:
        """All of it from the start, read piece by piece."""
        parts = []
        offset = self.start_offset
        while offset < self.end_offset:
            part = self.read(offset, max_bytes)
            *_, last = iter_batches(part)
            assert last.end == len(part), f"the read from {offset} ends within a batch"
            assert last.next_offset > offset
            parts.append(part)
            offset = last.next_offset
        return b"".join(parts)

    def records(self, *, committed: bool = False) -> list[Record]:
        """What a consumer makes of it: no control records, and with `committed` no aborted ones and none that may be."""
        start, end = self.start_offset, self.stable_offset if committed else self.end_offset
        aborts = sorted(self.aborts(start, end), key=lambda abort: abort.first_offset) if committed else []
        aborting: set[int] = set()
        found: list[Record] = []
        for batch in iter_batches(self.batches()):
            while aborts and aborts[0].first_offset <= batch.last_offset:
                aborting.add(aborts.pop(0).producer_id)
            if batch.is_control:
                (marker,) = batch.records()
                if control_type(marker.key) is ControlType.ABORT:
                    aborting.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in aborting):
                found += (record for record in batch.records() if start <= record.offset < end)
        return found


@contextmanager
def opened(
    directory: Path,
    config: Mapping[str, Any] | None = None,
    *,
    clean: bool = True,
    start_offset: int = 0,
    recovery_point: int = 0,
) -> Iterator[OurPartition]:
    """The partition in `directory`, which may be empty; closed at the end as in a clean shutdown.

    `clean` says whether whoever had it before stopped cleanly; `start_offset` and `recovery_point` are what the checkpoints
    of the log directory say of it; `config` are topic configs, such as segment.bytes.
    """
    background = Inline()
    topic, _, partition = directory.name.rpartition("-")
    log = open_log(
        OsFileSystem(),
        str(directory),
        TopicPartition(topic, int(partition)),
        LogConfig.of(config),
        now_ms=time.time_ns() // 1_000_000,
        background=background,
        open_segments=OpenSegments(),
        log_start_offset=start_offset,
        recovery_point=recovery_point,
        is_clean=clean,
        verifies_transactions=False,
    )
    log.set_high_watermark(log.log_end_offset)
    try:
        yield OurPartition(log)
    finally:
        log.close()
    background.run_delayed()


def compact(directory: Path, config: Mapping[str, Any], *, now_ms: int) -> None:
    """Run our cleaner once over the partition in `directory`, which is not open."""
    with opened(directory, config) as ours:
        filesystem, partition = ours.log.filesystem, ours.log.partition
        manager = CleanerManager(filesystem, [str(directory.parent)], lambda: {partition: ours.log})
        stats = Cleaner(manager, InlineRunner(filesystem), OpenSegments()).clean_once(now_ms)
        assert stats is not None, "nothing was cleaned"
