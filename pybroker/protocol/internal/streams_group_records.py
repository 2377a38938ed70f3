"""Records of `__consumer_offsets`: streams groups."""

from __future__ import annotations

from pybroker.protocol.message import Message, Struct, col


class StreamsGroupMetadataKey(Message, key=17, versions="0"):
    group_id: str = col("string", "0")


class StreamsGroupMetadataValue(Message, key=17, versions="0", flexible="0+"):
    epoch:                    int                               = col("int32")
    metadata_hash:            int                               = col("int64")
    validated_topology_epoch: int                               = col("int32", default=-1, tag=0)
    last_assignment_configs:  list[LastAssignmentConfig] | None = col("[]LastAssignmentConfig", nullable="0+", default=[], tag=1)


class LastAssignmentConfig(Struct):
    key:   str = col("string")
    value: str = col("string")


class StreamsGroupMemberMetadataKey(Message, key=19, versions="0"):
    group_id:  str = col("string", "0")
    member_id: str = col("string", "0")


class StreamsGroupMemberMetadataValue(Message, key=19, versions="0", flexible="0+"):
    instance_id:          str | None      = col("string", nullable="0+")
    rack_id:              str | None      = col("string", nullable="0+")
    client_id:            str             = col("string")
    client_host:          str             = col("string")
    rebalance_timeout_ms: int             = col("int32", default=-1)
    topology_epoch:       int             = col("int32")
    process_id:           str             = col("string")
    user_endpoint:        Endpoint | None = col("Endpoint", nullable="0+", default=None)
    client_tags:          list[KeyValue]  = col("[]KeyValue")


class Endpoint(Struct):
    host: str = col("string")
    port: int = col("uint16")


class KeyValue(Struct):
    key:   str = col("string")
    value: str = col("string")


class StreamsGroupTargetAssignmentMetadataKey(Message, key=20, versions="0"):
    group_id: str = col("string", "0")


class StreamsGroupTargetAssignmentMetadataValue(Message, key=20, versions="0", flexible="0+"):
    assignment_epoch:     int = col("int32")
    assignment_timestamp: int = col("int64", default=0, tag=0, ignorable=True)


class StreamsGroupTargetAssignmentMemberKey(Message, key=21, versions="0"):
    group_id:  str = col("string", "0")
    member_id: str = col("string", "0")


class StreamsGroupTargetAssignmentMemberValue(Message, key=21, versions="0", flexible="0+"):
    active_tasks:  list[StreamsGroupTargetAssignmentMemberValueTaskIds] = col("[]StreamsGroupTargetAssignmentMemberValueTaskIds")
    standby_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds] = col("[]StreamsGroupTargetAssignmentMemberValueTaskIds")
    warmup_tasks:  list[StreamsGroupTargetAssignmentMemberValueTaskIds] = col("[]StreamsGroupTargetAssignmentMemberValueTaskIds")


class StreamsGroupTargetAssignmentMemberValueTaskIds(Struct):
    subtopology_id: str       = col("string")
    partitions:     list[int] = col("[]int32")


class StreamsGroupCurrentMemberAssignmentKey(Message, key=22, versions="0"):
    group_id:  str = col("string", "0")
    member_id: str = col("string", "0")


class StreamsGroupCurrentMemberAssignmentValue(Message, key=22, versions="0", flexible="0+"):
    member_epoch:                     int                                                   = col("int32")
    previous_member_epoch:            int                                                   = col("int32")
    state:                            int                                                   = col("int8")
    active_tasks:                     list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = col("[]StreamsGroupCurrentMemberAssignmentValueTaskIds")
    standby_tasks:                    list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = col("[]StreamsGroupCurrentMemberAssignmentValueTaskIds")
    warmup_tasks:                     list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = col("[]StreamsGroupCurrentMemberAssignmentValueTaskIds")
    active_tasks_pending_revocation:  list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = col("[]StreamsGroupCurrentMemberAssignmentValueTaskIds")
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = col("[]StreamsGroupCurrentMemberAssignmentValueTaskIds")
    warmup_tasks_pending_revocation:  list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = col("[]StreamsGroupCurrentMemberAssignmentValueTaskIds")


class StreamsGroupCurrentMemberAssignmentValueTaskIds(Struct):
    subtopology_id:    str              = col("string")
    partitions:        list[int]        = col("[]int32")
    assignment_epochs: list[int] | None = col("[]int32", nullable="0+", default=[], tag=0)


class StreamsGroupTopologyKey(Message, key=23, versions="0"):
    group_id: str = col("string", "0")


class StreamsGroupTopologyValue(Message, key=23, versions="0", flexible="0+"):
    epoch:         int               = col("int32")
    subtopologies: list[Subtopology] = col("[]Subtopology")


class Subtopology(Struct):
    subtopology_id:            str                    = col("string")
    source_topics:             list[str]              = col("[]string")
    source_topic_regex:        list[str]              = col("[]string")
    state_changelog_topics:    list[TopicInfo]        = col("[]TopicInfo")
    repartition_sink_topics:   list[str]              = col("[]string")
    repartition_source_topics: list[TopicInfo]        = col("[]TopicInfo")
    copartition_groups:        list[CopartitionGroup] = col("[]CopartitionGroup")


class TopicInfo(Struct):
    name:               str               = col("string")
    partitions:         int               = col("int32")
    replication_factor: int               = col("int16")
    topic_configs:      list[TopicConfig] = col("[]TopicConfig")


class TopicConfig(Struct):
    key:   str = col("string")
    value: str = col("string")


class CopartitionGroup(Struct):
    source_topics:             list[int] = col("[]int16")
    source_topic_regex:        list[int] = col("[]int16")
    repartition_source_topics: list[int] = col("[]int16")
