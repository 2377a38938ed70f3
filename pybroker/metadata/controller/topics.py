"""CreateTopics and DeleteTopics.

Every topic of a request is judged for itself, in Apache Kafka's order of checks; what is wrong with the request as a whole
is raised and answers for all of its topics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from pybroker.base.ids import ZERO_UUID, Uuid, uuid_to_text
from pybroker.config.keys import TOPIC
from pybroker.config.problems import errors
from pybroker.config.resources import check_topic, describe_topic
from pybroker.metadata.controller.decisions import Result, Setting, check_record_count
from pybroker.metadata.controller.partitions import check_replicas, new_partition
from pybroker.metadata.controller.placement import place
from pybroker.metadata.controller.topic_names import METADATA_TOPIC, problem_with_name, twin_of
from pybroker.metadata.image import MetadataImage, ResourceType
from pybroker.protocol.errors import ErrorCode, KafkaError, clipped
from pybroker.protocol.internal.metadata_log import ConfigRecord, RemoveTopicRecord, TopicRecord
from pybroker.protocol.message import Message
from pybroker.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

MAX_PARTITIONS_PER_REQUEST = 10_000


def create_topics(image: MetadataImage, setting: Setting, request: CreateTopicsRequest) -> Result:
    _check_partition_count(request, setting)
    records: list[Message] = []
    results: list[CreatableTopicResult] = []
    named = Counter(topic.name for topic in request.topics)
    for topic in request.topics:
        if named[topic.name] > 1:
            continue
        try:
            made, result = _create_topic(image, setting, topic)
        except KafkaError as error:
            results.append(CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.message))
        else:
            records += made
            results.append(result)
    for name, times in named.items():
        if times > 1:
            message = clipped(f"Topic {name!r} is in the request {times} times; expected once.")
            results.append(CreatableTopicResult(name=name, error_code=ErrorCode.INVALID_REQUEST, error_message=message))
    check_record_count(len(records))
    return Result([] if request.validate_only else records, CreateTopicsResponse(topics=results))


def _check_partition_count(request: CreateTopicsRequest, setting: Setting) -> None:
    total = 0
    for topic in request.topics:
        if topic.assignments:
            total += len(topic.assignments)
        else:
            total += max(0, setting.config.int("num.partitions") if topic.num_partitions == -1 else topic.num_partitions)
    if total > MAX_PARTITIONS_PER_REQUEST:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"The request asks for {total} partitions; at most {MAX_PARTITIONS_PER_REQUEST} are created at a time.",
        )


def _create_topic(image: MetadataImage, setting: Setting, topic: CreatableTopic) -> tuple[list[Message], CreatableTopicResult]:
    name = topic.name
    if name == METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{METADATA_TOPIC} is the controllers' own and cannot be created.")
    _check_name(image, name)
    configs = _checked_configs(image, setting, topic)
    assignments = _assigned_by_hand(image, topic) if topic.assignments else _placed(image, setting, topic)
    topic_id = setting.new_uuid()
    records: list[Message] = [TopicRecord(name=name, topic_id=topic_id)]
    records += [
        ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=name, name=key, value=value)
        for key, value in configs.items()
    ]
    records += [new_partition(image, topic_id, index, replicas) for index, replicas in enumerate(assignments)]
    return records, CreatableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(assignments),
        replication_factor=len(assignments[0]),
        configs=list(_described(image, setting, configs)),
    )


def _check_name(image: MetadataImage, name: str) -> None:
    if name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {name!r} exists already.")
    problem = problem_with_name(name)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    twin = twin_of(name, image.topics)
    if twin is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic {name!r} would share the names of its metrics with {twin!r}, where '.' and '_' are the same.",
        )


def _checked_configs(image: MetadataImage, setting: Setting, topic: CreatableTopic) -> dict[str, str]:
    missing = [one.name for one in topic.configs if one.value is None]
    if missing:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Configs without a value: {', '.join(missing)}.")
    configs = {one.name: one.value for one in topic.configs if one.value is not None}
    found = errors(check_topic(configs, setting.effective.of(image).config))
    if found:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "; ".join(problem.message for problem in found))
    return configs


def _assigned_by_hand(image: MetadataImage, topic: CreatableTopic) -> list[list[int]]:
    if topic.replication_factor != -1 or topic.num_partitions != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"With an assignment by hand, num_partitions and replication_factor must be -1; found {topic.num_partitions} "
            f"and {topic.replication_factor}.",
        )
    by_index: dict[int, list[int]] = {}
    count = None
    for assignment in topic.assignments:
        index, replicas = assignment.partition_index, assignment.broker_ids
        if index in by_index:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Partition {index} is assigned more than once.")
        check_replicas(image, index, replicas, count)
        by_index[index], count = replicas, len(replicas)
    if sorted(by_index) != list(range(len(by_index))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The partitions assigned must be 0 to {len(by_index) - 1}; found {sorted(by_index)}.",
        )
    return [by_index[index] for index in range(len(by_index))]


def _placed(image: MetadataImage, setting: Setting, topic: CreatableTopic) -> list[list[int]]:
    replication_factor, partitions = topic.replication_factor, topic.num_partitions
    if replication_factor < -1 or replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"A replication factor must be 1 or more, or -1 for the default; found {replication_factor}.",
        )
    if partitions < -1 or partitions == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"A topic needs 1 partition or more, or -1 for the default; found {partitions}."
        )
    if replication_factor == -1:
        replication_factor = setting.config.int("default.replication.factor")
    if partitions == -1:
        partitions = setting.config.int("num.partitions")
    return place(image.brokers.values(), partitions, replication_factor, setting.draw_below)


def _described(image: MetadataImage, setting: Setting, configs: Mapping[str, str]) -> Iterator[CreatableTopicConfigs]:
    config, levels = setting.effective.of(image)
    for name in sorted(name for name, key in TOPIC.items() if not key.internal):
        described = describe_topic(name, configs, config, levels)
        yield CreatableTopicConfigs(
            name=name,
            # A config of the topic's own is told as it was given, blanks and capitals included.
            value=None if described.sensitive else configs.get(name, described.value),
            read_only=described.read_only,
            config_source=described.source,
            is_sensitive=described.sensitive,
        )


def delete_topics(image: MetadataImage, setting: Setting, request: DeleteTopicsRequest, version: int) -> Result:
    if not setting.config.flag("delete.topic.enable"):
        code = ErrorCode.INVALID_REQUEST if version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
        raise KafkaError(code, "This cluster deletes no topics: delete.topic.enable=false.")
    names = list(request.topic_names)
    ids: list[Uuid] = []
    results: list[DeletableTopicResult] = []
    for one in request.topics:
        if one.name is not None and one.topic_id != ZERO_UUID:
            results.append(_refused(one.name, one.topic_id, "A topic is named by its name or by its id; found both."))
        elif one.name is not None:
            names.append(one.name)
        elif one.topic_id != ZERO_UUID:
            ids.append(one.topic_id)
        else:
            results.append(_refused(None, ZERO_UUID, "Expected the name or the id of a topic; found neither."))
    records: list[Message] = []
    named, identified = Counter(names), Counter(ids)
    taken = set(identified)
    by_name: list[DeletableTopicResult] = []
    for name, times in named.items():
        topic = image.topics.get(name)
        if times > 1:
            by_name.append(_refused(name, ZERO_UUID, f"Topic {name!r} is in the request {times} times; expected once."))
        elif topic is None:
            by_name.append(_deleted(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name!r}."))
        elif topic.topic_id in taken:
            # Both ways to name it fall away, and the answer is given once.
            del identified[topic.topic_id]
            message = f"Topic {name!r} is in the request by its name and by its id; expected one of them."
            by_name.append(_refused(name, topic.topic_id, message))
        else:
            records.append(RemoveTopicRecord(topic_id=topic.topic_id))
            by_name.append(_deleted(name, topic.topic_id, ErrorCode.NONE))
    for topic_id, times in identified.items():
        topic = image.topics_by_id.get(topic_id)
        shown = uuid_to_text(topic_id)
        if times > 1:
            results.append(_refused(None, topic_id, f"Topic id {shown} is in the request {times} times; expected once."))
        elif topic is None:
            results.append(_deleted(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, f"There is no topic with the id {shown}."))
        else:
            records.append(RemoveTopicRecord(topic_id=topic_id))
            results.append(_deleted(topic.name, topic_id, ErrorCode.NONE))
    check_record_count(len(records))
    return Result(records, DeleteTopicsResponse(responses=results + by_name))


def _refused(name: str | None, topic_id: Uuid, message: str) -> DeletableTopicResult:
    return _deleted(name, topic_id, ErrorCode.INVALID_REQUEST, message)


def _deleted(name: str | None, topic_id: Uuid, code: ErrorCode, message: str | None = None) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
