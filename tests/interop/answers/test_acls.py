"""DescribeAcls 1-3, CreateAcls 1-3, DeleteAcls 1-3 on a cluster without an authorizer: the same answer as Apache Kafka's."""

from __future__ import annotations

from typing import Any

import pytest
from interop.answers.case import Case, Pair, Step, family
from interop.answers.steps import asks

from pybroker.protocol.messages import acls

describing, creating, deleting = family(29), family(30), family(31)

ANY = 1


def describe(**changes: Any) -> Step:
    fields = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    return asks(29, lambda _, __: acls.DescribeAclsRequest(**(fields | changes)))


def creation(**changes: Any) -> acls.AclCreation:
    fields = {
        "resource_type": 2,
        "resource_name": "t",
        "resource_pattern_type": 3,
        "principal": "User:u",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return acls.AclCreation(**(fields | changes))


def create(*rows: acls.AclCreation) -> Step:
    return asks(30, lambda _, __: acls.CreateAclsRequest(creations=list(rows)))


def filtered(**changes: Any) -> acls.DeleteAclsFilter:
    fields = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    return acls.DeleteAclsFilter(**(fields | changes))


def delete(*rows: acls.DeleteAclsFilter) -> Step:
    return asks(31, lambda _, __: acls.DeleteAclsRequest(filters=list(rows)))


CASES = [
    describing("all", describe()),
    creating("one", create(creation())),
    creating("two", create(creation(), creation(operation=4))),
    creating("nothing", create()),
    creating("an empty name", create(creation(resource_name=""))),
    deleting("all", delete(filtered())),
    deleting("two filters", delete(filtered(), filtered(host_filter="h"))),
    deleting("nothing", delete()),
    *(
        case
        for number in (0, 99, -1)
        for case in (
            *(
                describing(f"{field} {number}", describe(**{field: number}))
                for field in ("resource_type_filter", "pattern_type_filter", "operation", "permission_type")
            ),
            *(
                creating(f"{field} {number}", create(creation(**{field: number})))
                for field in ("resource_type", "resource_pattern_type", "operation", "permission_type")
            ),
            *(
                deleting(f"{field} {number}", delete(filtered(**{field: number})))
                for field in ("resource_type_filter", "pattern_type_filter", "operation", "permission_type")
            ),
        )
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_same_answer(pair: Pair, case: Case) -> None:
    pair.compare(case)
