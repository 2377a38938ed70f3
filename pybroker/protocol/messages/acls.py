"""Access control lists: describe, create, delete."""

from __future__ import annotations

from pybroker.protocol.message import Message, Struct, col


class DescribeAclsRequest(Message, key=29, versions="1-3", flexible="2+"):
    resource_type_filter: int        = col("int8")
    resource_name_filter: str | None = col("string", nullable="0+")
    pattern_type_filter:  int        = col("int8", "1+", default=3)
    principal_filter:     str | None = col("string", nullable="0+")
    host_filter:          str | None = col("string", nullable="0+")
    operation:            int        = col("int8")
    permission_type:      int        = col("int8")


class DescribeAclsResponse(Message, key=29, versions="1-3", flexible="2+"):
    throttle_time_ms: int                        = col("int32", default=0)
    error_code:       int                        = col("int16")
    error_message:    str | None                 = col("string", nullable="0+")
    resources:        list[DescribeAclsResource] = col("[]DescribeAclsResource")


class DescribeAclsResource(Struct):
    resource_type: int                  = col("int8")
    resource_name: str                  = col("string")
    pattern_type:  int                  = col("int8", "1+", default=3)
    acls:          list[AclDescription] = col("[]AclDescription")


class AclDescription(Struct):
    principal:       str = col("string")
    host:            str = col("string")
    operation:       int = col("int8")
    permission_type: int = col("int8")


class CreateAclsRequest(Message, key=30, versions="1-3", flexible="2+"):
    creations: list[AclCreation] = col("[]AclCreation")


class AclCreation(Struct):
    resource_type:         int = col("int8")
    resource_name:         str = col("string")
    resource_pattern_type: int = col("int8", "1+", default=3)
    principal:             str = col("string")
    host:                  str = col("string")
    operation:             int = col("int8")
    permission_type:       int = col("int8")


class CreateAclsResponse(Message, key=30, versions="1-3", flexible="2+"):
    throttle_time_ms: int                     = col("int32", default=0)
    results:          list[AclCreationResult] = col("[]AclCreationResult")


class AclCreationResult(Struct):
    error_code:    int        = col("int16")
    error_message: str | None = col("string", nullable="0+")


class DeleteAclsRequest(Message, key=31, versions="1-3", flexible="2+"):
    filters: list[DeleteAclsFilter] = col("[]DeleteAclsFilter")


class DeleteAclsFilter(Struct):
    resource_type_filter: int        = col("int8")
    resource_name_filter: str | None = col("string", nullable="0+")
    pattern_type_filter:  int        = col("int8", "1+", default=3)
    principal_filter:     str | None = col("string", nullable="0+")
    host_filter:          str | None = col("string", nullable="0+")
    operation:            int        = col("int8")
    permission_type:      int        = col("int8")


class DeleteAclsResponse(Message, key=31, versions="1-3", flexible="2+"):
    throttle_time_ms: int                          = col("int32", default=0)
    filter_results:   list[DeleteAclsFilterResult] = col("[]DeleteAclsFilterResult")


class DeleteAclsFilterResult(Struct):
    error_code:    int                         = col("int16")
    error_message: str | None                  = col("string", nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = col("[]DeleteAclsMatchingAcl")


class DeleteAclsMatchingAcl(Struct):
    error_code:      int        = col("int16")
    error_message:   str | None = col("string", nullable="0+")
    resource_type:   int        = col("int8")
    resource_name:   str        = col("string")
    pattern_type:    int        = col("int8", "1+", default=3)
    principal:       str        = col("string")
    host:            str        = col("string")
    operation:       int        = col("int8")
    permission_type: int        = col("int8")
