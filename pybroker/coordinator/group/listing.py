"""ListGroups, DescribeGroups, ConsumerGroupDescribe and DeleteGroups: what is asked of groups from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pybroker.coordinator.group.classic.group import ClassicGroup, State
from pybroker.coordinator.group.cluster import ClusterView
from pybroker.coordinator.group.consumer.described import described, not_described
from pybroker.coordinator.group.consumer.group import ConsumerGroup
from pybroker.coordinator.group.group import Group
from pybroker.coordinator.group.offsets import Offsets
from pybroker.coordinator.records import CoordinatorRecord
from pybroker.coordinator.shard import Reply, Request, Result
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from pybroker.protocol.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

# DescribeGroups calls a group that is not there dead; from this version on that is an error, too.
NOT_FOUND_VERSION: Final = 6


class Listing:
    def __init__(
        self,
        groups: Mapping[str, Group],
        offsets: Offsets,
        cluster: Callable[[], ClusterView],
        default_assignor: str,
    ) -> None:
        self._cluster = cluster
        self._default_assignor = default_assignor
        self._groups = groups
        self._offsets = offsets

    def list(self, request: Request) -> Result:
        message: ListGroupsRequest = request.message
        states = {text.strip().lower() for text in message.states_filter}
        types = {text.strip().lower() for text in message.types_filter}
        rows = [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state_name,
                group_type=group.type.value,
            )
            for group in self._groups.values()
            if (not states or group.state_name.lower() in states) and (not types or group.type.value in types)
        ]
        return Result(effects=[Reply(request.token, ListGroupsResponse(error_code=ErrorCode.NONE, groups=rows))])

    def describe(self, request: Request) -> Result:
        message: DescribeGroupsRequest = request.message
        rows = [self._described(group_id, request.version) for group_id in message.groups]
        return Result(effects=[Reply(request.token, DescribeGroupsResponse(groups=rows))])

    def _described(self, group_id: str, version: int) -> DescribedGroup:
        group = self._groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            code, problem = ErrorCode.NONE, None
            if version >= NOT_FOUND_VERSION:
                code = ErrorCode.GROUP_ID_NOT_FOUND
                problem = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a classic group."
            return DescribedGroup(
                error_code=code,
                error_message=problem,
                group_id=group_id,
                group_state=State.DEAD.value,
                protocol_type="",
                protocol_data="",
                members=[],
            )
        is_stable = group.state is State.STABLE
        return DescribedGroup(
            error_code=ErrorCode.NONE,
            group_id=group_id,
            group_state=group.state_name,
            protocol_type=group.protocol_type,
            protocol_data=(group.protocol_name or "") if is_stable else "",
            members=[
                member.as_described(member.metadata(group.protocol_name) if is_stable else b"")
                for member in group.members.values()
            ],
        )

    def describe_consumers(self, request: Request) -> Result:
        message: ConsumerGroupDescribeRequest = request.message
        cluster = self._cluster()
        rows = []
        for group_id in message.group_ids:
            group = self._groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                rows.append(described(group, cluster, self._default_assignor))
            else:
                problem = f"Group {group_id} {'not found' if group is None else 'is not a consumer group'}."
                rows.append(not_described(group_id, ErrorCode.GROUP_ID_NOT_FOUND, problem))
        return Result(effects=[Reply(request.token, ConsumerGroupDescribeResponse(groups=rows))])

    def delete(self, request: Request) -> Result:
        message: DeleteGroupsRequest = request.message
        records: list[CoordinatorRecord] = []
        rows = []
        for group_id in message.groups_names:
            group = self._groups.get(group_id)
            code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.delete_refusal()
            rows.append(DeletableGroupResult(group_id=group_id, error_code=code))
            if group is not None and not code:
                records += [*self._offsets.tombstones_of_group(group_id), *group.tombstones()]
        # A group may have more offsets than fit a batch. If not all is written, what is left is deleted by who tries again.
        return Result(records, [Reply(request.token, DeleteGroupsResponse(results=rows))], is_atomic=False)
