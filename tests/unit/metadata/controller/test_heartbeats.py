"""Sessions, fast death detection, and what a flapping connection costs."""

from __future__ import annotations

import pytest
from unit.metadata.clusters import TestCluster
from unit.metadata.controller.test_brokers import registration

from pybroker.metadata.controller.controller import Controller
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.metadata_log import BrokerRegistrationChangeRecord
from pybroker.protocol.message import Message

SESSION_MS = 9000
GRACE_MS = 300
LOCAL = "pybroker_broker_death_grace_ms"


def cluster_of(*brokers: int, **changes: str) -> TestCluster:
    cluster = TestCluster(brokers, **changes)
    cluster.assign("t", [*brokers])
    for broker_id in brokers:
        cluster.controller.broker_connection_made(0, broker_id)
    cluster.heartbeat(*brokers)
    return cluster


def lose(cluster: TestCluster, *brokers: int) -> None:
    for broker_id in brokers:
        cluster.controller.broker_connection_lost(cluster.now_ms, broker_id)


def find(cluster: TestCluster, *brokers: int) -> None:
    for broker_id in brokers:
        cluster.controller.broker_connection_made(cluster.now_ms, broker_id)


def fencings(records: list[Message]) -> list[int]:
    return [one.broker_id for one in records if isinstance(one, BrokerRegistrationChangeRecord) and one.fenced == 1]


def test_a_broker_that_is_not_heard_of_is_fenced_when_its_session_has_passed() -> None:
    cluster = cluster_of(1, 2, 3)
    assert cluster.pass_time(SESSION_MS, 2, 3) == []
    assert cluster.controller.deadline_ms == SESSION_MS + 1
    assert fencings(cluster.pass_time(1, 2, 3)) == [1]
    assert cluster.partition("t").leader == 2


def test_too_early_nothing_happens() -> None:
    cluster = cluster_of(1, 2)
    assert cluster.controller.tick(SESSION_MS) is None


def succeed(cluster: TestCluster) -> None:
    """Another controller takes over, and has heard of nobody."""
    cluster.now_ms = 1_000_000
    old = cluster.controller._setting
    cluster.controller = Controller(
        old.config, old.cluster_id, new_uuid=old.new_uuid, draw_below=lambda _: 0, image=cluster.image
    )
    cluster.controller.start(cluster.now_ms)


def test_a_broker_that_died_with_the_old_controller_is_fenced_soon_after_the_others_found_the_new_one() -> None:
    cluster = cluster_of(1, 2, 3)
    succeed(cluster)
    assert cluster.pass_time(100, 2) == []
    find(cluster, 3)
    assert cluster.pass_time(4 * GRACE_MS - 1, 2, 3) == []
    assert fencings(cluster.pass_time(1, 2, 3)) == [1]


def test_a_process_that_died_with_the_old_controller_and_is_back_at_once_need_not_wait_for_its_own_session() -> None:
    cluster = cluster_of(1, 2, 3)
    succeed(cluster)
    assert cluster.pass_time(100, 2, 3) == []
    assert cluster.ask(registration(1, "the next process")).error_code == ErrorCode.NONE


def test_a_second_process_with_the_id_of_one_that_was_heard_of_waits() -> None:
    cluster = cluster_of(1, 2, 3)
    succeed(cluster)
    assert cluster.pass_time(100, 1, 2, 3) == []
    answer = cluster.ask(registration(1, "a second process"))
    assert answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_new_controller_without_fast_detection_waits_for_the_session() -> None:
    cluster = cluster_of(1, 2, **{LOCAL: "0"})
    succeed(cluster)
    assert cluster.pass_time(SESSION_MS, 2) == []
    assert fencings(cluster.pass_time(1, 2)) == [1]


def test_a_new_leadership_gives_every_broker_a_full_session() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.heartbeat(3, want_fence=True)
    succeed(cluster)
    assert cluster.controller.deadline_ms == 1_000_000 + SESSION_MS + 1
    assert fencings(cluster.pass_time(SESSION_MS + 1, 2)) == [1]


def test_brokers_that_die_together_do_not_inherit_from_each_other() -> None:
    """One after the other, broker 2 would get what broker 1 led, for nothing."""
    cluster = cluster_of(1, 2, 3)
    assert fencings(cluster.pass_time(SESSION_MS + 1, 3)) == [1, 2]
    assert (cluster.partition("t").leader, cluster.partition("t").leader_epoch) == (3, 1)
    assert cluster.partition("t").isr == (3,)


