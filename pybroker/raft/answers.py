"""Answers that every request may get: refusals, and who leads instead, with its address where the version has room for it."""

from __future__ import annotations

from pybroker.base.ids import METADATA_TOPIC_UUID
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages import fetch, raft
from pybroker.raft.events import Address, Respond, SnapshotId
from pybroker.raft.log_view import EpochEnd
from pybroker.raft.setting import METADATA_TOPIC, PARTITION
from pybroker.raft.state import Role, State
from pybroker.raft.voters import Endpoints, address_at

NOBODY = -1


def leader_or_nobody(state: State) -> int:
    return NOBODY if state.leader_id is None else state.leader_id


def leader_address(state: State) -> Address | None:
    return address_at(state.leader_endpoints, state.setting.listener)


def is_other_cluster(state: State, cluster_id: str | None) -> bool:
    """A request without a cluster id is for any."""
    return cluster_id is not None and cluster_id != state.setting.cluster_id


def refuses_voter_request(state: State, node_id: int, epoch: int) -> ErrorCode:
    """Of Vote, BeginQuorumEpoch and EndQuorumEpoch, by who sent it and in which epoch."""
    if epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if node_id < 0:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def refuses_leader_request(state: State, epoch: int) -> ErrorCode:
    """Of what only the leader of `epoch` can do."""
    if epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > state.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if state.role is not Role.LEADER:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def node_endpoints(state: State) -> list[raft.NodeEndpoint]:
    address = leader_address(state)
    if address is None or state.leader_id is None:
        return []
    return [raft.NodeEndpoint(node_id=state.leader_id, host=address.host, port=address.port)]


def endpoints_in(state: State, leader_id: int, nodes: list[raft.NodeEndpoint] | list[fetch.NodeEndpoint]) -> Endpoints:
    """Of the leader that a response names: as it says, or as the voters know it."""
    for node in nodes:
        if node.node_id == leader_id:
            return ((state.setting.listener, Address(node.host, node.port)),)
    return state.log.voters.endpoints_of(leader_id)


def fetch_response(
    state: State,
    error: ErrorCode,
    high_watermark: int = -1,
    diverging: EpochEnd | None = None,
    snapshot: SnapshotId | None = None,
) -> fetch.FetchResponse:
    leader = leader_or_nobody(state)
    partition = fetch.PartitionData(
        partition_index=PARTITION,
        error_code=error,
        high_watermark=high_watermark,
        log_start_offset=state.log.start_offset,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=leader, leader_epoch=state.epoch),
        aborted_transactions=[],
        records=b"",
    )
    if diverging is not None:
        partition.diverging_epoch = fetch.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.end_offset)
    if snapshot is not None:
        partition.snapshot_id = fetch.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch)
    address = leader_address(state)
    return fetch.FetchResponse(
        responses=[fetch.FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_UUID, partitions=[partition])],
        node_endpoints=[] if address is None else [fetch.NodeEndpoint(node_id=leader, host=address.host, port=address.port)],
    )


def refused_fetch(state: State, token: int, error: ErrorCode) -> None:
    state.out.append(Respond(token, fetch_response(state, error)))


def answer_change(state: State, token: int, is_addition: bool, error: ErrorCode, message: str | None = None) -> None:
    """Of AddRaftVoter or RemoveRaftVoter."""
    answer: type[raft.AddRaftVoterResponse] | type[raft.RemoveRaftVoterResponse]
    answer = raft.AddRaftVoterResponse if is_addition else raft.RemoveRaftVoterResponse
    state.out.append(Respond(token, answer(error_code=error, error_message=message)))
