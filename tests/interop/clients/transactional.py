"""Transactional producers of stock clients, and consumers that read what is committed, behind the same few verbs."""

from __future__ import annotations

import asyncio
import itertools
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import pytest
from interop.clients import programs
from interop.clients.driver import ClientError, Program

WAIT_S: Final = 30.0


class Producer(ABC):
    """Each step raises whatever the client raises when it fails."""

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, topic: str, value: bytes, partition: int = 0) -> None: ...

    @abstractmethod
    def offsets(self, topic: str, offset: int, group: str) -> None: ...

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...


class TransactionalClient(ABC):
    name = ""  # in TRANSACTIONAL

    @abstractmethod
    def producer(self, transactional_id: str) -> Producer:
        """One that has fenced all before it."""

    @abstractmethod
    def committed(self, topic: str, partition: int = 0) -> list[bytes]:
        """What a consumer with read_committed finds, up to the last stable offset of this moment."""

    def close(self) -> None:  # noqa: B027  (most have nothing to close)
        pass


# kafka-python


class KafkaPython(TransactionalClient):
    def __init__(self, bootstrap: str, _: Path) -> None:
        pytest.importorskip("kafka")
        self._bootstrap = bootstrap

    def producer(self, transactional_id: str) -> Producer:
        return _KafkaPythonProducer(self._bootstrap, transactional_id)

    def committed(self, topic: str, partition: int = 0) -> list[bytes]:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(bootstrap_servers=self._bootstrap, isolation_level="read_committed")
        place = TopicPartition(topic, partition)
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end = consumer.end_offsets([place])[place]
        values: list[bytes] = []
        while consumer.position(place) < end:
            values += [record.value for records in consumer.poll(1000).values() for record in records]
        consumer.close()
        return values


class _KafkaPythonProducer(Producer):
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        from kafka import KafkaProducer

        self._producer: Any = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._producer.send(topic, value, partition=partition).get(WAIT_S)

    def offsets(self, topic: str, offset: int, group: str) -> None:
        from kafka import OffsetAndMetadata, TopicPartition

        self._producer.send_offsets_to_transaction({TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}, group)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()


# confluent-kafka


class ConfluentKafka(TransactionalClient):
    def __init__(self, bootstrap: str, _: Path) -> None:
        pytest.importorskip("confluent_kafka")
        self._bootstrap = bootstrap

    def producer(self, transactional_id: str) -> Producer:
        return _ConfluentProducer(self._bootstrap, transactional_id)

    def committed(self, topic: str, partition: int = 0) -> list[bytes]:
        from confluent_kafka import Consumer, TopicPartition

        settings = {"bootstrap.servers": self._bootstrap, "group.id": "any", "isolation.level": "read_committed"}
        consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
        consumer.assign([TopicPartition(topic, partition, 0)])
        values: list[bytes] = []
        while True:
            record = consumer.poll(WAIT_S)
            assert record is not None, f"{topic} has no end"
            if record.error() is not None:
                break  # the end of the partition
            values.append(record.value())
        consumer.close()
        return values


class _ConfluentProducer(Producer):
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        from confluent_kafka import Producer as Client

        self._bootstrap = bootstrap
        self._producer = Client({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0})
        self._producer.init_transactions(WAIT_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        failures: list[Any] = []
        self._producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: failures.append(error))
        assert self._producer.flush(WAIT_S) == 0
        if failures[0] is not None:
            raise ClientError(failures[0].code(), failures[0].str())

    def offsets(self, topic: str, offset: int, group: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        metadata = consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction([TopicPartition(topic, 0, offset)], metadata, WAIT_S)
        consumer.close()

    def commit(self) -> None:
        self._producer.commit_transaction(WAIT_S)

    def abort(self) -> None:
        self._producer.abort_transaction(WAIT_S)


# aiokafka


class AioKafka(TransactionalClient):
    def __init__(self, bootstrap: str, _: Path) -> None:
        pytest.importorskip("aiokafka")
        self._bootstrap = bootstrap
        self._loop = asyncio.new_event_loop()
        self._open: list[Any] = []

    def _run(self, step: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(step, WAIT_S))

    def producer(self, transactional_id: str) -> Producer:
        from aiokafka import AIOKafkaProducer

        async def start() -> Any:
            producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap, transactional_id=transactional_id)
            self._open.append(producer)
            await producer.start()
            return producer

        return _AioKafkaProducer(self._run, self._run(start()))

    def committed(self, topic: str, partition: int = 0) -> list[bytes]:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        async def read() -> list[bytes]:
            consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, isolation_level="read_committed")
            await consumer.start()
            place = TopicPartition(topic, partition)
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            end = (await consumer.end_offsets([place]))[place]
            values: list[bytes] = []
            while await consumer.position(place) < end:
                found = await consumer.getmany(place, timeout_ms=1000)
                values += [record.value for records in found.values() for record in records]
            await consumer.stop()
            return values

        values: list[bytes] = self._run(read())
        return values

    def close(self) -> None:
        for producer in self._open:
            producer._closed = True  # without the end of an open transaction that `stop` waits for
            self._run(producer._sender.close())
            self._run(producer.client.close())
        self._loop.close()


class _AioKafkaProducer(Producer):
    def __init__(self, run: Callable[[Coroutine[Any, Any, Any]], Any], producer: Any) -> None:
        self._run = run
        self._producer = producer

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._run(self._producer.send_and_wait(topic, value, partition=partition))

    def offsets(self, topic: str, offset: int, group: str) -> None:
        from aiokafka import TopicPartition

        self._run(self._producer.send_offsets_to_transaction({TopicPartition(topic, 0): offset}, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())


# Java


class Java(TransactionalClient):
    def __init__(self, bootstrap: str, directory: Path) -> None:
        program = programs.java_4(bootstrap, directory)
        assert isinstance(program, Program)
        self._program = program
        self._names = map(str, itertools.count())

    def producer(self, transactional_id: str) -> Producer:
        return _JavaProducer(self._program, next(self._names), transactional_id)

    def committed(self, topic: str, partition: int = 0) -> list[bytes]:
        return [b64decode(value) for value in self._program.call("read_committed", topic=topic, partition=partition)]

    def close(self) -> None:
        self._program.close()


class _JavaProducer(Producer):
    def __init__(self, program: Program, name: str, transactional_id: str) -> None:
        self._program = program
        self._name = name
        self._step("init", id=transactional_id)

    def _step(self, step: str, **fields: Any) -> None:
        self._program.call("transaction", producer=self._name, step=step, **fields)

    def begin(self) -> None:
        self._step("begin")

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._step("send", topic=topic, partition=partition, value=b64encode(value).decode())

    def offsets(self, topic: str, offset: int, group: str) -> None:
        self._step("offsets", topic=topic, offset=offset, group=group)

    def commit(self) -> None:
        self._step("commit")

    def abort(self) -> None:
        self._step("abort")


TRANSACTIONAL: Final[dict[str, Callable[[str, Path], TransactionalClient]]] = {
    "kafka-python": KafkaPython,
    "confluent-kafka": ConfluentKafka,
    "aiokafka": AioKafka,
    "Java": Java,
}
