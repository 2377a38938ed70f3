"""Apache Kafka writes, stops or is killed; we open its directories and see what its clients saw."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest
from interop.apache_broker import ApacheBroker, topic_id_of
from interop.apache_kafka import ApacheTools
from interop.log.clients import Producer, Row, rows, transaction
from interop.log.dumps import dump_partition, dump_snapshot, dump_transaction_index
from interop.log.our_log import OurPartition, opened
from interop.log.seen import MAX_TIMESTAMP, Seen, checkpoint, leader_epochs, look
from support.waiting import wait_until

from pybroker.protocol.records.batch import TimestampType, iter_batches
from pybroker.protocol.records.builder import BatchBuilder
from pybroker.protocol.records.compression import Codec
from pybroker.protocol.records.record import Record

NOW_MS = time.time_ns() // 1_000_000 - 600_000
SMALL = {"internal.segment.bytes": "8000", "index.interval.bytes": "300"}


def write_codec(codec: Codec) -> Callable[[ApacheBroker, str], object]:
    def write(broker: ApacheBroker, topic: str) -> None:
        broker.create_topic(topic)
        producer = Producer(broker, topic, compression_codec=codec.name.lower(), batch_num_messages=50)
        producer.send(rows(400, NOW_MS))

    return write


def write_append_time(broker: ApacheBroker, topic: str) -> None:
    broker.create_topic(topic, {"message.timestamp.type": "LogAppendTime", **SMALL})
    for codec in ("none", "lz4"):
        Producer(broker, topic, compression_codec=codec, batch_num_messages=30).send(rows(300, NOW_MS))


def write_recompressed(broker: ApacheBroker, topic: str) -> None:
    broker.create_topic(topic, {"compression.type": "zstd"})
    Producer(broker, topic, compression_codec="gzip", batch_num_messages=50).send(rows(300, NOW_MS))


def write_segments(broker: ApacheBroker, topic: str) -> None:
    """Of the smallest size that a topic may ask for, with timestamps that go up and down."""
    broker.create_topic(topic, {"segment.bytes": str(1 << 20)})
    producer = Producer(broker, topic, enable_idempotence=True, batch_num_messages=20)
    made = rows(1700, NOW_MS, size=2000)
    producer.send(row._replace(timestamp=NOW_MS + index * 7919 % 5000) for index, row in enumerate(made))


def write_many_segments(broker: ApacheBroker, topic: str) -> None:
    broker.create_topic(topic, SMALL)
    for start in range(0, 2000, 500):
        producer = Producer(broker, topic, enable_idempotence=True, batch_num_messages=10)
        producer.send(rows(500, NOW_MS, start=start))


def write_transactions(broker: ApacheBroker, topic: str) -> None:
    """Two interleaved transactional producers and a plain one, over several segments; one transaction in three aborts."""
    broker.create_topic(topic, SMALL)
    first, second = (Producer(broker, topic, transactional_id=f"{topic}-{n}", batch_num_messages=20) for n in (1, 2))
    plain = Producer(broker, topic, batch_num_messages=20)
    start = 0
    for turn in range(9):
        with transaction(first, abort=turn % 3 == 1):
            first.send(rows(60, NOW_MS, start=start))
            with transaction(second, abort=turn % 3 == 2):
                second.send(rows(40, NOW_MS, start=start + 60))
                plain.send(rows(5, NOW_MS, start=start + 100))
                first.send(rows(10, NOW_MS, start=start + 105))
        start += 115


def write_open_transaction(broker: ApacheBroker, topic: str) -> Producer:
    """Broker and producer end in the middle of it."""
    broker.create_topic(topic)
    producer = Producer(broker, topic, transactional_id=topic)
    with transaction(producer, abort=True):
        producer.send(rows(10, NOW_MS))
    producer.begin()
    producer.send(rows(20, NOW_MS, start=10))
    Producer(broker, topic).send(rows(10, NOW_MS, start=30))
    return producer


def write_compacted(broker: ApacheBroker, topic: str) -> None:
    """Keys many times over, tombstones, aborted keys; read once the cleaner has been over all but the active segment, twice.

    The pass that removes an aborted transaction's records still lists the transaction, the next one does not; a recovery, ours
    or Apache Kafka's own, cannot find one again that has no records left.
    """
    broker.create_topic(topic, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.0", **SMALL})
    producer = Producer(broker, topic, transactional_id=topic, batch_num_messages=10)
    plain = Producer(broker, topic, enable_idempotence=True, batch_num_messages=10)
    for turn in range(6):
        with transaction(producer, abort=turn == 3):
            producer.send(_keyed(turn * 200, 150, keys=40))
        plain.send(_keyed(turn * 200 + 150, 50, keys=90))
    plain.send([Row(NOW_MS + 1200, b"key-%d" % key, None) for key in range(0, 90, 4)])
    plain.send(_keyed(1300, 200, keys=5))

    def cleaned() -> bool:
        active = segments(broker.partition_dir(topic))[-1]
        return checkpoint(broker.data_dir / "cleaner-offset-checkpoint").get((topic, 0), 0) == active > 0

    wait_until(cleaned, 60, lambda: f"the cleaner has not been over {topic}")
    plain.send(_keyed(1500, 200, keys=5))
    wait_until(cleaned, 60, lambda: f"the cleaner has not been over {topic} a second time")


def _keyed(start: int, count: int, keys: int) -> list[Row]:
    return [Row(NOW_MS + n, b"key-%d" % (n % keys), b"value %d " % n * 8) for n in range(start, start + count)]


def write_deleted(broker: ApacheBroker, topic: str) -> None:
    """DeleteRecords into the middle of a batch; the segments below are on their way out."""
    broker.create_topic(topic, SMALL)
    producer = Producer(broker, topic, enable_idempotence=True, batch_num_messages=50)
    producer.send(rows(1000, NOW_MS))
    assert broker.delete_records(topic, 777) == 777

    def gone() -> bool:
        starts = checkpoint(broker.data_dir / "log-start-offset-checkpoint")
        return starts.get((topic, 0)) == 777 and segments(broker.partition_dir(topic))[1] > 777

    wait_until(gone, 60, lambda: f"{topic} still has the segments {segments(broker.partition_dir(topic))}")


def write_all_deleted(broker: ApacheBroker, topic: str) -> None:
    broker.create_topic(topic)
    Producer(broker, topic).send(rows(100, NOW_MS))
    assert broker.delete_records(topic, -1) == 100
    starts = broker.data_dir / "log-start-offset-checkpoint"
    wait_until(lambda: checkpoint(starts).get((topic, 0)) == 100, 60, lambda: f"{topic} is not in {starts}")


def segments(path: Path) -> list[int]:
    return sorted(int(file.stem) for file in path.glob("*.log"))


def write_empty(broker: ApacheBroker, topic: str) -> None:
    broker.create_topic(topic)


def write_before_restart(broker: ApacheBroker, topic: str) -> None:
    broker.create_topic(topic)
    Producer(broker, topic).send(rows(100, NOW_MS))


WRITERS: dict[str, Callable[[ApacheBroker, str], object]] = {
    **{f"codec-{codec.name.lower()}": write_codec(codec) for codec in Codec},
    "append-time": write_append_time,
    "recompressed": write_recompressed,
    "segments": write_segments,
    "many-segments": write_many_segments,
    "transactions": write_transactions,
    "open-transaction": write_open_transaction,
    "compacted": write_compacted,
    "deleted": write_deleted,
    "all-deleted": write_all_deleted,
    "empty": write_empty,
}


@dataclass(slots=True, frozen=True)
class Left:
    """What a broker has left behind."""

    data_dir: Path
    seen: dict[str, Seen]
    clean: bool

    def copied(self, topic: str, tmp_path: Path) -> Path:
        """The partition's directory, for the test to work on."""
        return Path(shutil.copytree(self.data_dir / f"{topic}-0", tmp_path / f"{topic}-0"))

    def opened(self, path: Path) -> AbstractContextManager[OurPartition]:
        """Such a copy in our log, with what the broker's checkpoints say of it."""
        partition = parse_partition(path)
        return opened(
            path,
            {"cleanup.policy": ("compact",)} if partition[0] == "compacted" else None,
            clean=self.clean,
            start_offset=checkpoint(self.data_dir / "log-start-offset-checkpoint").get(partition, 0),
            recovery_point=checkpoint(self.data_dir / "recovery-point-offset-checkpoint").get(partition, 0),
        )


