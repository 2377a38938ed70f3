"""The words that cases are written in, second part: everything but Produce and Fetch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from interop.answers.case import Step
from interop.answers.side import Side
from interop.answers.steps import On, asks, by_topic, on

from pybroker.base.ids import ZERO_UUID
from pybroker.protocol.message import Message
from pybroker.protocol.messages import api_versions, configs, log_dirs, metadata, offsets, topics, transactions

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


# Offsets


def delete_records(*rows: On, timeout_ms: int = 10_000, version: int | None = None) -> Step:
    def build(side: Side, _: int) -> Message:
        return offsets.DeleteRecordsRequest(
            topics=[
                offsets.DeleteRecordsTopic(
                    name=side.name(symbol),
                    partitions=[
                        offsets.DeleteRecordsPartition(partition_index=row.partition, offset=row.fields.get("offset", 0))
                        for row in group
                    ],
                )
                for symbol, group in by_topic(rows)
            ],
            timeout_ms=timeout_ms,
        )

    return asks(21, build, "delete records", version=version)


def deleted_records(symbol: str, before: int) -> Step:
    return delete_records(on(symbol, offset=before), version=2)


def list_offsets(*rows: On, isolation: int = 0, replica_id: int = -1, version: int | None = None) -> Step:
    """Rows are `on("t", 0, at=TIMESTAMP, epoch=…)`."""

    def build(side: Side, chosen: int) -> Message:
        return offsets.ListOffsetsRequest(
            replica_id=replica_id,
            isolation_level=isolation,
            topics=[
                offsets.ListOffsetsTopic(
                    name=side.name(symbol),
                    partitions=[
                        offsets.ListOffsetsPartition(
                            partition_index=row.partition,
                            current_leader_epoch=row.fields.get("epoch", -1),
                            timestamp=row.fields["at"],
                        )
                        for row in group
                    ],
                )
                for symbol, group in by_topic(rows)
            ],
            timeout_ms=10_000,
        )

    return asks(2, build, "list offsets", version=version)


def epoch_end(*rows: On, replica_id: int = -2) -> Step:
    """Rows are `on("t", 0, of=LEADER_EPOCH, epoch=CURRENT)`."""

    def build(side: Side, _: int) -> Message:
        return offsets.OffsetForLeaderEpochRequest(
            replica_id=replica_id,
            topics=[
                offsets.OffsetForLeaderTopic(
                    topic=side.name(symbol),
                    partitions=[
                        offsets.OffsetForLeaderPartition(
                            partition=row.partition,
                            current_leader_epoch=row.fields.get("epoch", -1),
                            leader_epoch=row.fields["of"],
                        )
                        for row in group
                    ],
                )
                for symbol, group in by_topic(rows)
            ],
        )

    return asks(23, build, "end of an epoch")


# Topics


def metadata_of(
    *symbols: str | None,
    auto_create: bool = False,
    ids: bool = False,
    names: bool = True,
    operations: bool = False,
    version: int | None = None,
    everything: bool = False,
) -> Step:
    """`ids` sends topic ids too, `names=False` nothing else; `everything` asks for all topics and looks at the case's."""

    def build(side: Side, chosen: int) -> Message:
        rows = [
            metadata.MetadataRequestTopic(
                name=side.name(symbol) if names and symbol is not None else None,
                topic_id=side.topic_id(symbol) if ids and symbol is not None else ZERO_UUID,
            )
            for symbol in symbols
        ]
        fields: dict[str, Any] = {"allow_auto_topic_creation": auto_create} if chosen >= 4 else {}
        if everything:
            return metadata.MetadataRequest(topics=None if chosen >= 1 else [], **fields)
        if operations:
            fields["include_topic_authorized_operations"] = True
            if chosen <= 10:
                fields["include_cluster_authorized_operations"] = True
        return metadata.MetadataRequest(topics=rows, **fields)

    return asks(3, build, "metadata", version=version, see=_own_topics if everything else None)


def _own_topics(side: Side, answer: Any) -> Any:
    found = {name: row for name, row in (answer["topics"] or {}).items() if side.is_own(name)}
    return answer | {"topics": found}


def learn(*symbols: str) -> Step:
    """Learn the topic ids that this side has chosen."""

    def do(side: Side, _: int | None) -> None:
        rows = [metadata.MetadataRequestTopic(name=side.name(symbol)) for symbol in symbols]
        for found in side.ask(metadata.MetadataRequest(topics=rows, allow_auto_topic_creation=False), 12).topics:
            side.learn_topic_id(found.name, found.topic_id)

    return Step(f"learn ids of {', '.join(symbols)}", do)


def describe_cluster(*, endpoint_type: int = 1, operations: bool = False, fenced: bool = False) -> Step:
    def build(_: Side, chosen: int) -> Message:
        fields: dict[str, Any] = {"endpoint_type": endpoint_type} if chosen >= 1 else {}
        if chosen >= 2:
            fields["include_fenced_brokers"] = fenced
        return metadata.DescribeClusterRequest(include_cluster_authorized_operations=operations, **fields)

    return asks(60, build, "describe cluster")


