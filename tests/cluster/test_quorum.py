"""Three controllers as processes of their own: what they answered is not lost, whoever dies."""

from __future__ import annotations

import shutil
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.processes import BROKER, COMBINED, CONTROLLER, Cluster, Member, cluster
from support.node_client import NodeClient
from support.waiting import wait_until

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.metadata import MetadataRequest
from pybroker.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

WAIT_S = 30.0


def leaders_of(client: NodeClient, topic: str) -> set[int]:
    return {row.leader_id for row in client.topic(topic).partitions}


def topics_at(member: Member) -> set[str]:
    with member.client() as client:
        return {topic.name for topic in client.ask(MetadataRequest(topics=None)).topics}


def test_three_combined_nodes_form_a_quorum_and_a_topic_made_at_one_is_seen_at_all(tmp_path: Path) -> None:
    with cluster(tmp_path, dict.fromkeys((1, 2, 3), COMBINED)) as nodes:
        nodes.start()
        with nodes[1].client() as client:
            client.create_topic("t", 3)
        for node in nodes.brokers:
            wait_until(lambda: "t" in topics_at(node), WAIT_S, lambda: f"not at node {node.id}")  # noqa: B023
        assert all(node.stop() == 0 for node in nodes.running)


def test_brokers_join_controllers_of_their_own(tmp_path: Path) -> None:
    roles = {1: CONTROLLER, 2: CONTROLLER, 3: CONTROLLER, 11: BROKER, 12: BROKER}
    with cluster(tmp_path, roles) as nodes:
        nodes.start()
        with nodes[11].client() as client:
            client.create_topic("t", 4)
            wait_until(lambda: leaders_of(client, "t") == {11, 12}, WAIT_S, lambda: f"{leaders_of(client, 't')}")


class Creations:
    """A stream of topics made at the brokers in turn: what was answered, and what may or may not be there."""

    def __init__(self, nodes: Cluster) -> None:
        self._nodes = nodes
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.answered: list[str] = []

    @contextmanager
    def running(self) -> Iterator[Creations]:
        self._thread.start()
        try:
            yield self
        finally:
            self._is_over.set()
            self._thread.join()

    def _run(self) -> None:
        number = 0
        clients: dict[int, NodeClient] = {}
        while not self._is_over.is_set():
            number += 1
            name = f"topic-{number}"
            member = self._nodes.brokers[number % len(self._nodes.brokers)]
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            try:
                client = clients.get(member.id) or clients.setdefault(member.id, member.client())
                answer = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000)).topics[0]
            except OSError:
                clients.pop(member.id, None)
                continue
            if answer.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self.answered.append(name)
        for client in clients.values():
            client.close()


def test_the_leader_is_killed_again_and_again_under_a_stream_of_topics_and_none_that_was_answered_is_lost(
    tmp_path: Path,
) -> None:
    roles = {1: CONTROLLER, 2: CONTROLLER, 3: CONTROLLER, 11: BROKER}
    took_ms: list[float] = []
    with cluster(tmp_path, roles) as nodes:
        nodes.start()
        with Creations(nodes).running() as creations:
            for _ in range(20):
                count = len(creations.answered)
                wait_until(lambda: len(creations.answered) > count, WAIT_S, lambda: "no topic is made")  # noqa: B023
                leader, epoch = nodes.leader(), nodes.epoch()
                began = time.monotonic()
                leader.kill()
                nodes.leader(newer_than=epoch)
                took_ms.append((time.monotonic() - began) * 1000)
                leader.start()
                leader.wait_ready()
            count = len(creations.answered)
            wait_until(lambda: len(creations.answered) > count, WAIT_S, lambda: "no topic is made any more")
        answered = set(creations.answered)
        wait_until(lambda: answered <= topics_at(nodes[11]), WAIT_S, lambda: f"lost: {answered - topics_at(nodes[11])}")
        assert len(creations.answered) > 20
    took_ms.sort()
    print(f"a new leader after {statistics.median(took_ms):.0f} ms in the median, {took_ms[-1]:.0f} ms at most")
    assert statistics.median(took_ms) <= 1000, took_ms


def test_a_leader_that_was_stopped_and_goes_on_finds_itself_deposed(tmp_path: Path) -> None:
    properties = {"controller.quorum.fetch.timeout.ms": "1000", "controller.quorum.election.timeout.ms": "500"}
    with cluster(tmp_path, {1: CONTROLLER, 2: CONTROLLER, 3: CONTROLLER, 11: BROKER}, properties) as nodes:
        nodes.start()
        leader, epoch = nodes.leader(), nodes.epoch()
        leader.pause()
        following = nodes.leader(other_than=leader.id, newer_than=epoch)
        with nodes[11].client() as client:
            client.create_topic("t")
        leader.resume()

        def follows() -> bool:
            row = nodes.describe(leader)
            return row is not None and row.error_code != ErrorCode.NONE and row.leader_id == following.id

        wait_until(follows, WAIT_S, lambda: leader.said)


def test_a_controller_whose_disk_was_wiped_comes_back_by_a_snapshot(tmp_path: Path) -> None:
    properties = {
        "metadata.log.max.record.bytes.between.snapshots": "2000",
        "metadata.max.retention.bytes": "20000",
        "internal.metadata.log.segment.bytes": "10000",
    }
    with cluster(tmp_path, {1: CONTROLLER, 2: CONTROLLER, 3: CONTROLLER, 11: BROKER}, properties) as nodes:
        nodes.start()
        leader = nodes.leader()
        wiped = next(one for one in nodes.controllers if one is not leader)
        wiped.kill()
        with nodes[11].client() as client:
            for number in range(60):
                client.create_topic(f"topic-{number}", 3)
        log = leader.directory / "data" / "__cluster_metadata-0"
        wait_until(
            lambda: not (log / f"{0:020}.log").exists(), WAIT_S, lambda: f"the old log is still there: {sorted(log.iterdir())}"
        )
        shutil.rmtree(wiped.directory / "data")
        wiped.format()
        wiped.start()
        wiped.wait_ready()

        def has_caught_up() -> bool:
            row = nodes.describe(nodes.leader())
            ends = {one.replica_id: one.log_end_offset for one in row.current_voters}
            return ends[wiped.id] >= row.high_watermark - 5

        wait_until(has_caught_up, WAIT_S, lambda: wiped.said)
        assert list((wiped.directory / "data" / "__cluster_metadata-0").glob("*.checkpoint"))
        # What it holds is the truth: the other two may go.
        others = [one for one in nodes.controllers if one is not wiped]
        others[0].kill()
        with nodes[11].client() as client:
            client.create_topic("after")
        wait_until(lambda: "after" in topics_at(nodes[11]), WAIT_S, lambda: nodes[11].said)
