"""The last replica in sync dies, and one that is behind comes back: the partition waits for the other, or, where allowed, is
led without what the one had alone. A consumer that had read more than is left is told so, even if there is more again by the
time it asks (KIP-320)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.processes import BROKER, CONTROLLER, Cluster, cluster
from support.waiting import wait_until

from pybroker.metadata.image import ResourceType
from pybroker.protocol.errors import ErrorCode

confluent_kafka = pytest.importorskip("confluent_kafka")

from cluster.traffic import WAIT_S, bootstrap, create, partition_rows, wait_in_sync  # noqa: E402

ROLES = {9: CONTROLLER, 1: BROKER, 2: BROKER}
PROPERTIES = {"log.cleaner.dedupe.buffer.size": "4194304", "unclean.leader.election.interval.ms": "500"}


def produce(nodes: Cluster, values: list[bytes]) -> None:
    told: list[object] = []
    producer = confluent_kafka.Producer(bootstrap(nodes) | {"acks": "all"})
    for value in values:
        producer.produce("t", value, partition=0, on_delivery=lambda error, message: told.append(error))
    producer.flush(WAIT_S)
    assert told == [None] * len(values)


class Consumer:
    """Of partition 0, from its beginning, or from where another came to; offsets that are gone are an error, not a reason to
    go elsewhere."""

    def __init__(self, nodes: Cluster, offset: int = 0, leader_epoch: int = -1) -> None:
        settings = {"group.id": "unused", "auto.offset.reset": "error", "enable.auto.commit": False}
        self._consumer = confluent_kafka.Consumer(bootstrap(nodes) | settings)
        self._consumer.assign([confluent_kafka.TopicPartition("t", 0, offset, leader_epoch=leader_epoch)])
        self.values: list[bytes] = []
        self.errors: list[confluent_kafka.KafkaError] = []

    def poll(self) -> None:
        for message in self._consumer.consume(100, 0.1):
            if message.error() is None:
                self.values.append(message.value())
            else:
                self.errors.append(message.error())

    def wait_for(self, values: list[bytes]) -> None:
        def has_them() -> bool:
            self.poll()
            return self.values == values

        wait_until(has_them, WAIT_S, lambda: f"{self.values}, expected {values}; {self.errors}")

    def wait_for_error(self) -> confluent_kafka.KafkaError:
        def is_told() -> bool:
            self.poll()
            return bool(self.errors)

        wait_until(is_told, WAIT_S, lambda: "the consumer was not told that what it had read is gone")
        return self.errors[0]

    def close(self) -> None:
        self._consumer.close()


def wait_leader(nodes: Cluster, leader: int) -> None:
    wait_until(
        lambda: partition_rows(nodes, "t").get(0, (None,))[0] == leader,
        WAIT_S,
        lambda: f"{partition_rows(nodes, 't')}, expected {leader} to lead\n{nodes[9].said[-2000:]}",
    )


BEFORE = [b"before %d" % number for number in range(10)]
ALONE = [b"alone %d" % number for number in range(10)]
AFTER = [b"after %d" % number for number in range(20)]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Cluster]:
    """Broker 2 has half of what broker 1 had, and broker 1 is dead; `consumer` has read all of it."""
    with cluster(tmp_path, ROLES, PROPERTIES) as made:
        made.start()
        create(made, "t", replication_factor=2, partitions=1)
        with made[1].client() as client:
            client.configure(ResourceType.TOPIC, "t", {"min.insync.replicas": "1"})
        wait_in_sync(made, "t", {1, 2})
        yield made


def part(nodes: Cluster, consumer: Consumer) -> tuple[int, int]:
    """(who died last and had all, who came back and has half)"""
    ahead, _ = partition_rows(nodes, "t")[0]
    behind = 3 - ahead
    produce(nodes, BEFORE)
    consumer.wait_for(BEFORE)
    assert nodes[behind].stop() == 0
    wait_in_sync(nodes, "t", {ahead})
    produce(nodes, ALONE)
    consumer.wait_for(BEFORE + ALONE)
    nodes[ahead].kill()
    nodes[behind].start().wait_ready()
    wait_leader(nodes, -1)
    return ahead, behind


def test_with_too_few_in_sync_acks_all_is_refused_before_anything_is_written(nodes: Cluster) -> None:
    leader, _ = partition_rows(nodes, "t")[0]
    with nodes[leader].client() as client:
        client.configure(ResourceType.TOPIC, "t", {"min.insync.replicas": "2"})
        wait_until(
            lambda: client.config(ResourceType.TOPIC, "t", "min.insync.replicas") == "2", WAIT_S, lambda: "not configured"
        )
        assert client.send("t", [b"two are enough"], acks=-1).error_code == ErrorCode.NONE
        assert nodes[3 - leader].stop() == 0
        wait_in_sync(nodes, "t", {leader})
        assert client.send("t", [b"one is not"], acks=-1).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        # The next one finds the place where that would have been.
        assert client.produce("t", [b"who asks for less gets it"], acks=1) == 1


def test_without_leave_the_partition_is_offline_until_the_last_in_sync_returns(nodes: Cluster) -> None:
    consumer = Consumer(nodes)
    ahead, _ = part(nodes, consumer)
    # It stays so while heartbeats and checks come and go.
    until = time.monotonic() + 3
    wait_until(lambda: partition_rows(nodes, "t")[0][0] != -1 or time.monotonic() > until, WAIT_S, lambda: "")
    assert partition_rows(nodes, "t")[0][0] == -1
    nodes[ahead].start().wait_ready()
    wait_leader(nodes, ahead)
    wait_in_sync(nodes, "t", {1, 2})
    produce(nodes, [b"after"])
    consumer.wait_for([*BEFORE, *ALONE, b"after"])
    assert consumer.errors == []
    consumer.close()


def test_with_leave_the_one_behind_leads_and_a_consumer_that_had_more_is_told(nodes: Cluster) -> None:
    consumer = Consumer(nodes)
    ahead, behind = part(nodes, consumer)
    with nodes[behind].client() as client:
        epoch_of_part = client.topic("t").partitions[0].leader_epoch - 1  # the last one, in which nobody leads, left out
        client.configure(ResourceType.TOPIC, "t", {"unclean.leader.election.enable": "true"})
    wait_leader(nodes, behind)
    told = consumer.wait_for_error()
    assert told.code() in (confluent_kafka.KafkaError._LOG_TRUNCATION, confluent_kafka.KafkaError._AUTO_OFFSET_RESET)
    assert "ffset 20" in told.str()
    consumer.close()
    produce(nodes, AFTER)
    # Offset 20 is there again, with another record: only by the epoch in which it came there a consumer finds out.
    returning = Consumer(nodes, len(BEFORE + ALONE), epoch_of_part)
    assert "truncation detected at offset 20" in returning.wait_for_error().str()
    assert returning.values == []
    returning.close()
    # The old leader drops what it had alone.
    nodes[ahead].start().wait_ready()
    wait_in_sync(nodes, "t", {1, 2})
    files = [nodes[node_id].directory / "data" / "t-0" / f"{0:020}.log" for node_id in (1, 2)]
    wait_until(lambda: len({file.read_bytes() for file in files}) == 1, WAIT_S, lambda: "the replicas differ")
    reader = Consumer(nodes)
    reader.wait_for(BEFORE + AFTER)
    reader.close()
