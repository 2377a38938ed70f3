"""`pybroker transactions` against a whole node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.node_client import NodeClient
from support.nodes import RunningNode, running
from support.transactional import Producer, must, wait_for_coordinator

from pybroker.metadata.image import ResourceType
from pybroker.tools.main import main

SETTINGS = {
    "offsets_topic_num_partitions": 1,
    "offsets_topic_replication_factor": 1,
    "transaction_state_log_num_partitions": 2,
    "transaction_state_log_replication_factor": 1,
    "transaction_state_log_min_isr": 1,
}
VERIFICATION = "transaction.partition.verification.enable"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with running(tmp_path, **SETTINGS) as one:
        yield one


@pytest.fixture
def client(node: RunningNode) -> NodeClient:
    client = node.client()
    client.create_topic("t", 2)
    wait_for_coordinator(client)
    return client


class Tool:
    def __init__(self, node: RunningNode, capsys: pytest.CaptureFixture[str]) -> None:
        self._port = node.port
        self._capsys = capsys

    def __call__(self, *args: str, fails: bool = False) -> list[list[str]]:
        """The words of each line."""
        code = main(["transactions", "--bootstrap-server", f"127.0.0.1:{self._port}", *args])
        out, err = self._capsys.readouterr()
        assert (code, bool(err)) == (int(fails), fails), (out, err)
        return [line.split() for line in (err if fails else out).splitlines()]


@pytest.fixture
def tool(node: RunningNode, capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(node, capsys)


def test_transactions_are_listed_and_described(client: NodeClient, tool: Tool) -> None:
    idle, busy = Producer(client, "idle"), Producer(client, "busy")
    must(idle.init())
    must(busy.init())
    must(busy.send(b"a", partition=1))
    assert tool("list")[1:] == [
        ["busy", "1", str(busy.producer_id), "Ongoing"],
        ["idle", "1", str(idle.producer_id), "Empty"],
    ]
    (row,) = tool("describe", "--transactional-id", "busy")[1:]
    assert row[:6] == ["busy", "1", str(busy.producer_id), "0", "Ongoing", "60000"]
    assert row[7] == "t-1"
    (row,) = tool("describe", "--transactional-id", "idle")[1:]
    assert row[6:] == ["None", "None"]
    assert "nobody" in " ".join(tool("describe", "--transactional-id", "nobody", fails=True)[0])


def test_a_hanging_transaction_is_found_and_aborted(client: NodeClient, tool: Tool) -> None:
    healthy, hanging = Producer(client, "healthy"), Producer(client, "hanging", is_new=False)
    must(healthy.init())
    must(hanging.init())
    must(healthy.send(b"a"))
    client.configure(ResourceType.BROKER, "", {VERIFICATION: "false"})
    must(hanging.send(b"b"))
    assert tool("find-hanging")[1:] == []
    (row,) = tool("find-hanging", "--max-transaction-timeout", "-1")[1:]
    assert row[:3] == ["t", "0", str(hanging.producer_id)]
    assert row[5] == "1"
    assert tool("find-hanging", "--topic", "t", "--partition", "1", "--max-transaction-timeout", "-1")[1:] == []
    place = ("--topic", "t", "--partition", "0")
    assert "open there are: 0, 1" in " ".join(tool("abort", *place, "--start-offset", "7", fails=True)[0])
    tool("abort", *place, "--start-offset", "1")
    assert tool("find-hanging", "--max-transaction-timeout", "-1")[1:] == []
    must(healthy.end(commit=True))
    healthy.wait_until_ended()
    assert client.offset("t") == 4


def test_nobody_there_and_nonsense_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transactions", "--bootstrap-server", "nonsense", "list"]) == 1
    assert "expected host:port" in capsys.readouterr().err
