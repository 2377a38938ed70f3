"""AlterPartitionReassignments and ListPartitionReassignments.

A reassignment begins with all replicas, old and new, in one list. It is complete when the new ones are in sync, which
AlterPartition brings about; then those that are to go go. To cancel it the new ones go instead.
"""

from __future__ import annotations

from pybroker.metadata.controller.decisions import Result, check_record_count
from pybroker.metadata.controller.partition_change import Election, PartitionChange, PartitionRules
from pybroker.metadata.controller.partitions import check_assignment
from pybroker.metadata.controller.view import View
from pybroker.metadata.image import PartitionState, TopicImage
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.internal.metadata_log import PartitionChangeRecord
from pybroker.protocol.message import Message
from pybroker.protocol.messages.partitions import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


def alter_partition_reassignments(view: View, request: AlterPartitionReassignmentsRequest) -> Result:
    rules = PartitionRules(view.image, view.setting)
    records: list[Message] = []
    responses = []
    named: set[tuple[str, int]] = set()
    for topic in request.topics:
        rows = []
        for one in topic.partitions:
            code, message = ErrorCode.NONE, None
            try:
                if (topic.name, one.partition_index) in named:
                    # Apache Kafka decides twice, both times by what was before the request.
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "The request names the partition twice.")
                named.add((topic.name, one.partition_index))
                record = _reassign(rules, topic.name, one, request.allow_replication_factor_change)
                if record is not None:
                    records.append(record)
            except KafkaError as error:
                code, message = error.code, error.message
            rows.append(
                ReassignablePartitionResponse(partition_index=one.partition_index, error_code=code, error_message=message)
            )
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=rows))
    check_record_count(len(records))
    return Result(
        records,
        AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_code=ErrorCode.NONE,
            error_message=None,
            responses=responses,
        ),
    )


def _reassign(
    rules: PartitionRules, name: str, one: ReassignablePartition, may_change_count: bool
) -> PartitionChangeRecord | None:
    topic = rules.image.topics.get(name)
    partition = None if topic is None else topic.partitions.get(one.partition_index)
    if topic is None or partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {one.partition_index} of {name!r}.")
    change = PartitionChange(rules, topic, one.partition_index)
    if one.replicas is None:
        _cancel(rules, topic, partition, change)
        return change.record()
    check_assignment(rules.image, one.partition_index, one.replicas)
    if not may_change_count:
        _check_count(partition, one)
    leaving = sorted(set(partition.replicas).difference(one.replicas))
    coming = set(one.replicas).difference(partition.replicas)
    change.replicas = (*one.replicas, *leaving)
    # Of an earlier reassignment goes on what this one wants, too. Apache Kafka lets all of it go on that is not replaced: a
    # replica that shall come by the one and go by the other never does either.
    change.removing = tuple(leaving)
    change.adding = tuple(sorted(coming.union(set(partition.adding_replicas).intersection(one.replicas))))
    return change.record()


def _check_count(partition: PartitionState, one: ReassignablePartition) -> None:
    assert one.replicas is not None
    present = len(set(partition.replicas).difference(partition.removing_replicas))
    if present != len(one.replicas):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Partition {one.partition_index} has {present} replicas, and the request allows no other number; found "
            f"{len(one.replicas)}.",
        )


def _cancel(rules: PartitionRules, topic: TopicImage, partition: PartitionState, change: PartitionChange) -> None:
    if not partition.is_reassigning:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "The partition is not being reassigned.")
    replicas = tuple(one for one in partition.replicas if one not in partition.adding_replicas)
    isr = tuple(one for one in partition.isr if one not in partition.adding_replicas)
    if not replicas:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "All replicas are new: there is nothing to go back to.")
    is_unclean_allowed = rules.of_topic(topic).is_unclean_allowed
    if not isr:
        if not is_unclean_allowed:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Only new replicas are in sync: to cancel would be an unclean election, which the topic does not allow.",
            )
        isr = replicas[:1]
    if is_unclean_allowed:
        change.election = Election.UNCLEAN
    change.replicas, change.isr, change.adding, change.removing = replicas, isr, (), ()


def list_partition_reassignments(view: View, request: ListPartitionReassignmentsRequest) -> Result:
    ongoing: dict[str, list[OngoingPartitionReassignment]] = {}
    if request.topics is None:
        located = [(topic.name, index) for topic, index in view.index.reassigning.within(view.image)]
    else:
        located = [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    for name, index in located:
        partition = view.image.partition(name, index)
        if partition is not None and partition.is_reassigning:
            ongoing.setdefault(name, []).append(
                OngoingPartitionReassignment(
                    partition_index=index,
                    replicas=list(partition.replicas),
                    adding_replicas=list(partition.adding_replicas),
                    removing_replicas=list(partition.removing_replicas),
                )
            )
    topics = [OngoingTopicReassignment(name=name, partitions=rows) for name, rows in ongoing.items()]
    return Result([], ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None, topics=topics))
