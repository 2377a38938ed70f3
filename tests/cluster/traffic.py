"""Clients of a cluster under faults: producers that never stop, readers that remember all they saw, and the check of both."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import confluent_kafka
from cluster.processes import Cluster
from confluent_kafka.admin import AdminClient, NewTopic
from support.waiting import wait_until

from pybroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

WAIT_S = 60.0
QUIET = {"log_level": 0}
PARTITIONS = 3


def bootstrap(nodes: Cluster) -> dict[str, object]:
    return {"bootstrap.servers": nodes.bootstrap, **QUIET}


def create(nodes: Cluster, topic: str, replication_factor: int = 3, partitions: int = PARTITIONS) -> None:
    admin = AdminClient(bootstrap(nodes))
    for future in admin.create_topics([NewTopic(topic, partitions, replication_factor)]).values():
        future.result()
    wait_until(lambda: len(partition_rows(nodes, topic)) == partitions, WAIT_S, lambda: f"{topic} is not known everywhere")


def partition_rows(nodes: Cluster, topic: str) -> dict[int, tuple[int, set[int]]]:
    """The leader and the in-sync replicas of each, as some broker tells them; empty if none can."""
    for member in nodes.brokers:
        if member.process is not None:
            try:
                with member.client() as client:
                    answer = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
                rows = answer.topics[0].partitions
                return {row.partition_index: (row.leader_id, set(row.isr_nodes)) for row in rows}
            except OSError:
                continue
    return {}


def wait_in_sync(nodes: Cluster, topic: str, replicas: set[int]) -> None:
    def is_so() -> bool:
        rows = partition_rows(nodes, topic).values()
        return bool(rows) and all(isr == replicas and leader in isr for leader, isr in rows)

    wait_until(is_so, WAIT_S, lambda: f"{partition_rows(nodes, topic)}\n{nodes[1].said[-3000:]}")


# With idempotence the client waits so long for the answers of a leader that hangs before it goes to the next.
IDEMPOTENT = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 2,
    "retry.backoff.ms": 50,
    "delivery.timeout.ms": 120_000,
    "socket.timeout.ms": 10_000,
}


class Writing:
    """A producer that never stops, idempotent with acks=all unless its settings say otherwise, and what it was told."""

    def __init__(
        self, nodes: Cluster, topic: str, name: str = "", pace_s: float = 0.002, settings: Mapping[str, Any] = IDEMPOTENT
    ) -> None:
        """`name` begins every value, so that those of several producers are apart."""
        self.name = name
        self._pace_s = pace_s
        self.acked: dict[bytes, tuple[int, int]] = {}
        self.errors: list[str] = []
        self.longest_gap_s = 0.0
        self._last = time.monotonic()
        self._topic = topic
        self._stop = threading.Event()
        self._producer = confluent_kafka.Producer(bootstrap(nodes) | dict(settings))
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            value = b"%s%08d" % (self.name.encode(), number)
            self._producer.produce(self._topic, value, partition=number % PARTITIONS, on_delivery=self._delivered)
            number += 1
            self._producer.poll(self._pace_s)
        left = self._producer.flush(WAIT_S)
        if left:
            self.errors.append(f"{left} were never answered")

    def _delivered(self, error: object, message: confluent_kafka.Message) -> None:
        now = time.monotonic()
        self.longest_gap_s = max(self.longest_gap_s, now - self._last)
        self._last = now
        if error is not None:
            self.errors.append(str(error))
        else:
            self.acked[message.value()] = (message.partition(), message.offset())

    def wait_for_more(self, count: int = 200) -> None:
        """So many more are acknowledged from now on."""
        target = len(self.acked) + count
        wait_until(lambda: len(self.acked) >= target, WAIT_S, lambda: f"{len(self.acked)} of {target}: {self.errors}")

    def end(self) -> None:
        self._stop.set()
        self._thread.join()


@contextmanager
def writing(nodes: Cluster, topic: str, name: str = "", settings: Mapping[str, Any] = IDEMPOTENT) -> Iterator[Writing]:
    made = Writing(nodes, topic, name, settings=settings)
    try:
        yield made
    finally:
        made.end()


class Seen:
    """What all readers together saw at each offset: one value, whoever looks and whenever."""

    def __init__(self) -> None:
        self.values: dict[tuple[int, int], bytes] = {}
        self.problems: list[str] = []
        self._lock = threading.Lock()

    def add(self, reader: str, message: confluent_kafka.Message) -> None:
        place = message.partition(), message.offset()
        with self._lock:
            before = self.values.setdefault(place, message.value())
            if before != message.value():
                self.problems.append(f"{reader} saw {message.value()!r} at {place}, where {before!r} was")


class Reading:
    """A consumer that never stops. Without a group it reads all partitions from their beginning, each offset once, in order."""

    def __init__(self, nodes: Cluster, topic: str, name: str, seen: Seen, settings: Mapping[str, Any]) -> None:
        self.name = name
        self.positions = [0] * PARTITIONS
        self._is_member = "group.id" in settings
        self._seen = seen
        self._stop = threading.Event()
        fixed = {"group.id": name, "enable.auto.commit": False, "auto.offset.reset": "error", "socket.timeout.ms": 10_000}
        self._consumer = confluent_kafka.Consumer(bootstrap(nodes) | fixed | settings)
        if self._is_member:
            self._consumer.subscribe([topic])
        else:
            self._consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(500, 0.1):
                self._take(message)
        self._consumer.close()

    def _take(self, message: confluent_kafka.Message) -> None:
        error = message.error()
        if error is not None:
            # Brokers that are gone are no news; offsets that are gone are.
            if error.code() in (confluent_kafka.KafkaError._AUTO_OFFSET_RESET, confluent_kafka.KafkaError._LOG_TRUNCATION):
                self._seen.problems.append(f"{self.name}: {error}")
            return
        self._seen.add(self.name, message)
        expected = self.positions[message.partition()]
        if not self._is_member and message.offset() != expected:
            self._seen.problems.append(f"{self.name} got {message.offset()} of {message.partition()} instead of {expected}")
        self.positions[message.partition()] = message.offset() + 1

    def wait_for_end(self, ends: list[int]) -> None:
        wait_until(
            lambda: self.positions == ends or self._seen.problems,
            WAIT_S,
            lambda: f"{self.name} is at {self.positions}, the end is at {ends}",
        )

    def end(self) -> None:
        self._stop.set()
        self._thread.join()


def read_all(nodes: Cluster, topic: str, count: int) -> dict[bytes, list[tuple[int, int]]]:
    consumer = confluent_kafka.Consumer(bootstrap(nodes) | {"group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: dict[bytes, list[tuple[int, int]]] = {}
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        messages = consumer.consume(1000, 1.0)
        for message in messages:
            assert message.error() is None, message.error()
            found.setdefault(message.value(), []).append((message.partition(), message.offset()))
        if not messages and len(found) >= count:
            break
    consumer.close()
    return found


def check(nodes: Cluster, topic: str, *all_written: Writing) -> dict[bytes, list[tuple[int, int]]]:
    """Every acknowledged record is there once, where it was said to be, in order; and all replicas are the same bytes. What was
    found, by value."""
    assert [one.errors[:3] for one in all_written if one.errors] == []
    acked = {value: place for one in all_written for value, place in one.acked.items()}
    wait_in_sync(nodes, topic, set(nodes.members))
    found = read_all(nodes, topic, len(acked))
    assert {value: places for value, places in found.items() if len(places) > 1} == {}
    assert {value for value, place in acked.items() if found.get(value) != [place]} == set()
    for index in range(PARTITIONS):
        for written in all_written:
            name = written.name.encode()
            values = sorted((place[0][1], value) for value, place in found.items() if place[0][0] == index)
            own = [value for _, value in values if value.startswith(name)]
            assert own == sorted(own)
        wait_until(
            lambda index=index: len({_bytes_of(nodes, member, topic, index) for member in nodes.members}) == 1,
            WAIT_S,
            lambda index=index: f"{topic}-{index} differs between its replicas",
        )
    return found


def _bytes_of(nodes: Cluster, member: int, topic: str, index: int) -> bytes:
    files = sorted((nodes[member].directory / "data" / f"{topic}-{index}").glob("*.log"))
    return b"".join(file.read_bytes() for file in files)
