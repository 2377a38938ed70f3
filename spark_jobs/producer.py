"""A producer on the driver, for records that Spark's sink cannot write as they were: with their timestamps.

It is Kafka's Java producer, idempotent and waiting for all replicas, driven from Python a record at a time.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from spark_jobs.errors import FAILED, JobError, explain
from spark_jobs.kafka import Kafka

if TYPE_CHECKING:
    from typing import Self

MAX_UNANSWERED = 1000


class DriverProducer:
    """Records arrive in the order of `send`. Leaving it waits for the answers; `sent` counts those that were acknowledged."""

    def __init__(self, kafka: Kafka, topic: str, compression: str | None) -> None:
        self._jvm = kafka.spark._jvm
        self._topic = topic
        self._unanswered: list[Any] = []
        self.sent = 0
        properties = self._jvm.java.util.HashMap()
        named = {"acks": "all", "linger.ms": "5", "compression.type": compression or "none"} | kafka.options
        for key, value in (named | {"bootstrap.servers": kafka.bootstrap_servers}).items():
            properties[key] = value
        serialization = self._jvm.org.apache.kafka.common.serialization
        self._producer = self._jvm.org.apache.kafka.clients.producer.KafkaProducer(
            properties, serialization.ByteArraySerializer(), serialization.ByteArraySerializer()
        )
        self._record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord
        self._header = self._jvm.org.apache.kafka.common.header.internals.RecordHeader

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        try:
            if kind is None:
                self._take_answers()
        finally:
            self._producer.close()

    def send(self, row: Any) -> None:
        """`row` has key, value, headers and timestamp_ms, and may have a partition."""
        fields = row.asDict()
        headers = [self._header(header["key"], header["value"]) for header in fields["headers"] or ()]
        record = self._record(
            self._topic, fields.get("partition"), fields["timestamp_ms"], fields["key"], fields["value"], headers or None
        )
        try:
            self._unanswered.append(self._producer.send(record))
        except Py4JJavaError as error:
            raise self._failed(error) from None
        if len(self._unanswered) >= MAX_UNANSWERED:
            self._take_answers()

    def _take_answers(self) -> None:
        self._producer.flush()
        for answer in self._unanswered:
            try:
                answer.get()
            except Py4JJavaError as error:
                raise self._failed(error) from None
            self.sent += 1
        self._unanswered.clear()

    def _failed(self, error: Py4JJavaError) -> JobError:
        return JobError(f"a record for {self._topic} was refused after {self.sent} were written: {explain(error)}", FAILED)
