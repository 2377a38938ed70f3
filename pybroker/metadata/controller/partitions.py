"""CreatePartitions, and what a new partition is like wherever it comes from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pybroker.base.ids import Uuid
from pybroker.metadata.controller.decisions import Result, Setting, check_record_count
from pybroker.metadata.controller.features import DIRECTORIES, metadata_version
from pybroker.metadata.controller.partition_change import directory_of_new
from pybroker.metadata.controller.placement import place
from pybroker.metadata.image import LeaderRecoveryState, MetadataImage
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.internal.metadata_log import PartitionRecord
from pybroker.protocol.message import Message
from pybroker.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def create_partitions(image: MetadataImage, setting: Setting, request: CreatePartitionsRequest) -> Result:
    records: list[Message] = []
    results: list[CreatePartitionsTopicResult] = []
    named = Counter(topic.name for topic in request.topics)
    answered: set[str] = set()
    for topic in request.topics:
        name = topic.name
        if name in answered:
            continue
        answered.add(name)
        try:
            if named[name] > 1:
                message = f"Topic {name!r} is in the request {named[name]} times; expected once."
                raise KafkaError(ErrorCode.INVALID_REQUEST, message)
            made = _grow(image, setting, topic)
            check_record_count(len(records) + len(made))
        except KafkaError as error:
            results.append(CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=error.message))
        else:
            records += made
            results.append(CreatePartitionsTopicResult(name=name, error_code=ErrorCode.NONE))
    return Result([] if request.validate_only else records, CreatePartitionsResponse(results=results))


def _grow(image: MetadataImage, setting: Setting, request: CreatePartitionsTopic) -> list[Message]:
    topic = image.topics.get(request.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {request.name!r}.")
    present = len(topic.partitions)
    more = request.count - present
    if more <= 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic {request.name!r} has {present} partitions and can only grow; found a new count of {request.count}.",
        )
    if request.assignments is not None and len(request.assignments) != more:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{more} partitions are added; expected as many assignments, found {len(request.assignments)}.",
        )
    check_record_count(more)
    replication_factor = len(topic.partitions[0].replicas)
    if request.assignments is None:
        assignments = place(image.brokers.values(), more, replication_factor, setting.draw_below)
    else:
        assignments = [one.broker_ids for one in request.assignments]
        for index, replicas in enumerate(assignments, present):
            check_replicas(image, index, replicas, replication_factor)
    return [new_partition(image, topic.topic_id, index, replicas) for index, replicas in enumerate(assignments, present)]


def check_replicas(image: MetadataImage, index: int, replicas: Sequence[int], count: int | None) -> None:
    """What an assignment of a new partition by hand would be told; `count` is how many replicas its topic's others have."""
    check_assignment(image, index, replicas)
    if count is not None and len(replicas) != count:
        raise _refusal(index, f"{len(replicas)} brokers; expected {count}, as the topic's other partitions have")
    if not any(image.brokers[broker_id].is_active for broker_id in replicas):
        raise _refusal(index, f"brokers {list(replicas)}, all of which are fenced or shutting down")


def check_assignment(image: MetadataImage, index: int, replicas: Sequence[int]) -> None:
    if not replicas:
        raise _refusal(index, "no broker; expected one or more")
    for broker_id in sorted(replicas):
        if broker_id not in image.brokers:
            raise _refusal(index, f"broker {broker_id}, which is not registered")
    if len(set(replicas)) != len(replicas):
        raise _refusal(index, f"brokers {list(replicas)}; expected each of them once")


def _refusal(index: int, problem: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Partition {index} is assigned to {problem}.")


def new_partition(image: MetadataImage, topic_id: Uuid, index: int, replicas: Sequence[int]) -> PartitionRecord:
    brokers = image.brokers
    isr = [broker_id for broker_id in replicas if brokers[broker_id].is_active]
    knows_directories = metadata_version(image) >= DIRECTORIES
    directories = [directory_of_new(brokers[broker_id]) for broker_id in replicas] if knows_directories else []
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=isr,
        removing_replicas=[],
        adding_replicas=[],
        leader=isr[0],
        leader_recovery_state=LeaderRecoveryState.RECOVERED,
        leader_epoch=0,
        partition_epoch=0,
        directories=directories,
    )
