"""AlterPartition: the leader of a partition says who is in sync, and that it has recovered.

A leader that is behind the controller is refused, and learns from the log; one that is ahead of it has to do with another
controller. With the ISR it wants a reassignment may be complete, and its leadership over.
"""

from __future__ import annotations

from pybroker.base.ids import Uuid
from pybroker.metadata.controller.brokers import checked_broker
from pybroker.metadata.controller.decisions import Result
from pybroker.metadata.controller.partition_change import Election, PartitionChange, PartitionRules
from pybroker.metadata.controller.view import View
from pybroker.metadata.delta import NO_LEADER_CHANGE, changed_partition
from pybroker.metadata.image import LeaderRecoveryState, MetadataImage, PartitionState, TopicImage
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.partitions import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    BrokerState,
)

_ANY_EPOCH = -1


def alter_partition(view: View, request: AlterPartitionRequest, version: int) -> Result:
    checked_broker(view.image, request.broker_id, request.broker_epoch)
    rules = PartitionRules(view.image, view.setting)
    records: list[Message] = []
    altered: set[tuple[Uuid, int]] = set()
    topics = []
    for asked in request.topics:
        topic = view.image.topics_by_id.get(asked.topic_id)
        rows = []
        for one in asked.partitions:
            if version < 3:
                one.new_isr_with_epochs = [BrokerState(broker_id=replica, broker_epoch=_ANY_EPOCH) for replica in one.new_isr]
            key = (asked.topic_id, one.partition_index)
            if topic is None:
                rows.append(_refused(one, ErrorCode.UNKNOWN_TOPIC_ID))
            elif key in altered:
                rows.append(_refused(one, ErrorCode.INVALID_UPDATE_VERSION))
            else:
                altered.add(key)
                rows.append(_alter(rules, topic, one, request.broker_id, records))
        topics.append(AlterPartitionResponseTopicData(topic_id=asked.topic_id, partitions=rows))
    return Result(records, AlterPartitionResponse(error_code=ErrorCode.NONE, topics=topics))


def _refused(one: AlterPartitionRequestPartitionData, code: ErrorCode) -> AlterPartitionResponsePartitionData:
    return AlterPartitionResponsePartitionData(
        partition_index=one.partition_index, error_code=code, leader_id=0, leader_epoch=0, isr=[], partition_epoch=0
    )


def _alter(
    rules: PartitionRules, topic: TopicImage, one: AlterPartitionRequestPartitionData, broker_id: int, records: list[Message]
) -> AlterPartitionResponsePartitionData:
    partition = topic.partitions.get(one.partition_index)
    if partition is None:
        return _refused(one, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    code = _problem(rules.image, partition, one, broker_id)
    if code is not ErrorCode.NONE:
        return _refused(one, code)
    change = PartitionChange(rules, topic, one.partition_index)
    change.isr = tuple(replica.broker_id for replica in one.new_isr_with_epochs)
    change.recovery_state = one.leader_recovery_state
    if rules.of_topic(topic).is_unclean_allowed:
        change.election = Election.UNCLEAN
    record = change.record()
    if record is not None:
        records.append(record)
        if record.leader not in (broker_id, NO_LEADER_CHANGE):
            return _refused(one, ErrorCode.NEW_LEADER_ELECTED)
        partition = changed_partition(partition, record)
    return AlterPartitionResponsePartitionData(
        partition_index=one.partition_index,
        error_code=ErrorCode.NONE,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


def _problem(
    image: MetadataImage, partition: PartitionState, one: AlterPartitionRequestPartitionData, broker_id: int
) -> ErrorCode:
    if one.leader_epoch > partition.leader_epoch or one.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if one.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if one.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    isr = [replica.broker_id for replica in one.new_isr_with_epochs]
    is_recovering = one.leader_recovery_state == LeaderRecoveryState.RECOVERING
    if (
        len(set(isr)) != len(isr)
        or not set(isr).issubset(partition.replicas)
        or partition.leader not in isr
        or (is_recovering and len(isr) > 1)
        or (is_recovering and partition.leader_recovery_state == LeaderRecoveryState.RECOVERED)
    ):
        return ErrorCode.INVALID_REQUEST
    if not all(_may_be_in_sync(image, replica) for replica in one.new_isr_with_epochs):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _may_be_in_sync(image: MetadataImage, replica: BrokerState) -> bool:
    """A replica that was restarted since the leader saw it may have lost what made it in sync."""
    broker = image.brokers.get(replica.broker_id)
    return broker is not None and broker.is_active and replica.broker_epoch in (_ANY_EPOCH, broker.epoch)
