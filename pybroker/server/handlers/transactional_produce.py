"""Before a transaction's first batch is appended to a partition, its coordinator must know of it (KIP-890).

Any thread; nothing here waits. From Produce v12 on the write itself makes the partition part of the transaction; before, it
has to be so already. Batches of a transaction that is open in the partition need no asking.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Final

from pybroker.base.filesystem import Buffer
from pybroker.coordinator.shard import Producer
from pybroker.log.producer_entry import NO_GUARD
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.messages.produce import ProduceRequest
from pybroker.protocol.records.batch import HEADER_BYTES, MAGIC, TRANSACTIONAL_BIT
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.server.coordinators.transaction_checks import Check, Outside

ADDS_PARTITIONS_FROM: Final = 12
ABORTABLE_FROM: Final = 11  # before, clients do not know TRANSACTION_ABORTABLE (KIP-1050)
TOPIC_IDS_FROM: Final = 13

# By name of topic and partition: with what guard to append, or why not.
Guards = Mapping[tuple[str, int], int | KafkaError]
NO_GUARDS: Final[Guards] = {}

# What an old client does not expect of a produce; this makes it send again, and no more.
_AGAIN: Final = frozenset(
    (
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)
_unpack_header = Struct(">16xb4xh20xqhi").unpack_from  # magic, attributes, producer id, epoch, sequence


class TransactionalProduce:
    def __init__(self, replicas: ReplicaManager, check: Callable[[Check], None], is_enabled: Callable[[], bool]) -> None:
        """`check` has it done; `is_enabled` is transaction.partition.verification.enable."""
        self._replicas = replicas
        self._check = check
        self._is_enabled = is_enabled

    def verify(self, message: ProduceRequest, version: int, done: Callable[[Guards], None]) -> Guards | None:
        """The guards, if nobody has to be asked for them; else `done` gets them, and the records of `message` are copies."""
        adds = version >= ADDS_PARTITIONS_FROM
        if message.transactional_id is None or not (adds or self._is_enabled()):
            return NO_GUARDS
        producer: Producer | None = None  # the only one, else it would have been refused
        guards: dict[tuple[str, int], int | KafkaError] = {}
        replicas = self._replicas
        for topic in message.topic_data:
            by_id = version >= TOPIC_IDS_FROM
            hosted = replicas.topics_by_id.get(topic.topic_id) if by_id else replicas.topics.get(topic.name)
            if hosted is None:
                continue
            for data in topic.partition_data:
                header = _transactional_header(data.records)
                partition = hosted.partitions.get(data.index)
                if header is None or partition is None or not partition.is_leader:
                    continue
                producer_id, epoch, sequence = header
                producer = Producer(producer_id, epoch)
                try:
                    guard = partition.start_verification(
                        producer_id, epoch, sequence, replicas.now_ms(), supports_epoch_bump=adds
                    )
                except KafkaError as error:
                    guards[hosted.name, data.index] = error
                else:
                    if guard != NO_GUARD:
                        guards[hosted.name, data.index] = guard
        waiting = frozenset(name for name, guard in guards.items() if isinstance(guard, int))
        if not waiting:
            return guards
        for topic in message.topic_data:
            for data in topic.partition_data:
                if data.records is not None:
                    data.records = bytearray(data.records)

        def checked(outside: Outside) -> None:
            refused = {name: _refusal(code, version, adds=adds) for name, code in outside.items()}
            done({**guards, **refused})

        assert producer is not None
        self._check(Check(message.transactional_id, producer, waiting, adds, checked))
        return None


def has_many_producers(message: ProduceRequest) -> bool:
    """Whether its transactional batches, which are to be of one transaction, are of more than one producer."""
    producers = set()
    for topic in message.topic_data:
        for data in topic.partition_data:
            header = _transactional_header(data.records)
            if header is not None:
                producers.add(header[:2])
    return len(producers) > 1


def _transactional_header(records: Buffer | None) -> tuple[int, int, int] | None:
    """Producer id, epoch and sequence of a transactional batch; what is no batch is found out later."""
    if records is None or len(records) < HEADER_BYTES:
        return None
    magic, attributes, producer_id, epoch, sequence = _unpack_header(records)
    if magic != MAGIC or not attributes & TRANSACTIONAL_BIT or producer_id < 0:
        return None
    return producer_id, epoch, sequence


def _refusal(code: ErrorCode, version: int, *, adds: bool) -> KafkaError:
    if code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM:
        code = ErrorCode.INVALID_TXN_STATE
    if code in _AGAIN or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"The transaction's coordinator could not be asked: {code.name}.")
    # The other codes speak for themselves, as Kafka has it.
    is_plain = code is not ErrorCode.INVALID_TXN_STATE
    return KafkaError(code, "" if is_plain else "The partition is not part of the producer's transaction.")
