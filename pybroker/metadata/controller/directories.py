"""AssignReplicasToDirs: a broker says in which of its directories replicas are. One in a directory that failed is lost."""

from __future__ import annotations

from pybroker.base.ids import Uuid
from pybroker.metadata.controller.brokers import checked_broker
from pybroker.metadata.controller.decisions import Result
from pybroker.metadata.controller.features import DIRECTORIES, metadata_version
from pybroker.metadata.controller.partition_change import Election, PartitionChange, PartitionRules, is_online
from pybroker.metadata.controller.view import View
from pybroker.metadata.image import TopicImage
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.message import Message
from pybroker.protocol.messages.log_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)


def assign_replicas_to_dirs(view: View, request: AssignReplicasToDirsRequest) -> Result:
    if metadata_version(view.image) < DIRECTORIES:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The metadata.version of the cluster knows no log directories.")
    broker = checked_broker(view.image, request.broker_id, request.broker_epoch)
    with_broker = PartitionRules(view.image, view.setting)
    without_broker = PartitionRules(view.image, view.setting, leaving=(broker.id,))
    records: list[Message] = []
    directories = []
    for asked in request.directories:
        is_lost = not is_online(broker, asked.id)
        rules = without_broker if is_lost else with_broker
        topics = []
        for asked_topic in asked.topics:
            topic = view.image.topics_by_id.get(asked_topic.topic_id)
            rows = [
                AssignReplicasToDirsResponsePartitionData(
                    partition_index=one.partition_index,
                    error_code=_assign(rules, topic, one.partition_index, broker.id, asked.id, is_lost, records),
                )
                for one in asked_topic.partitions
            ]
            topics.append(AssignReplicasToDirsResponseTopicData(topic_id=asked_topic.topic_id, partitions=rows))
        directories.append(AssignReplicasToDirsResponseDirectoryData(id=asked.id, topics=topics))
    return Result(records, AssignReplicasToDirsResponse(error_code=ErrorCode.NONE, directories=directories))


def _assign(
    rules: PartitionRules,
    topic: TopicImage | None,
    index: int,
    broker_id: int,
    directory: Uuid,
    is_lost: bool,
    records: list[Message],
) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker_id not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    change = PartitionChange(rules, topic, index)
    change.directories = {broker_id: directory}
    if is_lost:
        change.isr = tuple(one for one in change.isr if one != broker_id)
        if rules.of_topic(topic).is_unclean_allowed:
            change.election = Election.UNCLEAN
    record = change.record()
    if record is not None:
        records.append(record)
    return ErrorCode.NONE
