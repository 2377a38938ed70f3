"""How long a group of librdkafka's consumers takes until everybody has its share, and how often they come when all is quiet.

One member has the twelve partitions; three more start at once; one of the four leaves. The consumers are at their defaults,
so that of the classic protocol they come every 3 s, and of the consumer protocol (KIP-848) when the broker tells them to. That
is sooner where something has just happened: so there each change is measured twice, soon after another and from rest, when who
has to give something up hears of it with a heartbeat that may be a whole interval away.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from perf.bench.servers import Server
from perf.bench.workloads import Meter, Values
from perf.bench_groups.lines import wait_for_coordinator
from support.waiting import wait_until

PARTITIONS = 12
SETTLE_S = 90.0
STEADY_S = 1.0
# The server lets members of a group that has just changed come more often; at rest it is over by then.
CALM_S = 15.0
HEARTBEAT_S = 5.0  # group.consumer.heartbeat.interval.ms of both brokers

CLASSIC = {"partition.assignment.strategy": "cooperative-sticky"}
CONSUMER = {"group.protocol": "consumer"}


class _Member:
    def __init__(self, address: str, topic: str, options: dict[str, str]) -> None:
        self.owned: set[int] = set()
        self.changed_at = time.monotonic()
        self.heartbeats = 0
        self._is_over = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": topic,
                "enable.auto.commit": False,
                "enable.metrics.push": False,
                "statistics.interval.ms": 500,
                "stats_cb": self._told,
                **options,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._given, on_revoke=self._taken, on_lost=self._taken)
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._is_over.is_set():
            self._consumer.poll(0.05)

    def _given(self, _: Any, places: Sequence[TopicPartition]) -> None:
        self._changed(self.owned | {one.partition for one in places})

    def _taken(self, _: Any, places: Sequence[TopicPartition]) -> None:
        self._changed(self.owned - {one.partition for one in places})

    def _changed(self, owned: set[int]) -> None:
        if owned != self.owned:
            self.owned = owned
            self.changed_at = time.monotonic()

    def _told(self, text: str) -> None:
        # Of a quiet group the coordinator gets nothing else over the connection that librdkafka has for it.
        brokers = json.loads(text)["brokers"].values()
        self.heartbeats = sum(broker["tx"] for broker in brokers if broker["name"] == "GroupCoordinator")

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()
        self._consumer.close()


def _settled(members: Sequence[_Member]) -> float:
    """When the last partition found its owner, once nothing has moved for a while."""

    def is_settled() -> bool:
        owned = sorted(one for member in members for one in member.owned)
        is_even = all(len(member.owned) == PARTITIONS // len(members) for member in members)
        last = max(member.changed_at for member in members)
        return owned == list(range(PARTITIONS)) and is_even and time.monotonic() - last > STEADY_S

    wait_until(is_settled, SETTLE_S, lambda: f"the shares are {[sorted(member.owned) for member in members]}")
    return max(member.changed_at for member in members)


class Rebalances:
    """One protocol's group, over several rounds; each has a topic and a group of its own."""

    def __init__(self, server: Server, options: dict[str, str]) -> None:
        self._server = server
        self._options = options
        self._rounds = 0

    def __call__(self) -> dict[str, Values]:
        """Seconds of each change, one soon after the other."""
        found = self._changed(0.0, lambda members: {})
        return {"grow": found["grow"], "shrink": found["shrink"]}

    def from_rest(self, rest_s: float) -> dict[str, Values]:
        """The same, each after so long that heartbeats are as rare as they get; and the load of four members when nothing
        happens, over `rest_s`."""
        found = self._changed(CALM_S, lambda members: self._rest(members, rest_s))
        return {"grow-rest": found["grow"], "shrink-rest": found["shrink"], "rest": found["rest"]}

    def _changed(self, calm_s: float, meanwhile: Callable[[Sequence[_Member]], Values]) -> dict[str, Values]:
        self._rounds += 1
        topic = f"rebalanced-{self._options.get('group.protocol', 'classic')}-{self._rounds}"
        address = self._server.address
        self._server.create_topic(topic, PARTITIONS)
        wait_for_coordinator(address, topic)
        members = [_Member(address, topic, self._options)]
        found: dict[str, Values] = {}
        try:
            _settled(members)
            # Not always at the same place between two heartbeats.
            time.sleep(calm_s and calm_s + random.uniform(0, HEARTBEAT_S))
            began = time.monotonic()
            members += [_Member(address, topic, self._options) for _ in range(3)]
            found["grow"] = {"seconds": _settled(members) - began}
            time.sleep(calm_s)
            found["rest"] = meanwhile(members)
            began = time.monotonic()
            members.pop().close()
            found["shrink"] = {"seconds": _settled(members) - began}
        finally:
            for member in members:
                member.close()
        self._server.delete_topic(topic)
        return found

    def _rest(self, members: Sequence[_Member], rest_s: float) -> Values:
        before = sum(member.heartbeats for member in members)
        with Meter(self._server) as meter:
            time.sleep(rest_s)
        beats = sum(member.heartbeats for member in members) - before
        return {
            "requests_per_min": beats / len(members) / meter.seconds * 60,
            "core_percent": 100 * meter.broker_cpu_s / meter.seconds,
        }
