"""`{offset}.snapshot`: the producers of a partition as of an offset, so that only the log behind it has to be read again.

A file is two bytes of version, a CRC-32C over all behind it, and an entry for each producer with its last batch alone.
`SnapshotFiles` knows the ones of a partition; it belongs to the partition's `ProducerStates` and is used under the log's
lock.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Collection, Iterable
from struct import Struct
from typing import Final

from pybroker.base.filesystem import FileSystem, read_file, write_file
from pybroker.log.checkpoints import CorruptFileError
from pybroker.log.files import DELETED, SNAPSHOT, file_name, parse_file
from pybroker.log.producer_entry import NO_TRANSACTION, BatchMetadata, ProducerEntry
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.internal import producer_snapshot as message
from pybroker.protocol.records import crc

VERSION: Final = 1
_PREFIX: Final = Struct(">hI")
_VERSION_BYTES: Final = 2
_NO_OFFSET: Final = -1

logger = logging.getLogger(__name__)


class SnapshotFiles:
    __slots__ = ("_filesystem", "directory", "offsets")

    def __init__(self, filesystem: FileSystem, directory: str, offsets: Iterable[int] = ()) -> None:
        """`offsets` are those that `snapshot_offsets` finds in the directory."""
        self._filesystem = filesystem
        self.directory = directory
        self.offsets = sorted(offsets)

    @property
    def oldest(self) -> int | None:
        return self.offsets[0] if self.offsets else None

    @property
    def latest(self) -> int | None:
        return self.offsets[-1] if self.offsets else None

    def path(self, offset: int) -> str:
        return snapshot_path(self.directory, offset)

    def write(self, offset: int, entries: Iterable[ProducerEntry], *, sync: bool = True) -> str:
        path = self.path(offset)
        write_snapshot(self._filesystem, path, entries, sync=sync)
        if offset not in self.offsets:
            insort(self.offsets, offset)
        return path

    def load_latest(self) -> tuple[int, list[ProducerEntry]] | None:
        """The newest one that can be read; newer ones that cannot are deleted."""
        while self.offsets:
            offset = self.offsets[-1]
            try:
                return offset, read_snapshot(self._filesystem, self.path(offset))
            except FileNotFoundError:
                self.offsets.pop()
            except CorruptFileError as error:
                logger.warning("deleted a damaged producer snapshot, an older one or the log takes its place: %s", error)
                self._delete(offset)
        return None

    def delete_outside(self, log_start_offset: int, log_end_offset: int) -> None:
        """One at the log start says nothing that the log does not."""
        self._delete(*(offset for offset in self.offsets if not log_start_offset < offset <= log_end_offset))

    def delete_all(self) -> None:
        self._delete(*self.offsets)

    def delete_strays(self, segment_base_offsets: Collection[int]) -> None:
        """Keep those at the start of a segment, and of the others the newest if no segment begins behind it: the one that a
        clean shutdown wrote."""
        starts = set(segment_base_offsets)
        strays = [offset for offset in self.offsets if offset not in starts]
        if strays and strays[-1] >= max(starts, default=0):
            strays.pop()
        self._delete(*strays)

    def mark_deleted(self, offset: int) -> str | None:
        """Rename the one at `offset`, if there is one, to be removed later; its new path."""
        if offset not in self.offsets:
            return None
        self.offsets.remove(offset)
        path = self.path(offset)
        try:
            self._filesystem.rename(path, path + DELETED)
        except FileNotFoundError:
            return None
        return path + DELETED

    def _delete(self, *offsets: int) -> None:
        for offset in offsets:
            self.offsets.remove(offset)
            if self._filesystem.exists(self.path(offset)):
                self._filesystem.remove(self.path(offset))


def snapshot_path(directory: str, offset: int) -> str:
    return f"{directory}/{file_name(offset, SNAPSHOT)}"


def snapshot_offsets(filesystem: FileSystem, directory: str) -> list[int]:
    """The offsets of the snapshots in a partition's directory, ascending."""
    found = (parse_file(entry.name) for entry in filesystem.scan(directory) if not entry.is_dir)
    return sorted(file.base_offset for file in found if file and file.suffix == SNAPSHOT and file.state is None)


def write_snapshot(filesystem: FileSystem, path: str, entries: Iterable[ProducerEntry], *, sync: bool = True) -> None:
    rows = []
    for entry in entries:
        last = entry.batches[-1] if entry.batches else None
        rows.append(
            message.ProducerEntry(
                producer_id=entry.producer_id,
                epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_offset=_NO_OFFSET if last is None else last.last_offset,
                offset_delta=0 if last is None else last.offset_delta,
                timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_first_offset=entry.current_txn_first_offset,
            )
        )
    data = bytearray(_VERSION_BYTES)
    message.ProducerSnapshot(crc=0, producer_entries=rows).encode_into(VERSION, data)
    with memoryview(data) as view:
        _PREFIX.pack_into(data, 0, VERSION, crc.crc32c(view[_PREFIX.size :]))
    write_file(filesystem, path, bytes(data), sync=sync)


def read_snapshot(filesystem: FileSystem, path: str) -> list[ProducerEntry]:
    """The entries of a snapshot; CorruptFileError if it is damaged."""
    data = read_file(filesystem, path)
    if len(data) < _PREFIX.size:
        raise CorruptFileError(path, f"it has {len(data)} bytes; expected at least {_PREFIX.size}")
    version, stored = _PREFIX.unpack_from(data)
    if version != VERSION:
        raise CorruptFileError(path, f"its version is {version}; expected {VERSION}")
    computed = crc.crc32c(memoryview(data)[_PREFIX.size :])
    if computed != stored:
        raise CorruptFileError(path, f"its CRC is {stored:#010x}; expected {computed:#010x}")
    try:
        snapshot, _ = message.ProducerSnapshot.decode_from(VERSION, data, _VERSION_BYTES)
    except ProtocolError as error:
        raise CorruptFileError(path, str(error)) from error
    return [_entry(row) for row in snapshot.producer_entries]


def _entry(row: message.ProducerEntry) -> ProducerEntry:
    batch = None
    if row.last_offset >= 0:
        batch = BatchMetadata(row.last_sequence, row.last_offset, row.offset_delta, row.timestamp)
    first_offset = max(row.current_txn_first_offset, NO_TRANSACTION)
    return ProducerEntry(row.producer_id, row.epoch, row.coordinator_epoch, row.timestamp, first_offset, batch)
