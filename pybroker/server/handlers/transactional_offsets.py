"""TxnOffsetCommit v0-5: offsets that count when their producer's transaction commits.

Any thread; nothing here waits. The write to `__consumer_offsets` is part of the transaction as one to any other partition:
its coordinator is asked first (KIP-890), and from v5 on made to add the partition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pybroker.coordinator.shard import Producer, client_code
from pybroker.log.producer_entry import NO_GUARD
from pybroker.metadata.image import MetadataImage
from pybroker.metadata.internal_topics import OFFSETS_TOPIC
from pybroker.network.request import Request
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from pybroker.protocol.records.batch import NO_SEQUENCE
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.server.coordinators.groups import GroupCoordinator, Pending
from pybroker.server.coordinators.transaction_checks import Check, Outside

ADDS_PARTITIONS_FROM: Final = 5
ABORTABLE_FROM: Final = 4
LOADING_FROM: Final = 2  # before, COORDINATOR_LOAD_IN_PROGRESS is unexpected


class TransactionalOffsetHandlers:
    def __init__(
        self,
        groups: GroupCoordinator,
        replicas: ReplicaManager,
        check: Callable[[Check], None],
        image_of: Callable[[], MetadataImage],
        is_enabled: Callable[[], bool],
    ) -> None:
        """`check` has it done; `is_enabled` is transaction.partition.verification.enable."""
        self._groups = groups
        self._replicas = replicas
        self._check = check
        self._image_of = image_of
        self._is_enabled = is_enabled

    def handle_txn_offset_commit(self, request: Request, message: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse | None:
        version = request.version
        refused, kept = self._sorted_out(message.topics)
        if not kept:
            return TxnOffsetCommitResponse(topics=refused)
        message.topics = kept

        def committed(response: TxnOffsetCommitResponse) -> None:
            response.topics = _merged([*refused, *response.topics])
            request.respond(response)

        def failed(code: ErrorCode) -> None:
            if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_FROM:
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            committed(TxnOffsetCommitResponse(topics=[_uncommitted(topic, code) for topic in kept]))

        if not message.group_id:
            failed(ErrorCode.INVALID_GROUP_ID)
            return None
        partition = self._groups.partition_of(message.group_id)

        def verified(guard: int) -> None:
            self._groups.submit(partition, message, Pending(committed, failed), version=version, verification_guard=guard)

        self._verify(message, version, partition, verified, failed)
        return None

    def _verify(
        self,
        message: TxnOffsetCommitRequest,
        version: int,
        index: int,
        verified: Callable[[int], None],
        failed: Callable[[ErrorCode], None],
    ) -> None:
        adds = version >= ADDS_PARTITIONS_FROM
        partition = self._replicas.partition(OFFSETS_TOPIC, index)
        if isinstance(partition, ErrorCode) or not partition.is_leader:
            failed(ErrorCode.NOT_COORDINATOR)
            return
        if not (adds or self._is_enabled()):
            verified(NO_GUARD)
            return
        producer = Producer(message.producer_id, message.producer_epoch)
        try:
            guard = partition.start_verification(*producer, NO_SEQUENCE, self._replicas.now_ms(), supports_epoch_bump=adds)
        except KafkaError as error:
            failed(error.code)
            return
        if guard == NO_GUARD:
            verified(guard)
            return

        def checked(outside: Outside) -> None:
            if outside:
                failed(_client_code(outside[OFFSETS_TOPIC, index], version))
            else:
                verified(guard)

        self._check(Check(message.transactional_id, producer, frozenset(((OFFSETS_TOPIC, index),)), adds, checked))

    def _sorted_out(
        self, topics: list[TxnOffsetCommitRequestTopic]
    ) -> tuple[list[TxnOffsetCommitResponseTopic], list[TxnOffsetCommitRequestTopic]]:
        """What is refused since there is no such partition, and the rest."""
        image = self._image_of()
        refused = []
        kept = []
        for topic in topics:
            found = image.topics.get(topic.name)
            known = () if found is None else found.partitions
            unknown = [one for one in topic.partitions if one.partition_index not in known]
            if unknown:
                lost = TxnOffsetCommitRequestTopic(name=topic.name, partitions=unknown)
                refused.append(_uncommitted(lost, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            there = [one for one in topic.partitions if one.partition_index in known]
            if there:
                kept.append(TxnOffsetCommitRequestTopic(name=topic.name, partitions=there))
        return refused, kept


def _client_code(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.NETWORK_EXCEPTION:
        # Nobody expects that here; this is tried again at the same coordinator.
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return client_code(code)


def _uncommitted(topic: TxnOffsetCommitRequestTopic, code: ErrorCode) -> TxnOffsetCommitResponseTopic:
    rows = [TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code) for one in topic.partitions]
    return TxnOffsetCommitResponseTopic(name=topic.name, partitions=rows)


def _merged(topics: list[TxnOffsetCommitResponseTopic]) -> list[TxnOffsetCommitResponseTopic]:
    """Each topic once."""
    out: dict[str, TxnOffsetCommitResponseTopic] = {}
    for topic in topics:
        there = out.setdefault(topic.name, topic)
        if there is not topic:
            there.partitions += topic.partitions
    return list(out.values())
