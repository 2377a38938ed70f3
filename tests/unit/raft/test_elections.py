"""Elections of the quorum: who leads, who may not, and that nobody disturbs without need."""

from __future__ import annotations

import pytest
from support.quorum_cluster import Cluster, address_of, batch_of, key_of

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages import raft
from pybroker.raft import events as e
from pybroker.raft.quorum import Quorum
from pybroker.raft.setting import METADATA_TOPIC, QuorumSetting
from pybroker.raft.state import Role


def test_a_single_voter_elects_itself_at_once() -> None:
    cluster = Cluster([1])
    cluster.start()
    cluster.run(10)
    assert cluster.transcript() == (
        "     0 1: starts\n"
        "     0 1: epoch 1, leader None, votes for 1\n"
        "     0 1: epoch 1, leader 1\n"
        "     1 1: committed up to 1"
    )
    assert cluster.replicas[1].announced[-1] == (1, 1)


def test_an_election_of_three() -> None:
    cluster = Cluster([1, 2, 3], seed=1)
    cluster.start()
    cluster.elect()
    cluster.run(20)
    assert cluster.transcript() == (
        "     0 1: starts\n"
        "     0 2: starts\n"
        "     0 3: starts\n"
        "  1139 1: epoch 1, leader None, votes for 1\n"
        "  1140 2: epoch 1, leader None\n"
        "  1140 2: epoch 1, leader None, votes for 1\n"
        "  1140 3: epoch 1, leader None\n"
        "  1140 3: epoch 1, leader None, votes for 1\n"
        "  1141 1: epoch 1, leader 1\n"
        "  1142 2: epoch 1, leader 1, votes for 1\n"
        "  1142 3: epoch 1, leader 1, votes for 1\n"
        "  1146 1: committed up to 1\n"
        "  1147 2: committed up to 1\n"
        "  1147 3: committed up to 1"
    )


@pytest.mark.parametrize("seed", range(10))
def test_rivals_settle_it(seed: int) -> None:
    """Without luck votes are split; the pauses are random, so somebody wins soon."""
    cluster = Cluster([1, 2, 3, 4, 5], seed=seed, election_timeout_ms=20)
    cluster.delay_ms = 15
    cluster.start()
    cluster.elect(within_ms=10_000)


def test_a_split_vote_is_followed_by_another_election() -> None:
    cluster = Cluster([1, 2, 3, 4], seed=3, election_backoff_max_ms=100)
    cluster.start()
    for id_, rival in ((1, 2), (3, 4)):
        # Both stand in epoch 1 and have the vote of one other: nobody has three of four.
        partition = vote(candidate=rival, epoch=1, voter=id_)
        cluster.ask(id_, partition)
    for id_ in (2, 4):
        cluster.replicas[id_].disk.election = e.ElectionState(1, None, key_of(id_))
        cluster.start(id_)
    cluster.elect()
    assert cluster[1].epoch > 1


def vote(
    *, candidate: int, epoch: int, voter: int = 1, last: tuple[int, int] = (0, 0), pre_vote: bool = False
) -> raft.VoteRequest:
    partition = raft.VoteRequestPartitionData(
        partition_index=0,
        replica_epoch=epoch,
        replica_id=candidate,
        replica_directory_id=key_of(candidate).directory_id,
        last_offset_epoch=last[0],
        last_offset=last[1],
        pre_vote=pre_vote,
    )
    topic = raft.VoteRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return raft.VoteRequest(cluster_id="cluster", voter_id=voter, topics=[topic])


def replica(id_: int = 1, *, recovered: e.Recovered | None = None, **options: object) -> Quorum:
    setting = QuorumSetting(
        cluster_id="cluster",
        own=key_of(id_),
        endpoints={"CONTROLLER": address_of(id_)},
        static_voters={other: address_of(other) for other in (1, 2, 3)},
        **options,  # type: ignore[arg-type]
    )
    quorum = Quorum(setting, recovered or empty(), draw_below=lambda below: 0)
    quorum.step(0, e.Started())
    return quorum


