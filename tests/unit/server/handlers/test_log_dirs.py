from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.batches import batch
from support.requests import AskedRequest
from support.waiting import wait_until
from unit.server.handlers.nodes import NOW_MS, Replicas

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from pybroker.replication.log_dir_mover import LogDirMover
from pybroker.server.handlers.log_dirs import LogDirHandlers


class Paused:
    """A background that does nothing, so that a move stays where it is."""

    def run(self, task: object, *, delay_ms: int = 0) -> None:
        pass


class TwoDirs:
    def __init__(self, tmp_path: Path) -> None:
        self.replicas = Replicas(tmp_path, "a", "b")
        self.cordoned: list[str] = []
        self.handlers = self.handlers_with(LogDirMover(self.replicas.manager, self.replicas.scheduler, lambda: NOW_MS))

    def handlers_with(self, mover: LogDirMover) -> LogDirHandlers:
        return LogDirHandlers(self.replicas.manager, mover, lambda: self.cordoned)

    def produce(self, topic: str = "orders") -> int:
        records = batch([b"v"], timestamp=NOW_MS)
        self.replicas.manager.append(self.replicas.partition(topic), records, -1)
        return len(records)

    def dirs_of(self, topic: str = "orders", index: int = 0) -> tuple[str, str]:
        """Where the partition is, and where it is not."""
        current = os.path.dirname(self.replicas.partition(topic, index).log.directory)
        (other,) = set(self.replicas.dirs) - {current}
        return current, other

    def describe(self, topics: dict[str, list[int]] | None = None, version: int = 5) -> dict[str, Any]:
        rows = None if topics is None else [DescribableLogDirTopic(topic=name, partitions=at) for name, at in topics.items()]
        request = AskedRequest(DescribeLogDirsRequest(topics=rows), version)
        response: Any = self.handlers.handle_describe_log_dirs(request, request.message)  # type: ignore[arg-type]
        decoded = type(response).decode(version, response.encode(version))
        assert decoded.error_code == 0
        return {found.log_dir: found for found in decoded.results}

    def replicas_in(self, path: str, topics: dict[str, list[int]] | None = None) -> set[tuple[str, int, int, int, bool]]:
        return {
            (topic.name, row.partition_index, row.partition_size, row.offset_lag, row.is_future_key)
            for topic in self.describe(topics)[path].topics
            for row in topic.partitions
        }

    def alter(self, *moves: tuple[str, str, int], version: int = 2) -> list[tuple[str, int, int]]:
        """(topic, partition, error) for each of (directory, topic, partition)."""
        dirs = [
            AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[index])])
            for path, topic, index in moves
        ]
        request = AskedRequest(AlterReplicaLogDirsRequest(dirs=dirs), version)
        response: Any = self.handlers.handle_alter_replica_log_dirs(request, request.message)  # type: ignore[arg-type]
        decoded = type(response).decode(version, response.encode(version))
        return [
            (topic.topic_name, row.partition_index, row.error_code) for topic in decoded.results for row in topic.partitions
        ]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TwoDirs]:
    made = TwoDirs(tmp_path)
    yield made
    made.replicas.close()


# DescribeLogDirs.


@pytest.mark.parametrize("version", range(1, 6))
def test_every_directory_is_described_in_every_version(node: TwoDirs, version: int) -> None:
    node.replicas.create("orders", 2)
    found = node.describe(version=version)
    assert list(found) == node.replicas.dirs
    assert [one.error_code for one in found.values()] == [0, 0]
    if version >= 4:
        assert all(one.total_bytes >= one.usable_bytes > 0 for one in found.values())
    else:
        assert all(one.total_bytes == one.usable_bytes == -1 for one in found.values())
    assert sum(len(topic.partitions) for one in found.values() for topic in one.topics) == 2


def test_replicas_are_shown_with_size_and_lag(node: TwoDirs) -> None:
    node.replicas.create("orders")
    size = node.produce()
    current, other = node.dirs_of()
    assert node.replicas_in(current) == {("orders", 0, size, 0, False)}
    assert node.replicas_in(other) == set()


def test_a_request_may_name_partitions(node: TwoDirs) -> None:
    node.replicas.create("orders", 2)
    node.replicas.create("users")
    everywhere = [row for path in node.replicas.dirs for row in node.replicas_in(path, {"orders": [1, 9], "nope": [0]})]
    assert [row[:2] for row in everywhere] == [("orders", 1)]
    assert [topics.topics for topics in node.describe({}).values()] == [[], []]


def test_a_future_replica_is_shown_with_how_far_it_is_behind(node: TwoDirs) -> None:
    node.replicas.create("orders")
    node.produce()
    node.produce()
    current, other = node.dirs_of()
    node.handlers = node.handlers_with(LogDirMover(node.replicas.manager, Paused(), lambda: NOW_MS))  # type: ignore[arg-type]
    assert node.alter((other, "orders", 0)) == [("orders", 0, 0)]
    assert node.replicas_in(other) == {("orders", 0, 0, 2, True)}
    assert {row[3:] for row in node.replicas_in(current)} == {(0, False)}


