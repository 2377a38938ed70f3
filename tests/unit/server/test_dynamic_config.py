from __future__ import annotations

import logging

import pytest
from unit.server.clusters import Cluster, node_file

from pybroker.config import Config
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import ResourceType
from pybroker.server.config_parts import Part
from pybroker.server.dynamic_config import NodeConfig

BROKER, TOPIC = ResourceType.BROKER, ResourceType.TOPIC


class Logs:
    """What a log manager would be given."""

    def __init__(self) -> None:
        self.updates: list[list[str] | None] = []

    def update(self, config_of: object, topics: object) -> None:
        self.updates.append(topics)  # type: ignore[arg-type]


class Node:
    def __init__(self, properties: dict[str, str] | None = None) -> None:
        self.logs = Logs()
        self.config = NodeConfig(node_file(properties))
        self.config.subscribe_logs(self.logs.update)
        self.cluster = Cluster(self.config.publish)
        self.cluster.topic("orders")
        self.logs.updates.clear()
        self.changes: list[tuple[Config, Config]] = []
        self.config.subscribe(lambda old, new: self.changes.append((old, new)))

    def set(self, name: str, **values: str | None) -> None:
        """The broker configs of the cluster (""), or of the broker of that id."""
        self.cluster.config(BROKER, name, {key.replace("_", "."): value for key, value in values.items()})

    def set_topic(self, topic: str, **values: str | None) -> None:
        self.cluster.config(TOPIC, topic, {key.replace("_", "."): value for key, value in values.items()})


@pytest.fixture
def node() -> Node:
    return Node({"log.retention.ms": "1000"})


# Broker configs.


def test_at_first_the_file_counts(node: Node) -> None:
    assert node.config.current is node.config.static
    assert node.config.current["log.retention.ms"] == 1000


def test_the_cluster_counts_over_the_file_and_the_broker_over_the_cluster(node: Node) -> None:
    node.set("", log_retention_ms="2000")
    assert node.config.current["log.retention.ms"] == 2000
    node.set("1", log_retention_ms="3000")
    assert node.config.current["log.retention.ms"] == 3000
    node.set("1", log_retention_ms=None)
    assert node.config.current["log.retention.ms"] == 2000
    node.set("", log_retention_ms=None)
    assert node.config.current["log.retention.ms"] == 1000
    assert node.config.static["log.retention.ms"] == 1000


def test_another_brokers_configs_are_none_of_ours(node: Node) -> None:
    node.set("2", log_retention_ms="3000")
    assert node.config.current["log.retention.ms"] == 1000
    assert node.changes == []


def test_subscribers_see_the_configuration_before_and_after(node: Node) -> None:
    node.set("", log_retention_ms="2000")
    ((old, new),) = node.changes
    assert (old["log.retention.ms"], new["log.retention.ms"]) == (1000, 2000)
    assert new is node.config.current


def test_nobody_is_told_of_a_change_that_changes_nothing(node: Node) -> None:
    node.set("", log_retention_ms="1000")
    assert node.changes == []
    assert node.logs.updates == []


def test_a_part_is_told_of_its_own_configs_only(node: Node) -> None:
    told: list[int] = []
    node.config.subscribe(lambda _, new: told.append(new.int("num.io.threads")), Part.SOCKET_SERVER)
    node.set("", log_retention_ms="2000")
    assert told == []
    node.set("", num_io_threads="9")
    assert told == [9]


def test_a_limit_of_one_listener_is_a_change_too(node: Node) -> None:
    told: list[int] = []
    node.config.subscribe(lambda _, new: told.append(new.for_listener("PLAINTEXT", "max.connections")), Part.SOCKET_SERVER)
    node.cluster.config(BROKER, "1", {"listener.name.plaintext.max.connections": "5"})
    node.cluster.config(BROKER, "1", {"listener.name.plaintext.max.connections": None})
    assert told == [5, 2**31 - 1]


def test_a_part_that_is_made_after_a_restart_hears_of_what_was_set_before_it(node: Node) -> None:
    told: list[tuple[int, int]] = []
    node.set("", num_io_threads="9")
    node.config.subscribe(
        lambda old, new: told.append((old.int("num.io.threads"), new.int("num.io.threads"))), Part.SOCKET_SERVER
    )
    assert told == [(8, 9)]
    node.set("", num_io_threads="10")
    assert told == [(8, 9), (9, 10)]


