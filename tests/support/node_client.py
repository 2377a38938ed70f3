"""A client for tests of a node: one connection, one request at a time, every message through the protocol's own tables."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from support.batches import batch, records

from pybroker.base.ids import Uuid
from pybroker.metadata.image import ResourceType
from pybroker.protocol.api_table import APIS, Api
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from pybroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from pybroker.protocol.messages.headers import RequestHeader, ResponseHeader
from pybroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pybroker.protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pybroker.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from pybroker.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from pybroker.protocol.messages.transactions import InitProducerIdRequest

TIMEOUT_S = 20.0
# The last ones that name topics, which reads better in a test than an id does.
PRODUCE_VERSION = 12
FETCH_VERSION = 12
LATEST = -1
EARLIEST = -2

_APIS = {api.key: api for api in APIS}
_SET = 0


class NodeClient:
    def __init__(self, port: int, host: str = "127.0.0.1", timeout_s: float = TIMEOUT_S) -> None:
        self._socket = socket.create_connection((host, port), timeout_s)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: Message, version: int | None = None) -> Any:
        """The response, in the newest stable version unless told; ConnectionError if the node closes instead."""
        (response,) = self.ask_together([request], version)
        return response

    def ask_together(self, requests: Sequence[Message], version: int | None = None) -> list[Any]:
        """The responses to requests of which all are sent before any is answered."""
        sent = bytearray()
        asked = []
        for request in requests:
            api = _APIS[request.KEY]
            chosen = api.stable_versions[1] if version is None else version
            self._correlation_id += 1
            header = RequestHeader(
                request_api_key=api.key, request_api_version=chosen, correlation_id=self._correlation_id, client_id="test"
            )
            frame = header.encode(api.request_header_version(chosen)) + request.encode(chosen)
            sent += struct.pack(">i", len(frame)) + frame
            asked.append((api, chosen, self._correlation_id))
        self._socket.sendall(sent)
        return [self._answer(*one) for one in asked]

    def _answer(self, api: Api, version: int, correlation_id: int) -> Any:
        answer = self._exactly(struct.unpack(">i", self._exactly(4))[0])
        found, position = ResponseHeader.decode_from(api.response_header_version(version), answer, 0)
        assert found.correlation_id == correlation_id
        return api.response.decode(version, answer[position:])

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            if not piece:
                raise ConnectionError("the node closed the connection")
            data += piece
        return bytes(data)

    # Topics.

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None) -> Uuid:
        rows = [CreatableTopicConfig(name=key, value=str(value)) for key, value in (configs or {}).items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=rows)
        created = self.ask(CreateTopicsRequest(topics=[topic])).topics[0]
        assert created.error_code == ErrorCode.NONE, created
        return Uuid(bytes(created.topic_id))

    def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=Uuid(bytes(16)))], timeout_ms=10_000)
        done = self.ask(request).responses[0]
        assert done.error_code == ErrorCode.NONE, done

    def topic(self, name: str, *, creates: bool = False) -> Any:
        """What Metadata says of it."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=creates)
        return self.ask(request).topics[0]

    # Records.

    def send(
        self, topic: str, values: Sequence[bytes], partition: int = 0, *, acks: int = -1, **options: Any
    ) -> PartitionProduceResponse:
        """One batch; `options` are those of `support.batches.batch`."""
        data = PartitionProduceData(index=partition, records=bytes(batch(values, **options)))
        request = ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])
        answer: PartitionProduceResponse = self.ask(request, PRODUCE_VERSION).responses[0].partition_responses[0]
        return answer

    def produce(self, topic: str, values: Sequence[bytes], partition: int = 0, **options: Any) -> int:
        """The offset of the first record."""
        done = self.send(topic, values, partition, **options)
        assert done.error_code == ErrorCode.NONE, done
        return done.base_offset

    def fetch(
        self, topic: str, offset: int, partition: int = 0, *, max_bytes: int = 1 << 20, max_wait_ms: int = 0
    ) -> PartitionData:
        """With `max_wait_ms` it waits for a first byte."""
        row = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min(max_wait_ms, 1),
            max_bytes=max_bytes,
            topics=[FetchTopic(topic=topic, partitions=[row])],
        )
        answer: PartitionData = self.ask(request, FETCH_VERSION).responses[0].partitions[0]
        return answer

    def consume(self, topic: str, partition: int = 0, offset: int = 0) -> list[tuple[int, bytes | None]]:
        """(offset, value) of every record from `offset` up to the high watermark."""
        found: list[tuple[int, bytes | None]] = []
        while True:
            data = self.fetch(topic, offset, partition)
            assert data.error_code == ErrorCode.NONE, ErrorCode(data.error_code)
            got = [row for row in records(bytes(data.records or b"")) if row[0] >= offset]
            if not got:
                assert offset >= data.high_watermark, f"nothing at {offset}, below {data.high_watermark}"
                return found
            found += got
            offset = got[-1][0] + 1

    def offset(self, topic: str, timestamp: int = LATEST, partition: int = 0) -> int:
        rows = [ListOffsetsPartition(partition_index=partition, timestamp=timestamp)]
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name=topic, partitions=rows)], timeout_ms=10_000
        )
        found = self.ask(request).topics[0].partitions[0]
        assert found.error_code == ErrorCode.NONE, ErrorCode(found.error_code)
        return int(found.offset)

    def producer_id(self) -> tuple[int, int]:
        """An idempotent producer's id and epoch."""
        given = self.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))
        assert given.error_code == ErrorCode.NONE, given
        return given.producer_id, given.producer_epoch

    # Configs.

    def configure(self, kind: ResourceType, name: str, values: Mapping[str, object]) -> None:
        """Set single configs; "" is the name of the cluster's defaults of brokers."""
        rows = [
            IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=_SET, value=str(value))
            for key, value in values.items()
        ]
        resource = IncrementalAlterConfigsRequestAlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
        done = self.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)).responses[0]
        assert done.error_code == ErrorCode.NONE, done

    def config(self, kind: ResourceType, name: str, key: str) -> str | None:
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[key])
        found = self.ask(DescribeConfigsRequest(resources=[resource])).results[0]
        assert found.error_code == ErrorCode.NONE, found
        value: str | None = found.configs[0].value
        return value
