"""Who is in the cluster and which broker leads which partition.

Metadata is what every client asks; DescribeTopicPartitions pages through one answer with a cursor; DescribeCluster also
answers on controllers.
"""

from __future__ import annotations

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.protocol.message import Message, Struct, col


class MetadataRequest(Message, key=3, versions="0-13", flexible="9+"):
    topics:                                list[MetadataRequestTopic] | None = col("[]MetadataRequestTopic", nullable="1+")
    allow_auto_topic_creation:             bool                              = col("bool", "4+", default=True)
    include_cluster_authorized_operations: bool                              = col("bool", "8-10", default=False)
    include_topic_authorized_operations:   bool                              = col("bool", "8+", default=False)


class MetadataRequestTopic(Struct):
    topic_id: Uuid       = col("uuid", "10+", default=ZERO_UUID, ignorable=True)
    name:     str | None = col("string", nullable="10+")


class MetadataResponse(Message, key=3, versions="0-13", flexible="9+"):
    throttle_time_ms:              int                          = col("int32", "3+", default=0, ignorable=True)
    brokers:                       list[MetadataResponseBroker] = col("[]MetadataResponseBroker")
    cluster_id:                    str | None                   = col("string", "2+", nullable="2+", default=None, ignorable=True)
    controller_id:                 int                          = col("int32", "1+", default=-1, ignorable=True)
    topics:                        list[MetadataResponseTopic]  = col("[]MetadataResponseTopic")
    cluster_authorized_operations: int                          = col("int32", "8-10", default=-2147483648)
    error_code:                    int                          = col("int16", "13+", default=0, ignorable=True)


class MetadataResponseBroker(Struct):
    node_id: int        = col("int32")
    host:    str        = col("string")
    port:    int        = col("int32")
    rack:    str | None = col("string", "1+", nullable="1+", default=None, ignorable=True)


class MetadataResponseTopic(Struct):
    error_code:                  int                             = col("int16")
    name:                        str | None                      = col("string", nullable="12+")
    topic_id:                    Uuid                            = col("uuid", "10+", default=ZERO_UUID, ignorable=True)
    is_internal:                 bool                            = col("bool", "1+", default=False, ignorable=True)
    partitions:                  list[MetadataResponsePartition] = col("[]MetadataResponsePartition")
    topic_authorized_operations: int                             = col("int32", "8+", default=-2147483648)


class MetadataResponsePartition(Struct):
    error_code:       int       = col("int16")
    partition_index:  int       = col("int32")
    leader_id:        int       = col("int32")
    leader_epoch:     int       = col("int32", "7+", default=-1, ignorable=True)
    replica_nodes:    list[int] = col("[]int32")
    isr_nodes:        list[int] = col("[]int32")
    offline_replicas: list[int] = col("[]int32", "5+", default=[], ignorable=True)


class DescribeClusterRequest(Message, key=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: bool = col("bool")
    endpoint_type:                         int  = col("int8", "1+", default=1)
    include_fenced_brokers:                bool = col("bool", "2+", default=False)


class DescribeClusterResponse(Message, key=60, versions="0-2", flexible="0+"):
    throttle_time_ms:              int                         = col("int32", default=0)
    error_code:                    int                         = col("int16")
    error_message:                 str | None                  = col("string", nullable="0+", default=None)
    endpoint_type:                 int                         = col("int8", "1+", default=1)
    cluster_id:                    str                         = col("string")
    controller_id:                 int                         = col("int32", default=-1)
    brokers:                       list[DescribeClusterBroker] = col("[]DescribeClusterBroker")
    cluster_authorized_operations: int                         = col("int32", default=-2147483648)


class DescribeClusterBroker(Struct):
    broker_id: int        = col("int32")
    host:      str        = col("string")
    port:      int        = col("int32")
    rack:      str | None = col("string", nullable="0+", default=None)
    is_fenced: bool       = col("bool", "2+", default=False)


class DescribeTopicPartitionsRequest(Message, key=75, versions="0", flexible="0+"):
    topics:                   list[TopicRequest] = col("[]TopicRequest")
    response_partition_limit: int                = col("int32", default=2000)
    cursor:                   Cursor | None      = col("Cursor", nullable="0+", default=None)


class TopicRequest(Struct):
    name: str = col("string")


class Cursor(Struct):
    topic_name:      str = col("string")
    partition_index: int = col("int32")


class DescribeTopicPartitionsResponse(Message, key=75, versions="0", flexible="0+"):
    throttle_time_ms: int                                        = col("int32", default=0, ignorable=True)
    topics:           list[DescribeTopicPartitionsResponseTopic] = col("[]DescribeTopicPartitionsResponseTopic")
    next_cursor:      Cursor | None                              = col("Cursor", nullable="0+", default=None)


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code:                  int                                            = col("int16")
    name:                        str | None                                     = col("string", nullable="0+")
    topic_id:                    Uuid                                           = col("uuid", ignorable=True)
    is_internal:                 bool                                           = col("bool", default=False, ignorable=True)
    partitions:                  list[DescribeTopicPartitionsResponsePartition] = col("[]DescribeTopicPartitionsResponsePartition")
    topic_authorized_operations: int                                            = col("int32", default=-2147483648)


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code:               int              = col("int16")
    partition_index:          int              = col("int32")
    leader_id:                int              = col("int32")
    leader_epoch:             int              = col("int32", default=-1, ignorable=True)
    replica_nodes:            list[int]        = col("[]int32")
    isr_nodes:                list[int]        = col("[]int32")
    eligible_leader_replicas: list[int] | None = col("[]int32", nullable="0+", default=None)
    last_known_elr:           list[int] | None = col("[]int32", nullable="0+", default=None)
    offline_replicas:         list[int]        = col("[]int32", ignorable=True)
