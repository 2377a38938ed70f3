"""Stock clients manage topics: create, describe, list, grow, configure, truncate, delete."""

from __future__ import annotations

import time

import pytest
from interop.broker_process import NODE_ID, BrokerProcess
from interop.clients.catalog import ADMIN, CONFIGS, DELETE_RECORDS, PARTITIONS, clients_with, every_client
from interop.clients.driver import EARLIEST, LATEST, Client, ClientError
from interop.clients.records_on import append, as_records, sample
from support.waiting import wait_until

from pybroker.protocol.errors import ErrorCode

NOW_MS = time.time_ns() // 1_000_000 - 60_000
TOPIC, BROKER = 2, 4
WAIT_S = 20


@clients_with(ADMIN)
def test_a_topic_is_created_described_listed_and_deleted(client: Client, cluster: BrokerProcess, topic: str) -> None:
    client.create_topic(topic, 3, {"cleanup.policy": "compact", "segment.bytes": "1048576"})
    cluster.wait_for_leaders(topic, 3)
    assert client.describe_topic(topic).partitions == dict.fromkeys(range(3), (NODE_ID, (NODE_ID,), (NODE_ID,)))
    assert client.list_topics()[topic] == 3
    client.delete_topic(topic)
    wait_until(lambda: topic not in client.list_topics(), WAIT_S, lambda: f"{topic} is still listed")


@every_client
def test_a_topic_of_seven_partitions_is_described(client: Client, cluster: BrokerProcess, topic: str) -> None:
    cluster.create_topic(topic, partitions=7)
    assert client.describe_topic(topic).partitions == dict.fromkeys(range(7), (NODE_ID, (NODE_ID,), (NODE_ID,)))
    assert client.list_topics()[topic] == 7


@clients_with(ADMIN)
def test_a_topic_is_not_created_twice(client: Client, cluster: BrokerProcess, topic: str) -> None:
    cluster.create_topic(topic)
    with pytest.raises(ClientError) as refused:
        client.create_topic(topic, 3)
    assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert client.describe_topic(topic).partitions.keys() == {0}


@clients_with(ADMIN)
@pytest.mark.parametrize(
    ("name", "partitions", "configs", "error"),
    [
        ("no spaces", 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("none-of-it", 0, {}, ErrorCode.INVALID_PARTITIONS),
        ("unknown-config", 1, {"no.such.config": "1"}, ErrorCode.INVALID_CONFIG),
        ("bad-config", 1, {"retention.ms": "soon"}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_bad_topic_is_refused(client: Client, name: str, partitions: int, configs: dict[str, str], error: ErrorCode) -> None:
    with pytest.raises(ClientError) as refused:
        client.create_topic(name, partitions, configs)
    assert refused.value.code == error
    assert name not in client.list_topics()


@clients_with(ADMIN)
def test_a_topic_that_is_not_there_cannot_be_deleted(client: Client, topic: str) -> None:
    with pytest.raises(ClientError) as refused:
        client.delete_topic(topic)
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@clients_with(PARTITIONS)
def test_a_topic_grows_but_never_shrinks(client: Client, cluster: BrokerProcess, topic: str) -> None:
    cluster.create_topic(topic, partitions=2)
    client.create_partitions(topic, 5)
    cluster.wait_for_leaders(topic, 5)
    assert client.describe_topic(topic).partitions.keys() == set(range(5))
    with pytest.raises(ClientError) as refused:
        client.create_partitions(topic, 4)
    assert refused.value.code == ErrorCode.INVALID_PARTITIONS


@clients_with(CONFIGS)
def test_configs_of_a_topic_are_set_and_reset(client: Client, cluster: BrokerProcess, topic: str) -> None:
    cluster.create_topic(topic, {"segment.bytes": "1048576"})
    found = client.describe_configs(TOPIC, topic)
    assert found["segment.bytes"] == "1048576"
    assert found["retention.ms"] == "604800000"
    client.alter_config(TOPIC, topic, "retention.ms", "3600000")
    wait_until(lambda: client.describe_configs(TOPIC, topic)["retention.ms"] == "3600000", WAIT_S, lambda: "retention.ms stays")
    client.alter_config(TOPIC, topic, "retention.ms", None)
    wait_until(
        lambda: client.describe_configs(TOPIC, topic)["retention.ms"] == "604800000", WAIT_S, lambda: "retention.ms stays"
    )


@clients_with(CONFIGS)
def test_a_bad_config_is_refused(client: Client, cluster: BrokerProcess, topic: str) -> None:
    cluster.create_topic(topic)
    with pytest.raises(ClientError) as refused:
        client.alter_config(TOPIC, topic, "retention.ms", "soon")
    assert refused.value.code == ErrorCode.INVALID_CONFIG
    assert client.describe_configs(TOPIC, topic)["retention.ms"] == "604800000"


@clients_with(CONFIGS)
def test_configs_of_the_broker_are_described(client: Client, cluster: BrokerProcess) -> None:
    found = client.describe_configs(BROKER, str(NODE_ID))
    assert found["node.id"] == str(NODE_ID)
    assert found["num.partitions"] == "3"
    assert found["log.dirs"] == str(cluster.data_dir)


@clients_with(DELETE_RECORDS)
def test_records_are_deleted_up_to_an_offset(client: Client, cluster: BrokerProcess, topic: str) -> None:
    cluster.create_topic(topic)
    messages = sample(20, NOW_MS)
    for start in range(0, 20, 4):
        append(cluster, topic, messages[start : start + 4])
    assert client.delete_records(topic, 9) in (9, -1)
    assert client.list_offset(topic, EARLIEST) == 9
    assert client.list_offset(topic, LATEST) == 20
    assert client.consume(topic, EARLIEST, 11) == as_records(messages)[9:]
    with pytest.raises(ClientError) as refused:
        client.delete_records(topic, 21)
    assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


@every_client
def test_offsets_are_listed_by_end_and_time(client: Client, cluster: BrokerProcess, topic: str) -> None:
    cluster.create_topic(topic, partitions=2)
    for start in range(0, 100, 10):
        append(cluster, topic, sample(100, NOW_MS)[start : start + 10], partition=1)
    assert client.list_offset(topic, EARLIEST, 1) == 0
    assert client.list_offset(topic, LATEST, 1) == 100
    assert client.list_offset(topic, LATEST, 0) == 0
    assert client.list_offset(topic, NOW_MS + 57, 1) == 57
    assert client.list_offset(topic, NOW_MS - 1000, 1) == 0
