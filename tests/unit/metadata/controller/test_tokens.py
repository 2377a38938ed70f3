from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from unit.config.configs import config_with
from unit.metadata.clusters import CLUSTER_ID, TestCluster

from pybroker.base.ids import Uuid
from pybroker.metadata.controller.decisions import Result, Setting
from pybroker.metadata.controller.effective_configs import EffectiveConfigs
from pybroker.metadata.controller.features import METADATA_VERSION, RELEASES
from pybroker.metadata.controller.heartbeats import Heartbeats
from pybroker.metadata.controller.partition_index import PartitionIndex
from pybroker.metadata.controller.tokens import (
    create_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
    sweep,
    token_hmac,
)
from pybroker.metadata.controller.view import View
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import MetadataImage
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.messages.credentials import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from pybroker.security.principals import Principal

ALICE, BOB, EVE = (Principal("User", name) for name in ("alice", "bob", "eve"))
DAY_MS = 86_400_000
NOW_MS = 1_000_000


class Tokens:
    """A controller's tokens, without the controller."""

    def __init__(self, release: str = "4.3-IV0", **changes: str) -> None:
        config = config_with(**({"delegation_token_secret_key": "secret"} | changes))
        numbers = count(1)
        self.setting = Setting(
            config, CLUSTER_ID, EffectiveConfigs(config), lambda: Uuid(next(numbers).to_bytes(16, "big")), lambda bound: 0
        )
        self.image = MetadataImage(features={METADATA_VERSION: RELEASES[release]})
        self.now_ms = NOW_MS

    def take(self, result: Result) -> Any:
        delta = MetadataDelta(self.image)
        for record in result.records:
            delta.replay(record)
        self.image = delta.image(self.image.offset + 1, 1)
        return result.response

    def create(self, who: Principal = ALICE, *, max_lifetime_ms: int = -1, version: int = 3, **owner: str) -> Any:
        request = CreateDelegationTokenRequest(
            renewers=[CreatableRenewers(principal_type="User", principal_name="bob")], max_lifetime_ms=max_lifetime_ms, **owner
        )
        return self.take(create_delegation_token(self.image, self.setting, self.now_ms, who, request, version))

    def view(self, now_ms: int) -> View:
        return View(now_ms, self.image, 0, self.setting, PartitionIndex(self.image), Heartbeats(9000, 0, 1), {})

    def renew(self, hmac: bytes, who: Principal = ALICE, period_ms: int = -1) -> Any:
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        return self.take(renew_delegation_token(self.image, self.setting, self.now_ms, who, request))

    def expire(self, hmac: bytes, who: Principal = ALICE, period_ms: int = -1) -> Any:
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        return self.take(expire_delegation_token(self.image, self.setting, self.now_ms, who, request))


def code_of(ask: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        ask()
    return caught.value.code


def test_a_token_is_made_for_who_asks() -> None:
    tokens = Tokens()
    made = tokens.create()
    assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (0, "alice", "alice")
    assert made.hmac == token_hmac("secret", made.token_id)
    assert (made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms) == (
        NOW_MS,
        NOW_MS + DAY_MS,
        NOW_MS + 7 * DAY_MS,
    )
    token = tokens.image.delegation_tokens[made.token_id]
    assert (token.owner, token.requester, token.renewers) == ("User:alice", "User:alice", ("User:bob",))


def test_a_token_for_somebody_else_and_a_short_one() -> None:
    tokens = Tokens()
    made = tokens.create(owner_principal_type="User", owner_principal_name="carol", max_lifetime_ms=10)
    assert (made.principal_name, made.token_requester_principal_name) == ("carol", "alice")
    assert made.expiry_timestamp_ms == made.max_timestamp_ms == NOW_MS + 10
    assert tokens.create(version=2).token_requester_principal_name == ""


def test_only_users_renew() -> None:
    tokens = Tokens()
    renewers = [CreatableRenewers(principal_type="Group", principal_name="g")]
    request = CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=-1)
    result = create_delegation_token(tokens.image, tokens.setting, NOW_MS, ALICE, request, 3)
    assert (result.records, result.response.error_code) == ([], ErrorCode.INVALID_PRINCIPAL_TYPE)  # type: ignore[attr-defined]


