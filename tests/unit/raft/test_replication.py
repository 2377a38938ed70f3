"""The log of the quorum: what is committed, what is truncated, what a fetch is answered."""

from __future__ import annotations

import pytest
from support.quorum_cluster import Cluster, address_of, batch_of, directory_of, key_of

from pybroker.base.ids import METADATA_TOPIC_UUID, ZERO_UUID
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages import fetch, raft
from pybroker.raft import events as e
from pybroker.raft.quorum import Quorum
from pybroker.raft.setting import METADATA_TOPIC, QuorumSetting
from pybroker.raft.state import Role


def fetch_request(
    replica: int, epoch: int, offset: int, last_epoch: int, *, max_wait_ms: int = 500, high_watermark: int = 2**63 - 1
) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=0,
        replica_directory_id=directory_of(replica),
        high_watermark=high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id="cluster",
        replica_state=fetch.ReplicaState(replica_id=replica),
        max_wait_ms=max_wait_ms,
        min_bytes=0,
        topics=[fetch.FetchTopic(topic_id=METADATA_TOPIC_UUID, partitions=[partition])],
    )


def part_of(message: object) -> fetch.PartitionData:
    assert isinstance(message, fetch.FetchResponse)
    assert not message.error_code
    return message.responses[0].partitions[0]


class Leader:
    """Voter 1 of three, elected in epoch 4 behind a log of epoch 2 up to offset 3; its first record is at 3."""

    def __init__(self, *, voters: tuple[int, ...] = (1, 2, 3), recovered: e.Recovered | None = None) -> None:
        setting = QuorumSetting(
            cluster_id="cluster",
            own=key_of(1),
            endpoints={"CONTROLLER": address_of(1)},
            static_voters={id_: address_of(id_) for id_ in voters},
        )
        recovered = recovered or e.Recovered(e.ElectionState(3), 0, 3, (e.EpochStart(2, 0),), None, 0, ())
        self.quorum = Quorum(setting, recovered, draw_below=lambda below: 0)
        self.now_ms = 0
        self.token = 0
        self.step(e.Started())
        if len(voters) > 1:
            self.now_ms = 1000
            for _ in range(2):  # the pre-vote, the vote
                for effect in self.step(e.DeadlinePassed()):
                    if isinstance(effect, e.Send) and isinstance(effect.message, raft.VoteRequest):
                        self.grant(effect)
        assert self.quorum.is_leader

    def grant(self, send: e.Send) -> None:
        partition = raft.VoteResponsePartitionData(
            partition_index=0, error_code=0, leader_id=-1, leader_epoch=self.quorum.epoch, vote_granted=True
        )
        topic = raft.VoteResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        effects = self.step(e.ResponseReceived(send.request_id, raft.VoteResponse(error_code=0, topics=[topic])))
        for effect in effects:
            if isinstance(effect, e.Send) and isinstance(effect.message, raft.VoteRequest):
                self.grant(effect)

    def step(self, event: e.Event) -> list[e.Effect]:
        return self.quorum.step(self.now_ms, event)

    def fetch(self, request: fetch.FetchRequest) -> e.Respond | e.RespondWithRecords | None:
        """The answer if it comes at once."""
        self.token += 1
        return answer_to(self.token, self.step(e.RequestReceived(self.token, request)))


def answer_to(token: int, effects: list[e.Effect]) -> e.Respond | e.RespondWithRecords | None:
    found = [one for one in effects if isinstance(one, e.Respond | e.RespondWithRecords) and one.token == token]
    assert len(found) <= 1
    return found[0] if found else None


