from __future__ import annotations

from collections.abc import Iterable

import pytest
from unit.metadata.clusters import registration, uuid

from pybroker.metadata.delta import MetadataDelta, changed_partition
from pybroker.metadata.draft import MetadataReplayError
from pybroker.metadata.image import (
    EMPTY_IMAGE,
    UNASSIGNED_DIRECTORY,
    ConfigResource,
    MetadataImage,
    PartitionState,
    ResourceType,
)
from pybroker.protocol.internal.metadata_log import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    ControllerEndpoint,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from pybroker.protocol.message import Message

ID = uuid("topic id")
TOPIC = ConfigResource(ResourceType.TOPIC, "t")


def partition(index: int, replicas: Iterable[int] = (1, 2, 3), topic_id: bytes = ID, **changes: object) -> PartitionRecord:
    fields: dict[str, object] = {
        "partition_id": index,
        "topic_id": topic_id,
        "replicas": list(replicas),
        "isr": list(replicas),
        "removing_replicas": [],
        "adding_replicas": [],
        "leader": 1,
        "leader_epoch": 0,
        "partition_epoch": 0,
    }
    return PartitionRecord(**(fields | changes))


def config(name: str, value: str | None, resource: ConfigResource = TOPIC) -> ConfigRecord:
    return ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)


def apply(image: MetadataImage, *records: Message) -> tuple[MetadataDelta, MetadataImage]:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta, delta.image(image.offset + len(records), 1)


def image_of(*records: Message) -> MetadataImage:
    return apply(EMPTY_IMAGE, *records)[1]


def test_a_topic_with_its_partitions() -> None:
    delta, image = apply(EMPTY_IMAGE, TopicRecord(name="t", topic_id=ID), partition(0), partition(1))
    assert image.topics["t"] is image.topics_by_id[ID]
    assert sorted(image.topics["t"].partitions) == [0, 1]
    assert image.partition("t", 1) == PartitionState((1, 2, 3), (1, 2, 3), leader=1, directories=(UNASSIGNED_DIRECTORY,) * 3)
    assert image.partition("t", 2) is None
    assert image.partition("u", 0) is None
    assert delta.changed_topics == {ID: {0, 1}}
    assert (image.offset, image.epoch) == (2, 1)


def test_a_change_names_the_partition_and_leaves_the_older_image_as_it_was() -> None:
    old = image_of(TopicRecord(name="t", topic_id=ID), partition(0), partition(1))
    change = PartitionChangeRecord(partition_id=1, topic_id=ID, isr=[2, 3], leader=2)
    delta, image = apply(old, change)
    assert delta.changed_topics == {ID: {1}}
    assert old.partition("t", 1).isr == (1, 2, 3)  # type: ignore[union-attr]
    state = image.partition("t", 1)
    assert state is not None
    assert (state.isr, state.leader, state.leader_epoch, state.partition_epoch) == ((2, 3), 2, 1, 1)
    assert image.partition("t", 0) is old.partition("t", 0)


def test_what_did_not_change_is_shared() -> None:
    old = image_of(TopicRecord(name="t", topic_id=ID), partition(0), config("a", "1"), registration(1))
    _, image = apply(old, FeatureLevelRecord(name="metadata.version", feature_level=30))
    assert image.topics is old.topics
    assert image.brokers is old.brokers
    assert image.configs is old.configs
    assert image.features is not old.features


def test_an_image_taken_from_a_delta_does_not_change_when_the_delta_goes_on() -> None:
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(TopicRecord(name="t", topic_id=ID))
    delta.replay(partition(0))
    delta.replay(config("a", "1"))
    early = delta.image(2, 1)
    delta.replay(partition(1))
    delta.replay(config("a", "2"))
    late = delta.image(4, 1)
    assert sorted(early.topics["t"].partitions) == [0]
    assert early.config_of(*TOPIC) == {"a": "1"}
    assert sorted(late.topics["t"].partitions) == [0, 1]
    assert late.config_of(*TOPIC) == {"a": "2"}
    assert delta.changed_topics == {ID: {0, 1}}


def test_a_leader_epoch_rises_only_with_a_leader() -> None:
    old = PartitionState((1, 2), (1, 2), leader=1, leader_epoch=4, partition_epoch=7)
    shrunk = changed_partition(old, PartitionChangeRecord(partition_id=0, topic_id=ID, isr=[1]))
    assert (shrunk.leader, shrunk.leader_epoch, shrunk.partition_epoch) == (1, 4, 8)
    same = changed_partition(old, PartitionChangeRecord(partition_id=0, topic_id=ID, leader=1))
    assert (same.leader, same.leader_epoch, same.partition_epoch) == (1, 5, 8)


