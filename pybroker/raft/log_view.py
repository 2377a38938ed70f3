"""What the quorum knows of its log without reading it: where it starts, ends and is durable, its epochs, its voters.

A voter set counts from the moment its record is in the log, committed or not; a truncation takes it back. The end never falls
below the start, `flushed_offset` never rises above the end.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from pybroker.protocol.internal.control_records import KRaftVersionRecord, VotersRecord
from pybroker.protocol.records.batch import RecordBatch
from pybroker.protocol.records.control import ControlType, control_type
from pybroker.raft.events import Recovered, SnapshotId
from pybroker.raft.voters import VoterSet


class EpochEnd(NamedTuple):
    epoch: int
    end_offset: int


class LogView:
    __slots__ = (
        "_epoch_starts",
        "_epochs",
        "_static_voters",
        "_versions",
        "_voters",
        "end_offset",
        "flushed_offset",
        "kraft_version",
        "last_epoch",
        "snapshot",
        "start_offset",
        "voters",
        "voters_offset",
    )

    def __init__(self, recovered: Recovered, static_voters: VoterSet) -> None:
        self.start_offset = recovered.log_start_offset
        self.end_offset = self.flushed_offset = recovered.log_end_offset
        self.snapshot = recovered.snapshot
        self._epochs = [entry.epoch for entry in recovered.epochs]
        self._epoch_starts = [entry.start_offset for entry in recovered.epochs]
        if self.snapshot is not None and 0 < self.snapshot.end_offset == self.start_offset:
            # The snapshot's last record has its epoch, whatever is truncated behind it.
            if self._epochs and self._epochs[0] == self.snapshot.epoch:
                self._epoch_starts[0] = min(self._epoch_starts[0], self.start_offset - 1)
            else:
                self._epochs.insert(0, self.snapshot.epoch)
                self._epoch_starts.insert(0, self.start_offset - 1)
        self.last_epoch = self._epochs[-1] if self._epochs else 0
        self._static_voters = static_voters
        self._voters = [(entry.offset, VoterSet.of_record(entry.record)) for entry in recovered.voters]
        first = self._voters[0][0] if self._voters else -1
        self._versions = [(first, recovered.kraft_version)] if recovered.kraft_version else []
        self._refresh()

    def _refresh(self) -> None:
        self.kraft_version: int = self._versions[-1][1] if self._versions else 0
        self.voters: VoterSet = self._voters[-1][1] if self._voters else self._static_voters
        # -1 where the log itself does not say it: a configuration, or the snapshot of the formatting.
        self.voters_offset: int = self._voters[-1][0] if self._voters else -1

    @property
    def earlier_voters(self) -> VoterSet:
        """Those before the latest, who are asked again if that one is never committed."""
        return self._voters[-2][1] if len(self._voters) > 1 else self._static_voters

    def voters_at(self, offset: int) -> tuple[int, VotersRecord | None]:
        """kraft.version and the voters as of the record at `offset`; None where the log says nothing of voters."""
        version = next((one for at, one in reversed(self._versions) if at <= offset), 0)
        voters = next((one for at, one in reversed(self._voters) if at <= offset), None)
        return version, None if voters is None else voters.record()

    def epoch_end(self, epoch: int) -> EpochEnd:
        """The latest epoch up to `epoch` that the log has, and where its records end."""
        at = bisect_right(self._epochs, epoch)
        if at == 0:
            # Nothing so old is here: whoever has records of it must drop them all.
            return EpochEnd(epoch, self._epoch_starts[0] if self._epochs else self.end_offset)
        end = self._epoch_starts[at] if at < len(self._epochs) else self.end_offset
        return EpochEnd(self._epochs[at - 1], end)

    def epoch_before(self, offset: int) -> int:
        """The epoch of the last record before `offset`."""
        at = bisect_right(self._epoch_starts, offset - 1)
        if at == 0:
            return self.snapshot.epoch if self.snapshot is not None else 0
        return self._epochs[at - 1]

    def append(self, batches: list[RecordBatch]) -> bool:
        """Take in what follows the end; whether the voters or kraft.version changed."""
        changed = False
        for batch in batches:
            epoch = batch.partition_leader_epoch
            assert batch.base_offset == self.end_offset, f"{batch} does not follow the log's end {self.end_offset}"
            assert epoch >= self.last_epoch, f"{batch} is older than the log's last epoch {self.last_epoch}"
            if epoch > self.last_epoch or not self._epochs:
                self._epochs.append(epoch)
                self._epoch_starts.append(batch.base_offset)
                self.last_epoch = epoch
            if batch.attributes & 0x20:
                changed |= self._learn(batch)
            self.end_offset = batch.base_offset + batch.last_offset_delta + 1
        if changed:
            self._refresh()
        return changed

    def _learn(self, batch: RecordBatch) -> bool:
        changed = False
        for record in batch.records():
            kind = control_type(record.key)
            if kind is ControlType.KRAFT_VERSION:
                version = KRaftVersionRecord.decode(0, record.value or b"").k_raft_version
                self._versions.append((record.offset, version))
                changed = True
            elif kind is ControlType.KRAFT_VOTERS:
                voters = VoterSet.of_record(VotersRecord.decode(0, record.value or b""))
                self._voters.append((record.offset, voters))
                changed = True
        return changed

    @property
    def is_flushed(self) -> bool:
        """Whether a crash now would leave all of it."""
        return self.flushed_offset == self.end_offset

    def flushed(self, end_offset: int) -> None:
        self.flushed_offset = max(self.flushed_offset, min(end_offset, self.end_offset))

    def truncate(self, end_offset: int) -> None:
        assert self.start_offset <= end_offset <= self.end_offset, (self.start_offset, end_offset, self.end_offset)
        self.end_offset = end_offset
        self.flushed_offset = min(self.flushed_offset, end_offset)
        while self._epochs and self._epoch_starts[-1] >= end_offset:
            self._epochs.pop()
            self._epoch_starts.pop()
        self.last_epoch = self._epochs[-1] if self._epochs else 0
        self._voters = [entry for entry in self._voters if entry[0] < end_offset]
        self._versions = [entry for entry in self._versions if entry[0] < end_offset]
        self._refresh()

    def install(self, snapshot: SnapshotId, kraft_version: int, voters: VotersRecord | None) -> None:
        """The log is empty, and begins where `snapshot` ends."""
        self.snapshot = snapshot
        self.start_offset = self.end_offset = self.flushed_offset = snapshot.end_offset
        self._epochs, self._epoch_starts = [snapshot.epoch], [snapshot.end_offset - 1]
        self.last_epoch = snapshot.epoch
        last = snapshot.end_offset - 1
        self._voters = [] if voters is None else [(last, VoterSet.of_record(voters))]
        self._versions = [(last, kraft_version)] if kraft_version else []
        self._refresh()

    def snapshot_taken(self, snapshot: SnapshotId) -> None:
        if self.snapshot is None or snapshot > self.snapshot:
            self.snapshot = snapshot

    def move_start(self, start_offset: int) -> None:
        assert self.start_offset <= start_offset <= self.end_offset, (self.start_offset, start_offset, self.end_offset)
        assert self.snapshot is not None, "the log's start moved, but no snapshot stands for what went"
        self.start_offset = start_offset
