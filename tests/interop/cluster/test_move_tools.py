"""kafka-leader-election and kafka-reassign-partitions against three brokers and controllers: the same words, the same result as
with Apache Kafka's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from interop.apache_kafka import TOPIC_COMMAND
from interop.cluster.pair import LEADER_ELECTION, REASSIGN, Pair, Said, Side
from interop.tools.both import CONFIG_COMMAND

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pybroker.protocol.messages.partitions import AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic


def make(clusters: Pair, topic: str, assignment: str = "1:2:3,2:3:1,3:1:2", *configs: str) -> None:
    more = [word for config in configs for word in ("--config", config)]
    clusters.same(TOPIC_COMMAND, "--create", "--topic", topic, "--replica-assignment", assignment, *more)
    count = len(assignment.split(","))
    clusters.wait(lambda side: len(side.rows(topic)) == count, f"{topic} is not seen")


def leaders(side: Side, topic: str) -> list[int]:
    return [leader for leader, _, _ in side.rows(topic).values()]


def isrs(side: Side, topic: str) -> list[list[int]]:
    return [isr for _, _, isr in side.rows(topic).values()]


class Absent:
    """One broker is down at both, and comes back."""

    def __init__(self, clusters: Pair, broker_id: int) -> None:
        self._clusters = clusters
        self._id = broker_id

    def __enter__(self) -> None:
        for side in self._clusters.sides:
            side.nodes[self._id].stop(clean=False)
            left = [node_id for node_id in (1, 2, 3) if node_id != self._id]
            side.nodes.wait_for_brokers(*left)

    def __exit__(self, *_: object) -> None:
        for side in self._clusters.sides:
            side.nodes[self._id].start()
            side.nodes.wait_for_brokers(1, 2, 3)


class TestLeaderElection:
    def elect(self, clusters: Pair, *args: str, exit_code: int = 0) -> Said:
        return clusters.same(LEADER_ELECTION, *args, exit_code=exit_code)

    def test_the_preferred_replica_leads_again(self, clusters: Pair, tmp_path: Path) -> None:
        make(clusters, "elected")
        with Absent(clusters, 3):
            clusters.wait(lambda side: leaders(side, "elected") == [1, 2, 1], "3 still leads")
            refused = clusters.run(LEADER_ELECTION, "--election-type", "preferred", "--topic", "elected", "--partition", "2")
            assert [said.exit_code for said in refused] == [1, 1]
            assert refused[0].exceptions == refused[1].exceptions
            assert "PreferredLeaderNotAvailableException" in refused[1].exceptions
        clusters.wait(lambda side: isrs(side, "elected") == [[1, 2, 3]] * 3, "3 is not in sync")
        one = ("--election-type", "preferred", "--topic", "elected", "--partition", "2")
        assert "Successfully completed leader election (PREFERRED)" in self.elect(clusters, *one).stdout
        clusters.wait(lambda side: leaders(side, "elected") == [1, 2, 3], "3 does not lead")
        assert "Valid replica already elected" in self.elect(clusters, *one).stdout

    def test_all_topics_and_those_of_a_file(self, clusters: Pair, tmp_path: Path) -> None:
        for topic in ("all-elected", "file-elected"):
            make(clusters, topic, "3:1:2")
        with Absent(clusters, 3):
            for topic in ("all-elected", "file-elected"):
                clusters.wait(lambda side: leaders(side, topic) == [1], "3 still leads")  # noqa: B023
        for topic in ("all-elected", "file-elected"):
            clusters.wait(lambda side: isrs(side, topic) == [[1, 2, 3]], "3 is not in sync")  # noqa: B023
        file = tmp_path / "elections.json"
        file.write_text(json.dumps({"partitions": [{"topic": "file-elected", "partition": 0}]}))
        self.elect(clusters, "--election-type", "preferred", "--path-to-json-file", str(file))
        clusters.wait(lambda side: leaders(side, "file-elected") == [3], "3 does not lead")
        for said in clusters.run(LEADER_ELECTION, "--election-type", "preferred", "--all-topic-partitions"):
            assert said.exit_code == 0, said
            assert "all-elected-0" in said.stdout
        clusters.wait(lambda side: leaders(side, "all-elected") == [3], "3 does not lead")

    def test_unclean_from_a_replica_that_is_behind(self, clusters: Pair) -> None:
        """Replica 3 is the last in sync and dies; replica 1 comes back without what was written meanwhile."""
        make(clusters, "unclean", "1:3")
        one = ("--election-type", "unclean", "--topic", "unclean", "--partition", "0")
        assert "Valid replica already elected" in self.elect(clusters, *one).stdout
        with Absent(clusters, 1):
            clusters.wait(lambda side: isrs(side, "unclean") == [[3]], "1 is still in sync")
            for side in clusters.sides:
                side.nodes[3].stop(clean=False)
                # Two of three are down: there is no majority of controllers before one comes back.
                side.nodes[1].start()
                side.nodes.wait_for_brokers(1, 2)
            clusters.wait(lambda side: leaders(side, "unclean") == [-1], "it has a leader")
            shown = clusters.same(TOPIC_COMMAND, "--describe", "--topic", "unclean", "--unavailable-partitions").stdout
            assert "Leader: none" in shown
            assert "Successfully completed leader election (UNCLEAN)" in self.elect(clusters, *one).stdout
            clusters.wait(lambda side: leaders(side, "unclean") == [1], "1 does not lead")
            for side in clusters.sides:
                side.nodes[3].start()
                side.nodes[1].stop(clean=False)
        clusters.wait(lambda side: isrs(side, "unclean") == [[1, 3]], "3 is not in sync")

    def test_refused(self, clusters: Pair) -> None:
        refused = clusters.run(LEADER_ELECTION, "--election-type", "preferred", "--topic", "nobody", "--partition", "0")
        assert [said.exit_code for said in refused] == [1, 1]
        assert refused[0].exceptions == refused[1].exceptions


class TestReassignment:
    def plan(self, folder: Path, rows: Mapping[tuple[str, int], list[int]]) -> str:
        file = folder / "plan.json"
        partitions = [{"topic": topic, "partition": number, "replicas": ids} for (topic, number), ids in rows.items()]
        file.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return str(file)

    def test_a_plan_is_made(self, clusters: Pair, tmp_path: Path) -> None:
        make(clusters, "planned", "1:2")
        file = tmp_path / "topics.json"
        file.write_text(json.dumps({"topics": [{"topic": "planned"}], "version": 1}))
        for said in clusters.run(REASSIGN, "--generate", "--topics-to-move-json-file", str(file), "--broker-list", "2,3"):
            assert said.exit_code == 0, said
            now, proposed = (json.loads(line)["partitions"] for line in said.stdout.splitlines() if line.startswith("{"))
            assert [row["replicas"] for row in now] == [[1, 2]]
            assert [sorted(row["replicas"]) for row in proposed] == [[2, 3]]

    def test_replicas_move_and_throttles_go_with_the_verification(self, clusters: Pair, tmp_path: Path) -> None:
        make(clusters, "moved", "1:2,2:3")
        plan = self.plan(tmp_path, {("moved", 0): [3, 1], ("moved", 1): [1]})
        started = clusters.same(
            REASSIGN, "--execute", "--reassignment-json-file", plan, "--throttle", "50000000", seen=lambda said: said.exit_code
        )
        assert "Successfully started partition reassignments for moved-0,moved-1" in started.stdout
        for broker_id in "123":
            throttled = clusters.same(CONFIG_COMMAND, "--entity-type", "brokers", "--entity-name", broker_id, "--describe")
            for side in ("leader", "follower"):
                assert f"{side}.replication.throttled.rate=50000000 sensitive=false" in throttled.stdout
        want = {0: (1, [3, 1], [1, 3]), 1: (1, [1], [1])}
        clusters.wait(lambda side: side.rows("moved") == want, "not moved")
        verified = clusters.same(REASSIGN, "--verify", "--reassignment-json-file", plan)
        assert "Reassignment of partition moved-1 is completed." in verified.stdout
        assert "Clearing topic-level throttles on topic moved" in verified.stdout
        for broker_id in "123":
            described = clusters.same(CONFIG_COMMAND, "--entity-type", "brokers", "--entity-name", broker_id, "--describe")
            assert "throttled" not in described.stdout
        assert "throttled" not in clusters.same(TOPIC_COMMAND, "--describe", "--topic", "moved").stdout

    def test_one_under_way_is_listed_and_cancelled(self, clusters: Pair, tmp_path: Path) -> None:
        """To a broker that is down, which the tool itself would not begin: it would never end."""
        make(clusters, "cancelled", "1:2")
        with Absent(clusters, 3):
            row = ReassignableTopic(name="cancelled", partitions=[ReassignablePartition(partition_index=0, replicas=[1, 3])])
            for side in clusters.sides:
                begun = side.nodes[1].ask(AlterPartitionReassignmentsRequest(topics=[row], timeout_ms=30_000))
                assert begun.responses[0].partitions[0].error_code == ErrorCode.NONE, begun
            assert "cancelled-0: replicas: 1,3,2. adding: 3. removing: 2." in clusters.same(REASSIGN, "--list").stdout
            shown = clusters.same(TOPIC_COMMAND, "--describe", "--topic", "cancelled").stdout
            assert "Adding Replicas: 3" in shown
            plan = self.plan(tmp_path, {("cancelled", 0): [1, 3]})
            cancelled = clusters.same(REASSIGN, "--cancel", "--reassignment-json-file", plan, "--preserve-throttles")
            assert "Successfully cancelled partition reassignment for: cancelled-0" in cancelled.stdout
            clusters.wait(lambda side: side.rows("cancelled") == {0: (1, [1, 2], [1, 2])}, "not cancelled")
            assert "No partition reassignments found." in clusters.same(REASSIGN, "--list").stdout

    @pytest.mark.parametrize(
        "rows", [{("nobody", 0): [1]}, {("refused", 7): [1]}, {("refused", 0): [1, 9]}, {("refused", 0): [1, 1]}], ids=str
    )
    def test_refused(self, clusters: Pair, tmp_path: Path, rows: Mapping[tuple[str, int], list[int]]) -> None:
        clusters.run(TOPIC_COMMAND, "--create", "--if-not-exists", "--topic", "refused", "--replica-assignment", "1:2")
        clusters.wait(lambda side: len(side.rows("refused")) == 1, "refused is not seen")
        refused = clusters.run(REASSIGN, "--execute", "--reassignment-json-file", self.plan(tmp_path, rows))
        assert [said.exit_code for said in refused] == [1, 1]
        assert refused[0].exceptions == refused[1].exceptions

    def test_metadata_of_a_topic_under_way_is_the_same_at_all_brokers(self, clusters: Pair, tmp_path: Path) -> None:
        make(clusters, "everywhere", "1:2:3")
        plan = self.plan(tmp_path, {("everywhere", 0): [3, 2, 1]})
        clusters.same(REASSIGN, "--execute", "--reassignment-json-file", plan)
        request = MetadataRequest(topics=[MetadataRequestTopic(name="everywhere")])

        def seen(side: Side) -> list[list[int]]:
            return [one.ask(request).topics[0].partitions[0].replica_nodes for one in side.nodes.brokers.values()]

        clusters.wait(lambda side: seen(side) == [[3, 2, 1]] * 3, "not the same everywhere")