def empty(election: e.ElectionState | None = None) -> e.Recovered:
    return e.Recovered(election or e.ElectionState(), 0, 0, (), None, 0, ())


def with_log(election: e.ElectionState, end_offset: int, epoch: int) -> e.Recovered:
    return e.Recovered(election, 0, end_offset, (e.EpochStart(epoch, 0),), None, 0, ())


def ask(quorum: Quorum, request: raft.VoteRequest, now_ms: int = 1) -> tuple[bool, int, list[e.Effect]]:
    effects = quorum.step(now_ms, e.RequestReceived(7, request))
    answer = next(effect.message for effect in effects if isinstance(effect, e.Respond) and effect.token == 7)
    assert isinstance(answer, raft.VoteResponse)
    if answer.error_code:
        return False, answer.error_code, effects
    partition = answer.topics[0].partitions[0]
    return partition.vote_granted, partition.error_code, effects


class TestVoting:
    def test_the_vote_is_durable_before_it_is_told(self) -> None:
        granted, _, effects = ask(replica(), vote(candidate=2, epoch=5))
        assert granted
        kinds = [type(effect) for effect in effects if not isinstance(effect, e.Send)]
        assert kinds.index(e.Respond) > max(at for at, kind in enumerate(kinds) if kind is e.PersistElection)
        last = [effect for effect in effects if isinstance(effect, e.PersistElection)][-1]
        assert last.state == e.ElectionState(5, None, key_of(2))

    def test_one_vote_in_an_epoch_also_after_a_crash(self) -> None:
        quorum = replica(recovered=empty(e.ElectionState(5, None, key_of(2))))
        assert not ask(quorum, vote(candidate=3, epoch=5))[0]
        assert ask(quorum, vote(candidate=2, epoch=5))[0]
        assert ask(quorum, vote(candidate=3, epoch=6))[0]

    def test_a_vote_is_not_given_again_to_a_candidate_that_came_back_with_less(self) -> None:
        """A crash took records that it had not flushed when it asked the first time; here they are committed."""
        quorum = replica(recovered=with_log(e.ElectionState(3), 8, 3))
        assert ask(quorum, vote(candidate=2, epoch=4, last=(3, 8)))[0]
        assert not ask(quorum, vote(candidate=2, epoch=4, last=(3, 5)))[0]
        assert ask(quorum, vote(candidate=2, epoch=4, last=(3, 8)))[0]

    def test_a_replica_with_another_disk_is_another_candidate(self) -> None:
        quorum = replica(recovered=empty(e.ElectionState(5, None, key_of(2, disk=1))))
        assert not ask(quorum, vote(candidate=2, epoch=5))[0]

    @pytest.mark.parametrize(
        ("last", "granted"),
        [((2, 9), False), ((3, 4), False), ((3, 5), True), ((3, 6), True), ((4, 1), True)],
    )
    def test_only_for_a_log_that_is_not_behind(self, last: tuple[int, int], granted: bool) -> None:
        for pre_vote in (False, True):
            quorum = replica(recovered=with_log(e.ElectionState(3), 5, 3))
            assert ask(quorum, vote(candidate=2, epoch=7, last=last, pre_vote=pre_vote))[0] is granted

    def test_a_pre_vote_changes_nothing(self) -> None:
        quorum = replica(recovered=empty(e.ElectionState(5)))
        granted, _, effects = ask(quorum, vote(candidate=2, epoch=5, pre_vote=True))
        assert granted
        assert not [effect for effect in effects if isinstance(effect, e.PersistElection)]
        assert ask(quorum, vote(candidate=3, epoch=5, pre_vote=True))[0]

    def test_a_known_leader_rules_out_votes_in_its_epoch(self) -> None:
        quorum = replica(recovered=empty(e.ElectionState(5, 3)))
        assert quorum.role is Role.FOLLOWER
        assert not ask(quorum, vote(candidate=2, epoch=5))[0]
        # It has not heard of the leader yet, so it would not stand in the way of another election.
        assert ask(quorum, vote(candidate=2, epoch=5, pre_vote=True))[0]

    def test_a_leader_grants_nothing_in_its_epoch(self) -> None:
        cluster = Cluster([1, 2, 3])
        cluster.start()
        leader = cluster.elect()
        other = next(id_ for id_ in (1, 2, 3) if id_ != leader)
        epoch = cluster[leader].epoch
        for pre_vote in (False, True):
            answers = cluster.ask(leader, vote(candidate=other, epoch=epoch, voter=leader, last=(0, 99), pre_vote=pre_vote))
            assert not answers[0].topics[0].partitions[0].vote_granted  # type: ignore[attr-defined]
        assert cluster[leader].is_leader


