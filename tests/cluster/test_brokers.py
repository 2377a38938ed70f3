"""Brokers of real processes join, die, leave and come back, and the controllers notice."""

from __future__ import annotations

import time
from pathlib import Path

from cluster.processes import BROKER, COMBINED, CONTROLLER, Cluster, Member, cluster
from support.waiting import wait_until

from pybroker.protocol.messages.metadata import DescribeClusterRequest

WAIT_S = 30.0
ROLES = {1: CONTROLLER, 11: BROKER, 12: BROKER}


def alive_at(member: Member) -> set[int]:
    """The brokers that are not fenced, as that one knows."""
    with member.client() as client:
        answer = client.ask(DescribeClusterRequest(include_cluster_authorized_operations=False))
        return {broker.broker_id for broker in answer.brokers}


def wait_alive(nodes: Cluster, expected: set[int]) -> float:
    """How many seconds it took until broker 11 knows of just these."""
    began = time.monotonic()
    wait_until(lambda: alive_at(nodes[11]) == expected, WAIT_S, lambda: f"{alive_at(nodes[11])}\n{nodes[1].said}")
    return time.monotonic() - began


def test_a_broker_that_is_killed_is_fenced_long_before_its_session_ends(tmp_path: Path) -> None:
    with cluster(tmp_path, ROLES, {"broker.session.timeout.ms": "60000"}) as nodes:
        nodes.start()
        wait_alive(nodes, {11, 12})
        took_s = []
        for _ in range(5):
            nodes[12].kill()
            took_s.append(wait_alive(nodes, {11}))
            nodes[12].start()
            nodes[12].wait_ready()
            wait_alive(nodes, {11, 12})
        print(f"fenced after {sorted(took_s)[2] * 1000:.0f} ms in the median, {max(took_s) * 1000:.0f} ms at most")
        assert sorted(took_s)[2] < 5


def test_a_node_that_was_broker_and_active_controller_is_fenced_soon_after_the_next_controller_took_over(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path, dict.fromkeys((1, 2, 3), COMBINED), {"broker.session.timeout.ms": "60000"}) as nodes:
        nodes.start()
        leader = nodes.leader()
        others = [node for node in nodes.brokers if node is not leader]
        left = {node.id for node in others}
        wait_until(lambda: alive_at(others[0]) == {1, 2, 3}, WAIT_S, lambda: f"{alive_at(others[0])}")
        began = time.monotonic()
        leader.kill()
        wait_until(lambda: alive_at(others[0]) == left, WAIT_S, lambda: f"{alive_at(others[0])}\n{others[0].said}")
        print(f"the node of the controller was fenced after {(time.monotonic() - began) * 1000:.0f} ms")


def test_without_fast_detection_the_session_counts(tmp_path: Path) -> None:
    properties = {"broker.session.timeout.ms": "3000", "pybroker.broker.death.grace.ms": "0"}
    with cluster(tmp_path, ROLES, properties) as nodes:
        nodes.start()
        wait_alive(nodes, {11, 12})
        nodes[12].kill()
        # Its last heartbeat was up to 2 s ago.
        assert wait_alive(nodes, {11}) > 0.5


def test_a_broker_that_hangs_is_fenced_with_its_session_and_comes_back_by_itself(tmp_path: Path) -> None:
    with cluster(tmp_path, ROLES, {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}) as nodes:
        nodes.start()
        wait_alive(nodes, {11, 12})
        nodes[12].pause()
        wait_alive(nodes, {11})
        nodes[12].resume()
        wait_alive(nodes, {11, 12})


def test_a_broker_that_is_stopped_leaves_at_once_and_a_controller_that_is_restarted_finds_all_again(tmp_path: Path) -> None:
    with cluster(tmp_path, ROLES) as nodes:
        nodes.start()
        wait_alive(nodes, {11, 12})
        assert nodes[12].stop() == 0
        assert alive_at(nodes[11]) == {11}
        nodes[12].start()
        nodes[12].wait_ready()
        nodes[1].kill()
        nodes[1].start()
        nodes[1].wait_ready()
        wait_alive(nodes, {11, 12})
        with nodes[12].client() as client:
            client.create_topic("t")


def test_a_node_with_both_roles_that_is_restarted_at_once_is_back_long_before_its_session_ends(tmp_path: Path) -> None:
    """As a supervisor does it. Its own new connections do not vouch for the process that died."""
    with cluster(tmp_path, dict.fromkeys((1, 2, 3), COMBINED), {"broker.session.timeout.ms": "60000"}) as nodes:
        nodes.start()
        leader = nodes.leader()
        began = time.monotonic()
        leader.kill()
        leader.start()
        leader.wait_ready()
        print(f"back after {(time.monotonic() - began) * 1000:.0f} ms")
        wait_until(lambda: alive_at(leader) == {1, 2, 3}, WAIT_S, lambda: f"{alive_at(leader)}\n{leader.said}")
