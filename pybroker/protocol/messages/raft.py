"""The metadata quorum (KRaft): elections, snapshots, voters. Its log is pulled with Fetch.

Vote 2 can be a pre-vote; versions with directory ids and endpoints belong to dynamic voters (KIP-853).
"""

from __future__ import annotations

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.protocol.message import Message, Records, Struct, col


class VoteRequest(Message, key=52, versions="0-2", flexible="0+"):
    cluster_id: str | None                 = col("string", nullable="0+", default=None)
    voter_id:   int                        = col("int32", "1+", default=-1, ignorable=True)
    topics:     list[VoteRequestTopicData] = col("[]VoteRequestTopicData")


class VoteRequestTopicData(Struct):
    topic_name: str                            = col("string")
    partitions: list[VoteRequestPartitionData] = col("[]VoteRequestPartitionData")


class VoteRequestPartitionData(Struct):
    partition_index:      int  = col("int32")
    replica_epoch:        int  = col("int32")
    replica_id:           int  = col("int32")
    replica_directory_id: Uuid = col("uuid", "1+", default=ZERO_UUID, ignorable=True)
    voter_directory_id:   Uuid = col("uuid", "1+", default=ZERO_UUID, ignorable=True)
    last_offset_epoch:    int  = col("int32")
    last_offset:          int  = col("int64")
    pre_vote:             bool = col("bool", "2+", default=False)


class VoteResponse(Message, key=52, versions="0-2", flexible="0+"):
    error_code:     int                         = col("int16")
    topics:         list[VoteResponseTopicData] = col("[]VoteResponseTopicData")
    node_endpoints: list[NodeEndpoint]          = col("[]NodeEndpoint", "1+", default=[], tag=0)


class VoteResponseTopicData(Struct):
    topic_name: str                             = col("string")
    partitions: list[VoteResponsePartitionData] = col("[]VoteResponsePartitionData")


class VoteResponsePartitionData(Struct):
    partition_index: int  = col("int32")
    error_code:      int  = col("int16")
    leader_id:       int  = col("int32")
    leader_epoch:    int  = col("int32")
    vote_granted:    bool = col("bool")


class NodeEndpoint(Struct):
    node_id: int = col("int32", "1+")
    host:    str = col("string", "1+")
    port:    int = col("uint16", "1+")


class BeginQuorumEpochRequest(Message, key=53, versions="0-1", flexible="1+"):
    cluster_id:       str | None                             = col("string", nullable="0+", default=None)
    voter_id:         int                                    = col("int32", "1+", default=-1, ignorable=True)
    topics:           list[BeginQuorumEpochRequestTopicData] = col("[]BeginQuorumEpochRequestTopicData")
    leader_endpoints: list[LeaderEndpoint]                   = col("[]LeaderEndpoint", "1+", default=[], ignorable=True)


class BeginQuorumEpochRequestTopicData(Struct):
    topic_name: str                                        = col("string")
    partitions: list[BeginQuorumEpochRequestPartitionData] = col("[]BeginQuorumEpochRequestPartitionData")


class BeginQuorumEpochRequestPartitionData(Struct):
    partition_index:    int  = col("int32")
    voter_directory_id: Uuid = col("uuid", "1+", default=ZERO_UUID, ignorable=True)
    leader_id:          int  = col("int32")
    leader_epoch:       int  = col("int32")


class LeaderEndpoint(Struct):
    name: str = col("string", "1+")
    host: str = col("string", "1+")
    port: int = col("uint16", "1+")


class BeginQuorumEpochResponse(Message, key=53, versions="0-1", flexible="1+"):
    error_code:     int                                     = col("int16")
    topics:         list[BeginQuorumEpochResponseTopicData] = col("[]BeginQuorumEpochResponseTopicData")
    node_endpoints: list[NodeEndpoint]                      = col("[]NodeEndpoint", "1+", default=[], tag=0)


class BeginQuorumEpochResponseTopicData(Struct):
    topic_name: str                                         = col("string")
    partitions: list[BeginQuorumEpochResponsePartitionData] = col("[]BeginQuorumEpochResponsePartitionData")


class BeginQuorumEpochResponsePartitionData(Struct):
    partition_index: int = col("int32")
    error_code:      int = col("int16")
    leader_id:       int = col("int32")
    leader_epoch:    int = col("int32")


class EndQuorumEpochRequest(Message, key=54, versions="0-1", flexible="1+"):
    cluster_id:       str | None                           = col("string", nullable="0+", default=None)
    topics:           list[EndQuorumEpochRequestTopicData] = col("[]EndQuorumEpochRequestTopicData")
    leader_endpoints: list[LeaderEndpoint]                 = col("[]LeaderEndpoint", "1+", default=[], ignorable=True)


