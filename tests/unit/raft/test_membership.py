"""Voters that come and go (KIP-853), and the way there from fixed ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from support.quorum_cluster import LISTENER, Cluster, Disk, address_of, control_rows, directory_of, key_of

from pybroker.base.ids import ZERO_UUID
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages import raft
from pybroker.raft import events as e
from pybroker.raft.quorum import Quorum
from pybroker.raft.setting import METADATA_TOPIC
from pybroker.raft.state import Role


def add(id_: int, *, disk: int = 0, ack_when_committed: bool = True, timeout_ms: int = 1000) -> raft.AddRaftVoterRequest:
    listener = raft.AddRaftVoterRequestListener(name=LISTENER, host=f"host{id_}", port=9093)
    return raft.AddRaftVoterRequest(
        cluster_id="cluster",
        timeout_ms=timeout_ms,
        voter_id=id_,
        voter_directory_id=directory_of(id_, disk),
        listeners=[listener],
        ack_when_committed=ack_when_committed,
    )


def remove(id_: int, *, disk: int = 0) -> raft.RemoveRaftVoterRequest:
    return raft.RemoveRaftVoterRequest(cluster_id="cluster", voter_id=id_, voter_directory_id=directory_of(id_, disk))


def update(id_: int, epoch: int, *, disk: int = 0) -> raft.UpdateRaftVoterRequest:
    return raft.UpdateRaftVoterRequest(
        cluster_id="cluster",
        current_leader_epoch=epoch,
        voter_id=id_,
        voter_directory_id=directory_of(id_, disk),
        listeners=[raft.UpdateRaftVoterRequestListener(name=LISTENER, host="elsewhere", port=1)],
        k_raft_version_feature=raft.KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
    )


def error_of(answers: list[Message]) -> int:
    assert len(answers) == 1, answers
    return int(answers[0].error_code)  # type: ignore[attr-defined]


def voters_of(cluster: Cluster, *ids: int) -> list[list[int]]:
    return [sorted(cluster[id_].voters.by_id) for id_ in ids]


def standalone(*controllers: int, **options: object) -> Cluster:
    """One voter, formatted as such, with other controllers that watch it."""
    cluster = Cluster(dynamic=[1], controllers=controllers, **options)  # type: ignore[arg-type]
    cluster.start()
    cluster.run(100)
    assert cluster.leader() == 1
    return cluster


def three() -> tuple[Cluster, int]:
    cluster = Cluster(dynamic=[1, 2, 3], controllers=[4])
    cluster.start()
    leader = cluster.elect()
    cluster.run(100)
    return cluster, leader


def kinds(disk: Disk) -> list[str]:
    return [kind.name for batch in disk.batches for kind, _, _ in control_rows(batch) if kind is not None]


def test_the_first_leader_writes_what_the_formatting_said() -> None:
    cluster = standalone()
    assert kinds(cluster.replicas[1].disk) == ["LEADER_CHANGE", "KRAFT_VERSION", "KRAFT_VOTERS"]
    assert cluster[1].kraft_version == 1
    cluster.crash(1)
    cluster.start(1)
    cluster.run(100)
    assert kinds(cluster.replicas[1].disk)[3:] == ["LEADER_CHANGE"], "once is enough"


def test_a_quorum_grows_one_by_one_and_shrinks_again() -> None:
    cluster = standalone(2, 3)
    for id_ in (2, 3):
        answers = cluster.ask(1, add(id_))
        cluster.run(100)
        assert error_of(answers) == ErrorCode.NONE
    assert voters_of(cluster, 1, 2, 3) == [[1, 2, 3]] * 3
    cluster.crash(3)
    cluster.propose_to(1, b"two of three")
    cluster.run(100)
    assert cluster.replicas[2].disk.values() == [b"two of three"]
    answers = cluster.ask(1, remove(3))
    cluster.run(100)
    assert error_of(answers) == ErrorCode.NONE
    assert voters_of(cluster, 1, 2) == [[1, 2]] * 2
    voter = cluster[2].voters.by_id[2]
    assert (voter.key, voter.endpoints, voter.min_version, voter.max_version) == (
        key_of(2),
        ((LISTENER, address_of(2)),),
        0,
        1,
    )


def test_a_leader_that_was_alone_for_long_does_not_resign_when_it_gets_company() -> None:
    """It has heard of no other voter for longer than a leader may, but then there was none."""
    cluster = standalone(2)
    cluster.run(60_000)
    answers = cluster.ask(1, add(2))
    cluster.run(100)
    assert error_of(answers) == ErrorCode.NONE
    assert cluster.leader() == 1
    assert cluster[1].epoch == 1
    # From now on it needs the other one.
    cluster.crash(2)
    cluster.run(5000)
    assert not cluster[1].is_leader


def test_a_leader_that_removes_itself_resigns_when_that_is_committed() -> None:
    cluster, leader = three()
    answers = cluster.ask(leader, remove(leader))
    assert cluster[leader].is_leader
    assert answers == []
    cluster.run(5)
    assert error_of(answers) == ErrorCode.NONE
    assert not cluster[leader].is_leader
    new = cluster.elect(within_ms=100)
    assert new != leader
    cluster.run(10_000)
    assert cluster.leader() == new
    assert cluster[leader].role is Role.FOLLOWER
    assert leader not in cluster[leader].voters.by_id


def test_a_change_counts_at_once_and_goes_with_its_record() -> None:
    cluster, leader = three()
    others = [id_ for id_ in (1, 2, 3) if id_ != leader]
    cluster.partition(leader)
    cluster.ask(leader, remove(others[0]))
    assert voters_of(cluster, leader) == [sorted([leader, others[1]])]
    assert cluster.run_until(lambda: cluster.leader() in others)
    cluster.heal()
    cluster.run(5000)
    assert "truncates to" in cluster.transcript()
    assert voters_of(cluster, 1, 2, 3) == [[1, 2, 3]] * 3


def test_who_was_to_be_removed_leads_again_if_only_it_has_the_record() -> None:
    """Of two voters the leader removes itself and crashes before the other has the record. The other cannot win against the
    longer log, so the removed one must lead once more, and finish its removal."""
    cluster = Cluster(dynamic=[1, 2])
    cluster.start()
    leader = cluster.elect()
    cluster.run(100)
    other = 3 - leader
    cluster.partition(leader)
    cluster.ask(leader, remove(leader))
    cluster.run(5)
    cluster.crash(leader)
    cluster.heal()
    cluster.start(leader)
    assert voters_of(cluster, leader, other) == [[other], [1, 2]]
    assert cluster.run_until(lambda: cluster.leader() == other and voters_of(cluster, other) == [[other]])
    cluster.run(5000)
    assert cluster.leader() == other
    assert cluster[leader].leader_id == other


class TestAdding:
    @pytest.mark.parametrize(
        ("spoil", "error"),
        [
            (lambda r: setattr(r, "cluster_id", "other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
            (lambda r: setattr(r, "voter_id", -1), ErrorCode.INVALID_REQUEST),
            (lambda r: setattr(r, "voter_directory_id", ZERO_UUID), ErrorCode.INVALID_REQUEST),
            (lambda r: setattr(r.listeners[0], "name", "OTHER"), ErrorCode.INVALID_REQUEST),
            (lambda r: setattr(r, "voter_id", 1), ErrorCode.DUPLICATE_VOTER),
        ],
    )
    def test_refusals(self, spoil: Callable[[raft.AddRaftVoterRequest], None], error: ErrorCode) -> None:
        request = add(2)
        spoil(request)
        assert error_of(standalone(2).ask(1, request)) == error

    def test_by_the_leader_only(self) -> None:
        assert error_of(standalone(2).ask(2, add(2))) == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_one_at_a_time(self) -> None:
        cluster = standalone(2, 3)
        first, second = cluster.ask(1, add(2)), cluster.ask(1, add(3))
        assert error_of(second) == ErrorCode.REQUEST_TIMED_OUT
        assert error_of(cluster.ask(1, remove(1))) == ErrorCode.REQUEST_TIMED_OUT
        cluster.run(100)
        assert error_of(first) == ErrorCode.NONE

    def test_not_before_the_epoch_has_committed_something(self) -> None:
        cluster = Cluster(dynamic=[1], controllers=[2])
        cluster.replicas[1].flushes = False
        cluster.start()
        cluster.run(100)
        assert error_of(cluster.ask(1, add(2))) == ErrorCode.REQUEST_TIMED_OUT

    def test_not_while_voters_are_fixed(self) -> None:
        cluster = Cluster([1], controllers=[2])
        cluster.start()
        cluster.run(100)
        assert error_of(cluster.ask(1, add(2))) == ErrorCode.UNSUPPORTED_VERSION
        assert error_of(cluster.ask(1, remove(1))) == ErrorCode.UNSUPPORTED_VERSION

    def test_a_stranger_that_has_never_fetched(self) -> None:
        cluster = standalone(2)
        cluster.crash(2)
        answers = cluster.ask(1, add(2))
        cluster.run(100)
        assert error_of(answers) == ErrorCode.REQUEST_TIMED_OUT
        assert "did not say what it supports" in answers[0].error_message  # type: ignore[attr-defined]
        answers = cluster.ask(1, add(2, disk=5))
        cluster.start(2)
        cluster.run(100)
        assert error_of(answers) == ErrorCode.REQUEST_TIMED_OUT
        assert "has not caught up" in answers[0].error_message  # type: ignore[attr-defined]

    def test_one_that_does_not_understand_the_version(self) -> None:
        cluster = standalone(2)
        cluster.replicas[2].kraft_versions = (0, 0)
        answers = cluster.ask(1, add(2))
        cluster.run(100)
        assert error_of(answers) == ErrorCode.INVALID_REQUEST
        assert voters_of(cluster, 1) == [[1]]

    @pytest.mark.parametrize("timeout_ms", [300, 1500])
    def test_one_that_then_does_not_follow_is_answered_when_the_time_of_the_request_is_over(self, timeout_ms: int) -> None:
        cluster = standalone(2)
        answers = cluster.ask(1, add(2, timeout_ms=timeout_ms))
        cluster.run_until(lambda: len(cluster[1].voters) == 2, 100)
        cluster.partition(2)
        cluster.run(timeout_ms - 150)
        assert not answers
        cluster.run(200)
        assert error_of(answers) == ErrorCode.REQUEST_TIMED_OUT
        assert error_of(cluster.ask(1, remove(2))) == ErrorCode.REQUEST_TIMED_OUT, "the voters are not committed"

    def test_it_need_not_be_waited_for(self) -> None:
        cluster = standalone(2)
        answers = cluster.ask(1, add(2, ack_when_committed=False))
        cluster.run_until(lambda: len(answers) > 0, 100)
        assert error_of(answers) == ErrorCode.NONE
        assert cluster[1].voters.by_id.keys() == {1, 2}
        assert cluster[1].high_watermark == 3, "the record at 3 is not committed"
        cluster.run(100)
        assert len(answers) == 1

    def test_leadership_that_ends_meanwhile_is_told(self) -> None:
        cluster = standalone(2)
        answers = cluster.ask(1, add(2))
        cluster.step(1, e.ResignRequested())
        assert error_of(answers) == ErrorCode.NOT_LEADER_OR_FOLLOWER


class TestRemoving:
    def test_refusals(self) -> None:
        cluster, leader = three()
        request = remove(1)
        request.cluster_id = "other"
        assert error_of(cluster.ask(leader, request)) == ErrorCode.INCONSISTENT_CLUSTER_ID
        assert error_of(cluster.ask(leader, remove(4))) == ErrorCode.VOTER_NOT_FOUND
        assert error_of(cluster.ask(leader, remove(1, disk=3))) == ErrorCode.VOTER_NOT_FOUND
        request = remove(1)
        request.voter_directory_id = ZERO_UUID
        assert error_of(cluster.ask(leader, request)) == ErrorCode.INVALID_REQUEST
        other = next(id_ for id_ in (1, 2, 3) if id_ != leader)
        assert error_of(cluster.ask(other, remove(1))) == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_the_last_voter_stays(self) -> None:
        assert error_of(standalone().ask(1, remove(1))) == ErrorCode.VOTER_NOT_FOUND


class TestUpdating:
    def test_a_voter_with_new_addresses_says_so_by_itself(self) -> None:
        cluster, leader = three()
        mover = next(id_ for id_ in (1, 2, 3) if id_ != leader)
        cluster.crash(mover)
        moved = cluster.replicas[mover]
        moved.setting = replace(moved.setting, endpoints={LISTENER: address_of(mover), "EXTRA": e.Address("more", 1)})
        cluster.start(mover)
        cluster.run(5000)
        for id_ in (1, 2, 3):
            assert dict(cluster[id_].voters.by_id[mover].endpoints)["EXTRA"] == e.Address("more", 1)

    @pytest.mark.parametrize(
        ("spoil", "error"),
        [
            (lambda r: setattr(r, "cluster_id", "other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
            (lambda r: setattr(r, "current_leader_epoch", 0), ErrorCode.FENCED_LEADER_EPOCH),
            (lambda r: setattr(r, "current_leader_epoch", 9), ErrorCode.UNKNOWN_LEADER_EPOCH),
            (lambda r: setattr(r, "voter_directory_id", ZERO_UUID), ErrorCode.INVALID_REQUEST),
            (lambda r: setattr(r, "voter_directory_id", directory_of(7)), ErrorCode.VOTER_NOT_FOUND),
            (lambda r: setattr(r, "voter_id", 7), ErrorCode.VOTER_NOT_FOUND),
            (lambda r: setattr(r.listeners[0], "name", "OTHER"), ErrorCode.INVALID_REQUEST),
            (lambda r: setattr(r.k_raft_version_feature, "max_supported_version", 0), ErrorCode.INVALID_REQUEST),
            (lambda r: setattr(r.k_raft_version_feature, "max_supported_version", -1), ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_refusals(self, spoil: Callable[[raft.UpdateRaftVoterRequest], None], error: ErrorCode) -> None:
        cluster = standalone()
        request = update(1, cluster[1].epoch)
        spoil(request)
        answers = cluster.ask(1, request)
        assert error_of(answers) == error
        current = answers[0].current_leader  # type: ignore[attr-defined]
        assert (current.leader_id, current.leader_epoch, current.host, current.port) == (1, 1, "host1", 9093)


class TestJoining:
    def test_a_controller_joins_by_itself(self) -> None:
        cluster = standalone(2, 3, auto_join=True)
        cluster.run(10_000)
        assert voters_of(cluster, 1, 2, 3) == [[1, 2, 3]] * 3

    def test_a_controller_with_a_new_disk_replaces_itself(self) -> None:
        cluster, leader = three()
        wiped = next(id_ for id_ in (1, 2, 3) if id_ != leader)
        cluster.crash(wiped)
        cluster.add(wiped, disk=1, auto_join=True)
        cluster.start(wiped)
        cluster.run(15_000)
        assert cluster[leader].voters.by_id[wiped].key == key_of(wiped, disk=1)
        assert cluster[wiped].is_voter

    def test_a_broker_never_does(self) -> None:
        cluster = Cluster(dynamic=[1], observers=[9], auto_join=True)
        cluster.start()
        cluster.run(10_000)
        assert voters_of(cluster, 1) == [[1]]


def test_a_leader_known_by_name_only_is_found_again() -> None:
    """A new controller remembers who led, but crashed before it had the records that say where: it asks around."""
    cluster = Cluster(dynamic=[1], controllers=[2])
    cluster.replicas[2].flushes = False
    cluster.start()
    cluster.run(100)
    cluster.crash(2)
    assert cluster.replicas[2].disk.election == e.ElectionState(1, 1)
    assert cluster.replicas[2].disk.end_offset == 0
    cluster.replicas[2].flushes = True
    cluster.start(2)
    cluster.run(100)
    assert cluster[2].role is Role.FOLLOWER
    assert cluster[2].high_watermark == cluster[1].high_watermark


def test_a_leader_that_lost_its_disk_is_another_replica() -> None:
    cluster = Cluster(dynamic=[1, 2, 3], death_grace_ms=0)
    cluster.start()
    leader = cluster.elect()
    cluster.run(100)
    cluster.crash(leader)
    cluster.add(leader, disk=1)
    cluster.start(leader)
    cluster.run(200)
    assert cluster[leader].epoch == 1, "the others still say that it leads"
    assert not cluster[leader].is_leader
    new = cluster.elect()
    assert new != leader
    cluster.run(1000)
    assert cluster[leader].leader_id == new
    assert not cluster[leader].is_voter


class TestUpgrade:
    def fixed(self) -> tuple[Cluster, int]:
        cluster = Cluster([1, 2, 3])
        cluster.start()
        leader = cluster.elect()
        cluster.run(100)
        return cluster, leader

    def test_from_fixed_voters_to_voters_in_the_log(self) -> None:
        cluster, leader = self.fixed()
        refusal = cluster[leader].refuses_upgrade(1)
        assert refusal is not None
        assert refusal.error == ErrorCode.INVALID_UPDATE_VERSION
        assert "directory of voter" in (refusal.message or "")
        cluster.run(3000)
        assert cluster[leader].refuses_upgrade(1) is None
        cluster.step(leader, e.KRaftVersionProposed(1))
        cluster.run(100)
        for id_ in (1, 2, 3):
            assert cluster[id_].kraft_version == 1
            assert [voter.key for voter in cluster[id_].voters] == [key_of(1), key_of(2), key_of(3)]
        answers = cluster.ask(leader, remove(next(id_ for id_ in (1, 2, 3) if id_ != leader)))
        cluster.run(100)
        assert error_of(answers) == ErrorCode.NONE

    def test_addresses_that_are_known_only_when_the_listeners_are_bound(self) -> None:
        """A process opens its log before it binds them: the voters that it writes have them all the same."""
        cluster = Cluster([1])
        replica, bound = cluster.replicas[1], dict[str, e.Address]()
        replica.setting = replace(replica.setting, endpoints=bound)
        replica.quorum = Quorum(replica.setting, replica.disk.recovered(), draw_below=lambda limit: 0)
        bound[LISTENER] = address_of(1)
        cluster.step(1, e.Started())
        cluster.run(100)
        cluster.step(1, e.KRaftVersionProposed(1))
        cluster.run(100)
        assert cluster[1].kraft_version == 1
        assert dict(cluster[1].voters.by_id[1].endpoints) == bound

    def test_not_to_what_is_unknown_and_not_back(self) -> None:
        cluster, leader = self.fixed()
        for version in (2, -1):
            refusal = cluster[leader].refuses_upgrade(version)
            assert refusal is not None
            assert refusal.error == ErrorCode.INVALID_UPDATE_VERSION
        other = next(id_ for id_ in (1, 2, 3) if id_ != leader)
        refusal = cluster[other].refuses_upgrade(1)
        assert refusal is not None
        assert refusal.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
        end = cluster[leader].log_end_offset
        cluster.step(leader, e.KRaftVersionProposed(2))
        assert cluster[leader].log_end_offset == end


class TestDescribe:
    def request(self, topic: str = METADATA_TOPIC, partition: int = 0) -> raft.DescribeQuorumRequest:
        data = raft.DescribeQuorumRequestPartitionData(partition_index=partition)
        return raft.DescribeQuorumRequest(topics=[raft.DescribeQuorumRequestTopicData(topic_name=topic, partitions=[data])])

    def partition(self, answers: list[Message]) -> raft.DescribeQuorumResponsePartitionData:
        assert len(answers) == 1
        answer = answers[0]
        assert isinstance(answer, raft.DescribeQuorumResponse)
        assert answer.error_code == 0
        return answer.topics[0].partitions[0]

    def test_the_leader_knows_how_far_everybody_is(self) -> None:
        cluster, leader = three()
        cluster.add(9, can_vote=False)
        cluster.start(9)
        end = cluster.propose(b"x")
        cluster.run(100)
        answers = cluster.ask(leader, self.request())
        found = self.partition(answers)
        assert (found.leader_id, found.leader_epoch, found.high_watermark) == (leader, cluster[leader].epoch, end)
        assert {(r.replica_id, r.replica_directory_id) for r in found.current_voters} == {key_of(i) for i in (1, 2, 3)}
        assert {r.replica_id for r in found.observers} == {4, 9}
        assert {r.log_end_offset for r in [*found.current_voters, *found.observers]} == {end}
        for replica in [*found.current_voters, *found.observers]:
            assert cluster.now_ms - 600 <= replica.last_caught_up_timestamp <= cluster.now_ms
            assert cluster.now_ms - 600 <= replica.last_fetch_timestamp <= cluster.now_ms
        nodes = answers[0].nodes  # type: ignore[attr-defined]
        assert [(node.node_id, node.listeners[0].host) for node in nodes] == [(1, "host1"), (2, "host2"), (3, "host3")]

    def test_others_name_the_leader(self) -> None:
        cluster, leader = three()
        other = next(id_ for id_ in (1, 2, 3) if id_ != leader)
        found = self.partition(cluster.ask(other, self.request()))
        assert (found.error_code, found.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, leader)

    def test_there_is_one_partition(self) -> None:
        cluster, leader = three()
        for request in (self.request("other"), self.request(partition=1)):
            found = self.partition(cluster.ask(leader, request))
            assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_an_observer_that_is_silent_is_forgotten(self) -> None:
        cluster, leader = three()
        cluster.crash(4)
        cluster.run(300_000)
        assert self.partition(cluster.ask(leader, self.request())).observers == []


class TestObservers:
    def test_they_find_the_leader_and_the_next_one(self) -> None:
        cluster = Cluster([1, 2, 3], observers=[8, 9])
        cluster.start()
        leader = cluster.elect()
        cluster.run(100)
        assert [cluster[id_].leader_id for id_ in (8, 9)] == [leader] * 2
        cluster.crash(leader)
        new = cluster.elect()
        cluster.propose(b"x")
        cluster.run(200)
        assert [cluster[id_].leader_id for id_ in (8, 9)] == [new] * 2
        assert [cluster.replicas[id_].disk.values() for id_ in (8, 9)] == [[b"x"]] * 2

    def test_they_never_stand(self) -> None:
        cluster = Cluster([1, 2, 3], observers=[9])
        cluster.start()
        leader = cluster.elect()
        cluster.run(100)
        epoch = cluster[leader].epoch
        for id_ in (1, 2, 3):
            cluster.crash(id_)
        cluster.run(60_000)
        assert cluster[9].role is Role.FOLLOWER
        assert cluster[9].epoch == epoch