def parse_partition(path: Path) -> tuple[str, int]:
    topic, _, partition = path.name.rpartition("-")
    return topic, int(partition)


@pytest.fixture(scope="module", params=["stopped", "killed"])
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Left]:
    properties = {
        "log.cleaner.backoff.ms": "100",
        "log.initial.task.delay.ms": "100",
        "log.flush.start.offset.checkpoint.interval.ms": "200",
        "log.retention.check.interval.ms": "200",
    }
    with ApacheBroker(tmp_path_factory.mktemp(request.param), properties) as broker:
        write_before_restart(broker, "epochs")
        broker.restart()  # which begins a leader epoch
        broker.wait_for_leaders("epochs")
        Producer(broker, "epochs").send(rows(50, NOW_MS, start=100))
        kept = [write(broker, topic) for topic, write in WRITERS.items()]
        seen = {topic: look(broker, topic) for topic in [*WRITERS, "epochs"]}
        broker.stop(clean=request.param == "stopped")
        del kept
        yield Left(broker.data_dir, seen, clean=request.param == "stopped")


every_topic = pytest.mark.parametrize("topic", [*WRITERS, "epochs"])


@every_topic
def test_the_topics_are_what_they_are_meant_to_be(left: Left, tools: ApacheTools, topic: str, tmp_path: Path) -> None:
    """Else the other tests would prove little."""
    seen = left.seen[topic]
    path = left.copied(topic, tmp_path)
    files = sorted(path.glob("*.log"))
    batches = list(iter_batches(seen.batches))
    dumped = dump_partition(tools, path, compacted=topic == "compacted")
    assert [batch.crc for batch in dumped if batch.last_offset >= seen.start_offset] == [batch.crc for batch in batches]
    assert topic_id_of(path) == seen.topic_id
    match topic:
        case "append-time":
            assert {batch.timestamp_type for batch in batches} == {TimestampType.LOG_APPEND_TIME}
            assert {batch.codec for batch in batches} == {Codec.NONE, Codec.LZ4}
            assert min(record.timestamp for record in seen.records) > NOW_MS + 1000
        case "recompressed":
            assert {batch.codec for batch in batches} == {Codec.ZSTD}
        case "segments":
            assert len(files) >= 3
            newest = max(seen.records, key=lambda record: record.timestamp)
            assert seen.by_time[MAX_TIMESTAMP] == (newest.offset, newest.timestamp)
            assert newest.offset != 1699
        case "many-segments":
            assert len(files) >= 5
            assert len(seen.producers) == 4
        case "transactions":
            assert len(files) >= 4
            assert len(list(path.glob("*.txnindex"))) >= 2
            assert len(seen.aborts) == 6
            assert len(seen.committed) == len(seen.records) - 3 * 70 - 3 * 40
        case "open-transaction":
            assert (seen.stable_offset, seen.end_offset) == (11, 41)
            assert seen.committed == []
            assert [row.txn_start_offset for row in seen.producers if row.txn_start_offset >= 0] == [11]
        case "compacted":
            assert len(seen.records) < 700
            assert seen.aborts == []
            assert any(batch.count == 0 for batch in dumped)
            assert any(batch.delete_horizon_ms is not None for batch in dumped)
            assert any(record.value is None for record in seen.records)
        case "deleted":
            assert seen.start_offset == seen.records[0].offset == 777
            assert batches[0].base_offset < 777
            assert list(path.glob("*.log.deleted"))
        case "all-deleted":
            assert (seen.start_offset, seen.end_offset, seen.batches) == (100, 100, b"")
        case "empty":
            assert (seen.start_offset, seen.end_offset) == (0, 0)
        case "epochs":
            assert len(leader_epochs(path)) == 2
        case _:
            assert {batch.codec for batch in batches} == {Codec[topic.removeprefix("codec-").upper()]}
            assert seen.records == seen.committed
            assert len(seen.records) == 400


