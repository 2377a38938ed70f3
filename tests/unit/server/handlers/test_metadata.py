from __future__ import annotations

from typing import Any

import pytest
from support.requests import AskedRequest
from unit.server.clusters import CLUSTER_ID, DIRECTORY, Clock, Cluster, Controller, node_file, topic_id_of

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.metadata.image import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from pybroker.network.answers import encode_answer
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.metadata_log import PartitionChangeRecord
from pybroker.protocol.message import Encoded, Message
from pybroker.protocol.messages.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    TopicRequest,
)
from pybroker.server.auto_topics import AutoTopics
from pybroker.server.dispatch import WOULD_BLOCK, Answer
from pybroker.server.dynamic_config import NodeConfig
from pybroker.server.handlers.metadata import MetadataHandlers

NEWEST = 13
NOT_ASKED = -(2**31)
OTHER_DIRECTORY = Uuid(b"e" * 16)
# What Apache Kafka 4.3.1 without an authorizer answers.
ALL_TOPIC_OPERATIONS, ALL_CLUSTER_OPERATIONS = 3576, 8096


class Broker:
    def __init__(self, properties: dict[str, str] | None = None) -> None:
        self.config = NodeConfig(node_file(properties))
        self.cluster = Cluster(self.config.publish)
        self.controller = Controller()
        self.clock = Clock()
        auto_topics = AutoTopics(self.controller, self.config, self.clock.now_ms)
        self.departed: tuple[int, ...] = ()
        self.handlers = MetadataHandlers(
            self.cluster.image_of, self.config, CLUSTER_ID, auto_topics, lambda: self.departed, choose=lambda alive: alive[-1]
        )

    def metadata(
        self, topics: list[MetadataRequestTopic] | None, version: int = NEWEST, listener: str = "PLAINTEXT", **more: Any
    ) -> Any:
        """As a client reads it."""
        one = AskedRequest(MetadataRequest(topics=topics, **more), version, listener_name=listener)
        answer = self.handlers.handle_metadata(one, one.message)  # type: ignore[arg-type]
        assert isinstance(answer, Message), answer
        body = answer.body if isinstance(answer, Encoded) else answer.encode(version)
        return MetadataResponse.decode(version, body)

    def names(
        self, topics: list[MetadataRequestTopic] | None, version: int = NEWEST, **more: Any
    ) -> list[tuple[str | None, str]]:
        found = self.metadata(topics, version, **more).topics
        return [(topic.name, ErrorCode(topic.error_code).name) for topic in found]

    def describe(self, *topics: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
        message = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in topics],
            response_partition_limit=limit,
            cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        )
        one = AskedRequest(message, 0)
        answer = self.handlers.handle_describe_topic_partitions(one, one.message)  # type: ignore[arg-type]
        return type(answer).decode(0, answer.encode(0))


def named(*names: str | None) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


def with_id(topic_id: Uuid, name: str | None = None) -> MetadataRequestTopic:
    return MetadataRequestTopic(name=name, topic_id=topic_id)


@pytest.fixture
def broker() -> Broker:
    made = Broker()
    made.cluster.broker(1, rack="a")
    made.cluster.topic("orders", partitions=2)
    made.cluster.topic("payments")
    return made


# What there is.


@pytest.mark.parametrize("version", range(NEWEST + 1))
def test_a_topic_by_its_name_in_every_version(broker: Broker, version: int) -> None:
    found = broker.metadata(named("orders"), version)

    (node,) = found.brokers
    assert (node.node_id, node.host, node.port) == (1, "host1", 9092)
    assert node.rack == ("a" if version >= 1 else None)
    assert found.cluster_id == (CLUSTER_ID if version >= 2 else None)
    assert found.controller_id == (1 if version >= 1 else -1)
    (topic,) = found.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "orders", False)
    assert topic.topic_id == (topic_id_of("orders") if version >= 10 else ZERO_UUID)
    assert [one.partition_index for one in topic.partitions] == [0, 1]
    partition = topic.partitions[0]
    assert (partition.error_code, partition.leader_id) == (0, 1)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([1], [1], [])
    assert partition.leader_epoch == (5 if version >= 7 else -1)