def test_a_part_hears_nothing_at_first_of_what_others_apply(node: Node) -> None:
    told: list[Config] = []
    node.set("", num_io_threads="9")
    node.config.subscribe(lambda _, new: told.append(new), Part.CLEANER)
    assert told == []
    node.config.subscribe(lambda _, new: told.append(new))
    assert told == [node.config.current]


def test_who_fails_to_take_in_what_was_set_before_it_hears_of_the_next_change(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[int] = []

    def fail_once(_: Config, new: Config) -> None:
        told.append(new.int("num.io.threads"))
        if len(told) == 1:
            raise RuntimeError("no more threads")

    node.set("", num_io_threads="9")
    node.config.subscribe(fail_once, Part.SOCKET_SERVER)
    node.set("", num_io_threads="10")
    assert told == [9, 10]
    assert "no more threads" in caplog.text


def test_one_subscribers_failure_is_logged_and_the_next_one_is_told(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Config, __: Config) -> None:
        raise RuntimeError("no more threads")

    told: list[Config] = []
    node.config.subscribe(fail)
    node.config.subscribe(lambda _, new: told.append(new))
    node.set("", log_retention_ms="2000")
    assert len(told) == 1
    assert "no more threads" in caplog.text


def test_levels_tell_where_a_value_comes_from(node: Node) -> None:
    node.set("", log_retention_ms="2000")
    node.set("1", log_retention_ms="3000")
    levels = node.config.levels
    assert (levels.broker, levels.cluster) == ({"log.retention.ms": "3000"}, {"log.retention.ms": "2000"})
    assert levels.static["log.retention.ms"] == "1000"


def test_what_would_be_can_be_tried(node: Node) -> None:
    node.set("", log_retention_ms="2000")
    loaded = node.config.with_changes(broker={"log.segment.bytes": "2097152"})
    assert loaded.config is not None
    assert (loaded.config["log.retention.ms"], loaded.config["log.segment.bytes"]) == (2000, 2097152)
    assert node.config.with_changes(cluster={"log.retention.ms": "x"}).config is None
    assert node.config.current["log.retention.ms"] == 2000


# Bad ones.


@pytest.mark.parametrize(
    ("key", "value"),
    [("log.retention.ms", "soon"), ("log.dirs", "/elsewhere"), ("num.io.threads", "0"), ("log.retention.mss", "1")],
)
def test_a_bad_config_in_the_metadata_log_does_not_stop_the_node(
    node: Node, caplog: pytest.LogCaptureFixture, key: str, value: str
) -> None:
    node.set("", log_segment_bytes="2097152", log_retention_ms="2000")
    node.cluster.config(BROKER, "", {key: value, "log.segment.bytes": "4194304"})
    assert node.config.current["log.retention.ms"] == 2000
    assert node.config.current["log.segment.bytes"] == 4194304
    assert node.config.current["log.dirs"] == ("/nowhere",)
    assert node.config.current["num.io.threads"] == 8
    assert key in caplog.text


def test_a_bad_config_at_the_start_leaves_what_the_file_says() -> None:
    node = Node({"log.retention.ms": "1000"})
    node.set("1", log_retention_ms="soon")
    assert node.config.current["log.retention.ms"] == 1000


def test_a_good_value_after_a_bad_one_counts(node: Node) -> None:
    node.set("", log_retention_ms="soon")
    node.set("", log_retention_ms="2000")
    assert node.config.current["log.retention.ms"] == 2000


def test_a_bad_value_is_gone_when_it_is_deleted(node: Node) -> None:
    node.set("", log_retention_ms="2000")
    node.set("", log_retention_ms="soon")
    node.set("", log_retention_ms=None)
    assert node.config.current["log.retention.ms"] == 1000


def test_configs_that_do_not_go_together_stay_as_they_were(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    # Each cleaner thread needs 1 MiB.
    node.cluster.config(BROKER, "", {"log.cleaner.dedupe.buffer.size": "3145728"})
    node.cluster.config(BROKER, "", {"log.cleaner.threads": "4", "log.retention.ms": "2000"})
    assert node.config.current["log.cleaner.threads"] == 1
    assert node.config.current["log.cleaner.dedupe.buffer.size"] == 3145728
    assert node.config.current["log.retention.ms"] == 2000
    assert "log.cleaner.dedupe.buffer.size" in caplog.text


def test_a_password_is_not_logged(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        node.cluster.config(BROKER, "1", {"listener.name.plaintext.ssl.key.password": "hush", "log.retention.ms": "5"})
    assert "log.retention.ms=5" in caplog.text
    assert "hush" not in caplog.text


# Topics.


def retention(node: Node, topic: str) -> int:
    assert node.config.config_of(topic) == node.config.topic_config(node.cluster.image, topic)
    return node.config.config_of(topic).retention_ms


def test_a_topic_counts_over_its_broker(node: Node) -> None:
    assert retention(node, "orders") == 1000
    node.set_topic("orders", retention_ms="50")
    assert retention(node, "orders") == 50
    node.set("", log_retention_ms="2000", log_segment_bytes="2097152")
    assert retention(node, "orders") == 50
    assert node.config.config_of("orders").segment_bytes == 2097152
    node.set_topic("orders", retention_ms=None)
    assert retention(node, "orders") == 2000


def test_a_topics_config_is_read_once(node: Node) -> None:
    node.set_topic("orders", retention_ms="50")
    assert node.config.config_of("orders") is node.config.config_of("orders")
    assert node.config.config_of("payments") is node.config.config_of("returns")


def test_values_that_are_no_business_of_a_log_can_be_had(node: Node) -> None:
    node.set_topic("orders", unclean_leader_election_enable="true")
    assert node.config.topic_value(node.cluster.image, "orders", "unclean.leader.election.enable") is True
    assert node.config.topic_value(node.cluster.image, "payments", "unclean.leader.election.enable") is False


def test_the_logs_of_a_changed_topic_get_its_config(node: Node) -> None:
    node.set_topic("orders", retention_ms="50")
    assert node.logs.updates == [["orders"]]


def test_all_logs_get_a_changed_default(node: Node) -> None:
    node.set("", log_retention_ms="2000")
    assert node.logs.updates == [None]


def test_logs_do_not_care_for_other_broker_configs(node: Node) -> None:
    node.set("", num_io_threads="9")
    assert node.logs.updates == []
    assert len(node.changes) == 1


def test_what_is_published_first_goes_to_all_logs_there_are() -> None:
    node = Node()
    fresh = NodeConfig(node_file())
    fresh.subscribe_logs(node.logs.update)
    Cluster(fresh.publish).topic("orders")
    assert node.logs.updates == [None]


def test_what_is_published_first_counts_even_if_the_delta_does_not_mention_it(node: Node) -> None:
    node.set("", log_retention_ms="2000")
    node.set_topic("orders", segment_bytes="2097152")
    late = NodeConfig(node_file())
    late.subscribe_logs(node.logs.update)
    node.logs.updates.clear()
    late.publish(MetadataDelta(node.cluster.image), node.cluster.image)
    assert late.current["log.retention.ms"] == 2000
    assert late.config_of("orders").segment_bytes == 2097152
    assert node.logs.updates == [None]


def test_logs_that_were_loaded_while_their_configs_changed_get_the_new_ones(node: Node) -> None:
    late = Logs()
    node.set_topic("orders", retention_ms="50")
    node.config.subscribe_logs(late.update)
    assert late.updates == [None]


def test_a_topic_made_with_configs_or_deleted_has_no_logs_to_tell(node: Node) -> None:
    node.set_topic("early", retention_ms="50")
    node.cluster.topic("early")
    assert retention(node, "early") == 50
    node.cluster.delete("early")
    assert node.logs.updates == []
    assert retention(node, "early") == 1000


def test_a_bad_topic_config_in_the_metadata_log_is_left_out(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.set_topic("orders", retention_ms="soon", segment_bytes="2097152", from_tomorrow="1")
    config = node.config.config_of("orders")
    assert (config.retention_ms, config.segment_bytes) == (1000, 2097152)
    assert "retention.ms" in caplog.text
    assert "from.tomorrow" in caplog.text


def test_a_failure_of_the_logs_does_not_stop_the_publishing(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk on fire")

    node.config.subscribe_logs(fail)
    node.set_topic("orders", retention_ms="50")
    assert "disk on fire" in caplog.text
    assert retention(node, "orders") == 50
