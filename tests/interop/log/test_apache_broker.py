"""The harness itself: Apache Kafka starts, serves stock clients, stops both ways, and its tools read what it left."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from interop.apache_broker import ApacheBroker, partition_metadata, topic_id_of
from interop.apache_kafka import DUMP_LOG_SEGMENTS, GET_OFFSET_SHELL, TOPIC_COMMAND, ApacheTools, apache_tool
from interop.log.clients import (
    Producer,
    Row,
    consume,
    consume_with_kafka_python,
    fetch_bytes,
    rows,
    topic_id,
    transaction,
    without_aborted,
)
from interop.log.conftest import NewBroker
from interop.log.dumps import (
    check_indexes,
    dump_index,
    dump_log,
    dump_partition,
    dump_snapshot,
    dump_time_index,
    dump_transaction_index,
)

from pybroker.protocol.records.batch import iter_batches
from pybroker.protocol.records.builder import BatchBuilder
from pybroker.protocol.records.compression import Codec
from pybroker.protocol.records.record import Record

kafka: Any = pytest.importorskip("kafka")
kafka_admin: Any = pytest.importorskip("kafka.admin")

NOW_MS = time.time_ns() // 1_000_000 - 60_000
CODECS = [codec.name.lower() for codec in Codec]


def test_a_topic_of_kafka_python_is_seen_by_kafkas_own_tools(apache_broker: ApacheBroker, tools: ApacheTools) -> None:
    admin = kafka_admin.KafkaAdminClient(bootstrap_servers=apache_broker.bootstrap)
    try:
        admin.create_topics([kafka_admin.NewTopic(name="by-admin", num_partitions=2, replication_factor=1)])
    finally:
        admin.close()
    apache_broker.wait_for_leaders("by-admin", partitions=2)
    listed = tools.run(TOPIC_COMMAND, "--bootstrap-server", apache_broker.bootstrap, "--list").checked().splitlines()
    assert "by-admin" in listed
    offsets = tools.run(GET_OFFSET_SHELL, "--bootstrap-server", apache_broker.bootstrap, "--topic", "by-admin").checked()
    assert offsets.splitlines() == ["by-admin:0:0", "by-admin:1:0"]
    path = apache_broker.partition_dir("by-admin", 1)
    assert topic_id_of(path) == topic_id(apache_broker, "by-admin")
    assert partition_metadata(topic_id_of(path)) == (path / "partition.metadata").read_text()


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_confluent_kafka(apache_broker: ApacheBroker, tools: ApacheTools, codec: str) -> None:
    topic = f"confluent-{codec}"
    apache_broker.create_topic(topic)
    sent = Producer(apache_broker, topic, compression_codec=codec).send(rows(300, NOW_MS))
    assert [record.offset for record in sent] == list(range(300))
    assert consume(apache_broker, topic) == sent
    assert consume_with_kafka_python(apache_broker, topic) == sent
    (file,) = apache_broker.partition_dir(topic).glob("*.log")
    batches = dump_log(tools, file)
    assert {batch.codec for batch in batches} == {Codec[codec.upper()]}
    assert all(batch.is_valid for batch in batches)
    dumped = [record for batch in batches for record in batch.records]
    assert [(r.offset, r.timestamp, r.key, r.value) for r in dumped] == [(r.offset, r.timestamp, r.key, r.value) for r in sent]
    assert [r.header_keys for r in dumped] == [tuple(name for name, _ in r.headers) for r in sent]
    assert fetch_bytes(apache_broker, topic) == file.read_bytes()


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_kafka_python(apache_broker: ApacheBroker, codec: str) -> None:
    topic = f"kafka-python-{codec}"
    apache_broker.create_topic(topic)
    producer = kafka.KafkaProducer(
        bootstrap_servers=apache_broker.bootstrap, compression_type=None if codec == "none" else codec, linger_ms=50
    )
    # It refuses headers that are null, and records without key and value.
    sent = [row._replace(headers=row.headers[:2]) for row in rows(100, NOW_MS) if (row.key, row.value) != (None, None)]
    try:
        futures = [
            producer.send(
                topic, key=row.key, value=row.value, headers=list(row.headers), timestamp_ms=row.timestamp, partition=0
            )
            for row in sent
        ]
        producer.flush(30)
        offsets = [future.get(30).offset for future in futures]
    finally:
        producer.close()
    assert offsets == list(range(len(sent)))
    expected = [Record(offset, *row) for offset, row in enumerate(sent)]
    assert consume(apache_broker, topic) == expected
    assert {batch.codec for batch in iter_batches(fetch_bytes(apache_broker, topic))} == {Codec[codec.upper()]}


def test_a_transaction_is_seen_when_it_is_committed(apache_broker: ApacheBroker, tools: ApacheTools) -> None:
    apache_broker.create_topic("transactions")
    producer = Producer(apache_broker, "transactions", transactional_id="harness")
    with transaction(producer):
        producer.send(rows(5, NOW_MS))
    with transaction(producer, abort=True):
        aborted = producer.send(rows(4, NOW_MS))
    with transaction(producer):
        producer.send([Row(NOW_MS, b"k", b"last")])
    committed = without_aborted(producer.sent, aborted)
    assert len(committed) == 6
    for read in (consume, consume_with_kafka_python):
        assert read(apache_broker, "transactions") == producer.sent
        assert read(apache_broker, "transactions", committed=True) == committed
    path = apache_broker.partition_dir("transactions")
    markers = [batch.records[0].marker for batch in dump_partition(tools, path) if batch.is_control]
    assert markers == ["COMMIT", "ABORT", "COMMIT"]
    (found,) = dump_transaction_index(tools, path / f"{0:020d}.txnindex")
    assert (found.first_offset, found.last_offset) == (aborted[0].offset, aborted[-1].offset + 1)


def test_a_clean_stop_and_a_kill_lose_nothing(new_apache_broker: NewBroker, tools: ApacheTools) -> None:
    broker = new_apache_broker({"log.index.interval.bytes": "500"})
    clean_file = broker.data_dir / ".kafka_cleanshutdown"
    address = broker.bootstrap
    broker.create_topic("kept")
    producer = Producer(broker, "kept", enable_idempotence=True, batch_num_messages=20)
    producer.send(rows(200, NOW_MS))
    broker.stop()
    assert broker.pid is None
    assert clean_file.exists()
    path = broker.partition_dir("kept")
    base = path / f"{0:020d}"
    assert check_indexes(tools, path) == 2
    batches = dump_partition(tools, path)
    places = {batch.last_offset: batch.position for batch in batches}
    entries = dump_index(tools, base.with_suffix(".index"))
    assert len(entries) >= 5
    assert all(places[offset] == position for offset, position in entries)
    assert dump_time_index(tools, base.with_suffix(".timeindex"))[-1] == (NOW_MS + 199, 199)
    (row,) = dump_snapshot(tools, path / f"{200:020d}.snapshot")
    assert (row.last_offset, row.last_sequence, row.current_txn_first_offset) == (199, 199, None)

    broker.start()
    assert broker.bootstrap == address
    assert not clean_file.exists()
    assert consume(broker, "kept") == producer.sent
    more = Producer(broker, "kept")
    more.send(rows(10, NOW_MS, start=200))
    broker.stop(clean=False)
    assert broker.pid is None
    assert not clean_file.exists()
    assert base.with_suffix(".index").stat().st_size == 10 << 20  # as it was preallocated
    broker.start({"message.max.bytes": "2000"})
    assert consume(broker, "kept") == producer.sent + more.sent
    with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
        Producer(broker, "kept").send([Row(NOW_MS, None, bytes(3000))])
    broker.stop()
    broker.stop()


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    broker = ApacheBroker(tmp_path / "broken", {"num.io.threads": "0"})
    with pytest.raises(AssertionError, match=r"num\.io\.threads"), broker:
        pass
    assert broker.pid is None


def test_a_tool_in_a_jvm_of_its_own_keeps_stdout_clean(tmp_path: Path) -> None:
    file = tmp_path / f"{0:020d}.log"
    file.touch()
    run = apache_tool(DUMP_LOG_SEGMENTS, "--files", str(file))
    assert run.checked() == f"Dumping {file}\nLog starting offset: 0\n"
    run = apache_tool(DUMP_LOG_SEGMENTS, "--no-such-option")
    assert run.exit_code == 1
    assert "no-such-option" in run.stderr


def test_the_tools_complaints_come_out(tools: ApacheTools, tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}.log").touch()
    index = tmp_path / f"{0:020d}.index"
    index.write_bytes(bytes(12))
    with pytest.raises(AssertionError, match="CorruptIndexException"):
        check_indexes(tools, tmp_path)
    run = tools.run(DUMP_LOG_SEGMENTS, "--no-such-option")
    assert run.exit_code == 1
    assert "no-such-option" in run.stderr
    index.unlink()

    def batch(offset: int) -> bytearray:
        builder = BatchBuilder(offset)
        builder.append(NOW_MS, b"k", b"v")
        return builder.build()

    file = tmp_path / f"{5:020d}.log"
    file.write_bytes(batch(5) + batch(6))
    assert [found.last_offset for found in dump_partition(tools, tmp_path)] == [5, 6]
    file.write_bytes(batch(5) + batch(7))
    assert len(dump_partition(tools, tmp_path, compacted=True)) == 2
    with pytest.raises(AssertionError, match="5 is followed by 7"):
        dump_partition(tools, tmp_path)
    file.write_bytes(batch(5) + batch(6)[:-1])
    with pytest.raises(AssertionError, match=r"Found 69 invalid bytes"):
        dump_partition(tools, tmp_path)
    broken = batch(5)
    broken[-2] ^= 1
    file.write_bytes(broken)
    assert [found.is_valid for found in dump_partition(tools, tmp_path)] == [False]
