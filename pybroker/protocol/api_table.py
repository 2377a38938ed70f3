"""Every API of Apache Kafka 4.3: its key, its messages, and the listeners that serve it.

Dispatch, ApiVersions and the tools derive from this table. Keys 4 to 7 went with ZooKeeper and are nobody's.
"""

from __future__ import annotations

from enum import Flag
from typing import Final, NamedTuple

from pybroker.protocol.message import Message
from pybroker.protocol.messages import (
    acls,
    api_versions,
    cluster,
    configs,
    consumer_groups,
    credentials,
    fetch,
    group_offsets,
    groups,
    log_dirs,
    metadata,
    offsets,
    partitions,
    produce,
    quotas,
    raft,
    sasl,
    share_groups,
    share_state,
    streams_groups,
    telemetry,
    topics,
    transactions,
)
from pybroker.protocol.schema import Versions


class Listener(Flag):
    """Who a listener is for."""

    BROKER = 1
    CONTROLLER = 2


BROKER: Final = Listener.BROKER
CONTROLLER: Final = Listener.CONTROLLER
BOTH: Final = Listener.BROKER | Listener.CONTROLLER

API_VERSIONS_KEY: Final = 18


class Api(NamedTuple):
    key: int
    name: str
    request: type[Message]
    response: type[Message]
    listeners: Listener

    @property
    def versions(self) -> Versions:
        """The versions in the tables, a last unstable one included."""
        return self.request.VERSIONS

    @property
    def stable_versions(self) -> Versions:
        """The versions that Kafka advertises by default."""
        low, high = self.request.VERSIONS
        return Versions(low, high - 1) if self.request.UNSTABLE else self.request.VERSIONS

    def request_header_version(self, version: int) -> int:
        return 2 if version in self.request.FLEXIBLE else 1

    def response_header_version(self, version: int) -> int:
        # A client that asks for a newer ApiVersions than we know must be able to read the answer.
        return 1 if version in self.response.FLEXIBLE and self.key != API_VERSIONS_KEY else 0


