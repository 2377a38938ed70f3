"""Coordinators that were fenced a moment ago, whom Metadata goes on to name.

Apache Kafka notices a death by the end of a session, so clients hear of a dead broker for some seconds more. Here it is fenced
at once, and clients are not all prepared for that: librdkafka, told of a group's coordinator that just died, waits for the
connection to it; if the broker leaves the metadata meanwhile, it waits for ever (its issue 5511). While the broker is named it
asks again and finds the new one. Nobody leads anything there: that is told right away. Of a broker that coordinated nothing, or
gave it away before it left, no client waits to hear; it is better forgotten, since a client that knows it tries to connect,
at intervals that grow, and would be slow to find it when it is back.

`publish` runs on the metadata publisher's thread, `listed` on any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import EMPTY_IMAGE, MetadataImage
from pybroker.metadata.internal_topics import INTERNAL_TOPICS


class DepartedBrokers:
    def __init__(self, linger_ms: int, monotonic_ms: Callable[[], int]) -> None:
        self._linger_ms = linger_ms
        self._monotonic_ms = monotonic_ms
        self._image = EMPTY_IMAGE
        self._until_ms: Mapping[int, int] = {}  # replaced, never changed

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        before, self._image = self._image, image
        if image.brokers is before.brokers:
            return
        now_ms = self._monotonic_ms()
        fenced = {broker.id for broker in image.brokers.values() if broker.fenced}
        left = {broker for broker in fenced if broker in before.brokers and not before.brokers[broker].fenced}
        stay = {one: until_ms for one, until_ms in self._until_ms.items() if one in fenced and until_ms > now_ms}
        self._until_ms = stay | dict.fromkeys(left & _coordinators(before), now_ms + self._linger_ms)

    def listed(self) -> tuple[int, ...]:
        """Those that are still to be named, though they are fenced."""
        until_ms = self._until_ms
        if not until_ms:
            return ()
        now_ms = self._monotonic_ms()
        return tuple(one for one, end_ms in until_ms.items() if end_ms > now_ms)


def _coordinators(image: MetadataImage) -> set[int]:
    topics = [topic for name in INTERNAL_TOPICS if (topic := image.topics.get(name)) is not None]
    return {partition.leader for topic in topics for partition in topic.partitions.values()}
