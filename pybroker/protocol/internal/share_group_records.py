"""Records of `__consumer_offsets`: share groups."""

from __future__ import annotations

from pybroker.base.ids import Uuid
from pybroker.protocol.message import Message, Struct, col


class ShareGroupMemberMetadataKey(Message, key=10, versions="0"):
    group_id:  str = col("string", "0")
    member_id: str = col("string", "0")


class ShareGroupMemberMetadataValue(Message, key=10, versions="0", flexible="0+"):
    rack_id:                str | None = col("string", nullable="0+")
    client_id:              str        = col("string")
    client_host:            str        = col("string")
    subscribed_topic_names: list[str]  = col("[]string")


class ShareGroupMetadataKey(Message, key=11, versions="0"):
    group_id: str = col("string", "0")


class ShareGroupMetadataValue(Message, key=11, versions="0", flexible="0+"):
    epoch:         int = col("int32")
    metadata_hash: int = col("int64")


class ShareGroupTargetAssignmentMetadataKey(Message, key=12, versions="0"):
    group_id: str = col("string", "0")


class ShareGroupTargetAssignmentMetadataValue(Message, key=12, versions="0", flexible="0+"):
    assignment_epoch:     int = col("int32")
    assignment_timestamp: int = col("int64", default=0, tag=0, ignorable=True)


class ShareGroupTargetAssignmentMemberKey(Message, key=13, versions="0"):
    group_id:  str = col("string", "0")
    member_id: str = col("string", "0")


class ShareGroupTargetAssignmentMemberValue(Message, key=13, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartition] = col("[]TopicPartition")


class TopicPartition(Struct):
    topic_id:   Uuid      = col("uuid")
    partitions: list[int] = col("[]int32")


class ShareGroupCurrentMemberAssignmentKey(Message, key=14, versions="0"):
    group_id:  str = col("string", "0")
    member_id: str = col("string", "0")


class ShareGroupCurrentMemberAssignmentValue(Message, key=14, versions="0", flexible="0+"):
    member_epoch:          int                   = col("int32")
    previous_member_epoch: int                   = col("int32")
    state:                 int                   = col("int8")
    assigned_partitions:   list[TopicPartitions] = col("[]TopicPartitions")


class TopicPartitions(Struct):
    topic_id:   Uuid      = col("uuid")
    partitions: list[int] = col("[]int32")


class ShareGroupStatePartitionMetadataKey(Message, key=15, versions="0"):
    group_id: str = col("string", "0")


class ShareGroupStatePartitionMetadataValue(Message, key=15, versions="0", flexible="0+"):
    initializing_topics: list[TopicPartitionsInfo] = col("[]TopicPartitionsInfo")
    initialized_topics:  list[TopicPartitionsInfo] = col("[]TopicPartitionsInfo")
    deleting_topics:     list[TopicInfo]           = col("[]TopicInfo")


class TopicPartitionsInfo(Struct):
    topic_id:   Uuid      = col("uuid")
    topic_name: str       = col("string")
    partitions: list[int] = col("[]int32")


class TopicInfo(Struct):
    topic_id:   Uuid = col("uuid")
    topic_name: str  = col("string")
