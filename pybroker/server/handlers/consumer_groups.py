"""ConsumerGroupHeartbeat v0-1, ConsumerGroupDescribe v0-1: groups of the KIP-848 protocol.

Any thread; nothing here waits. What a request lacks or has too much of is refused here; the rest is the shard's business.
Both are served where the cluster has group.version 1 and the broker speaks the consumer protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pybroker.config import Config
from pybroker.coordinator.group.consumer.described import not_described
from pybroker.coordinator.group.consumer.member import JOINING, LEAVING, LEAVING_STATIC
from pybroker.metadata.controller.features import group_version
from pybroker.metadata.image import MetadataImage
from pybroker.network.request import Request
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedGroup,
)
from pybroker.server.authorized_operations import GROUP_OPERATIONS
from pybroker.server.coordinators.gathering import gather
from pybroker.server.coordinators.groups import GroupCoordinator, Pending

# From here on members choose their ids themselves.
MEMBER_CHOOSES_ID: Final = 1


class ConsumerGroupHandlers:
    def __init__(self, coordinator: GroupCoordinator, image_of: Callable[[], MetadataImage], config: Config) -> None:
        self._coordinator = coordinator
        self._image_of = image_of
        self._is_spoken = "consumer" in config["group.coordinator.rebalance.protocols"]

    @property
    def _is_enabled(self) -> bool:
        return self._is_spoken and group_version(self._image_of()) > 0

    def handle_consumer_group_heartbeat(
        self, request: Request, message: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse | None:
        if not self._is_enabled:
            return _heartbeat_error(ErrorCode.UNSUPPORTED_VERSION)
        problem = _problem(message, request.version)
        if problem is not None:
            return _heartbeat_error(ErrorCode.INVALID_REQUEST, problem)
        assignors = self._coordinator.settings.consumer_assignors
        if message.server_assignor is not None and message.server_assignor not in assignors:
            problem = f"ServerAssignor {message.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}."
            return _heartbeat_error(ErrorCode.UNSUPPORTED_ASSIGNOR, problem)
        coordinator = self._coordinator
        coordinator.submit(
            coordinator.partition_of(message.group_id),
            message,
            Pending(request.respond, lambda code: request.respond(_heartbeat_error(code))),
            version=request.version,
            client_id=request.client_id,
            # As Java shows an address without a name.
            client_host=f"/{request.connection.peer[0]}",
        )
        return None

    def handle_consumer_group_describe(self, request: Request, message: ConsumerGroupDescribeRequest) -> None:
        refused: list[DescribedGroup] = []
        by_partition: dict[int, list[str]] = {}
        for group_id in message.group_ids:
            if not self._is_enabled:
                refused.append(not_described(group_id, ErrorCode.UNSUPPORTED_VERSION))
            elif not group_id:
                refused.append(not_described(group_id, ErrorCode.INVALID_GROUP_ID))
            else:
                by_partition.setdefault(self._coordinator.partition_of(group_id), []).append(group_id)

        def answer(rows: list[DescribedGroup], _: ErrorCode) -> None:
            for row in rows:
                if message.include_authorized_operations and not row.error_code:
                    row.authorized_operations = GROUP_OPERATIONS
            request.respond(ConsumerGroupDescribeResponse(groups=[*refused, *rows]))

        def part(partition: int, pending: Pending) -> None:
            names = by_partition[partition]

            def tell(code: ErrorCode) -> None:
                pending.done(ConsumerGroupDescribeResponse(groups=[not_described(name, code) for name in names]))

            wanted = ConsumerGroupDescribeRequest(group_ids=names, include_authorized_operations=False)
            self._coordinator.submit(partition, wanted, Pending(pending.done, tell), version=request.version)

        gather(by_partition, part, lambda response: response.groups, lambda _: False, answer)


def _problem(message: ConsumerGroupHeartbeatRequest, version: int) -> str | None:
    """What is wrong with a request, if anything is."""
    epoch = message.member_epoch
    needs_id = version >= MEMBER_CHOOSES_ID or epoch > JOINING or epoch == LEAVING
    if needs_id and not message.member_id.strip():
        return "MemberId can't be empty."
    if not message.group_id.strip():
        return "GroupId can't be empty."
    if message.instance_id is not None and not message.instance_id.strip():
        return "InstanceId can't be empty."
    if message.rack_id is not None and not message.rack_id.strip():
        return "RackId can't be empty."
    if epoch == JOINING:
        if message.rebalance_timeout_ms == -1:
            return "RebalanceTimeoutMs must be provided in first request."
        if message.topic_partitions is None or message.topic_partitions:
            return "TopicPartitions must be empty when (re-)joining."
        if message.subscribed_topic_names is None and message.subscribed_topic_regex is None:
            return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    elif epoch == LEAVING_STATIC and message.instance_id is None:
        return "InstanceId can't be null."
    elif epoch < LEAVING_STATIC:
        return "MemberEpoch is invalid."
    return None


def _heartbeat_error(code: ErrorCode, problem: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=problem, member_epoch=0, heartbeat_interval_ms=0)
