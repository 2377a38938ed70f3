"""Judges a history of transactions that append to partitions and read them, in the manner of Jepsen's Kafka workload.

Every value is sent once, to one partition; a partition is a list, and its offsets are the order of it. Readers read what is
committed. The clients have one monotonic clock. Pure.

What Kafka does not promise is not looked for: two transactions may lie the one way round in a partition and the other way in
another, and a reader may have the first half of a transaction in a partition while another one is open in between.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

NO_OFFSET: Final = -1


class Outcome(StrEnum):
    COMMITTED = "committed"
    ABORTED = "aborted"  # certainly: it was aborted, or nobody ever asked for its commit
    UNKNOWN = "unknown"  # its commit was asked for, and no answer came


class Send(NamedTuple):
    partition: int
    value: int
    offset: int = NO_OFFSET
    """What the broker acknowledged."""


class Read(NamedTuple):
    partition: int
    offset: int
    value: int
    at: float
    """When the reader had it."""


@dataclass(slots=True)
class Transaction:
    process: str
    """Whose it is: one after the other."""
    began: float
    sends: list[Send] = field(default_factory=list)
    outcome: Outcome = Outcome.UNKNOWN
    commit_asked: float | None = None
    ended: float | None = None
    """When its client had the outcome."""


@dataclass(slots=True)
class Reader:
    """One consumer from the start of each partition on, or from where it was told to begin."""

    name: str
    reads: list[Read] = field(default_factory=list)
    is_at_end: bool = False
    """Whether it came to the end of every partition when all faults were over."""


@dataclass(slots=True)
class History:
    transactions: list[Transaction]
    readers: list[Reader]
    """The first has read everything, from the start to the end, after all faults were over."""


class Kind(StrEnum):
    LOST_WRITE = "lost write"
    ABORTED_READ = "aborted read (G1a)"
    INTERMEDIATE_READ = "intermediate read (G1b)"
    TORN = "torn transaction"
    DUPLICATE = "duplicate"
    REORDERED = "external reordering"
    DIVERGED = "two values at one offset"
    WRONG_OFFSET = "acknowledged at an offset where it is not"
    SKIPPED = "skipped by a reader"
    BACKWARDS = "a reader went backwards"
    PHANTOM = "read, and never sent there"
    STUCK = "stuck reader"


class Anomaly(NamedTuple):
    kind: Kind
    text: str


def anomalies(history: History) -> list[Anomaly]:
    """All that is wrong, in the order of `Kind`."""
    found = list(_Judge(history).all())
    order = list(Kind)
    return sorted(found, key=lambda one: order.index(one.kind))


class _Judge:
    def __init__(self, history: History) -> None:
        self._transactions = history.transactions
        self._readers = history.readers
        self._sent = {send.value: (one, send) for one in history.transactions for send in one.sends}
        # What anybody read, and what the last reader found.
        self._offsets: dict[tuple[int, int], set[int]] = defaultdict(set)  # by partition and value
        for reader in history.readers:
            for read in reader.reads:
                self._offsets[read.partition, read.value].add(read.offset)
        self._final = {(read.partition, read.value): read.offset for read in history.readers[0].reads}

    def all(self) -> Iterator[Anomaly]:
        yield from self._written()
        yield from self._placed()
        yield from self._ordered()
        for reader in self._readers:
            yield from self._read(reader)

    # What became of each transaction.

    def _written(self) -> Iterator[Anomaly]:
        is_whole = self._readers[0].is_at_end
        for one in self._transactions:
            there = [send for send in one.sends if (send.partition, send.value) in self._final]
            missing = [send for send in one.sends if (send.partition, send.value) not in self._final]
            if not is_whole:
                continue  # the reader is stuck, and what it has not reached is not lost
            if there and missing:
                yield Anomaly(Kind.TORN, f"{_name(one)}: {_values(there)} are there, {_values(missing)} are not")
            if missing and one.outcome is Outcome.COMMITTED:
                yield Anomaly(Kind.LOST_WRITE, f"{_name(one)}: {_values(missing)}")

    def _placed(self) -> Iterator[Anomaly]:
        at: dict[tuple[int, int], set[int]] = defaultdict(set)
        for (partition, value), offsets in self._offsets.items():
            if len(offsets) > 1:
                yield Anomaly(Kind.DUPLICATE, f"{value} of partition {partition} at {sorted(offsets)}")
            for offset in offsets:
                at[partition, offset].add(value)
            sent = self._sent.get(value)
            if sent is None or sent[1].partition != partition:
                yield Anomaly(Kind.PHANTOM, f"{value} in partition {partition}")
            elif sent[1].offset != NO_OFFSET and sent[1].offset not in offsets:
                yield Anomaly(Kind.WRONG_OFFSET, f"{sent[1]}, found at {sorted(offsets)}")
        for (partition, offset), values in at.items():
            if len(values) > 1:
                yield Anomaly(Kind.DIVERGED, f"partition {partition}, offset {offset}: {sorted(values)}")
        yield from _acknowledged_twice(self._transactions)

    def _ordered(self) -> Iterator[Anomaly]:
        """Whoever sends when another's commit is known comes behind it; and a transaction's own values in their order."""
        by_partition: dict[int, list[tuple[Transaction, Send, int]]] = defaultdict(list)
        for one in self._transactions:
            last: dict[int, tuple[int, Send]] = {}
            for send in one.sends:
                offset = self._final.get((send.partition, send.value))
                if offset is None:
                    continue
                by_partition[send.partition].append((one, send, offset))
                before = last.get(send.partition)
                if before is not None and before[0] > offset:
                    yield Anomaly(Kind.REORDERED, f"{_name(one)}: {send.value} at {offset}, {before[1].value} at {before[0]}")
                last[send.partition] = (offset, send)
        for partition, rows in by_partition.items():
            yield from _in_real_time(partition, rows)

    # What each reader saw.

    def _read(self, reader: Reader) -> Iterator[Anomaly]:
        if not reader.is_at_end:
            yield Anomaly(Kind.STUCK, f"{reader.name} did not come to the end")
        for read in reader.reads:
            sent = self._sent.get(read.value)
            if sent is None:
                continue
            one = sent[0]
            if one.outcome is Outcome.ABORTED:
                yield Anomaly(Kind.ABORTED_READ, f"{reader.name} read {read.value} of {_name(one)}")
            elif one.commit_asked is None or read.at < one.commit_asked:
                yield Anomaly(Kind.INTERMEDIATE_READ, f"{reader.name} read {read.value} before the commit of {_name(one)}")
        by_partition: dict[int, list[Read]] = defaultdict(list)
        for read in reader.reads:
            by_partition[read.partition].append(read)
        for partition, reads in by_partition.items():
            yield from self._read_in_order(reader, partition, reads)

    def _read_in_order(self, reader: Reader, partition: int, reads: list[Read]) -> Iterator[Anomaly]:
        seen = {read.value for read in reads}
        for before, after in pairwise(reads):
            if after.offset <= before.offset:
                yield Anomaly(Kind.BACKWARDS, f"{reader.name}, partition {partition}: {after.offset} after {before.offset}")
        first, last = reads[0].offset, max(read.offset for read in reads)
        for (where, value), offset in self._final.items():
            if where == partition and first < offset < last and value not in seen:
                yield Anomaly(Kind.SKIPPED, f"{reader.name}, partition {partition}: {value} at {offset}")


def _acknowledged_twice(transactions: Iterable[Transaction]) -> Iterator[Anomaly]:
    """Two sends at one offset, of transactions that nobody may read, too: acknowledged at zero for want of a better one."""
    at: dict[tuple[int, int], Send] = {}
    for one in transactions:
        for send in one.sends:
            if send.offset != NO_OFFSET:
                other = at.setdefault((send.partition, send.offset), send)
                if other is not send:
                    yield Anomaly(Kind.WRONG_OFFSET, f"{send} and {other}")


def _in_real_time(partition: int, rows: list[tuple[Transaction, Send, int]]) -> Iterator[Anomaly]:
    ended = sorted((row for row in rows if row[0].ended is not None), key=lambda row: row[0].ended or 0.0)
    highest: tuple[int, Send] | None = None  # of those that had ended
    position = 0
    for one, send, offset in sorted(rows, key=lambda row: row[0].began):
        while position < len(ended) and (ended[position][0].ended or 0.0) < one.began:
            candidate = ended[position]
            if highest is None or candidate[2] > highest[0]:
                highest = (candidate[2], candidate[1])
            position += 1
        if highest is not None and highest[0] > offset:
            yield Anomaly(
                Kind.REORDERED,
                f"partition {partition}: {send.value} at {offset} was sent after {highest[1].value} at {highest[0]} was over",
            )


def _name(one: Transaction) -> str:
    return f"the {one.outcome} transaction of {one.process} that began at {one.began:.3f}"


def _values(sends: Iterable[Send]) -> str:
    return ", ".join(f"{send.value} to {send.partition}" for send in sends)


def summary(history: History) -> Mapping[str, int]:
    counts = {str(outcome): sum(one.outcome is outcome for one in history.transactions) for outcome in Outcome}
    return {**counts, "values": len(history.readers[0].reads), "reads": sum(len(one.reads) for one in history.readers)}
