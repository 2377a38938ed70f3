from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.metadata.clusters import registration, uuid

from pybroker.base.ids import Uuid
from pybroker.metadata.controller.features import METADATA_VERSION, RELEASES
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.framing import decode_record, encode_record
from pybroker.metadata.image import EMPTY_IMAGE, MetadataImage
from pybroker.metadata.image_records import image_records
from pybroker.protocol.internal import metadata_log as log
from pybroker.protocol.message import Message

LATEST = RELEASES["4.3-IV0"]


def image_of(records: Iterator[Message] | list[Message]) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in records:
        delta.replay(record)
    return delta.image(100, 3)


def level(number: int) -> Message:
    return log.FeatureLevelRecord(name=METADATA_VERSION, feature_level=number)


def partition(rng: random.Random, topic_id: Uuid, index: int) -> Message:
    replicas = rng.sample(range(5), rng.randint(1, 4))
    return log.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=replicas,
        isr=replicas[: rng.randint(0, len(replicas))],
        removing_replicas=replicas[: rng.randint(0, 1)],
        adding_replicas=replicas[: rng.randint(0, 1)],
        leader=rng.choice([-1, *replicas]),
        leader_recovery_state=rng.randint(0, 1),
        leader_epoch=rng.randint(0, 9),
        partition_epoch=rng.randint(0, 99),
        directories=[uuid(f"directory {one}") for one in replicas],
        eligible_leader_replicas=rng.choice([None, replicas[:1]]),
        last_known_elr=rng.choice([None, replicas[-1:]]),
    )


def life_of_a_cluster(rng: random.Random) -> Iterator[Message]:
    """Records of every type, in an order that a controller could have written them in."""
    yield level(LATEST)
    yield log.FeatureLevelRecord(name="group.version", feature_level=1)
    yield log.ZkMigrationStateRecord(zk_migration_state=0)
    for broker_id in range(rng.randint(1, 5)):
        yield registration(broker_id, epoch=broker_id, rack=rng.choice([None, "r"]), fenced=rng.random() < 0.5)
        if rng.random() < 0.5:
            yield log.BrokerRegistrationChangeRecord(
                broker_id=broker_id,
                broker_epoch=broker_id,
                fenced=rng.choice([-1, 0, 1]),
                in_controlled_shutdown=rng.randint(0, 1),
                cordoned_log_dirs=rng.choice([None, [], [uuid("cordoned")]]),
            )
    endpoint = log.ControllerEndpoint(name="C", host="h", port=9093, security_protocol=0)
    feature = log.ControllerFeature(name=METADATA_VERSION, min_supported_version=7, max_supported_version=LATEST)
    yield log.RegisterControllerRecord(
        controller_id=9, incarnation_id=uuid("nine"), zk_migration_ready=False, end_points=[endpoint], features=[feature]
    )
    for number in range(rng.randint(0, 6)):
        topic_id = uuid(f"topic {number}")
        yield log.TopicRecord(name=f"t{number}", topic_id=topic_id)
        for index in range(rng.randint(1, 4)):
            yield partition(rng, topic_id, index)
            if rng.random() < 0.5:
                yield log.PartitionChangeRecord(partition_id=index, topic_id=topic_id, isr=[1], leader=1)
        yield log.ConfigRecord(resource_type=2, resource_name=f"t{number}", name="retention.ms", value=str(number))
        if rng.random() < 0.3:
            yield log.RemoveTopicRecord(topic_id=topic_id)
    for kind, name in ((4, ""), (4, "1"), (16, "metrics"), (32, "group")):
        yield log.ConfigRecord(resource_type=kind, resource_name=name, name="a.key", value=str(rng.randint(0, 9)))
    yield log.ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=1000 * rng.randint(0, 9))
    for number in range(rng.randint(0, 5)):
        entity = [log.EntityData(entity_type="user", entity_name=rng.choice([None, f"user-{number}"]))]
        if rng.random() < 0.5:
            entity.append(log.EntityData(entity_type="client-id", entity_name="c"))
        for key in ("producer_byte_rate", "consumer_byte_rate"):
            yield log.ClientQuotaRecord(entity=entity, key=key, value=rng.uniform(1, 9), remove=rng.random() < 0.2)
        yield log.AccessControlEntryRecord(
            id=uuid(f"acl {number}"),
            resource_type=2,
            resource_name=f"t{number}",
            pattern_type=3,
            principal="User:u",
            host="*",
            operation=rng.randint(2, 12),
            permission_type=rng.randint(2, 3),
        )
        if rng.random() < 0.3:
            yield log.RemoveAccessControlEntryRecord(id=uuid(f"acl {number}"))
        yield log.UserScramCredentialRecord(
            name=f"u{number}", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096 + number
        )
        if rng.random() < 0.3:
            yield log.RemoveUserScramCredentialRecord(name=f"u{number}", mechanism=1)
        yield log.DelegationTokenRecord(
            owner="User:o",
            requester="User:r",
            renewers=["User:a", "User:b"][: rng.randint(0, 2)],
            issue_timestamp=1,
            max_timestamp=9,
            expiration_timestamp=5,
            token_id=f"token {number}",
        )
        if rng.random() < 0.3:
            yield log.RemoveDelegationTokenRecord(token_id=f"token {number}")


@settings(deadline=None)
@given(st.integers())
def test_the_records_of_an_image_give_an_equal_image(seed: int) -> None:
    image = image_of(life_of_a_cluster(random.Random(seed)))
    frames = [encode_record(record, version) for record, version in image_records(image)]
    assert image_of([decode_record(frame) for frame in frames]) == image


def test_every_type_that_stays_in_an_image_is_written() -> None:
    images = [image_of(life_of_a_cluster(random.Random(seed))) for seed in range(20)]
    written = {type(record) for image in images for record, _ in image_records(image)}
    assert written == {
        log.FeatureLevelRecord,
        log.RegisterBrokerRecord,
        log.RegisterControllerRecord,
        log.TopicRecord,
        log.PartitionRecord,
        log.ConfigRecord,
        log.ClientQuotaRecord,
        log.ProducerIdsRecord,
        log.AccessControlEntryRecord,
        log.UserScramCredentialRecord,
        log.DelegationTokenRecord,
    }


def test_the_first_record_is_the_metadata_version() -> None:
    image = image_of([log.FeatureLevelRecord(name="a", feature_level=1), level(LATEST)])
    assert [record.name for record, _ in image_records(image)] == [METADATA_VERSION, "a"]  # type: ignore[attr-defined]


def test_an_empty_image_has_no_records() -> None:
    assert list(image_records(EMPTY_IMAGE)) == []


@pytest.mark.parametrize("number", RELEASES.values())
def test_an_image_can_be_written_at_every_level(number: int) -> None:
    """Whatever the level has no place for stays out, and the rest can be read."""
    image = image_of([*life_of_a_cluster(random.Random(7)), level(number)])
    again = image_of([decode_record(encode_record(record, version)) for record, version in image_records(image)])
    assert again.features == image.features
    assert again.topics.keys() == image.topics.keys()
    assert again.configs == image.configs


def test_records_are_made_when_they_are_asked_for() -> None:
    topic_id = uuid("large")
    rng = random.Random(1)
    image = image_of([log.TopicRecord(name="t", topic_id=topic_id), *(partition(rng, topic_id, at) for at in range(1000))])
    records = image_records(image)
    assert isinstance(next(records)[0], log.TopicRecord)
    assert next(records)[0].partition_id == 0  # type: ignore[attr-defined]
