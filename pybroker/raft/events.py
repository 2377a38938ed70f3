"""What happens to the quorum machine, and what it wants done: its whole boundary.

Events are facts, in the past tense; effects are orders, run in the order they are given. A crash may fall between any two
effects. A persisted state is durable before the next effect runs; appended records are durable only when `Flushed` says so,
and whoever runs the effects flushes soon after an append without being told. An effect that cannot be run is the end of the
process: the machine believes that all of them were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pybroker.base.address import Address as Address
from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.base.value import Value
from pybroker.protocol.internal.control_records import VotersRecord
from pybroker.protocol.message import Message


class ReplicaKey(NamedTuple):
    """A replica is its node and the directory of its log: a node with a new disk is another replica (KIP-853)."""

    id: int
    directory_id: Uuid = ZERO_UUID


class SnapshotId(NamedTuple):
    """Where a snapshot ends: the offset of the next record, and the epoch of the last one in it."""

    end_offset: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}"


class ElectionState(NamedTuple):
    """What a replica must remember of elections over a crash; leader and vote exclude each other only by Kafka's rules."""

    epoch: int = 0
    leader_id: int | None = None
    voted: ReplicaKey | None = None


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


class VotersAt(NamedTuple):
    """The voters that the log says, from the control record at `offset` on; -1 for those of the configuration."""

    offset: int
    record: VotersRecord


@dataclass(slots=True, frozen=True)
class Recovered:
    """What a start finds on disk, all of it durable."""

    election: ElectionState
    log_start_offset: int
    log_end_offset: int
    epochs: tuple[EpochStart, ...]  # of the log, with the snapshot's before the log's start
    snapshot: SnapshotId | None
    kraft_version: int  # at the end of the log
    voters: tuple[VotersAt, ...]  # every one in the snapshot and the log, in order: truncation goes back to an earlier one


# Events.


class Started(Value):
    """The first event, once."""


class DeadlinePassed(Value):
    """`deadline_ms` has come; harmless too early."""


class RequestReceived(Value):
    """Of another replica, a broker or an admin. Every token is answered by exactly one effect, now or later."""

    token: int
    message: Message


class RequestDropped(Value):
    """Whoever waited for the answer is gone: nothing need be kept for the token."""

    token: int


class ResponseReceived(Value):
    """Of a request that the other's versions cannot say, the runner makes a response with UNSUPPORTED_VERSION itself."""

    request_id: int
    message: Message


class RequestFailed(Value):
    """No answer: not connected, disconnected, or out of time. What the other did is not known."""

    request_id: int


class NodeLost(Value):
    """Every connection with the node broke, or it refuses new ones: its process is likely dead (fast death detection)."""

    node_id: int


class Proposed(Value):
    """Whole batches for the end of the log, stamped with its end offset and `epoch`. Only while leader of that epoch."""

    epoch: int
    data: bytes


class Flushed(Value):
    """All records before `end_offset` are durable. Not said of records that a TruncateLog or InstallSnapshot took since."""

    end_offset: int


class SnapshotTaken(Value):
    """A snapshot of committed records was written here, and is durable."""

    snapshot: SnapshotId


class SnapshotInstalled(Value):
    """What `InstallSnapshot` ordered is done: the log starts, and ends, where the snapshot ends."""

    snapshot: SnapshotId
    kraft_version: int
    voters: VotersRecord | None


class SnapshotBroken(Value):
    """What `InstallSnapshot` ordered cannot be done: what was fetched is no whole snapshot, and is gone."""

    snapshot: SnapshotId


class LogStartMoved(Value):
    """Old segments went, after a snapshot that stands for them."""

    log_start_offset: int


class KRaftVersionProposed(Value):
    """Write the voters into the log, from `version` on; nothing if `Quorum.refuses_upgrade` has something against it."""

    version: int


class ResignRequested(Value):
    """Give up leadership if it is held: a stop, or a controller that failed. With `is_final` never stand again."""

    is_final: bool = False


Event = (
    Started
    | DeadlinePassed
    | RequestReceived
    | RequestDropped
    | ResponseReceived
    | RequestFailed
    | NodeLost
    | Proposed
    | Flushed
    | SnapshotTaken
    | SnapshotInstalled
    | SnapshotBroken
    | LogStartMoved
    | KRaftVersionProposed
    | ResignRequested
)

# Effects.


class PersistElection(Value):
    """Durable before anything else happens."""

    state: ElectionState


class AppendRecords(Value):
    """Whole batches with their offsets and epochs, for the end of the log."""

    data: bytes


class TruncateLog(Value):
    end_offset: int


class Send(Value):
    """A request to another node. It comes back as ResponseReceived or RequestFailed, after `timeout_ms` at the latest. Every
    Quorum counts its requests anew: what an earlier one of the process asked must not come back to it."""

    request_id: int
    node_id: int  # negative for a bootstrap server whose id is not known
    address: Address
    message: Message
    timeout_ms: int


class Respond(Value):
    token: int
    message: Message


class RespondWithRecords(Value):
    """`message` is a FetchResponse of one partition; its records are the batches from `offset` on, about `max_bytes`, at
    least one, as they are in the log when the effect runs."""

    token: int
    message: Message
    offset: int
    max_bytes: int


class RespondWithSnapshot(Value):
    """`message` is a FetchSnapshotResponse of one partition; size and bytes are filled in from the file. If the file is gone
    or `position` is beyond it, the runner answers SNAPSHOT_NOT_FOUND or POSITION_OUT_OF_RANGE in it."""

    token: int
    message: Message
    snapshot: SnapshotId
    position: int
    max_bytes: int


class StoreSnapshotChunk(Value):
    """Of a snapshot that is being fetched, kept aside until it is whole; position 0 begins it anew."""

    snapshot: SnapshotId
    position: int
    data: bytes


class InstallSnapshot(Value):
    """The fetched snapshot is whole: make it durable under its name, begin the log anew at its end, say SnapshotInstalled;
    or SnapshotBroken."""

    snapshot: SnapshotId


class AdvanceHighWatermark(Value):
    """Records before `offset` are committed."""

    offset: int


class AnnounceLeader(Value):
    """The leader of an epoch as it is now known, None for nobody. For this replica itself it is said after the epoch's first
    record is in the log; a controller takes over when that record is committed."""

    epoch: int
    leader_id: int | None


class Trace(Value):
    """For people and for the simulator's trace: why something was done."""

    text: str


Effect = (
    PersistElection
    | AppendRecords
    | TruncateLog
    | Send
    | Respond
    | RespondWithRecords
    | RespondWithSnapshot
    | StoreSnapshotChunk
    | InstallSnapshot
    | AdvanceHighWatermark
    | AnnounceLeader
    | Trace
)
