"""Random logs, cleaned again and again, against a plain dict: what a consumer ends up with never changes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from unit.log.cleaner.compacted import RETENTION_MS, CompactedLog, Row, Stored

from pybroker.log.cleaner.job import CleanerConfig
from pybroker.protocol.records.compression import Codec
from pybroker.protocol.records.control import ControlType

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"f", b"long" * 10])
VALUES = st.one_of(st.none(), st.binary(max_size=40))
ROWS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), ROWS, st.sampled_from(list(Codec))),
        st.tuples(st.just("idempotent"), ROWS, st.integers(1, 2)),
        st.tuples(st.just("transaction"), ROWS, st.integers(3, 5)),
        st.tuples(st.just("end"), st.sampled_from([ControlType.COMMIT, ControlType.ABORT]), st.integers(3, 5)),
        st.tuples(st.just("roll"), st.none(), st.none()),
        st.tuples(st.just("clean"), st.integers(0, 2 * RETENTION_MS), st.none()),
        st.tuples(st.just("reopen"), st.booleans(), st.none()),
    ),
    max_size=40,
)


class Story:
    """One random life of a log, and what must be true of it."""

    def __init__(self, topic: CompactedLog) -> None:
        self.topic = topic
        self.now_ms = 1_000_000
        self.written: dict[int, Stored] = {}
        self.sequences: dict[int, int] = {}
        self.open: dict[int, list[tuple[int, Row]]] = {}
        self.history: list[tuple[int, Row]] = []  # committed, with their offsets

    def write(self, rows: list[Row], codec: Codec) -> None:
        self._write(rows, codec=codec)

    def idempotent(self, rows: list[Row], producer_id: int) -> None:
        self._write(rows, producer_id=producer_id, sequence=self._sequence(producer_id, rows))

    def transaction(self, rows: list[Row], producer_id: int) -> None:
        sequence = self._sequence(producer_id, rows)
        first = self.topic.write(*rows, producer_id=producer_id, sequence=sequence, transactional=True)
        self._note(first, rows)
        self.open.setdefault(producer_id, []).extend(enumerate(rows, first))

    def end(self, kind: ControlType, producer_id: int) -> None:
        if producer_id in self.open:
            self.topic.end_transaction(producer_id, kind)
            rows = self.open.pop(producer_id)
            if kind is ControlType.COMMIT:
                self.history += rows

    def roll(self, *_: object) -> None:
        if self.topic.log.active.size_bytes:
            self.topic.roll()

    def clean(self, later_ms: int, _: object) -> None:
        self.now_ms += later_ms
        stats = self.topic.clean(self.now_ms)
        self.check()
        assert not self.topic.manager.uncleanable
        if stats is not None:
            clean = [row.key for row in self.topic.committed() if row.offset < stats.end_offset]
            assert len(clean) == len(set(clean)), "a key twice in what is clean"

    def reopen(self, is_clean: bool, _: object) -> None:
        self.topic.reopen(is_clean=is_clean)
        self.check()

    def check(self) -> None:
        assert {row.offset for row in self.topic.stored()} <= self.written.keys()
        assert all(self.written[row.offset] == row for row in self.topic.stored())
        assert self.topic.table() == self._table()
        for producer_id, next_sequence in self.sequences.items():
            entry = self.topic.log.producers.entry(producer_id)
            assert entry is None or entry.last_sequence in (-1, next_sequence - 1)
        for segment in self.topic.log.segments:
            segment.sanity_check()

    def _table(self) -> dict[bytes | None, bytes]:
        table: dict[bytes | None, bytes] = {}
        undecided = [item for rows in self.open.values() for item in rows]
        # A consumer's table holds records in the order of the log, whenever they were committed.
        for _, (key, value) in sorted(self.history + undecided):
            if value is None:
                table.pop(key, None)
            else:
                table[key] = value
        return table

    def _write(self, rows: list[Row], codec: Codec = Codec.NONE, producer_id: int = -1, sequence: int = 0) -> None:
        first = self.topic.write(*rows, codec=codec, producer_id=producer_id, sequence=sequence)
        self._note(first, rows)
        self.history += enumerate(rows, first)

    def _note(self, first: int, rows: list[Row]) -> None:
        self.written |= {first + n: Stored(first + n, key, value, 100 + n) for n, (key, value) in enumerate(rows)}

    def _sequence(self, producer_id: int, rows: list[Row]) -> int:
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + len(rows)
        return sequence


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sampled_from([5, 11, 280]), st.sampled_from([64, 4_096]))
def test_what_a_consumer_ends_up_with_never_changes(
    steps: list[tuple[str, object, object]], map_keys: int, buffer_bytes: int
) -> None:
    slots = max(32, map_keys * 2)
    config = CleanerConfig(dedupe_buffer_bytes=24 * slots, io_buffer_bytes=buffer_bytes, load_factor=map_keys / slots)
    with tempfile.TemporaryDirectory() as directory:
        story = Story(CompactedLog(directory, {"segment.bytes": 1_048_576, "index.interval.bytes": 100}, config=config))
        for name, first, second in steps:
            step: Callable[[object, object], None] = getattr(story, name)
            step(first, second)
        story.roll()
        story.clean(0, None)
