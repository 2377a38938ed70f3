"""A whole node in this process: what it keeps of users, quotas and features, and what it says where nothing is enforced."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.nodes import running

from pybroker.config.keys.access import STANDARD_AUTHORIZER
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.acls import AclCreation, CreateAclsRequest
from pybroker.protocol.messages.api_versions import ApiVersionsRequest, FeatureUpdateKey, UpdateFeaturesRequest
from pybroker.protocol.messages.credentials import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from pybroker.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)

ALICE = ScramCredentialUpsertion(name="alice", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"salted")
QUOTA = AlterClientQuotasRequestEntryData(
    entity=[EntityData(entity_type="user", entity_name="alice")],
    ops=[OpData(key="producer_byte_rate", value=1000.0, remove=False)],
)
ACL = AclCreation(
    resource_type=2,
    resource_name="t",
    resource_pattern_type=3,
    principal="User:alice",
    host="*",
    operation=3,
    permission_type=3,
)


def test_users_quotas_and_levels_are_there_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as first:
        client = first.client()
        assert client.ask(AlterUserScramCredentialsRequest(deletions=[], upsertions=[ALICE])).results[0].error_code == 0
        assert client.ask(AlterClientQuotasRequest(entries=[QUOTA], validate_only=False)).entries[0].error_code == 0
        raised = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature="metadata.version", max_version_level=30)])
        assert client.ask(raised).error_code == 0
    with running(tmp_path) as second:
        client = second.client()
        (user,) = client.ask(DescribeUserScramCredentialsRequest(users=None)).results
        assert (user.user, [(one.mechanism, one.iterations) for one in user.credential_infos]) == ("alice", [(1, 4096)])
        (entry,) = client.ask(DescribeClientQuotasRequest(components=[], strict=False)).entries
        assert [(one.key, one.value) for one in entry.values] == [("producer_byte_rate", 1000.0)]
        answer = client.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"))
        assert ("metadata.version", 30) in [(one.name, one.max_version_level) for one in answer.finalized_features]


def test_an_authorizer_that_is_configured_is_not_there_and_the_node_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path, authorizer_class_name=STANDARD_AUTHORIZER) as node:
        (result,) = node.client().ask(CreateAclsRequest(creations=[ACL])).results
        assert result.error_code == ErrorCode.SECURITY_DISABLED
    assert "no access control entry is enforced" in caplog.text
