"""How long the controller takes over many partitions: to make them, to move their leaders, to begin with them.

In seconds of the processor, so that a busy machine does not count.
"""

from __future__ import annotations

import gc
import os
import time
import tracemalloc
from pathlib import Path
from random import Random

import pytest
from perf.measure import report
from support.node_client import NodeClient
from support.nodes import running
from unit.config.configs import config_with
from unit.metadata.clusters import CLUSTER_ID, TestCluster, registration, topic

from pybroker.base.ids import Uuid
from pybroker.metadata.controller.controller import Controller
from pybroker.metadata.controller.features import METADATA_VERSION, RELEASES, record_version
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionState
from pybroker.protocol.internal.metadata_log import FeatureLevelRecord, PartitionRecord, TopicRecord
from pybroker.protocol.message import Message
from pybroker.protocol.messages.cluster import BrokerHeartbeatRequest
from pybroker.protocol.messages.topics import CreateTopicsRequest

pytestmark = pytest.mark.perf

BROKERS = range(1, 7)
LEVEL = RELEASES["4.3-IV0"]


def replayed(cluster: TestCluster, records: list[Message]) -> float:
    began = time.process_time()
    for record in records:
        record.encode(record_version(type(record), LEVEL))
    encoded = time.process_time() - began
    cluster.replay(*records)
    assert cluster.image.offset >= 0
    return encoded


def test_a_topic_of_1000_partitions_is_created() -> None:
    cluster = TestCluster(BROKERS)
    for number in range(20):
        cluster.create(f"old-{number}", 500, 3)
    began = time.process_time()
    result = cluster.controller.handle(0, CreateTopicsRequest(topics=[topic("wide", 1000, 3)]), 7)
    replayed(cluster, result.records)
    took = time.process_time() - began
    report("a topic of 1,000 partitions decided, encoded, replayed", took, "s", 1.0)
    assert len(cluster.image.topics["wide"].partitions) == 1000
    assert took < 1.0


def test_a_client_creates_a_topic_of_1000_partitions(tmp_path: Path) -> None:
    """From its request to the answer: committed on disk, published, every log made. Its thousands of files are the
    kernel's work, which takes as long as others keep the disk busy: only our own is held to the bar."""
    with running(tmp_path) as node, NodeClient(node.port) as client:
        client.create_topic("warm")
        began, before = time.perf_counter(), os.times()
        client.create_topic("wide", 1000)
        took, after = time.perf_counter() - began, os.times()
        own = after.user - before.user
        report("a topic of 1,000 partitions, end to end", took, "s", 1.0)
        report("  of that in the kernel", after.system - before.system, "s")
        report("  of that our own", own, "s", 1.0)
        assert len(client.topic("wide").partitions) == 1000
    assert own < 1.0


@pytest.mark.parametrize("topics", [1, 10, 10_000])
def test_a_broker_that_leads_10_000_partitions_is_fenced(topics: int) -> None:
    cluster = TestCluster((1, 2, 3))
    dead = 1
    each = 10_000 // topics
    records: list[Message] = []
    for number in range(topics):
        topic_id = Uuid(number.to_bytes(16, "little"))
        records.append(TopicRecord(name=f"t-{number}", topic_id=topic_id))
        records += [partition(topic_id, index, [dead, 2, 3]) for index in range(each)]
    cluster.replay(*records)
    assert cluster.image.topics["t-0"].partitions[0].leader == dead
    for alive in (2, 3):
        cluster.now_ms = 5000
        cluster.ask(heartbeat(alive, cluster.image.brokers[alive].epoch))
    began = time.process_time()
    result = cluster.controller.tick(9001)
    assert result is not None
    decided = time.process_time() - began
    encoded = replayed(cluster, result.records)
    took = time.process_time() - began
    report(f"10,000 leaders in {topics} topics elected: decided", decided, "s")
    report("  encoded", encoded, "s")
    report("  in all, with the replay and the new image", took, "s", 1.0)
    assert len(result.records) == 10_001
    assert took < 1.0
    assert not leaders(cluster.image) & {dead, -1}


def heartbeat(broker_id: int, epoch: int) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(
        broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=1 << 40, want_fence=False, want_shut_down=False
    )


def leaders(image: MetadataImage) -> set[int]:
    return {state.leader for topic in image.topics.values() for state in topic.partitions.values()}


def test_an_image_of_100_000_partitions_is_loaded() -> None:
    random = Random(1)
    records: list[Message] = [FeatureLevelRecord(name=METADATA_VERSION, feature_level=LEVEL)]
    records += [registration(broker_id) for broker_id in range(100)]
    for number in range(1000):
        topic_id = Uuid(random.randbytes(16))
        records.append(TopicRecord(name=f"topic-{number}", topic_id=topic_id))
        records += [partition(topic_id, index, random.sample(range(100), 3)) for index in range(100)]
    written = [(type(record), record.encode(record_version(type(record), LEVEL))) for record in records]
    del records
    gc.collect()
    began = time.process_time()
    image = loaded(written)
    took = time.process_time() - began
    report("100,000 partitions from their records to an image", took, "s", 10.0)
    began = time.process_time()
    controller = beginning_with(image)
    report("a controller begins with it", time.process_time() - began, "s")
    assert sum(len(topic.partitions) for topic in controller.image.topics.values()) == 100_000
    del controller, image
    gc.collect()
    tracemalloc.start()
    image = loaded(written)
    of_image = tracemalloc.get_traced_memory()[0]
    controller = beginning_with(image)
    of_both = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    report("memory of the image", of_image / 2**20, "MiB")
    report("and of the controller beside it", (of_both - of_image) / 2**20, "MiB")
    assert controller.image is image
    assert took < 10.0


def beginning_with(image: MetadataImage) -> Controller:
    random = Random(1)
    controller = Controller(
        config_with(), CLUSTER_ID, new_uuid=lambda: Uuid(random.randbytes(16)), draw_below=random.randrange, image=image
    )
    controller.start(0)
    return controller


def loaded(written: list[tuple[type[Message], bytes]]) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    for kind, data in written:
        delta.replay(kind.decode(record_version(kind, LEVEL), data))
    return delta.image(len(written), 1)


def partition(topic_id: Uuid, index: int, replicas: list[int]) -> PartitionRecord:
    state = PartitionState(replicas=tuple(replicas), isr=tuple(replicas), leader=replicas[0])
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=[*state.replicas],
        isr=[*state.isr],
        removing_replicas=[],
        adding_replicas=[],
        leader=state.leader,
        leader_epoch=0,
        partition_epoch=0,
        directories=[Uuid(f"directory {one}".encode().ljust(16, b".")) for one in replicas],
    )
