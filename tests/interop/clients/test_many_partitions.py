"""Ten thousand partitions: every client lists them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from interop.broker_process import BrokerProcess
from interop.clients.catalog import CLIENTS

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

TOPICS, PARTITIONS = 100, 100


@pytest.fixture(scope="session")
def crowded(broker_class: type[BrokerProcess]) -> Iterator[BrokerProcess]:
    # In memory where there is such a directory: this is about metadata, and thirty thousand files take a disk its time.
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder, broker_class(Path(folder)) as broker:
        started = time.monotonic()
        for index in range(TOPICS):
            topic = CreatableTopic(
                name=f"crowd-{index}", num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[]
            )
            (created,) = broker.ask(CreateTopicsRequest(topics=[topic])).topics
            assert created.error_code == ErrorCode.NONE, created
        for index in range(TOPICS):
            broker.wait_for_leaders(f"crowd-{index}", PARTITIONS)
        print(f"\n{TOPICS * PARTITIONS} partitions made in {time.monotonic() - started:.1f} s")
        yield broker


@pytest.mark.parametrize("name", CLIENTS)
def test_ten_thousand_partitions_are_listed(crowded: BrokerProcess, name: str, tmp_path: Path) -> None:
    with CLIENTS[name].start(crowded.bootstrap, tmp_path) as client:
        started = time.monotonic()
        listed = client.list_topics()
        print(f"\n{name} listed {len(listed)} topics in {time.monotonic() - started:.2f} s")
        assert {topic: count for topic, count in listed.items() if topic.startswith("crowd-")} == {
            f"crowd-{index}": PARTITIONS for index in range(TOPICS)
        }
        assert client.describe_topic("crowd-77").partitions.keys() == set(range(PARTITIONS))
