"""CreateAcls and DeleteAcls: entries are stored under ids of the controller's own.

Each entry, and each filter, of a request is judged for itself. An entry that is there already is not stored twice, and that is
no error. Where nobody would enforce entries there are none: the request is refused as a whole.
"""

from __future__ import annotations

from pybroker.metadata.acls import acl_record
from pybroker.metadata.controller.decisions import Result, Setting, check_record_count
from pybroker.metadata.image import MetadataImage
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.internal.metadata_log import RemoveAccessControlEntryRecord
from pybroker.protocol.message import Message
from pybroker.protocol.messages.acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from pybroker.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
    PermissionType,
    is_known,
    name_of,
)


def create_acls(image: MetadataImage, setting: Setting, request: CreateAclsRequest) -> Result:
    _check_authorizer(setting)
    known = set(image.acls.values())
    records: list[Message] = []
    results = []
    for creation in request.creations:
        try:
            acl = _checked(creation)
        except KafkaError as error:
            results.append(AclCreationResult(error_code=error.code, error_message=error.message))
            continue
        if acl not in known:
            known.add(acl)
            records.append(acl_record(setting.new_uuid(), acl))
        results.append(AclCreationResult(error_code=ErrorCode.NONE, error_message=None))
    check_record_count(len(records))
    return Result(records, CreateAclsResponse(results=results))


def _check_authorizer(setting: Setting) -> None:
    if not setting.has_authorizer:
        raise KafkaError(
            ErrorCode.SECURITY_DISABLED, "This cluster has no authorizer: nobody would enforce access control entries."
        )


def _checked(creation: AclCreation) -> Acl:
    acl = Acl(
        resource_type=creation.resource_type,
        resource_name=creation.resource_name,
        pattern_type=creation.resource_pattern_type,
        principal=creation.principal,
        host=creation.host,
        operation=creation.operation,
        permission_type=creation.permission_type,
    )
    problem = None
    if acl.resource_type == AclResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        problem = f"The cluster is called {CLUSTER_NAME!r} here; found {acl.resource_name!r}."
    elif not acl.resource_name:
        problem = "An access control entry needs the name of a resource; found an empty one."
    elif not _is_specific(AclResourceType, acl.resource_type):
        problem = f"An entry is about one type of resource; found {name_of(AclResourceType, acl.resource_type)}."
    elif acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        problem = f"The name of a resource is LITERAL or PREFIXED; found {name_of(PatternType, acl.pattern_type)}."
    elif not _is_specific(AclOperation, acl.operation):
        problem = f"An entry is about one operation, or ALL; found {name_of(AclOperation, acl.operation)}."
    elif not _is_specific(PermissionType, acl.permission_type):
        problem = f"An entry says ALLOW or DENY; found {name_of(PermissionType, acl.permission_type)}."
    elif ":" not in acl.principal:
        problem = f"A principal is written as type:name, as User:alice; found {acl.principal!r}."
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
    return acl


def _is_specific(kind: type[AclResourceType] | type[AclOperation] | type[PermissionType], number: int) -> bool:
    return is_known(kind, number) and number != kind.ANY


def delete_acls(image: MetadataImage, setting: Setting, request: DeleteAclsRequest) -> Result:
    _check_authorizer(setting)
    gone: dict[bytes, Message] = {}
    results = []
    for one in request.filters:
        wanted = _filter(one)
        if wanted.has_unknown_pattern or wanted.has_unknown_entry:
            part = "pattern" if wanted.has_unknown_pattern else "entry"
            results.append(
                DeleteAclsFilterResult(
                    error_code=ErrorCode.INVALID_REQUEST,
                    error_message=f"The {part} of the filter has a number that is not known here: {one}.",
                    matching_acls=[],
                )
            )
            continue
        found = [(id, acl) for id, acl in image.acls.items() if wanted.matches(acl)]
        gone |= {id: RemoveAccessControlEntryRecord(id=id) for id, _ in found}
        matching = [_matching(acl) for _, acl in found]
        results.append(DeleteAclsFilterResult(error_code=ErrorCode.NONE, error_message=None, matching_acls=matching))
    check_record_count(len(gone))
    return Result(list(gone.values()), DeleteAclsResponse(filter_results=results))


def _filter(one: DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        resource_type=one.resource_type_filter,
        resource_name=one.resource_name_filter,
        pattern_type=one.pattern_type_filter,
        principal=one.principal_filter,
        host=one.host_filter,
        operation=one.operation,
        permission_type=one.permission_type,
    )


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )
