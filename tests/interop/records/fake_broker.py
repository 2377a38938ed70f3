"""A broker of one partition for stock clients: it keeps what is produced as it came, and serves what it is given.

Answers ApiVersions, Metadata, InitProducerId, Produce, ListOffsets and Fetch, each connection in a thread of its own;
there is no coordinator to find.
"""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pybroker.base.ids import Uuid
from pybroker.protocol.api_table import APIS
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from pybroker.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from pybroker.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from pybroker.protocol.messages.headers import RequestHeader, ResponseHeader
from pybroker.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pybroker.protocol.messages.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pybroker.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from pybroker.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from pybroker.protocol.records.batch import iter_batches

TOPIC = "records"
TOPIC_ID = Uuid(bytes(range(1, 17)))
# Topics by name, and fetches without leader epochs to tell: all that a fake needs.
HIGHEST = {0: 12, 1: 11, 2: 7, 3: 12, 10: 2, 18: 3, 22: 4}
SERVED = {api.key: api for api in APIS if api.key in HIGHEST}


class FakeBroker(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, log: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.log = log
        self.end_offset = max((batch.next_offset for batch in iter_batches(log)), default=0)
        self.produced: list[bytes] = []
        self.closing = threading.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def answer(self, request: Message, version: int) -> Message:
        match request:
            case ApiVersionsRequest():
                rows = [(api.key, api.versions[0], HIGHEST[api.key]) for api in SERVED.values()]
                keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in rows]
                return ApiVersionsResponse(error_code=0, api_keys=keys)
            case MetadataRequest():
                return self._metadata()
            case InitProducerIdRequest():
                return InitProducerIdResponse(error_code=0, producer_id=4711, producer_epoch=0)
            case ProduceRequest():
                return self._produce(request)
            case ListOffsetsRequest():
                return self._list_offsets(request)
            case FetchRequest():
                return self._fetch(request)
            case FindCoordinatorRequest():  # librdkafka takes its version 0 for a sign that the broker knows lz4
                return FindCoordinatorResponse(
                    error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message=None, node_id=-1, host="", port=-1
                )
        raise AssertionError(request)

    def _metadata(self) -> Message:
        partition = MetadataResponsePartition(
            error_code=0, partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
        )
        topic = MetadataResponseTopic(error_code=0, name=TOPIC, topic_id=TOPIC_ID, partitions=[partition])
        broker = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.server_address[1])
        return MetadataResponse(brokers=[broker], cluster_id="fake", controller_id=1, topics=[topic])

    def _produce(self, request: ProduceRequest) -> Message:
        for topic in request.topic_data:
            for partition in topic.partition_data:
                self.produced.append(bytes(partition.records))
        done = PartitionProduceResponse(index=0, error_code=0, base_offset=0)
        return ProduceResponse(responses=[TopicProduceResponse(name=TOPIC, partition_responses=[done])])

    def _list_offsets(self, request: ListOffsetsRequest) -> Message:
        offset = 0 if request.topics[0].partitions[0].timestamp == -2 else self.end_offset
        found = ListOffsetsPartitionResponse(partition_index=0, error_code=0, timestamp=-1, offset=offset, leader_epoch=0)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[found])])

    def _fetch(self, request: FetchRequest) -> Message:
        partitions = []
        for topic in request.topics:
            for partition in topic.partitions:
                records = b"".join(
                    bytes(batch.view()) for batch in iter_batches(self.log) if batch.last_offset >= partition.fetch_offset
                )
                if not records:
                    self.closing.wait(request.max_wait_ms / 1000)
                data = PartitionData(
                    partition_index=0,
                    error_code=0,
                    high_watermark=self.end_offset,
                    last_stable_offset=self.end_offset,
                    log_start_offset=0,
                    aborted_transactions=[],
                    records=records,
                )
                partitions.append(data)
        responses = [FetchableTopicResponse(topic=TOPIC, partitions=partitions)] if partitions else []
        return FetchResponse(responses=responses)


class _Connection(socketserver.BaseRequestHandler):
    server: FakeBroker

    def handle(self) -> None:
        stream: socket.socket = self.request
        with stream.makefile("rb") as reader:
            while len(size := reader.read(4)) == 4:
                frame = reader.read(struct.unpack(">i", size)[0])
                answer = self._answer(frame)
                try:
                    stream.sendall(struct.pack(">i", len(answer)) + answer)
                except OSError:
                    return  # the client has gone

    def _answer(self, frame: bytes) -> bytes:
        key, version = struct.unpack_from(">hh", frame)
        api = SERVED[key]
        header, position = RequestHeader.decode_from(api.request_header_version(version), frame, 0)
        request: Any = api.request.decode(version, frame[position:])
        out = bytearray(ResponseHeader(correlation_id=header.correlation_id).encode(api.response_header_version(version)))
        out += self.server.answer(request, version).encode(version)
        return bytes(out)


@contextmanager
def fake_broker(log: bytes = b"") -> Iterator[FakeBroker]:
    with FakeBroker(log) as broker:
        thread = threading.Thread(target=broker.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield broker
        finally:
            broker.closing.set()
            broker.shutdown()
            thread.join()
