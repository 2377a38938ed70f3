"""Snapshots of the metadata of a large cluster: how long they take, and what they cost beside the image."""

from __future__ import annotations

import os
import time
import tracemalloc
from pathlib import Path

import pytest
from perf.measure import report

from pybroker.base.filesystem import OsFileSystem
from pybroker.base.ids import Uuid
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import EMPTY_IMAGE, MetadataImage
from pybroker.metadata.image_records import image_records
from pybroker.protocol.internal.metadata_log import FeatureLevelRecord, PartitionRecord, TopicRecord
from pybroker.server.metadata_snapshot import SnapshotReader, write_snapshot

pytestmark = pytest.mark.perf

TOPICS, PARTITIONS, BROKERS = 100, 1000, 9
MIB = 1024 * 1024
FILESYSTEM = OsFileSystem()


def large_image() -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(FeatureLevelRecord(name="metadata.version", feature_level=30))
    directories = [Uuid(bytes([number]) * 16) for number in range(1, BROKERS + 1)]
    for number in range(TOPICS):
        topic_id = Uuid(number.to_bytes(16, "big"))
        delta.replay(TopicRecord(name=f"topic-{number}", topic_id=topic_id))
        for index in range(PARTITIONS):
            replicas = [(number + index + more) % BROKERS for more in range(3)]
            delta.replay(
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=replicas,
                    isr=replicas,
                    removing_replicas=[],
                    adding_replicas=[],
                    leader=replicas[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[directories[broker] for broker in replicas],
                )
            )
    return delta.image(0, 0)


def loaded(path: Path) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    with SnapshotReader(FILESYSTEM, str(path)) as reader:
        for record in reader.records():
            delta.replay(record)
    return delta.image(0, 0)


def test_a_snapshot_of_100_000_partitions(tmp_path: Path) -> None:
    image, path = large_image(), tmp_path / "large.checkpoint"
    start = time.perf_counter()
    write_snapshot(FILESYSTEM, str(path), image_records(image), now_ms=1)
    report("a snapshot of 100,000 partitions, written", time.perf_counter() - start, "s")
    report("its size", os.path.getsize(path) / MIB, "MiB")
    start = time.perf_counter()
    again = loaded(path)
    took_s = time.perf_counter() - start
    report("read into an image", took_s, "s", bar=10)
    assert again.topics == image.topics
    assert took_s <= 10


def test_writing_takes_no_memory_for_the_whole(tmp_path: Path) -> None:
    image = large_image()
    tracemalloc.start()
    write_snapshot(FILESYSTEM, str(tmp_path / "large.checkpoint"), image_records(image), now_ms=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    again = loaded(tmp_path / "large.checkpoint")
    size, highest = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    report("writing a snapshot of 100,000 partitions, memory", peak / MIB, "MiB")
    report("the image that is read from it", (size - before) / MIB, "MiB")
    report("reading it, beside the image", (highest - size) / MIB, "MiB")
    assert len(again.topics) == TOPICS
    assert peak < 12 * MIB
    assert highest - size < 12 * MIB
