from __future__ import annotations

from pybroker.log.files import TopicPartition
from pybroker.replication.throttle import NO_LIMIT, ReplicationThrottle

NAME = TopicPartition("orders", 2)


class Throttled:
    def __init__(self, *replicas: str, rate: int = 1000) -> None:
        self.now_ms = 0
        self.rate = rate
        self.throttle = ReplicationThrottle(7, lambda: self.rate, lambda topic: replicas, lambda: self.now_ms)


def test_which_replicas_are_throttled() -> None:
    assert Throttled("*").throttle.is_throttled(NAME)
    assert Throttled("0:1", "2:7").throttle.is_throttled(NAME)
    assert not Throttled("2:1", "1:7").throttle.is_throttled(NAME)
    assert not Throttled().throttle.is_throttled(NAME)


def test_the_rate_is_that_of_the_last_windows() -> None:
    one = Throttled("*")
    one.throttle.record(NAME, 1000)
    assert not one.throttle.is_exceeded()
    one.throttle.record(NAME, 1)
    assert one.throttle.is_exceeded()
    one.now_ms = 2000
    assert not one.throttle.is_exceeded()
    one.throttle.record(NAME, 5000)
    assert one.throttle.is_exceeded()
    one.now_ms = 13_001
    assert not one.throttle.is_exceeded()


def test_what_is_not_throttled_does_not_count() -> None:
    one = Throttled("2:1")
    one.throttle.record(NAME, 1_000_000)
    assert not one.throttle.is_exceeded()
    free = Throttled("*", rate=NO_LIMIT)
    free.throttle.record(NAME, 1_000_000)
    free.rate = 1
    assert not free.throttle.is_exceeded()