def test_an_offline_directory_is_shown_as_such(node: TwoDirs) -> None:
    node.replicas.create("orders", 2)
    broken, sound = node.dirs_of()
    node.replicas.logs.on_io_error(broken, OSError(errno.EIO, "no"))
    found = node.describe()
    assert (found[broken].error_code, found[broken].topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
    assert found[sound].error_code == 0
    assert [len(topic.partitions) for topic in found[sound].topics] == [1]


def test_a_directory_that_cannot_be_asked_for_its_size(node: TwoDirs, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str) -> None:
        raise OSError(errno.ENOENT, "gone")

    monkeypatch.setattr("os.statvfs", fail)
    assert {one.error_code for one in node.describe().values()} == {ErrorCode.KAFKA_STORAGE_ERROR}


def test_a_cordoned_directory_is_shown_as_such(node: TwoDirs) -> None:
    first, second = node.replicas.dirs
    node.cordoned = [second]
    assert {path: one.is_cordoned for path, one in node.describe().items()} == {first: False, second: True}


# AlterReplicaLogDirs.


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_is_moved(node: TwoDirs, version: int) -> None:
    node.replicas.create("orders")
    size = node.produce()
    current, other = node.dirs_of()
    assert node.alter((other, "orders", 0), version=version) == [("orders", 0, 0)]
    wait_until(lambda: node.dirs_of()[0] == other, 30, lambda: f"it is in {node.dirs_of()}")
    assert node.replicas_in(other) == {("orders", 0, size, 0, False)}
    assert node.replicas_in(current) == set()


def test_to_move_it_to_where_it_is_succeeds(node: TwoDirs) -> None:
    node.replicas.create("orders")
    current, _ = node.dirs_of()
    assert node.alter((current, "orders", 0)) == [("orders", 0, 0)]
    assert node.dirs_of()[0] == current


def test_a_path_has_to_be_spelled_as_in_log_dirs(node: TwoDirs) -> None:
    node.replicas.create("orders")
    _, other = node.dirs_of()
    for path in ("/nope", other + "/", os.path.relpath(other), ""):
        assert node.alter((path, "orders", 0)) == [("orders", 0, ErrorCode.LOG_DIR_NOT_FOUND)]


def test_a_replica_that_is_not_here_is_not_moved(node: TwoDirs) -> None:
    node.replicas.create("orders")
    _, other = node.dirs_of()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert node.alter((other, "orders", 9), (other, "nope", 0)) == [("orders", 9, unknown), ("nope", 0, unknown)]
    assert node.alter(("/nope", "nope", 0)) == [("nope", 0, ErrorCode.LOG_DIR_NOT_FOUND)]


def test_the_name_of_a_future_log_must_be_a_file_name(node: TwoDirs) -> None:
    longest, too_long = "x" * 213, "x" * 214
    node.replicas.create(longest)
    _, other = node.dirs_of(longest)
    assert node.alter((other, longest, 0)) == [(longest, 0, 0)]
    assert node.alter((other, too_long, 0)) == [(too_long, 0, ErrorCode.INVALID_TOPIC_EXCEPTION)]


def test_an_offline_directory_takes_no_replica(node: TwoDirs) -> None:
    node.replicas.create("orders")
    _, other = node.dirs_of()
    node.replicas.logs.on_io_error(other, OSError(errno.EIO, "no"))
    assert node.alter((other, "orders", 0)) == [("orders", 0, ErrorCode.KAFKA_STORAGE_ERROR)]


def test_a_replica_in_an_offline_directory_cannot_be_moved(node: TwoDirs) -> None:
    node.replicas.create("orders")
    current, other = node.dirs_of()
    node.replicas.logs.on_io_error(current, OSError(errno.EIO, "no"))
    node.replicas.manager.dir_failed(current)
    assert node.alter((other, "orders", 0)) == [("orders", 0, ErrorCode.KAFKA_STORAGE_ERROR)]


def test_a_cordoned_directory_takes_no_replica(node: TwoDirs) -> None:
    node.replicas.create("orders")
    _, other = node.dirs_of()
    node.cordoned = [other]
    refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert node.alter((other, "orders", 0), (other, "nope", 0)) == [("orders", 0, refused), ("nope", 0, refused)]


def test_of_two_directories_for_a_partition_the_last_counts(node: TwoDirs) -> None:
    node.replicas.create("orders")
    current, _ = node.dirs_of()
    assert node.alter(("/nope", "orders", 0), (current, "orders", 0)) == [("orders", 0, 0)]
    assert node.alter((current, "orders", 0), ("/nope", "orders", 0)) == [("orders", 0, ErrorCode.LOG_DIR_NOT_FOUND)]
