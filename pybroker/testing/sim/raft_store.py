"""A replica's disk at the raft level: its log by batches, its election state, its snapshots, and what of them is safe.

What was done to the log since the last flush is a list of operations; a flush makes those safe that were there when it began,
and a crash lets a prefix of the rest survive (a torn batch is cut off when the log is opened, so it is not in it). Election
state and snapshots are safe when the call returns, as the boundary of the quorum asks; that the log begins anew behind a
snapshot is one of the operations.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_left, bisect_right
from functools import lru_cache
from random import Random
from typing import NamedTuple

from pybroker.protocol.internal.control_records import KRaftVersionRecord, VotersRecord
from pybroker.protocol.records.batch import CONTROL_BIT, HEADER, LOG_OVERHEAD, RecordBatch
from pybroker.protocol.records.control import ControlType, control_type
from pybroker.raft.events import ElectionState, EpochStart, Recovered, ReplicaKey, SnapshotId, VotersAt


class StoredBatch(NamedTuple):
    base_offset: int
    next_offset: int
    epoch: int
    data: bytes
    is_control: bool


class Anew(NamedTuple):
    """The log begins anew."""

    offset: int


class Snapshot(NamedTuple):
    """A snapshot's content: all that this level's state machine knows, which is a checksum of what it saw."""

    checksum: int
    kraft_version: int
    voters: VotersRecord | None


class Control(NamedTuple):
    kraft_version: int | None
    voters: tuple[tuple[int, VotersRecord], ...]


@lru_cache(maxsize=1024)
def parse_batches(data: bytes) -> tuple[StoredBatch, ...]:
    batches = []
    position = 0
    while position < len(data):
        base, length, epoch, _, _, attributes, last_delta, *_ = HEADER.unpack_from(data, position)
        end = position + LOG_OVERHEAD + length
        assert end <= len(data), f"part of a batch was appended: {len(data) - position} bytes of {end - position}"
        batches.append(
            StoredBatch(base, base + last_delta + 1, epoch, bytes(data[position:end]), bool(attributes & CONTROL_BIT))
        )
        position = end
    return tuple(batches)


@lru_cache(maxsize=1024)
def parse_control(data: bytes) -> Control:
    """What a control batch says of the quorum."""
    kraft_version: int | None = None
    voters = []
    for record in RecordBatch(data).records():
        kind = control_type(record.key)
        if kind is ControlType.KRAFT_VERSION and record.value is not None:
            kraft_version = KRaftVersionRecord.decode(0, record.value).k_raft_version
        elif kind is ControlType.KRAFT_VOTERS and record.value is not None:
            voters.append((record.offset, VotersRecord.decode(0, record.value)))
    return Control(kraft_version, tuple(voters))


class LogState:
    """A log: as the process sees it, or as the disk would give it back."""

    __slots__ = ("batches", "start_batch_offset")

    def __init__(self, start_offset: int = 0) -> None:
        self.batches: list[StoredBatch] = []
        self.start_batch_offset = start_offset  # where the first batch is or will be

    @property
    def end_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else self.start_batch_offset

    def append(self, batch: StoredBatch) -> None:
        assert batch.base_offset == self.end_offset, f"a batch at {batch.base_offset} on a log that ends at {self.end_offset}"
        self.batches.append(batch)

    def truncate(self, end_offset: int) -> list[StoredBatch]:
        """The batches that went."""
        keep = bisect_left(self.batches, end_offset, key=_base_offset)
        gone = self.batches[keep:]
        del self.batches[keep:]
        assert self.end_offset == end_offset, f"truncation to {end_offset} inside a batch: the log ends at {self.end_offset}"
        return gone

    def find(self, offset: int) -> StoredBatch | None:
        """The batch that holds the offset."""
        at = bisect_right(self.batches, offset, key=_base_offset) - 1
        if at < 0 or self.batches[at].next_offset <= offset:
            return None
        return self.batches[at]

    def begin_at(self, offset: int) -> None:
        """Forget whole batches before the offset."""
        keep = bisect_right(self.batches, offset, key=_next_offset)
        if keep:
            self.start_batch_offset = self.batches[keep - 1].next_offset
            del self.batches[:keep]

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Batches from the one with the offset on: at least one, and no more than `max_bytes` otherwise."""
        at = bisect_right(self.batches, offset, key=_next_offset)
        chosen: list[bytes] = []
        size = 0
        for batch in self.batches[at : at + 64]:
            if chosen and size + len(batch.data) > max_bytes:
                break
            chosen.append(batch.data)
            size += len(batch.data)
        return b"".join(chosen)


