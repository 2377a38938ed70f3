"""kafka-topics, kafka-configs, kafka-features, kafka-cluster and kafka-broker-api-versions against three brokers that are three
controllers, too: they say what they say of Apache Kafka's."""

from __future__ import annotations

import re

import pytest
from interop.apache_kafka import TOPIC_COMMAND
from interop.broker_process import CLUSTER_ID
from interop.cluster.pair import Pair, Said
from interop.tools.both import BROKER_API_VERSIONS, CLUSTER_TOOL, CONFIG_COMMAND, FEATURE_COMMAND

from pybroker.metadata.controller.features import SUPPORTED

SERVERS = ("--bootstrap-server", "--bootstrap-controller")


class TestTopics:
    def test_replicas_are_spread_over_the_brokers(self, clusters: Pair) -> None:
        clusters.same(TOPIC_COMMAND, "--create", "--topic", "spread", "--partitions", "6", "--replication-factor", "3")
        clusters.wait(lambda side: len(side.rows("spread")) == 6, "spread is not seen")
        for side in clusters.sides:
            rows = side.rows("spread")
            assert [sorted(replicas) for _, replicas, _ in rows.values()] == [[1, 2, 3]] * 6
            assert sorted(leader for leader, _, _ in rows.values()) == [1, 1, 2, 2, 3, 3]

    def test_more_replicas_than_brokers(self, clusters: Pair) -> None:
        refused = clusters.run(TOPIC_COMMAND, "--create", "--topic", "too-many", "--replication-factor", "4")
        assert [said.exit_code for said in refused] == [1, 1]
        assert refused[0].exceptions == refused[1].exceptions

    def test_what_is_shown_while_a_broker_is_away(self, clusters: Pair) -> None:
        for topic, assignment, least in (("shown", "1:2:3,2:3:1", 3), ("shown-alone", "3", 1)):
            create = ("--create", "--topic", topic, "--replica-assignment", assignment)
            clusters.same(TOPIC_COMMAND, *create, "--config", f"min.insync.replicas={least}")
        everything = clusters.same(TOPIC_COMMAND, "--describe", "--topic", "shown.*").stdout
        assert "Leader: 3\tReplicas: 3\tIsr: 3" in everything
        try:
            for side in clusters.sides:
                side.nodes[3].stop(clean=False)
                side.nodes.wait_for_brokers(1, 2)
            clusters.wait(lambda side: side.rows("shown")[0][2] == [1, 2], "3 is still in sync")
            clusters.wait(lambda side: side.rows("shown-alone")[0][0] == -1, "it has a leader")
            clusters.same(TOPIC_COMMAND, "--describe", "--topic", "shown.*", seen=Said.lines)
            counts = {}
            for state in ("under-replicated", "unavailable", "under-min-isr", "at-min-isr"):
                args = ("--describe", "--topic", "shown.*", f"--{state}-partitions")
                said = clusters.same(TOPIC_COMMAND, *args, seen=Said.lines)
                counts[state] = len(said.lines("Partition: "))
            assert counts == {"under-replicated": 3, "unavailable": 1, "under-min-isr": 3, "at-min-isr": 0}
        finally:
            for side in clusters.sides:
                side.nodes[3].start()
                side.nodes.wait_for_brokers(1, 2, 3)
        clusters.wait(lambda side: side.rows("shown")[0][2] == [1, 2, 3], "3 is not in sync")
        assert not clusters.same(TOPIC_COMMAND, "--describe", "--topic", "shown", "--under-replicated-partitions").lines()


class TestConfigs:
    @pytest.mark.parametrize("server", SERVERS)
    @pytest.mark.parametrize("entity", [("--entity-name", "1"), ("--entity-name", "2"), ("--entity-default",)], ids=" ".join)
    def test_brokers(self, clusters: Pair, entity: tuple[str, ...], server: str) -> None:
        of = ("--entity-type", "brokers", *entity)
        clusters.same(CONFIG_COMMAND, *of, "--alter", "--add-config", "log.cleaner.threads=2", server=server)
        described = clusters.same(CONFIG_COMMAND, *of, "--describe", server=server)
        assert "log.cleaner.threads=2" in described.stdout
        clusters.same(CONFIG_COMMAND, *of, "--alter", "--delete-config", "log.cleaner.threads", server=server)
        assert "log.cleaner.threads=2" not in clusters.same(CONFIG_COMMAND, *of, "--describe", server=server).stdout

    def test_a_node_that_nobody_knows(self, clusters: Pair) -> None:
        of = ("--entity-type", "brokers", "--entity-name", "99")
        alter = (*of, "--alter", "--add-config", "log.cleaner.threads=2")
        refused = clusters.run(CONFIG_COMMAND, *alter, server="--bootstrap-controller")
        assert [said.exit_code for said in refused] == [1, 1]
        assert refused[0].exceptions == refused[1].exceptions
        assert "BrokerIdNotRegisteredException" in refused[1].exceptions

    def test_a_topic_is_changed_at_the_controllers(self, clusters: Pair) -> None:
        clusters.same(TOPIC_COMMAND, "--create", "--topic", "configured", "--replica-assignment", "1:2")
        of = ("--entity-type", "topics", "--entity-name", "configured")
        change = ("--alter", "--add-config", "retention.ms=1000")
        clusters.same(CONFIG_COMMAND, *of, *change, server="--bootstrap-controller")
        assert "retention.ms=1000" in clusters.same(CONFIG_COMMAND, *of, "--describe").stdout


