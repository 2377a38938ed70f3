"""Batches between us and confluent-kafka (librdkafka), which has no codec to call: over a socket, from a fake broker."""

from __future__ import annotations

import time
from typing import Any

import pytest
from interop.records.fake_broker import TOPIC, fake_broker

from pybroker.protocol.records.batch import iter_batches
from pybroker.protocol.records.builder import BatchBuilder, rebuild
from pybroker.protocol.records.compression import Codec
from pybroker.protocol.records.control import ControlType, end_transaction_marker
from pybroker.protocol.records.record import Record
from pybroker.protocol.records.validation import check_records, produced_batch

confluent_kafka: Any = pytest.importorskip("confluent_kafka")

DEADLINE_S = 30.0
NOW_MS = 1_760_000_000_000
BIG = b"".join(b'{"number": %d}' % (number * 7919 % 100_003) for number in range(20_000))
ROWS = [
    Record(0, NOW_MS, b"key", b"value"),
    Record(1, NOW_MS + 5, None, b"no key"),
    Record(2, NOW_MS - 5, b"tombstone", None),
    Record(3, NOW_MS, b"", b""),
    Record(4, NOW_MS, b"headers", b"x", (("one", b"1"), ("none", None), ("ümlaut", b""))),
    Record(5, NOW_MS, b"big", BIG),
    *(Record(6 + number, NOW_MS + number, b"k%d" % number, b"again and again " * 10) for number in range(200)),
]


def produced_by_client(rows: list[Record], **config: Any) -> list[bytes]:
    with fake_broker() as broker:
        settings = {"bootstrap.servers": broker.address, "linger.ms": 200, "batch.size": 4_000_000, **config}
        producer = confluent_kafka.Producer({**settings, "message.max.bytes": 8_000_000})
        for row in rows:
            producer.produce(
                TOPIC, key=row.key, value=row.value, headers=list(row.headers), timestamp=row.timestamp, partition=0
            )
        assert producer.flush(DEADLINE_S) == 0
        return list(broker.produced)


def consumed_by_client(log: bytes, count: int, **config: Any) -> list[Record]:
    with fake_broker(log) as broker:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.address,
                "group.id": "none",
                "enable.auto.commit": False,
                "check.crcs": True,
                "fetch.wait.max.ms": 20,
                **config,
            }
        )
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
        records = []
        deadline = time.monotonic() + DEADLINE_S
        while len(records) < count:
            assert time.monotonic() < deadline, f"{len(records)} of {count} records"
            message = consumer.poll(0.1)
            if message is None:
                continue
            assert message.error() is None, message.error()
            headers = tuple((name, value) for name, value in message.headers() or ())
            records.append(Record(message.offset(), message.timestamp()[1], message.key(), message.value(), headers))
        consumer.close()
        return records


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", Codec)
def test_we_read_what_the_client_produces(codec: Codec, idempotent: bool) -> None:
    config = {"compression.type": codec.name.lower(), "enable.idempotence": idempotent}
    read: list[Record] = []
    codecs = set()
    for data in produced_by_client(ROWS, **config):
        batch = produced_batch(data)
        summary = check_records(batch)
        assert summary.max_timestamp == batch.max_timestamp
        assert batch.producer_id == (4711 if idempotent else -1)
        assert batch.base_sequence == (len(read) if idempotent else -1)
        codecs.add(batch.codec)
        read += [record._replace(offset=len(read) + record.offset) for record in batch.records()]
    assert codec in codecs
    assert read == ROWS


@pytest.mark.parametrize("codec", Codec)
def test_the_client_reads_what_we_build(codec: Codec) -> None:
    builder = BatchBuilder(codec=codec, partition_leader_epoch=0)
    for row in ROWS:
        builder.append(row.timestamp, row.key, row.value, row.headers)
    assert consumed_by_client(bytes(builder.build()), len(ROWS)) == ROWS


@pytest.mark.parametrize("codec", Codec)
def test_the_client_reads_compacted_and_stamped_batches_and_skips_markers(codec: Codec) -> None:
    """Gaps inside, a batch that lost all its records, an append time, a marker: all that a consumer meets in a log."""
    rows = [Record(offset, NOW_MS, b"k", b"v%d" % offset) for offset in range(9)]
    whole = []
    for start in (0, 3, 6):
        builder = BatchBuilder(start, codec=codec, producer_id=7, producer_epoch=0, base_sequence=start)
        for row in rows[start : start + 3]:
            builder.append(row.timestamp, row.key, row.value)
        whole.append(builder.build())
    first, second, third = (next(iter_batches(data)) for data in whole)
    compacted = rebuild(first, [rows[0], rows[2]], delete_horizon_ms=NOW_MS + 10**6)
    emptied = rebuild(second, [])
    third.stamp_append_time(NOW_MS + 77)
    marker = end_transaction_marker(
        ControlType.COMMIT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=NOW_MS, base_offset=9
    )
    last = BatchBuilder(10, codec=codec)
    last.append(NOW_MS, None, b"last")
    log = compacted + emptied + third.view() + marker + last.build()
    expected = [rows[0], rows[2], *(row._replace(timestamp=NOW_MS + 77) for row in rows[6:]), Record(10, NOW_MS, None, b"last")]
    assert consumed_by_client(bytes(log), len(expected)) == expected
