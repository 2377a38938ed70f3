"""Snapshots of the metadata log: files of batches that begin with a header and end with a footer.

`{end offset}-{epoch}.checkpoint` beside the log stands for everything before that offset; `bootstrap.checkpoint` in a log
directory holds the first records of a cluster. A snapshot is written and read batch by batch, so that neither takes memory
for the whole of it; it has its name only when all of it is on disk.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from pybroker.base.filesystem import File, FileSystem
from pybroker.metadata.framing import decode_record, encode_record
from pybroker.protocol.errors import KafkaError, ProtocolError
from pybroker.protocol.internal.control_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from pybroker.protocol.message import Message
from pybroker.protocol.records.batch import LOG_OVERHEAD, RecordBatch, iter_batches
from pybroker.protocol.records.builder import BatchBuilder
from pybroker.protocol.records.control import ControlType, control_batch, control_type
from pybroker.protocol.records.validation import check_batch
from pybroker.raft.events import SnapshotId

BOOTSTRAP: Final = "bootstrap.checkpoint"
PART: Final = ".part"  # of a snapshot that is not whole yet

_NAME = re.compile(r"(?P<offset>\d{20})-(?P<epoch>\d{10})\.checkpoint")
_MAX_BATCH_BYTES: Final = 1024 * 1024
_LENGTH: Final = slice(8, 12)


class SnapshotError(Exception):
    """A file that is no whole snapshot."""


@dataclass(slots=True, frozen=True)
class Snapshot:
    records: tuple[Message, ...]
    kraft_version: int = 0
    voters: VotersRecord | None = None


def snapshot_name(snapshot: SnapshotId) -> str:
    return f"{snapshot}.checkpoint"


def list_snapshots(filesystem: FileSystem, directory: str) -> list[SnapshotId]:
    """Those that are whole, the latest last."""
    found = [match for entry in filesystem.scan(directory) if (match := _NAME.fullmatch(entry.name))]
    return sorted(SnapshotId(int(match["offset"]), int(match["epoch"])) for match in found)


class SnapshotReader:
    """A snapshot as it lies on disk: who votes is known when it is opened, the records are read as they are asked for.

    Of one thread. SnapshotError, at the opening or on the way, if the file is not whole; `records` can be read again.
    """

    def __init__(self, filesystem: FileSystem, path: str) -> None:
        self._path = path
        self.kraft_version = 0
        self.voters: VotersRecord | None = None
        self._file = filesystem.open(path, read_only=True)
        try:
            head = next(self._batches(), None)
            rows = [] if head is None or not head.is_control else list(head.records())
            if not rows or control_type(rows[0].key) is not ControlType.SNAPSHOT_HEADER:
                raise self._error("expected a header at its start")
            for row in rows[1:]:
                kind = control_type(row.key)
                if kind is ControlType.KRAFT_VERSION:
                    self.kraft_version = KRaftVersionRecord.decode(0, row.value or b"").k_raft_version
                elif kind is ControlType.KRAFT_VOTERS:
                    self.voters = VotersRecord.decode(0, row.value or b"")
        except (KafkaError, ProtocolError) as error:
            self.close()
            raise self._error(error) from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> SnapshotReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def check(self) -> None:
        """Look at all of it without reading the records: SnapshotError if something is missing or broken."""
        last = None
        for batch in self._batches():
            last = control_type(next(iter(batch.records())).key) if batch.is_control else None
        if last is not ControlType.SNAPSHOT_FOOTER:
            raise self._error("expected a footer at its end")

    def records(self) -> Iterator[Message]:
        last: ControlType | None = None
        for batch in self._batches():
            if last is ControlType.SNAPSHOT_FOOTER:
                raise self._error("expected nothing behind its footer")
            try:
                for record in batch.records():
                    if batch.is_control:
                        last = control_type(record.key)
                    else:
                        yield decode_record(record.value)
            except (KafkaError, ProtocolError) as error:
                raise self._error(error) from error
        if last is not ControlType.SNAPSHOT_FOOTER:
            raise self._error("expected a footer at its end")

    def _batches(self) -> Iterator[RecordBatch]:
        position, size = 0, self._file.size()
        while position < size:
            # A length that is nonsense is found out by what is missing, before so much is read.
            length = int.from_bytes(self._file.read(position, min(LOG_OVERHEAD, size - position))[_LENGTH], "big")
            if length + LOG_OVERHEAD > size - position:
                raise self._error(f"it ends inside the batch at byte {position}")
            try:
                batch = next(iter_batches(self._file.read(position, length + LOG_OVERHEAD)), None)
                if batch is None:
                    raise self._error(f"the batch at byte {position} is not whole")
                check_batch(batch)
            except (KafkaError, ProtocolError) as error:
                raise self._error(error) from error
            yield batch
            position += batch.size_bytes

    def _error(self, problem: object) -> SnapshotError:
        return SnapshotError(f"{self._path} is no whole snapshot: {problem}")


def read_snapshot(filesystem: FileSystem, path: str) -> Snapshot:
    """All of it at once, for one that is known to be small."""
    with SnapshotReader(filesystem, path) as reader:
        return Snapshot(tuple(reader.records()), reader.kraft_version, reader.voters)


def write_snapshot(
    filesystem: FileSystem,
    path: str,
    records: Iterable[tuple[Message, int]],
    *,
    now_ms: int,
    voters: VotersRecord | None = None,
    epoch: int = 0,
    last_timestamp_ms: int = 0,
) -> None:
    """`records` with their versions. With `voters` the snapshot is that of a quorum of kraft.version 1."""
    temporary = path + PART
    if filesystem.exists(temporary):
        filesystem.remove(temporary)
    file = filesystem.open(temporary, create=True)
    try:
        header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_timestamp_ms)
        _write(file, records, header, voters, epoch, now_ms)
        file.sync()
    finally:
        file.close()
    filesystem.rename(temporary, path)
    filesystem.sync_dir(os.path.dirname(path))


def _write(
    file: File,
    records: Iterable[tuple[Message, int]],
    header: SnapshotHeaderRecord,
    voters: VotersRecord | None,
    epoch: int,
    now_ms: int,
) -> None:
    rows = [(ControlType.SNAPSHOT_HEADER, header.encode(0))]
    if voters is not None:
        rows.append((ControlType.KRAFT_VERSION, KRaftVersionRecord(version=0, k_raft_version=1).encode(0)))
        rows.append((ControlType.KRAFT_VOTERS, voters.encode(0)))
    head = control_batch(rows, timestamp=now_ms, base_offset=0, partition_leader_epoch=epoch)
    file.write(0, head)
    position, offset = len(head), len(rows)
    for batch in record_batches(records, offset, epoch, now_ms, _MAX_BATCH_BYTES):
        file.write(position, batch)
        position += len(batch)
        offset = next(iter_batches(batch)).next_offset
    footer = [(ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord(version=0).encode(0))]
    file.write(position, control_batch(footer, timestamp=now_ms, base_offset=offset, partition_leader_epoch=epoch))


def record_batches(
    records: Iterable[tuple[Message, int]], offset: int, epoch: int, now_ms: int, max_batch_bytes: int
) -> Iterator[bytearray]:
    """`records`, each with its version, from `offset` on, in batches of at most about `max_batch_bytes`."""
    builder = None
    for record, version in records:
        if builder is None or builder.size_bytes >= max_batch_bytes:
            if builder is not None:
                yield builder.build()
            builder = BatchBuilder(offset, partition_leader_epoch=epoch)
        builder.append(now_ms, None, encode_record(record, version))
        offset += 1
    if builder is not None:
        yield builder.build()
