from __future__ import annotations

from typing import Any

import pytest
from support.requests import AskedRequest
from unit.metadata.clusters import uuid
from unit.server.clusters import Clock, Cluster, Controller

from pybroker.metadata.acls import acl_record
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from pybroker.security.acls import Acl
from pybroker.server.forwarding import Forwarding
from pybroker.server.handlers.acls import AclHandlers

READ = Acl(2, "orders", 3, "User:alice", "*", 3, 3)


class Broker:
    def __init__(self, *, has_authorizer: bool = True) -> None:
        self.cluster = Cluster()
        self.controller = Controller()
        self.clock = Clock()
        self.handlers = AclHandlers(
            self.cluster.image_of,
            Forwarding(self.controller, self.clock.timer, self.clock.now_ms),
            lambda: 1000,
            has_authorizer=has_authorizer,
        )

    def describe(self, **changes: Any) -> Any:
        fields = {
            "resource_type_filter": 1,
            "resource_name_filter": None,
            "pattern_type_filter": 1,
            "principal_filter": None,
            "host_filter": None,
            "operation": 1,
            "permission_type": 1,
        }
        asked = AskedRequest(DescribeAclsRequest(**(fields | changes)), 3)
        return self.handlers.handle_describe_acls(asked, asked.message) or asked  # type: ignore[arg-type]


def creation(**changes: Any) -> CreateAclsRequest:
    fields = dict(zip(("resource_type", "resource_name", "resource_pattern_type"), READ[:3], strict=True))
    rest = dict(zip(("principal", "host", "operation", "permission_type"), READ[3:], strict=True))
    return CreateAclsRequest(creations=[AclCreation(**(fields | rest | changes))])


def test_entries_are_described_by_resource() -> None:
    broker = Broker()
    other = READ._replace(resource_name="other")
    for number, acl in enumerate((READ, READ._replace(operation=4), other)):
        broker.cluster.apply(acl_record(uuid(f"acl {number}"), acl))
    answer = broker.describe()
    assert answer.error_code == ErrorCode.NONE
    assert [(one.resource_name, [acl.operation for acl in one.acls]) for one in answer.resources] == [
        ("orders", [3, 4]),
        ("other", [3]),
    ]
    (only,) = broker.describe(resource_name_filter="orders", operation=4).resources
    assert [acl.principal for acl in only.acls] == ["User:alice"]
    assert broker.describe(host_filter="elsewhere").resources == []


def test_without_an_authorizer_there_are_none() -> None:
    broker = Broker(has_authorizer=False)
    broker.cluster.apply(acl_record(uuid("acl"), READ))
    answer = broker.describe()
    assert (answer.error_code, answer.resources) == (ErrorCode.SECURITY_DISABLED, [])


@pytest.mark.parametrize("field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"])
def test_the_number_of_nothing_is_no_request(field: str) -> None:
    assert "UNKNOWN" in Broker().describe(**{field: 0}).close_reason


def test_the_controller_decides_on_changes() -> None:
    broker = Broker()
    asked = AskedRequest(creation(), 3)
    broker.handlers.handle_create_acls(asked, asked.message)  # type: ignore[arg-type]
    assert broker.controller.request.creations[0].resource_name == "orders"
    answer = CreateAclsResponse(results=[AclCreationResult(error_code=0, error_message=None)])
    broker.controller.answer(answer)
    assert asked.answer is answer


def test_a_controller_that_is_silent() -> None:
    broker = Broker()
    asked = AskedRequest(DeleteAclsRequest(filters=[any_acl(), any_acl()]), 3)
    broker.handlers.handle_delete_acls(asked, asked.message)  # type: ignore[arg-type]
    broker.clock.advance(1001)
    assert [one.error_code for one in asked.answer.filter_results] == [ErrorCode.REQUEST_TIMED_OUT] * 2


def any_acl(**changes: Any) -> DeleteAclsFilter:
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


def test_changes_with_the_number_of_nothing_end_the_connection() -> None:
    broker = Broker()
    asked = AskedRequest(creation(operation=0), 3)
    broker.handlers.handle_create_acls(asked, asked.message)  # type: ignore[arg-type]
    assert asked.close_reason is not None
    asked = AskedRequest(DeleteAclsRequest(filters=[any_acl(permission_type=0)]), 3)
    broker.handlers.handle_delete_acls(asked, asked.message)  # type: ignore[arg-type]
    assert asked.close_reason is not None
    assert broker.controller.asked == []