def test_no_list_of_topics_means_all_of_them(broker: Broker) -> None:
    assert broker.names(None, 1) == [("orders", "NONE"), ("payments", "NONE")]


def test_an_empty_list_is_all_topics_in_version_0_and_none_since_then(broker: Broker) -> None:
    assert broker.names([], 0) == [("orders", "NONE"), ("payments", "NONE")]
    assert broker.names([], 1) == []
    assert broker.names([], NEWEST) == []


def test_a_topic_named_twice_is_answered_once(broker: Broker) -> None:
    assert broker.names(named("payments", "orders", "payments")) == [("payments", "NONE"), ("orders", "NONE")]


def test_internal_topics_are_marked(broker: Broker) -> None:
    broker.cluster.topic("__consumer_offsets")
    assert [topic.is_internal for topic in broker.metadata(named("__consumer_offsets", "orders")).topics] == [True, False]


def test_the_controller_is_any_broker_that_is_alive(broker: Broker) -> None:
    broker.cluster.broker(2)
    broker.cluster.broker(3, fenced=True)
    assert broker.metadata([]).controller_id == 2


def test_without_a_live_broker_there_is_no_controller_to_name() -> None:
    assert Broker().metadata([]).controller_id == -1


def test_authorized_operations_are_told_to_those_who_ask(broker: Broker) -> None:
    untold = broker.metadata(named("orders"), 8)
    assert (untold.cluster_authorized_operations, untold.topics[0].topic_authorized_operations) == (NOT_ASKED, NOT_ASKED)
    asks = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
    told = broker.metadata(named("orders", "nope"), 8, allow_auto_topic_creation=False, **asks)
    assert told.cluster_authorized_operations == ALL_CLUSTER_OPERATIONS
    assert [one.topic_authorized_operations for one in told.topics] == [ALL_TOPIC_OPERATIONS, ALL_TOPIC_OPERATIONS]
    later = broker.metadata(named("orders"), NEWEST, include_topic_authorized_operations=True)
    assert later.topics[0].topic_authorized_operations == ALL_TOPIC_OPERATIONS


# What there is not.


