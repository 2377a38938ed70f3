"""Crashes at any operation on a disk that loses what was not synced: what was flushed stays, what comes back was there.

A life is a random run of appends, rolls, flushes, truncations and deletions; the power goes in the middle of it, sometimes
again during the recovery. PYBROKER_CRASH_SEEDS sets how many stories of three lives are told.
"""

from __future__ import annotations

import os
import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from support.batches import batch, marker, parsed
from unit.log.logs import all_first

from pybroker.base.ids import Uuid
from pybroker.log.background import Inline
from pybroker.log.checkpoints import read_topic_id
from pybroker.log.files import PARTITION_METADATA, TopicPartition
from pybroker.log.loader import open_log
from pybroker.log.log import Log
from pybroker.log.log_config import LogConfig
from pybroker.log.open_segments import OpenSegments
from pybroker.log.producer_entry import AppendOrigin
from pybroker.log.recovery import one_by_one
from pybroker.protocol.records.batch import RecordBatch
from pybroker.protocol.records.control import ControlType
from pybroker.testing.disk import PowerCutError, SimDisk

SEEDS = int(os.environ.get("PYBROKER_CRASH_SEEDS", "300"))
LIVES = 3
STEPS = 60
PRODUCERS = 4
PARTITION = TopicPartition("t", 0)
DIRECTORY = "data/t-0"
TOPIC_ID = Uuid(b"some-topic's--id")
CONFIG = LogConfig.of(
    {
        "segment.bytes": 2_000,
        "index.interval.bytes": 200,
        "segment.index.bytes": 400,
        "retention.bytes": 4_000,
        "file.delete.delay.ms": 1,
    }
)


LETTERS = {
    "a": "append",
    "r": "roll",
    "f": "flush",
    "t": "truncate",
    "s": "restart",
    "d": "delete_records",
    "x": "apply_retention",
    "c": "checkpoint",
    "e": "raise_epoch",
}


class Stored(NamedTuple):
    """A batch as it lies in the log."""

    base_offset: int
    last_offset: int
    data: bytes

    @classmethod
    def of(cls, found: RecordBatch) -> Stored:
        return cls(found.base_offset, found.last_offset, bytes(found.view()))


@dataclass
class Producer:
    """A client's side: what it would send next."""

    producer_id: int
    epoch: int = 0
    sequence: int = 0
    in_transaction: bool = False


