"""The controller: decides on requests, and on what time brings, by what has been replayed so far, committed or not.

A plain object of one thread and of one leadership: it is made from the last committed image and given up with the epoch.
Decisions change nothing but when brokers were heard of; `replay` is the only way in for everything that is in a record.
Whoever drives it appends the records of a decision, replays them at once so that the next decision builds on them, and
answers when everything up to them is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pybroker.base.ids import Uuid
from pybroker.config.broker import Config
from pybroker.metadata.controller import (
    acls,
    alter_partition,
    brokers,
    configs,
    directories,
    elections,
    feature_updates,
    ids,
    leadership,
    partitions,
    quotas,
    reassignment,
    scram,
    tokens,
    topics,
)
from pybroker.metadata.controller.decisions import Result, Setting, is_ip_address, unchangeable
from pybroker.metadata.controller.effective_configs import EffectiveConfigs
from pybroker.metadata.controller.heartbeats import Heartbeats
from pybroker.metadata.controller.partition_index import PartitionIndex
from pybroker.metadata.controller.refusals import refused
from pybroker.metadata.controller.view import View
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import EMPTY_IMAGE, MetadataImage
from pybroker.protocol.errors import KafkaError
from pybroker.protocol.internal.metadata_log import NoOpRecord, RegisterBrokerRecord
from pybroker.protocol.message import Message
from pybroker.protocol.messages import cluster
from pybroker.protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest
from pybroker.protocol.messages.api_versions import UpdateFeaturesRequest
from pybroker.protocol.messages.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from pybroker.protocol.messages.credentials import (
    AlterUserScramCredentialsRequest,
    CreateDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from pybroker.protocol.messages.log_dirs import AssignReplicasToDirsRequest
from pybroker.protocol.messages.partitions import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from pybroker.protocol.messages.quotas import AlterClientQuotasRequest
from pybroker.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from pybroker.protocol.messages.transactions import AllocateProducerIdsRequest
from pybroker.security.principals import ANONYMOUS, Principal

# What time brings is answered to nobody.
_NO_RESPONSE: Final = NoOpRecord()


class _Periodic:
    """Something that is done every so often; at once again if it wrote as much as it does at a time."""

    def __init__(self, interval_ms: int, most: int, decide: Callable[[View], list[Message]]) -> None:
        self.interval_ms = interval_ms
        self.most = most
        self.decide = decide
        self.due_ms = 0


class Controller:
    def __init__(
        self,
        config: Config,
        cluster_id: str,
        *,
        new_uuid: Callable[[], Uuid],
        draw_below: Callable[[int], int],
        image: MetadataImage = EMPTY_IMAGE,
        is_address: Callable[[str], bool] = is_ip_address,
        has_authorizer: bool = False,
        kraft_version: Callable[[], int] = lambda: 0,
        check_kraft_version: Callable[[int], KafkaError | None] = unchangeable,
    ) -> None:
        self._setting = Setting(
            config,
            cluster_id,
            EffectiveConfigs(config),
            new_uuid,
            draw_below,
            is_address,
            has_authorizer,
            kraft_version,
            check_kraft_version,
        )
        self._image = image
        self._index = PartitionIndex(image)
        self._delta = MetadataDelta(image, self._index.partition_changed)
        self._heartbeats = Heartbeats(
            config.int("broker.session.timeout.ms"),
            config.int("pybroker.broker.death.grace.ms"),
            config.int("node.id"),
        )
        self._registered_at = dict.fromkeys(image.brokers, image.offset)
        self._periodic: list[_Periodic] = []
        self._now_ms = 0
        self._requester = ANONYMOUS
        self._offset = image.offset
        self._epoch = image.epoch
        self._is_behind = False

    @property
    def image(self) -> MetadataImage:
        """The cluster after everything that was replayed."""
        if self._is_behind:
            self._image = self._delta.image(self._offset, self._epoch)
            self._is_behind = False
            if not self._delta.in_transaction:
                # A delta remembers all that it changed, which nobody asks for here.
                self._delta = MetadataDelta(self._image, self._index.partition_changed)
        return self._image

    @property
    def next_offset(self) -> int:
        return self._offset + 1

    @property
    def in_transaction(self) -> bool:
        return self._delta.in_transaction

    def start(self, now_ms: int) -> None:
        """Begin to lead: every broker that is not fenced has a full session from now on."""
        config = self._setting.config
        self._heartbeats.start(now_ms, self.image.brokers.values())
        unclean_ms = config.int("unclean.leader.election.interval.ms")
        self._periodic = [_Periodic(unclean_ms, elections.MAX_ELECTIONS, elections.lead_uncleanly)]
        if config.flag("auto.leader.rebalance.enable"):
            balance_ms = config.int("leader.imbalance.check.interval.seconds") * 1000
            self._periodic.append(_Periodic(balance_ms, elections.MAX_ELECTIONS, elections.balance))
        if config["delegation.token.secret.key"] is not None:
            sweep_ms = config.int("delegation.token.expiry.check.interval.ms")
            self._periodic.append(_Periodic(sweep_ms, tokens.MAX_SWEPT, tokens.sweep))
        for one in self._periodic:
            one.due_ms = now_ms + one.interval_ms

    @staticmethod
    def handles(request: Message) -> bool:
        return type(request) in _DECISIONS

    def handle(self, now_ms: int, request: Message, version: int, requester: Principal = ANONYMOUS) -> Result:
        """What to write and what to answer once it is committed, and all that was written before it."""
        self._now_ms, self._requester = now_ms, requester
        try:
            return _DECISIONS[type(request)](self, request, version)
        except KafkaError as error:
            return Result([], refused(request, error.code, error.message, version))

    @property
    def deadline_ms(self) -> int | None:
        """When `tick` has something to do; None if nothing but a request can bring it."""
        deadlines = [one.due_ms for one in self._periodic]
        session_ms = self._heartbeats.deadline_ms(self.image.brokers)
        if session_ms is not None:
            deadlines.append(session_ms)
        return min(deadlines, default=None)

    def tick(self, now_ms: int) -> Result | None:
        """What is due by now, one thing at a time; its response is for nobody. Harmless too early."""
        self._now_ms = now_ms
        dead = self._heartbeats.take_dead(now_ms, self.image.brokers)
        if dead:
            return Result(leadership.fenced(self._view, dead), _NO_RESPONSE)
        for one in self._periodic:
            if one.due_ms <= now_ms:
                records = one.decide(self._view)
                if len(records) < one.most:
                    one.due_ms = now_ms + one.interval_ms
                if records:
                    return Result(records, _NO_RESPONSE)
        return None

    def broker_connection_made(self, now_ms: int, broker_id: int) -> None:
        """The broker has a connection to this controller, after it had none."""
        self._heartbeats.connection_made(now_ms, broker_id)

    def broker_connection_lost(self, now_ms: int, broker_id: int) -> None:
        """The last connection of the broker broke, or was closed: another must be made within the grace."""
        self._heartbeats.connection_lost(now_ms, broker_id)

    @property
    def _view(self) -> View:
        return View(
            self._now_ms, self.image, self.next_offset, self._setting, self._index, self._heartbeats, self._registered_at
        )

    def replay(self, offset: int, epoch: int, record: Message) -> None:
        self._delta.replay(record)
        if type(record) is RegisterBrokerRecord:
            self._registered_at[record.broker_id] = offset
        self.advance(offset, epoch)

    def advance(self, offset: int, epoch: int) -> None:
        """The log goes on to `offset` with something that is no metadata: a control record."""
        self._offset, self._epoch = offset, epoch
        self._is_behind = True

    def _create_topics(self, request: CreateTopicsRequest, version: int) -> Result:
        return topics.create_topics(self.image, self._setting, request)

    def _delete_topics(self, request: DeleteTopicsRequest, version: int) -> Result:
        return topics.delete_topics(self.image, self._setting, request, version)

    def _create_partitions(self, request: CreatePartitionsRequest, version: int) -> Result:
        return partitions.create_partitions(self.image, self._setting, request)

    def _incremental_alter_configs(self, request: IncrementalAlterConfigsRequest, version: int) -> Result:
        return configs.incremental_alter_configs(self.image, self._setting, request)

    def _alter_configs(self, request: AlterConfigsRequest, version: int) -> Result:
        return configs.alter_configs(self.image, self._setting, request)

    def _allocate_producer_ids(self, request: AllocateProducerIdsRequest, version: int) -> Result:
        return ids.allocate_producer_ids(self.image, request)

    def _register_broker(self, request: cluster.BrokerRegistrationRequest, version: int) -> Result:
        return brokers.register_broker(self._view, request, version)

    def _broker_heartbeat(self, request: cluster.BrokerHeartbeatRequest, version: int) -> Result:
        return brokers.broker_heartbeat(self._view, request)

    def _unregister_broker(self, request: cluster.UnregisterBrokerRequest, version: int) -> Result:
        return brokers.unregister_broker(self._view, request)

    def _alter_partition(self, request: AlterPartitionRequest, version: int) -> Result:
        return alter_partition.alter_partition(self._view, request, version)

    def _alter_partition_reassignments(self, request: AlterPartitionReassignmentsRequest, version: int) -> Result:
        return reassignment.alter_partition_reassignments(self._view, request)

    def _list_partition_reassignments(self, request: ListPartitionReassignmentsRequest, version: int) -> Result:
        return reassignment.list_partition_reassignments(self._view, request)

    def _elect_leaders(self, request: ElectLeadersRequest, version: int) -> Result:
        return elections.elect_leaders(self._view, request)

    def _assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest, version: int) -> Result:
        return directories.assign_replicas_to_dirs(self._view, request)

    def _register_controller(self, request: cluster.ControllerRegistrationRequest, version: int) -> Result:
        return brokers.register_controller(self.image, request)

    def _create_acls(self, request: CreateAclsRequest, version: int) -> Result:
        return acls.create_acls(self.image, self._setting, request)

    def _delete_acls(self, request: DeleteAclsRequest, version: int) -> Result:
        return acls.delete_acls(self.image, self._setting, request)

    def _alter_user_scram_credentials(self, request: AlterUserScramCredentialsRequest, version: int) -> Result:
        return scram.alter_user_scram_credentials(self.image, request)

    def _create_delegation_token(self, request: CreateDelegationTokenRequest, version: int) -> Result:
        return tokens.create_delegation_token(self.image, self._setting, self._now_ms, self._requester, request, version)

    def _renew_delegation_token(self, request: RenewDelegationTokenRequest, version: int) -> Result:
        return tokens.renew_delegation_token(self.image, self._setting, self._now_ms, self._requester, request)

    def _expire_delegation_token(self, request: ExpireDelegationTokenRequest, version: int) -> Result:
        return tokens.expire_delegation_token(self.image, self._setting, self._now_ms, self._requester, request)

    def _alter_client_quotas(self, request: AlterClientQuotasRequest, version: int) -> Result:
        return quotas.alter_client_quotas(self.image, self._setting, request)

    def _update_features(self, request: UpdateFeaturesRequest, version: int) -> Result:
        return feature_updates.update_features(self.image, self._setting, request, version)


_DECISIONS: Mapping[type[Message], Callable[[Controller, Any, int], Result]] = {
    CreateTopicsRequest: Controller._create_topics,
    DeleteTopicsRequest: Controller._delete_topics,
    CreatePartitionsRequest: Controller._create_partitions,
    IncrementalAlterConfigsRequest: Controller._incremental_alter_configs,
    AlterConfigsRequest: Controller._alter_configs,
    AllocateProducerIdsRequest: Controller._allocate_producer_ids,
    cluster.BrokerRegistrationRequest: Controller._register_broker,
    cluster.BrokerHeartbeatRequest: Controller._broker_heartbeat,
    cluster.UnregisterBrokerRequest: Controller._unregister_broker,
    AlterPartitionRequest: Controller._alter_partition,
    AlterPartitionReassignmentsRequest: Controller._alter_partition_reassignments,
    ListPartitionReassignmentsRequest: Controller._list_partition_reassignments,
    ElectLeadersRequest: Controller._elect_leaders,
    AssignReplicasToDirsRequest: Controller._assign_replicas_to_dirs,
    cluster.ControllerRegistrationRequest: Controller._register_controller,
    CreateAclsRequest: Controller._create_acls,
    DeleteAclsRequest: Controller._delete_acls,
    AlterUserScramCredentialsRequest: Controller._alter_user_scram_credentials,
    CreateDelegationTokenRequest: Controller._create_delegation_token,
    RenewDelegationTokenRequest: Controller._renew_delegation_token,
    ExpireDelegationTokenRequest: Controller._expire_delegation_token,
    AlterClientQuotasRequest: Controller._alter_client_quotas,
    UpdateFeaturesRequest: Controller._update_features,
}
