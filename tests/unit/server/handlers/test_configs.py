from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from support.requests import AskedRequest
from unit.server.clusters import Clock, Cluster, Controller, node_file

from pybroker.config.keys import BROKER as BROKER_KEYS
from pybroker.config.keys import GROUP as GROUP_KEYS
from pybroker.config.keys import TOPIC as TOPIC_KEYS
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsRequestAlterableConfig,
    AlterConfigsRequestAlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
)
from pybroker.server.dynamic_config import NodeConfig
from pybroker.server.forwarding import Forwarding
from pybroker.server.handlers.configs import ConfigHandlers

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

# Sources, as DescribeConfigs numbers them.
OF_TOPIC, OF_BROKER, OF_CLUSTER, OF_FILE, OF_DEFAULT, OF_LOGGER, OF_CLIENT_METRICS, OF_GROUP = range(1, 9)

SHOWN_OF_TOPIC = {name for name, key in TOPIC_KEYS.items() if not key.internal}

Row = tuple[int, str, Sequence[tuple[str, int, str | None]]]
WholeRow = tuple[int, str, Sequence[tuple[str, str | None]]]


class Broker:
    def __init__(self, properties: dict[str, str] | None = None) -> None:
        self.config = NodeConfig(node_file(properties))
        self.cluster = Cluster(self.config.publish)
        self.controller = Controller()
        self.clock = Clock()
        forwarding = Forwarding(self.controller, self.clock.timer, self.clock.now_ms)
        self.handlers = ConfigHandlers(self.cluster.image_of, self.config, forwarding)

    def describe_all(
        self, *resources: tuple[int, str, list[str] | None], version: int = 4, **more: Any
    ) -> list[tuple[str, str | None, dict[str, Any]]]:
        rows = [
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
            for kind, name, keys in resources
        ]
        one = AskedRequest(DescribeConfigsRequest(resources=rows, **more), version)
        answer = self.handlers.handle_describe_configs(one, one.message)  # type: ignore[arg-type]
        results = type(answer).decode(version, answer.encode(version)).results
        assert [(result.resource_type, result.resource_name) for result in results] == [row[:2] for row in resources]
        return [
            (ErrorCode(result.error_code).name, result.error_message, {entry.name: entry for entry in result.configs})
            for result in results
        ]

    def describe(self, kind: int, name: str, *keys: str, version: int = 4, **more: Any) -> dict[str, Any]:
        ((error, message, entries),) = self.describe_all((kind, name, list(keys) or None), version=version, **more)
        assert (error, message) == ("NONE", "")
        return entries

    def refusal(self, kind: int, name: str) -> str:
        ((error, _, entries),) = self.describe_all((kind, name, None))
        assert entries == {}
        return error

    def alter(self, *rows: Row, validate_only: bool = False) -> AskedRequest:
        resources = [
            IncrementalAlterConfigsRequestAlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in changes
                ],
            )
            for kind, name, changes in rows
        ]
        one = AskedRequest(IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only), 1)
        self.handlers.handle_incremental_alter_configs(one, one.message)  # type: ignore[arg-type]
        return one

    def replace(self, *rows: WholeRow, validate_only: bool = False) -> AskedRequest:
        resources = [
            AlterConfigsRequestAlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[AlterConfigsRequestAlterableConfig(name=key, value=value) for key, value in configs],
            )
            for kind, name, configs in rows
        ]
        one = AskedRequest(AlterConfigsRequest(resources=resources, validate_only=validate_only), 2)
        self.handlers.handle_alter_configs(one, one.message)  # type: ignore[arg-type]
        return one

    def forwarded(self) -> list[tuple[int, str]]:
        return [
            (resource.resource_type, resource.resource_name)
            for request, _, _ in self.controller.asked
            for resource in request.resources  # type: ignore[attr-defined]
        ]

    def list(self, version: int = 1, *types: int) -> Any:
        one = AskedRequest(ListConfigResourcesRequest(resource_types=list(types)), version)
        answer = self.handlers.handle_list_config_resources(one, one.message)  # type: ignore[arg-type]
        return type(answer).decode(version, answer.encode(version))


