"""Apache Kafka's nodes and ours in one cluster: our broker at its controller, its broker at our controllers, both side by
side. What stands in the way by itself are features: a node does not join a cluster that has finalized a level which it does not
know, so Apache Kafka's controller is formatted without those that ours does not claim."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from interop.apache_kafka import ApacheTools
from interop.broker_process import ask
from interop.cluster.mixed import APACHE, BROKER, CONTROLLER, OURS, Nodes, mixed
from interop.cluster.records import consume, produce, read
from support.waiting import wait_until

from pybroker.metadata.controller.features import LATEST_RELEASE, RELEASES, SUPPORTED
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.api_versions import ApiVersionsRequest
from pybroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pybroker.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

TEN = [f"record {number}" for number in range(10)]


def create_at_controller(nodes: Nodes, node_id: int, name: str, *, replicas: int = 1) -> None:
    """Without a broker in between, as brokers do on behalf of a client."""
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=replicas, assignments=[], configs=[])
    (created,) = ask(nodes[node_id].controller, CreateTopicsRequest(topics=[topic], timeout_ms=30_000)).topics
    assert created.error_code == ErrorCode.NONE, created


def finalized(address: str) -> dict[str, int]:
    answer = ask(address, ApiVersionsRequest(client_software_name="pybroker", client_software_version="0"), 4)
    return {one.name: one.max_version_level for one in answer.finalized_features}


class TestOurBrokerAtApachesController:
    @pytest.fixture(scope="class")
    @classmethod
    def nodes(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
        kinds = {1: (APACHE, CONTROLLER), 11: (OURS, BROKER)}
        with mixed(tmp_path_factory.mktemp("ours-at-apaches"), kinds) as nodes:
            nodes.start()
            yield nodes

    def test_it_serves_topics_that_were_made_at_either(self, nodes: Nodes) -> None:
        nodes[11].create_topic("at-the-broker", {"retention.ms": "-1"}, partitions=3)
        create_at_controller(nodes, 1, "at-the-controller")
        nodes[11].wait_for_leaders("at-the-controller", 2)
        for topic in ("at-the-broker", "at-the-controller"):
            produce(nodes[11].bootstrap, topic, TEN)
            assert consume(nodes[11].bootstrap, topic, 10, group=f"readers of {topic}") == TEN

    @pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
    @pytest.mark.parametrize("node_id", [1, 11], ids=["the controller", "the broker"])
    def test_either_comes_back(self, nodes: Nodes, node_id: int, clean: bool) -> None:
        topic = f"before-{node_id}-{clean}"
        nodes[11].create_topic(topic)
        produce(nodes[11].bootstrap, topic, TEN)
        nodes[node_id].restart(clean)
        nodes[11].wait_for_leaders(topic)
        assert read(nodes[11].bootstrap, topic, 10) == TEN
        produce(nodes[11].bootstrap, topic, TEN)
        nodes[11].create_topic(f"after-{node_id}-{clean}")

    def test_all_that_the_cluster_knows_is_known_at_the_broker(self, nodes: Nodes) -> None:
        of_apache = finalized(nodes[1].controller)
        assert of_apache["metadata.version"] == RELEASES[LATEST_RELEASE]
        wait_until(lambda: finalized(nodes[11].bootstrap) == of_apache, 30, lambda: f"{finalized(nodes[11].bootstrap)}")


def test_a_broker_says_why_apaches_controller_does_not_register_it(tmp_path: Path) -> None:
    """As kafka-storage formats by itself: group.version 1, transaction.version 2, and others that ours does not claim."""
    with mixed(tmp_path, {1: (APACHE, CONTROLLER), 11: (OURS, BROKER)}) as nodes:
        nodes[1].format_options = ()
        nodes[1].start()
        nodes[11].launch()
        wait_until(lambda: "UNSUPPORTED_VERSION" in nodes[11].last_words(), 30, nodes.last_words)
        assert "does not support" in nodes[11].last_words()


class TestApachesBrokerAtOurControllers:
    @pytest.fixture(scope="class", params=[1, 3])
    @classmethod
    def nodes(cls, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Nodes]:
        controllers = dict.fromkeys(range(1, request.param + 1), (OURS, CONTROLLER))
        kinds = {**controllers, 11: (APACHE, BROKER)}
        with mixed(tmp_path_factory.mktemp("apaches-at-ours"), kinds) as nodes:
            nodes.start()
            yield nodes

    def test_it_serves_topics_that_were_made_at_either(self, nodes: Nodes) -> None:
        nodes[11].create_topic("at-the-broker", {"retention.ms": "-1"}, partitions=3)
        create_at_controller(nodes, nodes.leader()[0], "at-the-controller")
        nodes[11].wait_for_leaders("at-the-controller", 2)
        for topic in ("at-the-broker", "at-the-controller"):
            produce(nodes[11].bootstrap, topic, TEN)
            assert consume(nodes[11].bootstrap, topic, 10, group=f"readers of {topic}") == TEN

    def test_its_coordinators_work(self, nodes: Nodes) -> None:
        """With topics and producer ids of our controller's."""
        nodes[11].create_topic("transacted")
        for number in range(2):
            produce(nodes[11].bootstrap, "transacted", TEN, transactional_id=f"writer-{number}")
        assert consume(nodes[11].bootstrap, "transacted", 20, group="of the transacted") == TEN * 2
        assert {"__consumer_offsets", "__transaction_state"} <= nodes.topics_at(11)

    def test_nothing_is_finalized_that_ours_does_not_claim(self, nodes: Nodes) -> None:
        levels = finalized(nodes[11].bootstrap)
        assert levels == finalized(nodes[nodes.leader()[0]].controller)
        assert set(levels) <= set(SUPPORTED)
        assert levels["metadata.version"] == RELEASES[LATEST_RELEASE]

    def test_nor_on_demand(self, nodes: Nodes, tools: ApacheTools) -> None:
        before = finalized(nodes[11].bootstrap)
        run = tools.run(
            *("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", nodes[11].bootstrap),
            *("upgrade", "--feature", "share.version=1"),
        )
        assert run.exit_code == 1, run
        assert "Could not upgrade share.version to 1." in run.stdout + run.stderr
        assert finalized(nodes[11].bootstrap) == before

    @pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
    @pytest.mark.parametrize("who", ["the controller", "the broker"])
    def test_either_comes_back(self, nodes: Nodes, who: str, clean: bool) -> None:
        node_id = 11 if who == "the broker" else nodes.leader()[0]
        topic = f"before-{node_id}-{clean}"
        nodes[11].create_topic(topic)
        produce(nodes[11].bootstrap, topic, TEN)
        nodes[node_id].restart(clean)
        nodes[11].wait_for_leaders(topic)
        assert read(nodes[11].bootstrap, topic, 10) == TEN
        produce(nodes[11].bootstrap, topic, TEN)
        nodes[11].create_topic(f"after-{node_id}-{clean}")


