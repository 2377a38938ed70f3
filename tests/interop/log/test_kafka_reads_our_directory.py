"""Our log fills the directories of topics that Apache Kafka made; Apache Kafka opens them, serves them, and goes on."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from interop.apache_broker import ApacheBroker, topic_id_of
from interop.apache_kafka import ApacheTools
from interop.log.clients import Producer, consume_with_kafka_python, rows, topic_id, transaction
from interop.log.dumps import dump_index, dump_partition, dump_time_index, dump_transaction_index
from interop.log.our_log import opened
from interop.log.seen import EARLIEST, EARLIEST_LOCAL, LATEST, MAX_TIMESTAMP, Seen, checkpoint, leader_epochs, look
from interop.log.workload import IDEMPOTENT, Workload, everything

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pybroker.protocol.records.compression import Codec
from pybroker.protocol.records.record import Record

NOW_MS = time.time_ns() // 1_000_000
SMALL = {"internal.segment.bytes": "16000", "index.interval.bytes": "300"}
OURS: dict[str, Any] = {"segment.bytes": 16_000, "index.interval.bytes": 300}
DELETED_BEFORE = 333

# Of each topic: Kafka's configs, ours, and what we write.
TOPICS: dict[str, tuple[dict[str, str], dict[str, Any], Workload]] = {
    "one-segment": ({}, {}, everything(NOW_MS)),
    "many-segments": (SMALL, OURS, everything(NOW_MS)),
    "open-transaction": (SMALL, OURS, everything(NOW_MS, open_transaction=True)),
    "deleted": (SMALL, OURS, everything(NOW_MS)),
}


@dataclass(slots=True, frozen=True)
class Served:
    """A running Apache Kafka on what we wrote."""

    broker: ApacheBroker
    before: Path  # a copy of what we had written
    seen: dict[str, Seen]  # at its start
    by_time: dict[str, dict[int, tuple[int, int]]]  # by our log


@pytest.fixture(scope="module", params=["trusting", "recovering"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Apache Kafka takes our files as after a clean stop, or scans them as after a crash."""
    root = tmp_path_factory.mktemp(request.param)
    with ApacheBroker(root / "broker") as broker:
        ids = {topic: broker.create_topic(topic, config) for topic, (config, _, _) in TOPICS.items()}
        broker.stop()
        by_time: dict[str, dict[int, tuple[int, int]]] = {}
        for topic, (_, config, workload) in TOPICS.items():
            path = broker.partition_dir(topic)
            (epoch,) = {epoch for epoch, _ in leader_epochs(path)}
            with opened(path, config) as ours:
                workload.write(ours, leader_epoch=epoch)
                if topic == "deleted":
                    ours.delete_records(DELETED_BEFORE, now_ms=NOW_MS)
                stamps = sorted({record.timestamp for record in workload.records if record.offset >= ours.start_offset})
                moments = {stamp + step for stamp in stamps[:: len(stamps) // 20] + stamps[-1:] for step in (-1, 0, 1)}
                moments |= {LATEST, EARLIEST, EARLIEST_LOCAL, 0}
                if topic != "deleted":  # where Kafka may name a record below the start
                    moments.add(MAX_TIMESTAMP)
                by_time[topic] = {moment: ours.offset_for(moment) for moment in sorted(moments)}
            assert topic_id_of(path) == ids[topic]
        # Where a log starts is for the log manager to write down.
        (broker.data_dir / "log-start-offset-checkpoint").write_text(f"0\n1\ndeleted 0 {DELETED_BEFORE}\n")
        if request.param == "recovering":
            (broker.data_dir / ".kafka_cleanshutdown").unlink()
        before = Path(shutil.copytree(broker.data_dir, root / "before"))
        broker.start()
        for topic in TOPICS:
            broker.wait_for_leaders(topic)
        yield Served(broker, before, {topic: look(broker, topic) for topic in TOPICS}, by_time)


def start_offset(topic: str) -> int:
    return DELETED_BEFORE if topic == "deleted" else 0


def still_there(topic: str, records: list[Record]) -> list[Record]:
    return [record for record in records if record.offset >= start_offset(topic)]


every_topic = pytest.mark.parametrize("topic", TOPICS)


@every_topic
def test_kafka_serves_our_records(served: Served, topic: str) -> None:
    seen, workload = served.seen[topic], TOPICS[topic][2]
    assert (seen.start_offset, seen.end_offset) == (start_offset(topic), workload.end_offset)
    assert seen.records == still_there(topic, workload.records)
    ours = [batch for batch in workload.stamped(0) if batch.last_offset >= start_offset(topic)]
    assert seen.batches == b"".join(batch.view() for batch in ours)


@every_topic
def test_kafka_knows_our_transactions(served: Served, topic: str) -> None:
    seen, workload = served.seen[topic], TOPICS[topic][2]
    assert seen.stable_offset == workload.stable_offset
    assert seen.committed == still_there(topic, workload.committed)
    ended = {abort.first_offset: abort.last_offset for abort in workload.aborts}
    assert seen.aborts == [abort for abort in workload.fetched_aborts if ended[abort.first_offset] >= start_offset(topic)]


@every_topic
def test_kafka_knows_our_producers(served: Served, topic: str) -> None:
    assert served.seen[topic].producers == TOPICS[topic][2].producers


@every_topic
def test_kafka_finds_the_same_offsets_by_time(served: Served, topic: str) -> None:
    ours = served.by_time[topic]
    assert {moment: served.broker.list_offset(topic, moment) for moment in ours} == ours


@every_topic
def test_kafka_makes_the_same_indexes(served: Served, tools: ApacheTools, topic: str) -> None:
    """Trusting, it leaves them as they are; recovering, it has made them anew. Only the last segment's are still open."""
    theirs, ours = served.broker.partition_dir(topic), served.before / f"{topic}-0"
    logs = sorted(file.name for file in ours.glob("*.log"))
    assert sorted(file.name for file in theirs.glob("*.log")) == logs
    for name in logs[:-1]:
        index, time_index = Path(name).with_suffix(".index"), Path(name).with_suffix(".timeindex")
        assert (theirs / name).read_bytes() == (ours / name).read_bytes()
        assert dump_index(tools, theirs / index) == dump_index(tools, ours / index)
        assert dump_time_index(tools, theirs / time_index) == dump_time_index(tools, ours / time_index)
    names = sorted(file.name for file in ours.glob("*.txnindex"))
    assert [dump_transaction_index(tools, theirs / name) for name in names] == [
        dump_transaction_index(tools, ours / name) for name in names
    ]


def test_kafka_knows_a_batch_that_we_took_already(served: Served) -> None:
    """A producer that sends its last batch again is told its old offset."""
    workload = TOPICS["one-segment"][2]
    number = max(n for n, batch in enumerate(workload.stamped(0)) if batch.producer_id == IDEMPOTENT + Codec.ZSTD)
    row = PartitionProduceData(index=0, records=bytes(workload.batches[number]))
    topic = TopicProduceData(topic_id=topic_id(served.broker, "one-segment"), partition_data=[row])
    answer = served.broker.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]))
    found = answer.responses[0].partition_responses[0]
    assert (found.error_code, found.base_offset) == (ErrorCode.NONE, workload.base_offsets[number])
    assert served.broker.list_offset("one-segment", -1)[0] == workload.end_offset


