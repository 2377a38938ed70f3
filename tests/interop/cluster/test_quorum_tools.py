"""kafka-metadata-quorum against three of our controllers: what it says of Apache Kafka's it says of them; and voters that come
and go, of both makes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from interop.apache_kafka import ApacheTools
from interop.cluster.mixed import APACHE, BROKER, CONTROLLER, OURS, Make, Nodes, mixed
from interop.cluster.pair import METADATA_QUORUM, Pair, Said, Side
from support.waiting import wait_until

from pybroker.base.ids import ZERO_UUID, uuid_to_text
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.raft import ReplicaState

SERVERS = ("--bootstrap-server", "--bootstrap-controller")
# A follower asks every half second when there is nothing new; a busy machine may take its time over it.
FRESH_MS = 15_000


def status(said: Said) -> dict[str, str]:
    rows = (line.partition(":") for line in said.stdout.splitlines() if line)
    return {key: value.strip() for key, _, value in rows}


def table(said: Said) -> list[dict[str, str]]:
    head, *lines = (line.split() for line in said.stdout.splitlines() if line)
    if "ago" in said.stdout:
        lines = [re.sub(r"(\d+) ms ago", r"\1", " ".join(line)).split() for line in lines]
    return [dict(zip(head, line, strict=True)) for line in lines]


@pytest.mark.parametrize("server", SERVERS)
def test_the_status_has_the_same_rows(clusters: Pair, server: str) -> None:
    apache, ours = (status(said) for said in clusters.run(METADATA_QUORUM, "describe", "--status", server=server))
    assert list(ours) == list(apache)
    assert {key: ours[key] for key in ("ClusterId", "CurrentVoters", "CurrentObservers")} == {
        key: apache[key] for key in ("ClusterId", "CurrentVoters", "CurrentObservers")
    }
    assert ours["LeaderId"] == str(clusters.ours.nodes.leader()[0])
    assert 0 <= int(ours["MaxFollowerLag"]) <= 2
    assert 0 <= int(ours["MaxFollowerLagTimeMs"]) < FRESH_MS


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("more", [(), ("--human-readable",)], ids=["plain", "human-readable"])
def test_how_far_each_replica_is(clusters: Pair, server: str, more: tuple[str, ...]) -> None:
    apache, ours = clusters.run(METADATA_QUORUM, "describe", "--replication", *more, server=server)
    now_ms = int(time.time() * 1000)
    assert ours.stdout.splitlines()[0] == apache.stdout.splitlines()[0]
    for said in (apache, ours):
        rows = table(said)
        assert {row["NodeId"]: row["DirectoryId"] for row in rows} == dict.fromkeys("123", uuid_to_text(ZERO_UUID))
        assert [row["Status"] for row in rows] == ["Leader", "Follower", "Follower"]
        for row in rows:
            assert 0 <= int(row["Lag"]) <= 2
            for column in ("LastFetchTimestamp", "LastCaughtUpTimestamp"):
                age_ms = int(row[column]) if more else now_ms - int(row[column])
                assert -100 <= age_ms < FRESH_MS, said.stdout


def test_a_follower_that_is_gone_falls_behind(clusters: Pair) -> None:
    """Its last fetch stays where it was, and so does what it had caught up with; the others go on."""

    for side in clusters.sides:
        leader = side.nodes.leader()[0]
        gone, other = (one for one in (1, 2, 3) if one != leader)
        before = _progress(side, leader)
        side.nodes[gone].stop(clean=False)
        try:
            _falls_behind(side, leader, gone, other, before)
        finally:
            side.nodes[gone].start()
            side.nodes.wait_for_brokers(1, 2, 3)


def _progress(side: Side, leader: int) -> dict[int, ReplicaState]:
    def seen() -> Any:
        row = side.nodes.quorum_seen_by(leader)
        return row if row is not None and row.error_code == ErrorCode.NONE else None

    row = wait_until(seen, 30, side.nodes.last_words)
    return {one.replica_id: one for one in row.current_voters}


def _falls_behind(side: Side, leader: int, gone: int, other: int, before: dict[int, ReplicaState]) -> None:
    def wait_for_more_than(offset: int) -> dict[int, ReplicaState]:
        def is_there() -> dict[int, ReplicaState] | None:
            rows = _progress(side, leader)
            return rows if min(rows[leader].log_end_offset, rows[other].log_end_offset) > offset else None

        return wait_until(is_there, 60, lambda: f"{_progress(side, leader)}\n{side.nodes.last_words()}")

    # A fetch may have been on its way, or have waited at the leader, when its sender died. Apache Kafka notes a fetch when it
    # comes and when it is answered: with the next record at the latest, and there are several by now.
    first = wait_for_more_than(_progress(side, leader)[gone].log_end_offset + 3)
    assert first[gone].last_fetch_timestamp >= before[gone].last_fetch_timestamp, (before, first)
    assert first[gone].last_caught_up_timestamp <= first[gone].last_fetch_timestamp, first
    later = wait_for_more_than(first[leader].log_end_offset + 2)
    assert later[gone] == first[gone]
    for alive in (leader, other):
        assert later[alive].last_fetch_timestamp > first[alive].last_fetch_timestamp, (first, later)
        assert later[alive].last_caught_up_timestamp > first[alive].last_caught_up_timestamp, (first, later)
        assert later[alive].last_fetch_timestamp > later[gone].last_fetch_timestamp, later
    said = status(side.run(METADATA_QUORUM, "describe", "--status"))
    assert int(said["MaxFollowerLag"]) >= 3, said
    assert int(said["MaxFollowerLagTimeMs"]) > 0, said


@pytest.mark.parametrize(
    "args",
    [
        ("remove-controller", "--controller-id", "3", "--controller-directory-id", "AAAAAAAAAAAAAAAAAAAAAw"),
        ("remove-controller", "--controller-id", "9", "--controller-directory-id", "AAAAAAAAAAAAAAAAAAAAAw"),
    ],
    ids=lambda args: args[2],
)
def test_fixed_voters_stay(clusters: Pair, args: tuple[str, ...]) -> None:
    apache, ours = clusters.run(METADATA_QUORUM, *args)
    assert ours.exit_code == apache.exit_code == 1
    assert set(ours.exceptions) == set(apache.exceptions)


class Growing:
    """A quorum that begins with one voter, and the tool that changes it."""

    def __init__(self, nodes: Nodes, tools: ApacheTools) -> None:
        self.nodes = nodes
        self._tools = tools

    def run(self, *args: str) -> Said:
        run = self._tools.run(METADATA_QUORUM, "--bootstrap-controller", self.nodes.controller_servers, *args)
        return Said(*run)

    def add(self, node_id: int) -> Said:
        """As an operator does it: with the properties of the new controller, which runs already."""
        return self.run("--command-config", str(self.nodes[node_id].directory / "server.properties"), "add-controller")

    def remove(self, node_id: int) -> Said:
        directory_id = self.voters()[node_id]
        return self.run("remove-controller", "--controller-id", str(node_id), "--controller-directory-id", directory_id)

    def voters(self) -> dict[int, str]:
        row = self.nodes.quorum_seen_by(self.nodes.leader()[0])
        return {one.replica_id: uuid_to_text(one.replica_directory_id) for one in row.current_voters}

    def wait_for_voters(self, *ids: int) -> None:
        wait_until(lambda: set(self.voters()) == set(ids), 30, lambda: f"{self.voters()}\n{self.nodes.last_words()}")

    def wait_for_observers(self, *ids: int) -> None:
        def caught_up() -> set[int]:
            row = self.nodes.quorum_seen_by(self.nodes.leader()[0])
            return {one.replica_id for one in row.observers if one.log_end_offset >= row.high_watermark - 2}

        wait_until(lambda: set(ids) <= caught_up(), 30, lambda: f"{caught_up()}\n{self.nodes.last_words()}")


@pytest.fixture(
    params=[(OURS, OURS, OURS), (OURS, APACHE, OURS), (APACHE, OURS, OURS)],
    ids=["ours", "ours and Apache's", "Apache's and ours"],
)
def growing(tmp_path: Path, tools: ApacheTools, request: pytest.FixtureRequest) -> Iterator[Growing]:
    makes: tuple[Make, ...] = request.param
    kinds = {number: (make, CONTROLLER) for number, make in enumerate(makes, 1)} | {11: (OURS, BROKER)}
    with mixed(tmp_path, kinds, is_dynamic=True) as nodes:
        nodes.start()
        yield Growing(nodes, tools)


def test_voters_come_and_go(growing: Growing) -> None:
    nodes = growing.nodes
    growing.wait_for_observers(2, 3, 11)
    for node_id in (2, 3):
        added = growing.add(node_id)
        assert added.exit_code == 0, added
        assert f"Added controller {node_id} with directory id" in added.stdout
    growing.wait_for_voters(1, 2, 3)
    assert "DuplicateVoterException" in growing.add(3).exceptions
    # The first one goes, though it leads; the two that came later carry on.
    assert nodes.leader()[0] == 1
    removed = growing.remove(1)
    assert removed.exit_code == 0, removed
    growing.wait_for_voters(2, 3)
    assert nodes.leader()[0] in (2, 3)
    nodes[11].create_topic("made-by-the-others")
    nodes[1].stop(clean=False)
    nodes[11].create_topic("and-without-the-first")
    _, epoch = nodes.leader()
    for node_id in (2, 3):
        nodes[node_id].restart(clean=False)
    assert nodes.leader(newer_than=epoch)[0] in (2, 3)
    nodes[11].create_topic("and-after-all")
    assert {"made-by-the-others", "and-without-the-first", "and-after-all"} <= nodes.topics_at(11)
    only = growing.remove(2)
    assert only.exit_code == 0, only
    growing.wait_for_voters(3)
    assert "VoterNotFoundException" in growing.remove(3).exceptions
