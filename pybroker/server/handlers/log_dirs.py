"""DescribeLogDirs (35) and AlterReplicaLogDirs (34): what lies in this broker's log directories, and moving it between them.

On handler threads: sizes are asked of the disk. AlterReplicaLogDirs answers when the move has begun; how far it is shows in
DescribeLogDirs, as the lag of a future replica.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection
from typing import Final

from pybroker.log.files import FUTURE, MAX_NAME_BYTES, TopicPartition
from pybroker.log.log import Log
from pybroker.log.manager.log_dir import LogDir
from pybroker.log.manager.online_logs import LogTable
from pybroker.network.request import Request
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.messages.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from pybroker.replication.log_dir_mover import LogDirMover
from pybroker.replication.replica_manager import ReplicaManager

NO_LAG: Final = -1
# Kafka's limit on what can be moved: with so much behind the partition's name, it must still be a file name.
_FUTURE_TAIL: Final = len(".") + 32 + len("-") + len(FUTURE)

logger = logging.getLogger(__name__)


class LogDirHandlers:
    def __init__(self, replicas: ReplicaManager, mover: LogDirMover, cordoned: Callable[[], Collection[str]]) -> None:
        """`cordoned` are the directories that take no more replicas (cordoned.log.dirs)."""
        self._replicas = replicas
        self._logs = replicas.logs
        self._mover = mover
        self._cordoned = cordoned

    # DescribeLogDirs.

    def handle_describe_log_dirs(self, request: Request, message: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        wanted: set[TopicPartition] | None = None
        if message.topics is not None:
            wanted = {TopicPartition(topic.topic, index) for topic in message.topics for index in topic.partitions}
        tables = self._logs.logs_by_dir()
        cordoned = self._cordoned_paths()
        return DescribeLogDirsResponse(
            results=[
                self._describe(log_dir, tables.get(log_dir.path, {}), wanted, is_cordoned=log_dir.path in cordoned)
                for log_dir in self._logs.dirs
            ]
        )

    def _describe(
        self, log_dir: LogDir, logs: LogTable, wanted: set[TopicPartition] | None, *, is_cordoned: bool
    ) -> DescribeLogDirsResult:
        try:
            if not log_dir.is_online:
                raise OSError(f"it is offline ({log_dir.failure})")
            disk = os.statvfs(log_dir.path)
        except OSError as error:
            logger.warning("log directory %s cannot be described: %s", log_dir.path, error)
            return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=log_dir.path, topics=[])
        topics: dict[str, list[DescribeLogDirsPartition]] = {}
        for name, log in logs.items():
            if wanted is None or name in wanted:
                topics.setdefault(name.topic, []).append(self._describe_log(name, log))
        return DescribeLogDirsResult(
            error_code=ErrorCode.NONE,
            log_dir=log_dir.path,
            topics=[DescribeLogDirsTopic(name=topic, partitions=rows) for topic, rows in topics.items()],
            total_bytes=disk.f_blocks * disk.f_frsize,
            usable_bytes=disk.f_bavail * disk.f_frsize,
            is_cordoned=is_cordoned,
        )

    def _describe_log(self, name: TopicPartition, log: Log) -> DescribeLogDirsPartition:
        is_future = self._logs.get(name, is_future=True) is log
        current = self._logs.get(name)
        if current is None:
            lag = NO_LAG
        elif is_future:
            lag = current.log_end_offset - log.log_end_offset
        else:
            lag = max(0, current.high_watermark - log.log_end_offset)
        return DescribeLogDirsPartition(
            partition_index=name.partition, partition_size=log.size_bytes, offset_lag=lag, is_future_key=is_future
        )

    # AlterReplicaLogDirs.

    def handle_alter_replica_log_dirs(
        self, request: Request, message: AlterReplicaLogDirsRequest
    ) -> AlterReplicaLogDirsResponse:
        # Of a partition that is to go to two directories, the last counts.
        destinations = {
            TopicPartition(topic.name, index): one.path
            for one in message.dirs
            for topic in one.topics
            for index in topic.partitions
        }
        results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
        for name, path in destinations.items():
            code = ErrorCode.NONE
            try:
                self._move(name, path)
            except KafkaError as error:
                code = error.code
                logger.warning("%s is not moved to %s: %s", name, path, error.message)
            row = AlterReplicaLogDirPartitionResult(partition_index=name.partition, error_code=code)
            results.setdefault(name.topic, []).append(row)
        return AlterReplicaLogDirsResponse(
            results=[AlterReplicaLogDirTopicResult(topic_name=topic, partitions=rows) for topic, rows in results.items()]
        )

    def _move(self, name: TopicPartition, path: str) -> None:
        length = len(str(name)) + _FUTURE_TAIL
        if length > MAX_NAME_BYTES:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"A future log of {name} would have a name of {length} bytes; expected at most {MAX_NAME_BYTES}.",
            )
        log_dir = next((one for one in self._logs.dirs if one.path == path), None)
        if log_dir is None:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is none of log.dirs.")
        if not log_dir.is_online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline.")
        if path in self._cordoned_paths():
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{path} takes no more replicas (cordoned.log.dirs).")
        partition = self._replicas.partition(name.topic, name.partition)
        if isinstance(partition, ErrorCode):
            # As Kafka says it, in this API alone.
            code = ErrorCode.REPLICA_NOT_AVAILABLE if partition is ErrorCode.NOT_LEADER_OR_FOLLOWER else partition
            raise KafkaError(code, f"This broker has no replica of {name} that can be moved.")
        self._mover.move(partition, path)

    def _cordoned_paths(self) -> set[str]:
        return {os.path.abspath(path) for path in self._cordoned()}
