"""Our controller and Apache Kafka's, in step: every request goes to both, and both must answer and end up the same.

Brokers 11 to 14 exist only as requests. Broker 1 is Apache Kafka's own, real on its side, which tells how partitions are;
no partition of a test is on it. Epochs of brokers are each cluster's own, those of partitions must be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from interop.apache_broker import ApacheBroker
from interop.broker_process import CLUSTER_ID, NODE_ID, ask
from interop.metadata.our_cluster import config_of
from support.waiting import wait_until

from pybroker.base.ids import Uuid
from pybroker.metadata.controller.controller import Controller
from pybroker.metadata.controller.features import ELR_VERSION, METADATA_VERSION, RELEASES
from pybroker.metadata.image import PartitionState, ResourceType
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.metadata_log import ConfigRecord, FeatureLevelRecord
from pybroker.protocol.message import Message
from pybroker.protocol.messages import cluster, log_dirs, partitions
from pybroker.protocol.messages.metadata import DescribeTopicPartitionsRequest, TopicRequest
from pybroker.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

CAUGHT_UP = 1 << 40
OWN = {"broker_epoch", "throttle_time_ms", "error_message", "topic_id", "configs"}


def directory(broker_id: int, number: int = 0) -> Uuid:
    return Uuid(f"{broker_id}'s dir {number}".encode().ljust(16, b"."))


class OurSide:
    def __init__(self, has_elr: bool) -> None:
        random = Random(1)
        config = config_of(
            {
                "process.roles": "controller",
                "node.id": str(NODE_ID),
                "listeners": "CONTROLLER://127.0.0.1:9093",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:9093",
            }
        )
        self._controller = Controller(
            config, CLUSTER_ID, new_uuid=lambda: Uuid(random.randbytes(16)), draw_below=random.randrange
        )
        self._controller.start(0)
        self._replay(FeatureLevelRecord(name=METADATA_VERSION, feature_level=RELEASES["4.3-IV0"]))
        if has_elr:
            self._replay(FeatureLevelRecord(name=ELR_VERSION, feature_level=1))
            kind = ResourceType.BROKER
            self._replay(ConfigRecord(resource_type=kind, resource_name="", name="min.insync.replicas", value="1"))
        self.epochs: dict[int, int] = {}
        self.topic_ids: dict[str, Uuid] = {}

    def ask(self, request: Message, version: int) -> Message:
        asked = type(request).decode(version, request.encode(version))
        result = self._controller.handle(0, asked, version)
        for record in result.records:
            self._replay(record)
        return type(result.response).decode(version, result.response.encode(version))

    def _replay(self, record: Message) -> None:
        self._controller.replay(self._controller.next_offset, 1, record)

    def partition(self, topic: str, index: int = 0) -> PartitionState:
        state = self._controller.image.partition(topic, index)
        assert state is not None
        return state

    def partitions(self) -> dict[str, Any]:
        return {
            name: [
                (
                    one.leader,
                    one.leader_epoch,
                    [*one.replicas],
                    [*one.isr],
                    [*one.eligible_leader_replicas],
                    [*one.last_known_elr],
                )
                for _index, one in sorted(topic.partitions.items())
            ]
            for name, topic in self._controller.image.topics.items()
        }


class ApacheSide:
    def __init__(self, broker: ApacheBroker) -> None:
        self._broker = broker
        self.epochs: dict[int, int] = {}
        self.topic_ids: dict[str, Uuid] = {}

    def ask(self, request: Message, version: int) -> Message:
        response: Message = ask(self._broker.controller, request, version)
        return response

    def partitions(self, names: Sequence[str]) -> dict[str, Any]:
        described = self._broker.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in sorted(names)]))
        return {
            topic.name: [
                (
                    one.leader_id,
                    one.leader_epoch,
                    one.replica_nodes,
                    one.isr_nodes,
                    one.eligible_leader_replicas or [],
                    one.last_known_elr or [],
                )
                for one in topic.partitions
            ]
            for topic in described.topics
            if topic.error_code == ErrorCode.NONE
        }


Side = OurSide | ApacheSide


class TwoControllers:
    def __init__(self, apache: ApacheBroker, *, has_elr: bool) -> None:
        self._ours = OurSide(has_elr)
        self._theirs = ApacheSide(apache)
        self._both(self._registration(1, [directory(1)], 0, -1), 4, of_both=False)
        self._ours.epochs[1] = 1
        self._both(self._heartbeat(1), 2, of_both=False)

    def partition(self, topic: str, index: int = 0) -> PartitionState:
        """As both of them have it."""
        return self._ours.partition(topic, index)

    def _both(self, request: Callable[[Side], Message], version: int, *, of_both: bool = True) -> Any:
        """The answer that both give, without what is each one's own."""
        ours = self._ours.ask(request(self._ours), version)
        if isinstance(ours, cluster.BrokerRegistrationResponse) and ours.error_code == ErrorCode.NONE:
            self._ours.epochs[self._registering] = ours.broker_epoch
        if not of_both:
            return None
        theirs = self._theirs.ask(request(self._theirs), version)
        if isinstance(theirs, cluster.BrokerRegistrationResponse) and theirs.error_code == ErrorCode.NONE:
            self._theirs.epochs[self._registering] = theirs.broker_epoch
        for side, answer in ((self._ours, ours), (self._theirs, theirs)):
            for topic in getattr(answer, "topics", ()):
                if hasattr(topic, "topic_id") and hasattr(topic, "name") and topic.error_code == ErrorCode.NONE:
                    side.topic_ids[topic.name] = topic.topic_id
        assert comparable(ours) == comparable(theirs), (ours, theirs)
        self._check_partitions()
        return comparable(ours)

    def _check_partitions(self) -> None:
        """Apache Kafka's broker learns of a change a moment after it was answered."""
        ours = self._ours.partitions()
        if ours:
            seen: list[Any] = [None]

            def same() -> bool:
                seen[0] = self._theirs.partitions([*ours])
                return bool(seen[0] == ours)

            wait_until(same, 5.0, lambda: f"ours: {ours}\ntheirs: {seen[0]}")

    # Brokers.

    def register(
        self, broker_id: int, *, directories: int = 1, incarnation: int = 0, previous_epoch: bool = False, **changes: Any
    ) -> Any:
        self._registering = broker_id
        own = [directory(broker_id, number) for number in range(directories)]

        def request(side: Side) -> Message:
            previous = side.epochs[broker_id] if previous_epoch else -1
            made = self._registration(broker_id, own, incarnation, previous)(side)
            for name, value in changes.items():
                setattr(made, name, value)
            return made

        return self._both(request, 4)

    def _registration(
        self, broker_id: int, directories: Sequence[Uuid], incarnation: int, previous_epoch: int
    ) -> Callable[[Side], Message]:
        self._registering = broker_id
        features = {METADATA_VERSION: 30, ELR_VERSION: 1, "group.version": 1, "transaction.version": 2, "kraft.version": 1,
                    "share.version": 1, "streams.version": 1}  # fmt: skip

        def request(side: Side) -> Message:
            return cluster.BrokerRegistrationRequest(
                broker_id=broker_id,
                cluster_id=CLUSTER_ID,
                incarnation_id=Uuid(f"{broker_id} the {incarnation}".encode().ljust(16, b".")),
                listeners=[cluster.Listener(name="PLAINTEXT", host="127.0.0.1", port=broker_id, security_protocol=0)],
                features=[
                    cluster.Feature(
                        name=name, min_supported_version=7 if name == METADATA_VERSION else 0, max_supported_version=level
                    )
                    for name, level in features.items()
                ],
                rack=None,
                log_dirs=[*directories],
                previous_broker_epoch=previous_epoch,
            )

        return request

    def _heartbeat(self, broker_id: int, **changes: Any) -> Callable[[Side], Message]:
        fields = {"current_metadata_offset": CAUGHT_UP, "want_fence": False, "want_shut_down": False}

        def request(side: Side) -> Message:
            epoch = side.epochs.get(broker_id, 9999)
            given = {"broker_epoch": epoch} | fields | changes
            return cluster.BrokerHeartbeatRequest(broker_id=broker_id, **given)

        return request

    def heartbeat(self, broker_id: int, **changes: Any) -> Any:
        return self._both(self._heartbeat(broker_id, **changes), 2)

    def fence(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            assert self.heartbeat(broker_id, want_fence=True)["is_fenced"]

    def unfence(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            assert not self.heartbeat(broker_id)["is_fenced"]

    def shut_down(self, broker_id: int) -> Any:
        """The answer that lets the broker go. Apache Kafka's own broker takes a moment to say how far it has read."""
        request = self._heartbeat(broker_id, want_shut_down=True)

        def released() -> Any:
            answer = comparable(self._theirs.ask(request(self._theirs), 2))
            return answer if answer["should_shut_down"] else None

        theirs = wait_until(released, 10.0, lambda: f"Apache Kafka does not let broker {broker_id} go")
        assert comparable(self._ours.ask(request(self._ours), 2)) == theirs
        self._check_partitions()
        return theirs

    def unregister(self, broker_id: int) -> Any:
        return self._both(lambda side: cluster.UnregisterBrokerRequest(broker_id=broker_id), 0)

    # Partitions.

    def create(self, name: str, *assignments: list[int], configs: Mapping[str, str] | None = None) -> Any:
        rows = [CreatableReplicaAssignment(partition_index=at, broker_ids=ids) for at, ids in enumerate(assignments)]
        given = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
        topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=rows, configs=given)
        (row,) = self._both(lambda side: CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)["topics"]
        return row["error_code"]

    def alter_isr(self, topic: str, isr: list[int], *, by: int | None = None, version: int = 3, **changes: Any) -> Any:
        """The one row of the answer. With version 3 the brokers' epochs are said."""
        state = self.partition(topic)
        leader = state.leader if by is None else by

        def request(side: Side) -> Message:
            given = {
                "partition_index": 0,
                "leader_epoch": state.leader_epoch,
                "partition_epoch": state.partition_epoch,
                "leader_recovery_state": 0,
                "new_isr": isr if version < 3 else [],
                "new_isr_with_epochs": [
                    partitions.BrokerState(broker_id=one, broker_epoch=side.epochs.get(one, 1)) for one in isr if version >= 3
                ],
            }
            topic_id = changes.get("topic_id", side.topic_ids[topic])
            given |= {name: value for name, value in changes.items() if name not in ("topic_id", "broker_epoch")}
            row = partitions.AlterPartitionRequestPartitionData(**given)
            return partitions.AlterPartitionRequest(
                broker_id=leader,
                broker_epoch=changes.get("broker_epoch", side.epochs.get(leader, 1)),
                topics=[partitions.AlterPartitionRequestTopicData(topic_id=topic_id, partitions=[row])],
            )

        answer = self._both(request, version)
        return answer["topics"][0]["partitions"][0] if answer["topics"] else answer

    def elect(self, kind: int, *wanted: tuple[str, list[int]], of_all: bool = False) -> Any:
        rows = [partitions.TopicPartitions(topic=name, partitions=indexes) for name, indexes in wanted]
        given = None if of_all else rows
        return self._both(lambda side: partitions.ElectLeadersRequest(election_type=kind, topic_partitions=given), 2)

    def reassign(self, topic: str, replicas: list[int] | None, *, index: int = 0, may_change_count: bool = True) -> Any:
        row = partitions.ReassignablePartition(partition_index=index, replicas=replicas)
        request = partitions.AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=may_change_count,
            topics=[partitions.ReassignableTopic(name=topic, partitions=[row])],
        )
        return self._both(lambda side: request, 1)["responses"][0]["partitions"][0]["error_code"]

    def reassignments(self, *topics: tuple[str, list[int]], of_all: bool = False) -> Any:
        rows = [partitions.ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes) for name, indexes in topics]
        given = None if of_all else rows
        return self._both(lambda side: partitions.ListPartitionReassignmentsRequest(topics=given), 0)["topics"]

    def assign(self, broker_id: int, where: Uuid, topic: str, index: int = 0, **changes: Any) -> Any:
        def request(side: Side) -> Message:
            row = log_dirs.AssignReplicasToDirsRequestPartitionData(partition_index=index)
            topic_id = changes.get("topic_id", side.topic_ids.get(topic))
            rows = [log_dirs.AssignReplicasToDirsRequestTopicData(topic_id=topic_id, partitions=[row])]
            return log_dirs.AssignReplicasToDirsRequest(
                broker_id=broker_id,
                broker_epoch=changes.get("broker_epoch", side.epochs.get(broker_id, 1)),
                directories=[log_dirs.AssignReplicasToDirsRequestDirectoryData(id=where, topics=rows)],
            )

        answer = self._both(request, 0)
        rows = answer["directories"]
        return rows[0]["topics"][0]["partitions"][0]["error_code"] if rows else answer["error_code"]


def comparable(value: Any) -> Any:
    """A message as plain values; error codes by name, lists of structs in an order of their own."""
    if isinstance(value, list):
        return sorted(map(comparable, value), key=repr) if value and hasattr(value[0], "COLUMNS") else value
    if not hasattr(value, "COLUMNS"):
        return value
    fields = {one.name: comparable(getattr(value, one.name)) for one in type(value).COLUMNS if one.name not in OWN}
    if "error_code" in fields:
        fields["error_code"] = ErrorCode(fields["error_code"])
    return fields