@every_topic
def test_the_same_records(left: Left, topic: str, tmp_path: Path) -> None:
    seen = left.seen[topic]
    with left.opened(left.copied(topic, tmp_path)) as ours:
        assert (ours.start_offset, ours.end_offset) == (seen.start_offset, seen.end_offset)
        assert ours.batches() == seen.batches
        assert ours.batches(max_bytes=3000) == seen.batches
        assert ours.records() == seen.records


@every_topic
def test_the_same_committed_records(left: Left, topic: str, tmp_path: Path) -> None:
    seen = left.seen[topic]
    with left.opened(left.copied(topic, tmp_path)) as ours:
        assert ours.stable_offset == seen.stable_offset
        assert sorted(ours.aborts(seen.start_offset, seen.stable_offset)) == seen.aborts
        assert ours.records(committed=True) == seen.committed


@every_topic
def test_the_same_offsets_by_time(left: Left, topic: str, tmp_path: Path) -> None:
    seen = left.seen[topic]
    moments = set(seen.by_time)
    if topic == "all-deleted":
        # The one segment stays, and Kafka finds a record in it that is deleted.
        assert seen.by_time[MAX_TIMESTAMP][0] == 99
        moments.remove(MAX_TIMESTAMP)
    with left.opened(left.copied(topic, tmp_path)) as ours:
        for moment in moments:
            assert ours.offset_for(moment) == seen.by_time[moment], moment


