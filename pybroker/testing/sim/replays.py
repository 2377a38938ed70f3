"""Whether a coordinator's shard is what a replay of its log gives, once all is quiet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pybroker.coordinator.group.records import GROUP_RECORD_TYPES, SUPERSEDING
from pybroker.coordinator.group.settings import GroupSettings
from pybroker.coordinator.group.shard import GroupShard
from pybroker.coordinator.shard import Reply, Request
from pybroker.coordinator.transaction.records import SUPERSEDING as TRANSACTIONS_SUPERSEDING
from pybroker.coordinator.transaction.records import TRANSACTION_RECORD_TYPES
from pybroker.coordinator.transaction.settings import TransactionSettings
from pybroker.coordinator.transaction.shard import TransactionShard
from pybroker.coordinator.transaction.transaction import Transaction
from pybroker.log.log import Log
from pybroker.metadata.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from pybroker.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest
from pybroker.protocol.messages.groups import DescribeGroupsRequest
from pybroker.server.coordinators.cluster_view import ClusterOf
from pybroker.server.coordinators.shard_loader import load_shard
from pybroker.testing.sim.coordinator_world import CoordinatorWorld
from pybroker.testing.sim.raft_checks import InvariantError


class NoTimers:
    def set(self, key: object, delay_ms: int) -> None: ...

    def cancel(self, key: object) -> None: ...


def check_group_replay(world: CoordinatorWorld, index: int, groups: Iterable[str]) -> None:
    shard = world.active_shard(OFFSETS_TOPIC, index)
    assert isinstance(shard, GroupShard), f"nobody coordinates {OFFSETS_TOPIC}-{index}"
    cluster = ClusterOf(world.controller.controller.image)
    again = GroupShard(index, NoTimers(), GroupSettings(), world.new_member_id, lambda: cluster)
    load_shard(_log(world, OFFSETS_TOPIC, index), again, GROUP_RECORD_TYPES, SUPERSEDING)
    for group in groups:
        known, replayed = _described(shard, group), _described(again, group)
        if known != replayed:
            raise InvariantError(f"{group}: the coordinator says {known}; its log says {replayed}")
        if shard.committed.has_open_transactions(group):
            raise InvariantError(f"{group}: offsets of a transaction are pending, and none is open")


def check_transaction_replay(world: CoordinatorWorld, index: int, version: int) -> None:
    shard = world.active_shard(TRANSACTIONS_TOPIC, index)
    assert isinstance(shard, TransactionShard), f"nobody coordinates {TRANSACTIONS_TOPIC}-{index}"
    again = TransactionShard(index, NoTimers(), TransactionSettings(), lambda: version)
    load_shard(_log(world, TRANSACTIONS_TOPIC, index), again, TRANSACTION_RECORD_TYPES, TRANSACTIONS_SUPERSEDING)
    known, replayed = _in_log(shard), _in_log(again)
    if known != replayed:
        raise InvariantError(f"{TRANSACTIONS_TOPIC}-{index}: the coordinator has {known}; its log says {replayed}")


def _log(world: CoordinatorWorld, topic: str, index: int) -> Log:
    log = world.brokers[world.leader_of(topic, index)].log_of(topic, index)
    assert isinstance(log, Log), f"{topic}-{index} has no leader"
    return log


def _described(shard: GroupShard, group: str) -> list[str]:
    """Everything that is in the log of it."""
    asked = (
        DescribeGroupsRequest(groups=[group]),
        ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False),
    )
    answers = [effect for one in asked for effect in shard.handle(0, Request(one)).effects]
    return [str(one.response) for one in answers if isinstance(one, Reply)] + [str(shard.committed.of_group(group))]


def _in_log(shard: TransactionShard) -> dict[str, Transaction]:
    """Without what has no place there in every version."""
    return {
        one.transactional_id: replace(one, last_epoch=-1, previous_producer_id=-1, client_version=0)
        for one in shard.transactions.values()
    }
