"""The small text files beside the logs: offset checkpoints, leader epochs, partition.metadata, meta.properties and the
mark of a clean shutdown.

Plain functions over the port to the disk. A file is replaced as a whole and atomically. One that is not there reads as
nothing; one that is damaged raises CorruptFileError and is left as it is.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from pybroker.base.filesystem import FileSystem, read_file, write_file
from pybroker.base.ids import ZERO_UUID, Uuid, uuid_from_text, uuid_to_text
from pybroker.config import properties
from pybroker.log.files import TopicPartition

RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
REPLICATION_CHECKPOINT: Final = "replication-offset-checkpoint"
LOG_START_CHECKPOINT: Final = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"

_VERSION: Final = 0
_META_VERSION: Final = 1
_MAX_INT32: Final = 2**31 - 1
_MAX_INT64: Final = 2**63 - 1
_LINE_END = re.compile(r"\r\n|\r|\n")
_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")

logger = logging.getLogger(__name__)


class CorruptFileError(Exception):
    """A file that does not hold what it should."""

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path}: {problem}")


@dataclass(slots=True, frozen=True)
class MetaProperties:
    """Whose log directory it is. One from before Kafka 3.7 has no `directory_id` yet."""

    cluster_id: str
    node_id: int
    directory_id: Uuid | None


def read_offsets(filesystem: FileSystem, path: str) -> dict[TopicPartition, int]:
    """An offset checkpoint: lines of topic, partition, offset."""
    offsets: dict[TopicPartition, int] = {}
    for line, fields in _read_rows(filesystem, path, "topic partition offset"):
        topic, partition, offset = fields
        key = TopicPartition(topic, _number(path, line, "a partition", partition, _MAX_INT32))
        if key in offsets:
            _corrupt(path, line, f"{key} is there a second time; expected each partition once")
        offsets[key] = _number(path, line, "an offset", offset, _MAX_INT64)
    return offsets


def write_offsets(filesystem: FileSystem, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    _write_rows(filesystem, path, (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()))


def read_epochs(filesystem: FileSystem, path: str) -> list[tuple[int, int]]:
    """A leader-epoch-checkpoint: lines of epoch, start offset, as they stand."""
    return [
        (
            _number(path, line, "an epoch", epoch, _MAX_INT32),
            _number(path, line, "a start offset", offset, _MAX_INT64),
        )
        for line, (epoch, offset) in _read_rows(filesystem, path, "epoch offset")
    ]


def write_epochs(filesystem: FileSystem, path: str, epochs: Iterable[tuple[int, int]]) -> None:
    _write_rows(filesystem, path, (f"{epoch} {offset}" for epoch, offset in epochs))


def read_topic_id(filesystem: FileSystem, path: str) -> Uuid | None:
    """The topic id in a partition.metadata."""
    lines = _read_lines(filesystem, path)
    if lines is None:
        return None
    version = _number(path, 1, "a version", _labelled(path, lines, 1, "version"), _MAX_INT32)
    text = _labelled(path, lines, 2, "topic_id")
    try:
        topic_id = uuid_from_text(text)
    except ValueError as error:
        _corrupt(path, 2, str(error))
    if topic_id == ZERO_UUID:
        _corrupt(path, 2, "the topic id is all zeros; expected that of a topic")
    # A later version may add lines; Apache Kafka reads it all the same.
    if version == _VERSION and len(lines) > 2:
        _corrupt(path, 3, f"found {lines[2]!r}; expected the end of the file")
    return topic_id


def write_topic_id(filesystem: FileSystem, path: str, topic_id: Uuid, *, sync: bool = True) -> None:
    write_file(filesystem, path, f"version: {_VERSION}\ntopic_id: {uuid_to_text(topic_id)}".encode(), sync=sync)


def read_meta_properties(filesystem: FileSystem, path: str) -> MetaProperties | None:
    text = _read_text(filesystem, path)
    if text is None:
        return None
    parsed = properties.parse(text)
    for note in parsed.notes:
        _corrupt(path, note.line, f"{note.key}: {note.message}")

    def required(key: str) -> properties.Entry:
        if key not in parsed.entries:
            raise CorruptFileError(path, f"{key} is missing")
        return parsed.entries[key]

    version = required("version")
    if version.value != str(_META_VERSION):
        _corrupt(path, version.line, f"version is {version.value!r}; expected {_META_VERSION}, that of a KRaft cluster")
    node_id = required("node.id")
    directory_id = parsed.entries.get("directory.id")
    try:
        uuid = None if directory_id is None else uuid_from_text(directory_id.value)
    except ValueError as error:
        assert directory_id is not None
        _corrupt(path, directory_id.line, f"directory.id: {error}")
    return MetaProperties(
        cluster_id=required("cluster.id").value,
        node_id=_number(path, node_id.line, "a node.id", node_id.value, _MAX_INT32),
        directory_id=uuid,
    )


def write_meta_properties(filesystem: FileSystem, path: str, meta: MetaProperties, now_ms: int) -> None:
    values = {"version": str(_META_VERSION), "cluster.id": meta.cluster_id, "node.id": str(meta.node_id)}
    if meta.directory_id is not None:
        values["directory.id"] = uuid_to_text(meta.directory_id)
    written = time.asctime(time.gmtime(now_ms // 1000)).replace("  ", " 0")
    text = f"#\n#{written[:-4]}UTC {written[-4:]}\n{properties.write(values)}"
    write_file(filesystem, path, text.encode())


def read_clean_shutdown(filesystem: FileSystem, path: str) -> int | None:
    """The broker epoch in the mark of a clean shutdown. That the mark is there says enough, whatever it holds."""
    if not filesystem.exists(path):
        return None
    try:
        content = json.loads(read_file(filesystem, path))
        epoch = content["brokerEpoch"]
    except (ValueError, KeyError, TypeError) as error:
        logger.info("%s holds no broker epoch (%s); the shutdown was clean all the same", path, error)
        return None
    return epoch if type(epoch) is int else None


def write_clean_shutdown(filesystem: FileSystem, path: str, broker_epoch: int) -> None:
    content = {"version": _VERSION, "brokerEpoch": broker_epoch}
    write_file(filesystem, path, json.dumps(content, separators=(",", ":")).encode())


def _read_rows(filesystem: FileSystem, path: str, columns: str) -> list[tuple[int, list[str]]]:
    """(line number, fields) of every row behind the version and the count. Apache Kafka makes an empty file at first."""
    lines = _read_lines(filesystem, path)
    if not lines:
        return []
    version = _number(path, 1, "a version", lines[0], _MAX_INT32)
    if version != _VERSION:
        _corrupt(path, 1, f"the version is {version}; expected {_VERSION}")
    if len(lines) < 2:
        _corrupt(path, 2, "the file ends; expected the number of entries")
    count = _number(path, 2, "the number of entries", lines[1], _MAX_INT32)
    width = columns.count(" ") + 1
    rows: list[tuple[int, list[str]]] = []
    for line, text in enumerate(lines[2:], 3):
        if len(rows) == count:
            _corrupt(path, line, f"found {text!r}; expected the end of the file behind the {count} entries of line 2")
        fields = text.split()
        if len(fields) != width:
            _corrupt(path, line, f"found {text!r}; expected {columns!r}")
        rows.append((line, fields))
    if len(rows) != count:
        _corrupt(path, len(lines) + 1, f"the file ends behind {len(rows)} entries; expected the {count} of line 2")
    return rows


def _write_rows(filesystem: FileSystem, path: str, rows: Iterable[str]) -> None:
    lines = list(rows)
    write_file(filesystem, path, "\n".join([str(_VERSION), str(len(lines)), *lines, ""]).encode())


def _read_lines(filesystem: FileSystem, path: str) -> list[str] | None:
    text = _read_text(filesystem, path)
    if text is None:
        return None
    lines = _LINE_END.split(text)
    return lines[:-1] if not lines[-1] else lines


def _read_text(filesystem: FileSystem, path: str) -> str | None:
    try:
        data = read_file(filesystem, path)
    except FileNotFoundError:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        _corrupt(path, data.count(b"\n", 0, error.start) + 1, "found bytes that are no UTF-8; expected text")


def _labelled(path: str, lines: list[str], line: int, label: str) -> str:
    if len(lines) < line:
        _corrupt(path, line, f"the file ends; expected '{label}: '")
    found, _, value = lines[line - 1].partition(": ")
    if found != label or not value.strip():
        _corrupt(path, line, f"found {lines[line - 1]!r}; expected '{label}: ' and a value")
    return value.strip()


def _number(path: str, line: int, what: str, text: str, highest: int) -> int:
    if not _NUMBER.fullmatch(text) or not 0 <= (number := int(text)) <= highest:
        _corrupt(path, line, f"found {text!r}; expected {what}, a number from 0 to {highest}")
    return number


def _corrupt(path: str, line: int, problem: str) -> NoReturn:
    raise CorruptFileError(path, f"line {line}: {problem}")
