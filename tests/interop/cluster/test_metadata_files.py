"""What three of our controllers have on disk after leaders died under a stream of changes, as kafka-dump-log and
kafka-metadata-shell read it: logs that agree, and snapshots with all that was answered."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from interop.apache_kafka import METADATA_SHELL, ApacheTools, apache_tool
from interop.cluster.mixed import BROKER, CONTROLLER, OURS, WAIT_S, Nodes, mixed
from interop.metadata.metadata_dump import DumpedRecord, dump_metadata
from support.waiting import wait_until

from pybroker.base.ids import ZERO_UUID
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

ROUNDS = 4
TOPICS = 8
PROPERTIES = {
    # Small enough that snapshots are made and the log is cut all the time.
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "metadata.max.retention.bytes": "20000",
    "internal.metadata.log.segment.bytes": "8000",
}


class Life:
    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.alive: set[str] = set()
        self.epochs: list[int] = []

    def create(self, name: str) -> None:
        topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])

        def is_made() -> bool:
            (answer,) = self.nodes[11].ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics
            return answer.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

        wait_until(is_made, WAIT_S, self.nodes.last_words)
        self.alive.add(name)

    def delete(self, name: str) -> None:
        def is_gone() -> bool:
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)], timeout_ms=10_000)
            (answer,) = self.nodes[11].ask(request).responses
            return answer.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

        wait_until(is_gone, WAIT_S, self.nodes.last_words)
        self.alive.discard(name)


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    """Leaders, each killed in its turn; then everybody is stopped."""
    kinds = {**dict.fromkeys((1, 2, 3), (OURS, CONTROLLER)), 11: (OURS, BROKER)}
    with mixed(tmp_path_factory.mktemp("files"), kinds, PROPERTIES) as nodes:
        nodes.start()
        life = Life(nodes)
        for number in range(ROUNDS):
            for topic in range(TOPICS):
                life.create(f"topic-{number}-{topic}")
            life.delete(f"topic-{number}-0")
            leader, epoch = nodes.leader()
            life.epochs.append(epoch)
            nodes[leader].stop(clean=False)
            life.create(f"between-{number}")
            nodes.leader(newer_than=epoch)
            nodes[leader].start()
        # How soon a node cuts its log depends on what it missed while it was dead.
        extra = count()
        while not all(is_cut(life, node_id) for node_id in (1, 2, 3)):
            life.create(f"extra-{next(extra)}")
        # One more, whose beginning is still in the log at the end.
        leader, epoch = nodes.leader()
        life.epochs.append(epoch)
        nodes[leader].stop(clean=False)
        life.epochs.append(nodes.leader(newer_than=epoch)[1])
        nodes[leader].start()
        wait_until(lambda: level(nodes), WAIT_S, nodes.last_words)
        # The broker last: what its leaving changes would drive the beginning out of the log again.
        for node_id in (1, 2, 3):
            nodes[node_id].stop()
        nodes[11].stop(clean=False)
        yield life


def level(nodes: Nodes) -> bool:
    row = nodes.quorum_seen_by(nodes.leader()[0])
    ends = [] if row is None else [one.log_end_offset for one in row.current_voters]
    return bool(ends) and max(ends) - min(ends) <= 1


def folder(life: Life, node_id: int) -> Path:
    return life.nodes[node_id].data_dir / "__cluster_metadata-0"


def snapshots(life: Life, node_id: int) -> list[Path]:
    return sorted(folder(life, node_id).glob("*-*.checkpoint"))


def is_cut(life: Life, node_id: int) -> bool:
    return not (folder(life, node_id) / f"{0:020}.log").exists()


def records_of(tools: ApacheTools, life: Life, node_id: int) -> dict[int, DumpedRecord]:
    logs = sorted(folder(life, node_id).glob("*.log"))
    return {one.offset: one for path in logs for one in dump_metadata(tools, path)}


def test_the_logs_of_the_three_agree(life: Life, tools: ApacheTools) -> None:
    assert life.epochs == sorted(set(life.epochs))
    first, *others = (records_of(tools, life, node_id) for node_id in (1, 2, 3))
    for other in others:
        # How much there is behind the snapshots of both depends on when each was made.
        common = first.keys() & other.keys()
        assert common
        assert {offset: first[offset] for offset in common} == {offset: other[offset] for offset in common}


def test_every_leader_began_with_a_record_of_its_own(life: Life, tools: ApacheTools) -> None:
    records = records_of(tools, life, 1)
    changes = [one for _, one in sorted(records.items()) if one.type == "LeaderChange"]
    assert changes
    for one in changes:
        assert {voter["voterId"] for voter in one.data["voters"]} == {1, 2, 3}
        granted = {voter["voterId"] for voter in one.data["grantingVoters"]}
        assert one.data["leaderId"] in granted
        assert len(granted) >= 2


@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_a_snapshot_and_the_log_behind_it_have_all_that_was_answered(life: Life, tools: ApacheTools, node_id: int) -> None:
    paths = snapshots(life, node_id)
    assert paths, sorted(folder(life, node_id).iterdir())
    assert is_cut(life, node_id)
    newest = dump_metadata(tools, paths[-1])
    assert (newest[0].type, newest[-1].type) == ("SnapshotHeader", "SnapshotFooter")
    end_offset = int(paths[-1].name.partition("-")[0])
    later = [one for offset, one in sorted(records_of(tools, life, node_id).items()) if offset >= end_offset]
    topics: dict[str, str] = {}
    for one in (*newest, *later):
        if one.type == "TOPIC_RECORD":
            topics[one.data["topicId"]] = one.data["name"]
        elif one.type == "REMOVE_TOPIC_RECORD":
            del topics[one.data["topicId"]]
    assert set(topics.values()) == life.alive


@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_the_shell_walks_through_a_snapshot(life: Life, node_id: int) -> None:
    path = snapshots(life, node_id)[-1]
    first = f"topic-0-{TOPICS - 1}"
    names = set(shell(path, "ls", "/image/topics/byName", until=first).split())
    assert names <= life.alive | {f"topic-{number}-0" for number in range(ROUNDS)}
    assert {name for name in life.alive if name.startswith("topic-0-")} <= names
    assert "11" in shell(path, "ls", "/image/cluster/brokers", until="11").split()
    assert set(shell(path, "ls", "/image/cluster/controllers", until="3").split()) == {"1", "2", "3"}


def shell(path: Path, *command: str, until: str) -> str:
    """kafka-metadata-shell loads the snapshot while it answers: it is asked until it has read so far."""
    said = [""]

    def has_said() -> bool:
        said.append(apache_tool(METADATA_SHELL, "--snapshot", str(path), *command).stdout)
        return until in said[-1].split()

    wait_until(has_said, WAIT_S, lambda: f"kafka-metadata-shell says {said[-1]}")
    return said[-1]
