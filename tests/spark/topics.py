"""Records in and out of a topic without Spark, by kafka-python: the second opinion. And what clients do not see: batches."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from interop.broker_process import ask
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pybroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pybroker.protocol.messages.offsets import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pybroker.protocol.records.batch import iter_batches

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


def codecs(bootstrap: str, topic: str, partition: int) -> set[str]:
    """Of the batches, by their attributes."""
    row = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=8 << 20)
    topics = [FetchTopic(topic=topic, partitions=[row])]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics, forgotten_topics_data=[])
    found = _ask_leader(bootstrap, topic, partition, request, version=12).responses[0].partitions[0]
    assert found.error_code == ErrorCode.NONE, found
    return {batch.codec.name.lower() for batch in iter_batches(found.records or b"")}


def delete_before(bootstrap: str, topic: str, partition: int, offset: int) -> None:
    """The partition's log starts there from then on."""
    rows = [DeleteRecordsPartition(partition_index=partition, offset=offset)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=rows)], timeout_ms=30_000)
    done = _ask_leader(bootstrap, topic, partition, request).topics[0].partitions[0]
    assert (done.error_code, done.low_watermark) == (ErrorCode.NONE, offset), done


def _ask_leader(bootstrap: str, topic: str, partition: int, request: Message, version: int | None = None) -> Any:
    found = ask(bootstrap, MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
    leader = next(row.leader_id for row in found.topics[0].partitions if row.partition_index == partition)
    address = next(f"{row.host}:{row.port}" for row in found.brokers if row.node_id == leader)
    return ask(address, request, version)
