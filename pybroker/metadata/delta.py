"""What a run of metadata records changes: from one image to the next, and what publishers have to look at.

One thread fills a delta. It copies a map of the image when it first changes it, so a delta costs what it touches, and an
image that was taken from it never changes afterwards: the delta may go on and give later ones. Records between
BeginTransaction and EndTransaction count only at the end of it; until then `in_transaction` is true and images leave them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from pybroker.base.ids import Uuid, uuid_to_text
from pybroker.metadata.acls import replay_acl, replay_removed_acl
from pybroker.metadata.draft import Draft, MetadataReplayError, TrackedDraft
from pybroker.metadata.image import (
    UNASSIGNED_DIRECTORY,
    BrokerState,
    ConfigResource,
    ControllerState,
    Endpoint,
    MetadataImage,
    PartitionState,
    ResourceType,
    TopicImage,
    VersionRange,
)
from pybroker.metadata.quotas import replay_quota
from pybroker.metadata.scram import replay_removed_scram, replay_scram
from pybroker.metadata.tokens import replay_removed_token, replay_token
from pybroker.protocol.internal import metadata_log as records
from pybroker.protocol.message import Message

V = TypeVar("V")

NO_LEADER_CHANGE = -2
NO_RECOVERY_STATE_CHANGE = -1
FENCE, UNFENCE = 1, -1


PartitionWatcher = Callable[[Uuid, int, PartitionState | None, PartitionState | None], None]


def _unwatched(topic_id: Uuid, index: int, old: PartitionState | None, new: PartitionState | None) -> None: ...


class MetadataDelta:
    def __init__(self, image: MetadataImage, watcher: PartitionWatcher = _unwatched) -> None:
        """`watcher` hears of every change to a partition, as it was before and is after it."""
        self._watcher = watcher
        self._topics = Draft(image.topics)
        self._topics_by_id = Draft(image.topics_by_id)
        self._brokers = Draft(image.brokers)
        self._controllers = Draft(image.controllers)
        self._configs = Draft(image.configs)
        self._features = Draft(image.features)
        self._next_producer_id = image.next_producer_id
        # Of these, `changed` says which keys publishers have to look at.
        self.acls = TrackedDraft(image.acls)
        self.scram_credentials = TrackedDraft(image.scram_credentials)
        self.client_quotas = TrackedDraft(image.client_quotas)
        self.delegation_tokens = TrackedDraft(image.delegation_tokens)
        # Maps of partitions and of configs that are ours to change: made here, and in no image yet.
        self._own_partitions: dict[Uuid, dict[int, PartitionState]] = {}
        self._own_configs: dict[ConfigResource, dict[str, str]] = {}
        self._transaction: list[Message] | None = None
        # Lists of replicas and directories are few and partitions many: equal ones are one object.
        self._shared: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        # What is there now and was not, or was different; and what was there before the delta and is no more.
        self.changed_topics: dict[Uuid, set[int]] = {}
        self.deleted_topics: dict[Uuid, TopicImage] = {}
        self.changed_configs: set[ConfigResource] = set()
        self.changed_brokers: set[int] = set()
        self.changed_features: set[str] = set()
        self._new_topics: set[Uuid] = set()

    @property
    def in_transaction(self) -> bool:
        return self._transaction is not None

    def image(self, offset: int, epoch: int) -> MetadataImage:
        """The cluster after the records so far; the last of them has this offset and epoch."""
        self._own_partitions.clear()
        self._own_configs.clear()
        return MetadataImage(
            offset=offset,
            epoch=epoch,
            topics=self._topics.give(),
            topics_by_id=self._topics_by_id.give(),
            brokers=self._brokers.give(),
            controllers=self._controllers.give(),
            configs=self._configs.give(),
            features=self._features.give(),
            next_producer_id=self._next_producer_id,
            acls=self.acls.give(),
            scram_credentials=self.scram_credentials.give(),
            client_quotas=self.client_quotas.give(),
            delegation_tokens=self.delegation_tokens.give(),
        )

    def replay(self, record: Message) -> None:
        kind = type(record)
        if kind is records.BeginTransactionRecord:
            if self._transaction is not None:
                raise MetadataReplayError("a metadata transaction begins inside another one")
            self._transaction = []
        elif kind is records.EndTransactionRecord:
            for one in self._ended("ends"):
                self._apply(one)
        elif kind is records.AbortTransactionRecord:
            self._ended("is aborted")
        elif self._transaction is not None:
            self._transaction.append(record)
        else:
            self._apply(record)

    def _ended(self, what: str) -> list[Message]:
        transaction, self._transaction = self._transaction, None
        if transaction is None:
            raise MetadataReplayError(f"a metadata transaction {what} that did not begin")
        return transaction

    def _apply(self, record: Message) -> None:
        replay = _REPLAY.get(type(record))
        if replay is None:
            raise MetadataReplayError(
                f"{type(record).__name__} (type {record.KEY}) is a metadata record that this release does not handle; "
                "expected a log written by it, or by a cluster that uses no more than it knows"
            )
        replay(self, record)

    # Topics.

    def _topic(self, record: records.TopicRecord) -> None:
        if record.name in self._topics.now:
            raise MetadataReplayError(f"topic {record.name} is created, but it is there already")
        partitions: dict[int, PartitionState] = {}
        self._own_partitions[record.topic_id] = partitions
        self._put_topic(TopicImage(record.name, record.topic_id, partitions))
        self.changed_topics[record.topic_id] = set()
        self._new_topics.add(record.topic_id)

    def _put_topic(self, topic: TopicImage) -> None:
        self._topics.own()[topic.name] = topic
        self._topics_by_id.own()[topic.topic_id] = topic

    def _partition(self, record: records.PartitionRecord) -> None:
        topic_id, index = record.topic_id, record.partition_id
        partitions = self._partitions_of(topic_id, index)
        state = PartitionState(
            replicas=self._share(record.replicas),
            isr=self._share(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            adding_replicas=tuple(record.adding_replicas),
            removing_replicas=tuple(record.removing_replicas),
            directories=self._share(record.directories or [UNASSIGNED_DIRECTORY] * len(record.replicas)),
            eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
            leader_recovery_state=record.leader_recovery_state,
        )
        self._watcher(topic_id, index, partitions.get(index), state)
        partitions[index] = state

    def _share(self, values: list[V]) -> tuple[V, ...]:
        made = tuple(values)
        return self._shared.setdefault(made, made)

    def _partition_change(self, record: records.PartitionChangeRecord) -> None:
        topic = self._topics_by_id.now.get(record.topic_id)
        old = None if topic is None else topic.partitions.get(record.partition_id)
        if old is None:
            raise MetadataReplayError(
                f"partition {record.partition_id} of topic id {uuid_to_text(record.topic_id)} changes, but is not there"
            )
        partitions = self._partitions_of(record.topic_id, record.partition_id)
        new = partitions[record.partition_id] = changed_partition(old, record)
        self._watcher(record.topic_id, record.partition_id, old, new)

    def _partitions_of(self, topic_id: Uuid, index: int) -> dict[int, PartitionState]:
        """The partitions of the topic, to be changed; `index` is noted as changed."""
        partitions = self._own_partitions.get(topic_id)
        if partitions is None:
            topic = self._topics_by_id.now.get(topic_id)
            if topic is None:
                raise MetadataReplayError(f"a partition of topic id {uuid_to_text(topic_id)}, which is not there")
            self._own_partitions[topic_id] = partitions = dict(topic.partitions)
            self._put_topic(TopicImage(topic.name, topic_id, partitions))
        changed = self.changed_topics.get(topic_id)
        if changed is None:
            changed = self.changed_topics[topic_id] = set()
        changed.add(index)
        return partitions

    def _remove_topic(self, record: records.RemoveTopicRecord) -> None:
        topic_id = record.topic_id
        topic = self._topics_by_id.now.get(topic_id)
        if topic is None:
            raise MetadataReplayError(f"topic id {uuid_to_text(topic_id)} is removed, but is not there")
        for index, state in topic.partitions.items():
            self._watcher(topic_id, index, state, None)
        del self._topics.own()[topic.name]
        del self._topics_by_id.own()[topic_id]
        self._own_partitions.pop(topic_id, None)
        self.changed_topics.pop(topic_id, None)
        if topic_id in self._new_topics:
            self._new_topics.discard(topic_id)
        else:
            self.deleted_topics[topic_id] = topic
        resource = ConfigResource(ResourceType.TOPIC, topic.name)
        if resource in self._configs.now:
            del self._configs.own()[resource]
            self._own_configs.pop(resource, None)
            self.changed_configs.add(resource)

    def _clear_elr(self, record: records.ClearElrRecord) -> None:
        """Of one topic, or of all for an empty name."""
        names = [record.topic_name] if record.topic_name else list(self._topics.now)
        for name in names:
            topic = self._topics.now.get(name)
            if topic is None:
                raise MetadataReplayError(f"the eligible leader replicas of topic {name} are cleared, but it is not there")
            for index, state in topic.partitions.items():
                if state.eligible_leader_replicas or state.last_known_elr:
                    cleared = replace(
                        state, eligible_leader_replicas=(), last_known_elr=(), partition_epoch=state.partition_epoch + 1
                    )
                    self._partitions_of(topic.topic_id, index)[index] = cleared
                    self._watcher(topic.topic_id, index, state, cleared)

    # Configs and features.

    def _config(self, record: records.ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        configs = self._own_configs.get(resource)
        if configs is None:
            self._own_configs[resource] = configs = dict(self._configs.now.get(resource, {}))
            self._configs.own()[resource] = configs
        if record.value is None:
            configs.pop(record.name, None)
            if not configs:
                del self._own_configs[resource]
                del self._configs.own()[resource]
        else:
            configs[record.name] = record.value
        self.changed_configs.add(resource)

    def _feature_level(self, record: records.FeatureLevelRecord) -> None:
        if record.feature_level == 0:
            self._features.own().pop(record.name, None)
        else:
            self._features.own()[record.name] = record.feature_level
        self.changed_features.add(record.name)

    def _producer_ids(self, record: records.ProducerIdsRecord) -> None:
        if record.next_producer_id < self._next_producer_id:
            raise MetadataReplayError(
                f"the next producer id goes back from {self._next_producer_id} to {record.next_producer_id}"
            )
        self._next_producer_id = record.next_producer_id

    # Brokers and controllers.

    def _register_broker(self, record: records.RegisterBrokerRecord) -> None:
        self._put_broker(
            BrokerState(
                id=record.broker_id,
                epoch=record.broker_epoch,
                incarnation_id=record.incarnation_id,
                endpoints=_endpoints(record.end_points),
                rack=record.rack,
                fenced=record.fenced,
                in_controlled_shutdown=record.in_controlled_shutdown,
                log_dirs=tuple(record.log_dirs),
                cordoned_log_dirs=tuple(record.cordoned_log_dirs or ()),
                features=_ranges(record.features),
            )
        )

    def _unregister_broker(self, record: records.UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        del self._brokers.own()[record.broker_id]
        self.changed_brokers.add(record.broker_id)

    def _fence_broker(self, record: records.FenceBrokerRecord) -> None:
        self._put_broker(replace(self._broker(record.id, record.epoch), fenced=True))

    def _unfence_broker(self, record: records.UnfenceBrokerRecord) -> None:
        self._put_broker(replace(self._broker(record.id, record.epoch), fenced=False))

    def _broker_registration_change(self, record: records.BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        cordoned = broker.cordoned_log_dirs if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs)
        self._put_broker(
            replace(
                broker,
                fenced={FENCE: True, UNFENCE: False}.get(record.fenced, broker.fenced),
                in_controlled_shutdown=broker.in_controlled_shutdown or record.in_controlled_shutdown == 1,
                log_dirs=tuple(record.log_dirs) or broker.log_dirs,
                cordoned_log_dirs=cordoned,
            )
        )

    def _broker(self, broker_id: int, epoch: int) -> BrokerState:
        broker = self._brokers.now.get(broker_id)
        if broker is None:
            raise MetadataReplayError(f"broker {broker_id} changes, but is not registered")
        if broker.epoch != epoch:
            raise MetadataReplayError(
                f"broker {broker_id} changes in epoch {epoch}, but is registered with epoch {broker.epoch}"
            )
        return broker

    def _put_broker(self, broker: BrokerState) -> None:
        self._brokers.own()[broker.id] = broker
        self.changed_brokers.add(broker.id)

    def _register_controller(self, record: records.RegisterControllerRecord) -> None:
        self._controllers.own()[record.controller_id] = ControllerState(
            record.controller_id, record.incarnation_id, _endpoints(record.end_points), _ranges(record.features)
        )

    def _no_op(self, record: records.NoOpRecord | records.ZkMigrationStateRecord) -> None:
        """It only moves the offset; a migration from ZooKeeper is over before this release reads of it."""


def changed_partition(old: PartitionState, record: records.PartitionChangeRecord) -> PartitionState:
    """`old` after `record`: its epoch is one higher, and the leader's too if the record names a leader."""
    elects = record.leader != NO_LEADER_CHANGE
    replicas = old.replicas if record.replicas is None else tuple(record.replicas)
    if record.directories is not None:
        directories = tuple(record.directories)
    elif record.replicas is None:
        directories = old.directories
    else:
        known = dict(zip(old.replicas, old.directories, strict=True))
        directories = tuple(known.get(replica, UNASSIGNED_DIRECTORY) for replica in replicas)
    state = record.leader_recovery_state
    return PartitionState(
        replicas=replicas,
        isr=_changed(old.isr, record.isr),
        leader=record.leader if elects else old.leader,
        leader_epoch=old.leader_epoch + 1 if elects else old.leader_epoch,
        partition_epoch=old.partition_epoch + 1,
        adding_replicas=_changed(old.adding_replicas, record.adding_replicas),
        removing_replicas=_changed(old.removing_replicas, record.removing_replicas),
        directories=directories,
        eligible_leader_replicas=_changed(old.eligible_leader_replicas, record.eligible_leader_replicas),
        last_known_elr=_changed(old.last_known_elr, record.last_known_elr),
        leader_recovery_state=old.leader_recovery_state if state == NO_RECOVERY_STATE_CHANGE else state,
    )


