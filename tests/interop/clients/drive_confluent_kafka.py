"""confluent-kafka, that is librdkafka."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from interop.clients.driver import EARLIEST, LATEST, OP_S, Acked, Client, ClientError, Message, TopicSeen

from pybroker.protocol.records.record import NO_HEADERS, Record

ck: Any = pytest.importorskip("confluent_kafka")
admin: Any = pytest.importorskip("confluent_kafka.admin")

_RESOURCES = {2: admin.ResourceType.TOPIC, 4: admin.ResourceType.BROKER}
_QUIET = {"log_level": 0}


class ConfluentKafka(Client):
    def __init__(self, bootstrap: str) -> None:
        self._common: dict[str, Any] = {"bootstrap.servers": bootstrap, **_QUIET}
        self._admin = admin.AdminClient(self._common)

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        wanted = admin.NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(configs or {}))
        _result(self._admin.create_topics([wanted], operation_timeout=OP_S)[topic])

    def delete_topic(self, topic: str) -> None:
        _result(self._admin.delete_topics([topic], operation_timeout=OP_S)[topic])

    def create_partitions(self, topic: str, count: int) -> None:
        _result(self._admin.create_partitions([admin.NewPartitions(topic, count)], operation_timeout=OP_S)[topic])

    def list_topics(self) -> dict[str, int]:
        return {name: len(topic.partitions) for name, topic in self._admin.list_topics(timeout=OP_S).topics.items()}

    def describe_topic(self, topic: str) -> TopicSeen:
        found = _result(self._admin.describe_topics(ck.TopicCollection([topic]))[topic])
        return TopicSeen(
            {
                row.id: (row.leader.id, tuple(node.id for node in row.replicas), tuple(node.id for node in row.isr))
                for row in found.partitions
            }
        )

    def describe_configs(self, resource_type: int, name: str) -> dict[str, str | None]:
        resource = admin.ConfigResource(_RESOURCES[resource_type], name)
        return {key: entry.value for key, entry in _result(self._admin.describe_configs([resource])[resource]).items()}

    def alter_config(self, resource_type: int, name: str, key: str, value: str | None) -> None:
        operation = admin.AlterConfigOpType.DELETE if value is None else admin.AlterConfigOpType.SET
        entry = admin.ConfigEntry(key, value, incremental_operation=operation)
        resource = admin.ConfigResource(_RESOURCES[resource_type], name, incremental_configs=[entry])
        _result(self._admin.incremental_alter_configs([resource])[resource])

    def delete_records(self, topic: str, before_offset: int, partition: int = 0) -> int:
        place = ck.TopicPartition(topic, partition, before_offset)
        return int(_result(self._admin.delete_records([place])[place]).low_watermark)

    def list_offset(self, topic: str, at: int, partition: int = 0) -> int:
        ends = {LATEST: admin.OffsetSpec.latest(), EARLIEST: admin.OffsetSpec.earliest()}
        spec = ends[at] if at in ends else admin.OffsetSpec.for_timestamp(at)
        place = ck.TopicPartition(topic, partition)
        return int(_result(self._admin.list_offsets({place: spec})[place]).offset)

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        acks: int = -1,
        codec: str = "none",
        idempotent: bool = False,
        linger_ms: int = 0,
        auto_create: bool = True,
        patience_ms: int = 30_000,
    ) -> list[Acked]:
        producer = ck.Producer(
            {
                **self._common,
                "acks": acks,
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "linger.ms": linger_ms,
                "allow.auto.create.topics": auto_create,
                "message.timeout.ms": patience_ms,
                "topic.metadata.propagation.max.ms": patience_ms,
                "message.max.bytes": 100_000_000,
            }
        )
        acked: list[Acked | None] = [None] * len(messages)
        for index, message in enumerate(messages):

            def delivered(error: Any, sent: Any, index: int = index) -> None:
                offset = sent.offset()
                code = None if error is None else error.code()
                acked[index] = Acked(sent.partition(), -1 if offset is None else offset, code)

            producer.produce(
                topic,
                message.value,
                message.key,
                partition=-1 if message.partition is None else message.partition,
                on_delivery=delivered,
                timestamp=message.timestamp or 0,
                headers=list(message.headers),
            )
            producer.poll(0)
        assert producer.flush(OP_S) == 0, "librdkafka has records left"
        return [one for one in acked if one is not None]

    def tail(self, topic: str, at: int, count: int, *, partition: int = 0, max_wait_ms: int = 500) -> Iterator[Record]:
        consumer = ck.Consumer(
            {
                **self._common,
                "group.id": "unused",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": max_wait_ms,
                "socket.timeout.ms": max_wait_ms + 30_000,
                "fetch.error.backoff.ms": 0,
                "auto.offset.reset": "error",
            }
        )
        try:
            consumer.assign([ck.TopicPartition(topic, partition, at)])
            for _ in range(count):
                found = consumer.poll(OP_S)
                if found is None:
                    raise TimeoutError(f"no record of {topic} in {OP_S} s")
                if found.error():
                    raise ClientError(found.error().code(), found.error().str())
                headers = tuple((name, value) for name, value in found.headers() or NO_HEADERS)
                yield Record(found.offset(), found.timestamp()[1], found.key(), found.value(), headers)
        finally:
            consumer.close()


def _result(future: Any) -> Any:
    try:
        return future.result(OP_S)
    except ck.KafkaException as error:
        raise ClientError(error.args[0].code(), error.args[0].str()) from None


assert ck.OFFSET_BEGINNING == EARLIEST
assert ck.OFFSET_END == LATEST
