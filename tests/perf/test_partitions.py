"""How long a node of its own process takes to make a topic of 1,000 partitions, and to start with them again.

The bars are those of `make bench` with the seconds of Apache Kafka 4.3.1 on a quiet machine of two cores put in: 3.1 s, 4.4 s
and 12.2 s. A disk from which much was just deleted makes new files slowly.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from perf.bench.servers import PyBroker
from perf.measure import report
from support.batches import batch

from pybroker.base.ids import Uuid
from pybroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

pytestmark = pytest.mark.perf

PARTITIONS = 1000
TOPIC = "many"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PyBroker]:
    server = PyBroker(tmp_path / "node")
    server.prepare()
    try:
        yield server
    finally:
        server.kill()


def test_1000_partitions(server: PyBroker) -> None:
    report("start of an empty node to the first Metadata", server.start(), "s", 0.6)
    began = time.perf_counter()
    topic_id = server.create_topic(TOPIC, PARTITIONS)
    report("1,000 partitions made", time.perf_counter() - began, "s", 0.5 * 3.1)
    server.stop()
    report("restart with 1,000 empty partitions after a clean stop", restarted(server), "s", 0.2 * 4.4)
    server.kill()
    report("restart with 1,000 empty partitions after kill -9", restarted(server), "s", 0.2 * 12.2)
    fill(server, topic_id)
    server.kill()
    report("restart with a batch in each after kill -9", restarted(server), "s", 0.2 * 12.2)
    began = time.perf_counter()
    server.stop()
    report("clean stop with a batch to flush in each", time.perf_counter() - began, "s")
    report("restart with a batch in each after a clean stop", restarted(server), "s", 0.2 * 4.4)
    assert server.end_offsets(TOPIC, PARTITIONS) == [(0, 1)] * PARTITIONS


def restarted(server: PyBroker) -> float:
    return server.start(TOPIC, PARTITIONS)


def fill(server: PyBroker, topic_id: Uuid) -> None:
    """One record for each partition."""
    now_ms = time.time_ns() // 1_000_000
    rows = [PartitionProduceData(index=index, records=batch([b"value"], timestamp=now_ms)) for index in range(PARTITIONS)]
    topics = [TopicProduceData(topic_id=topic_id, partition_data=rows)]
    (answer,) = server.ask(ProduceRequest(acks=1, timeout_ms=60_000, topic_data=topics), 13).responses
    assert {row.error_code for row in answer.partition_responses} == {0}
