"""What the simulator found in the quorum machine, each as the shortest story that shows it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pybroker.base.ids import METADATA_TOPIC_UUID
from pybroker.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    PartitionData,
    ReplicaState,
)
from pybroker.protocol.messages.raft import VoteRequest, VoteRequestPartitionData, VoteRequestTopicData, VoteResponse
from pybroker.raft.events import (
    Address,
    Effect,
    ElectionState,
    EpochStart,
    Recovered,
    ReplicaKey,
    RequestReceived,
    Respond,
    RespondWithRecords,
    ResponseReceived,
    Send,
    SnapshotId,
    Started,
)
from pybroker.raft.quorum import Quorum
from pybroker.raft.setting import METADATA_TOPIC, QuorumSetting

NOW_MS = 1_000_000


def only_voter(recovered: Recovered) -> Quorum:
    """It leads as soon as it is started."""
    setting = QuorumSetting(
        cluster_id="cluster",
        own=ReplicaKey(1),
        endpoints={"CONTROLLER": Address("node1", 9093)},
        static_voters={1: Address("node1", 9093)},
    )
    quorum = Quorum(setting, recovered, draw_below=lambda bound: 0)
    quorum.step(NOW_MS, Started())
    assert quorum.is_leader
    return quorum


def fetch(quorum: Quorum, offset: int, last_epoch: int) -> PartitionData:
    """What the leader answers an observer."""
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=quorum.epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=0,
        partition_max_bytes=0,
    )
    request = FetchRequest(
        cluster_id="cluster",
        replica_state=ReplicaState(replica_id=101),
        max_wait_ms=0,
        min_bytes=0,
        topics=[FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_UUID, partitions=[partition])],
    )
    answers = [one for one in quorum.step(NOW_MS, RequestReceived(1, request)) if is_answer(one)]
    assert len(answers) == 1
    message = answers[0].message  # type: ignore[union-attr]
    assert isinstance(message, FetchResponse)
    return message.responses[0].partitions[0]


def is_answer(effect: Effect) -> bool:
    return isinstance(effect, Respond | RespondWithRecords)


def test_a_replica_whose_epoch_ended_before_the_leaders_log_starts_takes_the_snapshot() -> None:
    """Swarm seed 348. An observer had three records of epoch 4 at 124 that were never committed; the leader lost them, wrote
    others at 124 in epoch 5, and then moved its log's start to 125. It named 125 as the end of epoch 4, which it cannot know:
    inside the observer's batch, and behind a record that is in no other log."""
    quorum = only_voter(
        Recovered(
            election=ElectionState(5, 1),
            log_start_offset=125,
            log_end_offset=130,
            epochs=(EpochStart(5, 125),),
            snapshot=SnapshotId(125, 5),
            kraft_version=0,
            voters=(),
        )
    )
    answer = fetch(quorum, 127, 4)
    assert answer.diverging_epoch is None or answer.diverging_epoch.epoch < 0
    assert answer.snapshot_id is not None
    assert (answer.snapshot_id.end_offset, answer.snapshot_id.epoch) == (125, 5)
    in_step = fetch(quorum, 127, 5)
    assert in_step.snapshot_id is None or in_step.snapshot_id.epoch < 0


def test_a_replica_that_does_not_know_yet_that_it_votes_helps_to_replace_a_silent_leader() -> None:
    """Swarm seed 12319. The leader added a voter and lost its disk before the new voter had the record. The new one followed on
    as an observer, which never gives its leader up, and refused every pre-vote; without its vote there was no majority."""
    voters = {id_: Address(f"node{id_}", 9093) for id_ in (1, 3, 4)}
    setting = QuorumSetting(
        cluster_id="cluster",
        own=ReplicaKey(2),
        endpoints={"CONTROLLER": Address("node2", 9093)},
        static_voters=voters,
        fetch_timeout_ms=2_000,
    )
    nothing = Recovered(ElectionState(3, 1), 0, 0, (), None, 0, ())
    quorum = Quorum(setting, nothing, draw_below=lambda bound: 0)
    fetched = [one for one in quorum.step(NOW_MS, Started()) if isinstance(one, Send)]
    current = LeaderIdAndEpoch(leader_id=1, leader_epoch=3)
    partition = PartitionData(
        partition_index=0, error_code=0, high_watermark=0, current_leader=current, aborted_transactions=[], records=b""
    )
    topic = FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_UUID, partitions=[partition])
    quorum.step(NOW_MS, ResponseReceived(fetched[0].request_id, FetchResponse(responses=[topic])))

    assert not grants_pre_vote(quorum, NOW_MS + 1_999)
    assert grants_pre_vote(quorum, NOW_MS + 2_000)


@pytest.mark.parametrize("timeouts", [{"fetch_timeout_ms": 400}, {"request_timeout_ms": 400}])
def test_a_fetch_waits_for_less_than_the_timeouts(timeouts: dict[str, int]) -> None:
    """Cluster seed 1. Fetches waited for 500 ms at an idle leader whatever the timeouts were, so that every follower gave up a
    leader that had nothing to say, again and again."""
    setting = QuorumSetting(cluster_id="cluster", own=ReplicaKey(2), static_voters={1: Address("node1", 9093)})
    nothing = Recovered(ElectionState(3, 1), 0, 0, (), None, 0, ())
    quorum = Quorum(replace(setting, **timeouts), nothing, draw_below=lambda bound: 0)
    (sent,) = [one for one in quorum.step(NOW_MS, Started()) if isinstance(one, Send)]
    assert isinstance(sent.message, FetchRequest)
    assert sent.message.max_wait_ms == 200


def grants_pre_vote(quorum: Quorum, now_ms: int) -> bool:
    asked = VoteRequestPartitionData(
        partition_index=0, replica_epoch=3, replica_id=4, last_offset_epoch=3, last_offset=80, pre_vote=True
    )
    topic = VoteRequestTopicData(topic_name=METADATA_TOPIC, partitions=[asked])
    effects = quorum.step(now_ms, RequestReceived(1, VoteRequest(cluster_id="cluster", voter_id=2, topics=[topic])))
    (answer,) = [one.message for one in effects if isinstance(one, Respond)]
    assert isinstance(answer, VoteResponse)
    return answer.topics[0].partitions[0].vote_granted