def test_unknown_and_illegal_names_come_after_the_known_ones(broker: Broker) -> None:
    wanted = named("nope", "b@d", "", "..", "x" * 250, "orders")
    assert broker.names(wanted, allow_auto_topic_creation=False) == [
        ("orders", "NONE"),
        ("nope", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("b@d", "INVALID_TOPIC_EXCEPTION"),
        ("", "INVALID_TOPIC_EXCEPTION"),
        ("..", "INVALID_TOPIC_EXCEPTION"),
        ("x" * 250, "INVALID_TOPIC_EXCEPTION"),
    ]
    assert broker.controller.asked == []


def test_a_missing_topic_is_created_if_broker_and_client_agree(broker: Broker) -> None:
    assert broker.names(named("new", "b@d")) == [
        ("new", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("b@d", "INVALID_TOPIC_EXCEPTION"),
    ]
    assert [topic.name for topic in broker.controller.request.topics] == ["new"]


def test_no_topic_is_created_where_the_broker_does_not_allow_it() -> None:
    broker = Broker({"auto.create.topics.enable": "false"})
    assert broker.names(named("new")) == [("new", "UNKNOWN_TOPIC_OR_PARTITION")]
    assert broker.controller.asked == []


def test_topics_by_id_unknown_ones_first_and_those_by_name_left_out(broker: Broker) -> None:
    wanted = [
        with_id(topic_id_of("orders")),
        with_id(Uuid(b"1" * 16)),
        *named("payments"),
        with_id(topic_id_of("orders"), name="payments"),
    ]
    found = broker.metadata(wanted, 12, include_topic_authorized_operations=True)
    unknown, known = found.topics
    assert (unknown.error_code, unknown.name, unknown.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, b"1" * 16)
    assert unknown.topic_authorized_operations == NOT_ASKED
    assert (known.error_code, known.name, known.topic_authorized_operations) == (0, "orders", ALL_TOPIC_OPERATIONS)
    assert broker.controller.asked == []


@pytest.mark.parametrize("version", [10, 11])
def test_ids_are_refused_before_version_12(broker: Broker, version: int) -> None:
    found = broker.metadata([with_id(topic_id_of("orders"), name="orders"), *named("payments")], version)
    assert [(one.error_code, one.name) for one in found.topics] == [
        (ErrorCode.INVALID_REQUEST, "orders"),
        (ErrorCode.INVALID_REQUEST, "payments"),
    ]
    assert (found.brokers, found.cluster_id, found.controller_id) == ([], None, -1)


@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_a_topic_with_neither_name_nor_id_spoils_the_request(broker: Broker, version: int) -> None:
    assert broker.names(named(None, "orders"), version) == [("", "INVALID_REQUEST"), ("orders", "INVALID_REQUEST")]


# Who can be reached.


def test_brokers_are_told_with_the_endpoint_of_the_listener_that_was_asked(broker: Broker) -> None:
    broker.cluster.broker(2, ("PLAINTEXT", "EXTERNAL"))
    assert [(one.node_id, one.port) for one in broker.metadata([], listener="EXTERNAL").brokers] == [(2, 9093)]


def test_a_fenced_broker_is_not_told(broker: Broker) -> None:
    broker.cluster.broker(2, fenced=True)
    assert [one.node_id for one in broker.metadata([]).brokers] == [1]


def test_a_fenced_broker_that_has_just_departed_is_told_but_is_no_controller(broker: Broker) -> None:
    broker.cluster.broker(2, fenced=True)
    broker.departed = (2,)
    answer = broker.metadata([])
    assert ([one.node_id for one in answer.brokers], answer.controller_id) == ([1, 2], 1)
    broker.departed = ()
    assert [one.node_id for one in broker.metadata([]).brokers] == [1]


@pytest.mark.parametrize(
    ("version", "code"),
    [(0, "LEADER_NOT_AVAILABLE"), (5, "LEADER_NOT_AVAILABLE"), (6, "LISTENER_NOT_FOUND"), (13, "LISTENER_NOT_FOUND")],
)
def test_a_leader_without_the_listener_is_named_since_version_6(broker: Broker, version: int, code: str) -> None:
    (topic,) = broker.metadata(named("payments"), version, listener="EXTERNAL").topics
    (partition,) = topic.partitions
    assert (topic.error_code, ErrorCode(partition.error_code).name, partition.leader_id) == (0, code, -1)
    assert partition.offline_replicas == ([1] if version >= 5 else [])


@pytest.mark.parametrize("leader", [-1, 9])
def test_no_leader_or_one_that_is_not_registered_is_not_available(broker: Broker, leader: int) -> None:
    broker.cluster.topic("alone", replicas=(1, 9), isr=(9,), leader=leader)
    (partition,) = broker.metadata(named("alone")).topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([1, 9], [9], [9])


def test_version_0_leaves_out_replicas_that_cannot_be_reached_and_says_so(broker: Broker) -> None:
    broker.cluster.broker(2, fenced=True)
    broker.cluster.topic("two", replicas=(1, 2), isr=(1,))
    (old,) = broker.metadata(named("two"), 0).topics[0].partitions
    assert (old.error_code, old.leader_id) == (ErrorCode.REPLICA_NOT_AVAILABLE, 1)
    assert (old.replica_nodes, old.isr_nodes) == ([1], [1])
    (new,) = broker.metadata(named("two"), 5).topics[0].partitions
    assert (new.error_code, new.replica_nodes, new.offline_replicas) == (0, [1, 2], [2])


@pytest.mark.parametrize(
    ("directory", "offline"),
    [(DIRECTORY, []), (UNASSIGNED_DIRECTORY, []), (OTHER_DIRECTORY, [1]), (LOST_DIRECTORY, [1])],
)
def test_a_replica_in_a_directory_that_its_broker_lost_is_offline(broker: Broker, directory: Uuid, offline: list[int]) -> None:
    broker.cluster.topic("placed", directories=(directory,))
    (partition,) = broker.metadata(named("placed")).topics[0].partitions
    assert partition.offline_replicas == offline


# Answers are kept, but not too long.


def test_a_changed_topic_is_seen_at_once(broker: Broker) -> None:
    assert len(broker.metadata(named("orders")).topics[0].partitions) == 2
    broker.cluster.delete("orders")
    assert broker.names(named("orders"), allow_auto_topic_creation=False) == [("orders", "UNKNOWN_TOPIC_OR_PARTITION")]
    broker.cluster.topic("orders", partitions=3)
    assert len(broker.metadata(named("orders")).topics[0].partitions) == 3
    assert broker.names(None) == [("payments", "NONE"), ("orders", "NONE")]


def test_of_a_topic_only_the_changed_partitions_are_made_anew(broker: Broker) -> None:
    def rows() -> list[Any]:
        one = AskedRequest(MetadataRequest(topics=named("orders")), NEWEST)
        answer = broker.handlers.handle_metadata(one, one.message)  # type: ignore[arg-type]
        assert isinstance(answer, MetadataResponse)
        return answer.topics[0].partitions

    before = rows()
    broker.cluster.apply(PartitionChangeRecord(partition_id=1, topic_id=topic_id_of("orders"), leader=-1))
    after = rows()
    assert after[0] is before[0]
    assert (before[1].leader_id, after[1].leader_id, after[1].leader_epoch) == (1, -1, 6)


def test_a_changed_broker_is_seen_at_once(broker: Broker) -> None:
    broker.metadata(named("orders"))
    broker.cluster.broker(1, fenced=True)
    found = broker.metadata(named("orders"))
    assert found.brokers == []
    assert found.topics[0].partitions[0].offline_replicas == [1]


def large(broker: Broker, message: MetadataRequest, version: int = NEWEST, *, may_block: bool = True) -> Answer:
    one = AskedRequest(message, version, may_block=may_block)
    return broker.handlers.handle_metadata(one, one.message)  # type: ignore[arg-type]


def test_a_large_answer_is_encoded_once_for_all_who_ask_the_same(broker: Broker) -> None:
    broker.cluster.topic("wide", partitions=1000)
    first = large(broker, MetadataRequest(topics=named("wide")))
    assert isinstance(first, Encoded)
    assert large(broker, MetadataRequest(topics=named("wide"))) is first
    assert large(broker, MetadataRequest(topics=named("wide")), 12) is not first
    assert len(MetadataResponse.decode(NEWEST, first.body).topics[0].partitions) == 1000


@pytest.mark.parametrize("version", range(NEWEST + 1))
def test_a_large_answer_leaves_in_the_same_bytes_as_any_other(broker: Broker, version: int) -> None:
    broker.cluster.topic("wide", partitions=1000)
    kept = large(broker, MetadataRequest(topics=named("wide")), version)
    assert isinstance(kept, Encoded)
    assert (kept.KEY, kept.VERSIONS, kept.FLEXIBLE) == (
        MetadataResponse.KEY,
        MetadataResponse.VERSIONS,
        MetadataResponse.FLEXIBLE,
    )
    sent, expected = bytearray(), bytearray()
    encode_answer(kept, version, 7, sent, [])
    encode_answer(MetadataResponse.decode(version, kept.body), version, 7, expected, [])
    assert sent == expected


def test_a_large_answer_of_all_topics_follows_every_change(broker: Broker) -> None:
    for number in range(200):
        broker.cluster.topic(f"t{number}")
    first = large(broker, MetadataRequest(topics=None))
    assert large(broker, MetadataRequest(topics=None)) is first
    broker.cluster.topic("one-more")
    assert ("one-more", "NONE") in broker.names(None)
    broker.cluster.broker(1, fenced=True)
    assert broker.metadata(None).brokers == []


def test_partitions_make_an_answer_large_however_few_topics_they_are_of(broker: Broker) -> None:
    for number in range(5):
        broker.cluster.topic(f"t{number}", partitions=20)
    for wanted in (None, named(*(f"t{number}" for number in range(5)))):
        first = large(broker, MetadataRequest(topics=wanted))
        assert isinstance(first, Encoded)
        assert large(broker, MetadataRequest(topics=wanted)) is first


def test_a_large_answer_with_a_missing_topic_is_not_kept(broker: Broker) -> None:
    for number in range(200):
        broker.cluster.topic(f"t{number}")
    wanted = named(*(f"t{number}" for number in range(200)), "new")
    assert not isinstance(large(broker, MetadataRequest(topics=wanted)), Encoded)
    assert [topic.name for topic in broker.controller.request.topics] == ["new"]


def test_two_large_answers_differ_if_their_topics_do(broker: Broker) -> None:
    for number in range(200):
        broker.cluster.topic(f"t{number}")
    some, others = named(*(f"t{n}" for n in range(100))), named(*(f"t{n}" for n in range(100, 200)))
    assert [name for name, _ in broker.names(some)] == [one.name for one in some]
    assert [name for name, _ in broker.names(others)] == [one.name for one in others]
    assert len(broker.names(None)) == 202


def test_a_network_thread_leaves_a_large_answer_to_others_until_it_is_made(broker: Broker) -> None:
    broker.cluster.topic("wide", partitions=1000)
    for number in range(200):
        broker.cluster.topic(f"t{number}")
    many = named(*(f"t{number}" for number in range(100)))
    for wanted in (named("wide"), [with_id(topic_id_of("wide"))], many, None):
        for version in (12, 13):
            asks = MetadataRequest(topics=wanted)
            assert large(broker, asks, version, may_block=False) is WOULD_BLOCK
            made = large(broker, asks, version)
            assert isinstance(made, Encoded)
            assert large(broker, asks, version, may_block=False) is made
            broker.cluster.topic(f"more-{len(broker.cluster.image.topics)}")


def test_a_network_thread_leaves_few_but_wide_topics_to_others_too(broker: Broker) -> None:
    broker.cluster.topic("wide", partitions=1000)
    assert large(broker, MetadataRequest(topics=None), may_block=False) is WOULD_BLOCK
    made = large(broker, MetadataRequest(topics=None))
    assert large(broker, MetadataRequest(topics=None), may_block=False) is made


def test_a_network_thread_answers_for_a_small_topic_itself(broker: Broker) -> None:
    assert isinstance(large(broker, MetadataRequest(topics=named("orders", "payments")), may_block=False), MetadataResponse)
    assert isinstance(large(broker, MetadataRequest(topics=None), may_block=False), MetadataResponse)


# DescribeTopicPartitions.


def pages(found: Any) -> tuple[list[tuple[str, list[int]]], tuple[str, int] | None]:
    topics = [(topic.name, [one.partition_index for one in topic.partitions]) for topic in found.topics]
    cursor = found.next_cursor
    return topics, None if cursor is None else (cursor.topic_name, cursor.partition_index)


@pytest.fixture
def wide(broker: Broker) -> Broker:
    broker.cluster.topic("archive", partitions=3)
    return broker


def test_all_topics_are_described_in_the_order_of_their_names(wide: Broker) -> None:
    assert pages(wide.describe()) == ([("archive", [0, 1, 2]), ("orders", [0, 1]), ("payments", [0])], None)


def test_a_described_partition_tells_its_eligible_leader_replicas(wide: Broker) -> None:
    wide.cluster.topic("elr", replicas=(1, 2), isr=(1,), eligible_leader_replicas=[2], last_known_elr=[2])
    (topic,) = wide.describe("elr").topics
    assert (topic.topic_id, topic.topic_authorized_operations) == (topic_id_of("elr"), ALL_TOPIC_OPERATIONS)
    (partition,) = topic.partitions
    assert (partition.leader_id, partition.leader_epoch, partition.replica_nodes, partition.isr_nodes) == (1, 5, [1, 2], [1])
    assert (partition.eligible_leader_replicas, partition.last_known_elr, partition.offline_replicas) == ([2], [2], [2])


def test_a_leader_that_cannot_be_reached_is_no_error_here(wide: Broker) -> None:
    wide.cluster.topic("alone", replicas=(9,), leader=9)
    (partition,) = wide.describe("alone").topics[0].partitions
    assert (partition.error_code, partition.leader_id, partition.offline_replicas) == (0, -1, [9])


def test_the_limit_cuts_inside_of_a_topic_and_the_cursor_goes_on_there(wide: Broker) -> None:
    assert pages(wide.describe(limit=4)) == ([("archive", [0, 1, 2]), ("orders", [0])], ("orders", 1))
    assert pages(wide.describe(limit=4, cursor=("orders", 1))) == ([("orders", [1]), ("payments", [0])], None)


def test_a_page_that_ends_with_a_topic_goes_on_at_the_next_one(wide: Broker) -> None:
    assert pages(wide.describe("archive", "zzz", limit=3)) == ([("archive", [0, 1, 2])], ("zzz", 0))
    assert pages(wide.describe("archive", limit=3)) == ([("archive", [0, 1, 2])], None)


@pytest.mark.parametrize("limit", [0, -5])
def test_a_page_has_at_least_one_partition(wide: Broker, limit: int) -> None:
    assert pages(wide.describe(limit=limit)) == ([("archive", [0])], ("archive", 1))


def test_the_broker_has_a_limit_of_its_own() -> None:
    broker = Broker({"max.request.partition.size.limit": "2"})
    broker.cluster.topic("archive", partitions=3)
    assert pages(broker.describe()) == ([("archive", [0, 1])], ("archive", 2))


def test_unknown_and_illegal_names_are_described_as_such(wide: Broker) -> None:
    found = wide.describe("payments", "nope", "b@d", "payments")
    assert [(topic.name, ErrorCode(topic.error_code).name) for topic in found.topics] == [
        ("b@d", "INVALID_TOPIC_EXCEPTION"),
        ("nope", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("payments", "NONE"),
    ]
    assert {topic.topic_authorized_operations for topic in found.topics} == {ALL_TOPIC_OPERATIONS}


def test_a_cursor_on_a_topic_deleted_meanwhile_goes_on_behind_it(wide: Broker) -> None:
    assert pages(wide.describe(cursor=("middle", 3))) == ([("orders", [0, 1]), ("payments", [0])], None)


def test_a_cursor_behind_the_last_partition_finds_none(wide: Broker) -> None:
    assert pages(wide.describe("orders", limit=1, cursor=("orders", 7))) == ([("orders", [])], None)


@pytest.mark.parametrize("cursor", [("archive", 0), ("orders", -1)])
def test_a_cursor_outside_of_the_topics_asked_for_or_before_the_first_partition_is_refused(
    wide: Broker, cursor: tuple[str, int]
) -> None:
    found = wide.describe("orders", cursor=cursor)
    assert [(topic.name, topic.error_code) for topic in found.topics] == [("orders", ErrorCode.INVALID_REQUEST)]
    assert found.topics[0].topic_authorized_operations == NOT_ASKED
