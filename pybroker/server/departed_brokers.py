"""Brokers that were fenced a moment ago, whom Metadata goes on to name.

Apache Kafka notices a death by the end of a session, so clients hear of a dead broker for some seconds more. Here it is fenced
at once, and clients are not all prepared for that: librdkafka, told of a group's coordinator that just died, waits for the
connection to it; if the broker leaves the metadata meanwhile, it waits for ever (its issue 5511). While the broker is named it
asks again and finds the new one. Nobody leads anything there: that is told right away.

`publish` runs on the metadata publisher's thread, `listed` on any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import BrokerState, MetadataImage


class DepartedBrokers:
    def __init__(self, linger_ms: int, monotonic_ms: Callable[[], int]) -> None:
        self._linger_ms = linger_ms
        self._monotonic_ms = monotonic_ms
        self._registered: Mapping[int, BrokerState] = {}
        self._until_ms: Mapping[int, int] = {}  # replaced, never changed

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        before, now = self._registered, image.brokers
        if now is before:
            return
        self._registered = now
        now_ms = self._monotonic_ms()
        fenced = {broker.id for broker in now.values() if broker.fenced}
        left = {one: now_ms + self._linger_ms for one in fenced if one in before and not before[one].fenced}
        stay = {one: until_ms for one, until_ms in self._until_ms.items() if one in fenced and until_ms > now_ms}
        self._until_ms = {**stay, **left}

    def listed(self) -> tuple[int, ...]:
        """Those that are still to be named, though they are fenced."""
        until_ms = self._until_ms
        if not until_ms:
            return ()
        now_ms = self._monotonic_ms()
        return tuple(one for one, end_ms in until_ms.items() if end_ms > now_ms)
