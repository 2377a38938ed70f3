"""Access control entries, given to our controller and to an Apache Kafka with an authorizer: the same answers, the same entries
left in the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from interop.apache_broker import ApacheBroker
from interop.metadata.our_cluster import OurCluster
from support.waiting import wait_until

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from pybroker.security.acls import Acl

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
TOPIC, GROUP, CLUSTER = 2, 3, 4
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
READ, WRITE = 3, 4


def creation(**changes: Any) -> AclCreation:
    fields = {
        "resource_type": TOPIC,
        "resource_name": "orders",
        "resource_pattern_type": LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": READ,
        "permission_type": 3,
    }
    return AclCreation(**(fields | changes))


def filtered(**changes: Any) -> DeleteAclsFilter:
    fields = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    return DeleteAclsFilter(**(fields | changes))


STEPS: dict[str, list[AclCreation] | list[DeleteAclsFilter]] = {
    "one": [creation()],
    "one again": [creation()],
    "one twice": [creation(host="h"), creation(host="h")],
    "several": [
        creation(operation=WRITE),
        creation(resource_name="ord", resource_pattern_type=PREFIXED),
        creation(resource_name="*"),
        creation(resource_type=GROUP, resource_name="g", permission_type=2),
        creation(resource_type=CLUSTER, resource_name="kafka-cluster", operation=12),
        creation(principal="User:*", operation=2),
        creation(resource_type=6, resource_name="token", operation=8),
        creation(resource_type=7, resource_name="User:bob", operation=13),
        creation(resource_type=5, resource_name="tx", operation=15),
    ],
    "bad ones beside a good one": [
        creation(resource_name=""),
        creation(resource_type=CLUSTER, resource_name="orders"),
        creation(resource_type=99),
        creation(resource_pattern_type=99),
        creation(operation=99),
        creation(permission_type=99),
        creation(principal="alice"),
        creation(principal=""),
        creation(principal=":"),
        creation(principal="User:bob"),
    ],
    "an empty name of a user": [creation(principal="User:")],
    "an empty type of principal": [creation(principal=":alice")],
    "an empty host": [creation(host="")],
    "any type": [creation(resource_type=ANY)],
    "any pattern": [creation(resource_pattern_type=ANY)],
    "a pattern of filters": [creation(resource_pattern_type=MATCH)],
    "any operation": [creation(operation=ANY)],
    "any permission": [creation(permission_type=ANY)],
    "delete nobody's": [filtered(principal_filter="User:nobody")],
    "delete by numbers that are not known": [
        filtered(resource_type_filter=99),
        filtered(pattern_type_filter=99),
        filtered(operation=99),
        filtered(permission_type=99),
    ],
    "delete what matches": [
        filtered(resource_name_filter="orders", pattern_type_filter=MATCH, operation=READ, host_filter="*")
    ],
    "delete literally": [filtered(resource_name_filter="orders", pattern_type_filter=LITERAL, operation=WRITE)],
    "delete with filters that overlap": [filtered(resource_type_filter=GROUP), filtered(permission_type=2)],
    "delete a host's": [filtered(host_filter="h")],
    "delete nothing": [],
}

# Apache Kafka trips over these, with UNKNOWN_SERVER_ERROR for the whole request; INVALID_REQUEST says what is wrong.
TRIPS = {"any type", "any pattern", "a pattern of filters", "any operation", "any permission"}


class Told:
    def __init__(self, cluster: Any) -> None:
        self.answers = {}
        for name, rows in STEPS.items():
            if rows and isinstance(rows[0], AclCreation):
                answer = cluster.ask(CreateAclsRequest(creations=rows), 3)
                self.answers[name] = [ErrorCode(one.error_code) for one in answer.results]
            else:
                answer = cluster.ask(DeleteAclsRequest(filters=rows), 3)
                self.answers[name] = [_shown(one) for one in answer.filter_results]


def _shown(result: Any) -> Any:
    return ErrorCode(result.error_code), sorted(
        (
            Acl(
                *(one.resource_type, one.resource_name, one.pattern_type, one.principal),
                *(one.host, one.operation, one.permission_type),
            )
            for one in result.matching_acls
        ),
    )


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Told, set[Acl]]]:
    with ApacheBroker(tmp_path_factory.mktemp("apache"), AUTHORIZER) as broker:
        told = Told(broker)
        seen: list[set[Acl]] = []

        def settles() -> bool:
            """Its broker learns of the last change a moment after the answer."""
            seen.append(_described(broker))
            return len(seen) > 5 and seen[-1] == seen[-5]

        wait_until(settles, 30, lambda: f"{seen[-2:]}")
        yield told, seen[-1]


def _described(broker: ApacheBroker) -> set[Acl]:
    request = DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    return {
        Acl(
            *(resource.resource_type, resource.resource_name, resource.pattern_type),
            *(one.principal, one.host, one.operation, one.permission_type),
        )
        for resource in broker.ask(request).resources
        for one in resource.acls
    }


@pytest.fixture(scope="module")
def ours() -> tuple[Told, set[Acl]]:
    cluster = OurCluster(has_authorizer=True)
    told = Told(cluster)
    return told, set(cluster.image.acls.values())


@pytest.mark.parametrize("step", STEPS)
def test_the_same_answer(step: str, apache: tuple[Told, set[Acl]], ours: tuple[Told, set[Acl]]) -> None:
    if step in TRIPS:
        assert apache[0].answers[step] == [ErrorCode.UNKNOWN_SERVER_ERROR]
        assert ours[0].answers[step] == [ErrorCode.INVALID_REQUEST]
    else:
        assert ours[0].answers[step] == apache[0].answers[step]


def test_the_same_entries_are_left(apache: tuple[Told, set[Acl]], ours: tuple[Told, set[Acl]]) -> None:
    assert ours[1] == apache[1]
    assert ours[1]