class TestCommitting:
    def test_a_record_counts_on_its_leader_when_it_is_flushed(self) -> None:
        leader = Leader(voters=(1,))
        assert leader.quorum.high_watermark is None
        leader.step(e.Flushed(4))
        assert leader.quorum.high_watermark == 4
        leader.step(e.Proposed(4, batch_of(4, 4, b"a", b"b")))
        assert leader.quorum.high_watermark == 4
        effects = leader.step(e.Flushed(6))
        assert e.AdvanceHighWatermark(6) in effects

    def test_a_majority_commits_even_if_the_leader_has_not_flushed(self) -> None:
        leader = Leader()
        leader.fetch(fetch_request(2, 4, 4, 4))
        assert leader.quorum.high_watermark is None
        leader.fetch(fetch_request(3, 4, 4, 4))
        assert leader.quorum.high_watermark == 4

    def test_records_of_older_epochs_are_committed_only_with_one_of_this_epoch(self) -> None:
        """Figure 8 of the Raft paper: a majority has the old record, and another leader could still overwrite it."""
        leader = Leader()
        leader.step(e.Flushed(3))
        leader.fetch(fetch_request(2, 4, 3, 2))
        leader.fetch(fetch_request(3, 4, 3, 2))
        assert leader.quorum.high_watermark is None
        leader.step(e.Flushed(4))
        leader.fetch(fetch_request(2, 4, 4, 4))
        assert leader.quorum.high_watermark == 4

    def test_observers_and_strangers_do_not_count(self) -> None:
        leader = Leader()
        leader.step(e.Flushed(4))
        for id_ in (7, 8, 9, -1):
            leader.fetch(fetch_request(id_, 4, 4, 4))
        assert leader.quorum.high_watermark is None

    def test_the_high_watermark_does_not_fall_with_a_voter_that_lost_its_log(self) -> None:
        leader = Leader()
        leader.step(e.Flushed(4))
        leader.fetch(fetch_request(2, 4, 4, 4))
        assert leader.quorum.high_watermark == 4
        leader.fetch(fetch_request(2, 4, 0, 0))
        leader.step(e.Proposed(4, batch_of(4, 4, b"a")))
        leader.step(e.Flushed(5))
        assert leader.quorum.high_watermark == 4


def test_figure_8_as_a_story() -> None:
    """1 leads epoch A, only 2 has its record; 3 leads B alone; 1 comes back, spreads the old record, and dies before a record
    of its new epoch is on a majority: 3 may win, and what is overwritten was never committed."""
    cluster = Cluster([1, 2, 3], death_grace_ms=0)
    cluster.start()
    first = cluster.elect()
    cluster.run(100)
    second, third = (id_ for id_ in (1, 2, 3) if id_ != first)
    cluster.partition(third)
    cluster.replicas[second].flushes = False
    cluster.propose_to(first, b"old")
    cluster.run(5)
    committed = cluster.replicas[first].high_watermark
    assert b"old" in cluster.replicas[second].disk.values()
    assert committed == 1, "the leader and an unflushed copy are no majority"
    cluster.crash(first)
    cluster.crash(second)
    assert b"old" not in cluster.replicas[second].disk.values()
    cluster.heal()
    cluster.replicas[second].flushes = True
    cluster.start(second)
    cluster.elect()
    cluster.propose(b"new")
    cluster.run(1000)
    cluster.start(first)
    cluster.run(5000)
    assert "truncates to 1" in cluster.transcript()
    assert [cluster.replicas[id_].disk.values() for id_ in (1, 2, 3)] == [[b"new"]] * 3


def test_the_logs_of_a_healed_partition_become_one() -> None:
    cluster = Cluster([1, 2, 3, 4, 5])
    cluster.start()
    old = cluster.elect()
    cluster.run(100)
    friend = next(id_ for id_ in range(1, 6) if id_ != old)
    cluster.partition(old, friend)
    for value in (b"lost 1", b"lost 2", b"lost 3"):
        cluster.propose_to(old, value)
        cluster.run(10)
    assert cluster.replicas[old].high_watermark == 1
    assert cluster.run_until(lambda: any(cluster[id_].is_leader and id_ != old for id_ in range(1, 6)), 10_000)
    cluster.run(100)
    new = next(id_ for id_ in range(1, 6) if cluster[id_].is_leader and id_ != old)
    cluster.propose_to(new, b"kept")
    cluster.heal()
    cluster.run(6000)
    assert all(cluster.replicas[id_].disk.values() == [b"kept"] for id_ in range(1, 6))
    assert len({tuple(cluster.replicas[id_].disk.entries()) for id_ in range(1, 6)}) == 1
    assert len({cluster[id_].high_watermark for id_ in range(1, 6)}) == 1


