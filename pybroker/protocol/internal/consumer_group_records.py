"""Records of `__consumer_offsets`: groups of the KIP-848 protocol."""

from __future__ import annotations

from pybroker.base.ids import Uuid
from pybroker.protocol.message import Message, Struct, col


class ConsumerGroupMetadataKey(Message, key=3, versions="0"):
    group_id: str = col("string", "0")


class ConsumerGroupMetadataValue(Message, key=3, versions="0", flexible="0+"):
    epoch:         int = col("int32")
    metadata_hash: int = col("int64", default=0, tag=0)


class ConsumerGroupPartitionMetadataKey(Message, key=4, versions="0"):
    group_id: str = col("string", "0")


class ConsumerGroupPartitionMetadataValue(Message, key=4, versions="0", flexible="0+"):
    topics: list[TopicMetadata] = col("[]TopicMetadata")


class TopicMetadata(Struct):
    topic_id:           Uuid                    = col("uuid")
    topic_name:         str                     = col("string")
    num_partitions:     int                     = col("int32")
    partition_metadata: list[PartitionMetadata] = col("[]PartitionMetadata")


class PartitionMetadata(Struct):
    partition: int       = col("int32")
    racks:     list[str] = col("[]string")


class ConsumerGroupMemberMetadataKey(Message, key=5, versions="0"):
    group_id:  str = col("string", "0")
    member_id: str = col("string", "0")


class ConsumerGroupMemberMetadataValue(Message, key=5, versions="0", flexible="0+"):
    instance_id:             str | None                   = col("string", nullable="0+")
    rack_id:                 str | None                   = col("string", nullable="0+")
    client_id:               str                          = col("string")
    client_host:             str                          = col("string")
    subscribed_topic_names:  list[str]                    = col("[]string")
    subscribed_topic_regex:  str | None                   = col("string", nullable="0+")
    rebalance_timeout_ms:    int                          = col("int32", default=-1)
    server_assignor:         str | None                   = col("string", nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = col("ClassicMemberMetadata", nullable="0+", tag=0)


class ClassicMemberMetadata(Struct):
    session_timeout_ms:  int                   = col("int32")
    supported_protocols: list[ClassicProtocol] = col("[]ClassicProtocol")


class ClassicProtocol(Struct):
    name:     str   = col("string")
    metadata: bytes = col("bytes")


class ConsumerGroupTargetAssignmentMetadataKey(Message, key=6, versions="0"):
    group_id: str = col("string", "0")


class ConsumerGroupTargetAssignmentMetadataValue(Message, key=6, versions="0", flexible="0+"):
    assignment_epoch:     int = col("int32")
    assignment_timestamp: int = col("int64", default=0, tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(Message, key=7, versions="0"):
    group_id:  str = col("string", "0")
    member_id: str = col("string", "0")


class ConsumerGroupTargetAssignmentMemberValue(Message, key=7, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartition] = col("[]TopicPartition")


class TopicPartition(Struct):
    topic_id:   Uuid      = col("uuid")
    partitions: list[int] = col("[]int32")


class ConsumerGroupCurrentMemberAssignmentKey(Message, key=8, versions="0"):
    group_id:  str = col("string", "0")
    member_id: str = col("string", "0")


class ConsumerGroupCurrentMemberAssignmentValue(Message, key=8, versions="0", flexible="0+"):
    member_epoch:                  int                   = col("int32")
    previous_member_epoch:         int                   = col("int32")
    state:                         int                   = col("int8")
    assigned_partitions:           list[TopicPartitions] = col("[]TopicPartitions")
    partitions_pending_revocation: list[TopicPartitions] = col("[]TopicPartitions")


class TopicPartitions(Struct):
    topic_id:          Uuid             = col("uuid")
    partitions:        list[int]        = col("[]int32")
    assignment_epochs: list[int] | None = col("[]int32", nullable="0+", default=[], tag=0)


class ConsumerGroupRegularExpressionKey(Message, key=16, versions="0"):
    group_id:           str = col("string", "0")
    regular_expression: str = col("string", "0")


class ConsumerGroupRegularExpressionValue(Message, key=16, versions="0", flexible="0+"):
    topics:    list[str] = col("[]string")
    version:   int       = col("int64")
    timestamp: int       = col("int64")