class TestRefusals:
    def test_another_cluster(self) -> None:
        request = vote(candidate=2, epoch=1)
        request.cluster_id = "other"
        assert ask(replica(), request)[1] == ErrorCode.INCONSISTENT_CLUSTER_ID

    def test_another_topic_or_partition(self) -> None:
        request = vote(candidate=2, epoch=1)
        request.topics[0].topic_name = "other"
        assert ask(replica(), request)[1] == ErrorCode.INVALID_REQUEST
        request = vote(candidate=2, epoch=1)
        request.topics[0].partitions[0].partition_index = 1
        assert ask(replica(), request)[1] == ErrorCode.INVALID_REQUEST
        request.topics = []
        assert ask(replica(), request)[1] == ErrorCode.INVALID_REQUEST

    def test_an_old_epoch_is_fenced_and_told_the_new_one(self) -> None:
        quorum = replica(recovered=empty(e.ElectionState(5, 3)))
        effects = quorum.step(1, e.RequestReceived(7, vote(candidate=2, epoch=4)))
        answer = next(effect.message for effect in effects if isinstance(effect, e.Respond))
        assert isinstance(answer, raft.VoteResponse)
        partition = answer.topics[0].partitions[0]
        assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (ErrorCode.FENCED_LEADER_EPOCH, 3, 5)
        assert [(node.node_id, node.host, node.port) for node in answer.node_endpoints] == [(3, "host3", 9093)]

    def test_a_candidate_cannot_have_records_of_the_epoch_it_stands_in(self) -> None:
        assert ask(replica(), vote(candidate=2, epoch=4, last=(4, 1)))[1] == ErrorCode.INVALID_REQUEST
        assert ask(replica(), vote(candidate=2, epoch=4, last=(5, 1), pre_vote=True))[1] == ErrorCode.INVALID_REQUEST
        assert ask(replica(), vote(candidate=2, epoch=4, last=(4, 1), pre_vote=True))[:2] == (True, ErrorCode.NONE)
        assert ask(replica(), vote(candidate=2, epoch=4, last=(0, -1)))[1] == ErrorCode.INVALID_REQUEST
        assert ask(replica(), vote(candidate=-1, epoch=4))[1] == ErrorCode.INVALID_REQUEST

    def test_a_request_for_another_voter(self) -> None:
        assert ask(replica(), vote(candidate=2, epoch=4, voter=3))[:2] == (False, ErrorCode.INVALID_VOTER_KEY)
        request = vote(candidate=2, epoch=4)
        request.topics[0].partitions[0].voter_directory_id = key_of(1, disk=9).directory_id
        assert ask(replica(), request)[:2] == (False, ErrorCode.INVALID_VOTER_KEY)


