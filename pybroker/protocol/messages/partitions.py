"""Where a partition lives and who leads it.

Elections and reassignments on an operator's word; AlterPartition is how a leader reports its in-sync replicas to the
controller.
"""

from __future__ import annotations

from pybroker.base.ids import Uuid
from pybroker.protocol.message import Message, Struct, col


class ElectLeadersRequest(Message, key=43, versions="0-2", flexible="2+"):
    election_type:    int                          = col("int8", "1+", default=0)
    topic_partitions: list[TopicPartitions] | None = col("[]TopicPartitions", nullable="0+")
    timeout_ms:       int                          = col("int32", default=60000)


class TopicPartitions(Struct):
    topic:      str       = col("string")
    partitions: list[int] = col("[]int32")


class ElectLeadersResponse(Message, key=43, versions="0-2", flexible="2+"):
    throttle_time_ms:         int                         = col("int32", default=0)
    error_code:               int                         = col("int16", "1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = col("[]ReplicaElectionResult")


class ReplicaElectionResult(Struct):
    topic:            str                   = col("string")
    partition_result: list[PartitionResult] = col("[]PartitionResult")


class PartitionResult(Struct):
    partition_id:  int        = col("int32")
    error_code:    int        = col("int16")
    error_message: str | None = col("string", nullable="0+")


class AlterPartitionReassignmentsRequest(Message, key=45, versions="0-1", flexible="0+"):
    timeout_ms:                      int                     = col("int32", default=60000)
    allow_replication_factor_change: bool                    = col("bool", "1+", default=True)
    topics:                          list[ReassignableTopic] = col("[]ReassignableTopic")


class ReassignableTopic(Struct):
    name:       str                         = col("string")
    partitions: list[ReassignablePartition] = col("[]ReassignablePartition")


class ReassignablePartition(Struct):
    partition_index: int              = col("int32")
    replicas:        list[int] | None = col("[]int32", nullable="0+", default=None)


class AlterPartitionReassignmentsResponse(Message, key=45, versions="0-1", flexible="0+"):
    throttle_time_ms:                int                             = col("int32", default=0)
    allow_replication_factor_change: bool                            = col("bool", "1+", default=True, ignorable=True)
    error_code:                      int                             = col("int16")
    error_message:                   str | None                      = col("string", nullable="0+")
    responses:                       list[ReassignableTopicResponse] = col("[]ReassignableTopicResponse")


class ReassignableTopicResponse(Struct):
    name:       str                                 = col("string")
    partitions: list[ReassignablePartitionResponse] = col("[]ReassignablePartitionResponse")


class ReassignablePartitionResponse(Struct):
    partition_index: int        = col("int32")
    error_code:      int        = col("int16")
    error_message:   str | None = col("string", nullable="0+")


class ListPartitionReassignmentsRequest(Message, key=46, versions="0", flexible="0+"):
    timeout_ms: int                                           = col("int32", default=60000)
    topics:     list[ListPartitionReassignmentsTopics] | None = col("[]ListPartitionReassignmentsTopics", nullable="0+", default=None)


class ListPartitionReassignmentsTopics(Struct):
    name:              str       = col("string")
    partition_indexes: list[int] = col("[]int32")


class ListPartitionReassignmentsResponse(Message, key=46, versions="0", flexible="0+"):
    throttle_time_ms: int                            = col("int32", default=0)
    error_code:       int                            = col("int16")
    error_message:    str | None                     = col("string", nullable="0+")
    topics:           list[OngoingTopicReassignment] = col("[]OngoingTopicReassignment")


class OngoingTopicReassignment(Struct):
    name:       str                                = col("string")
    partitions: list[OngoingPartitionReassignment] = col("[]OngoingPartitionReassignment")


class OngoingPartitionReassignment(Struct):
    partition_index:   int       = col("int32")
    replicas:          list[int] = col("[]int32")
    adding_replicas:   list[int] = col("[]int32")
    removing_replicas: list[int] = col("[]int32")


class AlterPartitionRequest(Message, key=56, versions="2-3", flexible="0+"):
    broker_id:    int                                  = col("int32")
    broker_epoch: int                                  = col("int64", default=-1)
    topics:       list[AlterPartitionRequestTopicData] = col("[]AlterPartitionRequestTopicData")


class AlterPartitionRequestTopicData(Struct):
    topic_id:   Uuid                                     = col("uuid", "2+", ignorable=True)
    partitions: list[AlterPartitionRequestPartitionData] = col("[]AlterPartitionRequestPartitionData")


class AlterPartitionRequestPartitionData(Struct):
    partition_index:       int               = col("int32")
    leader_epoch:          int               = col("int32")
    new_isr:               list[int]         = col("[]int32", "0-2", default=[])
    new_isr_with_epochs:   list[BrokerState] = col("[]BrokerState", "3+", default=[])
    leader_recovery_state: int               = col("int8", "1+", default=0)
    partition_epoch:       int               = col("int32")


class BrokerState(Struct):
    broker_id:    int = col("int32", "3+")
    broker_epoch: int = col("int64", "3+", default=-1)


class AlterPartitionResponse(Message, key=56, versions="2-3", flexible="0+"):
    throttle_time_ms: int                                   = col("int32", default=0)
    error_code:       int                                   = col("int16")
    topics:           list[AlterPartitionResponseTopicData] = col("[]AlterPartitionResponseTopicData")


class AlterPartitionResponseTopicData(Struct):
    topic_id:   Uuid                                      = col("uuid", "2+", ignorable=True)
    partitions: list[AlterPartitionResponsePartitionData] = col("[]AlterPartitionResponsePartitionData")


class AlterPartitionResponsePartitionData(Struct):
    partition_index:       int       = col("int32")
    error_code:            int       = col("int16")
    leader_id:             int       = col("int32")
    leader_epoch:          int       = col("int32")
    isr:                   list[int] = col("[]int32")
    leader_recovery_state: int       = col("int8", "1+", default=0, ignorable=True)
    partition_epoch:       int       = col("int32")
