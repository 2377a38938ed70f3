"""Apache Kafka's record classes behind a pipe: one JSON line out, one JSON line back (java/RecordLines.java)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from interop.apache_kafka import java_command

from pybroker.protocol.records.batch import RecordBatch
from pybroker.protocol.records.record import Record


class RecordLines:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, op: str, **request: Any) -> dict[str, Any]:
        """Java's answer; it holds `error` where Java threw."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, **request}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "RecordLines ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def read(self, data: bytes | bytearray) -> list[dict[str, Any]]:
        """Every batch of `data` as `described` gives it, by Java."""
        answer = self.ask("read", hex=data.hex())
        assert "error" not in answer, answer
        batches: list[dict[str, Any]] = answer["batches"]
        return batches

    def bytes_of(self, op: str, **request: Any) -> bytearray:
        answer = self.ask(op, **request)
        assert "error" not in answer, answer
        return bytearray.fromhex(answer["hex"])

    def produce(self, data: bytes | bytearray, leader_epoch: int = 0, **config: str) -> dict[str, Any]:
        """What a broker answers to a produce of `data`: `code`, and `hex` of what its log then holds."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        answer = self.ask("produce", hex=data.hex(), version=12, leader_epoch=leader_epoch, config=settings)
        assert "error" not in answer, answer
        return answer


@contextmanager
def record_lines() -> Iterator[RecordLines]:
    with subprocess.Popen(
        java_command("RecordLines"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        yield RecordLines(process)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


def row(record: Record) -> list[Any]:
    """A record as it travels in JSON."""
    headers = [[name, None if value is None else value.hex()] for name, value in record.headers]
    key = None if record.key is None else record.key.hex()
    value = None if record.value is None else record.value.hex()
    return [record.offset, record.timestamp, key, value, headers]


_FIELDS = (
    *("base_offset", "last_offset", "size_bytes", "partition_leader_epoch", "magic", "crc", "codec"),
    *("timestamp_type", "base_timestamp", "max_timestamp", "delete_horizon_ms", "is_transactional", "is_control"),
    *("producer_id", "producer_epoch", "base_sequence", "last_sequence", "count"),
)


def described(batch: RecordBatch) -> dict[str, Any]:
    """All that a batch says, in the shape of RecordLines' answer."""
    fields: dict[str, Any] = {name: getattr(batch, name) for name in _FIELDS}
    return {**fields, "records": [row(record) for record in batch.records()]}
