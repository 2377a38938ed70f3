"""A compacted log for tests, with what cleans it; one place that fills it and reads it back as consumers do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from unit.log.logs import PARTITION, opened

from pybroker.base.filesystem import FileSystem, OsFileSystem
from pybroker.log.cleaner.cleaner import Cleaner
from pybroker.log.cleaner.job import CleanerConfig, CleanerStats
from pybroker.log.cleaner.manager import CleanerManager
from pybroker.log.cleaner.runner import InlineRunner, Runner
from pybroker.log.open_segments import OpenSegments
from pybroker.protocol.records.batch import RecordBatch
from pybroker.protocol.records.builder import BatchBuilder
from pybroker.protocol.records.compression import Codec
from pybroker.protocol.records.control import ControlType, end_transaction_marker

RETENTION_MS = 1_000
EAGER = {"cleanup.policy": ["compact"], "min.cleanable.dirty.ratio": 0.0, "delete.retention.ms": RETENTION_MS}

Row = tuple[bytes | None, bytes | None]


class Stored(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


class CompactedLog:
    def __init__(
        self,
        directory: object,
        overrides: dict[str, Any] | None = None,
        *,
        filesystem: FileSystem | None = None,
        runner: Runner | None = None,
        config: CleanerConfig | None = None,
        recovery_point: int = 0,
    ) -> None:
        self.directory = str(directory)
        self.filesystem = filesystem or OsFileSystem()
        self.overrides = EAGER | (overrides or {})
        self.log = opened(directory, self.overrides, filesystem=filesystem, recovery_point=recovery_point)
        self.disk_errors: list[tuple[str, OSError]] = []
        self.manager = CleanerManager(
            self.filesystem,
            [self.directory],
            lambda: {PARTITION: self.log},
            lambda log_dir, error: self.disk_errors.append((log_dir, error)),
        )
        self.runner = runner or InlineRunner(self.filesystem)
        self.cleaner = Cleaner(self.manager, self.runner, OpenSegments(), config)

    def write(
        self,
        *rows: Row,
        timestamp: int = 100,
        codec: Codec = Codec.NONE,
        producer_id: int = -1,
        epoch: int = 0,
        sequence: int = 0,
        transactional: bool = False,
    ) -> int:
        """Append one batch, with the timestamps ascending in it; gives its first offset."""
        producer = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence} if producer_id >= 0 else {}
        builder = BatchBuilder(
            self.log.log_end_offset, codec=codec, transactional=transactional, partition_leader_epoch=0, **producer
        )
        for number, (key, value) in enumerate(rows):
            builder.append(timestamp + number, key, value)
        return self._append(builder.build())

    def end_transaction(self, producer_id: int, kind: ControlType, *, epoch: int = 0, timestamp: int = 100) -> int:
        marker = end_transaction_marker(
            kind,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=0,
            timestamp=timestamp,
            base_offset=self.log.log_end_offset,
            partition_leader_epoch=0,
        )
        return self._append(marker)

    def _append(self, batch: bytearray) -> int:
        appended = self.log.append_as_follower(batch, 0)
        self.log.set_high_watermark(self.log.log_end_offset)
        return appended.first_offset

    def roll(self) -> None:
        self.log.roll(0)

    def clean(self, now_ms: int = 1_000_000) -> CleanerStats | None:
        return self.cleaner.clean_once(now_ms)

    def reopen(self, *, is_clean: bool = False) -> None:
        if is_clean:
            self.log.close()
        end = self.log.log_end_offset
        self.log = opened(self.directory, self.overrides, filesystem=self.filesystem, is_clean=is_clean)
        self.log.set_high_watermark(end)

    def batches(self) -> list[RecordBatch]:
        return list(self.log.batches())

    def stored(self) -> list[Stored]:
        """Every record that is no marker."""
        return _stored(batch for batch in self.batches() if not batch.is_control)

    def committed(self) -> list[Stored]:
        """As a read_committed consumer sees them."""
        aborted = self.log.aborted_transactions(0, self.log.log_end_offset)
        return _stored(
            batch
            for batch in self.batches()
            if not batch.is_control
            and not any(
                batch.is_transactional
                and row.producer_id == batch.producer_id
                and row.first_offset <= batch.base_offset <= row.last_offset
                for row in aborted
            )
        )

    def table(self) -> dict[bytes | None, bytes]:
        """The last value of every key: what compaction must never change."""
        table: dict[bytes | None, bytes] = {}
        for _, key, value, _ in self.committed():
            if value is None:
                table.pop(key, None)
            else:
                table[key] = value
        return table


def _stored(batches: Iterable[RecordBatch]) -> list[Stored]:
    return [
        Stored(record.offset, record.key, record.value, record.timestamp) for batch in batches for record in batch.records()
    ]