def test_a_change_of_replicas_keeps_the_directories_of_those_that_stay() -> None:
    old = PartitionState((1, 2), (1, 2), leader=1, directories=(uuid("one"), uuid("two")))
    change = PartitionChangeRecord(
        partition_id=0, topic_id=ID, replicas=[2, 3], adding_replicas=[3], removing_replicas=[1], leader_recovery_state=1
    )
    new = changed_partition(old, change)
    assert new.directories == (uuid("two"), UNASSIGNED_DIRECTORY)
    assert new.directory_of(2) == uuid("two")
    assert (new.adding_replicas, new.removing_replicas, new.leader_recovery_state) == ((3,), (1,), 1)
    assert changed_partition(new, PartitionChangeRecord(partition_id=0, topic_id=ID)).leader_recovery_state == 1


def test_eligible_leader_replicas_come_and_are_cleared() -> None:
    other = uuid("other")
    old = image_of(
        TopicRecord(name="t", topic_id=ID),
        partition(0, eligible_leader_replicas=[2], last_known_elr=[3]),
        TopicRecord(name="u", topic_id=other),
        partition(0, topic_id=other, eligible_leader_replicas=[2]),
    )
    state = old.partition("t", 0)
    assert state is not None
    assert (state.eligible_leader_replicas, state.last_known_elr) == ((2,), (3,))
    delta, image = apply(old, ClearElrRecord(topic_name="t"))
    assert image.partition("t", 0).eligible_leader_replicas == ()  # type: ignore[union-attr]
    assert image.partition("u", 0).eligible_leader_replicas == (2,)  # type: ignore[union-attr]
    assert delta.changed_topics == {ID: {0}}
    _, image = apply(old, ClearElrRecord(topic_name=""))
    assert image.partition("u", 0).eligible_leader_replicas == ()  # type: ignore[union-attr]


def test_a_removed_topic_takes_its_configs_with_it() -> None:
    old = image_of(TopicRecord(name="t", topic_id=ID), partition(0), config("a", "1"))
    delta, image = apply(old, RemoveTopicRecord(topic_id=ID))
    assert (image.topics, image.topics_by_id, image.configs) == ({}, {}, {})
    assert delta.deleted_topics == {ID: old.topics["t"]}
    assert delta.changed_configs == {TOPIC}
    assert not delta.changed_topics


def test_a_topic_that_came_and_went_within_a_delta_was_never_there() -> None:
    delta, image = apply(EMPTY_IMAGE, TopicRecord(name="t", topic_id=ID), partition(0), RemoveTopicRecord(topic_id=ID))
    assert (image.topics, delta.changed_topics, delta.deleted_topics) == ({}, {}, {})


def test_a_topic_that_is_made_anew_is_deleted_by_its_old_id_and_new_by_its_new_one() -> None:
    old = image_of(TopicRecord(name="t", topic_id=ID), partition(0))
    again = uuid("again")
    records = (RemoveTopicRecord(topic_id=ID), TopicRecord(name="t", topic_id=again), partition(0, topic_id=again))
    delta, image = apply(old, *records)
    assert (set(delta.deleted_topics), delta.changed_topics) == ({ID}, {again: {0}})
    assert image.topics["t"].topic_id == again
    assert ID not in image.topics_by_id


def test_configs_are_set_and_deleted() -> None:
    old = image_of(config("a", "1"), config("b", "2"))
    delta, image = apply(old, config("a", None), config("b", "3"))
    assert image.config_of(ResourceType.TOPIC, "t") == {"b": "3"}
    assert old.config_of(ResourceType.TOPIC, "t") == {"a": "1", "b": "2"}
    assert delta.changed_configs == {TOPIC}
    _, image = apply(image, config("b", None), config("never", None))
    assert image.configs == {}
    assert image.config_of(ResourceType.TOPIC, "t") == {}


def test_a_feature_at_level_0_is_none() -> None:
    old = image_of(FeatureLevelRecord(name="f", feature_level=2))
    assert old.features == {"f": 2}
    delta, image = apply(old, FeatureLevelRecord(name="f", feature_level=0))
    assert (image.features, delta.changed_features) == ({}, {"f"})


