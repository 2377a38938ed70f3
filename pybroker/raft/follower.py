"""Following a leader: fetching its log or its snapshot, truncating where the two differ, giving it up when it is silent.

A fetch acknowledges everything before its offset, so it is sent only when all of the log is durable. What is committed is
never truncated. A leader whose process seems dead (every connection broke, none can be made) is given up after a short random
grace instead of the fetch timeout; a fetch that is answered calls that off.
"""

from __future__ import annotations

from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.messages import fetch, raft
from pybroker.protocol.records.batch import RecordBatch, iter_batches
from pybroker.protocol.records.validation import check_batch
from pybroker.raft import election, joining
from pybroker.raft.answers import endpoints_in, leader_address
from pybroker.raft.discovery import FETCH, FETCH_SNAPSHOT, can_fetch, fetch_from_anyone, fetch_request, heard_of
from pybroker.raft.events import (
    AppendRecords,
    InstallSnapshot,
    SnapshotId,
    SnapshotInstalled,
    StoreSnapshotChunk,
    TruncateLog,
)
from pybroker.raft.requests import Sent
from pybroker.raft.setting import METADATA_TOPIC, PARTITION
from pybroker.raft.state import NEVER, State


def poll(state: State) -> int:
    following, now_ms = state.following, state.now_ms
    assert following is not None
    if state.may_stand:
        if not state.log.is_flushed:
            # Neither standing nor fetching may tell of what a crash could take; the flush comes by itself.
            return NEVER
        if now_ms >= state.fetch_at_ms:
            state.trace(f"no fetch from leader {state.leader_id} succeeded in time")
            election.stand(state)
            return now_ms
        if now_ms >= following.died_at_ms:
            state.trace(f"leader {state.leader_id} seems dead")
            election.stand(state, is_quick=True)
            return now_ms
        return min(state.fetch_at_ms, following.died_at_ms, joining.poll(state), _fetch(state))
    if now_ms >= state.fetch_at_ms or state.requests.is_pausing(now_ms, state.leader_id or 0, FETCH):
        # Another voter may know of another leader.
        return min(fetch_from_anyone(state), state.fetch_at_ms if now_ms < state.fetch_at_ms else NEVER)
    return min(state.fetch_at_ms, joining.poll(state), _fetch(state))


def _fetch(state: State) -> int:
    following, leader_id, now_ms = state.following, state.leader_id, state.now_ms
    assert following is not None
    assert leader_id is not None
    if not can_fetch(state):
        return NEVER
    kind = FETCH if following.snapshot is None else FETCH_SNAPSHOT
    wait_ms = state.requests.wait_ms(now_ms, leader_id, kind)
    if wait_ms:
        return now_ms + wait_ms
    address = leader_address(state)
    if address is None:
        return NEVER
    if following.snapshot is None:
        state.requests.send(state.out, leader_id, address, fetch_request(state))
    else:
        request = _fetch_snapshot_request(state, following.snapshot, following.position)
        state.requests.send(state.out, leader_id, address, request)
    return NEVER


def _fetch_snapshot_request(state: State, snapshot: SnapshotId, position: int) -> raft.FetchSnapshotRequest:
    return raft.FetchSnapshotRequest(
        cluster_id=state.setting.cluster_id,
        replica_id=state.own.id,
        max_bytes=state.setting.fetch_snapshot_max_bytes,
        topics=[
            raft.FetchSnapshotRequestTopicSnapshot(
                name=METADATA_TOPIC,
                partitions=[
                    raft.FetchSnapshotRequestPartitionSnapshot(
                        partition=PARTITION,
                        current_leader_epoch=state.epoch,
                        snapshot_id=raft.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch),
                        position=position,
                        replica_directory_id=state.own.directory_id,
                    )
                ],
            )
        ],
    )


def leader_lost(state: State, node_id: int) -> None:
    """Every connection with the node broke: if it leads, it has the grace to come back."""
    following, grace_ms = state.following, state.setting.death_grace_ms
    if following is None or node_id != state.leader_id or not grace_ms:
        return
    # Others that lost it too may ask for a pre-vote before this one does.
    following.has_fetched = False
    if following.died_at_ms == NEVER and state.may_stand:
        least = grace_ms // 2
        following.died_at_ms = state.now_ms + least + state.draw_below(grace_ms - least + 1)


def _heard_leader(state: State) -> None:
    following = state.following
    assert following is not None
    following.has_fetched = True
    following.died_at_ms = NEVER
    state.fetch_at_ms = state.now_ms + state.setting.fetch_timeout_ms


# Fetch, answered.


