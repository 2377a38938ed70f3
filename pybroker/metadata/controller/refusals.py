"""The answer to a request that is refused as a whole: everything in it gets the same error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pybroker.base.ids import ZERO_UUID
from pybroker.metadata.controller.tokens import no_token
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages import (
    acls,
    api_versions,
    cluster,
    configs,
    credentials,
    log_dirs,
    partitions,
    quotas,
    topics,
    transactions,
)
from pybroker.security.principals import ANONYMOUS


def refused(request: Message, code: ErrorCode, message: str, version: int | None = None) -> Message:
    """`version` is that of the request, the newest unless told."""
    answer = _REFUSALS[type(request)](request, code, message)
    if version == 0 and isinstance(answer, partitions.ElectLeadersResponse):
        answer.error_code = ErrorCode.NONE  # only its rows can say it
    return answer


def _create_topics(request: topics.CreateTopicsRequest, code: ErrorCode, message: str) -> Message:
    names = dict.fromkeys(topic.name for topic in request.topics)
    results = [topics.CreatableTopicResult(name=name, error_code=code, error_message=message) for name in names]
    return topics.CreateTopicsResponse(topics=results)


def _delete_topics(request: topics.DeleteTopicsRequest, code: ErrorCode, message: str) -> Message:
    rows = [(name, ZERO_UUID) for name in request.topic_names] + [(one.name, one.topic_id) for one in request.topics]
    results = [
        topics.DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
        for name, topic_id in dict.fromkeys(rows)
    ]
    return topics.DeleteTopicsResponse(responses=results)


def _create_partitions(request: topics.CreatePartitionsRequest, code: ErrorCode, message: str) -> Message:
    names = dict.fromkeys(topic.name for topic in request.topics)
    results = [topics.CreatePartitionsTopicResult(name=name, error_code=code, error_message=message) for name in names]
    return topics.CreatePartitionsResponse(results=results)


def _resources(
    request: configs.IncrementalAlterConfigsRequest | configs.AlterConfigsRequest, code: ErrorCode, message: str
) -> list[configs.AlterConfigsResourceResponse]:
    return [
        configs.AlterConfigsResourceResponse(
            error_code=code, error_message=message, resource_type=one.resource_type, resource_name=one.resource_name
        )
        for one in request.resources
    ]


def _create_acls(request: acls.CreateAclsRequest, code: ErrorCode, message: str) -> Message:
    return acls.CreateAclsResponse(
        results=[acls.AclCreationResult(error_code=code, error_message=message) for _ in request.creations]
    )


def _delete_acls(request: acls.DeleteAclsRequest, code: ErrorCode, message: str) -> Message:
    return acls.DeleteAclsResponse(
        filter_results=[
            acls.DeleteAclsFilterResult(error_code=code, error_message=message, matching_acls=[]) for _ in request.filters
        ]
    )


def _alter_scram(request: credentials.AlterUserScramCredentialsRequest, code: ErrorCode, message: str) -> Message:
    users = dict.fromkeys([one.name for one in request.deletions] + [one.name for one in request.upsertions])
    return credentials.AlterUserScramCredentialsResponse(
        results=[
            credentials.AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message) for user in users
        ]
    )


def _alter_quotas(request: quotas.AlterClientQuotasRequest, code: ErrorCode, message: str) -> Message:
    return quotas.AlterClientQuotasResponse(
        entries=[
            quotas.AlterClientQuotasResponseEntryData(error_code=code, error_message=message, entity=one.entity)
            for one in request.entries
        ]
    )


def _elect_leaders(request: partitions.ElectLeadersRequest, code: ErrorCode, message: str) -> Message:
    results = [
        partitions.ReplicaElectionResult(
            topic=one.topic,
            partition_result=[
                partitions.PartitionResult(partition_id=index, error_code=code, error_message=message)
                for index in one.partitions
            ],
        )
        for one in request.topic_partitions or ()
    ]
    return partitions.ElectLeadersResponse(error_code=code, replica_election_results=results)


def _reassignments(request: partitions.AlterPartitionReassignmentsRequest, code: ErrorCode, message: str) -> Message:
    responses = [
        partitions.ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                partitions.ReassignablePartitionResponse(
                    partition_index=one.partition_index, error_code=code, error_message=message
                )
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return partitions.AlterPartitionReassignmentsResponse(error_code=code, error_message=message, responses=responses)


_REFUSALS: Mapping[type[Message], Callable[[Any, ErrorCode, str], Message]] = {
    topics.CreateTopicsRequest: _create_topics,
    topics.DeleteTopicsRequest: _delete_topics,
    topics.CreatePartitionsRequest: _create_partitions,
    configs.IncrementalAlterConfigsRequest: lambda request, code, message: configs.IncrementalAlterConfigsResponse(
        responses=_resources(request, code, message)
    ),
    configs.AlterConfigsRequest: lambda request, code, message: configs.AlterConfigsResponse(
        responses=_resources(request, code, message)
    ),
    transactions.AllocateProducerIdsRequest: lambda _, code, __: transactions.AllocateProducerIdsResponse(
        error_code=code, producer_id_start=-1, producer_id_len=0
    ),
    cluster.BrokerRegistrationRequest: lambda _, code, __: cluster.BrokerRegistrationResponse(error_code=code),
    cluster.BrokerHeartbeatRequest: lambda request, code, _: cluster.BrokerHeartbeatResponse(
        error_code=code, should_shut_down=False
    ),
    cluster.UnregisterBrokerRequest: lambda _, code, message: cluster.UnregisterBrokerResponse(
        error_code=code, error_message=message
    ),
    partitions.AlterPartitionRequest: lambda _, code, __: partitions.AlterPartitionResponse(error_code=code, topics=[]),
    partitions.AlterPartitionReassignmentsRequest: _reassignments,
    partitions.ListPartitionReassignmentsRequest: lambda _, code, message: partitions.ListPartitionReassignmentsResponse(
        error_code=code, error_message=message, topics=[]
    ),
    partitions.ElectLeadersRequest: _elect_leaders,
    log_dirs.AssignReplicasToDirsRequest: lambda _, code, __: log_dirs.AssignReplicasToDirsResponse(
        error_code=code, directories=[]
    ),
    cluster.ControllerRegistrationRequest: lambda _, code, message: cluster.ControllerRegistrationResponse(
        error_code=code, error_message=message
    ),
    acls.CreateAclsRequest: _create_acls,
    acls.DeleteAclsRequest: _delete_acls,
    credentials.AlterUserScramCredentialsRequest: _alter_scram,
    credentials.CreateDelegationTokenRequest: lambda _, code, __: no_token(ANONYMOUS, ANONYMOUS, code, 1),
    credentials.RenewDelegationTokenRequest: lambda _, code, __: credentials.RenewDelegationTokenResponse(
        error_code=code, expiry_timestamp_ms=0
    ),
    credentials.ExpireDelegationTokenRequest: lambda _, code, __: credentials.ExpireDelegationTokenResponse(
        error_code=code, expiry_timestamp_ms=0
    ),
    quotas.AlterClientQuotasRequest: _alter_quotas,
    api_versions.UpdateFeaturesRequest: lambda _, code, message: api_versions.UpdateFeaturesResponse(
        error_code=code, error_message=message
    ),
}