def describe_partitions(*symbols: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Step:
    def build(side: Side, _: int) -> Message:
        return metadata.DescribeTopicPartitionsRequest(
            topics=[metadata.TopicRequest(name=side.name(symbol)) for symbol in symbols],
            response_partition_limit=limit,
            cursor=None if cursor is None else metadata.Cursor(topic_name=side.name(cursor[0]), partition_index=cursor[1]),
        )

    return asks(75, build, "describe topic partitions")


def new(
    symbol: str = "t%",
    partitions: int = 1,
    replication: int = 1,
    assignments: Mapping[int, Sequence[int]] | Sequence[tuple[int, Sequence[int]]] = (),
    configs: Mapping[str, str | None] | Sequence[tuple[str, str | None]] = (),
) -> dict[str, Any]:
    return {
        "symbol": symbol,
        "partitions": partitions,
        "replication": replication,
        "assignments": list(assignments.items() if isinstance(assignments, Mapping) else assignments),
        "configs": list(configs.items() if isinstance(configs, Mapping) else configs),
    }


def create(*rows: dict[str, Any], validate_only: bool = False, timeout_ms: int = 10_000, version: int | None = None) -> Step:
    """Rows are made by `new`."""

    def build(side: Side, _: int) -> Message:
        return topics.CreateTopicsRequest(
            topics=[
                topics.CreatableTopic(
                    name=side.name(row["symbol"]),
                    num_partitions=row["partitions"],
                    replication_factor=row["replication"],
                    assignments=[
                        topics.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                        for index, brokers in row["assignments"]
                    ],
                    configs=[topics.CreatableTopicConfig(name=key, value=value) for key, value in row["configs"]],
                )
                for row in rows
            ],
            timeout_ms=timeout_ms,
            validate_only=validate_only,
        )

    return asks(19, build, "create topics", version=version, changes=True)


def delete(*symbols: str, ids: bool = False, names: bool = True, timeout_ms: int = 10_000, version: int | None = None) -> Step:
    """By name, or by id, or by both, where the version has it."""

    def build(side: Side, chosen: int) -> Message:
        if chosen < 6:
            return topics.DeleteTopicsRequest(topic_names=[side.name(symbol) for symbol in symbols], timeout_ms=timeout_ms)
        rows = [
            topics.DeleteTopicState(
                name=side.name(symbol) if names else None, topic_id=side.topic_id(symbol) if ids else ZERO_UUID
            )
            for symbol in symbols
        ]
        return topics.DeleteTopicsRequest(topics=rows, timeout_ms=timeout_ms)

    return asks(20, build, "delete topics", version=version, changes=True)


def grow(
    *rows: tuple[str, int] | tuple[str, int, Sequence[Sequence[int]]], validate_only: bool = False, version: int | None = None
) -> Step:
    """Rows are (topic, partitions) or (topic, partitions, replicas of each new one)."""

    def build(side: Side, _: int) -> Message:
        wanted = [
            topics.CreatePartitionsTopic(
                name=side.name(row[0]),
                count=row[1],
                assignments=None
                if len(row) == 2
                else [topics.CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in row[2]],
            )
            for row in rows
        ]
        return topics.CreatePartitionsRequest(topics=wanted, timeout_ms=10_000, validate_only=validate_only)

    return asks(37, build, "create partitions", version=version, changes=True)


# Configs

Resource = tuple[int, str]


def _resource_name(side: Side, resource: Resource) -> str:
    kind, name = resource
    return side.name(name) if kind == TOPIC else name


def describe(
    *resources: Resource,
    keys: Sequence[str] | None = None,
    synonyms: bool = False,
    documentation: bool = False,
    version: int | None = None,
    see: Any = None,
) -> Step:
    def build(side: Side, chosen: int) -> Message:
        rows = [
            configs.DescribeConfigsResource(
                resource_type=resource[0],
                resource_name=_resource_name(side, resource),
                configuration_keys=None if keys is None else list(keys),
            )
            for resource in resources
        ]
        fields: dict[str, Any] = {"include_documentation": documentation} if chosen >= 3 else {}
        return configs.DescribeConfigsRequest(resources=rows, include_synonyms=synonyms, **fields)

    return asks(32, build, "describe configs", version=version, see=see)


def alter(
    *resources: tuple[Resource, Sequence[tuple[int, str, str | None]]], validate_only: bool = False, version: int | None = None
) -> Step:
    """Rows are (resource, [(SET, key, value), …])."""

    def build(side: Side, _: int) -> Message:
        rows = [
            configs.IncrementalAlterConfigsRequestAlterConfigsResource(
                resource_type=resource[0],
                resource_name=_resource_name(side, resource),
                configs=[
                    configs.IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=operation, value=value)
                    for operation, key, value in changes
                ],
            )
            for resource, changes in resources
        ]
        return configs.IncrementalAlterConfigsRequest(resources=rows, validate_only=validate_only)

    return asks(44, build, "alter configs", version=version, changes=True)


