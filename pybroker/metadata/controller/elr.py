"""Eligible leader replicas (KIP-966) hang on min.insync.replicas: what a change of it, and turning them on, takes along."""

from __future__ import annotations

from collections.abc import Iterable

from pybroker.config.broker import Config
from pybroker.metadata.controller.features import ELR_VERSION, is_elr_enabled
from pybroker.metadata.controller.partition_change import MIN_ISR
from pybroker.metadata.image import EMPTY_IMAGE, ConfigResource, MetadataImage, ResourceType
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.internal.metadata_log import ClearElrRecord, ConfigRecord, FeatureLevelRecord
from pybroker.protocol.message import Message


def check_change(image: MetadataImage, resource: ConfigResource, name: str, value: str | None) -> None:
    """All brokers must go by one min.insync.replicas: the cluster always has it, and no broker its own."""
    if name != MIN_ISR or resource.type != ResourceType.BROKER or not is_elr_enabled(image):
        return
    if resource.name:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"With eligible leader replicas no broker has a {MIN_ISR} of its own.")
    if value is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"With eligible leader replicas the cluster needs its {MIN_ISR}.")


def clearing(image: MetadataImage, records: Iterable[Message]) -> list[Message]:
    """Who was eligible under another min.insync.replicas says nothing under the new one."""
    if not is_elr_enabled(image):
        return []
    changed = [record for record in records if isinstance(record, ConfigRecord) and record.name == MIN_ISR]
    return [
        ClearElrRecord(topic_name=record.resource_name if record.resource_type == ResourceType.TOPIC else "")
        for record in changed
    ]


def enabling(image: MetadataImage, config: Config) -> list[Message]:
    """What is written before the feature is turned on; `config` is the controller's file."""
    records: list[Message] = []
    if MIN_ISR not in image.config_of(ResourceType.BROKER, ""):
        value = str(config.int(MIN_ISR))
        records.append(ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name=MIN_ISR, value=value))
    for resource, configs in image.configs.items():
        if resource.type == ResourceType.BROKER and resource.name and MIN_ISR in configs:
            records.append(ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=MIN_ISR, value=None))
    return records


def beginning(records: Iterable[Message], config: Config) -> list[Message]:
    """What follows a new cluster's first `records`, if they turn the feature on."""
    if any(isinstance(one, FeatureLevelRecord) and one.name == ELR_VERSION and one.feature_level > 0 for one in records):
        return enabling(EMPTY_IMAGE, config)
    return []