def test_owner_and_renewer_renew_up_to_the_end() -> None:
    tokens = Tokens()
    made = tokens.create()
    tokens.now_ms += DAY_MS // 2
    assert tokens.renew(made.hmac, BOB).expiry_timestamp_ms == tokens.now_ms + DAY_MS
    assert tokens.renew(made.hmac, period_ms=5).expiry_timestamp_ms == tokens.now_ms + 5
    assert code_of(lambda: tokens.renew(made.hmac, EVE)) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert code_of(lambda: tokens.renew(b"another")) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    short = tokens.create(max_lifetime_ms=100)
    tokens.now_ms += 50
    assert tokens.renew(short.hmac).expiry_timestamp_ms == short.max_timestamp_ms
    tokens.now_ms += 51
    assert code_of(lambda: tokens.renew(short.hmac)) is ErrorCode.DELEGATION_TOKEN_EXPIRED


def test_a_token_expires_at_once_or_later() -> None:
    tokens = Tokens()
    made = tokens.create()
    assert tokens.expire(made.hmac, BOB, period_ms=10).expiry_timestamp_ms == NOW_MS + 10
    assert code_of(lambda: tokens.expire(made.hmac, EVE)) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    tokens.now_ms += 11
    assert code_of(lambda: tokens.expire(made.hmac, period_ms=1)) is ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert tokens.expire(made.hmac, period_ms=-1).expiry_timestamp_ms == tokens.now_ms
    assert tokens.image.delegation_tokens == {}


def test_what_is_over_is_swept_away() -> None:
    tokens = Tokens()
    short, long = tokens.create(max_lifetime_ms=10), tokens.create()
    assert sweep(tokens.view(NOW_MS + 10)) == []
    tokens.take(Result(sweep(tokens.view(NOW_MS + 11)), short))
    assert list(tokens.image.delegation_tokens) == [long.token_id]


def test_without_a_secret_there_are_no_tokens() -> None:
    tokens = Tokens()
    config = config_with()
    tokens.setting = replace(tokens.setting, config=config)
    assert tokens.create().error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert code_of(lambda: tokens.renew(b"x")) is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert code_of(lambda: tokens.expire(b"x")) is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_an_old_cluster_has_no_place_for_tokens() -> None:
    tokens = Tokens("3.6-IV1")
    assert tokens.create().error_code == ErrorCode.UNSUPPORTED_VERSION
    assert code_of(lambda: tokens.renew(b"x")) is ErrorCode.UNSUPPORTED_VERSION


def test_the_controller_makes_renews_and_sweeps_tokens() -> None:
    cluster = TestCluster(delegation_token_secret_key="secret")
    controller, now_ms = cluster.controller, cluster.now_ms
    made = controller.handle(now_ms, CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=5000), 3, ALICE)
    cluster.replay(*made.records)
    hmac = made.response.hmac  # type: ignore[attr-defined]
    renewal = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=100)
    refusal = controller.handle(now_ms, renewal, 2, EVE)
    assert refusal.response.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH  # type: ignore[attr-defined]
    cluster.replay(*controller.handle(now_ms, renewal, 2, ALICE).records)
    (token,) = cluster.image.delegation_tokens.values()
    assert token.expiry_timestamp_ms == now_ms + 100
    expiry = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=50)
    cluster.replay(*controller.handle(now_ms, expiry, 2, ALICE).records)
    for _ in range(5):
        swept = controller.tick(now_ms + 3_600_001)
        cluster.replay(*([] if swept is None else swept.records))
    assert cluster.image.delegation_tokens == {}
