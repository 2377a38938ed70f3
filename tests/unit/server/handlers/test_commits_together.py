"""Commits that a client sends without waiting: the same answers as one by one, in order, and fewer writes."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.node_client import NodeClient
from support.nodes import RunningNode, running
from support.waiting import wait_until

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages import group_offsets, groups

OFFSET_COMMIT = group_offsets.OffsetCommitRequest.KEY
SETTINGS = {
    "offsets_topic_num_partitions": 1,
    "offsets_topic_replication_factor": 1,
    "group_initial_rebalance_delay_ms": 0,
}
LATE = ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with running(tmp_path, **SETTINGS) as node:
        prepare(node.client())
        yield node


def prepare(client: NodeClient) -> None:
    client.create_topic("t", 3)
    client.ask(groups.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    wait_until(lambda: codes(client.ask(commit(0), 9))[0] not in LATE, 20, lambda: "there is no coordinator")


def commit(offset: int, partition: int = 0, *, group: str = "g", topic: str = "t", **options: Any) -> Message:
    row = group_offsets.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
    topic_id = options.pop("topic_id", ZERO_UUID)
    rows = [group_offsets.OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[row])]
    defaults = {"generation_id_or_member_epoch": -1, "member_id": ""}
    return group_offsets.OffsetCommitRequest(group_id=group, topics=rows, **(defaults | options))


def codes(response: Any) -> list[ErrorCode]:
    return [ErrorCode(one.error_code) for topic in response.topics for one in topic.partitions]


def committed(client: NodeClient, group: str = "g") -> dict[int, int]:
    wanted = group_offsets.OffsetFetchRequestGroup(group_id=group, topics=None)
    (found,) = client.ask(group_offsets.OffsetFetchRequest(groups=[wanted]), 9).groups
    return {one.partition_index: one.committed_offset for topic in found.topics for one in topic.partitions}


def batches(node: RunningNode) -> int:
    partition = node.broker.replicas.partition("__consumer_offsets", 0)
    assert not isinstance(partition, ErrorCode)
    return sum(1 for _ in partition.log.batches(None, partition.log.log_end_offset))


@pytest.mark.parametrize("version", range(2, 10))
def test_all_are_committed_by_a_few_writes_and_the_last_one_counts(node: RunningNode, version: int) -> None:
    client = node.client()
    before = batches(node)
    answers = client.ask_together([commit(10 * number, number % 3) for number in range(60)], version)
    assert [codes(answer) for answer in answers] == [[ErrorCode.NONE]] * 60
    assert committed(client) == {0: 570, 1: 580, 2: 590}
    assert batches(node) - before < 60


def test_topics_may_be_named_by_id(node: RunningNode) -> None:
    client = node.client()
    topic_id = Uuid(bytes(client.topic("t").topic_id))
    answers = client.ask_together([commit(number, topic="", topic_id=topic_id) for number in range(5)], 10)
    assert [codes(answer) for answer in answers] == [[ErrorCode.NONE]] * 5
    assert answers[0].topics[0].topic_id == topic_id
    assert committed(client) == {0: 4}


def test_what_is_refused_is_refused_in_its_place(node: RunningNode) -> None:
    client = node.client()
    requests = [
        commit(1),
        commit(2, topic="nowhere"),
        commit(3),
        commit(4, partition=7),
        commit(5, group="h", generation_id_or_member_epoch=3, member_id="nobody"),
        commit(6),
        commit(7),
    ]
    answers = client.ask_together(requests, 9)
    assert [codes(answer) for answer in answers] == [
        [ErrorCode.NONE],
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        [ErrorCode.NONE],
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        [ErrorCode.GROUP_ID_NOT_FOUND],
        [ErrorCode.NONE],
        [ErrorCode.NONE],
    ]
    assert committed(client) == {0: 7}
    assert [codes(answer) for answer in answers] == [codes(client.ask(request, 9)) for request in requests]


def test_other_requests_between_them_are_answered_in_their_place(node: RunningNode) -> None:
    client = node.client()
    beat = groups.HeartbeatRequest(group_id="g", generation_id=1, member_id="nobody")
    listing = groups.ListGroupsRequest()
    answers = client.ask_together([commit(1), commit(2), beat, commit(3), listing, commit(4), commit(5)])
    assert [type(answer).__name__ for answer in answers] == [
        *["OffsetCommitResponse"] * 2,
        "HeartbeatResponse",
        "OffsetCommitResponse",
        "ListGroupsResponse",
        *["OffsetCommitResponse"] * 2,
    ]


def test_a_request_that_cannot_be_read_ends_the_connection_after_the_answers_before_it(node: RunningNode) -> None:
    client = node.client()
    whole = commit(3)
    broken: Any = SimpleNamespace(KEY=whole.KEY, encode=lambda version: whole.encode(version)[:-4])
    with pytest.raises(ConnectionError):
        client.ask_together([commit(1), commit(2), broken], 9)
    assert committed(node.client()) == {0: 2}


def test_one_that_ends_within_its_header_costs_its_connection_a_line_and_no_traceback(
    node: RunningNode, caplog: pytest.LogCaptureFixture
) -> None:
    beginning = struct.pack(">hhih", OFFSET_COMMIT, 9, 1, -1)[:7]
    with socket.create_connection(("127.0.0.1", node.port), 20) as client:
        client.sendall(2 * (struct.pack(">i", len(beginning)) + beginning))
        assert client.recv(1) == b""
    (line,) = [record for record in caplog.records if "closing the connection" in record.getMessage()]
    assert line.getMessage().endswith("a request of 7 bytes ends within its header")
    assert line.exc_info is None


def test_lingering_commits_are_answered_when_they_are_written(tmp_path: Path) -> None:
    with running(tmp_path, group_coordinator_append_linger_ms=20, **SETTINGS) as node:
        client, other = node.client(), node.client()
        prepare(client)
        answers = client.ask_together([commit(number) for number in range(5)], 9)
        assert [codes(answer) for answer in answers] == [[ErrorCode.NONE]] * 5
        assert committed(other) == {0: 4}
