"""The harness itself: a node starts, serves a stock client, stops both ways, and has what it acknowledged after each."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from interop.broker_process import CLUSTER_ID
from interop.pybroker_node import PybrokerNode

from pybroker.protocol.messages.metadata import MetadataRequest

pytest.importorskip("confluent_kafka")
clients = pytest.importorskip("interop.log.clients")


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill -9"])
def test_a_restarted_node_has_what_it_acknowledged_and_its_address(tmp_path: Path, clean: bool) -> None:
    with PybrokerNode(tmp_path) as node:
        assert node.ask(MetadataRequest(topics=[])).cluster_id == CLUSTER_ID
        topic_id = node.create_topic("t", {"segment.bytes": "1048576"}, partitions=2)
        address = node.bootstrap
        rows = clients.rows(100, time.time_ns() // 1_000_000 - 60_000)
        sent = clients.Producer(node, "t", 1).send(rows)
        node.restart(clean)
        assert node.bootstrap == address
        assert node.ready_s > 0
        assert clients.topic_id(node, "t") == topic_id
        assert node.list_offset("t", -1, 0) == (0, -1)
        assert clients.consume(node, "t", 1) == sent


def test_a_node_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"num\.io\.threads"):
        PybrokerNode(tmp_path, {"num.io.threads": "none"}).start()
