"""A controller's listeners, over the network, on a whole node."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.node_client import NodeClient
from support.nodes import RunningNode, running
from support.waiting import wait_until
from unit.server.quorum.quorums import heartbeat, registration

from pybroker.base.ids import Uuid
from pybroker.metadata.controller.controller import Controller
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.metadata import DescribeClusterRequest
from pybroker.protocol.messages.raft import DescribeQuorumRequest, DescribeQuorumRequestTopicData
from pybroker.protocol.messages.raft import DescribeQuorumRequestPartitionData as DescribedPartition

WAIT_S = 10.0
OTHER = 7
CONTROLLERS = 2  # of the endpoint types


def join(node: RunningNode, client: NodeClient) -> int:
    """Have another broker let in, as it would ask for it itself; its epoch."""
    request = registration(Uuid(b"its only log dir"), node.node.cluster_id, OTHER)
    registered = client.ask(request)
    assert registered.error_code == ErrorCode.NONE, registered
    # It must have seen its own registration.
    answer = client.ask(heartbeat(registered.broker_epoch, registered.broker_epoch, OTHER))
    assert (answer.error_code, answer.is_fenced) == (ErrorCode.NONE, False)
    return int(registered.broker_epoch)


def is_fenced(node: RunningNode) -> bool:
    return node.node.quorum.image.brokers[OTHER].fenced


def test_a_broker_whose_last_connection_breaks_is_fenced_long_before_its_session_ends(tmp_path: Path) -> None:
    with running(tmp_path, broker_session_timeout_ms=600_000) as node:
        first, second = NodeClient(node.controller_port), NodeClient(node.controller_port)
        epoch = join(node, first)
        assert second.ask(heartbeat(epoch, epoch, OTHER)).error_code == ErrorCode.NONE
        first.close()
        assert second.ask(heartbeat(epoch, epoch, OTHER)).is_fenced is False
        started = time.monotonic()
        second.close()
        wait_until(lambda: is_fenced(node), WAIT_S, lambda: "the broker is taken for alive")
        assert time.monotonic() - started < WAIT_S / 2


def test_the_controller_is_told_of_the_first_connection_and_of_the_last_ones_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, int]] = []
    for name in ("broker_connection_made", "broker_connection_lost"):
        original = getattr(Controller, name)

        def noted(self: Controller, now_ms: int, broker_id: int, name: str = name, original: object = original) -> object:
            told.append((name.rpartition("_")[2], broker_id))
            return original(self, now_ms, broker_id)  # type: ignore[operator]

        monkeypatch.setattr(Controller, name, noted)
    with running(tmp_path) as node:
        client = NodeClient(node.controller_port)
        join(node, client)
        wait_until(lambda: told == [("made", OTHER)], WAIT_S, lambda: f"{told}")
        client.close()
        wait_until(lambda: told == [("made", OTHER), ("lost", OTHER)], WAIT_S, lambda: f"{told}")


def test_who_only_asks_is_no_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(Controller, "broker_connection_lost", lambda self, now_ms, broker_id: told.append(broker_id))
    with running(tmp_path) as node:
        with NodeClient(node.controller_port) as client:
            request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=CONTROLLERS)
            assert client.ask(request).controller_id == 1
        with NodeClient(node.controller_port) as client:
            join(node, client)
        wait_until(lambda: bool(told), WAIT_S, lambda: "the broker's end was not told")
        assert told == [OTHER]


def test_the_quorum_is_described_with_this_node_as_its_leader(tmp_path: Path) -> None:
    with running(tmp_path) as node, NodeClient(node.controller_port) as client:
        topic = DescribeQuorumRequestTopicData(
            topic_name="__cluster_metadata", partitions=[DescribedPartition(partition_index=0)]
        )
        answer = client.ask(DescribeQuorumRequest(topics=[topic]))
        (partition,) = answer.topics[0].partitions
        assert (partition.leader_id, [voter.replica_id for voter in partition.current_voters]) == (1, [1])
        assert partition.high_watermark == node.node.quorum.image.offset + 1


def test_a_controller_registers_itself_with_its_real_port(tmp_path: Path) -> None:
    with running(tmp_path) as node:

        def registered() -> bool:
            found = node.node.quorum.image.controllers.get(1)
            return found is not None and found.endpoints["CONTROLLER"].port == node.controller_port

        wait_until(registered, WAIT_S, lambda: f"{node.node.quorum.image.controllers}")


def test_a_decision_is_asked_for_over_the_listener(tmp_path: Path) -> None:
    with running(tmp_path) as node, NodeClient(node.controller_port) as client:
        client.create_topic("t")
        assert "t" in node.node.quorum.image.topics


def test_a_metadata_log_that_fails_closes_the_connection_of_another_replica(tmp_path: Path) -> None:
    with running(tmp_path) as node, NodeClient(node.controller_port) as client:
        quorum = node.node.quorum
        quorum._post(lambda now_ms: quorum._die("a test"))
        with pytest.raises(ConnectionError):
            client.ask(DescribeQuorumRequest(topics=[]))
