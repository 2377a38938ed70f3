"""FindCoordinator v0-6, ListGroups v0-5, DescribeGroups v0-6, DeleteGroups v0-2: groups from outside.

Any thread; nothing here waits. A request about several groups is taken apart by shard, and answered when all have spoken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Final

from pybroker.metadata.image import MetadataImage
from pybroker.metadata.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from pybroker.network.request import Request
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.groups import (
    Coordinator,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from pybroker.server.authorized_operations import GROUP_OPERATIONS
from pybroker.server.auto_topics import AutoTopics
from pybroker.server.coordinators.gathering import gather
from pybroker.server.coordinators.groups import GroupCoordinator, Pending
from pybroker.server.coordinators.transactions import TransactionCoordinator

NO_NODE: Final = -1
NO_PORT: Final = -1

FIND_IN_BATCHES: Final = 4


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class GroupListingHandlers:
    def __init__(
        self,
        coordinator: GroupCoordinator,
        transactions: TransactionCoordinator,
        image_of: Callable[[], MetadataImage],
        auto_topics: AutoTopics,
    ) -> None:
        self._coordinator = coordinator
        self._transactions = transactions
        self._image_of = image_of
        self._auto_topics = auto_topics

    # FindCoordinator.

    def handle_find_coordinator(self, request: Request, message: FindCoordinatorRequest) -> FindCoordinatorResponse:
        if request.version >= FIND_IN_BATCHES:
            return FindCoordinatorResponse(
                coordinators=[self._find(request, message.key_type, key) for key in message.coordinator_keys]
            )
        found = self._find(request, message.key_type, message.key)
        return FindCoordinatorResponse(
            error_code=found.error_code,
            # Old versions always have words, if only the name of the code.
            error_message=found.error_message or ErrorCode(found.error_code).name,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )

    def _find(self, request: Request, key_type: int, key: str) -> Coordinator:
        if key_type not in KeyType.__members__.values():
            problem = (
                f"There are no coordinators for keys of type {key_type}; expected 0 (group), 1 (transaction) or 2 (share)."
            )
            return _not_found(key, ErrorCode.INVALID_REQUEST, problem)
        if key_type == KeyType.SHARE:
            # As Apache Kafka says where share groups are off: to wait for their coordinator would be in vain.
            return _not_found(key, ErrorCode.INVALID_REQUEST)
        is_group = key_type == KeyType.GROUP
        topic = OFFSETS_TOPIC if is_group else TRANSACTIONS_TOPIC
        image = self._image_of()
        state = image.partition(topic, (self._coordinator if is_group else self._transactions).partition_of(key))
        if state is None:
            self._auto_topics.ask_for([topic])
            return _not_found(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        leader = image.brokers.get(state.leader)
        endpoint = None
        if leader is not None and not leader.fenced:
            endpoint = leader.endpoints.get(request.connection.listener_name)
        if leader is None or endpoint is None:
            return _not_found(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return Coordinator(
            key=key,
            node_id=leader.id,
            host=endpoint.host,
            port=endpoint.port,
            error_code=ErrorCode.NONE,
            error_message="",
        )

    # ListGroups.

    def handle_list_groups(self, request: Request, message: ListGroupsRequest) -> None:
        def answer(rows: list[ListedGroup], code: ErrorCode) -> None:
            request.respond(ListGroupsResponse(error_code=code, groups=[] if code else rows))

        def part(partition: int, pending: Pending) -> None:
            self._coordinator.submit(partition, message, pending, version=request.version)

        gather(self._coordinator.partitions, part, lambda response: response.groups, _worth_telling, answer)

    # DescribeGroups.

    def handle_describe_groups(self, request: Request, message: DescribeGroupsRequest) -> None:
        by_partition = self._by_partition(message.groups)

        def answer(rows: list[DescribedGroup], _: ErrorCode) -> None:
            for row in rows:
                if message.include_authorized_operations and not row.error_code:
                    row.authorized_operations = GROUP_OPERATIONS
            request.respond(DescribeGroupsResponse(groups=rows))

        def part(partition: int, pending: Pending) -> None:
            names = by_partition[partition]

            def tell(code: ErrorCode) -> None:
                pending.done(DescribeGroupsResponse(groups=[_not_described(name, code) for name in names]))

            wanted = DescribeGroupsRequest(groups=names)
            self._coordinator.submit(partition, wanted, Pending(pending.done, tell), version=request.version)

        gather(by_partition, part, lambda response: response.groups, _worth_telling, answer)

    # DeleteGroups.

    def handle_delete_groups(self, request: Request, message: DeleteGroupsRequest) -> None:
        by_partition = self._by_partition(dict.fromkeys(message.groups_names))

        def answer(rows: list[DeletableGroupResult], _: ErrorCode) -> None:
            request.respond(DeleteGroupsResponse(results=rows))

        def part(partition: int, pending: Pending) -> None:
            names = by_partition[partition]

            def tell(code: ErrorCode) -> None:
                rows = [DeletableGroupResult(group_id=name, error_code=code) for name in names]
                pending.done(DeleteGroupsResponse(results=rows))

            wanted = DeleteGroupsRequest(groups_names=names)
            self._coordinator.submit(partition, wanted, Pending(pending.done, tell), version=request.version)

        gather(by_partition, part, lambda response: response.results, _worth_telling, answer)

    def _by_partition(self, group_ids: Iterable[str]) -> dict[int, list[str]]:
        out: dict[int, list[str]] = {}
        for group_id in group_ids:
            out.setdefault(self._coordinator.partition_of(group_id), []).append(group_id)
        return out


def _worth_telling(code: ErrorCode) -> bool:
    """A shard that has just moved away lists its groups elsewhere."""
    return code is not ErrorCode.NOT_COORDINATOR


def _not_found(key: str, code: ErrorCode, message: str = "") -> Coordinator:
    return Coordinator(key=key, node_id=NO_NODE, host="", port=NO_PORT, error_code=code, error_message=message)


def _not_described(group_id: str, code: ErrorCode) -> DescribedGroup:
    return DescribedGroup(error_code=code, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=[])