class TestStarting:
    def test_a_leader_comes_back_resigned_and_says_so(self) -> None:
        quorum = replica(recovered=with_log(e.ElectionState(5, 1), 4, 5))
        assert quorum.role is Role.RESIGNED
        assert not ask(quorum, vote(candidate=2, epoch=5, last=(4, 9)))[0]
        # Nobody took over: it goes on in the next epoch, in which it may vote.
        quorum.step(2000, e.DeadlinePassed())
        assert (quorum.role, quorum.epoch) == (Role.UNATTACHED, 6)

    def test_a_candidate_stands_again_in_the_epoch_in_which_it_voted_for_itself(self) -> None:
        quorum = replica(recovered=empty(e.ElectionState(5, None, key_of(1))))
        assert (quorum.role, quorum.epoch) == (Role.CANDIDATE, 5)

    def test_a_follower_follows(self) -> None:
        quorum = replica(recovered=empty(e.ElectionState(5, 2)))
        assert (quorum.role, quorum.leader_id, quorum.leader_address) == (Role.FOLLOWER, 2, address_of(2))

    def test_the_log_may_know_a_later_epoch_than_the_election_state(self) -> None:
        quorum = replica(recovered=with_log(e.ElectionState(2, None, key_of(1)), 4, 5))
        assert (quorum.role, quorum.epoch) == (Role.UNATTACHED, 5)


def test_a_pre_vote_of_a_replica_that_was_cut_off_does_not_disturb() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.start()
    leader = cluster.elect()
    epoch = cluster[leader].epoch
    lonely = next(id_ for id_ in (1, 2, 3) if id_ != leader)
    cluster.partition(lonely)
    cluster.run(10_000)
    assert cluster[lonely].role in (Role.PROSPECTIVE, Role.FOLLOWER, Role.UNATTACHED)
    assert cluster[lonely].epoch == epoch
    cluster.heal()
    cluster.run(10_000)
    assert cluster.leader() == leader
    assert [cluster[id_].epoch for id_ in (1, 2, 3)] == [epoch] * 3
    assert cluster[lonely].role is Role.FOLLOWER


def test_a_voter_that_knows_no_pre_vote_is_asked_for_its_vote() -> None:
    quorum = replica()
    effects = quorum.step(2000, e.DeadlinePassed())
    sends = [effect for effect in effects if isinstance(effect, e.Send)]
    assert quorum.role is Role.PROSPECTIVE
    effects = quorum.step(2001, e.ResponseReceived(sends[0].request_id, raft.VoteResponse(error_code=35, topics=[])))
    assert (quorum.role, quorum.epoch) == (Role.CANDIDATE, 1)
    request = next(effect.message for effect in effects if isinstance(effect, e.Send))
    assert isinstance(request, raft.VoteRequest)
    assert not request.topics[0].partitions[0].pre_vote


def test_a_leader_that_hears_no_majority_resigns() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.start()
    old = cluster.elect()
    cluster.partition(old)
    assert cluster.run_until(lambda: not cluster[old].is_leader, 3001)
    assert f"resigns epoch {cluster[old].epoch}: no majority of voters fetched for 3000 ms" in cluster.transcript()
    new = cluster.elect()
    assert new != old
    cluster.heal()
    cluster.run(5000)
    assert cluster.leader() == new
    assert cluster[old].leader_id == new


def test_a_leader_asked_to_resign_names_its_successor_who_stands_at_once() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.start()
    old = cluster.elect()
    behind = next(id_ for id_ in (1, 2, 3) if id_ != old)
    ahead = next(id_ for id_ in (1, 2, 3) if id_ not in (old, behind))
    cluster.run(100)
    cluster.partition(behind)
    cluster.propose_to(old, b"x")
    cluster.run(100)
    cluster.heal()
    asked_ms = cluster.now_ms
    cluster.step(old, e.ResignRequested(is_final=True))
    assert cluster.elect() == ahead
    assert cluster.now_ms - asked_ms <= 10
    cluster.run(10_000)
    assert not cluster[old].is_leader


def test_nobody_is_elected_without_a_majority() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.start(1)
    cluster.run(60_000)
    assert cluster.leader() is None
    assert cluster[1].epoch == 0