class TestFollowing:
    """Voter 2, which follows 1 in epoch 4."""

    def follower(self, recovered: e.Recovered) -> tuple[Quorum, e.Send]:
        setting = QuorumSetting(
            cluster_id="cluster",
            own=key_of(2),
            endpoints={"CONTROLLER": address_of(2)},
            static_voters={id_: address_of(id_) for id_ in (1, 2, 3)},
        )
        quorum = Quorum(setting, recovered, draw_below=lambda below: 0)
        sends = [effect for effect in quorum.step(0, e.Started()) if isinstance(effect, e.Send)]
        assert len(sends) == 1
        return quorum, sends[0]

    def log(self, *epochs: tuple[int, int], end: int) -> e.Recovered:
        starts = tuple(e.EpochStart(*epoch) for epoch in epochs)
        return e.Recovered(e.ElectionState(4, 1), 0, end, starts, None, 0, ())

    def response(self, **fields: object) -> fetch.FetchResponse:
        partition = fetch.PartitionData(
            partition_index=0,
            error_code=fields.pop("error_code", 0),
            high_watermark=fields.pop("high_watermark", -1),
            aborted_transactions=[],
            records=fields.pop("records", b""),
            current_leader=fetch.LeaderIdAndEpoch(
                leader_id=fields.pop("leader_id", 1), leader_epoch=fields.pop("leader_epoch", 4)
            ),
            **fields,
        )
        topic = fetch.FetchableTopicResponse(topic_id=METADATA_TOPIC_UUID, partitions=[partition])
        return fetch.FetchResponse(responses=[topic])

    def test_it_fetches_from_its_end(self) -> None:
        _, send = self.follower(self.log((1, 0), (3, 5), end=9))
        assert isinstance(send.message, fetch.FetchRequest)
        partition = send.message.topics[0].partitions[0]
        assert (send.node_id, send.address) == (1, address_of(1))
        assert (partition.fetch_offset, partition.last_fetched_epoch, partition.current_leader_epoch) == (9, 3, 4)
        assert partition.replica_directory_id == directory_of(2)
        assert partition.high_watermark == -1

    def test_it_fetches_on_when_what_it_has_is_flushed(self) -> None:
        quorum, send = self.follower(self.log(end=0))
        records = batch_of(0, 4, b"a", b"b") + batch_of(2, 4, b"c")
        effects = quorum.step(5, e.ResponseReceived(send.request_id, self.response(records=records, high_watermark=2)))
        assert effects == [e.AppendRecords(records), e.AdvanceHighWatermark(2)]
        assert quorum.step(6, e.DeadlinePassed()) == []
        sent = quorum.step(7, e.Flushed(3))
        assert isinstance(sent[0], e.Send)
        assert isinstance(sent[0].message, fetch.FetchRequest)
        assert sent[0].message.topics[0].partitions[0].fetch_offset == 3
        assert sent[0].message.topics[0].partitions[0].high_watermark == 2

    def test_the_high_watermark_is_not_beyond_its_own_end(self) -> None:
        quorum, send = self.follower(self.log(end=0))
        quorum.step(5, e.ResponseReceived(send.request_id, self.response(records=batch_of(0, 4, b"a"), high_watermark=9)))
        assert quorum.high_watermark == 1

    @pytest.mark.parametrize(
        ("diverging", "end"),
        [
            ((3, 7), 7),  # the same epoch, but shorter on the leader
            ((2, 6), 5),  # an epoch that is not here: what came after the last one before it goes
            ((1, 3), 3),
        ],
    )
    def test_it_truncates_where_the_logs_part(self, diverging: tuple[int, int], end: int) -> None:
        quorum, send = self.follower(self.log((1, 0), (3, 5), end=9))
        epoch, end_offset = diverging
        answer = self.response(diverging_epoch=fetch.EpochEndOffset(epoch=epoch, end_offset=end_offset))
        effects = quorum.step(5, e.ResponseReceived(send.request_id, answer))
        assert e.TruncateLog(end) in effects
        assert quorum.log_end_offset == end

    def test_what_is_committed_is_never_truncated(self) -> None:
        quorum, send = self.follower(self.log((1, 0), end=5))
        effects = quorum.step(5, e.ResponseReceived(send.request_id, self.response(high_watermark=4)))
        again = next(effect for effect in effects if isinstance(effect, e.Send))
        answer = self.response(diverging_epoch=fetch.EpochEndOffset(epoch=1, end_offset=3))
        with pytest.raises(AssertionError, match="told to truncate to 3, but 4 is committed"):
            quorum.step(6, e.ResponseReceived(again.request_id, answer))

    def test_broken_records_are_not_appended(self) -> None:
        quorum, send = self.follower(self.log(end=0))
        good, bad = batch_of(0, 4, b"a"), bytearray(batch_of(1, 4, b"b"))
        bad[-1] ^= 1
        effects = quorum.step(5, e.ResponseReceived(send.request_id, self.response(records=good + bytes(bad))))
        assert [effect for effect in effects if isinstance(effect, e.AppendRecords)] == [e.AppendRecords(good)]

    def test_epochs_do_not_fall_within_an_answer(self) -> None:
        quorum, send = self.follower(self.log(end=0))
        good = batch_of(0, 4, b"a")
        records = good + batch_of(1, 3, b"b")
        effects = quorum.step(5, e.ResponseReceived(send.request_id, self.response(records=records)))
        assert [effect for effect in effects if isinstance(effect, e.AppendRecords)] == [e.AppendRecords(good)]

    @pytest.mark.parametrize("records", [batch_of(3, 4, b"a"), batch_of(0, 5, b"a"), batch_of(0, 4, b"abc")[:-2]])
    def test_records_that_do_not_follow_are_not_appended(self, records: bytes) -> None:
        quorum, send = self.follower(self.log(end=0))
        effects = quorum.step(5, e.ResponseReceived(send.request_id, self.response(records=records)))
        assert not [effect for effect in effects if isinstance(effect, e.AppendRecords)]
        assert quorum.log_end_offset == 0
        assert quorum.deadline_ms == 5 + 20, "it asks again after a pause"

    def test_an_answer_of_an_earlier_role_is_nobodys(self) -> None:
        quorum, send = self.follower(self.log(end=0))
        quorum.step(2000, e.DeadlinePassed())
        assert quorum.role is Role.PROSPECTIVE
        effects = quorum.step(2001, e.ResponseReceived(send.request_id, self.response(records=batch_of(0, 4, b"a"))))
        assert effects == []

    def test_a_newer_leader_is_followed(self) -> None:
        quorum, send = self.follower(self.log(end=0))
        answer = self.response(error_code=ErrorCode.FENCED_LEADER_EPOCH, leader_id=3, leader_epoch=6)
        effects = quorum.step(5, e.ResponseReceived(send.request_id, answer))
        assert (quorum.epoch, quorum.leader_id, quorum.role) == (6, 3, Role.FOLLOWER)
        assert effects[:2] == [e.PersistElection(e.ElectionState(6, 3, None)), e.AnnounceLeader(6, 3)]

    def test_another_leader_of_the_same_epoch_is_not_believed(self) -> None:
        quorum, send = self.follower(self.log(end=0))
        answer = self.response(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=3)
        quorum.step(5, e.ResponseReceived(send.request_id, answer))
        assert quorum.leader_id == 1

    def test_it_retries_after_a_pause_and_gives_up_after_the_fetch_timeout(self) -> None:
        quorum, send = self.follower(self.log(end=0))
        assert quorum.step(5, e.RequestFailed(send.request_id)) == []
        assert quorum.deadline_ms == 25
        effects = quorum.step(25, e.DeadlinePassed())
        assert [type(effect) for effect in effects] == [e.Send]
        quorum.step(1999, e.DeadlinePassed())
        assert quorum.role is Role.FOLLOWER
        quorum.step(2000, e.DeadlinePassed())
        assert quorum.role is Role.PROSPECTIVE

    @pytest.mark.parametrize(
        "how", ["the leader ends its epoch", "the leader is silent", "the leader is dead", "another epoch"]
    )
    def test_it_stands_only_when_all_of_its_log_is_flushed(self, how: str) -> None:
        """Else it would be elected for records that a crash takes: its vote for itself is durable, they are not."""
        quorum, send = self.follower(self.log((3, 0), end=5))
        records = batch_of(5, 4, b"a", b"b", b"c")
        quorum.step(5, e.ResponseReceived(send.request_id, self.response(records=records, high_watermark=5)))
        now_ms = 10
        if how == "the leader ends its epoch":
            row = raft.EndQuorumEpochRequestPartitionData(
                partition_index=0, leader_id=1, leader_epoch=4, preferred_successors=[2], preferred_candidates=[]
            )
            topic = raft.EndQuorumEpochRequestTopicData(topic_name=METADATA_TOPIC, partitions=[row])
            request = raft.EndQuorumEpochRequest(cluster_id="cluster", topics=[topic], leader_endpoints=[])
            quorum.step(now_ms, e.RequestReceived(1, request))
        elif how == "the leader is dead":
            quorum.step(now_ms, e.NodeLost(1))
        elif how == "another epoch":
            asked = raft.VoteRequestPartitionData(
                partition_index=0, replica_epoch=6, replica_id=3, last_offset_epoch=3, last_offset=5
            )
            vote = raft.VoteRequestTopicData(topic_name=METADATA_TOPIC, partitions=[asked])
            quorum.step(now_ms, e.RequestReceived(1, raft.VoteRequest(cluster_id="cluster", topics=[vote])))
        if how != "the leader ends its epoch":
            now_ms = 10_000
        assert quorum.step(now_ms, e.DeadlinePassed()) == []
        assert quorum.role is (Role.UNATTACHED if how == "another epoch" else Role.FOLLOWER)
        assert quorum.deadline_ms is None, "nothing is due before the flush"
        quorum.step(now_ms + 1, e.Flushed(8))
        assert quorum.role is Role.PROSPECTIVE


