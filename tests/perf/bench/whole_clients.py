"""Whole clients as workloads: librdkafka through confluent-kafka, and the Java producer by Kafka's own ProducerPerformance."""

from __future__ import annotations

import re
import subprocess
import time
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from interop.apache_kafka import jars

PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
_TIMEOUT_S = 120.0
_SUMMARY = re.compile(
    r"^(?P<records>\d+) records sent, (?P<rate>[\d.]+) records/sec .*?"
    r"(?P<p50>\d+) ms 50th, \d+ ms 95th, (?P<p99>\d+) ms 99th, \d+ ms 99\.9th\.",
    re.MULTILINE,
)


class JavaRun(NamedTuple):
    records_per_s: float
    p50_ms: float
    p99_ms: float


def confluent_produce(address: str, topic: str, value: bytes, records: int) -> float:
    """Seconds until librdkafka's producer, at its defaults, has every record acknowledged."""
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer({"bootstrap.servers": address, "enable.metrics.push": False})
    began = time.monotonic()
    for _ in range(records):
        while True:
            try:
                producer.produce(topic, value, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
    left = producer.flush(_TIMEOUT_S)
    assert not left, f"{left} of {records} records are still unsent after {_TIMEOUT_S} s"
    assert not refused, f"{len(refused)} of {records} records were refused: {refused[0]}"
    return time.monotonic() - began


def confluent_consume(address: str, topic: str, records: int) -> float:
    """Seconds until librdkafka's consumer, at its defaults, has read `records` of partition 0 from the start."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False, "enable.metrics.push": False}
    )
    try:
        began = time.monotonic()
        consumer.assign([TopicPartition(topic, 0, 0)])
        next_offset = 0
        while next_offset < records:
            found = consumer.consume(10_000, 5.0)
            assert found, f"nothing after offset {next_offset} of {records}"
            for message in (found[0], found[-1]):
                assert message.error() is None, message.error()
            assert found[0].offset() == next_offset, f"offset {found[0].offset()}, expected {next_offset}"
            next_offset += len(found)
        return time.monotonic() - began
    finally:
        consumer.close()


def java_produce(address: str, topic: str, record_bytes: int, records: int) -> JavaRun:
    """kafka-producer-perf-test at the Java producer's defaults (idempotent, acks=all, 16 KiB batches)."""
    command = (
        *("java", "-Xmx512m", "-cp", f"{jars()}/*", PRODUCER_PERFORMANCE, "--bootstrap-server", address, "--topic", topic),
        *("--num-records", str(records), "--record-size", str(record_bytes), "--throughput", "-1"),
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    assert done.returncode == 0, f"{PRODUCER_PERFORMANCE}:\n{done.stdout}{done.stderr}"
    found = java_summary(done.stdout)
    assert found is not None, f"{PRODUCER_PERFORMANCE} ends without its summary:\n{done.stdout}"
    return found


def java_summary(text: str) -> JavaRun | None:
    """The last line of ProducerPerformance; None if it is not there."""
    found = _SUMMARY.search(text)
    return None if found is None else JavaRun(float(found["rate"]), float(found["p50"]), float(found["p99"]))