def replace_configs(
    *resources: tuple[Resource, Sequence[tuple[str, str | None]]], validate_only: bool = False, version: int | None = None
) -> Step:
    """The old AlterConfigs: rows are (resource, [(key, value), …]), and the resource then has just those."""

    def build(side: Side, _: int) -> Message:
        rows = [
            configs.AlterConfigsRequestAlterConfigsResource(
                resource_type=resource[0],
                resource_name=_resource_name(side, resource),
                configs=[configs.AlterConfigsRequestAlterableConfig(name=key, value=value) for key, value in pairs],
            )
            for resource, pairs in resources
        ]
        return configs.AlterConfigsRequest(resources=rows, validate_only=validate_only)

    return asks(33, build, "replace configs", version=version, changes=True)


def list_resources(*types: int) -> Step:
    """Of topics the case's own are looked at."""

    def build(_: Side, chosen: int) -> Message:
        fields: dict[str, Any] = {"resource_types": list(types)} if chosen >= 1 else {}
        return configs.ListConfigResourcesRequest(**fields)

    def see(side: Side, answer: Any) -> Any:
        rows = answer["config_resources"]
        found = list(rows.values()) if isinstance(rows, dict) else rows
        kept = [row for row in found if row.get("resource_type") != TOPIC or side.is_own(row["resource_name"])]
        return answer | {"config_resources": sorted(kept, key=repr)}

    return asks(74, build, "list config resources", see=see)


# Log directories


def describe_log_dirs(*rows: On, everything: bool = False, nothing: bool = False, where: bool = False) -> Step:
    """`everything` asks for all and looks at the case's; which directory has what is looked at only with `where`."""

    def build(side: Side, _: int) -> Message:
        if everything:
            return log_dirs.DescribeLogDirsRequest(topics=None)
        wanted = [
            log_dirs.DescribableLogDirTopic(
                topic=side.name(symbol), partitions=[] if nothing else [row.partition for row in group]
            )
            for symbol, group in by_topic(rows)
        ]
        return log_dirs.DescribeLogDirsRequest(topics=wanted)

    def see(side: Side, answer: Any) -> Any:
        dirs = answer["results"] or {}
        for found in dirs.values():
            found["topics"] = {name: row for name, row in dict(found["topics"] or {}).items() if side.is_own(name)}
        if where:
            return answer
        merged = [
            (name, index, part)
            for found in dirs.values()
            for name, row in found.pop("topics").items()
            for index, part in row["partitions"].items()
        ]
        return answer | {"results": sorted(map(repr, dirs.values())), "partitions": sorted(merged, key=repr)}

    return asks(35, build, "describe log dirs", see=see)


def move(*rows: tuple[int | str, On], version: int | None = None) -> Step:
    """Rows are (the number of a log directory from 0 on, or a path; the partition)."""

    def build(side: Side, _: int) -> Message:
        return log_dirs.AlterReplicaLogDirsRequest(
            dirs=[
                log_dirs.AlterReplicaLogDir(
                    path=side.log_dirs[path] if isinstance(path, int) else path,
                    topics=[log_dirs.AlterReplicaLogDirTopic(name=side.name(row.topic), partitions=[row.partition])],
                )
                for path, row in rows
            ]
        )

    return asks(34, build, "move to a log dir", version=version)


# Producers


def init_producer(
    *, transactional_id: str | None = None, timeout_ms: int = 60_000, producer_id: str | int | None = None, epoch: int = -1
) -> Step:
    """A producer id may be named by what `producer` has kept."""

    def build(side: Side, chosen: int) -> Message:
        fields: dict[str, Any] = {}
        if producer_id is not None and chosen >= 3:
            fields = {
                "producer_id": side.values[producer_id] if isinstance(producer_id, str) else producer_id,
                "producer_epoch": epoch,
            }
        return transactions.InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, **fields
        )

    return asks(22, build, "init producer id")


def describe_producers(*rows: On) -> Step:
    def build(side: Side, _: int) -> Message:
        return transactions.DescribeProducersRequest(
            topics=[
                transactions.TopicRequest(name=side.name(symbol), partition_indexes=[row.partition for row in group])
                for symbol, group in by_topic(rows)
            ]
        )

    return asks(61, build, "describe producers")


# What is served


def api_versions_of(
    keys: Sequence[int], *, name: str = "same-answer", software: str = "1.0", version: int | None = None
) -> Step:
    """Only `keys` are looked at: a broker may serve more or less."""

    def build(_: Side, chosen: int) -> Message:
        if chosen < 3:
            return api_versions.ApiVersionsRequest()
        return api_versions.ApiVersionsRequest(client_software_name=name, client_software_version=software)

    def see(_: Side, answer: Any) -> Any:
        rows = answer["api_keys"] or {}
        return answer | {"api_keys": {key: row for key, row in rows.items() if int(key) in keys}}

    return asks(18, build, "api versions", version=version, see=see)
