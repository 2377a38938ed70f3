from __future__ import annotations

import math
from typing import Any

import pytest
from unit.metadata.clusters import TestCluster

from pybroker.metadata.quotas import EntityPart
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)

RATE = "producer_byte_rate"
ALICE = {"user": "alice"}


def entry(entity: dict[str, str | None], **ops: float | None) -> AlterClientQuotasRequestEntryData:
    return AlterClientQuotasRequestEntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops.items()],
    )


def alter(cluster: TestCluster, *entries: AlterClientQuotasRequestEntryData, validate_only: bool = False) -> list[ErrorCode]:
    response: Any = cluster.ask(AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only))
    return [ErrorCode(one.error_code) for one in response.entries]


def test_quotas_are_set_changed_and_taken_away() -> None:
    cluster = TestCluster()
    assert alter(cluster, entry(ALICE, producer_byte_rate=10.0, request_percentage=0.5)) == [ErrorCode.NONE]
    alter(cluster, entry(ALICE, producer_byte_rate=20.0))
    entity = (EntityPart("user", "alice"),)
    assert cluster.image.client_quotas == {entity: {RATE: 20.0, "request_percentage": 0.5}}
    alter(cluster, entry(ALICE, producer_byte_rate=None, consumer_byte_rate=None))
    assert cluster.image.client_quotas == {entity: {"request_percentage": 0.5}}
    alter(cluster, entry(ALICE, request_percentage=None))
    assert cluster.image.client_quotas == {}


def test_what_is_so_already_is_not_written_again() -> None:
    cluster = TestCluster()
    request = AlterClientQuotasRequest(entries=[entry(ALICE, producer_byte_rate=10.0)], validate_only=False)
    assert len(cluster.handle(request).records) == 1
    cluster.ask(request)
    assert cluster.handle(request).records == []


def test_the_order_of_the_parts_of_an_entity_does_not_matter() -> None:
    cluster = TestCluster()
    alter(cluster, entry({"user": "alice", "client-id": None}, producer_byte_rate=1.0))
    alter(cluster, entry({"client-id": None, "user": "alice"}, producer_byte_rate=2.0))
    assert list(cluster.image.client_quotas.values()) == [{RATE: 2.0}]


def test_validated_only() -> None:
    cluster = TestCluster()
    assert alter(cluster, entry(ALICE, producer_byte_rate=1.0), validate_only=True) == [ErrorCode.NONE]
    assert cluster.image.client_quotas == {}


@pytest.mark.parametrize(
    ("entity", "ops"),
    [
        ({}, {RATE: 1.0}),
        ({"group": "g"}, {RATE: 1.0}),
        ({"user": ""}, {RATE: 1.0}),
        ({"user": "alice", "ip": "10.0.0.1"}, {"connection_creation_rate": 1.0}),
        ({"ip": "not an address"}, {"connection_creation_rate": 1.0}),
        ({"ip": "10.0.0.1"}, {RATE: 1.0}),
        ({"ip": "10.0.0.1"}, {"connection_creation_rate": 2.0**31}),
        (ALICE, {"connection_creation_rate": 1.0}),
        (ALICE, {RATE: -1.0}),
        (ALICE, {RATE: 1.5}),
        (ALICE, {RATE: 1e19}),
        (ALICE, {RATE: math.nan}),
        (ALICE, {"request_percentage": -0.5}),
        (ALICE, {RATE: 1.0, "no_such_rate": 1.0}),
    ],
    ids=str,
)
def test_refused_as_a_whole(entity: dict[str, str | None], ops: dict[str, float]) -> None:
    cluster = TestCluster()
    assert alter(cluster, entry(entity, **ops)) == [ErrorCode.INVALID_REQUEST]
    assert cluster.image.client_quotas == {}


def test_zero_is_no_quota() -> None:
    cluster = TestCluster()
    zero = AlterClientQuotasRequestEntryData(
        entity=[EntityData(entity_type="user", entity_name="alice")], ops=[OpData(key=RATE, value=0.0, remove=False)]
    )
    assert alter(cluster, zero) == [ErrorCode.INVALID_REQUEST]


def test_an_address_has_its_own_quota() -> None:
    cluster = TestCluster()
    for address in ("10.0.0.1", "::1", None):
        assert alter(cluster, entry({"ip": address}, connection_creation_rate=5.0)) == [ErrorCode.NONE]
    assert len(cluster.image.client_quotas) == 3


def test_an_entity_or_a_key_that_is_there_twice() -> None:
    cluster = TestCluster()
    first, second = entry(ALICE, producer_byte_rate=1.0), entry(ALICE, consumer_byte_rate=1.0)
    assert alter(cluster, first, second) == [ErrorCode.INVALID_REQUEST]
    assert list(cluster.image.client_quotas.values()) == [{RATE: 1.0}]
    twice = entry({"user": "bob"}, producer_byte_rate=1.0)
    twice.ops *= 2
    assert alter(cluster, twice) == [ErrorCode.INVALID_REQUEST]
    assert len(cluster.image.client_quotas) == 1