def replicas_of(nodes: Nodes, at: int, topic: str) -> dict[int, tuple[int, list[int], list[int]]]:
    """By partition: the leader, the replicas and the ISR, as this broker knows them."""
    (found,) = nodes[at].ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)])).topics
    return {
        one.partition_index: (one.leader_id, sorted(one.replica_nodes), sorted(one.isr_nodes))
        for one in sorted(found.partitions, key=lambda one: one.partition_index)
    }


class TestBothBrokersAtOurThreeControllers:
    @pytest.fixture(scope="class")
    @classmethod
    def nodes(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
        kinds = {**dict.fromkeys((1, 2, 3), (OURS, CONTROLLER)), 11: (APACHE, BROKER), 12: (OURS, BROKER)}
        with mixed(tmp_path_factory.mktemp("side-by-side"), kinds, {"min.insync.replicas": "1"}) as nodes:
            nodes.start()
            nodes.wait_for_brokers(11, 12)
            yield nodes

    def make(self, nodes: Nodes, topic: str) -> dict[int, int]:
        """Two partitions with a replica at each broker; the leader of each."""
        create_at_controller(nodes, nodes.leader()[0], topic, replicas=2)
        nodes.wait_for_topic(topic)
        rows = replicas_of(nodes, 11, topic)
        assert [replicas for _, replicas, _ in rows.values()] == [[11, 12]] * 2
        assert sorted(leader for leader, _, _ in rows.values()) == [11, 12]
        return {partition: leader for partition, (leader, _, _) in rows.items()}

    def wait_for_isr(self, nodes: Nodes, topic: str, isr: list[int]) -> None:
        for at in isr:
            wait_until(
                lambda: [found for _, _, found in replicas_of(nodes, at, topic).values()] == [isr] * 2,  # noqa: B023
                60,
                lambda: f"{replicas_of(nodes, at, topic)}\n{nodes.last_words()}",  # noqa: B023
            )

    def test_each_sees_what_is_made_at_the_other(self, nodes: Nodes) -> None:
        for node_id in (11, 12):
            nodes[node_id].ask(
                CreateTopicsRequest(
                    topics=[
                        CreatableTopic(
                            name=f"made-at-{node_id}", num_partitions=1, replication_factor=1, assignments=[], configs=[]
                        )
                    ]
                )
            )
            nodes.wait_for_topic(f"made-at-{node_id}")

    def test_a_partition_is_replicated_from_either_to_the_other(self, nodes: Nodes) -> None:
        leaders = self.make(nodes, "replicated")
        for partition in leaders:
            produce(nodes[12].bootstrap, "replicated", TEN, partition=partition)
        self.wait_for_isr(nodes, "replicated", [11, 12])
        for partition in leaders:
            assert read(nodes[11].bootstrap, "replicated", 10, partition=partition) == TEN

    @pytest.mark.parametrize("lost", [11, 12], ids=["Apache's", "ours"])
    def test_what_was_acknowledged_survives_the_death_of_either(self, nodes: Nodes, lost: int) -> None:
        topic, left = f"survives-{lost}", 23 - lost
        leaders = self.make(nodes, topic)
        for partition in leaders:
            produce(nodes[left].bootstrap, topic, TEN, partition=partition)
        self.wait_for_isr(nodes, topic, [11, 12])
        nodes[lost].stop(clean=False)
        self.wait_for_isr(nodes, topic, [left])
        for partition in leaders:
            assert read(nodes[left].bootstrap, topic, 10, partition=partition) == TEN
            produce(nodes[left].bootstrap, topic, TEN, partition=partition)
        nodes[lost].start()
        self.wait_for_isr(nodes, topic, [11, 12])
        for partition in leaders:
            assert read(nodes[lost].bootstrap, topic, 20, partition=partition) == TEN * 2

    def test_either_may_leave_in_peace(self, nodes: Nodes) -> None:
        self.make(nodes, "in-peace")
        self.wait_for_isr(nodes, "in-peace", [11, 12])
        for node_id, other in ((11, 12), (12, 11)):
            nodes[node_id].stop()
            wait_until(
                lambda: {leader for leader, _, _ in replicas_of(nodes, other, "in-peace").values()} == {other},  # noqa: B023
                30,
                nodes.last_words,
            )
            nodes[node_id].start()
            self.wait_for_isr(nodes, "in-peace", [11, 12])