@dataclass(slots=True, frozen=True)
class Grown:
    """What Apache Kafka left after it had written behind us."""

    data_dir: Path
    added: dict[str, list[Record]]
    seen: dict[str, Seen]


@pytest.fixture(scope="module")
def grown(served: Served) -> Grown:
    """Ends the broker: what asks for it comes last in this file."""
    broker = served.broker
    added = {}
    for topic in TOPICS:
        producer = Producer(broker, topic, enable_idempotence=True, batch_num_messages=20)
        producer.send(rows(100, NOW_MS))
        transactional = Producer(broker, topic, transactional_id=topic, batch_num_messages=20)
        with transaction(transactional, abort=True):
            transactional.send(rows(50, NOW_MS))
        with transaction(transactional):
            transactional.send(rows(50, NOW_MS))
        added[topic] = producer.sent + transactional.sent
    seen = {topic: look(broker, topic) for topic in TOPICS}
    for topic in TOPICS:
        assert consume_with_kafka_python(broker, topic, committed=True) == seen[topic].committed
    broker.stop()
    return Grown(broker.data_dir, added, seen)


@every_topic
def test_kafka_goes_on_behind_us(grown: Grown, topic: str) -> None:
    workload = TOPICS[topic][2]
    assert grown.added[topic][0].offset == workload.end_offset
    assert grown.seen[topic].records == still_there(topic, workload.records) + grown.added[topic]


@every_topic
def test_we_read_both(grown: Grown, tools: ApacheTools, topic: str, tmp_path: Path) -> None:
    seen = grown.seen[topic]
    path = Path(shutil.copytree(grown.data_dir / f"{topic}-0", tmp_path / f"{topic}-0"))
    epochs = leader_epochs(path)
    assert {batch.partition_leader_epoch for batch in dump_partition(tools, path)} == {epoch for epoch, _ in epochs}
    assert len(epochs) == 2
    starts = checkpoint(grown.data_dir / "log-start-offset-checkpoint")
    moments = set(seen.by_time) - ({MAX_TIMESTAMP} if topic == "deleted" else set())
    with opened(path, TOPICS[topic][1], start_offset=starts.get((topic, 0), 0)) as ours:
        assert (ours.start_offset, ours.end_offset) == (seen.start_offset, seen.end_offset)
        assert ours.stable_offset == seen.stable_offset
        assert ours.batches() == seen.batches
        assert ours.records() == seen.records
        assert ours.records(committed=True) == seen.committed
        assert {moment: ours.offset_for(moment) for moment in moments} == {moment: seen.by_time[moment] for moment in moments}
        assert ours.producers() == seen.producers
        assert ours.leader_epochs() == epochs
