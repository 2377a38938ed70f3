"""DescribeCluster v0-2: the brokers, to clients of a broker; the controllers, to those of a controller. Any thread."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from enum import IntEnum

from pybroker.metadata.image import MetadataImage
from pybroker.network.request import Request
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.metadata import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from pybroker.server.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED
from pybroker.server.dynamic_config import NodeConfig


class EndpointType(IntEnum):
    BROKER = 1
    CONTROLLER = 2


class ClusterHandlers:
    def __init__(
        self,
        image_of: Callable[[], MetadataImage],
        config: NodeConfig,
        cluster_id: str,
        active_controller: Callable[[], int],
        choose: Callable[[Sequence[int]], int] = random.choice,
    ) -> None:
        """`active_controller` is its id, -1 while none is known."""
        self._image_of = image_of
        self._cluster_id = cluster_id
        self._active_controller = active_controller
        self._choose = choose
        self._controller_listeners = frozenset(config.static.controller_listener_names)

    def handle_describe_cluster(self, request: Request, message: DescribeClusterRequest) -> DescribeClusterResponse:
        listener = request.connection.listener_name
        own = EndpointType.CONTROLLER if listener in self._controller_listeners else EndpointType.BROKER
        if message.endpoint_type != own:
            return _refusal(request.version, message.endpoint_type, own)
        image = self._image_of()
        if own is EndpointType.BROKER:
            nodes = _brokers(image, listener, includes_fenced=message.include_fenced_brokers)
            alive = [broker.id for broker in image.brokers.values() if not broker.fenced]
            # Clients send to it what only a controller can do; every broker forwards that.
            controller_id = self._choose(alive) if alive else -1
        else:
            nodes = _controllers(image, listener)
            controller_id = self._active_controller()
        return DescribeClusterResponse(
            error_code=ErrorCode.NONE,
            endpoint_type=own,
            cluster_id=self._cluster_id,
            controller_id=controller_id if any(node.broker_id == controller_id for node in nodes) else -1,
            brokers=nodes,
            cluster_authorized_operations=CLUSTER_OPERATIONS if message.include_cluster_authorized_operations else NOT_ASKED,
        )


def _brokers(image: MetadataImage, listener: str, *, includes_fenced: bool) -> list[DescribeClusterBroker]:
    return [
        DescribeClusterBroker(
            broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack, is_fenced=broker.fenced
        )
        for broker in image.brokers.values()
        if (includes_fenced or not broker.fenced) and (endpoint := broker.endpoints.get(listener)) is not None
    ]


def _controllers(image: MetadataImage, listener: str) -> list[DescribeClusterBroker]:
    return [
        DescribeClusterBroker(broker_id=controller.id, host=endpoint.host, port=endpoint.port)
        for controller in image.controllers.values()
        if (endpoint := controller.endpoints.get(listener)) is not None
    ]


def _refusal(version: int, asked: int, own: EndpointType) -> DescribeClusterResponse:
    if asked in (EndpointType.BROKER, EndpointType.CONTROLLER):
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = (
            f"This is an endpoint of a {own.name.lower()}; the request is for one of a {EndpointType(asked).name.lower()}."
        )
    else:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"Endpoint type {asked} is not known; expected 1 for brokers or 2 for controllers."
    return DescribeClusterResponse(
        error_code=ErrorCode.INVALID_REQUEST if version == 0 else code, error_message=message, cluster_id="", brokers=[]
    )
