from __future__ import annotations

import pytest
from unit.metadata.clusters import TestCluster

from pybroker.metadata.controller.features import METADATA_VERSION, RELEASES
from pybroker.metadata.scram import ScramUser
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.metadata_log import FeatureLevelRecord
from pybroker.protocol.messages.credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from pybroker.security.scram import ScramMechanism, keys_of

SHA_256, SHA_512 = 1, 2


def put(name: str = "alice", mechanism: int = SHA_256, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"salted password"
    )


def delete(name: str = "alice", mechanism: int = SHA_256) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(cluster: TestCluster, *alterations: ScramCredentialUpsertion | ScramCredentialDeletion) -> dict[str, ErrorCode]:
    request = AlterUserScramCredentialsRequest(
        deletions=[one for one in alterations if isinstance(one, ScramCredentialDeletion)],
        upsertions=[one for one in alterations if isinstance(one, ScramCredentialUpsertion)],
    )
    return {one.user: ErrorCode(one.error_code) for one in cluster.ask(request).results}


def test_the_keys_are_stored_and_the_password_is_not() -> None:
    cluster = TestCluster()
    assert alter(cluster, put()) == {"alice": ErrorCode.NONE}
    credential = cluster.image.scram_credentials[ScramUser("alice", SHA_256)]
    keys = keys_of(ScramMechanism.SCRAM_SHA_256, b"salted password")
    assert (credential.salt, credential.stored_key, credential.server_key, credential.iterations) == (b"salt", *keys, 4096)
    assert "salt" not in repr(credential)


def test_a_credential_is_replaced_and_deleted_by_mechanism() -> None:
    cluster = TestCluster()
    alter(cluster, put())
    alter(cluster, put(mechanism=SHA_512))
    alter(cluster, put(iterations=8192))
    assert {user.mechanism: one.iterations for user, one in cluster.image.scram_credentials.items()} == {
        SHA_256: 8192,
        SHA_512: 4096,
    }
    assert alter(cluster, delete()) == {"alice": ErrorCode.NONE}
    assert list(cluster.image.scram_credentials) == [ScramUser("alice", SHA_512)]


def test_a_user_is_in_a_request_once() -> None:
    cluster = TestCluster()
    for alterations in ((put(), put()), (put(), put(mechanism=SHA_512)), (put(), put(), put())):
        assert alter(cluster, *alterations, put("bob")) == {"bob": ErrorCode.NONE, "alice": ErrorCode.DUPLICATE_RESOURCE}
    assert list(cluster.image.scram_credentials) == [ScramUser("bob", SHA_256)]
    assert alter(cluster, delete("bob"), put("bob")) == {"bob": ErrorCode.DUPLICATE_RESOURCE}


@pytest.mark.parametrize(
    ("alteration", "code"),
    [
        (put(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (delete(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (put(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (delete(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (put(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (put(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (delete(), ErrorCode.RESOURCE_NOT_FOUND),
    ],
)
def test_refused(alteration: ScramCredentialUpsertion | ScramCredentialDeletion, code: ErrorCode) -> None:
    cluster = TestCluster()
    assert alter(cluster, alteration) == {alteration.name: code}
    assert cluster.image.scram_credentials == {}


def test_an_old_cluster_has_no_place_for_credentials() -> None:
    cluster = TestCluster()
    cluster.replay(FeatureLevelRecord(name=METADATA_VERSION, feature_level=RELEASES["3.5-IV1"]))
    assert alter(cluster, put()) == {"alice": ErrorCode.UNSUPPORTED_VERSION}
