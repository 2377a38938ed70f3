"""Stock clients around a broker, in terms of our `Record`: what was produced, what a consumer sees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from interop.broker_process import BrokerProcess

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pybroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pybroker.protocol.records.batch import iter_batches
from pybroker.protocol.records.record import NO_HEADERS, Headers, Record

confluent_kafka: Any = pytest.importorskip("confluent_kafka")
kafka: Any = pytest.importorskip("kafka")

WAIT_S = 30.0
QUIET = {"log_level": 0}  # else librdkafka tells stderr of every broker that a test stops


class Row(NamedTuple):
    """A record before it has an offset."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = NO_HEADERS


def rows(count: int, timestamp: int, *, size: int = 40, start: int = 0) -> list[Row]:
    """`count` rows, a millisecond apart, among them null keys, null and empty values, and headers.

    Apache Kafka rolls and deletes by the records' timestamps, so let them be of today.
    """
    made = []
    for index in range(start, start + count):
        key = None if index % 7 == 3 else b"key-%d" % (index % 50)
        value = None if index % 11 == 5 else b"" if index % 13 == 6 else (b"value %d " % index * size)[:size]
        headers: Headers = (("n", b"%d" % index), ("empty", b""), ("null", None)) if index % 5 == 0 else NO_HEADERS
        made.append(Row(timestamp + index, key, value, headers))
    return made


class Producer:
    """confluent-kafka's producer; `sent` has every record with its offset and timestamp as the broker acknowledged it."""

    def __init__(self, broker: BrokerProcess, topic: str, partition: int = 0, **settings: Any) -> None:
        config = {key.replace("_", "."): value for key, value in settings.items()}
        self._producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, **QUIET, **config})
        self._topic = topic
        self._partition = partition
        self.sent: list[Record] = []
        if "transactional.id" in config:
            self._producer.init_transactions(WAIT_S)

    def send(self, batch: Iterable[Row]) -> list[Record]:
        """Produce and wait for the acknowledgements."""
        sent: list[Record] = []
        problems: list[Any] = []

        def send_one(row: Row) -> None:
            def delivered(error: Any, message: Any) -> None:
                if error is None:
                    sent.append(Record(message.offset(), message.timestamp()[1], row.key, row.value, row.headers))
                else:
                    problems.append(error)

            self._producer.produce(
                self._topic,
                key=row.key,
                value=row.value,
                headers=list(row.headers),
                partition=self._partition,
                timestamp=row.timestamp,
                on_delivery=delivered,
            )

        for row in batch:
            send_one(row)
        left = self._producer.flush(WAIT_S)
        assert not problems, problems
        assert left == 0, f"{left} records not acknowledged"
        self.sent += sorted(sent)
        return sorted(sent)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def commit(self) -> None:
        self._producer.commit_transaction(WAIT_S)

    def abort(self) -> None:
        self._producer.abort_transaction(WAIT_S)


@contextmanager
def transaction(producer: Producer, *, abort: bool = False) -> Iterator[Producer]:
    producer.begin()
    yield producer
    if abort:
        producer.abort()
    else:
        producer.commit()


def consume(broker: BrokerProcess, topic: str, partition: int = 0, *, committed: bool = False) -> list[Record]:
    """Everything that a confluent-kafka consumer sees from the beginning to the end."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "none",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 20,
            "check.crcs": True,
            **QUIET,
        }
    )
    try:
        # Left to find the beginning itself, it takes half a second.
        beginning = broker.list_offset(topic, -2, partition)[0]
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, beginning)])
        found: list[Record] = []
        while True:
            message = consumer.poll(WAIT_S)
            assert message is not None, f"neither a record nor the end of {topic}-{partition} after {len(found)} records"
            if message.error() is None:
                headers = tuple((name, value) for name, value in message.headers() or ())
                found.append(Record(message.offset(), message.timestamp()[1], message.key(), message.value(), headers))
            elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                return found
            else:
                raise AssertionError(message.error())
    finally:
        consumer.close()


def consume_with_kafka_python(
    broker: BrokerProcess, topic: str, partition: int = 0, *, committed: bool = False
) -> list[Record]:
    """The same with kafka-python's consumer."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        isolation_level="read_committed" if committed else "read_uncommitted",
        enable_auto_commit=False,
        check_crcs=True,
        fetch_max_wait_ms=20,
    )
    try:
        place = kafka.TopicPartition(topic, partition)
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end = consumer.end_offsets([place])[place]
        found: list[Record] = []
        while consumer.position(place) < end:
            for record in consumer.poll(timeout_ms=500).get(place, ()):
                headers = tuple((name, value) for name, value in record.headers)
                found.append(Record(record.offset, record.timestamp, record.key, record.value, headers))
        return found
    finally:
        consumer.close()


def topic_id(broker: BrokerProcess, topic: str) -> Uuid:
    (found,) = broker.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)])).topics
    assert found.error_code == ErrorCode.NONE, found
    assert found.topic_id != ZERO_UUID
    return Uuid(bytes(found.topic_id))


def fetch_bytes(broker: BrokerProcess, topic: str, partition: int = 0, *, start: int | None = None) -> bytes:
    """The batches that the broker serves from `start`, or the log's start, to the high watermark, as it sends them."""
    offset = broker.list_offset(topic, -2, partition)[0] if start is None else start
    wanted = topic_id(broker, topic)
    parts = []
    while True:
        row = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=8 << 20)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=8 << 20,
            topics=[FetchTopic(topic_id=wanted, partitions=[row])],
            forgotten_topics_data=[],
        )
        answer = broker.ask(request)
        assert answer.error_code == ErrorCode.NONE, answer
        found = answer.responses[0].partitions[0]
        assert found.error_code == ErrorCode.NONE, found
        batches = list(iter_batches(found.records or b""))
        if batches:
            parts.append(bytes(batches[-1].buffer[: batches[-1].end]))
            offset = batches[-1].next_offset
        if offset >= found.high_watermark:
            return b"".join(parts)
        assert batches, f"nothing at offset {offset}, below the high watermark {found.high_watermark}"


def without_aborted(records: Sequence[Record], aborted: Iterable[Record]) -> list[Record]:
    gone = {record.offset for record in aborted}
    return [record for record in records if record.offset not in gone]
