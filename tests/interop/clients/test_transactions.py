"""Transactions of stock clients, unchanged: commit, abort, offsets, zombies, and readers of what is committed."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from interop.broker_process import BrokerProcess
from interop.clients.transactional import TRANSACTIONAL, Producer, TransactionalClient
from support.waiting import wait_until

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages import group_offsets
from pybroker.protocol.messages.transactions import DescribeTransactionsRequest

# What a zombie is told: INVALID_PRODUCER_EPOCH by the partition, in its client's words.
ZOMBIES = {
    "kafka-python": "InvalidProducerEpochError(",
    "confluent-kafka": "KafkaError{FATAL,code=_FENCED,",
    "aiokafka": "ProducerFenced(",
    "Java": "47: java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.InvalidProducerEpochException:",
}


@pytest.fixture(params=TRANSACTIONAL)
def player(
    request: pytest.FixtureRequest, cluster: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TransactionalClient]:
    client = TRANSACTIONAL[request.param](cluster.bootstrap, tmp_path_factory.mktemp("client"))
    client.name = request.param
    yield client
    client.close()


@pytest.fixture
def transactional_id() -> str:
    return uuid4().hex


def wait_until_ended(cluster: BrokerProcess, transactional_id: str) -> None:
    """Markers go out when the client has its answer already."""

    def is_ended() -> bool:
        row = cluster.ask(DescribeTransactionsRequest(transactional_ids=[transactional_id])).transaction_states[0]
        return bool(row.transaction_state.startswith("Complete"))

    wait_until(is_ended, 10, lambda: "the transaction is not ended")


def offset_of(cluster: BrokerProcess, group: str, topic: str) -> int:
    wanted = group_offsets.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
    asked = group_offsets.OffsetFetchRequestGroup(group_id=group, topics=[wanted])
    (found,) = cluster.ask(group_offsets.OffsetFetchRequest(groups=[asked], require_stable=True), 9).groups
    row = found.topics[0].partitions[0]
    assert row.error_code == ErrorCode.NONE, row
    return int(row.committed_offset)


def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    cluster: BrokerProcess, player: TransactionalClient, topic: str, transactional_id: str
) -> None:
    cluster.create_topic(topic, partitions=2)
    producer = player.producer(transactional_id)
    for number in range(6):
        producer.begin()
        producer.send(topic, b"first of %d" % number)
        producer.send(topic, b"second of %d" % number, 1)
        assert not [value for value in player.committed(topic) if value.endswith(b"of %d" % number)]
        if number % 2:
            producer.abort()
        else:
            producer.commit()
        wait_until_ended(cluster, transactional_id)
    assert player.committed(topic) == [b"first of 0", b"first of 2", b"first of 4"]
    assert player.committed(topic, 1) == [b"second of 0", b"second of 2", b"second of 4"]


def test_offsets_are_committed_with_the_transaction_or_not_at_all(
    cluster: BrokerProcess, player: TransactionalClient, topic: str, transactional_id: str
) -> None:
    cluster.create_topic(topic)
    producer = player.producer(transactional_id)
    for number, commits in enumerate((True, False, True, False), start=1):
        producer.begin()
        producer.send(topic, b"out")
        producer.offsets(topic, number * 10, f"group-{topic}")
        if commits:
            producer.commit()
        else:
            producer.abort()
        wait_until_ended(cluster, transactional_id)
        assert offset_of(cluster, f"group-{topic}", topic) == (number * 10 if commits else number * 10 - 10)


def test_a_zombie_is_fenced_and_what_it_had_open_is_aborted(
    cluster: BrokerProcess, player: TransactionalClient, topic: str, transactional_id: str
) -> None:
    cluster.create_topic(topic)
    zombie = player.producer(transactional_id)
    zombie.begin()
    zombie.send(topic, b"of the zombie")
    successor = player.producer(transactional_id)
    successor.begin()
    successor.send(topic, b"of its successor")
    with pytest.raises(Exception) as refused:  # noqa: PT011
        _go_on(zombie, topic)
    assert ZOMBIES[player.name] in _told(refused.value)
    successor.commit()
    wait_until_ended(cluster, transactional_id)
    assert player.committed(topic) == [b"of its successor"]


def _told(error: BaseException | None) -> str:
    """With its causes: confluent-kafka may have its own error behind one of the interpreter's, raised in a callback."""
    out = []
    while error is not None:
        out.append(repr(error))
        error = error.__cause__ or error.__context__
    return "; ".join(out)


def _go_on(zombie: Producer, topic: str) -> None:
    zombie.send(topic, b"too late")
    zombie.commit()


def test_a_broker_that_is_killed_knows_the_transaction_afterwards(
    cluster: BrokerProcess, player: TransactionalClient, topic: str, transactional_id: str
) -> None:
    cluster.create_topic(topic)
    producer = player.producer(transactional_id)
    producer.begin()
    producer.send(topic, b"before")
    cluster.restart(clean=False)
    producer.send(topic, b"after")
    producer.commit()
    wait_until_ended(cluster, transactional_id)
    assert player.committed(topic) == [b"before", b"after"]
