"""Consume, transform, produce over brokers that are killed: every input comes out once, for readers of what is committed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from cluster.processes import Cluster, cluster
from cluster.routed import Routed
from cluster.transactional import (
    PARTITIONS,
    PROPERTIES,
    ROLES,
    STATE_PARTITIONS,
    WAIT_S,
    bootstrap,
    create_topic,
    leader_of,
    read_committed,
)
from support.transactional import Producer, must, wait_for_coordinator
from support.waiting import wait_until

from pybroker.coordinator.hashing import partition_of

ck: Any = pytest.importorskip("confluent_kafka")
pytestmark = pytest.mark.verdict

# librdkafka may wait in vain for a group's coordinator that has left the cluster's metadata (its issue 5511, open as of
# 2.16.1): whoever starts anew finds the new one.
OFFSETS_S = 10.0


class Loop:
    """Reads "in", writes "out", a few records a transaction; another one of the same name takes over when it fails."""

    def __init__(self, nodes: Cluster, transactional_id: str) -> None:
        self._bootstrap = bootstrap(nodes)
        self._id = transactional_id
        self._is_stopped = threading.Event()
        self.committed = 0
        self.failures: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Loop:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopped.set()
        self._thread.join(WAIT_S)

    def _run(self) -> None:
        while not self._is_stopped.is_set():
            consumer = ck.Consumer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "group.id": f"group-{self._id}",
                    "isolation.level": "read_committed",
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    "session.timeout.ms": 6000,
                    "log_level": 0,
                }
            )
            producer = ck.Producer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "transactional.id": self._id,
                    "transaction.timeout.ms": 10_000,
                    "log_level": 0,
                }
            )
            try:
                producer.init_transactions(WAIT_S)
                consumer.subscribe(["in"])
                while not self._is_stopped.is_set():
                    self._once(consumer, producer)
            except ck.KafkaException as error:
                self.failures.append(str(error))
            finally:
                consumer.close()

    def _once(self, consumer: Any, producer: Any) -> None:
        records = [one for one in consumer.consume(5, 0.5) if one.error() is None]
        if not records:
            return
        producer.begin_transaction()
        for record in records:
            producer.produce("out", record.value(), partition=record.partition())
        try:
            offsets = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), OFFSETS_S)
            self._commit(producer)
            self.committed += len(records)
        except ck.KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(WAIT_S)
            # What was read is to be read again: so says whoever starts anew from what is committed.
            raise

    def _commit(self, producer: Any) -> None:
        while True:
            try:
                producer.commit_transaction(WAIT_S)
                return
            except ck.KafkaException as error:
                if not error.args[0].retriable():
                    raise


def feed(nodes: Cluster, first: int, count: int) -> list[bytes]:
    producer = ck.Producer({"bootstrap.servers": bootstrap(nodes), "enable.idempotence": True, "log_level": 0})
    values = [b"%d" % number for number in range(first, first + count)]
    for number, value in enumerate(values):
        producer.produce("in", value, partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0
    return values


@pytest.mark.parametrize("topic", ["__transaction_state", "__consumer_offsets", "out"])
def test_every_record_comes_out_once_while_the_leader_of_it_all_is_killed(tmp_path: Path, topic: str) -> None:
    with cluster(tmp_path, ROLES, PROPERTIES) as nodes:
        nodes.start()
        create_topic(nodes, "in")
        create_topic(nodes, "out")
        fed = feed(nodes, 0, 60)
        partition = {
            "__transaction_state": partition_of("loop", STATE_PARTITIONS),
            "__consumer_offsets": partition_of("group-loop", 4),
            "out": 0,
        }[topic]
        with Loop(nodes, "loop") as loop:
            wait_until(lambda: loop.committed >= 30, WAIT_S, lambda: f"{loop.failures}")
            for round_ in range(2):
                victim = wait_until(lambda: leader_of(nodes, topic, partition), WAIT_S, lambda: "no leader")
                done = loop.committed
                fed += _fed_while_killed(nodes, victim, 60 * (round_ + 1))
                wait_until(lambda: loop.committed > done, WAIT_S, lambda: f"stuck: {loop.failures}")  # noqa: B023
                nodes[victim].start()
                nodes[victim].wait_ready()
            wait_until(lambda: loop.committed >= len(fed), WAIT_S, lambda: f"{loop.committed} of {len(fed)}: {loop.failures}")
            found = read_committed(nodes, "out", len(fed))
        print(f"{topic}: {len(found)} records, {len(loop.failures)} failures of the loop: {loop.failures}")
        assert sorted(found, key=int) == fed


def _fed_while_killed(nodes: Cluster, victim: int, first: int) -> list[bytes]:
    killer = threading.Thread(target=nodes[victim].kill)
    killer.start()
    values = feed(nodes, first, 60)
    killer.join()
    return values


# With KIP-890, which librdkafka does not speak, by hand.


def test_transactions_that_add_their_partitions_by_writing_outlive_their_coordinators(tmp_path: Path) -> None:
    with cluster(tmp_path, ROLES, PROPERTIES) as nodes:
        nodes.start()
        create_topic(nodes, "out")
        routed = Routed(bootstrap(nodes), "loop", "g", WAIT_S)
        wait_for_coordinator(routed, "loop")
        producer = Producer(routed, "loop")
        must(producer.init())
        committed: list[bytes] = []
        for number in range(12):
            values = [b"%d" % (number * PARTITIONS + partition) for partition in range(PARTITIONS)]
            down = None
            for partition, value in enumerate(values):
                must(producer.send(value, topic="out", partition=partition))
                if number % 4 == 2 and partition == 0:
                    down = wait_until(
                        lambda: leader_of(nodes, "__transaction_state", partition_of("loop", STATE_PARTITIONS)),
                        WAIT_S,
                        lambda: "no coordinator",
                    )
                    nodes[down].kill()
            must(producer.commit_offset("g", number, "out"))
            must(producer.end(commit=number % 3 != 1))
            if number % 3 != 1:
                committed += values
            if down is not None:
                nodes[down].start()
                nodes[down].wait_ready()
        producer.wait_until_ended()
        found = read_committed(nodes, "out", len(committed))
        assert sorted(found, key=int) == committed
