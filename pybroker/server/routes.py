"""Which handler serves which API, and which of them are worth a try on the network thread itself.

One row per API: what is not here is neither served nor advertised.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pybroker.protocol.api_table import APIS, Api
from pybroker.server.dispatch import Handle, Route
from pybroker.server.handlers.acls import AclHandlers
from pybroker.server.handlers.api_versions import ApiVersionsHandlers
from pybroker.server.handlers.cluster import ClusterHandlers
from pybroker.server.handlers.cluster_admin import ClusterAdminHandlers
from pybroker.server.handlers.commits_together import CommitsTogether
from pybroker.server.handlers.configs import ConfigHandlers
from pybroker.server.handlers.consumer_groups import ConsumerGroupHandlers
from pybroker.server.handlers.credentials import CredentialHandlers
from pybroker.server.handlers.features import FeatureHandlers
from pybroker.server.handlers.fetch import FetchHandlers
from pybroker.server.handlers.group_listing import GroupListingHandlers
from pybroker.server.handlers.group_offsets import GroupOffsetHandlers
from pybroker.server.handlers.groups import GroupHandlers
from pybroker.server.handlers.log_dirs import LogDirHandlers
from pybroker.server.handlers.metadata import MetadataHandlers
from pybroker.server.handlers.offsets import OffsetHandlers
from pybroker.server.handlers.produce import ProduceHandlers
from pybroker.server.handlers.producers import ProducerHandlers
from pybroker.server.handlers.quotas import QuotaHandlers
from pybroker.server.handlers.topics import TopicHandlers
from pybroker.server.handlers.transactional_offsets import TransactionalOffsetHandlers
from pybroker.server.handlers.transactions import TransactionHandlers

QUICK: Final = True

_BY_NAME: Final[dict[str, Api]] = {api.name: api for api in APIS}


def api_named(name: str) -> Api:
    return _BY_NAME[name]


class Handlers(NamedTuple):
    produce: ProduceHandlers
    fetch: FetchHandlers
    offsets: OffsetHandlers
    metadata: MetadataHandlers
    cluster: ClusterHandlers
    cluster_admin: ClusterAdminHandlers
    topics: TopicHandlers
    configs: ConfigHandlers
    log_dirs: LogDirHandlers
    producers: ProducerHandlers
    api_versions: ApiVersionsHandlers
    acls: AclHandlers
    credentials: CredentialHandlers
    quotas: QuotaHandlers
    features: FeatureHandlers
    groups: GroupHandlers
    consumer_groups: ConsumerGroupHandlers
    group_listing: GroupListingHandlers
    group_offsets: GroupOffsetHandlers
    commits_together: CommitsTogether
    transactions: TransactionHandlers
    transactional_offsets: TransactionalOffsetHandlers


def routes_of(handlers: Handlers) -> list[Route]:
    rows: list[tuple[str, Handle, bool]] = [
        ("Produce", handlers.produce.handle_produce, QUICK),
        ("Fetch", handlers.fetch.handle_fetch, QUICK),
        ("ListOffsets", handlers.offsets.handle_list_offsets, False),
        ("Metadata", handlers.metadata.handle_metadata, QUICK),
        ("ApiVersions", handlers.api_versions.handle_api_versions, QUICK),
        ("CreateTopics", handlers.topics.handle_create_topics, QUICK),
        ("DeleteTopics", handlers.topics.handle_delete_topics, QUICK),
        ("DeleteRecords", handlers.offsets.handle_delete_records, False),
        ("InitProducerId", handlers.producers.handle_init_producer_id, QUICK),
        ("OffsetForLeaderEpoch", handlers.offsets.handle_offset_for_leader_epoch, QUICK),
        ("DescribeAcls", handlers.acls.handle_describe_acls, False),
        ("CreateAcls", handlers.acls.handle_create_acls, QUICK),
        ("DeleteAcls", handlers.acls.handle_delete_acls, QUICK),
        ("DescribeConfigs", handlers.configs.handle_describe_configs, False),
        ("AlterConfigs", handlers.configs.handle_alter_configs, False),
        ("AlterReplicaLogDirs", handlers.log_dirs.handle_alter_replica_log_dirs, False),
        ("DescribeLogDirs", handlers.log_dirs.handle_describe_log_dirs, False),
        ("CreatePartitions", handlers.topics.handle_create_partitions, QUICK),
        ("CreateDelegationToken", handlers.credentials.handle_create_delegation_token, QUICK),
        ("RenewDelegationToken", handlers.credentials.handle_renew_delegation_token, QUICK),
        ("ExpireDelegationToken", handlers.credentials.handle_expire_delegation_token, QUICK),
        ("DescribeDelegationToken", handlers.credentials.handle_describe_delegation_token, QUICK),
        ("ElectLeaders", handlers.cluster_admin.handle, QUICK),
        ("IncrementalAlterConfigs", handlers.configs.handle_incremental_alter_configs, False),
        ("AlterPartitionReassignments", handlers.cluster_admin.handle, QUICK),
        ("ListPartitionReassignments", handlers.cluster_admin.handle, QUICK),
        ("DescribeClientQuotas", handlers.quotas.handle_describe_client_quotas, False),
        ("AlterClientQuotas", handlers.quotas.handle_alter_client_quotas, QUICK),
        ("DescribeUserScramCredentials", handlers.credentials.handle_describe_user_scram_credentials, False),
        ("AlterUserScramCredentials", handlers.credentials.handle_alter_user_scram_credentials, QUICK),
        ("DescribeQuorum", handlers.cluster_admin.handle, QUICK),
        ("UpdateFeatures", handlers.features.handle_update_features, QUICK),
        ("DescribeCluster", handlers.cluster.handle_describe_cluster, QUICK),
        ("DescribeProducers", handlers.producers.handle_describe_producers, False),
        ("UnregisterBroker", handlers.cluster_admin.handle, QUICK),
        ("ListConfigResources", handlers.configs.handle_list_config_resources, QUICK),
        ("DescribeTopicPartitions", handlers.metadata.handle_describe_topic_partitions, False),
        ("AddRaftVoter", handlers.cluster_admin.handle, QUICK),
        ("RemoveRaftVoter", handlers.cluster_admin.handle, QUICK),
        ("OffsetCommit", handlers.group_offsets.handle_offset_commit, QUICK),
        ("OffsetFetch", handlers.group_offsets.handle_offset_fetch, QUICK),
        ("OffsetDelete", handlers.group_offsets.handle_offset_delete, QUICK),
        ("FindCoordinator", handlers.group_listing.handle_find_coordinator, QUICK),
        ("JoinGroup", handlers.groups.handle_join_group, QUICK),
        ("SyncGroup", handlers.groups.handle_sync_group, QUICK),
        ("Heartbeat", handlers.groups.handle_heartbeat, QUICK),
        ("LeaveGroup", handlers.groups.handle_leave_group, QUICK),
        ("DescribeGroups", handlers.group_listing.handle_describe_groups, QUICK),
        ("ListGroups", handlers.group_listing.handle_list_groups, QUICK),
        ("ConsumerGroupHeartbeat", handlers.consumer_groups.handle_consumer_group_heartbeat, QUICK),
        ("ConsumerGroupDescribe", handlers.consumer_groups.handle_consumer_group_describe, QUICK),
        ("DeleteGroups", handlers.group_listing.handle_delete_groups, QUICK),
        ("AddPartitionsToTxn", handlers.transactions.handle_add_partitions_to_txn, QUICK),
        ("AddOffsetsToTxn", handlers.transactions.handle_add_offsets_to_txn, QUICK),
        ("EndTxn", handlers.transactions.handle_end_txn, QUICK),
        ("WriteTxnMarkers", handlers.transactions.handle_write_txn_markers, False),
        ("TxnOffsetCommit", handlers.transactional_offsets.handle_txn_offset_commit, QUICK),
        ("DescribeTransactions", handlers.transactions.handle_describe_transactions, QUICK),
        ("ListTransactions", handlers.transactions.handle_list_transactions, QUICK),
    ]
    shortcuts = {"Produce": handlers.produce.plain.answer, "OffsetCommit": handlers.commits_together.answer}
    return [Route(_BY_NAME[name], handle, is_quick, shortcuts.get(name)) for name, handle, is_quick in rows]