def _base_offset(batch: StoredBatch) -> int:
    return batch.base_offset


def _next_offset(batch: StoredBatch) -> int:
    return batch.next_offset


class RaftStore:
    def __init__(self, key: ReplicaKey, snapshot: tuple[SnapshotId, Snapshot] | None) -> None:
        self.key = key
        self.election = ElectionState()
        self.live = LogState()
        self.durable = LogState()
        self.log_start_offset = 0
        self.snapshots: dict[SnapshotId, bytes] = {}
        self._pending: list[StoredBatch | int | Anew] = []  # batches appended, offsets truncated to, or new beginnings
        self._flushing: tuple[int, int] | None = None  # how many of them, and the end of the log that they make
        self.flushes = 0
        self._fetched: dict[SnapshotId, bytearray] = {}
        if snapshot is not None:
            self.snapshots[snapshot[0]] = encode_snapshot(snapshot[1], 0)

    # The log.

    def append(self, data: bytes) -> tuple[StoredBatch, ...]:
        batches = parse_batches(data)
        for batch in batches:
            self.live.append(batch)
            self._pending.append(batch)
        return batches

    def truncate(self, end_offset: int) -> list[StoredBatch]:
        gone = self.live.truncate(end_offset)
        self._pending.append(end_offset)
        if self._flushing is not None:
            count, end = self._flushing
            self._flushing = (count, min(end, end_offset))
        return gone

    @property
    def is_flushing(self) -> bool:
        return self._flushing is not None

    @property
    def needs_flush(self) -> bool:
        return bool(self._pending)

    def begin_flush(self) -> None:
        self.flushes += 1
        self._flushing = (len(self._pending), self.live.end_offset)

    def finish_flush(self) -> int:
        """All records before the offset are safe now."""
        assert self._flushing is not None
        (count, end_offset), self._flushing = self._flushing, None
        self._settle(count)
        return end_offset

    def crash(self, random: Random) -> None:
        self._settle(random.randrange(len(self._pending) + 1) if self._pending else 0)
        self._pending.clear()
        self._flushing = None
        self._fetched.clear()
        latest = self.latest_snapshot
        if latest is not None and not self._leads_to(latest):
            self.durable = LogState(latest.end_offset)
            self.log_start_offset = latest.end_offset
        self.durable.begin_at(self.log_start_offset)
        self.live = LogState(self.durable.start_batch_offset)
        self.live.batches = list(self.durable.batches)

    def _leads_to(self, snapshot: SnapshotId) -> bool:
        """Whether the log on disk has the last record of the snapshot, or begins behind it."""
        durable, end = self.durable, snapshot.end_offset
        last = durable.find(end - 1)
        return durable.end_offset >= end and (last is None or last.epoch == snapshot.epoch)

    def _settle(self, count: int) -> None:
        for operation in self._pending[:count]:
            if isinstance(operation, Anew):
                self.durable = LogState(operation.offset)
            elif isinstance(operation, int):
                self.durable.truncate(operation)
            else:
                self.durable.append(operation)
        del self._pending[:count]
        self._forget_old()

    def _forget_old(self) -> None:
        if not self._pending:  # else a truncation before the log's start may be among it
            self.durable.begin_at(self.log_start_offset)

    # Snapshots.

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return max(self.snapshots, default=None)

    def put_snapshot(self, snapshot_id: SnapshotId, snapshot: Snapshot, size_bytes: int) -> None:
        self.snapshots[snapshot_id] = encode_snapshot(snapshot, size_bytes)

    def store_chunk(self, snapshot_id: SnapshotId, position: int, data: bytes) -> None:
        if position == 0:
            self._fetched[snapshot_id] = bytearray()
        kept = self._fetched[snapshot_id]
        assert len(kept) == position, f"a chunk at {position} of a snapshot of which {len(kept)} bytes are here"
        kept += data

    def install(self, snapshot_id: SnapshotId) -> Snapshot:
        data = bytes(self._fetched.pop(snapshot_id))
        snapshot = decode_snapshot(data)
        self.snapshots[snapshot_id] = data
        self.live = LogState(snapshot_id.end_offset)
        self.log_start_offset = snapshot_id.end_offset
        self._pending.append(Anew(snapshot_id.end_offset))
        self._flushing = None
        return snapshot

    def clean(self, snapshot_id: SnapshotId) -> None:
        """Forget the log before a snapshot, and the snapshots before it."""
        assert snapshot_id in self.snapshots
        for old in [other for other in self.snapshots if other < snapshot_id]:
            del self.snapshots[old]
        self.log_start_offset = max(self.log_start_offset, snapshot_id.end_offset)
        self.live.begin_at(self.log_start_offset)
        self._forget_old()

    def voters_before(self, end_offset: int) -> tuple[int, VotersRecord | None]:
        """kraft.version and the voters that the records before the offset say."""
        kraft_version, voters = 0, None
        for snapshot_id, data in self.snapshots.items():
            if snapshot_id.end_offset <= end_offset:
                _, kraft_version, voters = decode_snapshot(data)
        for batch in self.live.batches:
            if batch.is_control and batch.next_offset <= end_offset:
                control = parse_control(batch.data)
                kraft_version = kraft_version if control.kraft_version is None else control.kraft_version
                voters = control.voters[-1][1] if control.voters else voters
        return kraft_version, voters

    def voters_that_may_count(self, commit_end: int) -> list[VotersRecord]:
        """The last committed set of voters and every later one, in memory or on disk."""
        latest = self.latest_snapshot
        found: list[VotersRecord] = []
        if latest is not None and (voters := decode_snapshot(self.snapshots[latest]).voters) is not None:
            found = [voters]
        for batch in (*self.durable.batches, *self.live.batches):
            if batch.is_control:
                sets = [record for _, record in parse_control(batch.data).voters]
                found = sets if sets and batch.next_offset <= commit_end else [*found, *sets]
        return found

    # A start.

    def recovered(self) -> Recovered:
        epochs: list[EpochStart] = []
        kraft_version = 0
        voters: list[VotersAt] = []
        start = self.log_start_offset
        latest = self.latest_snapshot
        if latest is not None:
            snapshot = decode_snapshot(self.snapshots[latest])
            kraft_version, start = snapshot.kraft_version, latest.end_offset
            if snapshot.voters is not None:
                voters.append(VotersAt(latest.end_offset - 1, snapshot.voters))
        for batch in self.live.batches:
            if not epochs or epochs[-1].epoch != batch.epoch:
                epochs.append(EpochStart(batch.epoch, batch.base_offset))
            if batch.is_control and batch.next_offset > start:
                control = parse_control(batch.data)
                kraft_version = kraft_version if control.kraft_version is None else control.kraft_version
                voters += [VotersAt(offset, record) for offset, record in control.voters]
        if latest is not None and (not epochs or epochs[0].start_offset > latest.end_offset):
            epochs.insert(0, EpochStart(latest.epoch, latest.end_offset))
        return Recovered(
            election=self.election,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.live.end_offset,
            epochs=tuple(epochs),
            snapshot=latest,
            kraft_version=kraft_version,
            voters=tuple(voters),
        )


def encode_snapshot(snapshot: Snapshot, size_bytes: int) -> bytes:
    voters = None if snapshot.voters is None else snapshot.voters.encode(0).hex()
    text = json.dumps([snapshot.checksum, snapshot.kraft_version, voters])
    return text.ljust(size_bytes).encode()


@lru_cache(maxsize=256)
def decode_snapshot(data: bytes) -> Snapshot:
    checksum, kraft_version, voters = json.loads(data)
    return Snapshot(checksum, kraft_version, None if voters is None else VotersRecord.decode(0, bytes.fromhex(voters)))


def fold(checksum: int, batch: StoredBatch) -> int:
    """The state machine of this level: a checksum of the committed records, batch by batch."""
    return zlib.crc32(batch.data, checksum)
