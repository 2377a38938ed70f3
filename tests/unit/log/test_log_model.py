"""A log against a list of batches: whatever is done to it, it reads as the list does.

PYBROKER_MODEL_EXAMPLES sets how many runs there are.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.batches import batch, joined, marker, parsed

from pybroker.log.background import Inline
from pybroker.log.files import TopicPartition
from pybroker.log.loader import open_log
from pybroker.log.log import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP, Log
from pybroker.log.log_config import LogConfig
from pybroker.log.open_segments import OpenSegments
from pybroker.log.producer_entry import AppendOrigin
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records.batch import RecordBatch
from pybroker.protocol.records.compression import Codec
from pybroker.protocol.records.control import ControlType
from pybroker.testing.disk import SimDisk

EXAMPLES = int(os.environ.get("PYBROKER_MODEL_EXAMPLES", "200"))
NOW_MS = 100_000
DIRECTORY = "data/t-0"
RETENTION_BYTES = 3_000

sizes = st.lists(st.sampled_from([0, 10, 100, 250]), min_size=1, max_size=4)
times = st.integers(1, 2_000)
fractions = st.floats(0, 1)


class Stored(NamedTuple):
    base_offset: int
    last_offset: int
    data: bytes

    @property
    def batch(self) -> RecordBatch:
        return RecordBatch(self.data)


@dataclass
class Client:
    producer_id: int
    sequence: int = 0
    transaction_start: int | None = None
    last_sent: bytes = b""
    last_offsets: tuple[int, int] = (-1, -1)


class LogMachine(RuleBasedStateMachine):
    log: Log

    @initialize(interval=st.sampled_from([0, 200, 4_096]), open_limit=st.sampled_from([1, 3, 100]))
    def begin(self, interval: int, open_limit: int) -> None:
        self.config = LogConfig.of(
            {
                "segment.bytes": 1_500,
                "index.interval.bytes": interval,
                "segment.index.bytes": 120,
                "retention.bytes": RETENTION_BYTES,
                "retention.ms": -1,
            }
        )
        self.disk = SimDisk()
        self.background = Inline()
        self.open_segments = OpenSegments(open_limit)
        self.stored: list[Stored] = []
        self.epochs: list[tuple[int, int]] = []
        self.epoch = 0
        self.start = self.end = self.high_watermark = 0
        self.values = 0
        self.next_producer_id = 0
        self.clients: dict[int, Client] = {}
        self.open(is_clean=False)

    def open(self, *, is_clean: bool) -> None:
        self.log = open_log(
            self.disk,
            DIRECTORY,
            TopicPartition("t", 0),
            self.config,
            now_ms=NOW_MS,
            background=self.background,
            open_segments=self.open_segments,
            log_start_offset=self.start,
            recovery_point=self.end,
            is_clean=is_clean,
            verifies_transactions=False,
        )

    # Appending.

    def some_values(self, lengths: list[int]) -> list[bytes]:
        self.values += 1
        return [b"%d:%d" % (self.values, number) + b"." * length for number, length in enumerate(lengths)]

    def append(self, data: bytearray, **options: int) -> tuple[int, int]:
        appended = self.log.append_as_leader(data, self.epoch, NOW_MS, **options)
        added = RecordBatch(data)
        assert not appended.is_duplicate
        assert (appended.first_offset, appended.last_offset) == (self.end, self.end + added.last_offset_delta)
        assert added.partition_leader_epoch == self.epoch
        self.note(added)
        return appended.first_offset, appended.last_offset

    def note(self, added: RecordBatch) -> None:
        if not self.epochs or self.epochs[-1][0] != added.partition_leader_epoch:
            # One in which nothing was written, or nothing is left, gives way.
            self.epochs = [entry for entry in self.epochs if entry[1] < added.base_offset]
            self.epochs.append((added.partition_leader_epoch, added.base_offset))
        self.stored.append(Stored(added.base_offset, added.last_offset, bytes(added.view())))
        self.end = added.next_offset

    @rule(lengths=sizes, timestamp=times, codec=st.sampled_from([Codec.NONE, Codec.LZ4]))
    def append_plain(self, lengths: list[int], timestamp: int, codec: Codec) -> None:
        timestamps = [timestamp + number % 2 for number in range(len(lengths))]
        self.append(batch(self.some_values(lengths), timestamps=timestamps, codec=codec))

    @rule(slot=st.integers(0, 3), lengths=sizes, timestamp=times, transactional=st.booleans())
    def append_with_sequence(self, slot: int, lengths: list[int], timestamp: int, transactional: bool) -> None:
        if slot not in self.clients:
            self.clients[slot] = Client(self.next_producer_id)
            self.next_producer_id += 1
        client = self.clients[slot]
        transactional = transactional or client.transaction_start is not None
        data = batch(
            self.some_values(lengths),
            timestamp=timestamp,
            producer_id=client.producer_id,
            producer_epoch=0,
            sequence=client.sequence,
            transactional=transactional,
        )
        client.last_sent = bytes(data)
        client.last_offsets = self.append(data)
        client.sequence += len(lengths)
        if transactional and client.transaction_start is None:
            client.transaction_start = client.last_offsets[0]

    @precondition(lambda self: any(client.last_sent for client in self.clients.values()))
    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from([client for client in self.clients.values() if client.last_sent]))
        again = RecordBatch(bytearray(client.last_sent))
        again.stamp(0, -1)
        appended = self.log.append_as_leader(again.view(), self.epoch, NOW_MS)
        assert appended.is_duplicate
        assert (appended.first_offset, appended.last_offset) == client.last_offsets

    @precondition(lambda self: any(client.last_sent for client in self.clients.values()))
    @rule(data=st.data())
    def leave_a_gap(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from([client for client in self.clients.values() if client.last_sent]))
        late = batch(
            producer_id=client.producer_id,
            producer_epoch=0,
            sequence=client.sequence + 1,
            transactional=client.transaction_start is not None,
        )
        with pytest.raises(KafkaError) as caught:
            self.log.append_as_leader(late, self.epoch, NOW_MS)
        assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @precondition(lambda self: any(client.transaction_start is not None for client in self.clients.values()))
    @rule(data=st.data(), kind=st.sampled_from([ControlType.ABORT, ControlType.COMMIT]), timestamp=times)
    def end_transaction(self, data: st.DataObject, kind: ControlType, timestamp: int) -> None:
        client = data.draw(st.sampled_from([each for each in self.clients.values() if each.transaction_start is not None]))
        built = marker(kind, client.producer_id, timestamp=timestamp)
        self.append(built, origin=AppendOrigin.COORDINATOR, transaction_version=0)
        client.transaction_start = None
        client.last_sent = b""  # a marker clears what can be recognized

    @rule(shapes=st.lists(st.tuples(st.integers(0, 3), sizes, times), min_size=1, max_size=3))
    def append_as_follower(self, shapes: list[tuple[int, list[int], int]]) -> None:
        built = []
        offset = self.end
        for gap, lengths, timestamp in shapes:
            offset += gap
            built.append(batch(self.some_values(lengths), base_offset=offset, timestamp=timestamp, leader_epoch=self.epoch))
            offset += len(lengths)
        data = joined(built)
        appended = self.log.append_as_follower(data, NOW_MS)
        batches = parsed(data)
        assert (appended.first_offset, appended.last_offset) == (batches[0].base_offset, batches[-1].last_offset)
        for added in batches:
            self.note(added)

    @precondition(lambda self: self.end > 0)
    @rule()
    def follow_backwards(self) -> None:
        with pytest.raises(KafkaError):
            self.log.append_as_follower(batch(base_offset=self.end - 1), NOW_MS)

    @rule()
    def raise_epoch(self) -> None:
        self.epoch += 1

    # Segments.

    @rule()
    def roll(self) -> None:
        segment = self.log.roll(NOW_MS)
        assert segment is self.log.active
        assert segment.base_offset <= self.end
        assert segment.size_bytes == 0

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end

    @rule(is_clean=st.booleans())
    def reopen(self, is_clean: bool) -> None:
        self.log.flush()
        if is_clean:
            self.log.close()
            with pytest.raises(KafkaError):
                self.log.append_as_leader(batch(), self.epoch, NOW_MS)
        self.disk.kill()
        self.background.delayed.clear()
        # Offsets that no batch holds are not remembered, nor are epochs without a record.
        self.end = max([self.log.active.base_offset, *(stored.last_offset + 1 for stored in self.stored[-1:])])
        if self.start > self.end:
            self.stored, self.end = [], self.start
        self.epochs = [entry for entry in self.epochs if entry[1] < self.end]
        self.high_watermark = self.start
        self.open(is_clean=is_clean)
        self.rebuilt()

    def rebuilt(self) -> None:
        """Producers are known from what the log still has; the newest batch of each is recognized."""
        kept = [stored.batch for stored in self.stored if stored.last_offset >= self.start]
        for slot, client in list(self.clients.items()):
            own = [each for each in kept if each.producer_id == client.producer_id]
            data = [each for each in own if not each.is_control]
            if not data:
                # A snapshot may know it still, so it does not come back.
                del self.clients[slot]
                continue
            last = data[-1]
            client.sequence = last.last_sequence + 1
            is_last = own[-1] is last
            client.last_sent = bytes(last.view()) if is_last else b""
            client.last_offsets = (last.base_offset, last.last_offset)
            if not is_last:
                client.transaction_start = None
            elif last.is_transactional:
                markers = [each.base_offset for each in own if each.is_control]
                open_since = max(markers, default=-1)
                first = next(each for each in data if each.is_transactional and each.base_offset > open_since)
                client.transaction_start = first.base_offset
            else:
                client.transaction_start = None
        self.set_high_watermark(1.0)

    # Truncation and deletion.

    @precondition(lambda self: any(stored.base_offset >= self.start for stored in self.stored))
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        at = data.draw(st.sampled_from([stored.base_offset for stored in self.stored if stored.base_offset >= self.start]))
        assert self.log.truncate_to(at, NOW_MS)
        self.stored = [stored for stored in self.stored if stored.last_offset < at]
        self.epochs = [entry for entry in self.epochs if entry[1] < at]
        self.end = at
        self.high_watermark = min(self.high_watermark, at)
        self.rebuilt()

    @rule()
    def truncate_nothing(self) -> None:
        assert not self.log.truncate_to(self.end, NOW_MS)
        # But for an epoch that begins at the end, as one does when all of its records are deleted.
        self.epochs = [entry for entry in self.epochs if entry[1] < self.end]

    @rule(ahead=st.integers(0, 5))
    def truncate_fully(self, ahead: int) -> None:
        offset = self.end + ahead
        self.log.truncate_fully_and_start_at(offset, NOW_MS)
        self.stored, self.epochs, self.clients = [], [], {}
        self.start = self.end = self.high_watermark = offset

    @rule(fraction=fractions)
    def set_high_watermark(self, fraction: float) -> None:
        offset = round(self.start + (self.end - self.start) * fraction)
        self.high_watermark = max(self.high_watermark, offset)
        self.log.set_high_watermark(self.high_watermark)

    @rule(fraction=fractions)
    def delete_records(self, fraction: float) -> None:
        offset = round(self.start + (self.log.last_stable_offset - self.start) * fraction)
        assert self.log.advance_log_start_offset(offset) == (offset > self.start)
        self.started_at(offset)

    @rule()
    def delete_too_much(self) -> None:
        with pytest.raises(KafkaError) as caught:
            self.log.advance_log_start_offset(self.high_watermark + 1)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE

    @precondition(lambda self: self.log.last_stable_offset == self.high_watermark)
    @rule()
    def apply_retention(self) -> None:
        bases = [segment.base_offset for segment in self.log.segments]
        self.log.delete_old_segments(NOW_MS)
        first = self.log.segments[0].base_offset
        assert first in bases or first == self.end
        assert first <= max(self.high_watermark, bases[0])
        if self.high_watermark == self.end:
            remaining = [segment.size_bytes for segment in self.log.segments]
            assert sum(remaining) - remaining[0] < RETENTION_BYTES or len(remaining) == 1
            assert len(self.log.segments) == 1 or self.log.segments[1].base_offset > self.start
        self.started_at(max(self.start, first))

    @rule()
    def remove_files(self) -> None:
        self.background.run_delayed()
        names = {entry.name for entry in self.disk.scan(DIRECTORY)}
        assert not any(name.endswith(".deleted") for name in names)

    def started_at(self, offset: int) -> None:
        self.start = max(self.start, offset)
        self.high_watermark = max(self.high_watermark, self.start)
        covering = [entry for entry in self.epochs if entry[1] <= self.start]
        if covering:
            behind = self.epochs[len(covering) :]
            self.epochs = [(covering[-1][0], self.start), *behind]

    # Reading.

    @rule(fraction=fractions, max_bytes=st.integers(0, 3_000), committed=st.booleans())
    def read(self, fraction: float, max_bytes: int, committed: bool) -> None:
        offset = round(self.start + (self.end - self.start) * fraction)
        upper = self.log.last_stable_offset if committed else self.end
        fetched = self.log.read(offset, max_bytes, upper=upper if committed else None)
        visible = [stored for stored in self.stored if stored.last_offset >= offset and stored.last_offset < upper]
        if fetched.slice is None:
            assert not visible
            return
        found = [bytes(each.view()) for each in parsed(fetched.slice.read())]
        assert found == [stored.data for stored in visible[: len(found)]]
        assert found
        assert len(fetched.slice) <= max_bytes or len(found) == 1
        assert fetched.first_batch_is_larger == (len(found[0]) > max_bytes)
        assert fetched.log_start_offset == self.start

    @rule()
    def read_everything(self) -> None:
        offset, found = self.start, []
        while (fetched := self.log.read(offset, 800)).slice is not None:
            batches = parsed(fetched.slice.read())
            found += [bytes(each.view()) for each in batches]
            offset = batches[-1].next_offset
        assert found == [stored.data for stored in self.stored if stored.last_offset >= self.start]

    @rule()
    def read_outside(self) -> None:
        for offset in (self.start - 1, self.end + 1):
            with pytest.raises(KafkaError) as caught:
                self.log.read(offset, 100)
            assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE

    @rule(timestamp=st.integers(0, 2_002))
    def find_time(self, timestamp: int) -> None:
        rows = [
            (record.offset, record.timestamp, stored.batch.partition_leader_epoch)
            for stored in self.stored
            for record in stored.batch.records()
            if record.offset >= self.start
        ]
        assert self.log.offset_for_timestamp(timestamp) == next((row for row in rows if row[1] >= timestamp), None)
        latest = self.log.offset_for_timestamp(LATEST_TIMESTAMP)
        earliest = self.log.offset_for_timestamp(EARLIEST_TIMESTAMP)
        assert latest is not None
        assert earliest is not None
        assert (latest.offset, earliest.offset) == (self.end, self.start)
        # Below the log start offset a segment still knows higher times.
        if all(stored.base_offset >= self.start for stored in self.stored):
            highest = max((row[1] for row in rows), default=-1)
            found = self.log.offset_for_timestamp(MAX_TIMESTAMP)
            assert (found or (None,)) == next((row for row in rows if row[1] == highest), (None,))

    @rule()
    def list_aborted(self) -> None:
        aborted = []
        begun: dict[int, int] = {}
        for stored in self.stored:
            each = stored.batch
            if each.is_control:
                record = next(each.records())
                first = begun.pop(each.producer_id, None)
                if first is not None and record.key is not None and record.key[3] == ControlType.ABORT:
                    aborted.append((each.producer_id, first, each.base_offset))
            elif each.is_transactional:
                begun.setdefault(each.producer_id, each.base_offset)
        expected = [row for row in aborted if row[2] >= self.start]
        assert [row[:3] for row in self.log.aborted_transactions(self.start, self.end)] == expected

    @invariant()
    def ends_agree(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (self.start, self.end, self.high_watermark)
        assert [tuple(entry) for entry in log.leader_epochs.entries] == self.epochs
        bases = [segment.base_offset for segment in log.segments]
        assert bases == sorted(set(bases))
        ongoing = [client.transaction_start for client in self.clients.values() if client.transaction_start is not None]
        stable = log.last_stable_offset
        assert stable <= min([self.high_watermark, *ongoing])
        if self.high_watermark == self.end:
            assert stable == min([self.high_watermark, *ongoing])

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()


TestLog = LogMachine.TestCase
TestLog.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_a_producer_whose_batch_reaches_over_the_log_start() -> None:
    """Apache Kafka replays that batch too: without it the open transaction is forgotten, and sequences are not checked."""
    machine = LogMachine()
    machine.begin(interval=0, open_limit=1)
    machine.append_with_sequence(0, [0, 0], 1, transactional=True)
    machine.append_plain([0], 1, Codec.NONE)
    machine.log.set_high_watermark(3)
    machine.log.advance_log_start_offset(1)
    machine.log.truncate_to(2, NOW_MS)
    entry = machine.log.producers.entry(0)
    assert entry is not None
    assert entry.has_transaction