@dataclass
class Story:
    """A log, what was done to it, and what may be expected after a crash."""

    seed: int
    config: LogConfig = CONFIG
    now_ms: int = 1_000
    epoch: int = 0
    values: int = 0
    safe_end: int = 0  # everything below it was flushed
    recovery_point: int = 0  # as checkpointed
    log_start_offset: int = 0  # as checkpointed
    highest_start: int = 0  # that the log can have by now
    deleted_before: int = 0  # forgotten, with epochs and producers, even if records come back
    versions: list[list[Stored]] = field(default_factory=lambda: [[]])  # of the log since the last flush, the current one last
    crashes: int = 0
    together: int = 0  # how often several batches were appended by one write
    was_flushed: bool = False  # so that its directory and its topic id must be there, too

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.disk = SimDisk(random.Random(self.seed + 1), clock=lambda: self.now_ms)
        # The log directory is there; that of the log itself is made with it.
        self.disk.make_dirs("data")
        self.disk.sync_dir("")
        # Half of the stories have their segments scanned as by many threads.
        self.map_segments = all_first(random.Random(self.seed + 2)) if self.seed % 2 else one_by_one
        self.next_producer_id = 0
        self.producers: list[Producer] = []
        self.background = Inline()

    @property
    def current(self) -> list[Stored]:
        return self.versions[-1]

    def open(self, *, is_clean: bool = False) -> Log:
        self.background = Inline()
        self.producers = []
        if self.was_flushed:
            found = read_topic_id(self.disk, f"{DIRECTORY}/{PARTITION_METADATA}")
            assert found == TOPIC_ID, "records were flushed, but nobody knows whose they are"
        return open_log(
            self.disk,
            DIRECTORY,
            PARTITION,
            self.config,
            now_ms=self.now_ms,
            background=self.background,
            open_segments=OpenSegments(3),
            log_start_offset=self.log_start_offset,
            recovery_point=self.recovery_point,
            is_clean=is_clean,
            topic_id=TOPIC_ID,
            verifies_transactions=False,
            map_segments=self.map_segments,
        )

    def cut_within(self, operations: int) -> None:
        self.disk.cut_at = self.disk.operations + self.rng.randint(1, operations)

    def crash(self) -> None:
        self.disk.crash()
        self.crashes += 1

    # Steps.

    def step(self, log: Log) -> None:
        rng = self.rng
        self.now_ms += rng.randrange(20)
        steps = (self.append, self.append_as_follower, self.roll, self.flush, self.truncate, self.restart)
        steps += (self.delete_records, self.apply_retention, self.checkpoint, self.raise_epoch, self.remove_files)
        steps += (self.append_together,)
        self.do(rng.choices(steps, (40, 10, 5, 8, 4, 1, 3, 3, 6, 3, 4, 15))[0].__name__, log)

    def do(self, name: str, log: Log) -> None:
        before = log.recovery_point
        getattr(self, name)(log)
        if log.recovery_point > before:
            self.safe_end = log.recovery_point
            self.was_flushed = True
            self.versions = [self.current]

    def append(self, log: Log) -> None:
        kind = self.rng.randrange(3)
        if kind == 0:
            self.append_batch(log, batch(self.some_values(), timestamp=self.some_time()))
            return
        producer = self.some_producer()
        if producer.in_transaction and self.rng.random() < 0.4:
            self.end_transaction(log, producer, self.rng.choice((ControlType.ABORT, ControlType.COMMIT)))
            return
        values = self.some_values()
        producer.in_transaction = producer.in_transaction or kind == 2
        built = batch(
            values,
            timestamp=self.some_time(),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            sequence=producer.sequence,
            transactional=producer.in_transaction,
        )
        producer.sequence += len(values)
        self.append_batch(log, built)

    def end_transaction(self, log: Log, producer: Producer, kind: ControlType) -> None:
        producer.in_transaction = False
        built = marker(kind, producer.producer_id, producer_epoch=producer.epoch, timestamp=self.now_ms)
        self.append_batch(log, built, origin=AppendOrigin.COORDINATOR, transaction_version=0)

    def append_batch(self, log: Log, data: bytearray, **options: int) -> None:
        stamped = RecordBatch(bytearray(data))
        stamped.stamp(log.log_end_offset, self.epoch)
        self.current.append(Stored.of(stamped))
        appended = log.append_as_leader(data, self.epoch, self.now_ms, **options)
        assert (appended.first_offset, appended.last_offset) == (stamped.base_offset, stamped.last_offset)
        assert not appended.is_duplicate

    def append_together(self, log: Log) -> None:
        """Several batches by one write, as far as that goes; the rest one by one."""
        free = [one for one in [*self.producers, self.some_producer()] if not one.in_transaction]
        producer = self.rng.choice(free) if free and self.rng.random() < 0.5 else None
        batches = []
        for _ in range(self.rng.randint(2, 5)):
            values = self.some_values()
            if producer is None:
                batches.append(batch(values, timestamp=self.some_time()))
            else:
                own = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch, "sequence": producer.sequence}
                batches.append(batch(values, timestamp=self.some_time(), **own))
                producer.sequence += len(values)
        known = len(self.current)
        offset = log.log_end_offset
        for one in batches:
            stamped = RecordBatch(bytearray(one))
            stamped.stamp(offset, self.epoch)
            self.current.append(Stored.of(stamped))
            offset = stamped.next_offset
        offsets = log.append_plain_batches([memoryview(one) for one in batches], self.epoch, self.now_ms)
        assert offsets == [stored.base_offset for stored in self.current[known : known + len(offsets)]]
        del self.current[known + len(offsets) :]
        self.together += len(offsets) > 1
        for one in batches[len(offsets) :]:
            self.append_batch(log, one)

    def append_as_follower(self, log: Log) -> None:
        data = bytearray()
        offset = log.log_end_offset
        for _ in range(self.rng.randint(1, 3)):
            offset += self.rng.choice((0, 0, 3))
            data += batch(self.some_values(), base_offset=offset, leader_epoch=self.epoch, timestamp=self.some_time())
            offset = parsed(data)[-1].next_offset
        self.current.extend(map(Stored.of, parsed(data)))
        log.append_as_follower(data, self.now_ms)

    def roll(self, log: Log) -> None:
        log.roll(self.now_ms)

    def flush(self, log: Log) -> None:
        log.flush()
        assert log.recovery_point == log.log_end_offset

    def truncate(self, log: Log) -> None:
        offset = self.rng.randint(log.log_start_offset, log.log_end_offset)
        at = next((found for found in self.current if found.base_offset >= offset), None)
        if at is None:
            return
        self.truncate_at(log, at.base_offset)

    def truncate_at(self, log: Log, offset: int) -> None:
        self.safe_end = min(self.safe_end, offset)
        self.versions.append([found for found in self.current if found.last_offset < offset])
        self.producers = []
        log.truncate_to(offset, self.now_ms)
        # As the log manager does, at once.
        self.recovery_point = min(self.recovery_point, log.recovery_point)

    def restart(self, log: Log) -> None:
        """From scratch, as a follower that is too far behind."""
        offset = log.log_end_offset + self.rng.randrange(5)
        self.safe_end = 0
        self.versions.append([])
        self.producers = []
        self.highest_start = offset
        log.truncate_fully_and_start_at(offset, self.now_ms)
        self.recovery_point = min(self.recovery_point, log.recovery_point)

    def delete_records(self, log: Log) -> None:
        log.set_high_watermark(log.log_end_offset)
        offset = self.rng.randint(log.log_start_offset, log.log_end_offset)
        self.highest_start = max(self.highest_start, offset)
        log.advance_log_start_offset(offset)

    def apply_retention(self, log: Log) -> None:
        log.set_high_watermark(self.rng.randint(log.log_start_offset, log.log_end_offset))
        self.highest_start = max(self.highest_start, log.high_watermark)
        log.delete_old_segments(self.now_ms)

    def checkpoint(self, log: Log) -> None:
        self.recovery_point = log.recovery_point
        self.log_start_offset = log.log_start_offset

    def raise_epoch(self, log: Log) -> None:
        self.epoch += 1

    def remove_files(self, log: Log) -> None:
        self.background.run_delayed()

    def some_producer(self) -> Producer:
        if len(self.producers) < PRODUCERS:
            self.next_producer_id += 1
            self.producers.append(Producer(self.next_producer_id))
        return self.rng.choice(self.producers)

    def some_values(self) -> list[bytes]:
        count = self.rng.choice((1, 1, 2, 5))
        self.values += count
        return [b"%d" % (self.values - number) + b"." * self.rng.choice((0, 10, 100, 300)) for number in range(count)]

    def some_time(self) -> int:
        return self.now_ms - self.rng.choice((0, 0, 0, 50))

    # What must hold.

    def check(self, log: Log) -> None:
        """The log after a crash, or at any time."""
        start, end = log.log_start_offset, log.log_end_offset
        found = all_batches(log)
        assert self.log_start_offset <= start <= self.highest_start, "the log starts where it never did"
        previous = -1
        for stored in found:
            assert previous < stored.base_offset <= stored.last_offset < end, "offsets are not in order"
            previous = stored.last_offset
        for stored in self.current:
            if start <= stored.last_offset < self.safe_end:
                assert stored in found, f"flushed up to {self.safe_end}, but {stored.base_offset} is lost"
        assert any(is_start_of(found, version, start) for version in self.versions), "this was never the log"
        self.check_lookups(log, found)
        self.check_epochs(log, found)
        self.check_producers(log, found)
        self.versions = [found]
        self.safe_end = min(self.safe_end, end)
        self.highest_start = start

    def check_lookups(self, log: Log, found: list[Stored]) -> None:
        for stored in found:
            for offset in {max(stored.base_offset, log.log_start_offset), stored.last_offset}:
                fetched = log.read(offset, self.rng.choice((1, 500, 5_000)))
                assert fetched.slice is not None
                assert Stored.of(parsed(fetched.slice.read())[0]) == stored, f"read from {offset}"
        timestamps = [
            (record.offset, record.timestamp)
            for stored in found
            for record in RecordBatch(stored.data).records()
            if record.offset >= log.log_start_offset
        ]
        for _, wanted in timestamps[:: max(1, len(timestamps) // 5)]:
            expected = next((row for row in timestamps if row[1] >= wanted), None)
            got = log.offset_for_timestamp(wanted)
            assert (got and (got.offset, got.timestamp)) == expected, f"the first record at {wanted}"

    def check_epochs(self, log: Log, found: list[Stored]) -> None:
        self.deleted_before = max(self.deleted_before, self.highest_start)
        for stored in found:
            if stored.base_offset >= self.deleted_before:
                epoch = RecordBatch(stored.data).partition_leader_epoch
                assert log.leader_epochs.epoch_for_offset(stored.base_offset) == epoch, f"epoch of {stored.base_offset}"

    def check_producers(self, log: Log, found: list[Stored]) -> None:
        last_sequences: dict[int, int] = {}
        ongoing: dict[int, int] = {}
        aborted = []
        for stored in found:
            each = RecordBatch(stored.data)
            if each.is_control:
                first = ongoing.pop(each.producer_id, None)
                record = next(each.records())
                if first is not None and record.key is not None and record.key[3] == ControlType.ABORT:
                    aborted.append((each.producer_id, first, each.base_offset))
            elif each.has_producer_id and each.base_offset >= self.deleted_before:
                last_sequences[each.producer_id] = each.last_sequence
                if each.is_transactional:
                    ongoing.setdefault(each.producer_id, each.base_offset)
        for producer_id, sequence in last_sequences.items():
            entry = log.producers.entry(producer_id)
            assert entry is not None, f"producer {producer_id} is not known"
            if entry.batches:
                assert entry.last_sequence == sequence, f"producer {producer_id}"
        known = {
            entry.producer_id: entry.current_txn_first_offset for entry in log.producers.entries() if entry.has_transaction
        }
        for producer_id, first_offset in known.items():
            if first_offset >= self.deleted_before:
                assert ongoing.get(producer_id) == first_offset, f"an open transaction of producer {producer_id}"
        assert ongoing.keys() <= known.keys(), "open transactions are not known"
        rows = log.aborted_transactions(log.log_start_offset, log.log_end_offset)
        told = [(row.producer_id, row.first_offset, row.last_offset) for row in rows]
        for row in aborted:
            # Where the records before were deleted, the transaction began earlier than they tell.
            assert any(row[0] == other[0] and row[2] == other[2] and other[1] <= row[1] for other in told), f"aborted {row}"


def all_batches(log: Log) -> list[Stored]:
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        fetched = log.read(offset, 700)
        if fetched.slice is None:
            break
        batches = parsed(fetched.slice.read())
        found += map(Stored.of, batches)
        offset = batches[-1].next_offset
    return found


def is_start_of(found: list[Stored], version: list[Stored], start: int) -> bool:
    left = [stored for stored in version if stored.last_offset >= start]
    return left[: len(found)] == found


def live(story: Story, log: Log, steps: int) -> None:
    for _ in range(steps):
        story.step(log)


def survive(story: Story, *, cut_recovery: bool) -> Log:
    """Open the log again, through crashes on the way."""
    while True:
        if cut_recovery and story.rng.random() < 0.5:
            story.cut_within(30)
        try:
            log = story.open()
        except PowerCutError:
            story.crash()
            continue
        story.disk.cut_at = None
        # As the log manager does, at once: the log may have become shorter.
        story.recovery_point = min(story.recovery_point, log.recovery_point)
        return log


def tell(seed: int) -> Story:
    story = Story(seed)
    log = story.open()
    for _ in range(LIVES):
        story.cut_within(story.rng.choice((15, 60, 250)))
        with suppress(PowerCutError):
            live(story, log, STEPS)
        story.disk.cut_at = None
        story.crash()
        log = survive(story, cut_recovery=True)
        story.check(log)
    live(story, log, 10)
    story.check(log)
    return story


def stories(seeds: range) -> tuple[int, int]:
    """How many crashes they had, and how many appends of several batches by one write."""
    crashes = together = 0
    for seed in seeds:
        try:
            story = tell(seed)
        except BaseException as error:
            error.add_note(f"in the story with seed {seed}")
            raise
        crashes += story.crashes
        together += story.together
    return crashes, together


@pytest.mark.parametrize("part", range(10))
def test_random_lives(part: int) -> None:
    share = SEEDS // 10
    crashes, together = stories(range(part * share, part * share + share))
    assert crashes >= LIVES * share
    assert together >= share


SCRIPTS = {
    "flushes": "aaafaaaf",
    "rolls": "aaarafaaraar",
    "transactions": "aaaaaaaaaaraaaaaaaf",
    "a truncation": "aaaaraafaataaf",
    "a truncation over segments": "aaraaraarcfttaaf",
    "deletions": "aaaraaraafdxaacdxdaf",
    "retention": "aaaaaraaaaaraaaaafxaaaxaf",
    "starting anew": "aaraafsaafs",
    "epochs": "aaeaafeataearaaf",
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_a_crash_at_every_operation(script: str) -> None:
    points = 0
    while True:
        points += 1
        story = Story(seed=len(script))
        log = story.open()
        story.disk.rng = random.Random(points)
        story.disk.cut_at = story.disk.operations + points
        try:
            for letter in script:
                story.do(LETTERS[letter], log)
        except PowerCutError:
            pass
        else:
            break
        story.crash()
        log = survive(story, cut_recovery=points % 2 == 0)
        try:
            story.check(log)
            live(story, log, 5)
            story.check(log)
        except AssertionError as error:
            error.add_note(f"the power went at operation {points}")
            raise
    assert points > len(script)


def test_a_crash_behind_a_clean_stop_costs_nothing() -> None:
    for seed in range(SEEDS):
        story = Story(seed)
        log = story.open()
        story.cut_within(story.rng.choice((15, 60, 250)))
        with suppress(PowerCutError):
            live(story, log, STEPS)
        story.disk.cut_at = None
        story.crash()
        try:
            log = survive(story, cut_recovery=False)
            story.check(log)
            live(story, log, story.rng.choice((0, 0, 3, 10)))
            story.do("flush", log)
            log.close()
            story.checkpoint(log)
            story.crash()
            story.check(story.open(is_clean=True))
        except BaseException as error:
            error.add_note(f"in the story with seed {seed}")
            raise


def test_a_log_that_a_crash_took_before_its_first_flush_is_made_again() -> None:
    outcomes = set()
    for seed in range(50):
        story = Story(seed)
        story.open().append_as_leader(batch([b"a"]), 0, story.now_ms)
        story.crash()
        has_directory = story.disk.exists(DIRECTORY)
        log = story.open()
        assert log.topic_id == TOPIC_ID, f"seed {seed}"
        outcomes.add((has_directory, log.log_end_offset))
        log.append_as_leader(batch([b"b"]), 0, story.now_ms)
        log.flush()
        story.crash()
        story.was_flushed = True
        assert story.open().log_end_offset == log.log_end_offset, f"seed {seed}"
    assert outcomes == {(False, 0), (True, 0), (True, 1)}


def test_a_segment_that_begins_in_a_gap_below_the_recovery_point_keeps_its_name() -> None:
    for seed in range(20):
        story = Story(seed)
        log = story.open()
        log.append_as_follower(batch([b"a"] * 5), story.now_ms)
        log.append_as_follower(batch([b"b"], base_offset=10), story.now_ms)
        log.truncate_to(10, story.now_ms)
        log.flush()
        log.roll(story.now_ms)
        log.append_as_leader(batch([b"c"]), 0, story.now_ms)
        log.flush()
        story.recovery_point = log.recovery_point
        story.crash()
        assert story.open().log_end_offset == 11, f"seed {seed}"
