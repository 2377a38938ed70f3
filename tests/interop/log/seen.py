"""All that clients of a running Apache Kafka can see of a partition: the measure for whoever opens its directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from interop.apache_broker import ApacheBroker
from interop.log.clients import consume, fetch_bytes, topic_id

from pybroker.base.ids import Uuid
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pybroker.protocol.messages.transactions import DescribeProducersRequest, TopicRequest
from pybroker.protocol.records.batch import iter_batches
from pybroker.protocol.records.record import Record

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4


class ProducerRow(NamedTuple):
    """A producer's state as DescribeProducers tells it; -1 where there is nothing to tell."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    txn_start_offset: int


class Abort(NamedTuple):
    """An aborted transaction as a read_committed fetch tells it."""

    producer_id: int
    first_offset: int


@dataclass(slots=True, frozen=True)
class Seen:
    topic: str
    topic_id: Uuid
    batches: bytes  # as a fetch from the start brings them
    records: list[Record]  # read_uncommitted
    committed: list[Record]  # read_committed
    aborts: list[Abort]
    start_offset: int
    end_offset: int
    stable_offset: int
    by_time: dict[int, tuple[int, int]]  # (offset, timestamp) for a time or one of the names of ListOffsets
    producers: list[ProducerRow]


def look(broker: ApacheBroker, topic: str, *, times: int = 20) -> Seen:
    """Everything about partition 0 of `topic`; offsets are asked for about `times` moments and for the names."""
    records = consume(broker, topic)
    stamps = sorted({record.timestamp for record in records})
    some = stamps[:: max(1, len(stamps) // times)] + stamps[-1:]
    asked = {LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, 0} | {stamp + step for stamp in some for step in (-1, 0, 1)}
    return Seen(
        topic=topic,
        topic_id=topic_id(broker, topic),
        batches=fetch_bytes(broker, topic),
        records=records,
        committed=consume(broker, topic, committed=True),
        aborts=_aborts(broker, topic),
        start_offset=broker.list_offset(topic, EARLIEST)[0],
        end_offset=broker.list_offset(topic, LATEST)[0],
        stable_offset=broker.list_offset(topic, LATEST, committed=True)[0],
        by_time={moment: broker.list_offset(topic, moment) for moment in sorted(asked)},
        producers=producers(broker, topic),
    )


def producers(broker: ApacheBroker, topic: str) -> list[ProducerRow]:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
    found = broker.ask(request).topics[0].partitions[0]
    assert found.error_code == ErrorCode.NONE, found
    return sorted(
        ProducerRow(
            row.producer_id,
            row.producer_epoch,
            row.last_sequence,
            row.last_timestamp,
            row.coordinator_epoch,
            row.current_txn_start_offset,
        )
        for row in found.active_producers
    )


def _aborts(broker: ApacheBroker, topic: str) -> list[Abort]:
    """Of the whole log: a fetch names those that touch the offsets it brings."""
    offset = broker.list_offset(topic, EARLIEST)[0]
    wanted = topic_id(broker, topic)
    found: set[Abort] = set()
    while True:
        row = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=8 << 20)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=8 << 20,
            isolation_level=1,
            topics=[FetchTopic(topic_id=wanted, partitions=[row])],
            forgotten_topics_data=[],
        )
        part = broker.ask(request).responses[0].partitions[0]
        assert part.error_code == ErrorCode.NONE, part
        found |= {Abort(abort.producer_id, abort.first_offset) for abort in part.aborted_transactions or ()}
        batches = list(iter_batches(part.records or b""))
        if not batches:
            return sorted(found)
        offset = batches[-1].next_offset


def leader_epochs(partition_dir: Path) -> list[tuple[int, int]]:
    """(epoch, start offset) of each row of leader-epoch-checkpoint."""
    version, count, *lines = (partition_dir / "leader-epoch-checkpoint").read_text().splitlines()
    assert (version, int(count)) == ("0", len(lines)), (version, count, lines)
    return [(int(epoch), int(start)) for epoch, start in (line.split() for line in lines)]


def checkpoint(file: Path) -> dict[tuple[str, int], int]:
    """The offsets of one of the log directory's checkpoint files, by (topic, partition)."""
    if not file.exists() or not file.stat().st_size:
        return {}
    version, count, *lines = file.read_text().splitlines()
    assert (version, int(count)) == ("0", len(lines)), (version, count, lines)
    return {(topic, int(partition)): int(offset) for topic, partition, offset in (line.split() for line in lines)}
