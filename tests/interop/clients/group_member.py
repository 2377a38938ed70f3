"""A member of a group in a process of its own, so that it can be killed: `python group_member.py CLIENT OPTIONS`.

It writes one JSON object per line: {"assigned": partitions} whenever it is given some, with the generation where the client
tells it, {"revoked": partitions} when they are taken away, {"record": [partition, offset]} for each record, which it commits,
{"refused": why} for a commit that is refused; each with the moment that it is said "at", by the machine's clock. Orders come
by lines of stdin: "stall", no more polls; "hold", no more commits; "go on". It ends, leaving the group, when stdin ends.

The programs of other languages (driver.py) do so, too, when the first line is {"op": "member"} with the OPTIONS in it; they
take no other orders and do not say when.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from typing import Any

POLL_S = 0.1
# kafka-python 3.0 loses an assignment whose SyncGroup is answered between two polls: it heartbeats on and never reads. So a
# poll has to outlast a rebalance.
KAFKA_PYTHON_POLL_S = 2.0
SERVER_SIDE = "server-side"  # the consumer protocol of KIP-848


def say(**what: Any) -> None:
    # One write per line: callbacks come from threads of the client's own.
    os.write(1, (json.dumps(what | {"at": time.monotonic()}) + "\n").encode())


class Orders:
    """What the test wants, said by lines of stdin; everything is over when that has ended."""

    def __init__(self) -> None:
        self.is_over = False
        self.is_stalled = False
        self.is_held = False
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            order = line.strip()
            self.is_stalled = order == "stall"
            self.is_held = order == "hold"
        self.is_over = True

    def go_on(self) -> bool:
        """Whether to poll once more, after a stall that was ordered."""
        while self.is_stalled and not self.is_over:
            time.sleep(POLL_S)
        return not self.is_over


def kafka_python(options: dict[str, Any], orders: Orders) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.errors import KafkaConnectionError, KafkaError

    assignors = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            say(revoked=[one.partition for one in revoked])

        def on_partitions_assigned(self, assigned: Any) -> None:
            say(assigned=[one.partition for one in assigned], generation=consumer.group_metadata().generation_id)

        def on_partitions_lost(self, lost: Any) -> None:
            say(revoked=[one.partition for one in lost])

    consumer = KafkaConsumer(
        bootstrap_servers=options["bootstrap"],
        group_id=options["group"],
        group_instance_id=options["instance"],
        session_timeout_ms=options["session_ms"],
        heartbeat_interval_ms=300,
        max_poll_interval_ms=options["max_poll_ms"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        metadata_max_age_ms=1000,
        partition_assignment_strategy=[assignors[options["assignor"]]],
    )
    consumer.subscribe([options["topic"]], listener=Listener())
    read: dict[Any, Any] = {}
    while orders.go_on():
        try:
            found = consumer.poll(timeout_ms=int(KAFKA_PYTHON_POLL_S * 1000))
        except KafkaConnectionError:
            continue  # no broker is left: one will be back
        for place, records in found.items():
            for record in records:
                say(record=[place.partition, record.offset])
                read[place] = OffsetAndMetadata(record.offset + 1, "", -1)
        if read and not orders.is_held:
            try:
                consumer.commit(read)
            except KafkaError as error:
                say(refused=type(error).__name__)
            read = {}
    consumer.close()


def confluent_kafka(options: dict[str, Any], orders: Orders) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    config = {
        "bootstrap.servers": options["bootstrap"],
        "group.id": options["group"],
        "session.timeout.ms": options["session_ms"],
        "max.poll.interval.ms": options["max_poll_ms"],
        "heartbeat.interval.ms": 300,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "topic.metadata.refresh.interval.ms": 1000,
        "partition.assignment.strategy": options["assignor"],
    }
    if options["instance"]:
        config["group.instance.id"] = options["instance"]
    if options["assignor"] == SERVER_SIDE:
        # The broker says what these are (KIP-848).
        for name in ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"):
            del config[name]
        config["group.protocol"] = "consumer"
    consumer = Consumer(config)
    consumer.subscribe(
        [options["topic"]],
        on_assign=lambda _, places: say(assigned=[one.partition for one in places]),
        on_revoke=lambda _, places: say(revoked=[one.partition for one in places]),
        on_lost=lambda _, places: say(revoked=[one.partition for one in places]),
    )
    read: dict[int, Any] = {}
    while orders.go_on():
        record = consumer.poll(POLL_S)
        if record is not None and record.error() is None:
            say(record=[record.partition(), record.offset()])
            read[record.partition()] = TopicPartition(record.topic(), record.partition(), record.offset() + 1)
        if read and not orders.is_held:
            try:
                consumer.commit(offsets=list(read.values()), asynchronous=False)
            except KafkaException as error:
                say(refused=error.args[0].name())
            read = {}
    consumer.close()


def aiokafka(options: dict[str, Any], orders: Orders) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from aiokafka.errors import KafkaError

    assignors = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            say(revoked=[one.partition for one in revoked])

        def on_partitions_assigned(self, assigned: Any) -> None:
            say(assigned=[one.partition for one in assigned])

    async def run() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=options["bootstrap"],
            group_id=options["group"],
            group_instance_id=options["instance"],
            session_timeout_ms=options["session_ms"],
            heartbeat_interval_ms=300,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            metadata_max_age_ms=1000,
            partition_assignment_strategy=[assignors[options["assignor"]]],
        )
        consumer.subscribe([options["topic"]], listener=Listener())
        await consumer.start()
        while orders.go_on():
            found = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
            for place, records in found.items():
                for record in records:
                    say(record=[place.partition, record.offset])
            if found:
                try:
                    await consumer.commit()
                except KafkaError as error:
                    say(refused=type(error).__name__)
        await consumer.stop()

    asyncio.run(run())


if __name__ == "__main__":
    play = {"kafka-python": kafka_python, "confluent-kafka": confluent_kafka, "aiokafka": aiokafka}[sys.argv[1]]
    play(json.loads(sys.argv[2]), Orders())
