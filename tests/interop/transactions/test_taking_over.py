"""`__transaction_state` changes hands: the same requests leave the same records, and either broker goes on with the other's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from interop.apache_broker import ApacheBroker
from interop.apache_kafka import DUMP_LOG_SEGMENTS, STORAGE_TOOL, ApacheTools, apache_tool
from interop.broker_process import CLUSTER_ID, BrokerProcess
from interop.pybroker_node import PybrokerNode
from interop.transactions.scripted import aborted_and_stable, play
from support.transactional import OK, Producer, must, wait_for_coordinator

from pybroker.coordinator.records import decode_record
from pybroker.coordinator.transaction.records import TRANSACTION_RECORD_TYPES
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.transaction_state import TransactionLogValue
from pybroker.protocol.records.batch import RecordBatch, iter_batches

# What a node of ours does not have.
_FEATURES = ("eligible.leader.replicas", "group", "share", "streams")


class TransactionalApache(ApacheBroker):
    """Apache Kafka in a cluster without the features that our nodes do not have."""

    def format(self, config: Path) -> None:
        options = [word for name in _FEATURES for word in ("--feature", f"{name}.version=0")]
        run = apache_tool(STORAGE_TOOL, "format", "-t", CLUSTER_ID, "-c", str(config), *options)
        assert run.exit_code == 0, run


def batches(broker: BrokerProcess, topic: str, partition: int = 0) -> list[RecordBatch]:
    files = sorted(broker.partition_dir(topic, partition).glob("*.log"))
    return [batch for file in files for batch in iter_batches(file.read_bytes())]


def header(batch: RecordBatch) -> Any:
    return (batch.base_offset, batch.attributes, batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.count)


def decisions(broker: BrokerProcess) -> list[Any]:
    """Every record of the coordinator, without what two brokers rightly differ in: times, and the order in a set."""
    rows = []
    for batch in batches(broker, "__transaction_state"):
        for record in batch.records():
            decoded = decode_record(TRANSACTION_RECORD_TYPES, record.key, record.value)
            assert decoded is not None
            value = decoded.value
            assert isinstance(value, TransactionLogValue)
            assert value.transaction_last_update_timestamp_ms > 0
            value.transaction_last_update_timestamp_ms = 0
            value.transaction_start_timestamp_ms = min(value.transaction_start_timestamp_ms, 0)
            for topic in value.transaction_partitions or ():
                topic.partition_ids.sort()
            (value.transaction_partitions or []).sort(key=lambda topic: topic.topic)
            rows.append((header(batch), decoded.key, decoded.version, value))
    return rows


def writes(broker: BrokerProcess, topic: str, partition: int = 0) -> list[Any]:
    """Data and markers."""
    return [
        (
            header(batch),
            [(record.key, record.value if topic == "t" or batch.is_control else None) for record in batch.records()],
        )
        for batch in batches(broker, topic, partition)
    ]


def test_the_same_requests_leave_the_same_records(tmp_path: Path, tools: ApacheTools) -> None:
    found = []
    dumps = []
    for number, broker_class in enumerate((ApacheBroker, PybrokerNode)):
        with broker_class(tmp_path / str(number)) as broker:
            play(broker)
            broker.stop()
            partitions = [("t", 0), ("t", 1), ("__consumer_offsets", 0)]
            found.append((decisions(broker), [writes(broker, *one) for one in partitions]))
            log = broker.partition_dir("__transaction_state") / f"{0:020}.log"
            dumps.append(tools.run(DUMP_LOG_SEGMENTS, "--transaction-log-decoder", "--files", str(log)).checked())
    theirs, ours = found
    assert ours == theirs
    assert len(ours[0]) > 30
    assert "isvalid: false" not in dumps[1]
    assert _payloads(dumps[1]) == _payloads(dumps[0])


def _payloads(dump: str) -> list[str]:
    """Keys and values in the tool's own words, without times and lists of partitions."""
    rows = re.findall(r"key: (.*)", dump)
    assert rows
    return [re.sub(r'imestampMs":\d+|"transactionPartitions":\[.*?\]\}?\]|partitions=\[[^]]*\]', "", row) for row in rows]


@pytest.mark.parametrize(
    ("writer", "reader"),
    [(PybrokerNode, ApacheBroker), (TransactionalApache, PybrokerNode)],
    ids=["ours to Apache", "Apache's to us"],
)
def test_the_other_broker_goes_on_with_the_transactions(
    tmp_path: Path, writer: type[BrokerProcess], reader: type[BrokerProcess]
) -> None:
    with writer(tmp_path) as broker:
        played = play(broker)
        states = {name: _seen(producer) for name, producer in played.items()}
        stable = [aborted_and_stable(broker, partition) for partition in (0, 1)]
        broker.stop()
    with reader(tmp_path) as broker:
        broker.wait_for_leaders("t", 2)
        wait_for_coordinator(broker)
        for producer in played.values():
            producer.broker = broker
        assert {name: _seen(producer) for name, producer in played.items()} == states
        assert [aborted_and_stable(broker, partition) for partition in (0, 1)] == stable
        _go_on(played)


def _seen(producer: Producer) -> Any:
    row = producer.described()
    return row.error_code, row.transaction_state, row.producer_id, row.producer_epoch, [one.topic for one in row.topics]


def _go_on(played: dict[str, Producer]) -> None:
    must(played["open"].send(b"more"))
    must(played["open"].end(commit=True))
    must(played["old open"].end(commit=False))
    for name in ("open", "old open"):
        played[name].wait_until_ended()
    zombie = Producer(played["new"].broker, "new", True, played["new"].producer_id, played["new"].epoch)
    assert played["new"].init() is OK
    assert zombie.end(commit=False) is ErrorCode.PRODUCER_FENCED
    must(played["new"].send(b"by the next"))
    must(played["new"].end(commit=True))
