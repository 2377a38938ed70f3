"""The log directories of a broker: what lies in them, moving replicas between them, telling the controller of both."""

from __future__ import annotations

from pybroker.base.ids import Uuid
from pybroker.protocol.message import Message, Struct, col


class DescribeLogDirsRequest(Message, key=35, versions="1-5", flexible="2+"):
    topics: list[DescribableLogDirTopic] | None = col("[]DescribableLogDirTopic", nullable="0+")


class DescribableLogDirTopic(Struct):
    topic:      str       = col("string")
    partitions: list[int] = col("[]int32")


class DescribeLogDirsResponse(Message, key=35, versions="1-5", flexible="2+"):
    throttle_time_ms: int                         = col("int32", default=0)
    error_code:       int                         = col("int16", "3+", default=0, ignorable=True)
    results:          list[DescribeLogDirsResult] = col("[]DescribeLogDirsResult")


class DescribeLogDirsResult(Struct):
    error_code:   int                        = col("int16")
    log_dir:      str                        = col("string")
    topics:       list[DescribeLogDirsTopic] = col("[]DescribeLogDirsTopic")
    total_bytes:  int                        = col("int64", "4+", default=-1, ignorable=True)
    usable_bytes: int                        = col("int64", "4+", default=-1, ignorable=True)
    is_cordoned:  bool                       = col("bool", "5+", default=False, ignorable=True)


class DescribeLogDirsTopic(Struct):
    name:       str                            = col("string")
    partitions: list[DescribeLogDirsPartition] = col("[]DescribeLogDirsPartition")


class DescribeLogDirsPartition(Struct):
    partition_index: int  = col("int32")
    partition_size:  int  = col("int64")
    offset_lag:      int  = col("int64")
    is_future_key:   bool = col("bool")


class AlterReplicaLogDirsRequest(Message, key=34, versions="1-2", flexible="2+"):
    dirs: list[AlterReplicaLogDir] = col("[]AlterReplicaLogDir")


class AlterReplicaLogDir(Struct):
    path:   str                           = col("string")
    topics: list[AlterReplicaLogDirTopic] = col("[]AlterReplicaLogDirTopic")


class AlterReplicaLogDirTopic(Struct):
    name:       str       = col("string")
    partitions: list[int] = col("[]int32")


class AlterReplicaLogDirsResponse(Message, key=34, versions="1-2", flexible="2+"):
    throttle_time_ms: int                                 = col("int32", default=0)
    results:          list[AlterReplicaLogDirTopicResult] = col("[]AlterReplicaLogDirTopicResult")


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str                                     = col("string")
    partitions: list[AlterReplicaLogDirPartitionResult] = col("[]AlterReplicaLogDirPartitionResult")


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = col("int32")
    error_code:      int = col("int16")


class AssignReplicasToDirsRequest(Message, key=73, versions="0", flexible="0+"):
    broker_id:    int                                            = col("int32")
    broker_epoch: int                                            = col("int64", default=-1)
    directories:  list[AssignReplicasToDirsRequestDirectoryData] = col("[]AssignReplicasToDirsRequestDirectoryData")


class AssignReplicasToDirsRequestDirectoryData(Struct):
    id:     Uuid                                       = col("uuid")
    topics: list[AssignReplicasToDirsRequestTopicData] = col("[]AssignReplicasToDirsRequestTopicData")


class AssignReplicasToDirsRequestTopicData(Struct):
    topic_id:   Uuid                                           = col("uuid")
    partitions: list[AssignReplicasToDirsRequestPartitionData] = col("[]AssignReplicasToDirsRequestPartitionData")


class AssignReplicasToDirsRequestPartitionData(Struct):
    partition_index: int = col("int32")


class AssignReplicasToDirsResponse(Message, key=73, versions="0", flexible="0+"):
    throttle_time_ms: int                                             = col("int32", default=0)
    error_code:       int                                             = col("int16")
    directories:      list[AssignReplicasToDirsResponseDirectoryData] = col("[]AssignReplicasToDirsResponseDirectoryData")


class AssignReplicasToDirsResponseDirectoryData(Struct):
    id:     Uuid                                        = col("uuid")
    topics: list[AssignReplicasToDirsResponseTopicData] = col("[]AssignReplicasToDirsResponseTopicData")


class AssignReplicasToDirsResponseTopicData(Struct):
    topic_id:   Uuid                                            = col("uuid")
    partitions: list[AssignReplicasToDirsResponsePartitionData] = col("[]AssignReplicasToDirsResponsePartitionData")


class AssignReplicasToDirsResponsePartitionData(Struct):
    partition_index: int = col("int32")
    error_code:      int = col("int16")
