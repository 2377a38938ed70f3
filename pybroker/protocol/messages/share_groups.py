"""Share groups (KIP-932): membership, fetching with acknowledgement record by record, and their start offsets."""

from __future__ import annotations

from pybroker.base.ids import Uuid
from pybroker.protocol.message import Message, Records, Struct, col


class ShareGroupHeartbeatRequest(Message, key=76, versions="1", flexible="0+"):
    group_id:               str              = col("string")
    member_id:              str              = col("string")
    member_epoch:           int              = col("int32")
    rack_id:                str | None       = col("string", nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = col("[]string", nullable="0+", default=None)


class ShareGroupHeartbeatResponse(Message, key=76, versions="1", flexible="0+"):
    throttle_time_ms:      int                                          = col("int32", default=0)
    error_code:            int                                          = col("int16")
    error_message:         str | None                                   = col("string", nullable="0+", default=None)
    member_id:             str | None                                   = col("string", nullable="0+", default=None)
    member_epoch:          int                                          = col("int32")
    heartbeat_interval_ms: int                                          = col("int32")
    assignment:            ShareGroupHeartbeatResponseAssignment | None = col("ShareGroupHeartbeatResponseAssignment", nullable="0+", default=None)


class ShareGroupHeartbeatResponseAssignment(Struct):
    topic_partitions: list[ShareGroupHeartbeatResponseTopicPartitions] = col("[]ShareGroupHeartbeatResponseTopicPartitions")


class ShareGroupHeartbeatResponseTopicPartitions(Struct):
    topic_id:   Uuid      = col("uuid")
    partitions: list[int] = col("[]int32")


class ShareGroupDescribeRequest(Message, key=77, versions="1", flexible="0+"):
    group_ids:                     list[str] = col("[]string")
    include_authorized_operations: bool      = col("bool")


class ShareGroupDescribeResponse(Message, key=77, versions="1", flexible="0+"):
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
    member_id:              str                                  = col("string")
    rack_id:                str | None                           = col("string", nullable="0+", default=None)
    member_epoch:           int                                  = col("int32")
    client_id:              str                                  = col("string")
    client_host:            str                                  = col("string")
    subscribed_topic_names: list[str]                            = col("[]string")
    assignment:             ShareGroupDescribeResponseAssignment = col("ShareGroupDescribeResponseAssignment")


class ShareGroupDescribeResponseAssignment(Struct):
    topic_partitions: list[ShareGroupDescribeResponseTopicPartitions] = col("[]ShareGroupDescribeResponseTopicPartitions")


class ShareGroupDescribeResponseTopicPartitions(Struct):
    topic_id:   Uuid      = col("uuid")
    topic_name: str       = col("string")
    partitions: list[int] = col("[]int32")


class ShareFetchRequest(Message, key=78, versions="1-2", flexible="0+"):
    group_id:              str | None           = col("string", nullable="0+", default=None)
    member_id:             str | None           = col("string", nullable="0+")
    share_session_epoch:   int                  = col("int32")
    max_wait_ms:           int                  = col("int32")
    min_bytes:             int                  = col("int32")
    max_bytes:             int                  = col("int32", default=2147483647)
    max_records:           int                  = col("int32", "1+")
    batch_size:            int                  = col("int32", "1+")
    share_acquire_mode:    int                  = col("int8", "2+", default=0, ignorable=True)
    is_renew_ack:          bool                 = col("bool", "2+", default=False)
    topics:                list[FetchTopic]     = col("[]FetchTopic")
    forgotten_topics_data: list[ForgottenTopic] = col("[]ForgottenTopic")


class FetchTopic(Struct):
    topic_id:   Uuid                 = col("uuid")
    partitions: list[FetchPartition] = col("[]FetchPartition")


class FetchPartition(Struct):
    partition_index:         int                        = col("int32")
    partition_max_bytes:     int                        = col("int32", "0", default=0)
    acknowledgement_batches: list[AcknowledgementBatch] = col("[]AcknowledgementBatch")


class AcknowledgementBatch(Struct):
    first_offset:      int       = col("int64")
    last_offset:       int       = col("int64")
    acknowledge_types: list[int] = col("[]int8")


class ForgottenTopic(Struct):
    topic_id:   Uuid      = col("uuid")
    partitions: list[int] = col("[]int32")


class ShareFetchResponse(Message, key=78, versions="1-2", flexible="0+"):
    throttle_time_ms:            int                               = col("int32", default=0)
    error_code:                  int                               = col("int16")
    error_message:               str | None                        = col("string", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int                               = col("int32", "1+")
    responses:                   list[ShareFetchableTopicResponse] = col("[]ShareFetchableTopicResponse")
    node_endpoints:              list[NodeEndpoint]                = col("[]NodeEndpoint")


class ShareFetchableTopicResponse(Struct):
    topic_id:   Uuid                                  = col("uuid")
    partitions: list[ShareFetchResponsePartitionData] = col("[]ShareFetchResponsePartitionData")


class ShareFetchResponsePartitionData(Struct):
    partition_index:           int                   = col("int32")
    error_code:                int                   = col("int16")
    error_message:             str | None            = col("string", nullable="0+", default=None)
    acknowledge_error_code:    int                   = col("int16")
    acknowledge_error_message: str | None            = col("string", nullable="0+", default=None)
    current_leader:            LeaderIdAndEpoch      = col("LeaderIdAndEpoch")
    records:                   Records               = col("records", nullable="0")
    acquired_records:          list[AcquiredRecords] = col("[]AcquiredRecords")


class LeaderIdAndEpoch(Struct):
    leader_id:    int = col("int32")
    leader_epoch: int = col("int32")


class AcquiredRecords(Struct):
    first_offset:   int = col("int64")
    last_offset:    int = col("int64")
    delivery_count: int = col("int16")


class NodeEndpoint(Struct):
    node_id: int        = col("int32")
    host:    str        = col("string")
    port:    int        = col("int32")
    rack:    str | None = col("string", nullable="0+", default=None)


class ShareAcknowledgeRequest(Message, key=79, versions="1-2", flexible="0+"):
    group_id:            str | None             = col("string", nullable="0+", default=None)
    member_id:           str | None             = col("string", nullable="0+")
    share_session_epoch: int                    = col("int32")
    is_renew_ack:        bool                   = col("bool", "2+", default=False)
    topics:              list[AcknowledgeTopic] = col("[]AcknowledgeTopic")


class AcknowledgeTopic(Struct):
    topic_id:   Uuid                       = col("uuid")
    partitions: list[AcknowledgePartition] = col("[]AcknowledgePartition")


class AcknowledgePartition(Struct):
    partition_index:         int                        = col("int32")
    acknowledgement_batches: list[AcknowledgementBatch] = col("[]AcknowledgementBatch")


class ShareAcknowledgeResponse(Message, key=79, versions="1-2", flexible="0+"):
    throttle_time_ms:            int                                 = col("int32", default=0)
    error_code:                  int                                 = col("int16")
    error_message:               str | None                          = col("string", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int                                 = col("int32", "2+", default=0, ignorable=True)
    responses:                   list[ShareAcknowledgeTopicResponse] = col("[]ShareAcknowledgeTopicResponse")
    node_endpoints:              list[NodeEndpoint]                  = col("[]NodeEndpoint")


class ShareAcknowledgeTopicResponse(Struct):
    topic_id:   Uuid                                        = col("uuid")
    partitions: list[ShareAcknowledgeResponsePartitionData] = col("[]ShareAcknowledgeResponsePartitionData")


class ShareAcknowledgeResponsePartitionData(Struct):
    partition_index: int              = col("int32")
    error_code:      int              = col("int16")
    error_message:   str | None       = col("string", nullable="0+", default=None)
    current_leader:  LeaderIdAndEpoch = col("LeaderIdAndEpoch")


class DescribeShareGroupOffsetsRequest(Message, key=90, versions="0-1", flexible="0+"):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = col("[]DescribeShareGroupOffsetsRequestGroup")


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str                                                = col("string")
    topics:   list[DescribeShareGroupOffsetsRequestTopic] | None = col("[]DescribeShareGroupOffsetsRequestTopic", nullable="0+")


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str       = col("string")
    partitions: list[int] = col("[]int32")


class DescribeShareGroupOffsetsResponse(Message, key=90, versions="0-1", flexible="0+"):
    throttle_time_ms: int                                          = col("int32", default=0)
    groups:           list[DescribeShareGroupOffsetsResponseGroup] = col("[]DescribeShareGroupOffsetsResponseGroup")


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id:      str                                          = col("string")
    topics:        list[DescribeShareGroupOffsetsResponseTopic] = col("[]DescribeShareGroupOffsetsResponseTopic")
    error_code:    int                                          = col("int16")
    error_message: str | None                                   = col("string", nullable="0+", default=None)


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str                                              = col("string")
    topic_id:   Uuid                                             = col("uuid")
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = col("[]DescribeShareGroupOffsetsResponsePartition")


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: int        = col("int32")
    start_offset:    int        = col("int64")
    leader_epoch:    int        = col("int32")
    lag:             int        = col("int64", "1+", default=-1, ignorable=True)
    error_code:      int        = col("int16")
    error_message:   str | None = col("string", nullable="0+", default=None)


class AlterShareGroupOffsetsRequest(Message, key=91, versions="0", flexible="0+"):
    group_id: str                                      = col("string")
    topics:   list[AlterShareGroupOffsetsRequestTopic] = col("[]AlterShareGroupOffsetsRequestTopic")


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: str                                          = col("string")
    partitions: list[AlterShareGroupOffsetsRequestPartition] = col("[]AlterShareGroupOffsetsRequestPartition")


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: int = col("int32")
    start_offset:    int = col("int64")


class AlterShareGroupOffsetsResponse(Message, key=91, versions="0", flexible="0+"):
    throttle_time_ms: int                                       = col("int32", default=0)
    error_code:       int                                       = col("int16")
    error_message:    str | None                                = col("string", nullable="0+", default=None)
    responses:        list[AlterShareGroupOffsetsResponseTopic] = col("[]AlterShareGroupOffsetsResponseTopic")


class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: str                                           = col("string")
    topic_id:   Uuid                                          = col("uuid")
    partitions: list[AlterShareGroupOffsetsResponsePartition] = col("[]AlterShareGroupOffsetsResponsePartition")


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: int        = col("int32")
    error_code:      int        = col("int16")
    error_message:   str | None = col("string", nullable="0+", default=None)


class DeleteShareGroupOffsetsRequest(Message, key=92, versions="0", flexible="0+"):
    group_id: str                                       = col("string")
    topics:   list[DeleteShareGroupOffsetsRequestTopic] = col("[]DeleteShareGroupOffsetsRequestTopic")


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = col("string")


class DeleteShareGroupOffsetsResponse(Message, key=92, versions="0", flexible="0+"):
    throttle_time_ms: int                                        = col("int32", default=0)
    error_code:       int                                        = col("int16")
    error_message:    str | None                                 = col("string", nullable="0+", default=None)
    responses:        list[DeleteShareGroupOffsetsResponseTopic] = col("[]DeleteShareGroupOffsetsResponseTopic")


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name:    str        = col("string")
    topic_id:      Uuid       = col("uuid")
    error_code:    int        = col("int16")
    error_message: str | None = col("string", nullable="0+", default=None)
