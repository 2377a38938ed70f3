"""CreateTopics and DeleteTopics. tests/interop/metadata compares many more cases with Apache Kafka."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from unit.metadata.clusters import TestCluster, topic, uuid

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.metadata.image import UNASSIGNED_DIRECTORY, ResourceType
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.metadata_log import BrokerRegistrationChangeRecord, ConfigRecord
from pybroker.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)


def by_hand(
    name: str, assignments: Sequence[tuple[int, list[int]]], partitions: int = -1, replicas: int = -1
) -> CreatableTopic:
    made = topic(name, partitions, replicas)
    made.assignments = [CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in assignments]
    return made


def create(cluster: TestCluster, *topics: CreatableTopic, validate_only: bool = False) -> dict[str, ErrorCode]:
    response = cluster.ask(CreateTopicsRequest(topics=list(topics), validate_only=validate_only))
    for one in response.topics:
        assert (one.error_code == ErrorCode.NONE) == (one.error_message is None)
    return {one.name: ErrorCode(one.error_code) for one in response.topics}


def delete(
    cluster: TestCluster, *states: tuple[str | None, Uuid], version: int = 6
) -> list[tuple[str | None, Uuid, ErrorCode]]:
    rows = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in states]
    response = cluster.ask(DeleteTopicsRequest(topics=rows, timeout_ms=1), version)
    return [(one.name, one.topic_id, ErrorCode(one.error_code)) for one in response.responses]


def test_a_topic_is_there_after_its_records_are_replayed() -> None:
    cluster = TestCluster()
    result = cluster.create("t", 3)
    made = cluster.image.topics["t"]
    assert (result.topic_id, result.num_partitions, result.replication_factor) == (made.topic_id, 3, 1)
    assert sorted(made.partitions) == [0, 1, 2]
    state = made.partitions[1]
    assert (state.replicas, state.isr, state.leader, state.leader_epoch, state.partition_epoch) == ((1,), (1,), 1, 0, 0)
    assert state.directories == (uuid("directory 1"),)


def test_a_decision_alone_changes_nothing() -> None:
    cluster = TestCluster()
    result = cluster.controller.handle(0, CreateTopicsRequest(topics=[topic("t")]), 7)
    assert len(result.records) == 2
    assert "t" not in cluster.image.topics


@pytest.mark.parametrize("version", [2, 7])
def test_a_name_as_long_as_a_string_can_be_is_refused_in_an_answer_that_can_be_sent(version: int) -> None:
    cluster = TestCluster()
    response = cluster.ask(CreateTopicsRequest(topics=[topic("t" * 32_767)], timeout_ms=1000))
    assert response.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len(response.encode(version)) < 40_000


def test_a_broker_with_two_directories_chooses_itself() -> None:
    cluster = TestCluster()
    change = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=10, log_dirs=[uuid("one"), uuid("two")])
    cluster.replay(change)
    cluster.create("t")
    assert cluster.image.topics["t"].partitions[0].directories == (UNASSIGNED_DIRECTORY,)


def test_the_defaults_are_those_of_the_file() -> None:
    cluster = TestCluster((1, 2, 3), num_partitions="4", default_replication_factor="2")
    result = cluster.create("t", -1, -1)
    assert (result.num_partitions, result.replication_factor) == (4, 2)


def test_fenced_brokers_are_no_part_of_the_isr() -> None:
    cluster = TestCluster((1, 2))
    cluster.fence(2)
    cluster.create("t", 1, 2)
    state = cluster.image.topics["t"].partitions[0]
    assert (state.replicas, state.isr, state.leader) == ((1, 2), (1,), 1)


def test_configs_are_written_and_answered_with_their_sources() -> None:
    cluster = TestCluster(log_retention_ms="5000")
    cluster.replay(ConfigRecord(resource_type=4, resource_name="", name="log.segment.bytes", value="2000000"))
    cluster.replay(ConfigRecord(resource_type=4, resource_name="1", name="message.max.bytes", value="3000000"))
    result = cluster.create("t", configs={"cleanup.policy": "compact"})
    assert cluster.image.config_of(ResourceType.TOPIC, "t") == {"cleanup.policy": "compact"}
    found = {one.name: (one.value, one.config_source) for one in result.configs}
    assert found["cleanup.policy"] == ("compact", 1)
    assert found["max.message.bytes"] == ("3000000", 2)
    assert found["segment.bytes"] == ("2000000", 3)
    assert found["retention.ms"] == ("5000", 4)
    assert found["flush.ms"] == ("9223372036854775807", 5)
    assert list(found) == sorted(found)


def test_configs_are_answered_in_the_words_of_the_request() -> None:
    result = TestCluster().create("t", configs={"retention.ms": " 1000 ", "preallocate": "TRUE"})
    found = {one.name: one.value for one in result.configs}
    assert (found["retention.ms"], found["preallocate"]) == (" 1000 ", "TRUE")


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("has_dot"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("has.dot"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (topic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", configs={"retention.eons": "1"}), ErrorCode.INVALID_CONFIG),
        (topic("t", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (topic("t", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (by_hand("t", [(0, [1])], partitions=1), ErrorCode.INVALID_REQUEST),
        (by_hand("t", [(0, [1])], replicas=1), ErrorCode.INVALID_REQUEST),
        (by_hand("t", [(0, [1]), (0, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (by_hand("t", [(0, [1]), (2, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (by_hand("t", [(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (by_hand("t", [(0, [9])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (by_hand("t", [(0, [1, 1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (by_hand("t", [(0, [1]), (1, [1, 2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (by_hand("t", [(0, [3])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
    ids=lambda value: repr(value)[:120],
)
def test_a_bad_topic_is_refused_and_a_good_one_beside_it_is_made(bad: CreatableTopic, code: ErrorCode) -> None:
    cluster = TestCluster((1, 2, 3))
    cluster.fence(3)
    cluster.create("has.dot")
    assert create(cluster, bad, topic("good")) == {bad.name: code, "good": ErrorCode.NONE}
    assert set(cluster.image.topics) == {"has.dot", "good"}


def test_an_assignment_by_hand_is_kept_as_it_is() -> None:
    cluster = TestCluster((1, 2, 3))
    assert create(cluster, by_hand("t", [(1, [3, 1]), (0, [2, 3])])) == {"t": ErrorCode.NONE}
    partitions = cluster.image.topics["t"].partitions
    assert {index: state.replicas for index, state in partitions.items()} == {0: (2, 3), 1: (3, 1)}
    assert partitions[1].leader == 3


def test_a_topic_twice_in_a_request_is_not_made() -> None:
    cluster = TestCluster()
    codes = create(cluster, topic("twice"), topic("once"), topic("twice"))
    assert codes == {"once": ErrorCode.NONE, "twice": ErrorCode.INVALID_REQUEST}
    assert set(cluster.image.topics) == {"once"}


def test_validate_only_answers_as_if_and_writes_nothing() -> None:
    cluster = TestCluster()
    response = cluster.ask(CreateTopicsRequest(topics=[topic("t", 3), topic("u", 0)], validate_only=True))
    assert [(one.error_code, one.num_partitions) for one in response.topics] == [(0, 3), (ErrorCode.INVALID_PARTITIONS, -1)]
    assert not cluster.image.topics


@pytest.mark.parametrize("counts", [[10_001], [10_000], [6_000, 6_000]])
def test_more_than_a_request_may_write_is_refused_as_a_whole(counts: list[int]) -> None:
    cluster = TestCluster()
    topics = [topic(f"t{number}", count) for number, count in enumerate(counts)]
    assert set(create(cluster, *topics).values()) == {ErrorCode.POLICY_VIOLATION}
    assert not cluster.image.topics


def test_a_topic_is_deleted_by_name_with_its_configs() -> None:
    cluster = TestCluster()
    made = cluster.create("t", configs={"retention.ms": "1"})
    assert delete(cluster, ("t", ZERO_UUID)) == [("t", made.topic_id, ErrorCode.NONE)]
    assert (cluster.image.topics, cluster.image.configs) == ({}, {})
    assert cluster.create("t").error_code == ErrorCode.NONE


def test_a_topic_is_deleted_by_id() -> None:
    cluster = TestCluster()
    made = cluster.create("t")
    assert delete(cluster, (None, made.topic_id)) == [("t", made.topic_id, ErrorCode.NONE)]
    assert not cluster.image.topics


def test_topics_are_deleted_by_names_in_older_versions() -> None:
    cluster = TestCluster()
    cluster.create("t")
    response = cluster.ask(DeleteTopicsRequest(topic_names=["t", "u", "v", "v"], timeout_ms=1), 3)
    codes = {one.name: ErrorCode(one.error_code) for one in response.responses}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {"t": ErrorCode.NONE, "u": unknown, "v": ErrorCode.INVALID_REQUEST}


def test_what_cannot_be_deleted() -> None:
    cluster = TestCluster()
    topic_id = cluster.create("t").topic_id
    nobody = uuid("nobody")
    refused = ErrorCode.INVALID_REQUEST
    assert delete(cluster, ("u", ZERO_UUID)) == [("u", ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert delete(cluster, (None, nobody)) == [(None, nobody, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert delete(cluster, ("t", topic_id)) == [("t", topic_id, refused)]
    assert delete(cluster, (None, ZERO_UUID)) == [(None, ZERO_UUID, refused)]
    assert delete(cluster, ("t", ZERO_UUID), ("t", ZERO_UUID)) == [("t", ZERO_UUID, refused)]
    assert delete(cluster, (None, topic_id), (None, topic_id)) == [(None, topic_id, refused)]
    assert delete(cluster, ("t", ZERO_UUID), (None, topic_id)) == [("t", topic_id, refused)]
    assert set(cluster.image.topics) == {"t"}


@pytest.mark.parametrize(("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (6, ErrorCode.TOPIC_DELETION_DISABLED)])
def test_a_cluster_that_deletes_no_topics(version: int, code: ErrorCode) -> None:
    cluster = TestCluster(delete_topic_enable="false")
    cluster.create("t")
    request = DeleteTopicsRequest(topic_names=["t", "t"], timeout_ms=1)
    if version >= 6:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=ZERO_UUID)], timeout_ms=1)
    response = cluster.ask(request, version)
    assert [(one.name, one.error_code) for one in response.responses] == [("t", code)]
    assert "t" in cluster.image.topics
