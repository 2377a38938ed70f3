"""How many connections there may be, and how fast new ones may come. Pure: the caller brings the time and holds a lock.

max.connections and max.connection.creation.rate hold for the node, and once more for a listener where they are set with its
prefix; both make new connections wait. max.connections.per.ip refuses. The inter-broker listener is not bound by the node's
max.connections: a connection of another listener makes room for it, so that clients cannot shut brokers out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

UNTIL_ONE_ENDS: Final = -1


class Limits(NamedTuple):
    max_connections: int
    max_connections_by_listener: Mapping[str, int]
    max_per_ip: int
    max_by_ip: Mapping[str, int]
    max_rate: int
    max_rate_by_listener: Mapping[str, int]
    protected_listener: str | None  # of the brokers among themselves, if there are others


class Wait(NamedTuple):
    delay_ms: int  # or UNTIL_ONE_ENDS
    reason: str


class ConnectionLimits:
    def __init__(self, limits: Limits, now_ms: int) -> None:
        self.total = 0
        self.by_listener: Counter[str] = Counter()
        self.by_ip: Counter[str] = Counter()
        self._limits = limits
        self._rate = _Bucket(limits.max_rate, now_ms)
        self._rates = {name: _Bucket(rate, now_ms) for name, rate in limits.max_rate_by_listener.items()}

    def change(self, limits: Limits, now_ms: int) -> None:
        """Connections above a lowered limit stay."""
        if limits.max_rate != self._limits.max_rate:
            self._rate = _Bucket(limits.max_rate, now_ms)
        self._rates = {
            name: self._rates[name] if name in self._rates and self._rates[name].rate == rate else _Bucket(rate, now_ms)
            for name, rate in limits.max_rate_by_listener.items()
        }
        self._limits = limits

    def must_wait(self, listener: str, now_ms: int) -> Wait | None:
        """Before accepting on `listener`: whether to hold back."""
        limits = self._limits
        most = limits.max_connections_by_listener.get(listener)
        if most is not None and self.by_listener[listener] >= most:
            return Wait(UNTIL_ONE_ENDS, f"the listener holds max.connections = {most} connections")
        if self.total >= limits.max_connections and not self._may_displace(listener):
            return Wait(UNTIL_ONE_ENDS, f"the node holds max.connections = {limits.max_connections} connections")
        for bucket in (self._rate, self._rates.get(listener)):
            if bucket is not None and (delay_ms := bucket.delay_ms(now_ms)) > 0:
                return Wait(delay_ms, f"connections come faster than max.connection.creation.rate = {bucket.rate} a second")
        return None

    def refusal(self, ip: str) -> str | None:
        """After accepting: why a connection from `ip` is one too many."""
        most = self._limits.max_by_ip.get(ip)
        if most is not None and self.by_ip[ip] >= most:
            return f"{ip} holds {most} connections already, its limit in max.connections.per.ip.overrides"
        if most is None and self.by_ip[ip] >= self._limits.max_per_ip:
            return f"{ip} holds max.connections.per.ip = {self._limits.max_per_ip} connections already"
        return None

    def open(self, listener: str, ip: str, now_ms: int) -> bool:
        """A connection has come; whether one of another listener must go for it."""
        must_displace = self.total >= self._limits.max_connections and self._may_displace(listener)
        self.total += 1
        self.by_listener[listener] += 1
        self.by_ip[ip] += 1
        self._rate.take(now_ms)
        if listener in self._rates:
            self._rates[listener].take(now_ms)
        return must_displace

    def close(self, listener: str, ip: str) -> None:
        self.total -= 1
        self.by_listener[listener] -= 1
        self.by_ip[ip] -= 1
        if not self.by_ip[ip]:
            del self.by_ip[ip]

    def _may_displace(self, listener: str) -> bool:
        return listener == self._limits.protected_listener and self.total > self.by_listener[listener]


class _Bucket:
    """Lets `rate` through in a second, in a burst if none came for a second."""

    __slots__ = ("_filled_ms", "_tokens", "rate")

    def __init__(self, rate: int, now_ms: int) -> None:
        self.rate = rate
        self._tokens = float(rate)
        self._filled_ms = now_ms

    def delay_ms(self, now_ms: int) -> int:
        self._fill(now_ms)
        if self._tokens >= 1:
            return 0
        # At a rate of 0 nothing ever comes; the look after a while is for a changed limit.
        return min(60_000, int((1 - self._tokens) * 1000 / self.rate) + 1) if self.rate else 60_000

    def take(self, now_ms: int) -> None:
        self._fill(now_ms)
        self._tokens -= 1

    def _fill(self, now_ms: int) -> None:
        self._tokens = min(float(self.rate), self._tokens + (now_ms - self._filled_ms) * self.rate / 1000)
        self._filled_ms = now_ms
