"""Records through librdkafka, as an application writes and reads them: acknowledged by all replicas, read by a group."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

TIMEOUT_S: Final = 60.0


def produce(bootstrap: str, topic: str, values: Iterable[str], *, partition: int = 0, transactional_id: str = "") -> None:
    """Returns when every record is acknowledged, and the transaction, if it is one, is committed."""
    failures = []
    config: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 60_000}
    if transactional_id:
        config["transactional.id"] = transactional_id
    producer = Producer(config)
    if transactional_id:
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
    for value in values:
        producer.produce(
            topic, value.encode(), partition=partition, on_delivery=lambda error, _: failures.append(error) if error else None
        )
    if transactional_id:
        producer.commit_transaction(TIMEOUT_S)
    left = producer.flush(TIMEOUT_S)
    assert (left, failures) == (0, []), (left, [str(one) for one in failures])


def consume(bootstrap: str, topic: str, count: int, *, group: str) -> list[str]:
    """`count` records of the topic by a member of the group, which commits what it has read and leaves."""
    config: dict[str, str | int | float | bool] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(config)
    found: list[str] = []
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + TIMEOUT_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} records of {topic}: {found[-5:]}"
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                value = message.value()
                assert value is not None
                found.append(value.decode())
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def read(bootstrap: str, topic: str, count: int, *, partition: int = 0) -> list[str]:
    """The first `count` records of the partition, without a group."""
    config: dict[str, str | int | float | bool] = {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",  # whose coordinator may be gone
        "enable.auto.commit": False,
    }
    consumer = Consumer(config)
    found: list[str] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        deadline = time.monotonic() + TIMEOUT_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} records of {topic}: {found[-5:]}"
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                value = message.value()
                assert value is not None
                found.append(value.decode())
    finally:
        consumer.close()
    return found
