"""What classic consumers put into JoinGroup and SyncGroup: subscription and assignment, each behind its version."""

from __future__ import annotations

from pybroker.protocol.message import Buffer, Message, Struct, col


class ConsumerProtocolSubscription(Message, versions="0-3"):
    topics:           list[str]                                        = col("[]string")
    user_data:        Buffer | None                                    = col("bytes", nullable="0+", default=None, zero_copy=True)
    owned_partitions: list[ConsumerProtocolSubscriptionTopicPartition] = col("[]ConsumerProtocolSubscriptionTopicPartition", "1+", default=[], ignorable=True)
    generation_id:    int                                              = col("int32", "2+", default=-1, ignorable=True)
    rack_id:          str | None                                       = col("string", "3+", nullable="3+", default=None, ignorable=True)


class ConsumerProtocolSubscriptionTopicPartition(Struct):
    topic:      str       = col("string", "1+")
    partitions: list[int] = col("[]int32", "1+")


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = col("[]ConsumerProtocolAssignmentTopicPartition")
    user_data:           Buffer | None                                  = col("bytes", nullable="0+", default=None, zero_copy=True)


class ConsumerProtocolAssignmentTopicPartition(Struct):
    topic:      str       = col("string")
    partitions: list[int] = col("[]int32")
