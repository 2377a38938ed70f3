"""Records in and out of a topic without Spark, by kafka-python: the second opinion."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

NOW_MS = 1_731_000_000_000


def produce(bootstrap: str, topic: str, rows: Iterable[dict[str, Any]]) -> None:
    """`rows` are keyword arguments of KafkaProducer.send."""
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    try:
        answers = [producer.send(topic, **row) for row in rows]
        producer.flush(30)
        for answer in answers:
            answer.get(timeout=30)
    finally:
        producer.close()


def json_rows(rows: Iterable[dict[str, Any]], key: str = "id", step_ms: int = 0) -> list[dict[str, Any]]:
    return [
        {"key": str(row[key]).encode(), "value": json.dumps(row).encode(), "timestamp_ms": NOW_MS + position * step_ms}
        for position, row in enumerate(rows)
    ]


def records(bootstrap: str, topic: str) -> list[Any]:
    """All there are, by partition and offset."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    try:
        partitions = [TopicPartition(topic, partition) for partition in consumer.partitions_for_topic(topic) or ()]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        found = []
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for batch in consumer.poll(timeout_ms=500).values():
                found += batch
        return sorted(found, key=lambda record: (record.partition, record.offset))
    finally:
        consumer.close()


def values(bootstrap: str, topic: str) -> list[Any]:
    return [json.loads(record.value) for record in records(bootstrap, topic)]