def test_producer_ids_only_go_up() -> None:
    image = image_of(ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=2000))
    assert image.next_producer_id == 2000
    with pytest.raises(MetadataReplayError, match="from 2000 to 1000"):
        apply(image, ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=1000))


def test_a_broker_from_its_registration_to_its_end() -> None:
    delta, image = apply(EMPTY_IMAGE, registration(1, epoch=7, rack="r", fenced=True))
    broker = image.brokers[1]
    assert (broker.epoch, broker.rack, broker.fenced, broker.endpoints["PLAINTEXT"].host) == (7, "r", True, "host-1")
    assert broker.log_dirs == (uuid("directory 1"),)
    assert delta.changed_brokers == {1}
    _, image = apply(image, UnfenceBrokerRecord(id=1, epoch=7))
    assert not image.brokers[1].fenced
    _, image = apply(image, FenceBrokerRecord(id=1, epoch=7))
    assert image.brokers[1].fenced
    change = BrokerRegistrationChangeRecord(
        broker_id=1, broker_epoch=7, fenced=-1, in_controlled_shutdown=1, log_dirs=[ID], cordoned_log_dirs=[ID]
    )
    _, image = apply(image, change)
    broker = image.brokers[1]
    assert (broker.fenced, broker.in_controlled_shutdown, broker.log_dirs, broker.cordoned_log_dirs) == (
        False,
        True,
        (ID,),
        (ID,),
    )
    _, unchanged = apply(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7))
    assert unchanged.brokers[1] == broker
    delta, image = apply(image, UnregisterBrokerRecord(broker_id=1, broker_epoch=7))
    assert (image.brokers, delta.changed_brokers) == ({}, {1})


def test_a_controller_registers() -> None:
    endpoint = ControllerEndpoint(name="CONTROLLER", host="h", port=9093, security_protocol=0)
    record = RegisterControllerRecord(
        controller_id=3, incarnation_id=ID, zk_migration_ready=False, end_points=[endpoint], features=[]
    )
    assert image_of(record).controllers[3].endpoints["CONTROLLER"].port == 9093


def test_a_record_that_says_nothing_moves_the_offset() -> None:
    assert image_of(NoOpRecord()) == MetadataImage(offset=0, epoch=1)


def test_a_transaction_counts_at_its_end() -> None:
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in (BeginTransactionRecord(name="x"), TopicRecord(name="t", topic_id=ID), partition(0)):
        delta.replay(record)
    assert delta.in_transaction
    assert delta.image(2, 1).topics == {}
    delta.replay(EndTransactionRecord())
    assert not delta.in_transaction
    assert list(delta.image(3, 1).topics) == ["t"]


def test_an_aborted_transaction_never_was() -> None:
    delta, image = apply(
        EMPTY_IMAGE, BeginTransactionRecord(), TopicRecord(name="t", topic_id=ID), AbortTransactionRecord(reason="no")
    )
    assert (image.topics, delta.changed_topics, delta.in_transaction) == ({}, {}, False)


@pytest.mark.parametrize(
    ("records", "problem"),
    [
        ([RemoveAccessControlEntryRecord(id=ID)], "is removed, but is not there"),
        ([TopicRecord(name="t", topic_id=ID)] * 2, "topic t is created, but it is there already"),
        ([partition(0)], "which is not there"),
        ([PartitionChangeRecord(partition_id=0, topic_id=ID)], "partition 0 .* changes, but is not there"),
        ([RemoveTopicRecord(topic_id=ID)], "is removed, but is not there"),
        ([ClearElrRecord(topic_name="t")], "topic t are cleared, but it is not there"),
        ([FenceBrokerRecord(id=1, epoch=1)], "broker 1 changes, but is not registered"),
        ([registration(1, epoch=5), UnfenceBrokerRecord(id=1, epoch=4)], "in epoch 4, but is registered with epoch 5"),
        ([BeginTransactionRecord()] * 2, "begins inside another"),
        ([EndTransactionRecord()], "ends that did not begin"),
        ([AbortTransactionRecord()], "is aborted that did not begin"),
    ],
)
def test_a_record_that_does_not_fit_is_a_clear_error(records: list[Message], problem: str) -> None:
    with pytest.raises(MetadataReplayError, match=problem):
        apply(EMPTY_IMAGE, *records)
