"""Streams groups (KIP-1071): the broker assigns the tasks of a Kafka Streams topology."""

from __future__ import annotations

from pybroker.protocol.message import Message, Struct, col


class StreamsGroupHeartbeatRequest(Message, key=88, versions="0", flexible="0+"):
    group_id:                   str                                         = col("string")
    member_id:                  str                                         = col("string")
    member_epoch:               int                                         = col("int32")
    endpoint_information_epoch: int                                         = col("int32")
    instance_id:                str | None                                  = col("string", nullable="0+", default=None)
    rack_id:                    str | None                                  = col("string", nullable="0+", default=None)
    rebalance_timeout_ms:       int                                         = col("int32", default=-1)
    topology:                   StreamsGroupHeartbeatRequestTopology | None = col("StreamsGroupHeartbeatRequestTopology", nullable="0+", default=None)
    active_tasks:               list[TaskIds] | None                        = col("[]TaskIds", nullable="0+", default=None)
    standby_tasks:              list[TaskIds] | None                        = col("[]TaskIds", nullable="0+", default=None)
    warmup_tasks:               list[TaskIds] | None                        = col("[]TaskIds", nullable="0+", default=None)
    process_id:                 str | None                                  = col("string", nullable="0+", default=None)
    user_endpoint:              Endpoint | None                             = col("Endpoint", nullable="0+", default=None)
    client_tags:                list[KeyValue] | None                       = col("[]KeyValue", nullable="0+", default=None)
    task_offsets:               list[TaskOffset] | None                     = col("[]TaskOffset", nullable="0+", default=None)
    task_end_offsets:           list[TaskOffset] | None                     = col("[]TaskOffset", nullable="0+", default=None)
    shutdown_application:       bool                                        = col("bool", default=False)


class StreamsGroupHeartbeatRequestTopology(Struct):
    epoch:         int                                           = col("int32")
    subtopologies: list[StreamsGroupHeartbeatRequestSubtopology] = col("[]StreamsGroupHeartbeatRequestSubtopology")


class StreamsGroupHeartbeatRequestSubtopology(Struct):
    subtopology_id:            str                    = col("string")
    source_topics:             list[str]              = col("[]string")
    source_topic_regex:        list[str]              = col("[]string")
    state_changelog_topics:    list[TopicInfo]        = col("[]TopicInfo")
    repartition_sink_topics:   list[str]              = col("[]string")
    repartition_source_topics: list[TopicInfo]        = col("[]TopicInfo")
    copartition_groups:        list[CopartitionGroup] = col("[]CopartitionGroup")


class TopicInfo(Struct):
    name:               str            = col("string")
    partitions:         int            = col("int32")
    replication_factor: int            = col("int16")
    topic_configs:      list[KeyValue] = col("[]KeyValue")


class KeyValue(Struct):
    key:   str = col("string")
    value: str = col("string")


class CopartitionGroup(Struct):
    source_topics:             list[int] = col("[]int16")
    source_topic_regex:        list[int] = col("[]int16")
    repartition_source_topics: list[int] = col("[]int16")


class TaskIds(Struct):
    subtopology_id: str       = col("string")
    partitions:     list[int] = col("[]int32")


class Endpoint(Struct):
    host: str = col("string")
    port: int = col("uint16")


class TaskOffset(Struct):
    subtopology_id: str = col("string")
    partition:      int = col("int32")
    offset:         int = col("int64")


class StreamsGroupHeartbeatResponse(Message, key=88, versions="0", flexible="0+"):
    throttle_time_ms:            int                               = col("int32", default=0)
    error_code:                  int                               = col("int16")
    error_message:               str | None                        = col("string", nullable="0+", default=None)
    member_id:                   str                               = col("string")
    member_epoch:                int                               = col("int32")
    heartbeat_interval_ms:       int                               = col("int32")
    acceptable_recovery_lag:     int                               = col("int32")
    task_offset_interval_ms:     int                               = col("int32")
    status:                      list[Status] | None               = col("[]Status", nullable="0+")
    active_tasks:                list[TaskIds] | None              = col("[]TaskIds", nullable="0+", default=None)
    standby_tasks:               list[TaskIds] | None              = col("[]TaskIds", nullable="0+", default=None)
    warmup_tasks:                list[TaskIds] | None              = col("[]TaskIds", nullable="0+", default=None)
    endpoint_information_epoch:  int                               = col("int32")
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = col("[]EndpointToPartitions", nullable="0+", default=None)


class Status(Struct):
    status_code:   int = col("int8")
    status_detail: str = col("string")


class EndpointToPartitions(Struct):
    user_endpoint:      Endpoint             = col("Endpoint")
    active_partitions:  list[TopicPartition] = col("[]TopicPartition")
    standby_partitions: list[TopicPartition] = col("[]TopicPartition")


class TopicPartition(Struct):
    topic:      str       = col("string")
    partitions: list[int] = col("[]int32")


class StreamsGroupDescribeRequest(Message, key=89, versions="0", flexible="0+"):
    group_ids:                     list[str] = col("[]string")
    include_authorized_operations: bool      = col("bool")


class StreamsGroupDescribeResponse(Message, key=89, versions="0", flexible="0+"):
    throttle_time_ms: int                  = col("int32", default=0)
    groups:           list[DescribedGroup] = col("[]DescribedGroup")


class DescribedGroup(Struct):
    error_code:            int                                         = col("int16")
    error_message:         str | None                                  = col("string", nullable="0+", default=None)
    group_id:              str                                         = col("string")
    group_state:           str                                         = col("string")
    group_epoch:           int                                         = col("int32")
    assignment_epoch:      int                                         = col("int32")
    topology:              StreamsGroupDescribeResponseTopology | None = col("StreamsGroupDescribeResponseTopology", nullable="0+", default=None)
    members:               list[Member]                                = col("[]Member")
    authorized_operations: int                                         = col("int32", default=-2147483648)


class StreamsGroupDescribeResponseTopology(Struct):
    epoch:         int                                                  = col("int32")
    subtopologies: list[StreamsGroupDescribeResponseSubtopology] | None = col("[]StreamsGroupDescribeResponseSubtopology", nullable="0+", default=None)


class StreamsGroupDescribeResponseSubtopology(Struct):
    subtopology_id:            str             = col("string")
    source_topics:             list[str]       = col("[]string")
    repartition_sink_topics:   list[str]       = col("[]string")
    state_changelog_topics:    list[TopicInfo] = col("[]TopicInfo")
    repartition_source_topics: list[TopicInfo] = col("[]TopicInfo")


class Member(Struct):
    member_id:         str              = col("string")
    member_epoch:      int              = col("int32")
    instance_id:       str | None       = col("string", nullable="0+", default=None)
    rack_id:           str | None       = col("string", nullable="0+", default=None)
    client_id:         str              = col("string")
    client_host:       str              = col("string")
    topology_epoch:    int              = col("int32")
    process_id:        str              = col("string")
    user_endpoint:     Endpoint | None  = col("Endpoint", nullable="0+", default=None)
    client_tags:       list[KeyValue]   = col("[]KeyValue")
    task_offsets:      list[TaskOffset] = col("[]TaskOffset")
    task_end_offsets:  list[TaskOffset] = col("[]TaskOffset")
    assignment:        Assignment       = col("Assignment")
    target_assignment: Assignment       = col("Assignment")
    is_classic:        bool             = col("bool")


class Assignment(Struct):
    active_tasks:  list[TaskIds] = col("[]TaskIds")
    standby_tasks: list[TaskIds] = col("[]TaskIds")
    warmup_tasks:  list[TaskIds] = col("[]TaskIds")