APIS: Final = (
    Api( 0, "Produce",                      produce.ProduceRequest,                          produce.ProduceResponse,                          BROKER),
    Api( 1, "Fetch",                        fetch.FetchRequest,                              fetch.FetchResponse,                              BOTH),
    Api( 2, "ListOffsets",                  offsets.ListOffsetsRequest,                      offsets.ListOffsetsResponse,                      BROKER),
    Api( 3, "Metadata",                     metadata.MetadataRequest,                        metadata.MetadataResponse,                        BROKER),
    Api( 8, "OffsetCommit",                 group_offsets.OffsetCommitRequest,               group_offsets.OffsetCommitResponse,               BROKER),
    Api( 9, "OffsetFetch",                  group_offsets.OffsetFetchRequest,                group_offsets.OffsetFetchResponse,                BROKER),
    Api(10, "FindCoordinator",              groups.FindCoordinatorRequest,                   groups.FindCoordinatorResponse,                   BROKER),
    Api(11, "JoinGroup",                    groups.JoinGroupRequest,                         groups.JoinGroupResponse,                         BROKER),
    Api(12, "Heartbeat",                    groups.HeartbeatRequest,                         groups.HeartbeatResponse,                         BROKER),
    Api(13, "LeaveGroup",                   groups.LeaveGroupRequest,                        groups.LeaveGroupResponse,                        BROKER),
    Api(14, "SyncGroup",                    groups.SyncGroupRequest,                         groups.SyncGroupResponse,                         BROKER),
    Api(15, "DescribeGroups",               groups.DescribeGroupsRequest,                    groups.DescribeGroupsResponse,                    BROKER),
    Api(16, "ListGroups",                   groups.ListGroupsRequest,                        groups.ListGroupsResponse,                        BROKER),
    Api(17, "SaslHandshake",                sasl.SaslHandshakeRequest,                       sasl.SaslHandshakeResponse,                       BOTH),
    Api(18, "ApiVersions",                  api_versions.ApiVersionsRequest,                 api_versions.ApiVersionsResponse,                 BOTH),
    Api(19, "CreateTopics",                 topics.CreateTopicsRequest,                      topics.CreateTopicsResponse,                      BOTH),
    Api(20, "DeleteTopics",                 topics.DeleteTopicsRequest,                      topics.DeleteTopicsResponse,                      BOTH),
    Api(21, "DeleteRecords",                offsets.DeleteRecordsRequest,                    offsets.DeleteRecordsResponse,                    BROKER),
    Api(22, "InitProducerId",               transactions.InitProducerIdRequest,              transactions.InitProducerIdResponse,              BROKER),
    Api(23, "OffsetForLeaderEpoch",         offsets.OffsetForLeaderEpochRequest,             offsets.OffsetForLeaderEpochResponse,             BROKER),
    Api(24, "AddPartitionsToTxn",           transactions.AddPartitionsToTxnRequest,          transactions.AddPartitionsToTxnResponse,          BROKER),
    Api(25, "AddOffsetsToTxn",              transactions.AddOffsetsToTxnRequest,             transactions.AddOffsetsToTxnResponse,             BROKER),
    Api(26, "EndTxn",                       transactions.EndTxnRequest,                      transactions.EndTxnResponse,                      BROKER),
    Api(27, "WriteTxnMarkers",              transactions.WriteTxnMarkersRequest,             transactions.WriteTxnMarkersResponse,             BROKER),
    Api(28, "TxnOffsetCommit",              transactions.TxnOffsetCommitRequest,             transactions.TxnOffsetCommitResponse,             BROKER),
    Api(29, "DescribeAcls",                 acls.DescribeAclsRequest,                        acls.DescribeAclsResponse,                        BOTH),
    Api(30, "CreateAcls",                   acls.CreateAclsRequest,                          acls.CreateAclsResponse,                          BOTH),
    Api(31, "DeleteAcls",                   acls.DeleteAclsRequest,                          acls.DeleteAclsResponse,                          BOTH),
    Api(32, "DescribeConfigs",              configs.DescribeConfigsRequest,                  configs.DescribeConfigsResponse,                  BOTH),
    Api(33, "AlterConfigs",                 configs.AlterConfigsRequest,                     configs.AlterConfigsResponse,                     BOTH),
    Api(34, "AlterReplicaLogDirs",          log_dirs.AlterReplicaLogDirsRequest,             log_dirs.AlterReplicaLogDirsResponse,             BROKER),
    Api(35, "DescribeLogDirs",              log_dirs.DescribeLogDirsRequest,                 log_dirs.DescribeLogDirsResponse,                 BROKER),
    Api(36, "SaslAuthenticate",             sasl.SaslAuthenticateRequest,                    sasl.SaslAuthenticateResponse,                    BOTH),
    Api(37, "CreatePartitions",             topics.CreatePartitionsRequest,                  topics.CreatePartitionsResponse,                  BOTH),
    Api(38, "CreateDelegationToken",        credentials.CreateDelegationTokenRequest,        credentials.CreateDelegationTokenResponse,        BOTH),
    Api(39, "RenewDelegationToken",         credentials.RenewDelegationTokenRequest,         credentials.RenewDelegationTokenResponse,         BOTH),
    Api(40, "ExpireDelegationToken",        credentials.ExpireDelegationTokenRequest,        credentials.ExpireDelegationTokenResponse,        BOTH),
    Api(41, "DescribeDelegationToken",      credentials.DescribeDelegationTokenRequest,      credentials.DescribeDelegationTokenResponse,      BOTH),
    Api(42, "DeleteGroups",                 groups.DeleteGroupsRequest,                      groups.DeleteGroupsResponse,                      BROKER),
    Api(43, "ElectLeaders",                 partitions.ElectLeadersRequest,                  partitions.ElectLeadersResponse,                  BOTH),
    Api(44, "IncrementalAlterConfigs",      configs.IncrementalAlterConfigsRequest,          configs.IncrementalAlterConfigsResponse,          BOTH),
    Api(45, "AlterPartitionReassignments",  partitions.AlterPartitionReassignmentsRequest,   partitions.AlterPartitionReassignmentsResponse,   BOTH),
    Api(46, "ListPartitionReassignments",   partitions.ListPartitionReassignmentsRequest,    partitions.ListPartitionReassignmentsResponse,    BOTH),
    Api(47, "OffsetDelete",                 group_offsets.OffsetDeleteRequest,               group_offsets.OffsetDeleteResponse,               BROKER),
    Api(48, "DescribeClientQuotas",         quotas.DescribeClientQuotasRequest,              quotas.DescribeClientQuotasResponse,              BROKER),
    Api(49, "AlterClientQuotas",            quotas.AlterClientQuotasRequest,                 quotas.AlterClientQuotasResponse,                 BOTH),
    Api(50, "DescribeUserScramCredentials", credentials.DescribeUserScramCredentialsRequest, credentials.DescribeUserScramCredentialsResponse, BOTH),
    Api(51, "AlterUserScramCredentials",    credentials.AlterUserScramCredentialsRequest,    credentials.AlterUserScramCredentialsResponse,    BOTH),
    Api(52, "Vote",                         raft.VoteRequest,                                raft.VoteResponse,                                CONTROLLER),
    Api(53, "BeginQuorumEpoch",             raft.BeginQuorumEpochRequest,                    raft.BeginQuorumEpochResponse,                    CONTROLLER),
    Api(54, "EndQuorumEpoch",               raft.EndQuorumEpochRequest,                      raft.EndQuorumEpochResponse,                      CONTROLLER),
    Api(55, "DescribeQuorum",               raft.DescribeQuorumRequest,                      raft.DescribeQuorumResponse,                      BOTH),
    Api(56, "AlterPartition",               partitions.AlterPartitionRequest,                partitions.AlterPartitionResponse,                CONTROLLER),
    Api(57, "UpdateFeatures",               api_versions.UpdateFeaturesRequest,              api_versions.UpdateFeaturesResponse,              BOTH),
    Api(58, "Envelope",                     cluster.EnvelopeRequest,                         cluster.EnvelopeResponse,                         CONTROLLER),
    Api(59, "FetchSnapshot",                raft.FetchSnapshotRequest,                       raft.FetchSnapshotResponse,                       CONTROLLER),
    Api(60, "DescribeCluster",              metadata.DescribeClusterRequest,                 metadata.DescribeClusterResponse,                 BOTH),
    Api(61, "DescribeProducers",            transactions.DescribeProducersRequest,           transactions.DescribeProducersResponse,           BROKER),
    Api(62, "BrokerRegistration",           cluster.BrokerRegistrationRequest,               cluster.BrokerRegistrationResponse,               CONTROLLER),
    Api(63, "BrokerHeartbeat",              cluster.BrokerHeartbeatRequest,                  cluster.BrokerHeartbeatResponse,                  CONTROLLER),
    Api(64, "UnregisterBroker",             cluster.UnregisterBrokerRequest,                 cluster.UnregisterBrokerResponse,                 BOTH),
    Api(65, "DescribeTransactions",         transactions.DescribeTransactionsRequest,        transactions.DescribeTransactionsResponse,        BROKER),
    Api(66, "ListTransactions",             transactions.ListTransactionsRequest,            transactions.ListTransactionsResponse,            BROKER),
    Api(67, "AllocateProducerIds",          transactions.AllocateProducerIdsRequest,         transactions.AllocateProducerIdsResponse,         CONTROLLER),
    Api(68, "ConsumerGroupHeartbeat",       consumer_groups.ConsumerGroupHeartbeatRequest,   consumer_groups.ConsumerGroupHeartbeatResponse,   BROKER),
    Api(69, "ConsumerGroupDescribe",        consumer_groups.ConsumerGroupDescribeRequest,    consumer_groups.ConsumerGroupDescribeResponse,    BROKER),
    Api(70, "ControllerRegistration",       cluster.ControllerRegistrationRequest,           cluster.ControllerRegistrationResponse,           CONTROLLER),
    Api(71, "GetTelemetrySubscriptions",    telemetry.GetTelemetrySubscriptionsRequest,      telemetry.GetTelemetrySubscriptionsResponse,      BROKER),
    Api(72, "PushTelemetry",                telemetry.PushTelemetryRequest,                  telemetry.PushTelemetryResponse,                  BROKER),
    Api(73, "AssignReplicasToDirs",         log_dirs.AssignReplicasToDirsRequest,            log_dirs.AssignReplicasToDirsResponse,            CONTROLLER),
    Api(74, "ListConfigResources",          configs.ListConfigResourcesRequest,              configs.ListConfigResourcesResponse,              BROKER),
    Api(75, "DescribeTopicPartitions",      metadata.DescribeTopicPartitionsRequest,         metadata.DescribeTopicPartitionsResponse,         BROKER),
    Api(76, "ShareGroupHeartbeat",          share_groups.ShareGroupHeartbeatRequest,         share_groups.ShareGroupHeartbeatResponse,         BROKER),
    Api(77, "ShareGroupDescribe",           share_groups.ShareGroupDescribeRequest,          share_groups.ShareGroupDescribeResponse,          BROKER),
    Api(78, "ShareFetch",                   share_groups.ShareFetchRequest,                  share_groups.ShareFetchResponse,                  BROKER),
    Api(79, "ShareAcknowledge",             share_groups.ShareAcknowledgeRequest,            share_groups.ShareAcknowledgeResponse,            BROKER),
    Api(80, "AddRaftVoter",                 raft.AddRaftVoterRequest,                        raft.AddRaftVoterResponse,                        BOTH),
    Api(81, "RemoveRaftVoter",              raft.RemoveRaftVoterRequest,                     raft.RemoveRaftVoterResponse,                     BOTH),
    Api(82, "UpdateRaftVoter",              raft.UpdateRaftVoterRequest,                     raft.UpdateRaftVoterResponse,                     CONTROLLER),
    Api(83, "InitializeShareGroupState",    share_state.InitializeShareGroupStateRequest,    share_state.InitializeShareGroupStateResponse,    BROKER),
    Api(84, "ReadShareGroupState",          share_state.ReadShareGroupStateRequest,          share_state.ReadShareGroupStateResponse,          BROKER),
    Api(85, "WriteShareGroupState",         share_state.WriteShareGroupStateRequest,         share_state.WriteShareGroupStateResponse,         BROKER),
    Api(86, "DeleteShareGroupState",        share_state.DeleteShareGroupStateRequest,        share_state.DeleteShareGroupStateResponse,        BROKER),
    Api(87, "ReadShareGroupStateSummary",   share_state.ReadShareGroupStateSummaryRequest,   share_state.ReadShareGroupStateSummaryResponse,   BROKER),
    Api(88, "StreamsGroupHeartbeat",        streams_groups.StreamsGroupHeartbeatRequest,     streams_groups.StreamsGroupHeartbeatResponse,     BROKER),
    Api(89, "StreamsGroupDescribe",         streams_groups.StreamsGroupDescribeRequest,      streams_groups.StreamsGroupDescribeResponse,      BROKER),
    Api(90, "DescribeShareGroupOffsets",    share_groups.DescribeShareGroupOffsetsRequest,   share_groups.DescribeShareGroupOffsetsResponse,   BROKER),
    Api(91, "AlterShareGroupOffsets",       share_groups.AlterShareGroupOffsetsRequest,      share_groups.AlterShareGroupOffsetsResponse,      BROKER),
    Api(92, "DeleteShareGroupOffsets",      share_groups.DeleteShareGroupOffsetsRequest,     share_groups.DeleteShareGroupOffsetsResponse,     BROKER),
)

API_BY_KEY: Final = {api.key: api for api in APIS}
