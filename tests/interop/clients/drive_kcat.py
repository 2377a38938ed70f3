"""kcat, the command line client; Debian's has an older librdkafka than confluent-kafka. One run for each verb."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from interop.clients.driver import EARLIEST, LATEST, OP_S, Acked, Client, ClientError, Message, TopicSeen

from pybroker.protocol.records.record import NO_HEADERS, Headers, Record

_BETWEEN, _AFTER_KEY = b"\x1e", b"\x1f"
_CODES = {"Broker: Message size too large": 10, "Broker: Unknown topic or partition": 3}
_STARTS = {EARLIEST: "beginning", LATEST: "end"}


class Kcat(Client):
    def __init__(self, command: str, bootstrap: str) -> None:
        self._command = (command, "-b", bootstrap, "-m", "30")

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        raise NotImplementedError

    def delete_topic(self, topic: str) -> None:
        raise NotImplementedError

    def create_partitions(self, topic: str, count: int) -> None:
        raise NotImplementedError

    def describe_configs(self, resource_type: int, name: str) -> dict[str, str | None]:
        raise NotImplementedError

    def alter_config(self, resource_type: int, name: str, key: str, value: str | None) -> None:
        raise NotImplementedError

    def delete_records(self, topic: str, before_offset: int, partition: int = 0) -> int:
        raise NotImplementedError

    def list_topics(self) -> dict[str, int]:
        return {row["topic"]: len(row["partitions"]) for row in self._metadata()}

    def describe_topic(self, topic: str) -> TopicSeen:
        (found,) = self._metadata("-t", topic)
        return TopicSeen(
            {row["partition"]: (row["leader"], _ids(row["replicas"]), _ids(row["isrs"])) for row in found["partitions"]}
        )

    def _metadata(self, *options: str) -> Any:
        return json.loads(self._run("-L", "-J", *options))["topics"]

    def list_offset(self, topic: str, at: int, partition: int = 0) -> int:
        answer = self._run("-Q", "-t", f"{topic}:{partition}:{at}").decode()
        found = re.search(r"offset (-?\d+)", answer)
        assert found is not None, answer
        return int(found[1])

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
        """kcat tells no offsets: they are those by which the partition has grown. All messages have the same headers."""
        partition, headers = messages[0].partition, messages[0].headers
        assert all(message.headers == headers for message in messages)
        settings = {
            "acks": acks,
            "enable.idempotence": str(idempotent).lower(),
            "linger.ms": linger_ms,
            "message.max.bytes": 100_000_000,
            "message.timeout.ms": patience_ms,
        }
        options = [option for key, value in settings.items() for option in ("-X", f"{key}={value}")]
        keyed = any(message.key is not None for message in messages)
        lines = [(message.key or b"") + _AFTER_KEY * keyed + (message.value or b"") for message in messages]
        before = 0 if partition is None else self.list_offset(topic, LATEST, partition)
        try:
            self._run(
                *("-P", "-t", topic, "-z", codec, "-D", _BETWEEN.decode(), *options),
                *(("-K", _AFTER_KEY.decode()) if keyed else ()),
                *(() if partition is None else ("-p", str(partition))),
                *(option for name, value in headers for option in ("-H", f"{name}={(value or b'').decode()}")),
                stdin=_BETWEEN.join(lines),
            )
        except ClientError as error:
            return [Acked(-1 if partition is None else partition, -1, error.code)] * len(messages)
        if partition is not None:
            return [Acked(partition, -1 if acks == 0 else before + index) for index in range(len(messages))]
        if len(messages) > 1:
            return [Acked(-1, -1)] * len(messages)
        counts = range(self.list_topics()[topic])
        (grown,) = (index for index in counts if self.list_offset(topic, LATEST, index) > 0)
        return [Acked(grown, 0)]

    def tail(self, topic: str, at: int, count: int, *, partition: int = 0, max_wait_ms: int = 500) -> Iterator[Record]:
        command = (
            *(*self._command, "-C", "-q", "-u", "-t", topic, "-p", str(partition), "-o", _STARTS.get(at, str(at))),
            *("-c", str(count), "-f", "%o %T %K %S %h\n%k%s", "-X", f"fetch.wait.max.ms={max_wait_ms}"),
            *("-X", f"socket.timeout.ms={max_wait_ms + 30_000}"),
        )
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            limit = threading.Timer(OP_S, process.kill)
            limit.start()
            try:
                for _ in range(count):
                    line = process.stdout.readline()
                    assert line, process.stderr.read()
                    *numbers, headers = line.rstrip(b"\n").split(b" ", 4)
                    offset, timestamp, key_size, value_size = map(int, numbers)
                    key = None if key_size < 0 else process.stdout.read(key_size)
                    value = None if value_size < 0 else process.stdout.read(value_size)
                    yield Record(offset, timestamp, key, value, _headers(headers.decode()))
            finally:
                limit.cancel()
                process.kill()

    def _run(self, *options: str, stdin: bytes = b"") -> bytes:
        done = subprocess.run((*self._command, *options), input=stdin, capture_output=True, timeout=OP_S)
        if done.returncode:
            words = done.stderr.decode(errors="replace")
            raise ClientError(next((code for text, code in _CODES.items() if text in words), -1001), words)
        return done.stdout


def _headers(shown: str) -> Headers:
    """From the form in which kcat shows them, which no comma and no null survives."""
    pairs = (one.partition("=") for one in shown.split(",")) if shown else ()
    return tuple((name, value.encode()) for name, _, value in pairs) or NO_HEADERS


def _ids(rows: Any) -> tuple[int, ...]:
    return tuple(row["id"] for row in rows)
