from __future__ import annotations

import time

import pytest
from unit.metadata.clusters import CLUSTER_ID, TestCluster, topic, uuid

from pybroker.metadata.controller.controller import Controller
from pybroker.metadata.controller.features import METADATA_VERSION, RELEASES, record_version
from pybroker.metadata.image import ResourceType
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.metadata_log import (
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from pybroker.protocol.message import Message
from pybroker.protocol.messages import cluster as cluster_messages
from pybroker.protocol.messages import partitions
from pybroker.protocol.messages.metadata import MetadataRequest
from pybroker.protocol.messages.topics import CreateTopicsRequest


def test_a_decision_builds_on_what_was_replayed() -> None:
    cluster = TestCluster()
    request = CreateTopicsRequest(topics=[topic("t")])
    assert [cluster.ask(request).topics[0].error_code for _ in range(2)] == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]


def test_a_transaction_counts_when_it_ends_however_often_the_image_was_looked_at() -> None:
    cluster = TestCluster()
    topic_id = uuid("t")
    cluster.replay(BeginTransactionRecord(), TopicRecord(name="t", topic_id=topic_id))
    assert "t" not in cluster.image.topics
    cluster.replay(TopicRecord(name="u", topic_id=uuid("u")))
    assert "t" not in cluster.image.topics
    cluster.replay(EndTransactionRecord())
    assert set(cluster.image.topics) == {"t", "u"}


def test_offsets_go_on_over_records_that_are_no_metadata() -> None:
    cluster = TestCluster()
    cluster.controller.advance(99, 7)
    assert (cluster.controller.next_offset, cluster.image.offset, cluster.image.epoch) == (100, 99, 7)
    cluster.replay(NoOpRecord())
    assert cluster.image.offset == 100


def test_an_open_transaction_is_known() -> None:
    cluster = TestCluster()
    assert not cluster.controller.in_transaction
    cluster.replay(BeginTransactionRecord())
    assert cluster.controller.in_transaction


def test_only_the_controllers_own_requests_are_handled() -> None:
    assert Controller.handles(CreateTopicsRequest(topics=[]))
    assert not Controller.handles(MetadataRequest(topics=[]))


def test_dynamic_broker_configs_change_what_topics_get() -> None:
    cluster = TestCluster()

    def retention() -> str | None:
        name = f"t{cluster.image.offset}"
        return next(one.value for one in cluster.create(name).configs if one.name == "retention.ms")

    assert retention() == "604800000"
    cluster.replay(ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name="log.retention.ms", value="5"))
    assert retention() == "5"
    cluster.replay(ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name="log.retention.ms", value=None))
    assert retention() == "604800000"


@pytest.mark.parametrize("partitions", [9_000])
def test_a_change_in_a_large_cluster_costs_little(partitions: int) -> None:
    cluster = TestCluster()
    for number in range(3):
        assert cluster.create(f"wide-{number}", partitions).error_code == ErrorCode.NONE
    started = time.process_time()
    for number in range(20):
        cluster.create(f"small-{number}")
    assert time.process_time() - started < 1.0, "20 topics beside 27,000 partitions took a second"


class WritingCluster(TestCluster):
    """One that remembers the records."""

    def __init__(self, brokers: tuple[int, ...]) -> None:
        self.written: list[Message] = []
        super().__init__(brokers)

    def replay(self, *records: Message) -> None:
        self.written += records
        super().replay(*records)


@pytest.mark.parametrize("release", RELEASES)
def test_at_every_level_its_records_can_be_written(release: str) -> None:
    """A cluster of an old level gets no field that its nodes do not know."""
    level = RELEASES[release]
    cluster = WritingCluster((1, 2, 3))
    cluster.replay(FeatureLevelRecord(name=METADATA_VERSION, feature_level=level))
    cluster.written.clear()
    features = [cluster_messages.Feature(name=METADATA_VERSION, min_supported_version=7, max_supported_version=30)]
    cluster.ask(
        cluster_messages.BrokerRegistrationRequest(
            broker_id=4,
            cluster_id=CLUSTER_ID,
            incarnation_id=uuid("four"),
            listeners=[],
            features=features,
            rack=None,
            log_dirs=[uuid("a"), uuid("b")],
        )
    )
    cluster.heartbeat(4, cordoned_log_dirs=[uuid("a")])
    cluster.assign("t", [4, 1, 2], unclean_leader_election_enable="true")
    row = partitions.ReassignablePartition(partition_index=0, replicas=[1, 3])
    topics = [partitions.ReassignableTopic(name="t", partitions=[row])]
    cluster.ask(partitions.AlterPartitionReassignmentsRequest(topics=topics))
    cluster.heartbeat(4, offline_log_dirs=[uuid("b")])
    cluster.heartbeat(1, want_shut_down=True)
    cluster.heartbeat(2, 4, want_fence=True)
    cluster.heartbeat(2, 4)
    cluster.ask(cluster_messages.UnregisterBrokerRequest(broker_id=4))
    kinds = {type(record) for record in cluster.written}
    assert {RegisterBrokerRecord, BrokerRegistrationChangeRecord, PartitionRecord, PartitionChangeRecord} <= kinds
    for record in cluster.written:
        version = record_version(type(record), level)
        assert type(record).decode(version, record.encode(version)) == record
