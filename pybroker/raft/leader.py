"""Leading an epoch: what each replica has fetched, what is thereby committed, and the fetches that wait for more.

A record counts on a voter that has fetched beyond it, and here when it is flushed; the high watermark passes records of older
epochs only together with one of this epoch (figure 8 of the Raft paper). A leader that hears no majority of the voters for 1.5
fetch timeouts resigns.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pybroker.base.ids import METADATA_TOPIC_UUID, ZERO_UUID
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.control_records import KRaftVersionRecord, LeaderChangeMessage, LeaderChangeMessageVoter
from pybroker.protocol.messages import fetch, raft
from pybroker.protocol.records.batch import iter_batches
from pybroker.protocol.records.control import ControlType, control_batch
from pybroker.raft.answers import (
    answer_change,
    fetch_response,
    is_other_cluster,
    leader_or_nobody,
    node_endpoints,
    refused_fetch,
    refuses_leader_request,
)
from pybroker.raft.events import (
    AppendRecords,
    ReplicaKey,
    Respond,
    RespondWithRecords,
    RespondWithSnapshot,
    SnapshotId,
)
from pybroker.raft.setting import METADATA_TOPIC, PARTITION
from pybroker.raft.state import NEVER, State
from pybroker.raft.voters import Voter, VoterSet, address_at

MAX_PARKED: Final = 1000  # fetches that wait; one replica has at most one, a client one for each of its connections
MAX_OBSERVERS: Final = 10_000  # whose progress is kept; more are served all the same
OBSERVER_SESSION_MS: Final = 300_000
BEGIN_QUORUM_EPOCH: Final = 53


class Progress:
    """Of a replica, as its fetches show it; -1 for never."""

    __slots__ = ("caught_up_at_ms", "end_offset", "fetched_at_ms", "key", "leader_end_offset")

    def __init__(self, key: ReplicaKey) -> None:
        self.key = key
        self.end_offset = -1
        self.fetched_at_ms = -1
        self.caught_up_at_ms = -1
        self.leader_end_offset = -1  # at its last fetch

    def fetched(self, now_ms: int, offset: int, leader_end_offset: int) -> None:
        if offset >= leader_end_offset:
            self.caught_up_at_ms = max(self.caught_up_at_ms, now_ms)
        elif 0 < self.leader_end_offset <= offset:
            self.caught_up_at_ms = max(self.caught_up_at_ms, self.fetched_at_ms)
        self.leader_end_offset = leader_end_offset
        self.fetched_at_ms = max(self.fetched_at_ms, now_ms)
        self.end_offset = offset


class Parked(NamedTuple):
    """A fetch that found nothing new."""

    token: int
    replica: ReplicaKey
    offset: int
    last_epoch: int
    high_watermark: int  # that the follower knows
    max_bytes: int
    until_ms: int


class VoterChange(NamedTuple):
    """The change of voters that is under way; there is only one."""

    is_addition: bool
    token: int | None  # None when it is answered already
    acks_when_committed: bool
    voter: Voter
    until_ms: int
    offset: int | None  # of its record; None while a new voter is asked which kraft.version it understands


class Leadership:
    __slots__ = (
        "begin_at_ms",
        "change",
        "check_quorum_at_ms",
        "check_quorum_ms",
        "epoch_start_offset",
        "fetched_voters",
        "high_watermark",
        "is_resigning",
        "observers",
        "parked",
        "parked_by",
        "seen_voters",
        "voters",
    )

    def __init__(self, state: State) -> None:
        setting = state.setting
        self.epoch_start_offset = state.log.end_offset
        self.high_watermark = -1  # known in this epoch
        self.voters: dict[int, Progress] = {}
        self.observers: dict[ReplicaKey, Progress] = {}
        self.fetched_voters: set[int] = set()
        self.check_quorum_ms = setting.fetch_timeout_ms * 3 // 2
        self.check_quorum_at_ms = state.now_ms + self.check_quorum_ms
        self.begin_at_ms = state.now_ms
        self.parked: dict[int, Parked] = {}
        self.parked_by: dict[ReplicaKey, int] = {}
        self.change: VoterChange | None = None
        self.seen_voters = {state.own.id: state.own_voter}
        self.is_resigning = False
        self.set_voters(state.log.voters)

    def set_voters(self, voters: VoterSet) -> None:
        """Whoever is a voter from here on keeps what is known of it; who is no more is an observer."""
        old = self.voters
        self.voters = {}
        for voter in voters:
            key = voter.key
            progress = old.pop(key.id, None)
            if progress is not None and progress.key.directory_id == ZERO_UUID:
                progress.key = key  # its directory is known now
            if progress is None or not voter.is_replica(progress.key):
                if progress is not None:
                    self.observers[progress.key] = progress
                progress = self.observers.pop(key, None) or Progress(key)
            self.voters[key.id] = progress
        for progress in old.values():
            self.observers[progress.key] = progress
        self.fetched_voters.intersection_update(self.voters)

    def progress_of(self, key: ReplicaKey, now_ms: int) -> Progress:
        progress = self.voters.get(key.id)
        if progress is not None and progress.key.directory_id in (ZERO_UUID, key.directory_id):
            return progress
        progress = self.observers.get(key)
        if progress is None:
            progress = Progress(key)
            if len(self.observers) >= MAX_OBSERVERS:
                self.forget_silent_observers(now_ms)
            if len(self.observers) < MAX_OBSERVERS:
                self.observers[key] = progress
        return progress

    def forget_silent_observers(self, now_ms: int) -> None:
        silent = [key for key, seen in self.observers.items() if now_ms - seen.fetched_at_ms >= OBSERVER_SESSION_MS]
        for key in silent:
            del self.observers[key]

    def drop(self, token: int) -> None:
        """Nobody waits for the answer any more."""
        asked = self.parked.pop(token, None)
        if asked is not None and self.parked_by.get(asked.replica) == token:
            del self.parked_by[asked.replica]
        if self.change is not None and self.change.token == token:
            self.change = self.change._replace(token=None)

    def close(self, state: State) -> None:
        """Leadership has ended: whoever waits is told to look elsewhere."""
        parked, self.parked = self.parked, {}
        for token in parked:
            refused_fetch(state, token, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.finish_change(state, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def finish_change(self, state: State, error: ErrorCode, message: str | None = None) -> None:
        change, self.change = self.change, None
        if change is not None and change.token is not None:
            answer_change(state, change.token, change.is_addition, error, message)


def take_office(state: State, granted: set[int]) -> None:
    """Elected: the epoch begins with a record of its own, behind which everything older can be committed."""
    log = state.log
    leading = Leadership(state)
    voters = log.voters
    state.become_leader(leading)
    # Version 0 whatever kraft.version is: Apache Kafka writes no other, and its tools read none.
    change = LeaderChangeMessage(
        version=0,
        leader_id=state.own.id,
        voters=[LeaderChangeMessageVoter(voter_id=id_) for id_ in voters.by_id],
        granting_voters=[LeaderChangeMessageVoter(voter_id=id_) for id_ in sorted(granted)],
    )
    rows = [(ControlType.LEADER_CHANGE, change.encode(0))]
    is_stale = state.is_voter and voters.by_id[state.own.id] != state.own_voter
    if log.kraft_version and (log.voters_offset == -1 or is_stale):
        # The snapshot of the formatting is not replicated: the log itself says who votes, and where this leader is now.
        rows += voter_rows(log.kraft_version, voters.with_voter(state.own_voter))
    append_control(state, rows)
    state.announce()
    commit(state)


def voter_rows(kraft_version: int, voters: VoterSet) -> list[tuple[ControlType, bytes]]:
    version = KRaftVersionRecord(version=0, k_raft_version=kraft_version)
    return [(ControlType.KRAFT_VERSION, version.encode(0)), (ControlType.KRAFT_VOTERS, voters.record().encode(0))]


def append_control(state: State, rows: list[tuple[ControlType, bytes]]) -> None:
    data = control_batch(rows, timestamp=state.now_ms, base_offset=state.log.end_offset, partition_leader_epoch=state.epoch)
    append(state, bytes(data))


def append(state: State, data: bytes) -> None:
    """Whole batches, stamped with the end of the log and this epoch."""
    leading = state.leading
    assert leading is not None
    batches = list(iter_batches(data))
    assert all(batch.partition_leader_epoch == state.epoch for batch in batches), f"not of epoch {state.epoch}: {batches}"
    was_alone = leading.voters.keys() == {state.own.id}
    if state.log.append(batches):
        leading.set_voters(state.log.voters)
        if was_alone:
            # It was a majority by itself for as long as it liked; others need a moment to be heard of.
            leading.check_quorum_at_ms = state.now_ms + leading.check_quorum_ms
    state.out.append(AppendRecords(data))
    answer_parked(state)


def commit(state: State) -> None:
    """Move the high watermark to what a majority of the voters has, if that includes a record of this epoch."""
    leading = state.leading
    assert leading is not None
    own_id = state.own.id
    ends = [state.log.flushed_offset if id_ == own_id else progress.end_offset for id_, progress in leading.voters.items()]
    ends.sort(reverse=True)
    offset = ends[len(ends) // 2]
    if offset > leading.epoch_start_offset and offset > leading.high_watermark:
        leading.high_watermark = offset
        state.advance_high_watermark(offset)
        answer_parked(state)
        change = leading.change
        if change is not None and change.offset is not None and change.offset < offset:
            leading.finish_change(state, ErrorCode.NONE)
        if own_id not in leading.voters and state.log.voters_offset < offset:
            leading.is_resigning = True


# Fetch.


def handle_fetch(state: State, token: int, request: fetch.FetchRequest) -> None:
    if is_other_cluster(state, request.cluster_id):
        state.out.append(Respond(token, fetch.FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, responses=[])))
        return
    partition = _fetched_partition(request)
    if partition is None:
        state.out.append(Respond(token, fetch.FetchResponse(error_code=ErrorCode.INVALID_REQUEST, responses=[])))
        return
    offset, last_epoch = partition.fetch_offset, partition.last_fetched_epoch
    if request.max_wait_ms < 0 or offset < 0 or last_epoch < 0 or last_epoch > partition.current_leader_epoch:
        refused_fetch(state, token, ErrorCode.INVALID_REQUEST)
        return
    error = refuses_leader_request(state, partition.current_leader_epoch)
    if error:
        refused_fetch(state, token, error)
        return
    leading = state.leading
    assert leading is not None
    replica_state = request.replica_state
    replica_id = request.replica_id if replica_state is None else replica_state.replica_id
    replica = ReplicaKey(replica_id, partition.replica_directory_id)
    max_bytes = min(request.max_bytes, state.setting.fetch_max_bytes)
    # Who waits longer than the fetch timeout has given this leader up, or is nobody who follows it.
    until_ms = state.now_ms + min(request.max_wait_ms, state.setting.fetch_timeout_ms)
    asked = Parked(token, replica, offset, last_epoch, partition.high_watermark, max_bytes, until_ms)
    old = leading.parked_by.pop(replica, None)
    if old is not None and old in leading.parked:
        # It asked again: the earlier answer is not waited for.
        del leading.parked[old]
        state.out.append(Respond(old, fetch_response(state, ErrorCode.NONE, leading.high_watermark)))
    if _is_off_course(state, asked):
        return
    if replica_id >= 0 and replica_id != state.own.id:
        _note_fetch(state, replica, offset)
    if not _answer(state, asked, can_wait=request.max_wait_ms > 0 and len(leading.parked) < MAX_PARKED):
        leading.parked[token] = asked
        if replica_id >= 0:
            leading.parked_by[replica] = token


def _fetched_partition(request: fetch.FetchRequest) -> fetch.FetchPartition | None:
    topics = request.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    topic = topics[0]
    if topic.topic_id != METADATA_TOPIC_UUID and topic.topic != METADATA_TOPIC:
        return None
    partition = topic.partitions[0]
    return partition if partition.partition == PARTITION else None


def _is_off_course(state: State, asked: Parked) -> bool:
    """Answer a replica whose log is not a beginning of this one: it truncates, or takes a snapshot."""
    log, leading = state.log, state.leading
    assert leading is not None
    offset, last_epoch, snapshot = asked.offset, asked.last_epoch, log.snapshot
    high_watermark = leading.high_watermark
    if snapshot is not None and snapshot.end_offset > 0:
        # An empty replica is better off with a snapshot even if the log still reaches back so far.
        start = log.start_offset
        is_behind = offset == 0 or offset < start
        if start and not is_behind:
            # Of epochs that ended before the start nothing is known here, so nobody can be told where to truncate.
            start_epoch = log.epoch_before(start)
            is_behind = last_epoch < start_epoch or (offset == start and last_epoch != start_epoch)
        if is_behind:
            state.out.append(Respond(asked.token, fetch_response(state, ErrorCode.NONE, high_watermark, snapshot=snapshot)))
            return True
    if offset == 0 and last_epoch == 0:
        return False
    end = log.epoch_end(last_epoch)
    if end.epoch != last_epoch or end.end_offset < offset:
        state.out.append(Respond(asked.token, fetch_response(state, ErrorCode.NONE, high_watermark, diverging=end)))
        return True
    return False


def _note_fetch(state: State, replica: ReplicaKey, offset: int) -> None:
    leading = state.leading
    assert leading is not None
    progress = leading.progress_of(replica, state.now_ms)
    old = progress.end_offset
    progress.fetched(state.now_ms, offset, state.log.end_offset)
    note_voter(state, replica)
    if offset > old and leading.voters.get(replica.id) is progress:
        commit(state)


def note_voter(state: State, replica: ReplicaKey) -> None:
    """A voter was heard of: together with others it is the majority that a leader needs."""
    leading = state.leading
    assert leading is not None
    voter = leading.voters.get(replica.id)
    if voter is None or voter.key.directory_id not in (ZERO_UUID, replica.directory_id):
        return
    leading.fetched_voters.add(replica.id)
    needed = len(leading.voters) // 2 + 1 - (state.own.id in leading.voters)
    if len(leading.fetched_voters) >= needed:
        leading.fetched_voters.clear()
        leading.check_quorum_at_ms = state.now_ms + leading.check_quorum_ms


def _answer(state: State, asked: Parked, *, can_wait: bool) -> bool:
    leading = state.leading
    assert leading is not None
    high_watermark = leading.high_watermark
    if asked.offset < state.log.end_offset:
        message = fetch_response(state, ErrorCode.NONE, high_watermark)
        state.out.append(RespondWithRecords(asked.token, message, asked.offset, asked.max_bytes))
        return True
    if can_wait and high_watermark <= asked.high_watermark:
        return False
    state.out.append(Respond(asked.token, fetch_response(state, ErrorCode.NONE, high_watermark)))
    return True


def answer_parked(state: State) -> None:
    """Those for whom there is news, or who waited long enough."""
    leading = state.leading
    assert leading is not None
    if not leading.parked:
        return
    for token, asked in list(leading.parked.items()):
        if _is_off_course(state, asked) or _answer(state, asked, can_wait=state.now_ms < asked.until_ms):
            leading.drop(token)


# FetchSnapshot.


def handle_fetch_snapshot(state: State, token: int, request: raft.FetchSnapshotRequest) -> None:
    out = state.out
    if is_other_cluster(state, request.cluster_id):
        out.append(Respond(token, raft.FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, topics=[])))
        return
    topics = request.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        out.append(Respond(token, raft.FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST, topics=[])))
        return
    name, partition = topics[0].name, topics[0].partitions[0]
    asked = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
    if name != METADATA_TOPIC or partition.partition != PARTITION:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        error = refuses_leader_request(state, partition.current_leader_epoch)
        if not error and asked == SnapshotId(0, 0):
            # The snapshot of the formatting is never replicated: the first leader wrote what it says into the log.
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        if not error and partition.position < 0:
            error = ErrorCode.POSITION_OUT_OF_RANGE
    answer = raft.FetchSnapshotResponse(
        error_code=ErrorCode.NONE,
        topics=[
            raft.FetchSnapshotResponseTopicSnapshot(
                name=name,
                partitions=[
                    raft.FetchSnapshotResponsePartitionSnapshot(
                        index=partition.partition,
                        error_code=error,
                        snapshot_id=raft.SnapshotId(end_offset=asked.end_offset, epoch=asked.epoch),
                        current_leader=raft.LeaderIdAndEpoch(leader_id=leader_or_nobody(state), leader_epoch=state.epoch),
                        size=0,
                        position=partition.position,
                        unaligned_records=b"",
                    )
                ],
            )
        ],
        node_endpoints=node_endpoints(state),
    )
    if error:
        out.append(Respond(token, answer))
        return
    note_voter(state, ReplicaKey(request.replica_id, partition.replica_directory_id))
    max_bytes = max(0, min(request.max_bytes, state.setting.fetch_snapshot_max_bytes))
    out.append(RespondWithSnapshot(token, answer, asked, partition.position, max_bytes))


# Time.


def resign(state: State, reason: str) -> None:
    leading = state.leading
    assert leading is not None
    state.trace(f"resigns epoch {state.epoch}: {reason}")
    others = [progress for id_, progress in leading.voters.items() if id_ != state.own.id]
    others.sort(key=lambda progress: -progress.end_offset)
    state.become_resigned([progress.key for progress in others])


def poll(state: State) -> int:
    leading = state.leading
    assert leading is not None
    now_ms = state.now_ms
    deadline_ms = NEVER
    if leading.is_resigning:
        resign(state, "it is no voter any more")
        return now_ms
    change = leading.change
    if change is not None:
        if now_ms >= change.until_ms:
            leading.finish_change(state, ErrorCode.REQUEST_TIMED_OUT)
        else:
            deadline_ms = change.until_ms
    if len(leading.voters) > 1 or state.own.id not in leading.voters:
        if now_ms >= leading.check_quorum_at_ms:
            resign(state, f"no majority of voters fetched for {leading.check_quorum_ms} ms")
            return now_ms
        deadline_ms = min(deadline_ms, leading.check_quorum_at_ms)
        if now_ms >= leading.begin_at_ms:
            _begin_quorum_epoch(state)
        deadline_ms = min(deadline_ms, leading.begin_at_ms)
    if leading.parked:
        first = min(asked.until_ms for asked in leading.parked.values())
        if first <= now_ms:
            answer_parked(state)
            first = min((asked.until_ms for asked in leading.parked.values()), default=NEVER)
        deadline_ms = min(deadline_ms, first)
    return deadline_ms


def _begin_quorum_epoch(state: State) -> None:
    """Tell the voters who leads, those that do not fetch: at once, and then again and again."""
    leading = state.leading
    assert leading is not None
    setting, now_ms = state.setting, state.now_ms
    period_ms = max(setting.fetch_timeout_ms // 2, 1)
    leading.begin_at_ms = now_ms + period_ms
    for voter in state.log.voters:
        key = voter.key
        if key.id == state.own.id:
            continue
        progress = leading.voters[key.id]
        if progress.fetched_at_ms >= 0 and now_ms - progress.fetched_at_ms < period_ms:
            continue
        address = address_at(voter.endpoints, setting.listener)
        if address is not None and state.requests.wait_ms(now_ms, key.id, BEGIN_QUORUM_EPOCH) == 0:
            state.requests.send(state.out, key.id, address, _begin_request(state, key))


def _begin_request(state: State, voter: ReplicaKey) -> raft.BeginQuorumEpochRequest:
    return raft.BeginQuorumEpochRequest(
        cluster_id=state.setting.cluster_id,
        voter_id=voter.id,
        topics=[
            raft.BeginQuorumEpochRequestTopicData(
                topic_name=METADATA_TOPIC,
                partitions=[
                    raft.BeginQuorumEpochRequestPartitionData(
                        partition_index=PARTITION,
                        voter_directory_id=voter.directory_id,
                        leader_id=state.own.id,
                        leader_epoch=state.epoch,
                    )
                ],
            )
        ],
        leader_endpoints=[raft.LeaderEndpoint(name=name, host=at.host, port=at.port) for name, at in state.own_endpoints],
    )
