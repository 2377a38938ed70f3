"""kafka-python."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from interop.clients.driver import EARLIEST, LATEST, OP_S, Acked, Client, ClientError, Message, TopicSeen
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import AlterConfigOp, ConfigFilterType, ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import KafkaError, for_code

from pybroker.protocol.records.record import Record

T = TypeVar("T")

_RESOURCES = {2: ConfigResourceType.TOPIC, 4: ConfigResourceType.BROKER}
_TIMED_OUT = -1001  # kafka-python's own, which has no code


class KafkaPython(Client):
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def close(self) -> None:
        self._admin.close()

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(configs or {})}
        _run(lambda: self._admin.create_topics({topic: wanted}))

    def delete_topic(self, topic: str) -> None:
        _run(lambda: self._admin.delete_topics([topic]))

    def create_partitions(self, topic: str, count: int) -> None:
        _run(lambda: self._admin.create_partitions({topic: count}))

    def list_topics(self) -> dict[str, int]:
        return {row["name"]: len(row["partitions"]) for row in _run(self._admin.describe_topics)}

    def describe_topic(self, topic: str) -> TopicSeen:
        (found,) = _run(lambda: self._admin.describe_topics([topic]))
        if found["error_code"]:
            raise _client_error(for_code(found["error_code"])())
        return TopicSeen(
            {
                row["partition_index"]: (row["leader_id"], tuple(row["replica_nodes"]), tuple(row["isr_nodes"]))
                for row in found["partitions"]
            }
        )

    def describe_configs(self, resource_type: int, name: str) -> dict[str, str | None]:
        resource = ConfigResource(_RESOURCES[resource_type], name)
        found = _run(lambda: self._admin.describe_configs([resource], config_filter=ConfigFilterType.ALL))
        return {key: row["value"] for key, row in found[_RESOURCES[resource_type].name.lower()][name].items()}

    def alter_config(self, resource_type: int, name: str, key: str, value: str | None) -> None:
        operation = AlterConfigOp.DELETE if value is None else AlterConfigOp.SET
        resource = ConfigResource(_RESOURCES[resource_type], name, {key: (operation, value)})
        answer = _run(lambda: self._admin.alter_configs([resource], raise_on_unknown=False))
        outcome = answer[_RESOURCES[resource_type].name.lower()][name]
        if outcome != "OK":
            raise ClientError(_code_in(str(outcome)), str(outcome))

    def delete_records(self, topic: str, before_offset: int, partition: int = 0) -> int:
        place = TopicPartition(topic, partition)
        return int(_run(lambda: self._admin.delete_records({place: before_offset}))[place]["low_watermark"])

    def list_offset(self, topic: str, at: int, partition: int = 0) -> int:
        place = TopicPartition(topic, partition)
        return int(_run(lambda: self._admin.list_partition_offsets({place: at}))[place].offset)

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
        producer = KafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks=acks,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=linger_ms,
            allow_auto_create_topics=auto_create,
            max_block_ms=patience_ms,
            delivery_timeout_ms=max(patience_ms, 30_000 + linger_ms),
            max_request_size=100_000_000,
        )
        try:
            sent = []
            for message in messages:
                future = producer.send(
                    topic, message.value, message.key, list(message.headers), message.partition, message.timestamp
                )
                sent.append(future)
            producer.flush(OP_S)
            return [_acked(future, message) for future, message in zip(sent, messages, strict=True)]
        except KafkaError as error:
            return [Acked(-1, -1, _client_error(error).code)] * len(messages)
        finally:
            producer.close()

    def tail(self, topic: str, at: int, count: int, *, partition: int = 0, max_wait_ms: int = 500) -> Iterator[Record]:
        place = TopicPartition(topic, partition)
        consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            enable_auto_commit=False,
            fetch_max_wait_ms=max_wait_ms,
            auto_offset_reset="none",
            consumer_timeout_ms=OP_S * 1000,
            request_timeout_ms=max_wait_ms + 30_000,
        )
        try:
            consumer.assign([place])
            if at == EARLIEST:
                consumer.seek_to_beginning(place)
            elif at == LATEST:
                consumer.seek_to_end(place)
            else:
                consumer.seek(place, at)
            for _ in range(count):
                try:
                    found = next(consumer)
                except KafkaError as error:
                    raise _client_error(error) from error
                yield Record(found.offset, found.timestamp, found.key, found.value, tuple(found.headers))
        finally:
            consumer.close()


def _acked(future: Any, message: Message) -> Acked:
    try:
        sent = future.get(OP_S)
    except KafkaError as error:
        return Acked(-1 if message.partition is None else message.partition, -1, _client_error(error).code)
    return Acked(sent.partition, sent.offset)


def _run(call: Callable[[], T]) -> T:
    try:
        return call()
    except KafkaError as error:
        raise _client_error(error) from error


def _client_error(error: KafkaError) -> ClientError:
    code = getattr(error, "errno", None)
    return ClientError(_TIMED_OUT if code is None else code, repr(error))


def _code_in(outcome: str) -> int:
    found = re.match(r"\[Error (\d+)\]", outcome)
    assert found is not None, outcome
    return int(found[1])
