"""kafka-transactions against the node: lists, describes, finds a hanging transaction and aborts it, as against Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest
from interop.apache_kafka import TOPIC_COMMAND
from interop.tools.both import CONFIG_COMMAND, Both, Said
from support.transactional import Producer, must, wait_for_coordinator

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
VERIFICATION = "transaction.partition.verification.enable"


def tables(both: Both, *args: str) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """What the tool prints of each broker, row by row."""
    theirs, ours = both.run(TRANSACTIONS, *args)
    assert (theirs.exit_code, theirs.stderr) == (ours.exit_code, ours.stderr) == (0, "")
    return _table(theirs), _table(ours)


def _table(said: Said) -> list[dict[str, str]]:
    names, *rows = (line.split() for line in said.stdout.splitlines() if line.strip())
    return [dict(zip(names, row, strict=False)) for row in rows]


@pytest.fixture
def name() -> str:
    return uuid4().hex[:8]


@pytest.fixture
def topic(both: Both, name: str) -> str:
    both.same(TOPIC_COMMAND, "--create", "--topic", name, "--partitions", "2")
    for broker in both.brokers:
        wait_for_coordinator(broker)
        broker.wait_for_leaders(name, 2)
    return name


def producers(both: Both, name: str, *, is_new: bool = True) -> tuple[Producer, ...]:
    made = tuple(Producer(broker, f"id-{name}", is_new) for broker in both.brokers)
    for producer in made:
        must(producer.init())
    return made


def test_transactions_are_listed_and_described(both: Both, topic: str) -> None:
    for producer in producers(both, topic):
        must(producer.send(b"open", topic=topic))
        must(producer.send(b"open", topic=topic, partition=1))
    theirs, ours = tables(both, "list")
    for table in (theirs, ours):
        (own,) = (row for row in table if row["TransactionalId"] == f"id-{topic}")
        assert (own["Coordinator"], own["TransactionState"]) == ("1", "Ongoing")
    theirs, ours = tables(both, "describe", "--transactional-id", f"id-{topic}")
    assert [list(row) for row in ours] == [list(row) for row in theirs]
    same = ("TransactionalId", "ProducerEpoch", "TransactionState", "TransactionTimeoutMs")
    assert [[row[name] for name in same] for row in ours] == [[row[name] for name in same] for row in theirs]
    assert set(ours[0]["TopicPartitions"].split(",")) == {f"{topic}-0", f"{topic}-1"}
    theirs, ours = tables(both, "describe-producers", "--topic", topic, "--partition", "0")
    same = ("ProducerEpoch", "StartOffset", "LastSequence", "CoordinatorEpoch")
    picked = [{key: row[key] for key in same if key in row} for row in ours]
    assert picked == [{key: row[key] for key in same if key in row} for row in theirs]


def test_an_id_that_nobody_has_is_an_error(both: Both) -> None:
    both.same(TRANSACTIONS, "describe", "--transactional-id", "nobody", exit_code=1)


@contextmanager
def without_verification(both: Both) -> Iterator[None]:
    def change(*what: str) -> None:
        both.same(CONFIG_COMMAND, "--alter", "--entity-type", "brokers", "--entity-default", *what)

    change("--add-config", f"{VERIFICATION}=false")
    try:
        yield
    finally:
        change("--delete-config", VERIFICATION)


def test_a_hanging_transaction_is_found_and_aborted(both: Both, topic: str) -> None:
    hanging = producers(both, topic, is_new=False)
    with without_verification(both):
        # Its coordinator never heard of the partition, and will never end what is open there.
        for producer in hanging:
            must(producer.send(b"hangs", topic=topic))
    search = ("find-hanging", "--topic", topic, "--max-transaction-timeout", "0")
    for table, producer, broker in zip(tables(both, *search), hanging, both.brokers, strict=True):
        (row,) = table
        assert (row["Topic"], row["Partition"], row["ProducerId"]) == (topic, "0", str(producer.producer_id))
        assert broker.list_offset(topic, -1, committed=True)[0] == 0
    both.same(TRANSACTIONS, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    assert tables(both, *search) == ([], [])
    for broker in both.brokers:
        assert broker.list_offset(topic, -1, committed=True)[0] == 2