def handle_fetch_response(state: State, response: fetch.FetchResponse) -> bool:
    """Whether the answer is of use; if not, the next fetch waits a little."""
    responses = response.responses
    if response.error_code or len(responses) != 1 or len(responses[0].partitions) != 1:
        return False
    partition = responses[0].partitions[0]
    current = partition.current_leader
    leader_id, epoch = (-1, -1) if current is None else (current.leader_id, current.leader_epoch)
    endpoints = endpoints_in(state, leader_id, response.node_endpoints)
    handled = heard_of(state, partition.error_code, leader_id, epoch, endpoints)
    if handled is not None:
        return handled
    if partition.error_code or state.following is None:
        return False
    _heard_leader(state)
    if partition.diverging_epoch is not None and partition.diverging_epoch.epoch >= 0:
        _truncate(state, partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset)
        return True
    if partition.snapshot_id is not None and partition.snapshot_id.epoch >= 0 and partition.snapshot_id.end_offset >= 0:
        state.following.snapshot = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        state.following.position = 0
        state.trace(f"fetches snapshot {state.following.snapshot}")
        return True
    is_whole = _append(state, partition.records)
    high_watermark = min(partition.high_watermark, state.log.end_offset)
    if high_watermark >= 0:
        state.advance_high_watermark(high_watermark)
    return is_whole


def _truncate(state: State, epoch: int, end_offset: int) -> None:
    log = state.log
    own = log.epoch_end(epoch)
    to = min(own.end_offset, end_offset) if own.epoch == epoch else own.end_offset
    to = max(to, log.start_offset)
    high_watermark = state.high_watermark
    assert high_watermark is None or to >= high_watermark, f"told to truncate to {to}, but {high_watermark} is committed"
    assert log.snapshot is None or to >= log.snapshot.end_offset, f"told to truncate to {to}, before {log.snapshot}"
    assert to < log.end_offset, f"told to truncate to {to}, but the log ends at {log.end_offset}"
    state.trace(f"truncates to {to}: epoch {epoch} ends at {end_offset} on the leader")
    log.truncate(to)
    state.out.append(TruncateLog(to))


def _append(state: State, records: object) -> bool:
    """The batches that are whole, sound, and follow the log; False if something else came."""
    if not records:
        return True
    assert isinstance(records, bytes | bytearray | memoryview)
    log, size = state.log, 0
    batches: list[RecordBatch] = []
    end_offset, last_epoch, is_sound = log.end_offset, log.last_epoch, True
    try:
        for batch in iter_batches(records):
            check_batch(batch)
            if batch.base_offset != end_offset or not last_epoch <= batch.partition_leader_epoch <= state.epoch:
                is_sound = False
                break
            batches.append(batch)
            end_offset, last_epoch = batch.next_offset, batch.partition_leader_epoch
            size += batch.size_bytes
    except KafkaError as error:
        state.trace(f"fetched records are not sound: {error}")
        is_sound = False
    if batches:
        log.append(batches)
        state.out.append(AppendRecords(bytes(memoryview(records)[:size])))
    return is_sound and bool(batches)


# FetchSnapshot, answered.


def handle_fetch_snapshot_response(state: State, response: raft.FetchSnapshotResponse) -> bool:
    topics = response.topics
    if response.error_code or len(topics) != 1 or len(topics[0].partitions) != 1:
        return False
    partition = topics[0].partitions[0]
    current = partition.current_leader
    leader_id, epoch = (-1, -1) if current is None else (current.leader_id, current.leader_epoch)
    endpoints = endpoints_in(state, leader_id, response.node_endpoints)
    handled = heard_of(state, partition.error_code, leader_id, epoch, endpoints)
    if handled is not None:
        return handled
    following = state.following
    if following is None or following.snapshot is None:
        return False
    snapshot = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
    if partition.error_code in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
        # It went on the leader meanwhile: the next fetch names a newer one.
        _heard_leader(state)
        following.snapshot = None
        return True
    if partition.error_code or snapshot != following.snapshot or partition.position != following.position:
        return False
    _heard_leader(state)
    data = bytes(partition.unaligned_records or b"")
    state.out.append(StoreSnapshotChunk(snapshot, following.position, data))
    following.position += len(data)
    if following.position >= partition.size:
        following.snapshot = None
        state.installing = snapshot
        state.out.append(InstallSnapshot(snapshot))
    return bool(data)


def snapshot_installed(state: State, event: SnapshotInstalled) -> None:
    if state.installing == event.snapshot:
        state.installing = None
    state.log.install(event.snapshot, event.kraft_version, event.voters)
    state.advance_high_watermark(event.snapshot.end_offset)


def snapshot_broken(state: State, snapshot: SnapshotId) -> None:
    """It is fetched again, after a pause: the leader's own may be broken."""
    state.trace(f"snapshot {snapshot} did not arrive whole")
    if state.installing == snapshot:
        state.installing = None
        if state.leader_id is not None:
            state.requests.pause(state.now_ms, Sent(state.leader_id, FETCH))