class TestFetches:
    def test_what_is_there_is_answered_at_once(self) -> None:
        leader = Leader()
        answer = leader.fetch(fetch_request(2, 4, 3, 2))
        assert isinstance(answer, e.RespondWithRecords)
        assert answer.offset == 3
        partition = part_of(answer.message)
        assert (partition.error_code, partition.high_watermark) == (0, -1)
        assert partition.current_leader == fetch.LeaderIdAndEpoch(leader_id=1, leader_epoch=4)
        assert isinstance(answer.message, fetch.FetchResponse)
        assert answer.message.node_endpoints == [fetch.NodeEndpoint(node_id=1, host="host1", port=9093)]

    def test_at_the_end_it_waits_for_records(self) -> None:
        leader = Leader()
        assert leader.fetch(fetch_request(2, 4, 4, 4)) is None
        waiting = leader.token
        effects = leader.step(e.Proposed(4, batch_of(4, 4, b"a")))
        append = next(at for at, effect in enumerate(effects) if isinstance(effect, e.AppendRecords))
        answer = answer_to(waiting, effects)
        assert isinstance(answer, e.RespondWithRecords)
        assert effects.index(answer) > append

    def test_or_for_the_high_watermark_if_that_is_news(self) -> None:
        """KIP-1166: an idle follower need not wait for the next record to learn what is committed."""
        leader = Leader()
        leader.step(e.Flushed(4))
        assert leader.fetch(fetch_request(7, 4, 4, 4, high_watermark=-1)) is None
        news = leader.token
        assert leader.fetch(fetch_request(8, 4, 4, 4)) is None, "it does not say what it knows"
        patient = leader.token
        leader.token += 1
        effects = leader.step(e.RequestReceived(leader.token, fetch_request(2, 4, 4, 4)))
        answer = answer_to(news, effects)
        assert answer is not None
        assert part_of(answer.message).high_watermark == 4
        assert answer_to(patient, effects) is None
        behind = leader.fetch(fetch_request(9, 4, 4, 4, high_watermark=3))
        assert behind is not None
        assert part_of(behind.message).high_watermark == 4

    def test_or_until_its_time_is_over(self) -> None:
        leader = Leader()
        assert leader.fetch(fetch_request(2, 4, 4, 4, max_wait_ms=300)) is None
        assert leader.quorum.deadline_ms == leader.now_ms + 300
        leader.now_ms += 300
        answer = answer_to(leader.token, leader.step(e.DeadlinePassed()))
        assert answer is not None
        assert part_of(answer.message).error_code == 0
        assert leader.fetch(fetch_request(2, 4, 4, 4, max_wait_ms=0)) is not None

    def test_but_no_longer_than_the_fetch_timeout(self) -> None:
        """Who is not there any more must not take the place of those that are."""
        leader = Leader()
        assert leader.fetch(fetch_request(-1, 4, 4, 4, max_wait_ms=2**31 - 1)) is None
        assert leader.quorum.deadline_ms is not None
        leader.now_ms += 2000
        assert answer_to(leader.token, leader.step(e.DeadlinePassed())) is not None

    def test_or_until_leadership_ends(self) -> None:
        leader = Leader()
        assert leader.fetch(fetch_request(2, 4, 4, 4)) is None
        answer = answer_to(leader.token, leader.step(e.ResignRequested()))
        assert answer is not None
        assert part_of(answer.message).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_a_replica_waits_once(self) -> None:
        leader = Leader()
        assert leader.fetch(fetch_request(2, 4, 4, 4)) is None
        first = leader.token
        leader.token += 1
        effects = leader.step(e.RequestReceived(leader.token, fetch_request(2, 4, 4, 4)))
        assert answer_to(first, effects) is not None
        assert answer_to(leader.token, effects) is None

    def test_nobody_waits_for_a_dropped_one(self) -> None:
        leader = Leader()
        assert leader.fetch(fetch_request(2, 4, 4, 4)) is None
        leader.step(e.RequestDropped(leader.token))
        assert answer_to(leader.token, leader.step(e.Proposed(4, batch_of(4, 4, b"a")))) is None

    @pytest.mark.parametrize(
        ("offset", "last_epoch", "diverging"),
        [
            (5, 4, (4, 4)),  # beyond the end
            (4, 2, (2, 3)),  # more of epoch 2 than there is
            (4, 3, (2, 3)),  # an epoch that is not here
            (2, 1, (1, 0)),  # an epoch before all
        ],
    )
    def test_a_log_that_parts_from_the_leaders_is_told_where(
        self, offset: int, last_epoch: int, diverging: tuple[int, int]
    ) -> None:
        answer = Leader().fetch(fetch_request(2, 4, offset, last_epoch))
        assert isinstance(answer, e.Respond)
        found = part_of(answer.message).diverging_epoch
        assert found is not None
        assert (found.epoch, found.end_offset) == diverging

    @pytest.mark.parametrize(("epoch", "error"), [(3, ErrorCode.FENCED_LEADER_EPOCH), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)])
    def test_another_epoch(self, epoch: int, error: ErrorCode) -> None:
        answer = Leader().fetch(fetch_request(2, epoch, 3, 2))
        assert answer is not None
        partition = part_of(answer.message)
        assert partition.error_code == error
        assert partition.current_leader == fetch.LeaderIdAndEpoch(leader_id=1, leader_epoch=4)

    @pytest.mark.parametrize("request_", [fetch_request(2, 4, -1, 2), fetch_request(2, 4, 3, -1), fetch_request(2, 4, 3, 5)])
    def test_nonsense(self, request_: fetch.FetchRequest) -> None:
        answer = Leader().fetch(request_)
        assert answer is not None
        assert part_of(answer.message).error_code == ErrorCode.INVALID_REQUEST

    def test_another_cluster_another_topic(self) -> None:
        leader = Leader()
        request = fetch_request(2, 4, 3, 2)
        request.cluster_id = "other"
        answer = leader.fetch(request)
        assert answer is not None
        assert answer.message.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID  # type: ignore[attr-defined]
        request = fetch_request(2, 4, 3, 2)
        request.topics[0].topic_id = ZERO_UUID
        answer = leader.fetch(request)
        assert answer is not None
        assert answer.message.error_code == ErrorCode.INVALID_REQUEST  # type: ignore[attr-defined]

    def test_a_follower_names_the_leader(self) -> None:
        cluster = Cluster([1, 2, 3])
        cluster.start()
        leader = cluster.elect()
        cluster.run(100)
        other = next(id_ for id_ in (1, 2, 3) if id_ != leader)
        answers = cluster.ask(other, fetch_request(9, cluster[leader].epoch, 0, 0))
        partition = part_of(answers[0])
        assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.current_leader is not None
        assert partition.current_leader.leader_id == leader


def test_an_idle_leader_is_not_given_up_whatever_the_timeouts() -> None:
    cluster = Cluster([1, 2, 3], fetch_timeout_ms=200, request_timeout_ms=150)
    cluster.start()
    leader = cluster.elect()
    epoch = cluster[leader].epoch
    cluster.run(10_000)
    assert (cluster.leader(), cluster[leader].epoch) == (leader, epoch)
    assert "succeeded in time" not in cluster.transcript()


def test_replicas_of_a_busy_quorum_agree() -> None:
    cluster = Cluster([1, 2, 3], observers=[9])
    cluster.start()
    cluster.elect()
    for number in range(100):
        cluster.propose(b"%d" % number)
        cluster.run(1)
    cluster.run(20)
    expected = [b"%d" % number for number in range(100)]
    assert [cluster.replicas[id_].disk.values() for id_ in (1, 2, 3, 9)] == [expected] * 4
    assert {cluster[id_].high_watermark for id_ in (1, 2, 3, 9)} == {101}