def fences(said: Said) -> list[str]:
    return re.findall(r"\b\w*fenced\b", said.stdout)


def features(said: Said) -> dict[str, list[str]]:
    """By name: the least, the most, the finalized level; the epochs are those of two logs."""
    rows = re.findall(r"Feature: (\S+)\s+SupportedMinVersion: (\S+)\s+\S+ (\S+)\s+\S+ (\S+)\s+Epoch: \d+", said.stdout)
    return {name: levels for name, *levels in rows}


class TestFeatures:
    @pytest.mark.parametrize("server", SERVERS)
    def test_described(self, clusters: Pair, server: str) -> None:
        apache, ours = (features(said) for said in clusters.run(FEATURE_COMMAND, "describe", server=server))
        assert set(ours) == set(SUPPORTED)
        assert ours == {name: apache[name] for name in ours}

    @pytest.mark.parametrize(
        "change", [("downgrade", "--metadata", "4.2"), ("upgrade", "--feature", "nothing.version=1")], ids=str
    )
    def test_refused(self, clusters: Pair, change: tuple[str, ...]) -> None:
        refused = clusters.run(FEATURE_COMMAND, *change)
        assert [said.exit_code for said in refused] == [1, 1]


class TestCluster:
    @pytest.mark.parametrize("server", SERVERS)
    def test_the_cluster_id(self, clusters: Pair, server: str) -> None:
        assert CLUSTER_ID in clusters.same(CLUSTER_TOOL, "cluster-id", server=server).stdout

    @pytest.mark.parametrize("server", SERVERS)
    def test_where_the_nodes_are(self, clusters: Pair, server: str) -> None:
        def seen(said: Said) -> list[str]:
            return [re.sub(r"127\.0\.0\.1 \d+", "ADDRESS", line) for line in said.stdout.splitlines()]

        clusters.same(CLUSTER_TOOL, "list-endpoints", server=server, seen=seen)
        for side in clusters.sides:
            shown = side.run(CLUSTER_TOOL, "list-endpoints", server=server).stdout
            for one in side.nodes.by_id.values():
                host, _, port = (one.bootstrap if server == "--bootstrap-server" else one.controller).rpartition(":")
                assert re.search(rf"{host}\s+{port}\b", shown), shown

    @pytest.mark.parametrize("server", SERVERS)
    def test_a_broker_that_is_gone_is_forgotten(self, clusters: Pair, server: str) -> None:
        try:
            for side in clusters.sides:
                side.nodes[3].stop(clean=False)
                side.nodes.wait_for_brokers(1, 2)
            fenced = clusters.same(
                CLUSTER_TOOL,
                "list-endpoints",
                "--include-fenced-brokers",
                seen=lambda said: re.findall(r"\w*fenced", said.stdout),
            )
            assert re.findall(r"\w*fenced", fenced.stdout) == ["unfenced", "unfenced", "fenced"]
            clusters.same(CLUSTER_TOOL, "unregister", "--id", "3", server=server)
            known = clusters.same(
                CLUSTER_TOOL,
                "list-endpoints",
                "--include-fenced-brokers",
                seen=lambda said: re.findall(r"\w*fenced", said.stdout),
            )
            assert re.findall(r"\w*fenced", known.stdout) == ["unfenced", "unfenced"]
            again = clusters.run(CLUSTER_TOOL, "unregister", "--id", "3", server=server)
            assert [said.exit_code for said in again] == [1, 1]
            assert again[0].exceptions == again[1].exceptions
        finally:
            # It registers anew.
            for side in clusters.sides:
                side.nodes[3].start()
                side.nodes.wait_for_brokers(1, 2, 3)


def test_what_every_broker_understands(clusters: Pair) -> None:
    _, ours = clusters.run(BROKER_API_VERSIONS)
    nodes = re.findall(r"^ADDRESS \(id: (\d) rack: null isFenced: false\) -> \($", ours.stdout, re.MULTILINE)
    assert sorted(nodes) == ["1", "2", "3"]
    assert "UNKNOWN" not in ours.stdout
    # As much of quorums and controllers as Apache Kafka's brokers say.
    for api in ("DescribeQuorum", "AddRaftVoter", "RemoveRaftVoter", "UnregisterBroker", "ElectLeaders", "UpdateFeatures"):
        apache, mine = (re.findall(rf"\t{api}\(\d+\): .*", side.run(BROKER_API_VERSIONS).stdout) for side in clusters.sides)
        assert len(mine) == 3
        assert set(mine) == set(apache)
