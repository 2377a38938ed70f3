"""What is really in a broker's log, past any client: records put there and read from there by our own codec."""

from __future__ import annotations

from collections.abc import Sequence

from interop.broker_process import BrokerProcess
from interop.clients.driver import Message
from interop.log.clients import fetch_bytes

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pybroker.protocol.records.batch import RecordBatch, iter_batches
from pybroker.protocol.records.builder import BatchBuilder
from pybroker.protocol.records.compression import Codec
from pybroker.protocol.records.record import NO_HEADERS, Headers, Record


def sample(count: int, now_ms: int, *, null_headers: bool = False) -> list[Message]:
    """Messages a millisecond apart for partition 0: keys, null and empty keys and values, headers."""
    headers: Headers = (("ключ", "значение".encode()), *((("null", None), ("empty", b"")) if null_headers else NO_HEADERS))
    made = []
    for index in range(count):
        key = None if index % 5 == 2 else b"" if index % 7 == 3 else b"key-%d" % (index % 10)
        value = None if index % 5 == 4 else b"" if index % 13 == 6 else b"value %d \x00\xff " % index * (index % 4 + 1)
        own = (("n", b"%d" % index), *headers) if index % 3 == 0 else NO_HEADERS
        made.append(Message(value, key, own, now_ms + index))
    return made


def plain(count: int, size: int = 30) -> list[Message]:
    """Messages that any client can send: printable values, nothing else."""
    return [Message((b"message %d " % index * size)[:size]) for index in range(count)]


def as_records(messages: Sequence[Message], base_offset: int = 0) -> list[Record]:
    """The records that `messages` with timestamps become."""
    made = []
    for offset, message in enumerate(messages, base_offset):
        assert message.timestamp is not None
        made.append(Record(offset, message.timestamp, message.key, message.value, tuple(message.headers)))
    return made


def append(
    broker: BrokerProcess, topic: str, messages: Sequence[Message], codec: Codec = Codec.NONE, partition: int = 0
) -> int:
    """One batch of `messages`; its base offset."""
    builder = BatchBuilder(codec=codec)
    for record in as_records(messages):
        builder.append(record.timestamp, record.key, record.value, record.headers)
    rows = [PartitionProduceData(index=partition, records=bytes(builder.build()))]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=rows)])
    answer = broker.ask(request, 12).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.NONE, answer
    return int(answer.base_offset)


def batches(broker: BrokerProcess, topic: str, partition: int = 0) -> list[RecordBatch]:
    return list(iter_batches(fetch_bytes(broker, topic, partition)))


def stored(broker: BrokerProcess, topic: str, partition: int = 0) -> list[Record]:
    return [record for batch in batches(broker, topic, partition) for record in batch.records()]
