"""What it costs to decode and encode messages, and to import them. Printed, not asserted: `make perf`."""

from __future__ import annotations

import subprocess
import sys

import pytest
from perf.measure import best_us, report

from pybroker.protocol.message import decoder, encoder
from pybroker.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from pybroker.protocol.messages.headers import RequestHeader
from pybroker.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pybroker.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

pytestmark = pytest.mark.perf


def produce_request() -> ProduceRequest:
    partition = PartitionProduceData(index=3, records=bytes(16384))
    return ProduceRequest(acks=-1, timeout_ms=30000, topic_data=[TopicProduceData(name="events", partition_data=[partition])])


def produce_response() -> ProduceResponse:
    partition = PartitionProduceResponse(index=3, error_code=0, base_offset=12345, log_start_offset=0)
    return ProduceResponse(responses=[TopicProduceResponse(name="events", partition_responses=[partition])])


def metadata_response(partitions: int) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node, host=f"broker-{node}", port=9092) for node in range(3)],
        cluster_id="c",
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                error_code=0,
                name="events",
                partitions=[
                    MetadataResponsePartition(
                        error_code=0,
                        partition_index=index,
                        leader_id=index % 3,
                        leader_epoch=5,
                        replica_nodes=[0, 1, 2],
                        isr_nodes=[0, 1, 2],
                        offline_replicas=[],
                    )
                    for index in range(partitions)
                ],
            )
        ],
    )


def fetch_request(partitions: int) -> FetchRequest:
    rows = [FetchPartition(partition=index, fetch_offset=100, partition_max_bytes=1 << 20) for index in range(partitions)]
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic="events", partitions=rows)])


def fetch_response(partitions: int) -> FetchResponse:
    rows = [
        PartitionData(
            partition_index=index, error_code=0, high_watermark=9, last_stable_offset=9, aborted_transactions=None, records=b""
        )
        for index in range(partitions)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="events", partitions=rows)])


def test_messages() -> None:
    print()
    rows = (
        ("Produce v9 request, one partition", produce_request(), 9, 5, None),
        ("Produce v9 response, one partition", produce_response(), 9, None, 4),
        ("Produce v7 request, one partition", produce_request(), 7, None, None),
        ("Fetch v12 request, one partition", fetch_request(1), 12, None, None),
        ("Fetch v12 request, 100 partitions", fetch_request(100), 12, None, None),
        ("Fetch v12 response, one partition", fetch_response(1), 12, None, None),
        ("Metadata v12 response, 1,000 partitions", metadata_response(1000), 12, 6000, 6000),
        (
            "request header v2",
            RequestHeader(request_api_key=0, request_api_version=9, correlation_id=1, client_id="c"),
            2,
            None,
            None,
        ),
    )
    for name, message, version, decode_bar, encode_bar in rows:
        buffer = memoryview(message.encode(version))
        decode, encode = decoder(type(message), version), encoder(type(message), version)
        report(f"decode {name}", best_us(lambda decode=decode, buffer=buffer: decode(buffer, 0)), "µs", decode_bar)
        report(
            f"encode {name}",
            best_us(lambda encode=encode, message=message: encode(message, bytearray(), None)),
            "µs",
            encode_bar,
        )


def test_imports() -> None:
    """In a fresh interpreter, compiled files warm, less the interpreter's own start."""
    print()
    code = "import time; start = time.perf_counter(); import {0}; print((time.perf_counter() - start) * 1000)"
    for module in ("pybroker.protocol.api_table", "pybroker.config"):
        command = [sys.executable, "-c", code.format(module)]
        times = [float(subprocess.run(command, capture_output=True, check=True, env={}).stdout) for _ in range(6)]
        report(f"import {module}", min(times), "ms")
