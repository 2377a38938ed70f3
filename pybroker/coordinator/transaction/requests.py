"""What a transaction shard is asked, whatever request of whatever version brought it, and the effects of its own. Values."""

from __future__ import annotations

from typing import Any, NamedTuple

from pybroker.coordinator.shard import Producer
from pybroker.coordinator.transaction.transaction import State, TopicPartition, Transaction


class InitProducer(NamedTuple):
    """A producer comes; `expected` is what it thinks it is, if it recovers (KIP-360). Answered by a Producer."""

    transactional_id: str
    timeout_ms: int
    expected: Producer | None = None
    new_producer_id: int | None = None  # of this broker's, for whom NeedsProducerId was the answer


class AddPartitions(NamedTuple):
    """Answered by None when all of them are part of the transaction; refused as a whole."""

    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicPartition]
    client_version: int


class VerifyPartitions(NamedTuple):
    """Answered by the set of those that are part of the producer's ongoing transaction."""

    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicPartition]


class EndTransaction(NamedTuple):
    """Answered, when the decision is durable, by the Producer that goes on from here."""

    transactional_id: str
    producer: Producer
    commits: bool
    client_version: int
    new_producer_id: int | None = None


class MarkersWritten(NamedTuple):
    """Every partition of a prepared transaction, the very one of the order, has its marker."""

    prepared: Transaction


class DescribeTransaction(NamedTuple):
    """Answered by a Transaction, or None."""

    transactional_id: str


class ListTransactions(NamedTuple):
    """Answered by a list of all Transactions of the shard."""


class NeedsProducerId(NamedTuple):
    """The answer to whoever has to ask again with a `new_producer_id`."""


# Effects.


class SendMarkers(NamedTuple):
    """The transaction is decided, durably: tell its partitions, then say MarkersWritten."""

    shard: Any  # that has decided it: the order counts as long as that is the coordinator
    prepared: Transaction

    @property
    def transactional_id(self) -> str:
        return self.prepared.transactional_id

    @property
    def producer(self) -> Producer:
        return self.prepared.producer

    @property
    def commits(self) -> bool:
        return self.prepared.state is State.PREPARE_COMMIT

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return self.prepared.partitions

    @property
    def version(self) -> int:
        """Of the transaction."""
        return self.prepared.client_version
