"""The same admin requests for two clusters of one node: what each of them answers is compared.

They run in order, on a cluster that starts empty; a later one may build on what an earlier one made. Topic ids differ from
cluster to cluster: `TOPIC_ID_OF` in a request stands for the id that the cluster gave to the topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.protocol.message import Message
from pybroker.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsRequestAlterableConfig,
    AlterConfigsRequestAlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from pybroker.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

NODE = 1
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
UNKNOWN_ID = Uuid(b"no such topic id")


class Case(NamedTuple):
    name: str
    request: Message
    version: int


class TopicIdOf(str):
    """Stands for the id of the topic of that name, which each cluster drew for itself."""


def _topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    configs: Sequence[tuple[str, str | None]] = (),
    assignments: Sequence[tuple[int, list[int]]] = (),
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in assignments],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs],
    )


def _create(name: str, *topics: CreatableTopic, version: int = 7, validate_only: bool = False) -> Case:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=30_000, validate_only=validate_only)
    return Case(f"create: {name}", request, version)


def _delete(name: str, *topics: str | Uuid | TopicIdOf | tuple[str, Uuid | TopicIdOf], version: int = 6) -> Case:
    if version < 6:
        return Case(f"delete: {name}", DeleteTopicsRequest(topic_names=list(topics), timeout_ms=30_000), version)
    states = []
    for one in topics:
        if isinstance(one, tuple):
            states.append(DeleteTopicState(name=one[0], topic_id=one[1]))
        elif isinstance(one, (bytes, TopicIdOf)):
            states.append(DeleteTopicState(name=None, topic_id=one))
        else:
            states.append(DeleteTopicState(name=one, topic_id=ZERO_UUID))
    return Case(f"delete: {name}", DeleteTopicsRequest(topics=states, timeout_ms=30_000), version)


def _grow(name: str, *topics: tuple[str, int, list[list[int]] | None], validate_only: bool = False) -> Case:
    rows = [
        CreatePartitionsTopic(
            name=topic,
            count=count,
            assignments=None if ids is None else [CreatePartitionsAssignment(broker_ids=one) for one in ids],
        )
        for topic, count, ids in topics
    ]
    request = CreatePartitionsRequest(topics=rows, timeout_ms=30_000, validate_only=validate_only)
    return Case(f"grow: {name}", request, 3)


Change = tuple[str, int, str | None]


def _alter(name: str, *resources: tuple[int, str, Sequence[Change]], validate_only: bool = False) -> Case:
    rows = [
        IncrementalAlterConfigsRequestAlterConfigsResource(
            resource_type=kind,
            resource_name=resource,
            configs=[
                IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=operation, value=value)
                for key, operation, value in changes
            ],
        )
        for kind, resource, changes in resources
    ]
    return Case(f"alter: {name}", IncrementalAlterConfigsRequest(resources=rows, validate_only=validate_only), 1)


def _legacy(name: str, *resources: tuple[int, str, Sequence[tuple[str, str | None]]], validate_only: bool = False) -> Case:
    rows = [
        AlterConfigsRequestAlterConfigsResource(
            resource_type=kind,
            resource_name=resource,
            configs=[AlterConfigsRequestAlterableConfig(name=key, value=value) for key, value in configs],
        )
        for kind, resource, configs in resources
    ]
    return Case(f"legacy alter: {name}", AlterConfigsRequest(resources=rows, validate_only=validate_only), 2)


CASES: tuple[Case, ...] = (
    # Topics are created.
    _create("the simplest topic", _topic("plain")),
    _create("version 2 answers without counts and configs", _topic("plain-v2"), version=2),
    _create("version 4", _topic("plain-v4"), version=4),
    _create("version 5 has counts and configs", _topic("plain-v5"), version=5),
    _create("defaults for both counts", _topic("defaults", -1, -1)),
    _create("several at once", _topic("one", 2), _topic("two", 3), _topic("three", 1)),
    _create("one good and one bad", _topic("good"), _topic("bad", 0)),
    _create("exists already", _topic("plain")),
    _create("exists already, and wrong in other ways", _topic("plain", 0, 0, [("nonsense", "1")])),
    _create("twice in the request", _topic("twice"), _topic("twice")),
    _create("twice in the request, the other is made", _topic("thrice"), _topic("thrice"), _topic("only-once")),
    _create("twice, and it exists", _topic("plain"), _topic("plain")),
    _create("validate only", _topic("not-really", 3), validate_only=True),
    _create("validate only finds errors", _topic("not-really", 0), validate_only=True),
    _create("after validate only it can still be created", _topic("not-really", 2)),
    _create("no topics at all"),
    # Their names.
    _create("the longest name", _topic("x" * 249)),
    _create("a name too long", _topic("x" * 250)),
    _create("an empty name", _topic("")),
    _create("a dot", _topic(".")),
    _create("two dots", _topic("..")),
    _create("three dots", _topic("...")),
    _create("a space", _topic("a b")),
    _create("a slash", _topic("a/b")),
    _create("not ASCII", _topic("caf\u00e9")),
    _create("dots and dashes", _topic("a.b-c")),
    _create("collides with a.b-c", _topic("a_b-c")),
    _create("two that collide in one request", _topic("c.d"), _topic("c_d")),
    _create("the metadata topic", _topic("__cluster_metadata")),
    _create("an internal topic", _topic("__consumer_offsets")),
    # Their counts.
    _create("no partitions", _topic("bad", 0)),
    _create("minus two partitions", _topic("bad", -2)),
    _create("no replicas", _topic("bad", 1, 0)),
    _create("minus two replicas", _topic("bad", 1, -2)),
    _create("more replicas than brokers", _topic("bad", 1, 2)),
    _create("both counts are wrong", _topic("bad", 0, 0)),
    _create("as many partitions as one request may have", _topic("wide", 9_990)),
    _create("so many that with the topic's own record it is too much", _topic("too-wide", 10_000)),
    _create("too many partitions", _topic("too-wide", 10_001)),
    _create("too many partitions by default counts", *(_topic(f"many-{number}", 4_000) for number in range(3))),
    _create("too many partitions in two topics", _topic("half", 6_000), _topic("other-half", 6_000)),
    _create("too many partitions, validated only", _topic("too-wide", 10_001), validate_only=True),
    # Assignments by hand.
    _create("by hand", _topic("by-hand", -1, -1, assignments=[(0, [NODE]), (1, [NODE])])),
    _create("by hand, in any order", _topic("by-hand-2", -1, -1, assignments=[(1, [NODE]), (0, [NODE])])),
    _create("by hand, with a partition count", _topic("bad", 1, -1, assignments=[(0, [NODE])])),
    _create("by hand, with a replication factor", _topic("bad", -1, 1, assignments=[(0, [NODE])])),
    _create("by hand, one partition twice", _topic("bad", -1, -1, assignments=[(0, [NODE]), (0, [NODE])])),
    _create("by hand, with a gap", _topic("bad", -1, -1, assignments=[(0, [NODE]), (2, [NODE])])),
    _create("by hand, not from 0", _topic("bad", -1, -1, assignments=[(1, [NODE])])),
    _create("by hand, no replicas", _topic("bad", -1, -1, assignments=[(0, [])])),
    _create("by hand, a broker that is not there", _topic("bad", -1, -1, assignments=[(0, [7])])),
    _create("by hand, a broker twice", _topic("bad", -1, -1, assignments=[(0, [NODE, NODE])])),
    _create("by hand, replicas of different counts", _topic("bad", -1, -1, assignments=[(0, [NODE]), (1, [NODE, 7])])),
    # Their configs.
    _create("with configs", _topic("configured", 1, 1, [("retention.ms", "1000"), ("cleanup.policy", "compact,delete")])),
    _create("an unknown config", _topic("bad", 1, 1, [("retention.eons", "3")])),
    _create("a config of the wrong type", _topic("bad", 1, 1, [("retention.ms", "soon")])),
    _create("a config out of range", _topic("bad", 1, 1, [("segment.bytes", "1")])),
    _create("a config without a value", _topic("bad", 1, 1, [("retention.ms", None)])),
    _create("the last of two values counts", _topic("twice-set", 1, 1, [("retention.ms", "1"), ("retention.ms", "2")])),
    _create("configs that contradict", _topic("bad", 1, 1, [("min.compaction.lag.ms", "9"), ("max.compaction.lag.ms", "5")])),
    _create("wrong config and wrong count", _topic("bad", 0, 1, [("retention.ms", "soon")])),
    _create("tiered without tiered brokers", _topic("bad", 1, 1, [("remote.storage.enable", "true")])),
    # Partitions are added.
    _grow("by one", ("plain", 2, None)),
    _grow("validate only", ("plain", 3, None), validate_only=True),
    _grow("validate only left nothing behind", ("plain", 3, None)),
    _grow("to what it has", ("plain", 3, None)),
    _grow("to fewer", ("plain", 1, None)),
    _grow("to none", ("plain", 0, None)),
    _grow("to minus one", ("plain", -1, None)),
    _grow("a topic that is not there", ("nobody", 3, None)),
    _grow("twice in the request", ("plain", 4, None), ("plain", 5, None)),
    _grow("one good and one bad", ("one", 3, None), ("two", 1, None)),
    _grow("by hand", ("plain", 5, [[NODE], [NODE]])),
    _grow("by hand, too few", ("plain", 7, [[NODE]])),
    _grow("by hand, too many", ("plain", 6, [[NODE], [NODE]])),
    _grow("by hand, none", ("plain", 6, [])),
    _grow("by hand, a broker that is not there", ("plain", 6, [[7]])),
    _grow("by hand, a broker twice", ("plain", 6, [[NODE, NODE]])),
    _grow("by hand, no replicas", ("plain", 6, [[]])),
    _grow("by hand, another replication factor", ("plain", 6, [[NODE, 7]])),
    _grow("too far", ("plain", 20_000, None)),
    # Configs of topics change.
    _alter("set", (TOPIC, "plain", [("retention.ms", SET, "5000")])),
    _alter("set to the same", (TOPIC, "plain", [("retention.ms", SET, "5000")])),
    _alter("delete", (TOPIC, "plain", [("retention.ms", DELETE, None)])),
    _alter("delete what is not set", (TOPIC, "plain", [("retention.ms", DELETE, None)])),
    _alter("delete an unknown key", (TOPIC, "plain", [("retention.eons", DELETE, None)])),
    _alter("append to a list", (TOPIC, "plain", [("cleanup.policy", APPEND, "compact")])),
    _alter("append what is there", (TOPIC, "plain", [("cleanup.policy", APPEND, "compact")])),
    _alter("subtract from a list", (TOPIC, "plain", [("cleanup.policy", SUBTRACT, "delete")])),
    _alter("subtract the last", (TOPIC, "plain", [("cleanup.policy", SUBTRACT, "compact")])),
    _alter("append to what is no list", (TOPIC, "plain", [("retention.ms", APPEND, "1")])),
    _alter("append to an unknown key", (TOPIC, "plain", [("retention.eons", APPEND, "1")])),
    _alter("an operation that is not there", (TOPIC, "plain", [("retention.ms", 9, "1")])),
    _alter("an unknown key", (TOPIC, "plain", [("retention.eons", SET, "3")])),
    _alter("a value of the wrong type", (TOPIC, "plain", [("retention.ms", SET, "soon")])),
    _alter("no value", (TOPIC, "plain", [("retention.ms", SET, None)])),
    _alter("a key twice", (TOPIC, "plain", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")])),
    _alter("nothing", (TOPIC, "plain", [])),
    _alter("a topic that is not there", (TOPIC, "nobody", [("retention.ms", SET, "1")])),
    _alter("a topic that is not there, wrongly", (TOPIC, "nobody", [("retention.ms", SET, "soon")])),
    _alter("a topic without a name", (TOPIC, "", [("retention.ms", SET, "1")])),
    _alter("a topic with a bad name", (TOPIC, "a b", [("retention.ms", SET, "1")])),
    _alter("a topic twice", (TOPIC, "plain", [("retention.ms", SET, "1")]), (TOPIC, "plain", [("retention.ms", SET, "2")])),
    _alter("one good and one bad", (TOPIC, "one", [("retention.ms", SET, "1")]), (TOPIC, "two", [("retention.ms", SET, "x")])),
    _alter("one good key and one bad", (TOPIC, "one", [("segment.ms", SET, "1"), ("retention.ms", SET, "x")])),
    _alter("validate only", (TOPIC, "plain", [("retention.ms", SET, "1")]), validate_only=True),
    _alter("validate only finds errors", (TOPIC, "plain", [("retention.ms", SET, "x")]), validate_only=True),
    # Of brokers.
    _alter("the cluster's default", (BROKER, "", [("log.retention.ms", SET, "100000")])),
    _alter("this broker", (BROKER, "1", [("log.retention.ms", SET, "200000")])),
    _alter("another broker", (BROKER, "2", [("log.retention.ms", SET, "200000")])),
    _alter("a broker that is no number", (BROKER, "x", [("log.retention.ms", SET, "200000")])),
    _alter("a read-only key", (BROKER, "1", [("num.partitions", SET, "3")])),
    _alter("a read-only key of the cluster", (BROKER, "", [("broker.rack", SET, "a")])),
    _alter("a broker's key for the cluster", (BROKER, "", [("ssl.keystore.location", SET, "/x")])),
    _alter("a broker's value of the wrong type", (BROKER, "1", [("log.retention.ms", SET, "soon")])),
    _alter("a broker's value out of range", (BROKER, "1", [("num.io.threads", SET, "0")])),
    _alter("an unknown key of a broker", (BROKER, "1", [("what.ever", SET, "1")])),
    _alter("an unknown key of the cluster", (BROKER, "", [("what.ever", SET, "1")])),
    _alter("append to a broker's list", (BROKER, "1", [("log.cleanup.policy", APPEND, "compact")])),
    _alter("append to a broker's number", (BROKER, "1", [("log.retention.ms", APPEND, "1")])),
    _alter("a broker's key is deleted", (BROKER, "1", [("log.retention.ms", DELETE, None)])),
    _alter("a broker, validate only", (BROKER, "1", [("log.retention.ms", SET, "3")]), validate_only=True),
    # Of groups and client metrics.
    _alter("a group", (GROUP, "g", [("consumer.session.timeout.ms", SET, "50000")])),
    _alter("a group without a name", (GROUP, "", [("consumer.session.timeout.ms", SET, "50000")])),
    _alter("a group beyond the brokers' limit", (GROUP, "g", [("consumer.session.timeout.ms", SET, "1")])),
    _alter("a group, unknown key", (GROUP, "g", [("what.ever", SET, "1")])),
    _alter("a group, wrong type", (GROUP, "g", [("consumer.session.timeout.ms", SET, "x")])),
    _alter("client metrics", (CLIENT_METRICS, "m", [("interval.ms", SET, "1000"), ("metrics", SET, "a,b")])),
    _alter("client metrics appended", (CLIENT_METRICS, "m", [("metrics", APPEND, "c")])),
    _alter("client metrics without a name", (CLIENT_METRICS, "", [("interval.ms", SET, "1000")])),
    _alter("client metrics too often", (CLIENT_METRICS, "m", [("interval.ms", SET, "1")])),
    _alter("client metrics, wrong type", (CLIENT_METRICS, "m", [("interval.ms", SET, "x")])),
    _alter("client metrics, unknown key", (CLIENT_METRICS, "m", [("what.ever", SET, "1")])),
    _alter("client metrics, a match", (CLIENT_METRICS, "m", [("match", SET, "client_id=app.*")])),
    _alter("client metrics, a bad match", (CLIENT_METRICS, "m", [("match", SET, "client_id")])),
    _alter("client metrics, a match of what is not there", (CLIENT_METRICS, "m", [("match", SET, "shoe_size=44")])),
    _alter("client metrics, no regular expression", (CLIENT_METRICS, "m", [("match", SET, "client_id=(")])),
    _alter("a type that is not there", (99, "x", [("retention.ms", SET, "1")])),
    _alter("no resources"),
    # The older way, which replaces all.
    _legacy("set", (TOPIC, "one", [("retention.ms", "7000")])),
    _legacy("empty", (TOPIC, "one", [])),
    _legacy("no value", (TOPIC, "one", [("retention.ms", None)])),
    _legacy("a key twice", (TOPIC, "one", [("retention.ms", "1"), ("retention.ms", "2")])),
    _legacy("wrong type", (TOPIC, "one", [("retention.ms", "x")])),
    _legacy("a topic that is not there", (TOPIC, "nobody", [("retention.ms", "1")])),
    _legacy("this broker", (BROKER, "1", [("log.retention.ms", "300000")])),
    _legacy("another broker", (BROKER, "2", [("log.retention.ms", "300000")])),
    _legacy("a read-only key", (BROKER, "1", [("num.partitions", "3")])),
    _legacy("the cluster's default", (BROKER, "", [("log.retention.ms", "300000")])),
    _legacy("a group", (GROUP, "g", [("consumer.session.timeout.ms", "50000")])),
    _legacy("client metrics", (CLIENT_METRICS, "m", [("interval.ms", "1000")])),
    _legacy("a type that is not there", (99, "x", [])),
    _legacy("validate only", (TOPIC, "one", [("retention.ms", "1")]), validate_only=True),
    # After which a new topic says where its values come from.
    _create("what the cluster's and the broker's configs change", _topic("late", 1, 1, [("segment.bytes", "2000000")])),
    # Topics are deleted.
    _delete("by name", "plain-v2"),
    _delete("by name in version 1", "plain-v4", version=1),
    _delete("by name in version 5", "plain-v5", version=5),
    _delete("what is not there", "nobody"),
    _delete("what is not there, version 1", "nobody", version=1),
    _delete("a bad name", "a b"),
    _delete("an empty name", ""),
    _delete("a name twice", "two", "two"),
    _delete("a name twice, version 5", "two", "two", version=5),
    _delete("one good and one bad", "three", "nobody"),
    _delete("an id that is not there", UNKNOWN_ID),
    _delete("by id", TopicIdOf("good")),
    _delete("an id twice", TopicIdOf("defaults"), TopicIdOf("defaults")),
    _delete("name and id of one topic", "defaults", TopicIdOf("defaults")),
    _delete("a name with an id", ("defaults", TopicIdOf("defaults"))),
    _delete("neither name nor id", ZERO_UUID),
    _delete("an unknown id twice", UNKNOWN_ID, UNKNOWN_ID),
    _delete("no topics"),
    _create("a deleted name is free again", _topic("plain-v2", 2)),
    _create("a deleted name collides no more", _topic("good", 2)),
)
