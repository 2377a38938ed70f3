"""Groups of a whole node: the topic of their records is made on first use, and everything is there again after a restart."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from support.node_client import NodeClient
from support.nodes import RunningNode, running
from support.waiting import wait_until

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages import group_offsets, groups

SETTINGS = {
    "offsets_topic_num_partitions": 3,
    "offsets_topic_replication_factor": 1,
    "group_initial_rebalance_delay_ms": 0,
}


def find(client: NodeClient, key: str = "g", kind: int = 0) -> Any:
    return client.ask(groups.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])).coordinators[0]


def wait_for_coordinator(client: NodeClient) -> None:
    def answers() -> bool:
        if find(client).error_code != ErrorCode.NONE:
            return False
        (described,) = client.ask(groups.DescribeGroupsRequest(groups=["g"])).groups
        return described.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)

    wait_until(answers, 20, lambda: "there is no group coordinator")


def join(client: NodeClient, member_id: str = "", *, group: str = "g", version: int = 9, session_ms: int = 10_000) -> Any:
    protocols = [groups.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\xff\xff\xff\xff")]
    return client.ask(
        groups.JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=10_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=protocols,
        ),
        version,
    )


def stable_member(client: NodeClient, group: str = "g") -> str:
    member_id: str = join(client, group=group).member_id
    joined = join(client, member_id, group=group)
    assert joined.error_code == ErrorCode.NONE
    assignment = groups.SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")
    synced = client.ask(
        groups.SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[assignment],
        )
    )
    assert synced.assignment == b"mine"
    return member_id


def heartbeat(client: NodeClient, member_id: str, group: str = "g") -> ErrorCode:
    request = groups.HeartbeatRequest(group_id=group, generation_id=1, member_id=member_id)
    return ErrorCode(client.ask(request).error_code)


def commit(client: NodeClient, offset: int, *, group: str = "g", topic: str = "t", version: int = 9) -> ErrorCode:
    row = group_offsets.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    request = group_offsets.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[group_offsets.OffsetCommitRequestTopic(name=topic, partitions=[row])],
    )
    return ErrorCode(client.ask(request, version).topics[0].partitions[0].error_code)


def committed(client: NodeClient, group: str = "g", topic: str = "t") -> int:
    wanted = group_offsets.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
    request = group_offsets.OffsetFetchRequest(groups=[group_offsets.OffsetFetchRequestGroup(group_id=group, topics=[wanted])])
    return int(client.ask(request, 9).groups[0].topics[0].partitions[0].committed_offset)


def test_the_topic_of_the_groups_is_made_when_somebody_asks_for_a_coordinator(tmp_path: Path) -> None:
    with running(tmp_path, **SETTINGS) as node:
        client = node.client()
        assert find(client).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        wait_for_coordinator(client)
        found = find(client)
        assert (found.node_id, found.port) == (1, node.port)
        topic = client.topic("__consumer_offsets")
        assert (topic.is_internal, len(topic.partitions)) == (True, 3)


def test_there_are_no_coordinators_of_other_kinds_yet(tmp_path: Path) -> None:
    with running(tmp_path, **SETTINGS) as node:
        client = node.client()
        assert find(client, "tx", 1).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert find(client, "g:AAAAAAAAAAAAAAAAAAAAAA:0", 2).error_code == ErrorCode.INVALID_REQUEST, "not one to try again for"
        assert find(client, "g", 3).error_code == ErrorCode.INVALID_REQUEST


def test_before_the_topic_is_there_this_broker_coordinates_nothing(tmp_path: Path) -> None:
    with running(tmp_path, **SETTINGS) as node:
        client = node.client()
        client.create_topic("t")
        assert join(client).error_code == ErrorCode.NOT_COORDINATOR
        assert commit(client, 5) is ErrorCode.NOT_COORDINATOR
        assert client.ask(groups.ListGroupsRequest()).groups == []


def test_members_and_offsets_are_there_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path, **SETTINGS) as node:
        client = node.client()
        client.create_topic("t")
        wait_for_coordinator(client)
        members = {group: stable_member(client, group) for group in ("a", "b", "c")}
        for offset, group in enumerate("defghijk"):
            assert commit(client, offset, group=group) is ErrorCode.NONE
    with running(tmp_path, **SETTINGS) as node:
        client = node.client()
        wait_for_coordinator(client)
        for group, member_id in members.items():
            assert heartbeat(client, member_id, group) is ErrorCode.NONE
        assert [committed(client, group) for group in "defghijk"] == list(range(8))
        listed = {row.group_id for row in client.ask(groups.ListGroupsRequest()).groups}
        assert listed == {*"abcdefghijk"}


def test_a_topic_takes_its_offsets_with_it(tmp_path: Path) -> None:
    with running(tmp_path, **SETTINGS) as node:
        client = node.client()
        for topic in ("t", "kept"):
            client.create_topic(topic)
        wait_for_coordinator(client)
        for topic in ("t", "kept"):
            commit(client, 5, topic=topic)
        client.delete_topic("t")
        wait_until(lambda: committed(client) == -1, 10, lambda: "the offset of a topic that is gone is still there")
        assert committed(client, topic="kept") == 5
        assert commit(client, 6) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_session_expires_by_the_nodes_own_clock(tmp_path: Path) -> None:
    with running(tmp_path, group_min_session_timeout_ms=100, **SETTINGS) as node:
        client = node.client()
        wait_for_coordinator(client)
        member_id = join(client, session_ms=200).member_id
        assert join(client, member_id, session_ms=200).error_code == ErrorCode.NONE

        def is_gone() -> bool:
            (described,) = client.ask(groups.DescribeGroupsRequest(groups=["g"])).groups
            return described.group_state == "Empty"

        wait_until(is_gone, 10, lambda: "the session has not expired")
        assert heartbeat(client, member_id) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_node_stops_though_members_wait_for_each_other(tmp_path: Path) -> None:
    with running(tmp_path, **SETTINGS) as node:
        first = node.client()
        wait_for_coordinator(first)
        stable_member(first)
        outcome: list[object] = []
        waiting = threading.Thread(target=_join_or_fail, args=(node, outcome), daemon=True)
        waiting.start()
        wait_until(lambda: _state(first) == "PreparingRebalance", 10, lambda: "nobody waits")
        begin = time.monotonic()
    assert time.monotonic() - begin < 10
    waiting.join(10)
    assert len(outcome) == 1


def _state(client: NodeClient) -> str:
    return str(client.ask(groups.DescribeGroupsRequest(groups=["g"])).groups[0].group_state)


def _join_or_fail(node: RunningNode, outcome: list[object]) -> None:
    client = node.client()
    try:
        outcome.append(join(client, join(client).member_id))
    except OSError as error:
        outcome.append(error)


@pytest.mark.parametrize("version", range(10))
def test_a_member_joins_in_every_version(tmp_path: Path, version: int) -> None:
    with running(tmp_path, **SETTINGS) as node:
        client = node.client()
        wait_for_coordinator(client)
        joined = join(client, version=version)
        if version >= 4:
            assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
            joined = join(client, joined.member_id, version=version)
        assert (joined.error_code, joined.generation_id, joined.protocol_name) == (ErrorCode.NONE, 1, "range")
        assert joined.leader == joined.member_id
