"""IncrementalAlterConfigs and AlterConfigs. tests/interop/metadata compares many more cases with Apache Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from unit.metadata.clusters import TestCluster

from pybroker.metadata.image import ResourceType
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.metadata_log import ConfigRecord
from pybroker.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsRequestAlterableConfig,
    AlterConfigsRequestAlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)

TOPIC, BROKER, METRICS, GROUP = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.CLIENT_METRICS, ResourceType.GROUP
SET, DELETE, APPEND, SUBTRACT = range(4)

Change = tuple[str, int, str | None]


def resource(kind: int, name: str, *changes: Change) -> IncrementalAlterConfigsRequestAlterConfigsResource:
    rows = [
        IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    return IncrementalAlterConfigsRequestAlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)


def request_of(
    *resources: IncrementalAlterConfigsRequestAlterConfigsResource, validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)


def alter(
    cluster: TestCluster, *resources: IncrementalAlterConfigsRequestAlterConfigsResource, validate_only: bool = False
) -> list[ErrorCode]:
    response = cluster.ask(request_of(*resources, validate_only=validate_only))
    return [ErrorCode(one.error_code) for one in response.responses]


def replace(cluster: TestCluster, *resources: tuple[int, str, Mapping[str, str | None]]) -> list[ErrorCode]:
    rows = [
        AlterConfigsRequestAlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[AlterConfigsRequestAlterableConfig(name=key, value=value) for key, value in configs.items()],
        )
        for kind, name, configs in resources
    ]
    response = cluster.ask(AlterConfigsRequest(resources=rows, validate_only=False))
    return [ErrorCode(one.error_code) for one in response.responses]


@pytest.fixture
def cluster() -> TestCluster:
    made = TestCluster()
    made.create("t", configs={"retention.ms": "1000"})
    return made


def test_keys_are_set_and_deleted(cluster: TestCluster) -> None:
    assert alter(cluster, resource(TOPIC, "t", ("segment.ms", SET, "9"), ("retention.ms", DELETE, None))) == [ErrorCode.NONE]
    assert cluster.image.config_of(TOPIC, "t") == {"segment.ms": "9"}


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ([("cleanup.policy", APPEND, "compact")], "delete,compact"),
        ([("cleanup.policy", APPEND, "delete")], "delete"),
        ([("cleanup.policy", SUBTRACT, "compact")], "delete"),
        ([("cleanup.policy", SET, "compact,delete")], "compact,delete"),
    ],
)
def test_lists_begin_with_their_default(cluster: TestCluster, changes: Sequence[Change], value: str) -> None:
    assert alter(cluster, resource(TOPIC, "t", *changes)) == [ErrorCode.NONE]
    assert cluster.image.config_of(TOPIC, "t")["cleanup.policy"] == value


def test_a_list_that_grows_beyond_what_a_record_carries_is_refused(cluster: TestCluster) -> None:
    key = "leader.replication.throttled.replicas"
    first, second = (",".join(f"{number}:{replica}" for number in range(4000)) for replica in (1, 2))
    assert alter(cluster, resource(TOPIC, "t", (key, APPEND, first))) == [ErrorCode.NONE]
    assert alter(cluster, resource(TOPIC, "t", (key, APPEND, second))) == [ErrorCode.INVALID_CONFIG]
    assert cluster.image.config_of(TOPIC, "t")[key] == first


def test_a_value_that_stays_is_written_for_a_broker_only(cluster: TestCluster) -> None:
    """A broker reloads what its configs name, even if the name is the same."""
    same = request_of(resource(TOPIC, "t", ("retention.ms", SET, "1000")))
    assert cluster.controller.handle(0, same, 1).records == []
    broker = request_of(resource(BROKER, "1", ("log.retention.ms", SET, "9")))
    cluster.ask(broker)
    assert cluster.controller.handle(0, broker, 1).records == [
        ConfigRecord(resource_type=BROKER, resource_name="1", name="log.retention.ms", value="9")
    ]


def test_validate_only_writes_nothing(cluster: TestCluster) -> None:
    assert alter(cluster, resource(TOPIC, "t", ("segment.ms", SET, "9")), validate_only=True) == [ErrorCode.NONE]
    assert alter(cluster, resource(TOPIC, "t", ("segment.ms", SET, "x")), validate_only=True) == [ErrorCode.INVALID_CONFIG]
    assert cluster.image.config_of(TOPIC, "t") == {"retention.ms": "1000"}


def test_every_kind_of_resource(cluster: TestCluster) -> None:
    codes = alter(
        cluster,
        resource(BROKER, "", ("log.retention.ms", SET, "7")),
        resource(BROKER, "1", ("log.retention.ms", SET, "8")),
        resource(GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")),
        resource(METRICS, "m", ("interval.ms", SET, "1000"), ("match", SET, "client_id=app.*")),
    )
    assert codes == [ErrorCode.NONE] * 4
    image = cluster.image
    assert image.config_of(BROKER, "") == {"log.retention.ms": "7"}
    assert image.config_of(BROKER, "1") == {"log.retention.ms": "8"}
    assert image.config_of(GROUP, "g") == {"consumer.session.timeout.ms": "50000"}
    assert image.config_of(METRICS, "m") == {"interval.ms": "1000", "match": "client_id=app.*"}


def test_another_brokers_configs_are_that_brokers_to_judge() -> None:
    """A listener of its own, say, which the node of this controller does not have."""
    cluster = TestCluster((1, 2))
    codes = alter(
        cluster,
        resource(BROKER, "1", ("log.cleaner.threads", SET, "many")),
        resource(BROKER, "2", ("log.cleaner.threads", SET, "many")),
    )
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (resource(TOPIC, "nobody", ("segment.ms", SET, "9")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (resource(TOPIC, "", ("segment.ms", SET, "9")), ErrorCode.INVALID_REQUEST),
        (resource(TOPIC, "a b", ("segment.ms", SET, "9")), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (resource(TOPIC, "t", ("retention.eons", SET, "9")), ErrorCode.INVALID_CONFIG),
        (resource(TOPIC, "t", ("segment.ms", SET, "x")), ErrorCode.INVALID_CONFIG),
        (resource(TOPIC, "t", ("segment.ms", SET, None)), ErrorCode.INVALID_REQUEST),
        (resource(TOPIC, "t", ("segment.ms", APPEND, "1")), ErrorCode.INVALID_CONFIG),
        (resource(TOPIC, "t", ("segment.ms", 7, "1")), ErrorCode.INVALID_REQUEST),
        (resource(TOPIC, "t", ("segment.ms", SET, "1"), ("segment.ms", SET, "2")), ErrorCode.INVALID_REQUEST),
        (resource(BROKER, "9", ("log.retention.ms", SET, "9")), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (resource(BROKER, "x", ("log.retention.ms", SET, "9")), ErrorCode.INVALID_REQUEST),
        (resource(BROKER, "1", ("num.partitions", SET, "9")), ErrorCode.INVALID_REQUEST),
        (resource(BROKER, "1", ("log.retention.ms", SET, "x")), ErrorCode.INVALID_REQUEST),
        (resource(BROKER, "1", ("log.retention.ms", APPEND, "1")), ErrorCode.INVALID_CONFIG),
        (resource(BROKER, "", ("ssl.keystore.location", SET, "/x")), ErrorCode.INVALID_REQUEST),
        (resource(GROUP, "", ("consumer.session.timeout.ms", SET, "50000")), ErrorCode.INVALID_REQUEST),
        (resource(GROUP, "g", ("consumer.session.timeout.ms", SET, "1")), ErrorCode.INVALID_CONFIG),
        (resource(METRICS, "", ("interval.ms", SET, "1000")), ErrorCode.INVALID_REQUEST),
        (resource(METRICS, "m", ("interval.ms", SET, "1")), ErrorCode.INVALID_REQUEST),
        (resource(METRICS, "m", ("interval.ms", SET, "x")), ErrorCode.INVALID_CONFIG),
        (resource(METRICS, "m", ("what", SET, "x")), ErrorCode.INVALID_REQUEST),
        (resource(METRICS, "m", ("match", SET, "client_id")), ErrorCode.INVALID_CONFIG),
        (resource(METRICS, "m", ("match", SET, "shoe_size=44")), ErrorCode.INVALID_CONFIG),
        (resource(METRICS, "m", ("match", SET, "client_id=(")), ErrorCode.INVALID_CONFIG),
        (resource(99, "x", ("segment.ms", SET, "9")), ErrorCode.INVALID_REQUEST),
        (resource(ResourceType.BROKER_LOGGER, "1", ("root", SET, "INFO")), ErrorCode.INVALID_REQUEST),
    ],
    ids=lambda value: repr(value)[55:230],
)
def test_what_is_refused_changes_nothing_and_the_rest_is_done(
    cluster: TestCluster, bad: IncrementalAlterConfigsRequestAlterConfigsResource, code: ErrorCode
) -> None:
    cluster.create("other")
    assert alter(cluster, bad, resource(TOPIC, "other", ("segment.ms", SET, "9"))) == [code, ErrorCode.NONE]
    assert cluster.image.configs == {(TOPIC, "t"): {"retention.ms": "1000"}, (TOPIC, "other"): {"segment.ms": "9"}}


def test_a_resource_twice_in_a_request(cluster: TestCluster) -> None:
    twice = [resource(TOPIC, "t", ("segment.ms", SET, value)) for value in ("1", "2")]
    assert alter(cluster, *twice) == [ErrorCode.INVALID_REQUEST] * 2


def test_the_older_way_replaces_everything(cluster: TestCluster) -> None:
    assert replace(cluster, (TOPIC, "t", {"segment.ms": "9"})) == [ErrorCode.NONE]
    assert cluster.image.config_of(TOPIC, "t") == {"segment.ms": "9"}
    assert replace(cluster, (TOPIC, "t", {})) == [ErrorCode.NONE]
    assert cluster.image.config_of(TOPIC, "t") == {}


def test_what_the_older_way_refuses(cluster: TestCluster) -> None:
    codes = replace(
        cluster,
        (TOPIC, "t", {"segment.ms": "x"}),
        (TOPIC, "nobody", {}),
        (GROUP, "g", {"consumer.session.timeout.ms": None}),
        (99, "x", {}),
        (BROKER, "9", {}),
    )
    assert codes == [
        ErrorCode.INVALID_CONFIG,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
    ]
    assert replace(cluster, (TOPIC, "t", {}), (TOPIC, "t", {})) == [ErrorCode.INVALID_REQUEST] * 2
    assert cluster.image.config_of(TOPIC, "t") == {"retention.ms": "1000"}
