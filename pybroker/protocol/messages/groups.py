"""The classic group protocol, and what is asked of groups of any kind: find the coordinator, list, describe, delete.

JoinGroup 4 demands a member id first, 5 brings static members, 9 lets the leader skip the assignment.
"""

from __future__ import annotations

from pybroker.protocol.message import Message, Struct, col


class FindCoordinatorRequest(Message, key=10, versions="0-6", flexible="3+"):
    key:              str       = col("string", "0-3", default="")
    key_type:         int       = col("int8", "1+", default=0)
    coordinator_keys: list[str] = col("[]string", "4+", default=[])


class FindCoordinatorResponse(Message, key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: int               = col("int32", "1+", default=0, ignorable=True)
    error_code:       int               = col("int16", "0-3", default=0)
    error_message:    str | None        = col("string", "1-3", nullable="1-3", default="", ignorable=True)
    node_id:          int               = col("int32", "0-3", default=0)
    host:             str               = col("string", "0-3", default="")
    port:             int               = col("int32", "0-3", default=0)
    coordinators:     list[Coordinator] = col("[]Coordinator", "4+", default=[])


class Coordinator(Struct):
    key:           str        = col("string", "4+")
    node_id:       int        = col("int32", "4+")
    host:          str        = col("string", "4+")
    port:          int        = col("int32", "4+")
    error_code:    int        = col("int16", "4+")
    error_message: str | None = col("string", "4+", nullable="4+", ignorable=True)


class JoinGroupRequest(Message, key=11, versions="0-9", flexible="6+"):
    group_id:             str                            = col("string")
    session_timeout_ms:   int                            = col("int32")
    rebalance_timeout_ms: int                            = col("int32", "1+", default=-1, ignorable=True)
    member_id:            str                            = col("string")
    group_instance_id:    str | None                     = col("string", "5+", nullable="5+", default=None)
    protocol_type:        str                            = col("string")
    protocols:            list[JoinGroupRequestProtocol] = col("[]JoinGroupRequestProtocol")
    reason:               str | None                     = col("string", "8+", nullable="8+", default=None, ignorable=True)


class JoinGroupRequestProtocol(Struct):
    name:     str   = col("string")
    metadata: bytes = col("bytes")


class JoinGroupResponse(Message, key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: int                           = col("int32", "2+", default=0, ignorable=True)
    error_code:       int                           = col("int16")
    generation_id:    int                           = col("int32", default=-1)
    protocol_type:    str | None                    = col("string", "7+", nullable="7+", default=None, ignorable=True)
    protocol_name:    str | None                    = col("string", nullable="7+")
    leader:           str                           = col("string")
    skip_assignment:  bool                          = col("bool", "9+", default=False)
    member_id:        str                           = col("string")
    members:          list[JoinGroupResponseMember] = col("[]JoinGroupResponseMember")


class JoinGroupResponseMember(Struct):
    member_id:         str        = col("string")
    group_instance_id: str | None = col("string", "5+", nullable="5+", default=None, ignorable=True)
    metadata:          bytes      = col("bytes")


class SyncGroupRequest(Message, key=14, versions="0-5", flexible="4+"):
    group_id:          str                              = col("string")
    generation_id:     int                              = col("int32")
    member_id:         str                              = col("string")
    group_instance_id: str | None                       = col("string", "3+", nullable="3+", default=None)
    protocol_type:     str | None                       = col("string", "5+", nullable="5+", default=None, ignorable=True)
    protocol_name:     str | None                       = col("string", "5+", nullable="5+", default=None, ignorable=True)
    assignments:       list[SyncGroupRequestAssignment] = col("[]SyncGroupRequestAssignment")


class SyncGroupRequestAssignment(Struct):
    member_id:  str   = col("string")
    assignment: bytes = col("bytes")


class SyncGroupResponse(Message, key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int        = col("int32", "1+", default=0, ignorable=True)
    error_code:       int        = col("int16")
    protocol_type:    str | None = col("string", "5+", nullable="5+", default=None, ignorable=True)
    protocol_name:    str | None = col("string", "5+", nullable="5+", default=None, ignorable=True)
    assignment:       bytes      = col("bytes")


class HeartbeatRequest(Message, key=12, versions="0-4", flexible="4+"):
    group_id:          str        = col("string")
    generation_id:     int        = col("int32")
    member_id:         str        = col("string")
    group_instance_id: str | None = col("string", "3+", nullable="3+", default=None)


class HeartbeatResponse(Message, key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int = col("int32", "1+", default=0, ignorable=True)
    error_code:       int = col("int16")


class LeaveGroupRequest(Message, key=13, versions="0-5", flexible="4+"):
    group_id:  str                  = col("string")
    member_id: str                  = col("string", "0-2", default="")
    members:   list[MemberIdentity] = col("[]MemberIdentity", "3+", default=[])


class MemberIdentity(Struct):
    member_id:         str        = col("string", "3+")
    group_instance_id: str | None = col("string", "3+", nullable="3+", default=None)
    reason:            str | None = col("string", "5+", nullable="5+", default=None, ignorable=True)


class LeaveGroupResponse(Message, key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: int                  = col("int32", "1+", default=0, ignorable=True)
    error_code:       int                  = col("int16")
    members:          list[MemberResponse] = col("[]MemberResponse", "3+", default=[])


class MemberResponse(Struct):
    member_id:         str        = col("string", "3+")
    group_instance_id: str | None = col("string", "3+", nullable="3+")
    error_code:        int        = col("int16", "3+")


class DescribeGroupsRequest(Message, key=15, versions="0-6", flexible="5+"):
    groups:                        list[str] = col("[]string")
    include_authorized_operations: bool      = col("bool", "3+", default=False)


class DescribeGroupsResponse(Message, key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: int                  = col("int32", "1+", default=0, ignorable=True)
    groups:           list[DescribedGroup] = col("[]DescribedGroup")


class DescribedGroup(Struct):
    error_code:            int                        = col("int16")
    error_message:         str | None                 = col("string", "6+", nullable="6+", default=None)
    group_id:              str                        = col("string")
    group_state:           str                        = col("string")
    protocol_type:         str                        = col("string")
    protocol_data:         str                        = col("string")
    members:               list[DescribedGroupMember] = col("[]DescribedGroupMember")
    authorized_operations: int                        = col("int32", "3+", default=-2147483648)


class DescribedGroupMember(Struct):
    member_id:         str        = col("string")
    group_instance_id: str | None = col("string", "4+", nullable="4+", default=None, ignorable=True)
    client_id:         str        = col("string")
    client_host:       str        = col("string")
    member_metadata:   bytes      = col("bytes")
    member_assignment: bytes      = col("bytes")


class ListGroupsRequest(Message, key=16, versions="0-5", flexible="3+"):
    states_filter: list[str] = col("[]string", "4+", default=[])
    types_filter:  list[str] = col("[]string", "5+", default=[])


class ListGroupsResponse(Message, key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int               = col("int32", "1+", default=0, ignorable=True)
    error_code:       int               = col("int16")
    groups:           list[ListedGroup] = col("[]ListedGroup")


class ListedGroup(Struct):
    group_id:      str = col("string")
    protocol_type: str = col("string")
    group_state:   str = col("string", "4+", default="", ignorable=True)
    group_type:    str = col("string", "5+", default="", ignorable=True)


class DeleteGroupsRequest(Message, key=42, versions="0-2", flexible="2+"):
    groups_names: list[str] = col("[]string")


class DeleteGroupsResponse(Message, key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: int                        = col("int32", default=0)
    results:          list[DeletableGroupResult] = col("[]DeletableGroupResult")


class DeletableGroupResult(Struct):
    group_id:   str = col("string")
    error_code: int = col("int16")