def test_a_dead_process_is_fenced_without_waiting_for_its_session() -> None:
    cluster = cluster_of(1, 2, 3)
    lose(cluster, 1)
    assert cluster.controller.deadline_ms == GRACE_MS
    assert fencings(cluster.pass_time(GRACE_MS, 2, 3)) == [1]
    assert cluster.partition("t").leader == 2


def test_a_connection_that_is_back_in_time_costs_nothing() -> None:
    cluster = cluster_of(1, 2, 3)
    for _ in range(20):
        lose(cluster, 1)
        assert cluster.pass_time(GRACE_MS - 1, 1, 2, 3) == []
        find(cluster, 1)
        assert cluster.pass_time(GRACE_MS - 1, 1, 2, 3) == []


def test_without_a_grace_a_broken_connection_means_nothing() -> None:
    cluster = cluster_of(1, 2, **{LOCAL: "0"})
    lose(cluster, 1)
    assert cluster.pass_time(SESSION_MS, 2) == []
    assert fencings(cluster.pass_time(1, 2)) == [1]


def test_when_all_connections_break_the_fault_is_here() -> None:
    cluster = cluster_of(1, 2, 3)
    lose(cluster, 1, 2, 3)
    assert cluster.pass_time(2000, 1, 2, 3) == []
    # The first one back does not condemn the others, who get their grace now.
    find(cluster, 2)
    assert cluster.pass_time(GRACE_MS - 1, 2) == []
    find(cluster, 3)
    assert fencings(cluster.pass_time(1, 2, 3)) == [1]


def test_a_flapping_broker_moves_leaders_ever_more_rarely() -> None:
    """Fenced, back, unfenced, cut off again: after the fifth time only its session counts."""
    cluster = cluster_of(1, 2)
    took = []
    for _ in range(7):
        cluster.heartbeat(1, 2)
        cut_ms = cluster.now_ms
        lose(cluster, 1)
        while not cluster.image.brokers[1].fenced:
            cluster.pass_time(100, 2)
        took.append(cluster.now_ms - cut_ms)
        find(cluster, 1)
        cluster.heartbeat(1)
        assert not cluster.image.brokers[1].fenced
    assert took == [300, 600, 1200, 2400, 4800, SESSION_MS, SESSION_MS]


def test_false_alarms_are_forgotten_after_a_quiet_time() -> None:
    cluster = cluster_of(1, 2)
    for _ in range(2):
        lose(cluster, 1)
        cluster.pass_time(1000, 2)
        assert cluster.image.brokers[1].fenced
        find(cluster, 1)
        cluster.heartbeat(1)
    cluster.pass_time(11 * SESSION_MS, 1, 2)
    lose(cluster, 1)
    assert fencings(cluster.pass_time(GRACE_MS, 2)) == [1]


def test_a_second_process_with_a_living_brokers_id_must_wait() -> None:
    cluster = cluster_of(2, 3)
    assert cluster.ask(registration(2, "another")).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.pass_time(SESSION_MS + 1, 3)
    assert cluster.ask(registration(2, "another")).error_code == ErrorCode.NONE


@pytest.mark.parametrize("grace", ["300", "0"])
def test_a_process_that_was_killed_and_is_back_at_once_need_not_wait(grace: str) -> None:
    cluster = cluster_of(2, 3, **{LOCAL: grace})
    lose(cluster, 2)
    find(cluster, 2)  # the new process
    code = cluster.ask(registration(2, "another")).error_code
    assert code == (ErrorCode.NONE if grace != "0" else ErrorCode.DUPLICATE_BROKER_REGISTRATION)


def test_a_living_broker_that_reconnected_keeps_its_id() -> None:
    cluster = cluster_of(2, 3)
    lose(cluster, 2)
    find(cluster, 2)
    cluster.heartbeat(2)
    assert cluster.ask(registration(2, "another")).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_the_broker_of_this_very_process_is_no_other_that_lives() -> None:
    """A node with both roles is back after a crash: the session it had is its own."""
    cluster = TestCluster((1, 2), **{LOCAL: "0"})
    assert cluster.ask(registration(1, "another")).error_code == ErrorCode.NONE
    assert cluster.ask(registration(2, "another")).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.heartbeat(1)
    assert cluster.ask(registration(1, "a third")).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_broker_that_was_let_go_may_come_back_at_once() -> None:
    cluster = cluster_of(2, 3)
    assert not cluster.heartbeat(2, want_shut_down=True).should_shut_down
    assert cluster.ask(registration(2, "another")).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.heartbeat(3)
    assert cluster.heartbeat(2, want_shut_down=True).should_shut_down
    assert cluster.ask(registration(2, "another")).error_code == ErrorCode.NONE
