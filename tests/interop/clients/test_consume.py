"""Stock clients read by assignment what was put into the log past any client."""

from __future__ import annotations

import threading
import time

from interop.broker_process import BrokerProcess
from interop.clients.catalog import HEADERS, READS_NULLS, clients_with, every_client, every_codec
from interop.clients.driver import EARLIEST, LATEST, Client, Message
from interop.clients.records_on import append, as_records, sample

from pybroker.protocol.records.compression import Codec
from pybroker.protocol.records.record import Record

NOW_MS = time.time_ns() // 1_000_000 - 60_000
ROUNDS = 20
LONG_POLL_MS = 20_000


def bare(count: int) -> list[Message]:
    """Messages without headers, for the clients that know of none."""
    return [Message(b"value %d" % index, b"key %d" % index, (), NOW_MS + index) for index in range(count)]


@clients_with(HEADERS, READS_NULLS)
@every_codec
def test_keys_values_headers_and_timestamps_are_read_as_they_are(
    client: Client, cluster: BrokerProcess, topic: str, codec: Codec
) -> None:
    cluster.create_topic(topic)
    messages = sample(100, NOW_MS, null_headers=True)
    for start in range(0, 100, 25):
        append(cluster, topic, messages[start : start + 25], codec)
    assert client.consume(topic, EARLIEST, 100) == as_records(messages)


@clients_with(HEADERS)
def test_headers_are_read_in_their_order(client: Client, cluster: BrokerProcess, topic: str) -> None:
    cluster.create_topic(topic)
    headers = tuple((f"header {index}", b"value %d" % index) for index in range(10))
    messages = [Message(b"value", b"key", headers, NOW_MS)]
    append(cluster, topic, messages)
    assert client.consume(topic, EARLIEST, 1) == as_records(messages)


@every_client
@every_codec
def test_each_codec_is_read(client: Client, cluster: BrokerProcess, topic: str, codec: Codec) -> None:
    cluster.create_topic(topic)
    append(cluster, topic, bare(50), codec)
    assert client.consume(topic, EARLIEST, 50) == as_records(bare(50))


@every_client
def test_reading_starts_in_the_middle_of_a_batch(client: Client, cluster: BrokerProcess, topic: str) -> None:
    cluster.create_topic(topic, partitions=2)
    for start in range(0, 60, 20):
        append(cluster, topic, bare(60)[start : start + 20], partition=1)
    assert client.consume(topic, 27, 33, partition=1) == as_records(bare(60))[27:]


@every_client
def test_reading_starts_at_a_time(client: Client, cluster: BrokerProcess, topic: str) -> None:
    cluster.create_topic(topic)
    for start in range(0, 60, 20):
        append(cluster, topic, bare(60)[start : start + 20])
    found = client.list_offset(topic, NOW_MS + 33)
    assert client.consume(topic, found, 27) == as_records(bare(60))[33:]


@every_client
def test_a_large_record_is_read_through_the_limit_of_a_fetch(client: Client, cluster: BrokerProcess, topic: str) -> None:
    """A batch above the client's fetch size still comes, alone, so that the client gets on."""
    cluster.create_topic(topic, {"max.message.bytes": "6000000"})
    messages = [Message(b"%d" % index * 1_500_000, b"k", (), NOW_MS + index) for index in range(3)]
    for message in messages:
        append(cluster, topic, [message])
    assert client.consume(topic, EARLIEST, 3) == as_records(messages)


@every_client
def test_a_waiting_consumer_has_each_record_at_once(client: Client, cluster: BrokerProcess, topic: str) -> None:
    """Each record is written when the one before has arrived, so that the consumer's next fetch waits for it."""
    cluster.create_topic(topic)
    messages = bare(ROUNDS + 1)
    append(cluster, topic, messages[:1])
    found: list[Record] = []
    seconds = []
    written_at = 0.0
    for record in client.tail(topic, EARLIEST, ROUNDS + 1, max_wait_ms=LONG_POLL_MS):
        seconds.append(time.monotonic() - written_at)
        found.append(record)
        if len(found) <= ROUNDS:
            written_at = time.monotonic()
            append(cluster, topic, [messages[len(found)]])
    assert found == as_records(messages)
    assert max(seconds[1:]) < LONG_POLL_MS / 2000, seconds


@every_client
def test_reading_from_the_end_skips_what_was_there(client: Client, cluster: BrokerProcess, topic: str) -> None:
    """Records are written until the consumer, which finds the end by itself, has one of them."""
    cluster.create_topic(topic)
    messages = bare(2000)
    append(cluster, topic, messages[:10])
    arrived = threading.Event()

    def write() -> None:
        for message in messages[10:]:
            append(cluster, topic, [message])
            if arrived.wait(0.02):
                return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        (found,) = client.consume(topic, LATEST, 1)
    finally:
        arrived.set()
        writer.join()
    assert found.offset >= 10
    assert found == as_records(messages)[found.offset]
