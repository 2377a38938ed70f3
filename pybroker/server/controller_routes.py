"""Which handler serves which API on a controller's listeners; what is not here is neither served nor advertised there."""

from __future__ import annotations

from typing import NamedTuple

from pybroker.server.dispatch import Handle, Route
from pybroker.server.handlers.acls import AclHandlers
from pybroker.server.handlers.api_versions import ApiVersionsHandlers
from pybroker.server.handlers.cluster import ClusterHandlers
from pybroker.server.handlers.configs import ConfigHandlers
from pybroker.server.handlers.credentials import CredentialHandlers
from pybroker.server.handlers.envelope import EnvelopeHandlers
from pybroker.server.handlers.features import FeatureHandlers
from pybroker.server.handlers.quorum import QuorumHandlers
from pybroker.server.handlers.quotas import QuotaHandlers
from pybroker.server.handlers.topics import TopicHandlers
from pybroker.server.routes import QUICK, api_named


class ControllerHandlers(NamedTuple):
    quorum: QuorumHandlers
    cluster: ClusterHandlers
    topics: TopicHandlers
    configs: ConfigHandlers
    api_versions: ApiVersionsHandlers
    acls: AclHandlers
    credentials: CredentialHandlers
    quotas: QuotaHandlers
    features: FeatureHandlers
    envelope: EnvelopeHandlers


def controller_routes(handlers: ControllerHandlers) -> list[Route]:
    quorum = handlers.quorum
    rows: list[tuple[str, Handle, bool]] = [
        ("Fetch", quorum.handle_quorum_message, QUICK),
        ("ApiVersions", handlers.api_versions.handle_api_versions, QUICK),
        ("CreateTopics", handlers.topics.handle_create_topics, QUICK),
        ("DeleteTopics", handlers.topics.handle_delete_topics, QUICK),
        ("DescribeAcls", handlers.acls.handle_describe_acls, False),
        ("CreateAcls", handlers.acls.handle_create_acls, QUICK),
        ("DeleteAcls", handlers.acls.handle_delete_acls, QUICK),
        ("DescribeConfigs", handlers.configs.handle_describe_configs, False),
        ("AlterConfigs", handlers.configs.handle_alter_configs, False),
        ("CreatePartitions", handlers.topics.handle_create_partitions, QUICK),
        ("CreateDelegationToken", handlers.credentials.handle_create_delegation_token, QUICK),
        ("RenewDelegationToken", handlers.credentials.handle_renew_delegation_token, QUICK),
        ("ExpireDelegationToken", handlers.credentials.handle_expire_delegation_token, QUICK),
        ("DescribeDelegationToken", handlers.credentials.handle_describe_delegation_token, QUICK),
        ("ElectLeaders", quorum.handle_decision, QUICK),
        ("IncrementalAlterConfigs", handlers.configs.handle_incremental_alter_configs, False),
        ("AlterPartitionReassignments", quorum.handle_decision, QUICK),
        ("ListPartitionReassignments", quorum.handle_decision, QUICK),
        ("AlterClientQuotas", handlers.quotas.handle_alter_client_quotas, QUICK),
        ("DescribeUserScramCredentials", handlers.credentials.handle_describe_user_scram_credentials, False),
        ("AlterUserScramCredentials", handlers.credentials.handle_alter_user_scram_credentials, QUICK),
        ("Vote", quorum.handle_quorum_message, QUICK),
        ("BeginQuorumEpoch", quorum.handle_quorum_message, QUICK),
        ("EndQuorumEpoch", quorum.handle_quorum_message, QUICK),
        ("DescribeQuorum", quorum.handle_quorum_message, QUICK),
        ("AlterPartition", quorum.handle_decision, QUICK),
        ("UpdateFeatures", handlers.features.handle_update_features, QUICK),
        ("Envelope", handlers.envelope.handle_envelope, QUICK),
        ("FetchSnapshot", quorum.handle_quorum_message, QUICK),
        ("DescribeCluster", handlers.cluster.handle_describe_cluster, QUICK),
        ("BrokerRegistration", quorum.handle_broker, QUICK),
        ("BrokerHeartbeat", quorum.handle_broker, QUICK),
        ("UnregisterBroker", quorum.handle_decision, QUICK),
        ("AllocateProducerIds", quorum.handle_decision, QUICK),
        ("ControllerRegistration", quorum.handle_decision, QUICK),
        ("AssignReplicasToDirs", quorum.handle_decision, QUICK),
        ("AddRaftVoter", quorum.handle_quorum_message, QUICK),
        ("RemoveRaftVoter", quorum.handle_quorum_message, QUICK),
        ("UpdateRaftVoter", quorum.handle_quorum_message, QUICK),
    ]
    return [Route(api_named(name), handle, is_quick) for name, handle, is_quick in rows]
