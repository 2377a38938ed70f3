from __future__ import annotations

from typing import Any

import pytest
from support.requests import AskedRequest
from unit.server.clusters import CLUSTER_ID, Cluster, node_file

from pybroker.base.ids import ZERO_UUID
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.metadata_log import ControllerEndpoint, RegisterControllerRecord
from pybroker.protocol.messages.metadata import DescribeClusterRequest
from pybroker.server.dynamic_config import NodeConfig
from pybroker.server.handlers.cluster import ClusterHandlers

NOT_ASKED = -(2**31)
BROKERS, CONTROLLERS = 1, 2


class Broker:
    def __init__(self, active_controller: int = 1) -> None:
        self.cluster = Cluster()
        self.handlers = ClusterHandlers(
            self.cluster.image_of,
            NodeConfig(node_file()),
            CLUSTER_ID,
            lambda: active_controller,
            choose=lambda alive: alive[-1],
        )

    def describe(self, version: int = 2, listener: str = "PLAINTEXT", *, operations: bool = False, **more: Any) -> Any:
        message = DescribeClusterRequest(include_cluster_authorized_operations=operations, **more)
        one = AskedRequest(message, version, listener_name=listener)
        answer = self.handlers.handle_describe_cluster(one, one.message)  # type: ignore[arg-type]
        return type(answer).decode(version, answer.encode(version))


@pytest.fixture
def broker() -> Broker:
    made = Broker()
    made.cluster.broker(1, rack="a")
    made.cluster.broker(2)
    made.cluster.broker(3, fenced=True)
    return made


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_brokers_that_are_alive(broker: Broker, version: int) -> None:
    found = broker.describe(version)
    assert (found.error_code, found.error_message, found.endpoint_type) == (0, None, BROKERS)
    assert (found.cluster_id, found.controller_id, found.cluster_authorized_operations) == (CLUSTER_ID, 2, NOT_ASKED)
    assert [(one.broker_id, one.host, one.port, one.rack) for one in found.brokers] == [
        (1, "host1", 9092, "a"),
        (2, "host2", 9092, None),
    ]


def test_the_operations_on_the_cluster_are_told_to_those_who_ask(broker: Broker) -> None:
    # As Apache Kafka 4.3.1 without an authorizer.
    assert broker.describe(operations=True).cluster_authorized_operations == 8096


def test_fenced_brokers_are_told_to_those_who_ask(broker: Broker) -> None:
    found = broker.describe(include_fenced_brokers=True)
    assert [(one.broker_id, one.is_fenced) for one in found.brokers] == [(1, False), (2, False), (3, True)]
    assert found.controller_id == 2


def test_only_brokers_with_the_listener_that_was_asked_are_told(broker: Broker) -> None:
    broker.cluster.broker(1, ("PLAINTEXT", "EXTERNAL"))
    found = broker.describe(listener="EXTERNAL")
    assert [(one.broker_id, one.port) for one in found.brokers] == [(1, 9093)]
    # The one chosen, 2, cannot be reached from there.
    assert found.controller_id == -1


def test_without_a_live_broker_there_is_no_controller_to_name() -> None:
    assert Broker().describe().controller_id == -1


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(CONTROLLERS, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (5, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_another_endpoint_type_is_refused(broker: Broker, endpoint_type: int, code: ErrorCode) -> None:
    found = broker.describe(1, endpoint_type=endpoint_type, operations=True)
    assert (found.error_code, found.cluster_id, found.controller_id, found.brokers) == (code, "", -1, [])
    assert found.error_message
    assert found.cluster_authorized_operations == NOT_ASKED


def test_a_controller_tells_of_controllers(broker: Broker) -> None:
    for controller_id in (1, 5):
        endpoint = ControllerEndpoint(name="CONTROLLER", host=f"host{controller_id}", port=9099, security_protocol=0)
        broker.cluster.apply(
            RegisterControllerRecord(
                controller_id=controller_id,
                incarnation_id=ZERO_UUID,
                zk_migration_ready=False,
                end_points=[endpoint],
                features=[],
            )
        )
    found = broker.describe(listener="CONTROLLER", endpoint_type=CONTROLLERS)
    assert (found.error_code, found.endpoint_type, found.controller_id) == (0, CONTROLLERS, 1)
    assert [(one.broker_id, one.host, one.port) for one in found.brokers] == [(1, "host1", 9099), (5, "host5", 9099)]


def test_version_0_knows_no_endpoint_types_and_is_refused_by_a_controller(broker: Broker) -> None:
    found = broker.describe(0, listener="CONTROLLER")
    assert found.error_code == ErrorCode.INVALID_REQUEST
