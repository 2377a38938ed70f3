"""The verbs that every client under test is given, so that a scenario is written once and played by all of them.

A Python client fills them in directly (drive_*.py). A client of another language is a small program that reads one JSON
object per line ({"op": "produce", …}) and writes one ({"ok": …}, or {"error": Kafka's error code, "message": …}); `Program`
speaks to it. Bytes are base64 there. `tail` alone has more lines of answer: {"event": record} for each record.
"""

from __future__ import annotations

import json
import subprocess
import threading
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from pybroker.protocol.records.record import NO_HEADERS, Headers, Record

EARLIEST = -2
LATEST = -1
OP_S = 60.0


@dataclass(slots=True, frozen=True)
class Message:
    """A record to produce; without a partition the client's own partitioner picks one."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = NO_HEADERS
    timestamp: int | None = None
    partition: int | None = 0


class Acked(NamedTuple):
    """Where a record went; offset -1 if the client does not learn it (acks=0). `error` is Kafka's code, or none."""

    partition: int
    offset: int
    error: int | None = None


class TopicSeen(NamedTuple):
    """A topic as a client describes it: leader, replicas, in-sync replicas by partition."""

    partitions: Mapping[int, tuple[int, tuple[int, ...], tuple[int, ...]]]


class ClientError(Exception):
    """What the client says went wrong, with Kafka's error code; below -1 where the error is the client's own."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Client(ABC):
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027  (most have nothing to close)
        pass

    @abstractmethod
    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None: ...

    @abstractmethod
    def delete_topic(self, topic: str) -> None: ...

    @abstractmethod
    def create_partitions(self, topic: str, count: int) -> None: ...

    @abstractmethod
    def list_topics(self) -> dict[str, int]:
        """All topics with their numbers of partitions."""

    @abstractmethod
    def describe_topic(self, topic: str) -> TopicSeen: ...

    @abstractmethod
    def describe_configs(self, resource_type: int, name: str) -> dict[str, str | None]: ...

    @abstractmethod
    def alter_config(self, resource_type: int, name: str, key: str, value: str | None) -> None:
        """None takes the key back to its default."""

    @abstractmethod
    def delete_records(self, topic: str, before_offset: int, partition: int = 0) -> int:
        """The new low watermark; -1 where the client does not tell."""

    @abstractmethod
    def list_offset(self, topic: str, at: int, partition: int = 0) -> int:
        """The offset for a time, for EARLIEST or LATEST; -1 for a time after the last record."""

    @abstractmethod
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
        """In the order of `messages`. The client's own limit of a request is out of the way. `auto_create` is what the client
        tells the broker, where it can; `patience_ms` is how long it tries."""

    @abstractmethod
    def tail(self, topic: str, at: int, count: int, *, partition: int = 0, max_wait_ms: int = 500) -> Iterator[Record]:
        """`count` records from `at` on (an offset, EARLIEST or LATEST), each as soon as the client hands it over; the
        broker may hold an empty fetch for `max_wait_ms`."""

    def consume(self, topic: str, at: int, count: int, *, partition: int = 0) -> list[Record]:
        return list(self.tail(topic, at, count, partition=partition))


class Program(Client):
    """A client in a process of its own, started with the bootstrap address as its only argument."""

    def __init__(self, command: Iterable[str], bootstrap: str, errors: Path) -> None:
        self._errors = errors
        with errors.open("wb") as stderr:
            self._process = subprocess.Popen(
                [*command, bootstrap], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True, encoding="utf-8"
            )

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        self._ask("create_topic", topic=topic, partitions=partitions, configs=dict(configs or {}))

    def delete_topic(self, topic: str) -> None:
        self._ask("delete_topic", topic=topic)

    def create_partitions(self, topic: str, count: int) -> None:
        self._ask("create_partitions", topic=topic, count=count)

    def list_topics(self) -> dict[str, int]:
        return dict(self._ask("list_topics"))

    def describe_topic(self, topic: str) -> TopicSeen:
        rows = self._ask("describe_topic", topic=topic)
        return TopicSeen({index: (leader, tuple(replicas), tuple(isr)) for index, leader, replicas, isr in rows})

    def describe_configs(self, resource_type: int, name: str) -> dict[str, str | None]:
        return dict(self._ask("describe_configs", type=resource_type, name=name))

    def alter_config(self, resource_type: int, name: str, key: str, value: str | None) -> None:
        self._ask("alter_config", type=resource_type, name=name, key=key, value=value)

    def delete_records(self, topic: str, before_offset: int, partition: int = 0) -> int:
        return int(self._ask("delete_records", topic=topic, partition=partition, offset=before_offset))

    def list_offset(self, topic: str, at: int, partition: int = 0) -> int:
        return int(self._ask("list_offset", topic=topic, partition=partition, at=at))

    def produce(self, topic: str, messages: Sequence[Message], **settings: Any) -> list[Acked]:
        rows = [
            {
                "key": _text(message.key),
                "value": _text(message.value),
                "headers": [{"key": name, "value": _text(value)} for name, value in message.headers],
                "timestamp": message.timestamp,
                "partition": message.partition,
            }
            for message in messages
        ]
        defaults = {
            "acks": -1,
            "codec": "none",
            "idempotent": False,
            "linger_ms": 0,
            "auto_create": True,
            "patience_ms": 30_000,
        }
        answers = self._ask("produce", topic=topic, messages=rows, **(defaults | settings))
        return [Acked(row["partition"], row["offset"], row.get("error")) for row in answers]

    def tail(self, topic: str, at: int, count: int, *, partition: int = 0, max_wait_ms: int = 500) -> Iterator[Record]:
        self._send({"op": "tail", "topic": topic, "partition": partition, "at": at, "count": count, "max_wait_ms": max_wait_ms})
        for _ in range(count):
            row = self._answer()["event"]
            headers = tuple((header["key"], _bytes(header["value"])) for header in row["headers"])
            yield Record(row["offset"], row["timestamp"], _bytes(row["key"]), _bytes(row["value"]), headers)
        self._answer()

    def read_as_group(self, topic: str, group: str, count: int) -> list[tuple[int, int]]:
        """Partition and offset of the next `count` records for the group, which are committed before it is left."""
        return [(partition, offset) for partition, offset in self._ask("read_as_group", topic=topic, group=group, count=count)]

    def call(self, op: str, **arguments: Any) -> Any:
        """An op that not every client has."""
        return self._ask(op, **arguments)

    def _ask(self, op: str, **arguments: Any) -> Any:
        self._send({"op": op, **arguments})
        return self._answer()["ok"]

    def _send(self, request: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        limit = threading.Timer(OP_S, self._process.kill)
        limit.start()
        try:
            line = self._process.stdout.readline()
        finally:
            limit.cancel()
        assert line, f"the client ended, or said nothing for {OP_S} s:\n{self._errors.read_text(errors='replace')[-4000:]}"
        answer = json.loads(line)
        if "error" in answer:
            raise ClientError(answer["error"], answer["message"])
        return answer


def _text(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode("ascii")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
