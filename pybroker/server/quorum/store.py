"""The files of a metadata replica, `__cluster_metadata-0` in metadata.log.dir: the log, its snapshots, quorum-state.

One thread uses it. It does what the quorum machine orders and decides nothing: records count when `flush` has returned, an
election is on disk when `persist_election` has. A snapshot that is being fetched lies aside as `.fetched` until it is whole.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from pybroker.base.filesystem import FileSystem, Lock, read_file, sync_file, write_file
from pybroker.base.ids import METADATA_TOPIC_UUID, ZERO_UUID
from pybroker.config.broker import Config
from pybroker.log.background import Inline
from pybroker.log.files import TopicPartition
from pybroker.log.loader import open_log
from pybroker.log.log import Log
from pybroker.log.log_config import LogConfig
from pybroker.log.manager.log_dir import LOCK_FILE
from pybroker.log.open_segments import OpenSegments
from pybroker.log.segment import FileSlice
from pybroker.metadata.controller.topic_names import METADATA_TOPIC
from pybroker.metadata.framing import decode_record
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.internal.control_records import KRaftVersionRecord, VotersRecord
from pybroker.protocol.internal.quorum_state import QuorumStateData, Voter
from pybroker.protocol.json_form import from_json, to_json
from pybroker.protocol.message import Message
from pybroker.protocol.records.control import ControlType, control_type
from pybroker.raft.events import ElectionState, EpochStart, Recovered, ReplicaKey, SnapshotId, VotersAt
from pybroker.server.metadata_snapshot import PART, SnapshotError, SnapshotReader, list_snapshots, snapshot_name

logger = logging.getLogger(__name__)

QUORUM_STATE: Final = "quorum-state"
FETCHED: Final = ".fetched"
NOBODY: Final = -1
PARTITION: Final = TopicPartition(METADATA_TOPIC, 0)


class MetadataLogError(Exception):
    """The files of the metadata are not usable as they are."""


class Entry(NamedTuple):
    """`record` is None for what is between the replicas only."""

    offset: int
    epoch: int
    record: Message | None


class MetadataStore:
    def __init__(self, filesystem: FileSystem, config: Config, now_ms: int) -> None:
        """Opens the log, cutting off what a crash left half written; MetadataLogError if another process has it."""
        self._filesystem = filesystem
        parent = os.path.abspath(config.text("metadata.log.dir"))
        self.directory = f"{parent}/{PARTITION}"
        # The log manager locks the directories that are its own.
        is_shared = config.is_broker and parent in map(os.path.abspath, config.items_of("log.dirs"))
        self._lock = None if is_shared else _locked(filesystem, parent)
        self._config = _log_config(config)
        self._retention_bytes = config.int("metadata.max.retention.bytes")
        self._retention_ms = config.int("metadata.max.retention.ms")
        self._static_voters = [int(one.partition("@")[0]) for one in config.items_of("controller.quorum.voters")]
        self._is_dirty = False
        if not filesystem.exists(self.directory):
            filesystem.make_dirs(self.directory)
            filesystem.sync_dir(parent)
        self._remove_halves(FETCHED, PART)
        self._snapshots = list_snapshots(filesystem, self.directory)
        self._log = self._open(now_ms)

    def _open(self, now_ms: int) -> Log:
        """The log, which begins anew where the latest snapshot ends if it does not lead there: it was lost, or a crash came
        when the snapshot of another replica had its name and the log that parts from it was still there."""
        log = open_log(
            self._filesystem,
            self.directory,
            PARTITION,
            self._config,
            now_ms=now_ms,
            background=Inline(),
            open_segments=OpenSegments(),
            topic_id=METADATA_TOPIC_UUID,
        )
        latest = self.latest_snapshot
        if latest is not None and not _leads_to(log, latest):
            log.truncate_fully_and_start_at(latest.end_offset, now_ms)
        return log

    def reopen(self, now_ms: int) -> None:
        """After a failed write: what is on disk is looked at anew."""
        self._log.close_files()
        self._is_dirty = False
        self._remove_halves(FETCHED)
        self._snapshots = list_snapshots(self._filesystem, self.directory)
        self._log = self._open(now_ms)

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return self._snapshots[-1] if self._snapshots else None

    @property
    def end_offset(self) -> int:
        return self._log.log_end_offset

    def recovered(self) -> Recovered:
        log, latest = self._log, self.latest_snapshot
        epochs = [EpochStart(entry.epoch, entry.start_offset) for entry in log.leader_epochs.entries]
        kraft_version, voters = 0, []
        start = log.log_start_offset
        if latest is not None:
            start = latest.end_offset
            with self.open_snapshot(latest) as snapshot:
                snapshot.check()
                kraft_version = snapshot.kraft_version
                if snapshot.voters is not None:
                    voters.append(VotersAt(latest.end_offset - 1, snapshot.voters))
            if not epochs or epochs[0].start_offset > latest.end_offset:
                epochs.insert(0, EpochStart(latest.epoch, latest.end_offset))
        for batch in log.batches(start):
            if batch.is_control:
                for record in batch.records():
                    kind = control_type(record.key)
                    if kind is ControlType.KRAFT_VERSION:
                        kraft_version = KRaftVersionRecord.decode(0, record.value or b"").k_raft_version
                    elif kind is ControlType.KRAFT_VOTERS:
                        voters.append(VotersAt(record.offset, VotersRecord.decode(0, record.value or b"")))
        return Recovered(
            election=self._read_election(),
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            epochs=tuple(epochs),
            snapshot=latest,
            kraft_version=kraft_version,
            voters=tuple(voters),
        )

    # The election.

    def persist_election(self, state: ElectionState, kraft_version: int) -> None:
        data = QuorumStateData(
            leader_id=NOBODY if state.leader_id is None else state.leader_id,
            leader_epoch=state.epoch,
            voted_id=NOBODY if state.voted is None else state.voted.id,
            voted_directory_id=ZERO_UUID if state.voted is None else state.voted.directory_id,
            current_voters=[Voter(voter_id=one) for one in self._static_voters],
        )
        version = 1 if kraft_version else 0
        content = to_json(data, version) | {"data_version": version}
        text = json.dumps(content, separators=(",", ":")).encode()
        write_file(self._filesystem, f"{self.directory}/{QUORUM_STATE}", text)

    def _read_election(self) -> ElectionState:
        path = f"{self.directory}/{QUORUM_STATE}"
        latest = self._log.leader_epochs.latest
        if not self._filesystem.exists(path):
            return ElectionState(epoch=0 if latest is None else latest.epoch)
        try:
            content = json.loads(read_file(self._filesystem, path))
            data = from_json(QuorumStateData, content.pop("data_version"), content)
        except (ValueError, KeyError, TypeError, AttributeError, ProtocolError) as error:
            raise MetadataLogError(
                f"{path} is not readable ({error}). Restore it; without it nobody knows which epochs this node has seen."
            ) from error
        return ElectionState(
            epoch=max(data.leader_epoch, 0),
            leader_id=None if data.leader_id == NOBODY else data.leader_id,
            voted=None if data.voted_id == NOBODY else ReplicaKey(data.voted_id, data.voted_directory_id),
        )

    # The log.

    def append(self, data: bytes, now_ms: int) -> None:
        self._is_dirty = True
        self._log.append_as_follower(data, now_ms)

    def truncate_to(self, end_offset: int, now_ms: int) -> None:
        self._log.truncate_to(end_offset, now_ms)

    def flush(self, now_ms: int) -> int | None:
        """Where the durable records end now; None if nothing was written since the last time."""
        if not self._is_dirty:
            return None
        self._log.flush(now_ms=now_ms)
        self._is_dirty = False
        return self._log.log_end_offset

    def read(self, offset: int, max_bytes: int) -> FileSlice | None:
        """Whole batches from `offset` on, one at least if there is one."""
        return self._log.read(offset, max_bytes).slice

    def set_high_watermark(self, offset: int) -> None:
        self._log.set_high_watermark(offset)

    def entries(self, start: int, end: int) -> Iterator[Entry]:
        """What the log has from `start` to before `end`."""
        for batch in self._log.batches(start, end):
            epoch = batch.partition_leader_epoch
            for record in batch.records():
                if not start <= record.offset < end:
                    continue
                if batch.is_control:
                    yield Entry(record.offset, epoch, None)
                    continue
                try:
                    yield Entry(record.offset, epoch, decode_record(record.value))
                except ProtocolError as error:
                    raise MetadataLogError(f"{self.directory}, offset {record.offset}: {error}") from error

    def size_from(self, start: int) -> int:
        """How many bytes the log has from `start` on."""
        return sum(batch.size_bytes for batch in self._log.batches(start))

    # Snapshots.

    def path_of(self, snapshot: SnapshotId) -> str:
        return f"{self.directory}/{snapshot_name(snapshot)}"

    def open_snapshot(self, snapshot: SnapshotId) -> SnapshotReader:
        """To be closed by the caller."""
        return SnapshotReader(self._filesystem, self.path_of(snapshot))

    def read_chunk(self, snapshot: SnapshotId, position: int, max_bytes: int) -> tuple[int, bytes] | None:
        """The size of the file, and a piece of it; None if there is no such snapshot here."""
        if snapshot not in self._snapshots:
            return None
        file = self._filesystem.open(self.path_of(snapshot), read_only=True)
        try:
            size = file.size()
            return size, file.read(position, min(max_bytes, max(0, size - position)))
        finally:
            file.close()

    def store_chunk(self, snapshot: SnapshotId, position: int, data: bytes) -> None:
        path = self.path_of(snapshot) + FETCHED
        if position == 0 and self._filesystem.exists(path):
            self._filesystem.remove(path)
        file = self._filesystem.open(path, create=True)
        try:
            file.write(position, data)
        finally:
            file.close()

    def install(self, snapshot: SnapshotId, now_ms: int) -> SnapshotReader:
        """The fetched snapshot takes its name, and the log begins anew where it ends. SnapshotError if it is not whole,
        and then it is gone."""
        part = self.path_of(snapshot) + FETCHED
        sync_file(self._filesystem, part)
        try:
            with SnapshotReader(self._filesystem, part) as content:
                content.check()
        except SnapshotError:
            self._filesystem.remove(part)
            raise
        self._filesystem.rename(part, self.path_of(snapshot))
        self._filesystem.sync_dir(self.directory)
        self._log.truncate_fully_and_start_at(snapshot.end_offset, now_ms)
        self.taken(snapshot)
        return self.open_snapshot(snapshot)

    def leads_to(self, snapshot: SnapshotId) -> bool:
        """Whether the log has what the snapshot ends with, or follows upon it."""
        return _leads_to(self._log, snapshot)

    def taken(self, snapshot: SnapshotId) -> None:
        """A snapshot is there now, under its name."""
        if snapshot not in self._snapshots:
            self._snapshots = sorted([*self._snapshots, snapshot])

    def clean(self, now_ms: int) -> int | None:
        """Remove snapshots, and the log before the next one, by metadata.max.retention.*; the new start of the log."""
        start = self._log.log_start_offset
        while len(self._snapshots) > 1 and self._is_expired(self._snapshots[0], now_ms):
            gone, following = self._snapshots[0], self._snapshots[1]
            if following.end_offset > self._log.log_start_offset:
                self._log.advance_log_start_offset(following.end_offset)
                self._log.delete_old_segments(now_ms)
            self._filesystem.remove(self.path_of(gone))
            self._snapshots = self._snapshots[1:]
        return None if self._log.log_start_offset == start else self._log.log_start_offset

    def _is_expired(self, snapshot: SnapshotId, now_ms: int) -> bool:
        age_ms = now_ms - self._filesystem.modified_ms(self.path_of(snapshot))
        if 0 <= self._retention_ms < age_ms:
            return True
        return 0 <= self._retention_bytes < self._log.size_bytes + sum(map(self._size_of, self._snapshots))

    def _size_of(self, snapshot: SnapshotId) -> int:
        file = self._filesystem.open(self.path_of(snapshot), read_only=True)
        try:
            return file.size()
        finally:
            file.close()

    def _remove_halves(self, *suffixes: str) -> None:
        """Snapshots that nobody goes on with."""
        for entry in list(self._filesystem.scan(self.directory)):
            if entry.name.endswith(suffixes):
                self._filesystem.remove(f"{self.directory}/{entry.name}")

    def close(self) -> None:
        """The directory is free afterwards, even if its disk fails at the last flush."""
        try:
            self._log.close()
        finally:
            if self._lock is not None:
                self._lock.release()


def _leads_to(log: Log, snapshot: SnapshotId) -> bool:
    """Whether the log has the last record of the snapshot, or follows upon it. By that record's epoch, for logs that have the
    same epoch at an offset are equal up to there."""
    end = snapshot.end_offset
    if log.log_end_offset < end:
        return False
    if log.log_start_offset < end:
        return next(log.batches(end - 1, end)).partition_leader_epoch == snapshot.epoch
    if log.log_start_offset > end:
        return True  # a later snapshot stands for what is between
    if log.log_end_offset > end:
        return next(log.batches(end)).partition_leader_epoch >= snapshot.epoch
    # Of an empty log the epochs may be those of records that went.
    return log.leader_epochs.latest_epoch in (None, snapshot.epoch)


def _log_config(config: Config) -> LogConfig:
    segment_bytes = config["internal.metadata.log.segment.bytes"] or config.int("metadata.log.segment.bytes")
    # What is old goes with a snapshot that stands for it, never by age or size.
    return replace(
        LogConfig.of({"segment.bytes": segment_bytes, "segment.ms": config.int("metadata.log.segment.ms")}),
        retention_ms=-1,
        retention_bytes=-1,
        is_deleted=False,
    )


def _locked(filesystem: FileSystem, path: str) -> Lock:
    filesystem.make_dirs(path)
    lock = filesystem.lock(f"{path}/{LOCK_FILE}")
    if lock is None:
        raise MetadataLogError(
            f"metadata directory {path} is locked: another process holds {path}/{LOCK_FILE}. "
            "Stop the node that uses it, or give this one another metadata.log.dir."
        )
    return lock