class EndQuorumEpochRequestTopicData(Struct):
    topic_name: str                                      = col("string")
    partitions: list[EndQuorumEpochRequestPartitionData] = col("[]EndQuorumEpochRequestPartitionData")


class EndQuorumEpochRequestPartitionData(Struct):
    partition_index:      int               = col("int32")
    leader_id:            int               = col("int32")
    leader_epoch:         int               = col("int32")
    preferred_successors: list[int]         = col("[]int32", "0", default=[], ignorable=True)
    preferred_candidates: list[ReplicaInfo] = col("[]ReplicaInfo", "1+", default=[], ignorable=True)


class ReplicaInfo(Struct):
    candidate_id:           int  = col("int32", "1+")
    candidate_directory_id: Uuid = col("uuid", "1+")


class EndQuorumEpochResponse(Message, key=54, versions="0-1", flexible="1+"):
    error_code:     int                                   = col("int16")
    topics:         list[EndQuorumEpochResponseTopicData] = col("[]EndQuorumEpochResponseTopicData")
    node_endpoints: list[NodeEndpoint]                    = col("[]NodeEndpoint", "1+", default=[], tag=0)


class EndQuorumEpochResponseTopicData(Struct):
    topic_name: str                                       = col("string")
    partitions: list[EndQuorumEpochResponsePartitionData] = col("[]EndQuorumEpochResponsePartitionData")


class EndQuorumEpochResponsePartitionData(Struct):
    partition_index: int = col("int32")
    error_code:      int = col("int16")
    leader_id:       int = col("int32")
    leader_epoch:    int = col("int32")


class DescribeQuorumRequest(Message, key=55, versions="0-2", flexible="0+"):
    topics: list[DescribeQuorumRequestTopicData] = col("[]DescribeQuorumRequestTopicData")


class DescribeQuorumRequestTopicData(Struct):
    topic_name: str                                      = col("string")
    partitions: list[DescribeQuorumRequestPartitionData] = col("[]DescribeQuorumRequestPartitionData")


class DescribeQuorumRequestPartitionData(Struct):
    partition_index: int = col("int32")


class DescribeQuorumResponse(Message, key=55, versions="0-2", flexible="0+"):
    error_code:    int                                   = col("int16")
    error_message: str | None                            = col("string", "2+", nullable="2+", default="", ignorable=True)
    topics:        list[DescribeQuorumResponseTopicData] = col("[]DescribeQuorumResponseTopicData")
    nodes:         list[Node]                            = col("[]Node", "2+", default=[])


class DescribeQuorumResponseTopicData(Struct):
    topic_name: str                                       = col("string")
    partitions: list[DescribeQuorumResponsePartitionData] = col("[]DescribeQuorumResponsePartitionData")


class DescribeQuorumResponsePartitionData(Struct):
    partition_index: int                = col("int32")
    error_code:      int                = col("int16")
    error_message:   str | None         = col("string", "2+", nullable="2+", default="", ignorable=True)
    leader_id:       int                = col("int32")
    leader_epoch:    int                = col("int32")
    high_watermark:  int                = col("int64")
    current_voters:  list[ReplicaState] = col("[]ReplicaState")
    observers:       list[ReplicaState] = col("[]ReplicaState")


