"""DescribeQuorum: what the leader knows of every replica."""

from __future__ import annotations

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages import raft
from pybroker.raft.answers import leader_or_nobody
from pybroker.raft.events import Respond
from pybroker.raft.leader import Leadership, Progress
from pybroker.raft.setting import METADATA_TOPIC, PARTITION
from pybroker.raft.state import State
from pybroker.raft.voters import Endpoints


def handle_describe(state: State, token: int, request: raft.DescribeQuorumRequest) -> None:
    topics = request.topics
    is_ours = len(topics) == 1 and topics[0].topic_name == METADATA_TOPIC and len(topics[0].partitions) == 1
    if not is_ours or topics[0].partitions[0].partition_index != PARTITION:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer = raft.DescribeQuorumResponse(
            error_code=ErrorCode.NONE,
            topics=[
                raft.DescribeQuorumResponseTopicData(
                    topic_name=topic.topic_name,
                    partitions=[_refused(partition.partition_index, error, -1, 0) for partition in topic.partitions],
                )
                for topic in topics
            ],
        )
    else:
        answer = describe(state)
    state.out.append(Respond(token, answer))


def describe(state: State) -> raft.DescribeQuorumResponse:
    leading = state.leading
    if leading is None:
        partition = _refused(PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_or_nobody(state), state.epoch)
        nodes = []
    else:
        leading.forget_silent_observers(state.now_ms)
        partition = raft.DescribeQuorumResponsePartitionData(
            partition_index=PARTITION,
            error_code=ErrorCode.NONE,
            leader_id=state.own.id,
            leader_epoch=state.epoch,
            high_watermark=leading.high_watermark,
            current_voters=[_replica(state, progress) for progress in leading.voters.values()],
            observers=[_replica(state, progress) for progress in leading.observers.values()],
        )
        nodes = _nodes(state, leading)
    return raft.DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        topics=[raft.DescribeQuorumResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        nodes=nodes,
    )


def _refused(index: int, error: ErrorCode, leader_id: int, epoch: int) -> raft.DescribeQuorumResponsePartitionData:
    return raft.DescribeQuorumResponsePartitionData(
        partition_index=index,
        error_code=error,
        leader_id=leader_id,
        leader_epoch=epoch,
        high_watermark=-1,
        current_voters=[],
        observers=[],
    )


def _replica(state: State, progress: Progress) -> raft.ReplicaState:
    is_own = progress.key.id == state.own.id
    return raft.ReplicaState(
        replica_id=progress.key.id,
        replica_directory_id=progress.key.directory_id,
        log_end_offset=state.log.end_offset if is_own else progress.end_offset,
        last_fetch_timestamp=state.now_ms if is_own else progress.fetched_at_ms,
        last_caught_up_timestamp=state.now_ms if is_own else progress.caught_up_at_ms,
    )


def _nodes(state: State, leading: Leadership) -> list[raft.Node]:
    voters = state.log.voters
    return [_node(id_, voters.endpoints_of(id_)) for id_ in leading.voters]


def _node(id_: int, endpoints: Endpoints) -> raft.Node:
    listeners = [raft.DescribeQuorumResponseListener(name=name, host=at.host, port=at.port) for name, at in endpoints]
    return raft.Node(node_id=id_, listeners=listeners)
