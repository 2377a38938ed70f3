"""DescribeAcls v1-3, CreateAcls v1-3, DeleteAcls v1-3.

Entries are described from the image and changed by the controller. Without an authorizer nobody would enforce them, so all
three are refused with SECURITY_DISABLED. A request with the number 0 for UNKNOWN in it is none, as with Apache Kafka, and ends
the connection. Any thread; nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable

from pybroker.metadata.controller.refusals import refused
from pybroker.metadata.image import MetadataImage
from pybroker.network.request import Request
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.acls import (
    AclDescription,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from pybroker.security.acls import AclFilter
from pybroker.server.forwarding import Forwarding

UNKNOWN = 0


class AclHandlers:
    def __init__(
        self,
        image_of: Callable[[], MetadataImage],
        forwarding: Forwarding,
        timeout_ms: Callable[[], int],
        *,
        has_authorizer: bool = False,
    ) -> None:
        """`timeout_ms` is how long the controller is waited for; `has_authorizer` is whether this node enforces entries."""
        self._image_of = image_of
        self._forwarding = forwarding
        self._timeout_ms = timeout_ms
        self._has_authorizer = has_authorizer

    def handle_describe_acls(self, request: Request, message: DescribeAclsRequest) -> DescribeAclsResponse | None:
        if UNKNOWN in (
            message.resource_type_filter,
            message.pattern_type_filter,
            message.operation,
            message.permission_type,
        ):
            request.close_connection("DescribeAcls for an UNKNOWN type, pattern, operation or permission")
            return None
        if not self._has_authorizer:
            return DescribeAclsResponse(
                error_code=ErrorCode.SECURITY_DISABLED,
                error_message="This broker has no authorizer: there are no access control entries.",
                resources=[],
            )
        return DescribeAclsResponse(error_code=ErrorCode.NONE, error_message=None, resources=self._described(message))

    def _described(self, message: DescribeAclsRequest) -> list[DescribeAclsResource]:
        wanted = AclFilter(
            resource_type=message.resource_type_filter,
            resource_name=message.resource_name_filter,
            pattern_type=message.pattern_type_filter,
            principal=message.principal_filter,
            host=message.host_filter,
            operation=message.operation,
            permission_type=message.permission_type,
        )
        resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
        for acl in self._image_of().acls.values():
            if not wanted.matches(acl):
                continue
            key = (acl.resource_type, acl.resource_name, acl.pattern_type)
            if key not in resources:
                resources[key] = DescribeAclsResource(
                    resource_type=acl.resource_type,
                    resource_name=acl.resource_name,
                    pattern_type=acl.pattern_type,
                    acls=[],
                )
            resources[key].acls.append(
                AclDescription(
                    principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission_type
                )
            )
        return list(resources.values())

    def handle_create_acls(self, request: Request, message: CreateAclsRequest) -> None:
        if any(
            UNKNOWN in (one.resource_type, one.resource_pattern_type, one.operation, one.permission_type)
            for one in message.creations
        ):
            request.close_connection("CreateAcls with an UNKNOWN type, pattern, operation or permission")
            return
        self._forward(request, message)

    def handle_delete_acls(self, request: Request, message: DeleteAclsRequest) -> None:
        if any(
            UNKNOWN in (one.resource_type_filter, one.pattern_type_filter, one.operation, one.permission_type)
            for one in message.filters
        ):
            request.close_connection("DeleteAcls for an UNKNOWN type, pattern, operation or permission")
            return
        self._forward(request, message)

    def _forward(self, request: Request, message: CreateAclsRequest | DeleteAclsRequest) -> None:
        self._forwarding.forward(
            request,
            message,
            self._timeout_ms(),
            lambda: refused(message, ErrorCode.REQUEST_TIMED_OUT, "The controller has not answered in time."),
        )
