from __future__ import annotations

import pytest

from pybroker.network.limits import UNTIL_ONE_ENDS, ConnectionLimits, Limits

MANY = 2**31 - 1
NO_LIMITS = Limits(
    max_connections=MANY,
    max_connections_by_listener={},
    max_per_ip=MANY,
    max_by_ip={},
    max_rate=MANY,
    max_rate_by_listener={},
    protected_listener=None,
)


def opened(limits: ConnectionLimits, count: int, listener: str = "CLIENTS", ip: str = "10.0.0.1", now_ms: int = 0) -> None:
    for _ in range(count):
        assert limits.must_wait(listener, now_ms) is None
        assert limits.refusal(ip) is None
        limits.open(listener, ip, now_ms)


def delay_ms(limits: ConnectionLimits, now_ms: int, listener: str = "CLIENTS") -> int | None:
    wait = limits.must_wait(listener, now_ms)
    return wait and wait.delay_ms


def test_the_node_takes_max_connections_and_the_next_wait_until_one_ends() -> None:
    limits = ConnectionLimits(NO_LIMITS._replace(max_connections=3), 0)
    opened(limits, 2)
    opened(limits, 1, "OTHERS")
    for listener in ("CLIENTS", "OTHERS"):
        assert limits.must_wait(listener, 0) == (UNTIL_ONE_ENDS, "the node holds max.connections = 3 connections")
    limits.close("OTHERS", "10.0.0.1")
    assert limits.must_wait("CLIENTS", 0) is None


def test_a_listener_may_have_a_limit_of_its_own() -> None:
    limits = ConnectionLimits(NO_LIMITS._replace(max_connections_by_listener={"CLIENTS": 2}), 0)
    opened(limits, 2)
    assert limits.must_wait("CLIENTS", 0) == (UNTIL_ONE_ENDS, "the listener holds max.connections = 2 connections")
    opened(limits, 5, "OTHERS")


def test_brokers_among_themselves_displace_clients() -> None:
    limits = ConnectionLimits(NO_LIMITS._replace(max_connections=2, protected_listener="BROKERS"), 0)
    opened(limits, 2)
    assert limits.must_wait("BROKERS", 0) is None
    assert limits.open("BROKERS", "10.0.0.9", 0)
    limits.close("CLIENTS", "10.0.0.1")
    assert delay_ms(limits, 0) == UNTIL_ONE_ENDS
    limits.open("BROKERS", "10.0.0.9", 0)
    limits.close("CLIENTS", "10.0.0.1")
    assert limits.must_wait("BROKERS", 0) is not None, "there is nobody left to displace"


def test_an_address_may_hold_so_many_and_no_more() -> None:
    limits = ConnectionLimits(NO_LIMITS._replace(max_per_ip=2, max_by_ip={"10.0.0.7": 0, "10.0.0.8": 3}), 0)
    opened(limits, 2)
    assert limits.refusal("10.0.0.1") == "10.0.0.1 holds max.connections.per.ip = 2 connections already"
    assert limits.refusal("10.0.0.2") is None
    opened(limits, 3, ip="10.0.0.8")
    assert limits.refusal("10.0.0.8") == "10.0.0.8 holds 3 connections already, its limit in max.connections.per.ip.overrides"
    assert limits.refusal("10.0.0.7") is not None
    limits.close("CLIENTS", "10.0.0.1")
    assert limits.refusal("10.0.0.1") is None


def test_addresses_without_connections_are_forgotten() -> None:
    limits = ConnectionLimits(NO_LIMITS, 0)
    for number in range(100):
        opened(limits, 1, ip=f"10.0.1.{number}")
        limits.close("CLIENTS", f"10.0.1.{number}")
    assert not limits.by_ip


def test_connections_come_at_the_rate_allowed() -> None:
    limits = ConnectionLimits(NO_LIMITS._replace(max_rate=10), 0)
    opened(limits, 10)
    assert delay_ms(limits, 0) == 101
    assert delay_ms(limits, 50) == 51
    opened(limits, 1, now_ms=101)
    assert delay_ms(limits, 102) is not None
    accepted = 0
    for now_ms in range(10_000, 20_000):
        while limits.must_wait("CLIENTS", now_ms) is None:
            limits.open("CLIENTS", "10.0.0.1", now_ms)
            accepted += 1
    assert accepted == pytest.approx(10 * 10 + 10, abs=2)


def test_the_rate_of_a_listener_is_its_own() -> None:
    limits = ConnectionLimits(NO_LIMITS._replace(max_rate_by_listener={"CLIENTS": 1}), 0)
    opened(limits, 1)
    assert delay_ms(limits, 0) == 1001
    opened(limits, 5, "OTHERS")


def test_a_rate_of_none_lets_nobody_in() -> None:
    limits = ConnectionLimits(NO_LIMITS._replace(max_rate=0), 0)
    assert delay_ms(limits, 10_000_000) == 60_000


def test_changed_limits_hold_for_what_comes() -> None:
    limits = ConnectionLimits(NO_LIMITS._replace(max_connections=5, max_rate_by_listener={"CLIENTS": 5}), 0)
    opened(limits, 5)
    assert delay_ms(limits, 0) == UNTIL_ONE_ENDS
    limits.change(NO_LIMITS._replace(max_connections=10, max_rate_by_listener={"CLIENTS": 5}), 0)
    assert delay_ms(limits, 0) == 201, "a rate that did not change is not forgotten"
    limits.change(NO_LIMITS._replace(max_connections=3), 0)
    assert limits.total == 5
    assert delay_ms(limits, 0) == UNTIL_ONE_ENDS
