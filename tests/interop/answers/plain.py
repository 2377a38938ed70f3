"""Answers in a form that can be compared: dicts, lists and texts, without what two brokers rightly differ in.

Left out or replaced: throttle times, the words of messages (that there are any is compared), ports, topic ids, sessions,
producer ids, log directories, sizes of disks, times of the broker's clock. Lists of structs that are known by a name or a
number become dicts, since brokers answer in any order.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

from interop.answers.side import Side

from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.message import Message, Struct
from pybroker.protocol.records.batch import RecordBatch, iter_batches

_UUID_LENGTH = 36
NOW_TOLERANCE_MS = 15 * 60 * 1000
LEFT_OUT = {"throttle_time_ms", "unknown_tagged_fields"}
# What an element of a list is known by, where its neighbours have others.
IDENTITIES = (
    ("resource_type", "resource_name"),
    *((name,) for name in ("name", "topic", "topic_name", "topic_id", "partition_index", "partition", "index", "node_id")),
    *((name,) for name in ("broker_id", "api_key", "feature", "log_dir", "batch_index", "producer_id", "group_id", "key")),
)


def plain(side: Side, answer: Any, version: int) -> Any:
    return _struct(side, answer, version) if isinstance(answer, Message) else repr(answer)


def shown_time(timestamp: int) -> int | str:
    """Cases write records of an hour ago: whatever is about now, the broker's clock has said."""
    return "now" if abs(timestamp - time.time() * 1000) < NOW_TOLERANCE_MS else timestamp


def _struct(side: Side, struct: Struct, version: int) -> dict[str, Any]:
    out = {}
    for column in type(struct).COLUMNS:
        if version in column.versions and column.name not in LEFT_OUT:
            out[column.name] = _value(side, column.name, getattr(struct, column.name), version)
    if struct.unknown_tagged_fields:
        out["unknown_tagged_fields"] = {tag: data.hex() for tag, data in struct.unknown_tagged_fields.items()}
    return out


def _value(side: Side, name: str, value: Any, version: int) -> Any:
    if name == "records":
        return None if value is None else list(_batches(side, bytes(value)))
    if name in SHOWN:
        return SHOWN[name](side, value)
    if isinstance(value, Struct):
        return _struct(side, value, version)
    if isinstance(value, list) and value and isinstance(value[0], Struct):
        return _list([_struct(side, item, version) for item in value])
    return value


def _list(rows: list[dict[str, Any]]) -> Any:
    for names in IDENTITIES:
        if all(name in rows[0] for name in names):
            keyed = {" ".join(str(row[name]) for name in names): row for row in rows}
            if len(keyed) == len(rows):
                return keyed
    return sorted(rows, key=repr)


def _batches(side: Side, data: bytes) -> Iterator[dict[str, Any]]:
    end = 0
    for batch in iter_batches(data):
        yield _batch(side, batch)
        end = batch.end
    if end < len(data):
        yield {"part of a batch, bytes": len(data) - end}


def _batch(side: Side, batch: RecordBatch) -> dict[str, Any]:
    records: list[Any]
    try:
        records = [
            (record.offset, shown_time(record.timestamp), _text(record.key), _text(record.value), repr(record.headers))
            for record in batch.records()
        ]
    except KafkaError as error:
        records = [error.code.name]
    header = {
        "base_offset": batch.base_offset,
        "last_offset_delta": batch.last_offset_delta,
        "leader_epoch": batch.partition_leader_epoch,
        "attributes": batch.attributes,
        "base_timestamp": shown_time(batch.base_timestamp),
        "max_timestamp": shown_time(batch.max_timestamp),
        "producer_id": _nth("producer")(side, batch.producer_id),
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "count": batch.count,
        "crc": "right" if batch.crc == batch.compute_crc() else "wrong",
    }
    return {**header, "records": records, "payload": sha256(batch.view()[61:]).hexdigest()[:12]}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data[:40].decode("latin-1") + (f"… {len(data)}" if len(data) > 40 else "")


def _nth(kind: str, nobody: int = -1) -> Callable[[Side, int], Any]:
    return lambda side, value: value if value <= nobody else side.shown_nth(kind, value)


def _code(_: Side, code: int) -> str:
    return ErrorCode(code).name


def _words(_: Side, text: str | None) -> str | None:
    return "words" if text else text


def _size(_: Side, size: int) -> int | str:
    return "some" if size > 0 else size


def _member(side: Side, member_id: str | None) -> str | None:
    """What it begins with, and the n-th one seen on this side behind it."""
    if member_id is None:
        return None
    is_given = len(member_id) > _UUID_LENGTH and member_id[-_UUID_LENGTH - 1] == "-" and member_id.count("-") >= 5
    return f"{member_id[:-_UUID_LENGTH]}{side.shown_nth('member', member_id)}" if is_given else member_id


def _directory(side: Side, path: str) -> str:
    return f"log dir #{side.log_dirs.index(path) + 1}" if path in side.log_dirs else path


SHOWN: dict[str, Callable[[Side, Any], Any]] = {
    "error_code": _code,
    "topic_config_error_code": _code,
    "error_message": _words,
    "batch_index_error_message": _words,
    "documentation": _words,
    "topic_id": lambda side, value: side.shown_topic_id(value),
    "port": lambda side, value: "its port" if value == side.port else value,
    "session_id": _nth("session", 0),
    "member_id": _member,
    "leader": _member,
    "producer_id": _nth("producer"),
    "log_dir": _directory,
    "total_bytes": _size,
    "usable_bytes": _size,
    "finalized_features_epoch": _size,
    "timestamp": lambda _, value: shown_time(value),
    "last_timestamp": lambda _, value: shown_time(value),
    "log_append_time_ms": lambda _, value: shown_time(value),
    "bytes": lambda _, value: b64encode(value).decode(),
}
