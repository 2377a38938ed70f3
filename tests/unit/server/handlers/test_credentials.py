from __future__ import annotations

from typing import Any

import pytest
from support.requests import AskedRequest
from unit.server.clusters import Clock, Cluster, Controller

from pybroker.metadata.scram import ScramCredential, ScramUser, scram_record
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.credentials import (
    AlterUserScramCredentialsRequest,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    DescribeUserScramCredentialsRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
    ScramCredentialDeletion,
    UserName,
)
from pybroker.server.forwarding import Forwarding
from pybroker.server.handlers.credentials import CredentialHandlers

NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


class Broker:
    def __init__(self) -> None:
        self.cluster = Cluster()
        self.controller = Controller()
        self.clock = Clock()
        forwarding = Forwarding(self.controller, self.clock.timer, self.clock.now_ms)
        self.handlers: Any = CredentialHandlers(self.cluster.image_of, forwarding, lambda: 1000)

    def describe(self, *names: str) -> dict[str, Any]:
        request = AskedRequest(DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names]), 0)
        answer = self.handlers.handle_describe_user_scram_credentials(request, request.message)
        assert answer.error_code == ErrorCode.NONE
        return {
            one.user: (ErrorCode(one.error_code), [tuple(info_of(info)) for info in one.credential_infos])
            for one in answer.results
        }


def info_of(info: Any) -> tuple[int, int]:
    return info.mechanism, info.iterations


@pytest.fixture
def broker() -> Broker:
    broker = Broker()
    for name, mechanism, iterations in (("alice", 2, 8192), ("alice", 1, 4096), ("bob", 1, 5000)):
        credential = ScramCredential(b"salt", b"stored", b"server", iterations)
        broker.cluster.apply(scram_record(ScramUser(name, mechanism), credential))
    return broker


def test_users_are_described_without_their_keys(broker: Broker) -> None:
    everybody = {"alice": (ErrorCode.NONE, [(1, 4096), (2, 8192)]), "bob": (ErrorCode.NONE, [(1, 5000)])}
    assert broker.describe() == everybody
    assert broker.describe("bob") == {"bob": everybody["bob"]}


def test_users_that_are_not_there_or_there_twice(broker: Broker) -> None:
    assert broker.describe("carol", "bob", "bob") == {
        "carol": (ErrorCode.RESOURCE_NOT_FOUND, []),
        "bob": (ErrorCode.DUPLICATE_RESOURCE, []),
    }


def test_the_controller_alters_them_or_is_silent(broker: Broker) -> None:
    deletion = ScramCredentialDeletion(name="alice", mechanism=1)
    asked = AskedRequest(AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[]), 0)
    broker.handlers.handle_alter_user_scram_credentials(asked, asked.message)
    assert broker.controller.request.deletions[0].name == "alice"
    broker.clock.advance(1001)
    assert [(one.user, one.error_code) for one in asked.answer.results] == [("alice", ErrorCode.REQUEST_TIMED_OUT)]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_nobody_who_is_nobody_gets_a_token(broker: Broker, version: int) -> None:
    owner = {"owner_principal_type": "User", "owner_principal_name": "alice"} if version == 3 else {}
    asked = AskedRequest(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1, **owner), version)
    answer = broker.handlers.handle_create_delegation_token(asked, asked.message)
    assert (answer.error_code, answer.expiry_timestamp_ms) == (NOT_ALLOWED, -1)
    assert answer.principal_name == ("alice" if version == 3 else "ANONYMOUS")
    assert answer.encode(version)


def test_tokens_are_not_for_the_nameless(broker: Broker) -> None:
    handlers = broker.handlers
    renewal, expiry = (
        RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1),
        ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1),
    )
    assert handlers.handle_renew_delegation_token(None, renewal).error_code == NOT_ALLOWED
    assert handlers.handle_expire_delegation_token(None, expiry).error_code == NOT_ALLOWED
    answer = handlers.handle_describe_delegation_token(None, DescribeDelegationTokenRequest(owners=None))
    assert (answer.error_code, answer.tokens) == (NOT_ALLOWED, [])
    assert broker.controller.asked == []
