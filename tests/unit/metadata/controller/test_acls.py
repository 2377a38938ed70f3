from __future__ import annotations

from typing import Any

import pytest
from unit.metadata.clusters import TestCluster

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.acls import AclCreation, CreateAclsRequest, DeleteAclsFilter, DeleteAclsRequest
from pybroker.security.acls import Acl


def creation(**changes: Any) -> AclCreation:
    fields = {
        "resource_type": 2,
        "resource_name": "orders",
        "resource_pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return AclCreation(**(fields | changes))


def filtered(**changes: Any) -> DeleteAclsFilter:
    fields = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return DeleteAclsFilter(**(fields | changes))


@pytest.fixture
def cluster() -> TestCluster:
    return TestCluster(has_authorizer=True)


def create(cluster: TestCluster, *creations: AclCreation) -> list[ErrorCode]:
    return [ErrorCode(one.error_code) for one in cluster.ask(CreateAclsRequest(creations=list(creations))).results]


def delete(cluster: TestCluster, *filters: DeleteAclsFilter) -> Any:
    return cluster.ask(DeleteAclsRequest(filters=list(filters))).filter_results


def test_an_entry_is_stored_once(cluster: TestCluster) -> None:
    assert create(cluster, creation(), creation(), creation(host="10.0.0.1")) == [ErrorCode.NONE] * 3
    assert list(cluster.image.acls.values()) == [
        Acl(2, "orders", 3, "User:alice", "*", 3, 3),
        Acl(2, "orders", 3, "User:alice", "10.0.0.1", 3, 3),
    ]
    result = cluster.handle(CreateAclsRequest(creations=[creation()]))
    assert (result.records, result.response.results[0].error_code) == ([], ErrorCode.NONE)


@pytest.mark.parametrize(
    "changes",
    [
        {"resource_name": ""},
        {"resource_type": 1},
        {"resource_type": 99},
        {"resource_type": 4},
        {"resource_pattern_type": 1},
        {"resource_pattern_type": 2},
        {"operation": 1},
        {"operation": 77},
        {"permission_type": 1},
        {"principal": "alice"},
        {"principal": ""},
    ],
    ids=str,
)
def test_what_is_no_entry_is_refused_and_the_others_are_taken(cluster: TestCluster, changes: dict[str, Any]) -> None:
    assert create(cluster, creation(**changes), creation()) == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert len(cluster.image.acls) == 1


def test_the_cluster_has_one_name(cluster: TestCluster) -> None:
    assert create(cluster, creation(resource_type=4, resource_name="kafka-cluster")) == [ErrorCode.NONE]


def test_filters_delete_and_tell_what(cluster: TestCluster) -> None:
    create(cluster, creation(), creation(operation=4), creation(resource_name="other"))
    first, second = delete(
        cluster, filtered(resource_name_filter="orders", operation=3), filtered(principal_filter="User:alice")
    )
    assert [(one.resource_name, one.operation) for one in first.matching_acls] == [("orders", 3)]
    assert len(second.matching_acls) == 3
    assert cluster.image.acls == {}
    (nothing,) = delete(cluster, filtered())
    assert (nothing.error_code, nothing.matching_acls) == (ErrorCode.NONE, [])


def test_an_entry_that_two_filters_mean_is_removed_once(cluster: TestCluster) -> None:
    create(cluster, creation())
    result = cluster.handle(DeleteAclsRequest(filters=[filtered(), filtered()]))
    assert len(result.records) == 1


def test_a_filter_with_an_unknown_number_deletes_nothing(cluster: TestCluster) -> None:
    create(cluster, creation())
    first, second = delete(cluster, filtered(pattern_type_filter=9), filtered(operation=99))
    assert (first.error_code, second.error_code) == (ErrorCode.INVALID_REQUEST,) * 2
    assert len(cluster.image.acls) == 1


def test_where_nobody_enforces_entries_there_are_none() -> None:
    cluster = TestCluster()
    assert create(cluster, creation(), creation()) == [ErrorCode.SECURITY_DISABLED] * 2
    (result,) = delete(cluster, filtered())
    assert (result.error_code, result.matching_acls) == (ErrorCode.SECURITY_DISABLED, [])