class TestBeginAndEnd:
    def begin(self, leader_id: int, epoch: int, voter: int = 1) -> raft.BeginQuorumEpochRequest:
        partition = raft.BeginQuorumEpochRequestPartitionData(partition_index=0, leader_id=leader_id, leader_epoch=epoch)
        topic = raft.BeginQuorumEpochRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        return raft.BeginQuorumEpochRequest(cluster_id="cluster", voter_id=voter, topics=[topic])

    def end(self, leader_id: int, epoch: int, successors: list[int]) -> raft.EndQuorumEpochRequest:
        partition = raft.EndQuorumEpochRequestPartitionData(
            partition_index=0, leader_id=leader_id, leader_epoch=epoch, preferred_successors=successors
        )
        topic = raft.EndQuorumEpochRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        return raft.EndQuorumEpochRequest(cluster_id="cluster", topics=[topic])

    def answer(self, quorum: Quorum, request: object, now_ms: int = 1) -> int:
        effects = quorum.step(now_ms, e.RequestReceived(7, request))  # type: ignore[arg-type]
        message = next(effect.message for effect in effects if isinstance(effect, e.Respond))
        assert isinstance(message, raft.BeginQuorumEpochResponse | raft.EndQuorumEpochResponse)
        return message.error_code or message.topics[0].partitions[0].error_code

    def test_whoever_begins_an_epoch_is_followed(self) -> None:
        quorum = replica()
        assert self.answer(quorum, self.begin(2, 4)) == ErrorCode.NONE
        assert (quorum.role, quorum.epoch, quorum.leader_id) == (Role.FOLLOWER, 4, 2)

    def test_not_in_an_old_epoch_and_not_against_the_leader_that_is_known(self) -> None:
        quorum = replica(recovered=empty(e.ElectionState(5, 2)))
        assert self.answer(quorum, self.begin(3, 4)) == ErrorCode.FENCED_LEADER_EPOCH
        assert self.answer(quorum, self.begin(3, 5)) == ErrorCode.INVALID_REQUEST
        assert self.answer(quorum, self.begin(-1, 5)) == ErrorCode.INVALID_REQUEST
        assert quorum.leader_id == 2

    def test_meant_for_another_voter(self) -> None:
        quorum = replica()
        assert self.answer(quorum, self.begin(2, 4, voter=3)) == ErrorCode.INVALID_VOTER_KEY
        assert quorum.leader_id == 2, "who leads is true all the same"

    @pytest.mark.parametrize("name", ["begin", "end"])
    def test_another_cluster_another_topic(self, name: str) -> None:
        for spoil, error in (
            (lambda r: setattr(r, "cluster_id", "other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
            (lambda r: setattr(r.topics[0], "topic_name", "other"), ErrorCode.INVALID_REQUEST),
        ):
            request = self.begin(2, 4) if name == "begin" else self.end(2, 4, [1])
            spoil(request)
            assert self.answer(replica(), request) == error

    @pytest.mark.parametrize(("successors", "wait_ms"), [([1, 3], 0), ([3, 1], 500), ([3], 1000), ([], 0)])
    def test_the_best_successor_stands_first(self, successors: list[int], wait_ms: int) -> None:
        quorum = replica(recovered=empty(e.ElectionState(5, 2)))
        assert self.answer(quorum, self.end(2, 5, successors), now_ms=10) == ErrorCode.NONE
        if wait_ms:
            assert quorum.role is Role.FOLLOWER
            quorum.step(10 + wait_ms - 1, e.DeadlinePassed())
            assert quorum.role is Role.FOLLOWER
        quorum.step(10 + wait_ms, e.DeadlinePassed())
        assert quorum.role is Role.PROSPECTIVE

    def test_only_the_leader_ends_its_epoch(self) -> None:
        quorum = replica(recovered=empty(e.ElectionState(5, 2)))
        assert self.answer(quorum, self.end(2, 4, [1])) == ErrorCode.FENCED_LEADER_EPOCH
        assert self.answer(quorum, self.end(3, 5, [1])) == ErrorCode.INVALID_REQUEST
        assert quorum.role is Role.FOLLOWER


def test_a_proposal_of_an_epoch_that_is_over_is_dropped() -> None:
    quorum = replica()
    effects = quorum.step(1, e.Proposed(3, batch_of(0, 3, b"x")))
    assert not [effect for effect in effects if isinstance(effect, e.AppendRecords)]
