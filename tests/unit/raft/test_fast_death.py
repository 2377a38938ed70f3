"""A leader whose process dies is replaced at once; one whose connections only flap is not."""

from __future__ import annotations

import pytest
from support.quorum_cluster import Cluster

from pybroker.raft import events as e
from pybroker.raft.state import Role


def running(*ids: int, **options: object) -> tuple[Cluster, int]:
    cluster = Cluster(ids or (1, 2, 3), **options)  # type: ignore[arg-type]
    cluster.start()
    leader = cluster.elect()
    cluster.run(1000)
    return cluster, leader


@pytest.mark.parametrize("seed", range(10))
def test_a_dead_leader_is_replaced_within_its_grace(seed: int) -> None:
    cluster, leader = running(seed=seed)
    cluster.crash(leader)
    died_ms = cluster.now_ms
    assert cluster.elect() != leader
    assert 150 <= cluster.now_ms - died_ms <= 320


@pytest.mark.parametrize("seed", range(5))
def test_in_a_quorum_of_five_too(seed: int) -> None:
    cluster, leader = running(1, 2, 3, 4, 5, seed=seed)
    cluster.crash(leader)
    died_ms = cluster.now_ms
    cluster.elect()
    assert cluster.now_ms - died_ms <= 1000


@pytest.mark.parametrize("seed", range(20))
def test_survivors_that_split_their_votes_try_again_at_once(seed: int) -> None:
    """With so short a grace both stand at the same time now and then; the dead one's vote is not waited for."""
    cluster, leader = running(seed=seed, death_grace_ms=4)
    cluster.crash(leader)
    died_ms = cluster.now_ms
    cluster.elect()
    assert cluster.now_ms - died_ms <= 500


def test_without_the_grace_the_fetch_timeout_is_waited_for() -> None:
    cluster, leader = running(death_grace_ms=0)
    cluster.crash(leader)
    died_ms = cluster.now_ms
    cluster.elect()
    assert cluster.now_ms - died_ms >= 1500


def test_connections_that_flap_change_nothing() -> None:
    """Everyone loses the leader's connections again and again, and has them back before the grace is over."""
    cluster, leader = running()
    epoch = cluster[leader].epoch
    for _ in range(50):
        for id_ in (1, 2, 3):
            if id_ != leader:
                cluster.disconnect(id_, leader)
        cluster.run(250)
    cluster.run(1000)
    assert cluster.leader() == leader
    assert [cluster[id_].epoch for id_ in (1, 2, 3)] == [epoch] * 3
    assert "seems dead" not in cluster.transcript(), "a fetch was answered within each grace"


def test_one_follower_that_cannot_reach_the_leader_does_not_disturb() -> None:
    cluster, leader = running()
    epoch = cluster[leader].epoch
    lonely, friend = (id_ for id_ in (1, 2, 3) if id_ != leader)
    cluster.cut |= {(lonely, leader), (leader, lonely)}
    for _ in range(100):
        cluster.step(lonely, e.NodeLost(leader))
        cluster.run(100)
    assert cluster.transcript().count(f"{lonely}: leader {leader} seems dead") > 5
    assert cluster[leader].is_leader
    assert [cluster[id_].epoch for id_ in (leader, friend)] == [epoch] * 2
    cluster.heal()
    cluster.run(5000)
    assert cluster[lonely].role is Role.FOLLOWER
    assert cluster[lonely].epoch == epoch


def test_a_pre_vote_that_cannot_win_does_not_put_off_the_fetch_timeout() -> None:
    """Its peer is slow to notice: the lonely prospective goes back to its leader, whose time has gone on meanwhile."""
    cluster, leader = running(fetch_timeout_ms=1000)
    follower, _ = (id_ for id_ in (1, 2, 3) if id_ != leader)
    cluster.partition(follower)
    lost_ms = cluster.now_ms
    cluster.step(follower, e.NodeLost(leader))
    assert cluster.run_until(lambda: "no fetch from leader" in cluster.transcript().split("seems dead")[-1], 5000)
    assert cluster.now_ms - lost_ms <= 1000


def test_only_the_leaders_death_matters_and_only_to_voters() -> None:
    cluster = Cluster([1, 2, 3], observers=[9])
    cluster.start()
    leader = cluster.elect()
    cluster.run(1000)
    follower, other = (id_ for id_ in (1, 2, 3) if id_ != leader)
    cluster.step(follower, e.NodeLost(other))
    cluster.step(9, e.NodeLost(leader))
    cluster.step(leader, e.NodeLost(other))
    cluster.run(400)
    assert "seems dead" not in cluster.transcript()
    assert cluster[9].role is Role.FOLLOWER