def codes(asked: AskedRequest) -> list[str]:
    asked.answer.encode(asked.version)
    return [ErrorCode(row.error_code).name for row in asked.answer.responses]


def row(kind: int, name: str, code: ErrorCode = ErrorCode.NONE, message: str | None = None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(error_code=code, error_message=message, resource_type=kind, resource_name=name)


def synonyms(entry: Any) -> list[tuple[str, str | None, int]]:
    return [(one.name, one.value, one.source) for one in entry.synonyms]


@pytest.fixture
def broker() -> Broker:
    made = Broker()
    made.cluster.broker(1)
    made.cluster.topic("orders")
    return made


# DescribeConfigs: topics.


def test_a_topic_has_all_configs_and_each_its_source(broker: Broker) -> None:
    broker.cluster.config(TOPIC, "orders", {"retention.ms": "7000"})
    broker.cluster.config(BROKER, "", {"log.segment.bytes": "2097152"})
    found = broker.describe(TOPIC, "orders")
    assert set(found) == SHOWN_OF_TOPIC
    retention, segment, jitter = found["retention.ms"], found["segment.bytes"], found["segment.jitter.ms"]
    assert (retention.value, retention.config_source, retention.config_type) == ("7000", OF_TOPIC, 5)
    assert (segment.value, segment.config_source, segment.config_type) == ("2097152", OF_CLUSTER, 3)
    assert (jitter.value, jitter.config_source) == ("0", OF_DEFAULT)
    assert not any(entry.read_only or entry.is_sensitive or entry.synonyms for entry in found.values())
    assert {entry.documentation for entry in found.values()} == {None}


def test_keys_choose_the_entries_and_unknown_ones_are_left_out(broker: Broker) -> None:
    assert set(broker.describe(TOPIC, "orders", "retention.ms", "nope")) == {"retention.ms"}
    ((_, _, entries),) = broker.describe_all((TOPIC, "orders", []))
    assert set(entries) == SHOWN_OF_TOPIC


def test_synonyms_and_documentation_are_given_to_those_who_ask(broker: Broker) -> None:
    broker.cluster.config(TOPIC, "orders", {"retention.ms": "7000"})
    broker.cluster.config(BROKER, "", {"log.retention.ms": "123456"})
    found = broker.describe(TOPIC, "orders", "retention.ms", include_synonyms=True, include_documentation=True)
    # As Apache Kafka 4.3.1 lists them.
    assert synonyms(found["retention.ms"]) == [
        ("retention.ms", "7000", OF_TOPIC),
        ("log.retention.ms", "123456", OF_CLUSTER),
        ("log.retention.hours", "168", OF_DEFAULT),
    ]
    assert found["retention.ms"].documentation == TOPIC_KEYS["retention.ms"].doc


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_types_and_documentation_came_with_version_3(broker: Broker, version: int) -> None:
    more = {"include_documentation": True} if version >= 3 else {}
    entry = broker.describe(TOPIC, "orders", "segment.bytes", version=version, include_synonyms=True, **more)["segment.bytes"]
    assert synonyms(entry) == [("log.segment.bytes", "1073741824", OF_DEFAULT)]
    assert entry.config_type == (3 if version >= 3 else 0)
    assert entry.documentation == (TOPIC_KEYS["segment.bytes"].doc if version >= 3 else "")


@pytest.mark.parametrize(
    ("topic", "error"),
    [("nope", "UNKNOWN_TOPIC_OR_PARTITION"), ("b@d", "INVALID_TOPIC_EXCEPTION"), ("", "INVALID_TOPIC_EXCEPTION")],
)
def test_a_topic_that_is_not_there_or_cannot_be(broker: Broker, topic: str, error: str) -> None:
    assert broker.refusal(TOPIC, topic) == error


def test_a_resource_asked_for_twice_is_described_twice(broker: Broker) -> None:
    first, second = broker.describe_all((TOPIC, "orders", ["retention.ms"]), (TOPIC, "orders", ["retention.ms"]))
    assert first == second


# DescribeConfigs: brokers.


def test_a_broker_has_every_config_there_is(broker: Broker) -> None:
    found = broker.describe(BROKER, "1")
    assert set(found) == {name for name, key in BROKER_KEYS.items() if not key.internal}
    node_id, dirs, threads = found["node.id"], found["log.dirs"], found["num.io.threads"]
    assert (node_id.value, node_id.read_only, node_id.config_source) == ("1", True, OF_FILE)
    assert (dirs.value, dirs.read_only) == ("/nowhere", True)
    assert (threads.value, threads.read_only, threads.config_source) == ("8", False, OF_DEFAULT)


def test_a_changed_broker_config_tells_where_it_comes_from(broker: Broker) -> None:
    broker.cluster.config(BROKER, "", {"log.retention.ms": "2000"})
    broker.cluster.config(BROKER, "1", {"log.retention.ms": "3000"})
    entry = broker.describe(BROKER, "1", "log.retention.ms", include_synonyms=True)["log.retention.ms"]
    assert (entry.value, entry.config_source) == ("3000", OF_BROKER)
    assert synonyms(entry) == [
        ("log.retention.ms", "3000", OF_BROKER),
        ("log.retention.ms", "2000", OF_CLUSTER),
        ("log.retention.hours", "168", OF_DEFAULT),
    ]


def test_the_cluster_default_is_what_is_set_for_all_brokers_and_nothing_else(broker: Broker) -> None:
    assert broker.describe(BROKER, "") == {}
    broker.cluster.config(BROKER, "", {"log.retention.ms": "2000", "somebody.elses": "1"})
    broker.cluster.config(BROKER, "1", {"log.retention.ms": "3000", "num.io.threads": "9"})
    found = broker.describe(BROKER, "", include_synonyms=True)
    assert set(found) == {"log.retention.ms", "somebody.elses"}
    assert (found["log.retention.ms"].value, found["log.retention.ms"].config_source) == ("2000", OF_CLUSTER)
    assert synonyms(found["log.retention.ms"]) == [("log.retention.ms", "2000", OF_CLUSTER)]
    assert set(broker.describe(BROKER, "", "somebody.elses")) == {"somebody.elses"}


def test_what_nobody_knows_may_be_a_password() -> None:
    broker = Broker({"my.own.key": "secret", "listener.name.plaintext.max.connections": "77"})
    found = broker.describe(BROKER, "1", "my.own.key", "listener.name.plaintext.max.connections", include_synonyms=True)
    # As Apache Kafka 4.3.1 describes both.
    own, limit = found["my.own.key"], found["listener.name.plaintext.max.connections"]
    assert (own.value, own.is_sensitive, own.read_only, own.config_source, own.config_type) == (None, True, True, OF_FILE, 0)
    assert synonyms(own) == [("my.own.key", None, OF_FILE)]
    assert (limit.value, limit.is_sensitive, limit.read_only, limit.config_source) == ("77", False, True, OF_FILE)


def test_keys_without_a_row_that_were_set_while_running_are_told_with_all_their_places() -> None:
    broker = Broker({"my.own.key": "secret"})
    limit = "listener.name.plaintext.max.connections"
    broker.cluster.config(BROKER, "", {"my.own.key": "more secret", "retention.ms": "5", limit: "5000"})
    broker.cluster.config(BROKER, "1", {"my.own.key": "most secret"})
    assert {"my.own.key", "retention.ms", limit} <= set(broker.describe(BROKER, "1"))
    found = broker.describe(BROKER, "1", "my.own.key", "retention.ms", limit, include_synonyms=True)
    assert (found["my.own.key"].value, found["my.own.key"].config_source) == (None, OF_BROKER)
    assert synonyms(found["my.own.key"]) == [("my.own.key", None, place) for place in (OF_BROKER, OF_CLUSTER, OF_FILE)]
    assert (found["retention.ms"].value, found["retention.ms"].config_source) == (None, OF_CLUSTER)
    assert (found[limit].value, found[limit].config_source) == ("5000", OF_CLUSTER)


def test_a_password_is_not_told() -> None:
    broker = Broker({"ssl.key.password": "hush"})
    entry = broker.describe(BROKER, "1", "ssl.key.password", include_synonyms=True)["ssl.key.password"]
    assert (entry.value, entry.is_sensitive) == (None, True)
    assert synonyms(entry) == [("ssl.key.password", None, OF_FILE)]


@pytest.mark.parametrize("name", ["2", "x"])
def test_another_brokers_configs_must_be_asked_of_that_broker(broker: Broker, name: str) -> None:
    assert broker.refusal(BROKER, name) == "INVALID_REQUEST"


# DescribeConfigs: the rest.


@pytest.fixture
def a_logger() -> Iterator[logging.Logger]:
    made = logging.getLogger("pybroker.tests.of.levels")
    made.setLevel(logging.NOTSET)
    yield made
    made.setLevel(logging.NOTSET)


def test_the_levels_of_loggers(broker: Broker, a_logger: logging.Logger) -> None:
    a_logger.setLevel(logging.ERROR)
    found = broker.describe(LOGGER, "1", include_synonyms=True, include_documentation=True)
    assert {"root", "pybroker", a_logger.name} <= set(found)
    entry = found[a_logger.name]
    assert (entry.value, entry.config_source, entry.config_type) == ("ERROR", OF_LOGGER, 0)
    assert (entry.read_only, entry.is_sensitive, entry.synonyms, entry.documentation) == (False, False, [], "")
    assert set(broker.describe(LOGGER, "1", "root", "nope")) == {"root"}


@pytest.mark.parametrize(
    ("level", "name"), [(5, "TRACE"), (10, "DEBUG"), (15, "INFO"), (30, "WARN"), (40, "ERROR"), (50, "FATAL"), (60, "FATAL")]
)
def test_a_level_is_told_in_the_words_of_log4j(broker: Broker, a_logger: logging.Logger, level: int, name: str) -> None:
    a_logger.setLevel(level)
    assert broker.describe(LOGGER, "1", a_logger.name)[a_logger.name].value == name


@pytest.mark.parametrize("name", ["", "2", "x"])
def test_the_loggers_of_another_broker(broker: Broker, name: str) -> None:
    assert broker.refusal(LOGGER, name) == "INVALID_REQUEST"


def test_a_groups_configs(broker: Broker) -> None:
    broker.cluster.config(GROUP, "g", {"consumer.session.timeout.ms": "50000"})
    assert set(broker.describe(GROUP, "g")) == set(GROUP_KEYS)
    entry = broker.describe(GROUP, "g", "consumer.session.timeout.ms", include_synonyms=True)["consumer.session.timeout.ms"]
    assert (entry.value, entry.config_source) == ("50000", OF_GROUP)
    assert synonyms(entry) == [
        ("consumer.session.timeout.ms", "50000", OF_GROUP),
        ("group.consumer.session.timeout.ms", "45000", OF_DEFAULT),
    ]
    assert broker.refusal(GROUP, "") == "INVALID_REQUEST"


def test_a_client_metrics_subscription(broker: Broker) -> None:
    broker.cluster.config(CLIENT_METRICS, "s", {"interval.ms": "100000"})
    found = broker.describe(CLIENT_METRICS, "s", include_synonyms=True)
    assert [(entry.name, entry.value, entry.config_source) for entry in found.values()] == [
        ("interval.ms", "100000", OF_CLIENT_METRICS),
        ("match", "", OF_DEFAULT),
        ("metrics", "", OF_DEFAULT),
    ]
    assert synonyms(found["interval.ms"]) == [("interval.ms", "100000", OF_CLIENT_METRICS)]
    assert broker.describe(CLIENT_METRICS, "other", "interval.ms")["interval.ms"].value == "300000"
    assert broker.refusal(CLIENT_METRICS, "") == "INVALID_REQUEST"


def test_a_resource_type_that_nobody_knows_spoils_the_request(broker: Broker) -> None:
    found = broker.describe_all((TOPIC, "orders", None), (7, "x", None))
    assert [(error, entries) for error, _, entries in found] == [("INVALID_REQUEST", {}), ("INVALID_REQUEST", {})]


# IncrementalAlterConfigs: what goes to the controller.


def test_topics_groups_and_subscriptions_are_the_controllers_business(broker: Broker) -> None:
    asked = broker.alter(
        (TOPIC, "nope", [("retention.ms", 9, "soon")]),
        (GROUP, "g", [("x", SET, "1")]),
        (CLIENT_METRICS, "s", [("x", SET, "1")]),
        validate_only=True,
    )
    assert asked.answers == []
    ((request, version, _),) = broker.controller.asked
    assert (request, version) == (asked.message, 1)
    broker.controller.answer(
        IncrementalAlterConfigsResponse(
            # In another order, and one is missing.
            responses=[row(GROUP, "g", ErrorCode.INVALID_CONFIG, "no x"), row(TOPIC, "nope")]
        )
    )
    assert asked.answer.responses == [
        row(TOPIC, "nope"),
        row(GROUP, "g", ErrorCode.INVALID_CONFIG, "no x"),
        row(CLIENT_METRICS, "s", ErrorCode.UNKNOWN_SERVER_ERROR, "The controller has not answered for this resource."),
    ]


def test_what_is_refused_here_does_not_keep_the_rest_from_the_controller(broker: Broker) -> None:
    asked = broker.alter(
        (BROKER, "2", [("log.retention.ms", SET, "1")]),
        (TOPIC, "orders", [("retention.ms", SET, "1")]),
        (7, "x", []),
    )
    assert broker.forwarded() == [(TOPIC, "orders")]
    broker.controller.answer(IncrementalAlterConfigsResponse(responses=[row(TOPIC, "orders")]))
    assert codes(asked) == ["INVALID_REQUEST", "NONE", "INVALID_REQUEST"]


def test_a_controller_that_does_not_answer(broker: Broker) -> None:
    asked = broker.alter((TOPIC, "orders", [("retention.ms", SET, "1")]), (BROKER, "x", []))
    broker.clock.advance(29_999)
    assert asked.answers == []
    broker.clock.advance(1)
    assert codes(asked) == ["REQUEST_TIMED_OUT", "INVALID_REQUEST"]


def test_nothing_to_change_is_answered_at_once(broker: Broker) -> None:
    assert broker.alter().answer.responses == []


def test_a_resource_that_is_there_twice_is_refused_both_times(broker: Broker) -> None:
    changes = [("retention.ms", SET, "1")]
    asked = broker.alter((TOPIC, "orders", changes), (TOPIC, "orders", changes), (TOPIC, "other", changes))
    assert broker.forwarded() == [(TOPIC, "other")]
    broker.controller.answer(IncrementalAlterConfigsResponse(responses=[row(TOPIC, "other")]))
    assert codes(asked) == ["INVALID_REQUEST", "INVALID_REQUEST", "NONE"]


@pytest.mark.parametrize(
    "changes",
    [
        [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
        [("retention.ms", SET, None)],
        [("cleanup.policy", APPEND, None)],
    ],
)
@pytest.mark.parametrize("kind", [TOPIC, BROKER, LOGGER])
def test_a_key_given_twice_or_without_a_value_is_refused(
    broker: Broker, kind: int, changes: list[tuple[str, int, str | None]]
) -> None:
    assert codes(broker.alter((kind, "1", changes))) == ["INVALID_REQUEST"]
    assert broker.forwarded() == []


@pytest.mark.parametrize("kind", [0, 7, 99])
def test_an_unknown_resource_type_is_refused(broker: Broker, kind: int) -> None:
    assert codes(broker.alter((kind, "x", [("retention.ms", SET, "1")]))) == ["INVALID_REQUEST"]


# IncrementalAlterConfigs: this broker.


@pytest.mark.parametrize("name", ["", "1"])
def test_a_good_change_of_a_broker_goes_to_the_controller(broker: Broker, name: str) -> None:
    broker.alter((BROKER, name, [("log.retention.ms", SET, "1000"), ("num.io.threads", DELETE, None)]))
    assert broker.forwarded() == [(BROKER, name)]


@pytest.mark.parametrize("name", ["", "1", "2"])
def test_a_controller_leaves_the_configs_of_brokers_to_them(broker: Broker, name: str) -> None:
    """Which have checked them already: kafka-reassign-partitions changes those of all brokers, each at that broker."""
    forwarding = Forwarding(broker.controller, broker.clock.timer, broker.clock.now_ms)
    broker.handlers = ConfigHandlers(broker.cluster.image_of, broker.config, forwarding, is_controller=True)
    broker.alter((BROKER, name, [("log.retention.ms", SET, "1000")]))
    assert broker.forwarded() == [(BROKER, name)]
    broker.replace((BROKER, name, [("log.retention.ms", "1000")]))
    assert broker.forwarded()[-1] == (BROKER, name)


# As Apache Kafka 4.3.1 decides, where nothing else is said.
@pytest.mark.parametrize(
    ("name", "key", "operation", "value", "error"),
    [
        ("2", "log.retention.ms", SET, "1000", "INVALID_REQUEST"),
        ("x", "log.retention.ms", SET, "1000", "INVALID_REQUEST"),
        ("1", "log.dirs", SET, "/elsewhere", "INVALID_REQUEST"),
        ("", "listeners", SET, "PLAINTEXT://:0", "INVALID_REQUEST"),
        ("1", "log.retention.ms", SET, "soon", "INVALID_REQUEST"),
        ("1", "num.io.threads", SET, "0", "INVALID_REQUEST"),
        ("1", "num.io.threads", SET, "17", "INVALID_REQUEST"),
        ("1", "num.io.threads", SET, "3", "INVALID_REQUEST"),
        ("", "num.network.threads", SET, "9", "INVALID_REQUEST"),
        ("", "log.cleaner.dedupe.buffer.size", SET, "100", "INVALID_REQUEST"),
        ("1", "log.retention.ms", 9, "1000", "INVALID_REQUEST"),
        ("1", "log.retention.ms", APPEND, "1000", "INVALID_CONFIG"),
        ("1", "log.retention.ms", SUBTRACT, "1000", "INVALID_CONFIG"),
        # Apache Kafka answers UNKNOWN_SERVER_ERROR.
        ("1", "no.such.key", APPEND, "1000", "INVALID_CONFIG"),
        # Apache Kafka takes it, and it has no effect.
        ("1", "log.retention.mss", SET, "1000", "INVALID_REQUEST"),
    ],
)
def test_a_bad_change_of_a_broker_is_refused_here(
    broker: Broker, name: str, key: str, operation: int, value: str, error: str
) -> None:
    asked = broker.alter((BROKER, name, [(key, operation, value)]))
    assert codes(asked) == [error]
    assert asked.answer.responses[0].error_message
    assert broker.forwarded() == []


@pytest.mark.parametrize(
    ("key", "operation", "value"),
    [
        ("num.io.threads", SET, "16"),
        ("num.io.threads", SET, "4"),
        ("log.cleanup.policy", APPEND, "compact"),
        ("log.cleanup.policy", APPEND, "delete"),
        ("no.such.key", SET, "1"),
        ("log.retention.ms", DELETE, None),
    ],
)
def test_what_apache_kafka_lets_pass_passes(broker: Broker, key: str, operation: int, value: str | None) -> None:
    broker.alter((BROKER, "", [(key, operation, value)]), validate_only=True)
    assert broker.forwarded() == [(BROKER, "")]


def test_a_list_is_changed_from_what_is_stored(broker: Broker) -> None:
    broker.cluster.config(BROKER, "", {"log.cleanup.policy": "compact"})
    assert codes(broker.alter((BROKER, "", [("log.cleanup.policy", SUBTRACT, "compact"), ("log.dirs", SET, "x")]))) == [
        "INVALID_REQUEST"
    ]
    broker.alter((BROKER, "", [("log.cleanup.policy", APPEND, "delete,compact")]))
    assert broker.forwarded() == [(BROKER, "")]


def test_a_change_is_checked_together_with_what_is_stored(broker: Broker) -> None:
    broker.cluster.config(BROKER, "1", {"log.cleaner.dedupe.buffer.size": "2097152"})
    assert codes(broker.alter((BROKER, "", [("log.cleaner.threads", SET, "2")]))) == ["INVALID_REQUEST"]
    assert codes(broker.alter((BROKER, "1", [("log.cleaner.threads", SET, "2")]))) == ["INVALID_REQUEST"]
    broker.alter((BROKER, "1", [("log.cleaner.threads", SET, "2"), ("log.cleaner.dedupe.buffer.size", DELETE, None)]))
    assert broker.forwarded() == [(BROKER, "1")]


def test_what_is_stored_and_no_use_does_not_stand_in_the_way(broker: Broker) -> None:
    broker.cluster.config(BROKER, "1", {"log.retention.ms": "soon"})
    broker.alter((BROKER, "1", [("num.io.threads", SET, "9")]))
    broker.alter((BROKER, "1", [("log.retention.ms", DELETE, None)]))
    assert broker.forwarded() == [(BROKER, "1"), (BROKER, "1")]


# IncrementalAlterConfigs: loggers.


def test_a_loggers_level_is_set_at_once_and_never_stored(broker: Broker, a_logger: logging.Logger) -> None:
    assert codes(broker.alter((LOGGER, "1", [(a_logger.name, SET, "FATAL")]))) == ["NONE"]
    assert a_logger.level == logging.CRITICAL
    assert codes(broker.alter((LOGGER, "1", [(a_logger.name, SET, "TRACE")]))) == ["NONE"]
    assert a_logger.isEnabledFor(5)
    assert codes(broker.alter((LOGGER, "1", [(a_logger.name, DELETE, None)]))) == ["NONE"]
    assert a_logger.level == logging.NOTSET
    assert broker.forwarded() == []


def test_the_root_loggers_level(broker: Broker) -> None:
    level = logging.root.level
    try:
        assert codes(broker.alter((LOGGER, "1", [("root", SET, "ERROR")]))) == ["NONE"]
        assert logging.root.level == logging.ERROR
    finally:
        logging.root.setLevel(level)


def test_validating_sets_no_level(broker: Broker, a_logger: logging.Logger) -> None:
    assert codes(broker.alter((LOGGER, "1", [(a_logger.name, SET, "FATAL")]), validate_only=True)) == ["NONE"]
    assert a_logger.level == logging.NOTSET


@pytest.mark.parametrize(
    ("node", "logger", "operation", "value", "error"),
    [
        ("2", "root", SET, "INFO", "INVALID_REQUEST"),
        ("x", "root", SET, "INFO", "INVALID_REQUEST"),
        ("", "root", SET, "INFO", "INVALID_REQUEST"),
        ("1", "no such logger", SET, "INFO", "INVALID_CONFIG"),
        ("1", "no such logger", DELETE, None, "INVALID_CONFIG"),
        ("1", "root", SET, "LOUD", "INVALID_CONFIG"),
        ("1", "root", SET, "info", "INVALID_CONFIG"),
        ("1", "root", DELETE, None, "INVALID_REQUEST"),
        ("1", "root", APPEND, "INFO", "INVALID_REQUEST"),
        ("1", "root", SUBTRACT, "INFO", "INVALID_REQUEST"),
        # Apache Kafka answers UNKNOWN_SERVER_ERROR.
        ("1", "root", 9, "INFO", "INVALID_REQUEST"),
    ],
)
def test_a_bad_change_of_a_logger(
    broker: Broker, a_logger: logging.Logger, node: str, logger: str, operation: int, value: str | None, error: str
) -> None:
    changes = [(a_logger.name, SET, "FATAL"), (logger, operation, value)]
    assert codes(broker.alter((LOGGER, node, changes))) == [error]
    assert a_logger.level == logging.NOTSET


# AlterConfigs.


def test_replacing_all_configs_is_the_controllers_business_too(broker: Broker) -> None:
    asked = broker.replace(
        (TOPIC, "orders", [("retention.ms", "1")]), (BROKER, "1", [("num.io.threads", "9")]), (LOGGER, "1", [])
    )
    assert broker.forwarded() == [(TOPIC, "orders"), (BROKER, "1")]
    broker.controller.answer(AlterConfigsResponse(responses=[row(BROKER, "1"), row(TOPIC, "orders")]))
    assert codes(asked) == ["NONE", "NONE", "INVALID_REQUEST"]
    assert isinstance(asked.answer, AlterConfigsResponse)


@pytest.mark.parametrize(
    ("kind", "name", "configs"),
    [
        (TOPIC, "orders", [("retention.ms", "1"), ("retention.ms", "2")]),
        (TOPIC, "orders", [("retention.ms", None)]),
        (BROKER, "2", [("log.retention.ms", "1")]),
        (BROKER, "x", [("log.retention.ms", "1")]),
        (BROKER, "1", [("log.dirs", "/elsewhere")]),
        (BROKER, "1", [("log.retention.ms", "soon")]),
        (LOGGER, "1", [("root", "INFO")]),
        (99, "1", []),
    ],
)
def test_a_bad_replacement_is_refused_here(broker: Broker, kind: int, name: str, configs: list[tuple[str, str | None]]) -> None:
    assert codes(broker.replace((kind, name, configs))) == ["INVALID_REQUEST"]
    assert broker.forwarded() == []


def test_a_resource_replaced_twice_is_refused_both_times(broker: Broker) -> None:
    # Apache Kafka 4.3.1 does not answer this at all.
    configs = [("retention.ms", "1")]
    assert codes(broker.replace((TOPIC, "orders", configs), (TOPIC, "orders", configs))) == ["INVALID_REQUEST"] * 2


def test_a_controller_that_does_not_answer_a_replacement(broker: Broker) -> None:
    asked = broker.replace((TOPIC, "orders", [("retention.ms", "1")]))
    broker.clock.advance(30_000)
    assert codes(asked) == ["REQUEST_TIMED_OUT"]


# ListConfigResources.


def listed(answer: Any) -> list[tuple[int, str]]:
    assert answer.error_code == ErrorCode.NONE
    return [(one.resource_type, one.resource_name) for one in answer.config_resources]


@pytest.fixture
def configured(broker: Broker) -> Broker:
    broker.cluster.broker(2, fenced=True)
    broker.cluster.config(CLIENT_METRICS, "s", {"interval.ms": "100000"})
    broker.cluster.config(GROUP, "g", {"consumer.session.timeout.ms": "50000"})
    return broker


def test_everything_that_can_have_configs_is_listed(configured: Broker) -> None:
    everything = [
        (GROUP, "g"),
        (CLIENT_METRICS, "s"),
        (LOGGER, "1"),
        (LOGGER, "2"),
        (BROKER, "1"),
        (BROKER, "2"),
        (TOPIC, "orders"),
    ]
    assert listed(configured.list(1)) == everything
    assert listed(configured.list(1, TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP)) == everything


def test_types_choose_what_is_listed(configured: Broker) -> None:
    assert listed(configured.list(1, TOPIC, TOPIC)) == [(TOPIC, "orders")]


def test_version_0_lists_client_metrics(configured: Broker) -> None:
    assert listed(configured.list(0)) == [(CLIENT_METRICS, "s")]


@pytest.mark.parametrize("types", [(0,), (7, 99), (TOPIC, 7)])
def test_a_type_that_nobody_knows_cannot_be_listed(configured: Broker, types: tuple[int, ...]) -> None:
    found = configured.list(1, *types)
    assert (found.error_code, found.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])
