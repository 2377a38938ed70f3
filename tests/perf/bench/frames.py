"""Requests encoded once and sent many times: brokers stamp the offsets, so the same frame may be appended again and again.

Frames start with their 4 length bytes. Pure.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from pybroker.base.ids import Uuid
from pybroker.protocol.api_table import APIS
from pybroker.protocol.message import Message
from pybroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pybroker.protocol.messages.headers import RequestHeader
from pybroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pybroker.protocol.records.builder import BatchBuilder
from pybroker.protocol.records.compression import Codec

# What the clients of Apache Kafka 4.x send: topics by id.
PRODUCE_VERSION = 13
FETCH_VERSION = 17
CLIENT_ID = "bench"
# The Java consumer's defaults.
FETCH_MAX_BYTES = 52_428_800
PARTITION_MAX_BYTES = 1_048_576
MAX_WAIT_MS = 500
MIN_BYTES = 1

_CORRELATION_ID = struct.Struct(">i")
_CORRELATION_ID_AT = 8
_WORDS = (
    *("order", "payment", "customer", "shipped", "pending", "invoice", "amount", "currency", "status", "created", "updated"),
    *("region", "warehouse", "item", "quantity", "price", "total", "discount", "address", "email", "phone", "country"),
)


@dataclass(slots=True, frozen=True)
class Batch:
    """A record batch as a producer makes it."""

    data: bytes
    records: int


def framed(request: Message, version: int, correlation_id: int = 0, client_id: str = CLIENT_ID) -> bytes:
    api = next(api for api in APIS if api.key == request.KEY)
    header = RequestHeader(
        request_api_key=api.key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    body = header.encode(api.request_header_version(version)) + request.encode(version)
    return struct.pack(">i", len(body)) + body


def with_correlation_id(frame: bytes, correlation_id: int) -> bytes:
    out = bytearray(frame)
    _CORRELATION_ID.pack_into(out, _CORRELATION_ID_AT, correlation_id)
    return bytes(out)


def full_batch(batch_bytes: int, value_bytes: int, codec: Codec, now_ms: int) -> Batch:
    """As many records as fit into `batch_bytes` before compression, one at least: what batch.size means to a producer."""
    builder = BatchBuilder(codec=codec)
    text = random.Random(value_bytes)
    while True:
        value = value_of(value_bytes, text)
        builder.append(now_ms, None, value)
        # A record takes its value and some ten bytes more.
        if builder.size_bytes + value_bytes + 12 > batch_bytes:
            return Batch(bytes(builder.build()), builder.count)


def value_of(size_bytes: int, draw: random.Random) -> bytes:
    """Something like the JSON that most topics hold: it compresses to about a third."""
    out = bytearray(b"{")
    while len(out) < size_bytes:
        out += f'"{draw.choice(_WORDS)}":"{draw.choice(_WORDS)}-{draw.randrange(1_000_000)}",'.encode()
    return bytes(out[:size_bytes])


def produce_frame(topic_id: Uuid, batches: Sequence[tuple[int, Batch]], acks: int) -> bytes:
    """One Produce request with a batch for each of the partitions named."""
    rows = [PartitionProduceData(index=partition, records=batch.data) for partition, batch in batches]
    topic = TopicProduceData(topic_id=topic_id, partition_data=rows)
    return framed(ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic]), PRODUCE_VERSION)


def fetch_frame(
    topic_id: Uuid,
    offsets: Sequence[tuple[int, int]],
    correlation_id: int = 0,
    partition_max_bytes: int = PARTITION_MAX_BYTES,
) -> bytes:
    """One Fetch request, without a session, for (partition, offset) pairs."""
    rows = [
        FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
        for partition, offset in offsets
    ]
    request = FetchRequest(
        max_wait_ms=MAX_WAIT_MS,
        min_bytes=MIN_BYTES,
        max_bytes=FETCH_MAX_BYTES,
        topics=[FetchTopic(topic_id=topic_id, partitions=rows)],
    )
    return framed(request, FETCH_VERSION, correlation_id)
