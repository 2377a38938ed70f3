"""aiokafka, on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError
from interop.clients.driver import EARLIEST, LATEST, OP_S, Acked, Client, ClientError, Message, TopicSeen

from pybroker.protocol.records.record import Record

T = TypeVar("T")

_NO_CODE = -1001


class AioKafka(Client):
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka", daemon=True)
        self._thread.start()
        self._admin = self._run(self._started_admin())

    async def _started_admin(self) -> Any:
        client = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await client.start()
        return client

    def close(self) -> None:
        self._run(self._admin.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(OP_S)
        self._loop.close()

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        wanted = NewTopic(topic, partitions, 1, topic_configs=dict(configs or {}))
        _check((row[0], *row[1:]) for row in self._run(self._admin.create_topics([wanted])).topic_errors)

    def delete_topic(self, topic: str) -> None:
        _check(self._run(self._admin.delete_topics([topic])).topic_error_codes)

    def create_partitions(self, topic: str, count: int) -> None:
        _check(self._run(self._admin.create_partitions({topic: NewPartitions(count)})).topic_errors)

    def list_topics(self) -> dict[str, int]:
        return {row["topic"]: len(row["partitions"]) for row in self._run(self._admin.describe_topics())}

    def describe_topic(self, topic: str) -> TopicSeen:
        (found,) = self._run(self._admin.describe_topics([topic]))
        _check([(topic, found["error_code"])])
        return TopicSeen(
            {row["partition"]: (row["leader"], tuple(row["replicas"]), tuple(row["isr"])) for row in found["partitions"]}
        )

    def describe_configs(self, resource_type: int, name: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType(resource_type), name)
        (answer,) = self._run(self._admin.describe_configs([resource]))
        ((code, message, _, _, rows),) = answer.resources
        _check([(name, code, message)])
        return {row[0]: row[1] for row in rows}

    def alter_config(self, resource_type: int, name: str, key: str, value: str | None) -> None:
        # AlterConfigs, the old way: what is not named falls back to its default.
        configs = {} if value is None else {key: value}
        resource = ConfigResource(ConfigResourceType(resource_type), name, configs)
        (answer,) = self._run(self._admin.alter_configs([resource]))
        _check((row[3], *row[:2]) for row in answer.resources)

    def delete_records(self, topic: str, before_offset: int, partition: int = 0) -> int:
        place = TopicPartition(topic, partition)
        return int(self._run(self._admin.delete_records({place: RecordsToDelete(before_offset)}))[place])

    def list_offset(self, topic: str, at: int, partition: int = 0) -> int:
        return self._run(self._list_offset(TopicPartition(topic, partition), at))

    async def _list_offset(self, place: TopicPartition, at: int) -> int:
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, enable_auto_commit=False)
        await consumer.start()
        try:
            if at == EARLIEST:
                return int((await consumer.beginning_offsets([place]))[place])
            if at == LATEST:
                return int((await consumer.end_offsets([place]))[place])
            found = (await consumer.offsets_for_times({place: at}))[place]
            return -1 if found is None else int(found.offset)
        finally:
            await consumer.stop()

    def produce(self, topic: str, messages: Sequence[Message], **settings: Any) -> list[Acked]:
        return self._run(self._produce(topic, messages, **settings))

    async def _produce(
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
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks=acks,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=linger_ms,
            request_timeout_ms=patience_ms,
            max_request_size=100_000_000,
        )
        await producer.start()
        try:
            sent = [
                await producer.send(
                    topic, message.value, message.key, message.partition, message.timestamp, list(message.headers)
                )
                for message in messages
            ]
            await producer.flush()
            done = await asyncio.gather(*sent, return_exceptions=True)
            return [_acked(one, message) for one, message in zip(done, messages, strict=True)]
        except KafkaError as error:
            return [Acked(-1, -1, _code(error))] * len(messages)
        finally:
            await producer.stop()

    def tail(self, topic: str, at: int, count: int, *, partition: int = 0, max_wait_ms: int = 500) -> Iterator[Record]:
        place = TopicPartition(topic, partition)
        consumer = self._run(self._consumer(place, at, max_wait_ms))
        try:
            for _ in range(count):
                found = self._run(consumer.getone(place))
                yield Record(found.offset, found.timestamp, found.key, found.value, tuple(found.headers))
        finally:
            self._run(consumer.stop())

    async def _consumer(self, place: TopicPartition, at: int, max_wait_ms: int) -> Any:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            enable_auto_commit=False,
            fetch_max_wait_ms=max_wait_ms,
            request_timeout_ms=max_wait_ms + 30_000,
            auto_offset_reset="none",
        )
        await consumer.start()
        consumer.assign([place])
        if at == EARLIEST:
            await consumer.seek_to_beginning(place)
        elif at == LATEST:
            await consumer.seek_to_end(place)
        else:
            consumer.seek(place, at)
        return consumer

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(OP_S)
        except KafkaError as error:
            raise ClientError(_code(error), repr(error)) from error


def _acked(done: Any, message: Message) -> Acked:
    if isinstance(done, KafkaError):
        return Acked(-1 if message.partition is None else message.partition, -1, _code(done))
    if isinstance(done, BaseException):
        raise done
    return Acked(message.partition or 0, -1) if done is None else Acked(done.partition, done.offset)


def _check(rows: Any) -> None:
    for name, code, *message in rows:
        if code:
            raise ClientError(code, f"{name}: {message}")


def _code(error: KafkaError) -> int:
    code = getattr(error, "errno", None)
    return _NO_CODE if code is None else int(code)