@every_topic
def test_the_same_leader_epochs_and_producers(left: Left, topic: str, tmp_path: Path) -> None:
    seen = left.seen[topic]
    path = left.copied(topic, tmp_path)
    # An epoch without a record yet is forgotten at the next start; becoming leader begins another.
    epochs = [(epoch, start) for epoch, start in leader_epochs(path) if start < seen.end_offset]
    with left.opened(path) as ours:
        assert ours.leader_epochs() == epochs
        assert ours.producers() == seen.producers
    assert [(epoch, start) for epoch, start in leader_epochs(path) if start < seen.end_offset] == epochs


@every_topic
def test_what_we_close_says_the_same_to_kafkas_tool(left: Left, tools: ApacheTools, topic: str, tmp_path: Path) -> None:
    """Opened and closed by us, the directory's snapshot of producers and its aborted transactions are what they were."""
    seen = left.seen[topic]
    path = left.copied(topic, tmp_path)
    snapshot = path / f"{seen.end_offset:020d}.snapshot"
    theirs = sorted(dump_snapshot(tools, snapshot)) if snapshot.exists() else None
    # A kill leaves none, and Kafka writes none for a log that is wholly deleted.
    assert (theirs is not None) == (left.clean and topic not in ("all-deleted", "empty"))
    aborted = [row for file in sorted(path.glob("*.txnindex")) for row in dump_transaction_index(tools, file)]
    with left.opened(path):
        pass
    if seen.records:
        ours = sorted(dump_snapshot(tools, snapshot))
        assert theirs is None or ours == theirs
        assert [(row.producer_id, row.producer_epoch, row.coordinator_epoch, row.last_timestamp) for row in ours] == [
            (row.producer_id, row.producer_epoch, row.coordinator_epoch, row.last_timestamp) for row in seen.producers
        ]
    assert [row for file in sorted(path.glob("*.txnindex")) for row in dump_transaction_index(tools, file)] == aborted


@every_topic
def test_we_append_behind_them(left: Left, topic: str, tmp_path: Path) -> None:
    seen = left.seen[topic]
    path = left.copied(topic, tmp_path)
    epoch = max((epoch for epoch, _ in leader_epochs(path)), default=0) + 1
    builder = BatchBuilder(codec=Codec.LZ4)
    for number in range(3):
        builder.append(NOW_MS, b"key", b"ours %d" % number)
    batch = builder.build()
    expected = [Record(seen.end_offset + number, NOW_MS, b"key", b"ours %d" % number) for number in range(3)]
    with left.opened(path) as ours:
        assert ours.append(batch, leader_epoch=epoch, now_ms=NOW_MS) == seen.end_offset
        assert ours.records() == seen.records + expected
    with opened(path, start_offset=seen.start_offset) as ours:
        assert ours.end_offset == seen.end_offset + 3
        assert ours.records() == seen.records + expected
        assert ours.leader_epochs()[-1] == (epoch, seen.end_offset)