def _changed(old: tuple[int, ...], new: list[int] | None) -> tuple[int, ...]:
    return old if new is None else tuple(new)


def _endpoints(listed: Iterable[records.BrokerEndpoint | records.ControllerEndpoint]) -> dict[str, Endpoint]:
    return {one.name: Endpoint(one.name, one.host, one.port, one.security_protocol) for one in listed}


def _ranges(listed: Iterable[records.BrokerFeature | records.ControllerFeature]) -> dict[str, VersionRange]:
    return {one.name: VersionRange(one.min_supported_version, one.max_supported_version) for one in listed}


_REPLAY: Mapping[type[Message], Callable[[MetadataDelta, Any], None]] = {
    records.TopicRecord: MetadataDelta._topic,
    records.PartitionRecord: MetadataDelta._partition,
    records.PartitionChangeRecord: MetadataDelta._partition_change,
    records.RemoveTopicRecord: MetadataDelta._remove_topic,
    records.ClearElrRecord: MetadataDelta._clear_elr,
    records.ConfigRecord: MetadataDelta._config,
    records.FeatureLevelRecord: MetadataDelta._feature_level,
    records.ProducerIdsRecord: MetadataDelta._producer_ids,
    records.RegisterBrokerRecord: MetadataDelta._register_broker,
    records.UnregisterBrokerRecord: MetadataDelta._unregister_broker,
    records.FenceBrokerRecord: MetadataDelta._fence_broker,
    records.UnfenceBrokerRecord: MetadataDelta._unfence_broker,
    records.BrokerRegistrationChangeRecord: MetadataDelta._broker_registration_change,
    records.RegisterControllerRecord: MetadataDelta._register_controller,
    records.AccessControlEntryRecord: lambda delta, record: replay_acl(delta.acls, record),
    records.RemoveAccessControlEntryRecord: lambda delta, record: replay_removed_acl(delta.acls, record),
    records.UserScramCredentialRecord: lambda delta, record: replay_scram(delta.scram_credentials, record),
    records.RemoveUserScramCredentialRecord: lambda delta, record: replay_removed_scram(delta.scram_credentials, record),
    records.ClientQuotaRecord: lambda delta, record: replay_quota(delta.client_quotas, record),
    records.DelegationTokenRecord: lambda delta, record: replay_token(delta.delegation_tokens, record),
    records.RemoveDelegationTokenRecord: lambda delta, record: replay_removed_token(delta.delegation_tokens, record),
    records.ZkMigrationStateRecord: MetadataDelta._no_op,
    records.NoOpRecord: MetadataDelta._no_op,
}