class ReplicaState(Struct):
    replica_id:               int  = col("int32")
    replica_directory_id:     Uuid = col("uuid", "2+", default=ZERO_UUID)
    log_end_offset:           int  = col("int64")
    last_fetch_timestamp:     int  = col("int64", "1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int  = col("int64", "1+", default=-1, ignorable=True)


class Node(Struct):
    node_id:   int                                  = col("int32", "2+")
    listeners: list[DescribeQuorumResponseListener] = col("[]DescribeQuorumResponseListener", "2+")


class DescribeQuorumResponseListener(Struct):
    name: str = col("string", "2+")
    host: str = col("string", "2+")
    port: int = col("uint16", "2+")


class FetchSnapshotRequest(Message, key=59, versions="0-1", flexible="0+"):
    cluster_id: str | None                              = col("string", nullable="0+", default=None, tag=0)
    replica_id: int                                     = col("int32", default=-1)
    max_bytes:  int                                     = col("int32", default=2147483647)
    topics:     list[FetchSnapshotRequestTopicSnapshot] = col("[]FetchSnapshotRequestTopicSnapshot")


class FetchSnapshotRequestTopicSnapshot(Struct):
    name:       str                                         = col("string")
    partitions: list[FetchSnapshotRequestPartitionSnapshot] = col("[]FetchSnapshotRequestPartitionSnapshot")


class FetchSnapshotRequestPartitionSnapshot(Struct):
    partition:            int        = col("int32")
    current_leader_epoch: int        = col("int32")
    snapshot_id:          SnapshotId = col("SnapshotId")
    position:             int        = col("int64")
    replica_directory_id: Uuid       = col("uuid", "1+", default=ZERO_UUID, tag=0, ignorable=True)


class SnapshotId(Struct):
    end_offset: int = col("int64")
    epoch:      int = col("int32")


class FetchSnapshotResponse(Message, key=59, versions="0-1", flexible="0+"):
    throttle_time_ms: int                                      = col("int32", default=0, ignorable=True)
    error_code:       int                                      = col("int16")
    topics:           list[FetchSnapshotResponseTopicSnapshot] = col("[]FetchSnapshotResponseTopicSnapshot")
    node_endpoints:   list[NodeEndpoint]                       = col("[]NodeEndpoint", "1+", default=[], tag=0)


class FetchSnapshotResponseTopicSnapshot(Struct):
    name:       str                                          = col("string")
    partitions: list[FetchSnapshotResponsePartitionSnapshot] = col("[]FetchSnapshotResponsePartitionSnapshot")


class FetchSnapshotResponsePartitionSnapshot(Struct):
    index:             int                     = col("int32")
    error_code:        int                     = col("int16")
    snapshot_id:       SnapshotId              = col("SnapshotId")
    current_leader:    LeaderIdAndEpoch | None = col("LeaderIdAndEpoch", default=None, tag=0)
    size:              int                     = col("int64")
    position:          int                     = col("int64")
    unaligned_records: Records                 = col("records")


class LeaderIdAndEpoch(Struct):
    leader_id:    int = col("int32")
    leader_epoch: int = col("int32")


class AddRaftVoterRequest(Message, key=80, versions="0-1", flexible="0+"):
    cluster_id:         str | None                        = col("string", nullable="0+")
    timeout_ms:         int                               = col("int32")
    voter_id:           int                               = col("int32")
    voter_directory_id: Uuid                              = col("uuid")
    listeners:          list[AddRaftVoterRequestListener] = col("[]AddRaftVoterRequestListener")
    ack_when_committed: bool                              = col("bool", "1+", default=True)


class AddRaftVoterRequestListener(Struct):
    name: str = col("string")
    host: str = col("string")
    port: int = col("uint16")


class AddRaftVoterResponse(Message, key=80, versions="0-1", flexible="0+"):
    throttle_time_ms: int        = col("int32", default=0)
    error_code:       int        = col("int16")
    error_message:    str | None = col("string", nullable="0+", ignorable=True)


class RemoveRaftVoterRequest(Message, key=81, versions="0", flexible="0+"):
    cluster_id:         str | None = col("string", nullable="0+")
    voter_id:           int        = col("int32")
    voter_directory_id: Uuid       = col("uuid")


class RemoveRaftVoterResponse(Message, key=81, versions="0", flexible="0+"):
    throttle_time_ms: int        = col("int32", default=0)
    error_code:       int        = col("int16")
    error_message:    str | None = col("string", nullable="0+", ignorable=True)


class UpdateRaftVoterRequest(Message, key=82, versions="0", flexible="0+"):
    cluster_id:             str | None                           = col("string", nullable="0+")
    current_leader_epoch:   int                                  = col("int32")
    voter_id:               int                                  = col("int32")
    voter_directory_id:     Uuid                                 = col("uuid")
    listeners:              list[UpdateRaftVoterRequestListener] = col("[]UpdateRaftVoterRequestListener")
    k_raft_version_feature: KRaftVersionFeature                  = col("KRaftVersionFeature")


class UpdateRaftVoterRequestListener(Struct):
    name: str = col("string")
    host: str = col("string")
    port: int = col("uint16")


class KRaftVersionFeature(Struct):
    min_supported_version: int = col("int16")
    max_supported_version: int = col("int16")


class UpdateRaftVoterResponse(Message, key=82, versions="0", flexible="0+"):
    throttle_time_ms: int                  = col("int32", default=0)
    error_code:       int                  = col("int16")
    current_leader:   CurrentLeader | None = col("CurrentLeader", default=None, tag=0)


class CurrentLeader(Struct):
    leader_id:    int = col("int32", default=-1)
    leader_epoch: int = col("int32", default=-1)
    host:         str = col("string")
    port:         int = col("int32")
