"""An image as the records of a snapshot: replayed from nothing they give an equal image.

Records are made one by one as they are asked for, in Apache Kafka's order: features first, since metadata.version says how to
read what follows, then nodes, topics with their partitions, configs, quotas, ids, access control entries, credentials, tokens.
Each comes with its version at the image's metadata.version. What that level has no place for is left out: no record of the
log can have brought it, unless the level was lowered by force.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pybroker.base.ids import Uuid
from pybroker.metadata.acls import acl_records
from pybroker.metadata.controller.features import (
    CONTROLLER_REGISTRATION,
    CORDONED,
    DELEGATION_TOKENS,
    DIRECTORIES,
    ELR,
    METADATA_VERSION,
    SCRAM,
    metadata_version,
    record_version,
)
from pybroker.metadata.image import (
    BrokerState,
    ControllerState,
    MetadataImage,
    PartitionState,
    TopicImage,
)
from pybroker.metadata.quotas import quota_records
from pybroker.metadata.scram import scram_records
from pybroker.metadata.tokens import token_records
from pybroker.protocol.internal.metadata_log import (
    BrokerEndpoint,
    BrokerFeature,
    ConfigRecord,
    ControllerEndpoint,
    ControllerFeature,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
)
from pybroker.protocol.message import Message

NO_BROKER = -1


def image_records(image: MetadataImage) -> Iterator[tuple[Message, int]]:
    level = metadata_version(image)
    for records in _families(image, level):
        for record in records:
            yield record, record_version(type(record), level)


def _families(image: MetadataImage, level: int) -> Iterator[Iterable[Message]]:
    yield _features(image)
    yield (_broker(broker, level) for broker in image.brokers.values())
    if level >= CONTROLLER_REGISTRATION:
        yield map(_controller, image.controllers.values())
    for topic in image.topics.values():
        yield _topic(topic, level)
    yield _configs(image)
    yield quota_records(image.client_quotas)
    if image.next_producer_id:
        yield (ProducerIdsRecord(broker_id=NO_BROKER, broker_epoch=-1, next_producer_id=image.next_producer_id),)
    yield acl_records(image.acls)
    if level >= SCRAM:
        yield scram_records(image.scram_credentials)
    if level >= DELEGATION_TOKENS:
        yield token_records(image.delegation_tokens)


def _features(image: MetadataImage) -> Iterator[Message]:
    if METADATA_VERSION in image.features:
        yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=image.features[METADATA_VERSION])
    for name, level in image.features.items():
        if name != METADATA_VERSION:
            yield FeatureLevelRecord(name=name, feature_level=level)


def _broker(broker: BrokerState, level: int) -> Message:
    record = RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            BrokerEndpoint(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol)
            for one in broker.endpoints.values()
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=one.min_version, max_supported_version=one.max_version)
            for name, one in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
    )
    if level >= DIRECTORIES:
        record.log_dirs = list(broker.log_dirs)
    if level >= CORDONED:
        record.cordoned_log_dirs = list(broker.cordoned_log_dirs)
    return record


def _controller(controller: ControllerState) -> Message:
    return RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=False,
        end_points=[
            ControllerEndpoint(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol)
            for one in controller.endpoints.values()
        ],
        features=[
            ControllerFeature(name=name, min_supported_version=one.min_version, max_supported_version=one.max_version)
            for name, one in controller.features.items()
        ],
    )


def _topic(topic: TopicImage, level: int) -> Iterator[Message]:
    yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
    for index, state in topic.partitions.items():
        yield _partition(topic.topic_id, index, state, level)


def _partition(topic_id: Uuid, index: int, state: PartitionState, level: int) -> Message:
    record = PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(state.replicas),
        isr=list(state.isr),
        removing_replicas=list(state.removing_replicas),
        adding_replicas=list(state.adding_replicas),
        leader=state.leader,
        leader_recovery_state=state.leader_recovery_state,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
    )
    if level >= DIRECTORIES:
        record.directories = list(state.directories)
    if level >= ELR:
        record.eligible_leader_replicas = list(state.eligible_leader_replicas) or None
        record.last_known_elr = list(state.last_known_elr) or None
    return record


def _configs(image: MetadataImage) -> Iterator[Message]:
    for (kind, resource), configs in image.configs.items():
        for name, value in configs.items():
            yield ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)
