"""The consumer group protocol of KIP-848: the heartbeat carries subscription and assignment, the broker assigns."""

from __future__ import annotations

from pybroker.base.ids import Uuid
from pybroker.protocol.message import Message, Struct, col


class ConsumerGroupHeartbeatRequest(Message, key=68, versions="0-1", flexible="0+"):
    group_id:               str                                                       = col("string")
    member_id:              str                                                       = col("string")
    member_epoch:           int                                                       = col("int32")
    instance_id:            str | None                                                = col("string", nullable="0+", default=None)
    rack_id:                str | None                                                = col("string", nullable="0+", default=None)
    rebalance_timeout_ms:   int                                                       = col("int32", default=-1)
    subscribed_topic_names: list[str] | None                                          = col("[]string", nullable="0+", default=None)
    subscribed_topic_regex: str | None                                                = col("string", "1+", nullable="1+", default=None)
    server_assignor:        str | None                                                = col("string", nullable="0+", default=None)
    topic_partitions:       list[ConsumerGroupHeartbeatRequestTopicPartitions] | None = col("[]ConsumerGroupHeartbeatRequestTopicPartitions", nullable="0+", default=None)


class ConsumerGroupHeartbeatRequestTopicPartitions(Struct):
    topic_id:   Uuid      = col("uuid")
    partitions: list[int] = col("[]int32")


class ConsumerGroupHeartbeatResponse(Message, key=68, versions="0-1", flexible="0+"):
    throttle_time_ms:      int                                             = col("int32", default=0)
    error_code:            int                                             = col("int16")
    error_message:         str | None                                      = col("string", nullable="0+", default=None)
    member_id:             str | None                                      = col("string", nullable="0+", default=None)
    member_epoch:          int                                             = col("int32")
    heartbeat_interval_ms: int                                             = col("int32")
    assignment:            ConsumerGroupHeartbeatResponseAssignment | None = col("ConsumerGroupHeartbeatResponseAssignment", nullable="0+", default=None)


class ConsumerGroupHeartbeatResponseAssignment(Struct):
    topic_partitions: list[ConsumerGroupHeartbeatResponseTopicPartitions] = col("[]ConsumerGroupHeartbeatResponseTopicPartitions")


class ConsumerGroupHeartbeatResponseTopicPartitions(Struct):
    topic_id:   Uuid      = col("uuid")
    partitions: list[int] = col("[]int32")


class ConsumerGroupDescribeRequest(Message, key=69, versions="0-1", flexible="0+"):
    group_ids:                     list[str] = col("[]string")
    include_authorized_operations: bool      = col("bool")


class ConsumerGroupDescribeResponse(Message, key=69, versions="0-1", flexible="0+"):
    throttle_time_ms: int                  = col("int32", default=0)
    groups:           list[DescribedGroup] = col("[]DescribedGroup")


class DescribedGroup(Struct):
    error_code:            int          = col("int16")
    error_message:         str | None   = col("string", nullable="0+", default=None)
    group_id:              str          = col("string")
    group_state:           str          = col("string")
    group_epoch:           int          = col("int32")
    assignment_epoch:      int          = col("int32")
    assignor_name:         str          = col("string")
    members:               list[Member] = col("[]Member")
    authorized_operations: int          = col("int32", default=-2147483648)


class Member(Struct):
    member_id:              str                                     = col("string")
    instance_id:            str | None                              = col("string", nullable="0+", default=None)
    rack_id:                str | None                              = col("string", nullable="0+", default=None)
    member_epoch:           int                                     = col("int32")
    client_id:              str                                     = col("string")
    client_host:            str                                     = col("string")
    subscribed_topic_names: list[str]                               = col("[]string")
    subscribed_topic_regex: str | None                              = col("string", nullable="0+", default=None)
    assignment:             ConsumerGroupDescribeResponseAssignment = col("ConsumerGroupDescribeResponseAssignment")
    target_assignment:      ConsumerGroupDescribeResponseAssignment = col("ConsumerGroupDescribeResponseAssignment")
    member_type:            int                                     = col("int8", "1+", default=-1, ignorable=True)


class ConsumerGroupDescribeResponseAssignment(Struct):
    topic_partitions: list[ConsumerGroupDescribeResponseTopicPartitions] = col("[]ConsumerGroupDescribeResponseTopicPartitions")


class ConsumerGroupDescribeResponseTopicPartitions(Struct):
    topic_id:   Uuid      = col("uuid")
    topic_name: str       = col("string")
    partitions: list[int] = col("[]int32")
