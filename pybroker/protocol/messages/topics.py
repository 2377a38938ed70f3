"""Topics come and go, and grow: create, delete, add partitions."""

from __future__ import annotations

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.protocol.message import Message, Struct, col


class CreateTopicsRequest(Message, key=19, versions="2-7", flexible="5+"):
    topics:        list[CreatableTopic] = col("[]CreatableTopic")
    timeout_ms:    int                  = col("int32", default=60000)
    validate_only: bool                 = col("bool", "1+", default=False)


class CreatableTopic(Struct):
    name:               str                              = col("string")
    num_partitions:     int                              = col("int32")
    replication_factor: int                              = col("int16")
    assignments:        list[CreatableReplicaAssignment] = col("[]CreatableReplicaAssignment")
    configs:            list[CreatableTopicConfig]       = col("[]CreatableTopicConfig")


class CreatableReplicaAssignment(Struct):
    partition_index: int       = col("int32")
    broker_ids:      list[int] = col("[]int32")


class CreatableTopicConfig(Struct):
    name:  str        = col("string")
    value: str | None = col("string", nullable="0+")


class CreateTopicsResponse(Message, key=19, versions="2-7", flexible="5+"):
    throttle_time_ms: int                        = col("int32", "2+", default=0, ignorable=True)
    topics:           list[CreatableTopicResult] = col("[]CreatableTopicResult")


class CreatableTopicResult(Struct):
    name:                    str                                = col("string")
    topic_id:                Uuid                               = col("uuid", "7+", default=ZERO_UUID, ignorable=True)
    error_code:              int                                = col("int16")
    error_message:           str | None                         = col("string", "1+", nullable="0+", ignorable=True)
    topic_config_error_code: int                                = col("int16", "5+", default=0, tag=0, ignorable=True)
    num_partitions:          int                                = col("int32", "5+", default=-1, ignorable=True)
    replication_factor:      int                                = col("int16", "5+", default=-1, ignorable=True)
    configs:                 list[CreatableTopicConfigs] | None = col("[]CreatableTopicConfigs", "5+", nullable="5+", default=[], ignorable=True)


class CreatableTopicConfigs(Struct):
    name:          str        = col("string", "5+")
    value:         str | None = col("string", "5+", nullable="5+")
    read_only:     bool       = col("bool", "5+")
    config_source: int        = col("int8", "5+", default=-1, ignorable=True)
    is_sensitive:  bool       = col("bool", "5+")


class DeleteTopicsRequest(Message, key=20, versions="1-6", flexible="4+"):
    topics:      list[DeleteTopicState] = col("[]DeleteTopicState", "6+", default=[])
    topic_names: list[str]              = col("[]string", "0-5", default=[], ignorable=True)
    timeout_ms:  int                    = col("int32")


class DeleteTopicState(Struct):
    name:     str | None = col("string", "6+", nullable="6+", default=None)
    topic_id: Uuid       = col("uuid", "6+")


class DeleteTopicsResponse(Message, key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: int                        = col("int32", "1+", default=0, ignorable=True)
    responses:        list[DeletableTopicResult] = col("[]DeletableTopicResult")


class DeletableTopicResult(Struct):
    name:          str | None = col("string", nullable="6+")
    topic_id:      Uuid       = col("uuid", "6+", default=ZERO_UUID, ignorable=True)
    error_code:    int        = col("int16")
    error_message: str | None = col("string", "5+", nullable="5+", default=None, ignorable=True)


class CreatePartitionsRequest(Message, key=37, versions="0-3", flexible="2+"):
    topics:        list[CreatePartitionsTopic] = col("[]CreatePartitionsTopic")
    timeout_ms:    int                         = col("int32")
    validate_only: bool                        = col("bool")


class CreatePartitionsTopic(Struct):
    name:        str                                     = col("string")
    count:       int                                     = col("int32")
    assignments: list[CreatePartitionsAssignment] | None = col("[]CreatePartitionsAssignment", nullable="0+")


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = col("[]int32")


class CreatePartitionsResponse(Message, key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: int                               = col("int32", default=0)
    results:          list[CreatePartitionsTopicResult] = col("[]CreatePartitionsTopicResult")


class CreatePartitionsTopicResult(Struct):
    name:          str        = col("string")
    error_code:    int        = col("int16")
    error_message: str | None = col("string", nullable="0+", default=None)
