"""Stock clients write; what they wrote is read from the log past any client."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from interop.broker_process import BrokerProcess
from interop.clients.catalog import (
    ACKS,
    CLIENTS,
    HEADERS,
    IDEMPOTENT,
    MURMUR2,
    NO_AUTO_CREATE,
    SENDS_NULL_HEADERS,
    TIMESTAMPS,
    clients_with,
    every_client,
    every_codec,
)
from interop.clients.driver import LATEST, Acked, Client, Message
from interop.clients.records_on import as_records, batches, plain, sample, stored
from support.waiting import wait_until

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.records.compression import Codec

NOW_MS = time.time_ns() // 1_000_000 - 60_000
WAIT_S = 20
# What a batch adds to the value of its only record, if there is neither key nor header: the batch's own header, and the
# record's length (3 bytes), attributes, two deltas, key length, value length (3 bytes) and number of headers.
OVERHEAD = 61 + 3 + 1 + 2 + 1 + 3 + 1


@clients_with(TIMESTAMPS, HEADERS)
def test_keys_values_headers_and_timestamps_arrive_as_they_were_sent(
    client: Client, cluster: BrokerProcess, topic: str
) -> None:
    cluster.create_topic(topic)
    messages = sample(100, NOW_MS)
    assert client.produce(topic, messages, linger_ms=5) == [Acked(0, offset) for offset in range(100)]
    assert stored(cluster, topic) == as_records(messages)


@clients_with(HEADERS)
def test_headers_arrive_in_their_order(client: Client, cluster: BrokerProcess, topic: str) -> None:
    cluster.create_topic(topic)
    headers = tuple((f"header {index}", b"value %d" % index) for index in range(10))
    assert client.produce(topic, [Message(b"value", b"key", headers, NOW_MS)]) == [Acked(0, 0)]
    assert [(record.key, record.value, record.headers) for record in stored(cluster, topic)] == [(b"key", b"value", headers)]


@clients_with(SENDS_NULL_HEADERS)
def test_a_header_may_be_empty_or_null(client: Client, cluster: BrokerProcess, topic: str) -> None:
    cluster.create_topic(topic)
    messages = sample(10, NOW_MS, null_headers=True)
    assert client.produce(topic, messages) == [Acked(0, offset) for offset in range(10)]
    assert stored(cluster, topic) == as_records(messages)


@clients_with(ACKS)
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_records_arrive_with_any_acks(client: Client, cluster: BrokerProcess, topic: str, acks: int) -> None:
    cluster.create_topic(topic)
    messages = plain(30)
    acked = client.produce(topic, messages, acks=acks)
    assert all(ack.error is None and ack.partition == 0 for ack in acked)
    if acks:
        assert [ack.offset for ack in acked] == list(range(30))
    wait_until(lambda: cluster.list_offset(topic, LATEST)[0] >= 30, WAIT_S, lambda: "records are missing")
    assert [record.value for record in stored(cluster, topic)] == [message.value for message in messages]


@every_client
@every_codec
def test_each_codec_is_stored_as_it_was_sent(client: Client, cluster: BrokerProcess, topic: str, codec: Codec) -> None:
    cluster.create_topic(topic)
    messages = plain(200, size=200)
    acked = client.produce(topic, messages, codec=codec.name.lower(), linger_ms=20)
    assert [(ack.offset, ack.error) for ack in acked] == [(offset, None) for offset in range(200)]
    assert [record.value for record in stored(cluster, topic)] == [message.value for message in messages]
    codecs = {batch.codec for batch in batches(cluster, topic)}
    # A client may leave a batch alone that compression would not make smaller.
    assert codec in codecs
    assert codecs <= {codec, Codec.NONE}


@clients_with(IDEMPOTENT)
def test_an_idempotent_producer_numbers_its_batches(client: Client, cluster: BrokerProcess, topic: str) -> None:
    cluster.create_topic(topic)
    messages = plain(500, size=100)
    acked = client.produce(topic, messages, idempotent=True, linger_ms=1)
    assert [(ack.offset, ack.error) for ack in acked] == [(offset, None) for offset in range(500)]
    assert [record.value for record in stored(cluster, topic)] == [message.value for message in messages]
    found = batches(cluster, topic)
    assert {batch.has_producer_id for batch in found} == {True}
    assert len({(batch.producer_id, batch.producer_epoch) for batch in found}) == 1
    assert [batch.base_sequence for batch in found] == [batch.base_offset for batch in found]


@every_client
def test_records_are_spread_over_the_partitions(client: Client, cluster: BrokerProcess, topic: str) -> None:
    cluster.create_topic(topic, partitions=4)
    messages = [Message(b"%d" % index, b"key-%d" % (index % 20), partition=None) for index in range(200)]
    acked = client.produce(topic, messages, linger_ms=5)
    assert all(ack.error is None for ack in acked)
    found = {partition: {(record.key, record.value) for record in stored(cluster, topic, partition)} for partition in range(4)}
    assert all(found.values())
    assert sum(map(len, found.values())) == 200
    homes = {key: {home for home, rows in found.items() if any(row[0] == key for row in rows)} for _, key in _pairs(messages)}
    assert {len(home) for home in homes.values()} == {1}


@clients_with(MURMUR2)
def test_keys_go_where_the_java_client_would_send_them(client: Client, cluster: BrokerProcess, topic: str) -> None:
    cluster.create_topic(topic, partitions=4)
    keys = [b"", b"a", b"ab", b"abc", b"abcd", b"the quick brown fox", "ключ".encode(), bytes(range(256))]
    acked = client.produce(topic, [Message(b"v", key, partition=None) for key in keys])
    assert [ack.partition for ack in acked] == [(_murmur2(key) & 0x7FFFFFFF) % 4 for key in keys]


@every_client
@pytest.mark.parametrize("limit", [20_000, 1_048_588], ids=["limit of the topic", "limit of the broker"])
def test_a_record_may_be_as_large_as_the_limit_and_not_a_byte_larger(
    client: Client, cluster: BrokerProcess, topic: str, limit: int
) -> None:
    cluster.create_topic(topic, {"max.message.bytes": str(limit)} if limit == 20_000 else {})
    fits = Message(b"x" * (limit - OVERHEAD))
    too_large = Message(b"x" * (limit - OVERHEAD + 1))
    assert client.produce(topic, [fits]) == [Acked(0, 0)]
    (batch,) = batches(cluster, topic)
    assert len(batch.view()) == limit
    (refused,) = client.produce(topic, [too_large])
    assert refused.error == ErrorCode.MESSAGE_TOO_LARGE
    assert client.produce(topic, [fits]) == [Acked(0, 1)]


@every_client
def test_twenty_thousand_small_records_keep_their_order(client: Client, cluster: BrokerProcess, topic: str) -> None:
    cluster.create_topic(topic)
    messages = plain(20_000, size=20)
    acked = client.produce(topic, messages, linger_ms=10)
    assert [(ack.offset, ack.error) for ack in acked] == [(offset, None) for offset in range(20_000)]
    assert [record.value for record in stored(cluster, topic)] == [message.value for message in messages]


@every_client
def test_a_producer_makes_an_unknown_topic(client: Client, cluster: BrokerProcess, topic: str) -> None:
    acked = client.produce(topic, [Message(b"first", b"key", partition=None)])
    assert [(ack.offset, ack.error) for ack in acked] == [(0, None)]
    assert client.list_topics()[topic] == 3
    assert [record.value for record in stored(cluster, topic, acked[0].partition)] == [b"first"]


@clients_with(NO_AUTO_CREATE)
def test_a_producer_that_may_not_make_topics_is_told_that_it_is_unknown(client: Client, topic: str) -> None:
    (refused,) = client.produce(topic, [Message(b"first", partition=None)], auto_create=False, patience_ms=1500)
    assert refused.error is not None
    assert topic not in client.list_topics()


@pytest.mark.parametrize("name", CLIENTS)
def test_an_unknown_topic_stays_unknown_where_the_broker_makes_none(
    without_auto_create: BrokerProcess, name: str, topic: str, tmp_path: Path
) -> None:
    with CLIENTS[name].start(without_auto_create.bootstrap, tmp_path) as client:
        (refused,) = client.produce(topic, [Message(b"first", partition=None)], patience_ms=800)
        assert refused.error is not None
        assert topic not in client.list_topics()


def _pairs(messages: list[Message]) -> set[tuple[bytes | None, bytes | None]]:
    return {(message.value, message.key) for message in messages}


def _murmur2(data: bytes) -> int:
    """Kafka's hash of keys, from the algorithm's definition (MurmurHash2 with Kafka's seed)."""
    mask, multiplier = 0xFFFFFFFF, 0x5BD1E995
    value = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        part = int.from_bytes(data[start : start + 4], "little") * multiplier & mask
        part = (part ^ part >> 24) * multiplier & mask
        value = value * multiplier & mask ^ part
    if rest := data[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * multiplier & mask
    value = (value ^ value >> 13) * multiplier & mask
    return value ^ value >> 15
