"""A segment: what it indexes, what it finds, when it is full, and how it lets go of its files."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.batches import batch, joined, parsed, records, sized_batch
from support.faulty_disk import FaultyDisk

from pybroker.base.filesystem import FileSystem, OsFile, OsFileSystem
from pybroker.log.files import DELETED, INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX
from pybroker.log.index import MAX_RELATIVE_OFFSET, CorruptIndexError, OffsetPosition, TimestampOffset
from pybroker.log.log_config import LogConfig
from pybroker.log.open_segments import OpenSegments
from pybroker.log.segment import BatchPlace, Segment
from pybroker.log.transaction_index import AbortedTransaction
from pybroker.protocol.records.compression import Codec
from pybroker.testing.disk import SimDisk

BASE = 100
SIZE = 100  # of a batch in most tests


@pytest.fixture(params=["os", "sim"])
def fs(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileSystem:
    monkeypatch.chdir(tmp_path)
    filesystem = OsFileSystem() if request.param == "os" else SimDisk()
    filesystem.make_dirs("d")
    return filesystem


def config(**values: object) -> LogConfig:
    return LogConfig.of({"index.interval.bytes": 250} | {name.replace("_", "."): value for name, value in values.items()})


def new_segment(fs: FileSystem, settings: LogConfig | None = None, *, base_offset: int = BASE, limit: int = 100) -> Segment:
    settings = settings or config()
    segment = Segment(fs, "d", base_offset, settings, OpenSegments(limit), created_ms=0)
    segment.create(settings)
    return segment


def reopened(fs: FileSystem, segment: Segment) -> Segment:
    return Segment(fs, "d", segment.base_offset, config(), OpenSegments(), size_bytes=segment.size_bytes)


def append(segment: Segment, *batches: bytearray) -> None:
    data = joined(batches)
    segment.append(data, parsed(data))


def filled(fs: FileSystem, count: int, settings: LogConfig | None = None) -> Segment:
    """`count` batches of SIZE bytes, one record each, at offsets BASE, BASE + 2, … and times 1000, 1010, …"""
    segment = new_segment(fs, settings)
    for number in range(count):
        append(segment, sized_batch(SIZE, base_offset=BASE + 2 * number, timestamp=1_000 + 10 * number))
    return segment


def entries(segment: Segment) -> list[OffsetPosition]:
    index = segment.index
    return [index._at(index._opened(), number) for number in range(index.entry_count)]


class TestIndexing:
    def test_an_entry_comes_with_the_batch_behind_more_than_the_interval(self, fs: FileSystem) -> None:
        segment = filled(fs, 8)
        assert entries(segment) == [OffsetPosition(BASE + 6, 300), OffsetPosition(BASE + 12, 600)]
        assert segment.time_index.last() == TimestampOffset(1060, BASE + 12)

    def test_just_the_interval_is_not_enough(self, fs: FileSystem) -> None:
        assert entries(filled(fs, 7, config(index_interval_bytes=300))) == [OffsetPosition(BASE + 8, 400)]

    def test_batches_of_one_append_are_indexed_each(self, fs: FileSystem) -> None:
        one_by_one = filled(fs, 8)
        together = new_segment(fs, base_offset=BASE)
        append(together, *(sized_batch(SIZE, base_offset=BASE + 2 * number, timestamp=1_000) for number in range(8)))
        assert entries(together) == entries(one_by_one)

    def test_an_entry_holds_the_last_offset_of_its_batch(self, fs: FileSystem) -> None:
        segment = new_segment(fs)
        append(segment, sized_batch(300, base_offset=BASE), batch([b"a", b"b", b"c"], base_offset=BASE + 1))
        assert entries(segment) == [OffsetPosition(BASE + 3, 300)]

    def test_the_highest_timestamp_so_far_is_what_counts(self, fs: FileSystem) -> None:
        segment = new_segment(fs)
        for number, timestamp in enumerate((50, 90, 70, 60, 80)):
            append(segment, sized_batch(SIZE, base_offset=BASE + number, timestamp=timestamp))
        assert segment.highest_timestamp == TimestampOffset(90, BASE + 1)
        assert segment.time_index.last() == TimestampOffset(90, BASE + 1)

    def test_a_segment_that_is_done_with_has_exact_indexes_and_its_last_time(self, fs: FileSystem) -> None:
        segment = filled(fs, 5)
        segment.became_inactive()
        sizes = {entry.name: entry.size for entry in fs.scan("d")}
        assert sizes == {f"{BASE:020d}.log": 500, f"{BASE:020d}.index": 8, f"{BASE:020d}.timeindex": 24}
        assert reopened(fs, segment).highest_timestamp == TimestampOffset(1040, BASE + 8)

    def test_preallocation(self, fs: FileSystem) -> None:
        segment = filled(fs, 3, config(preallocate=True, segment_bytes=10_000))
        assert fs.open(segment.path(LOG)).size() == 10_000
        assert segment.size_bytes == 300
        assert segment.next_offset() == BASE + 5


class TestReading:
    def test_locate_finds_the_first_batch_that_reaches_the_offset(self, fs: FileSystem) -> None:
        segment = filled(fs, 10)
        for number in range(10):
            place = BatchPlace(number * SIZE, SIZE, BASE + 2 * number, BASE + 2 * number)
            assert segment.locate(BASE + 2 * number, segment.size_bytes) == place
            assert segment.locate(BASE + 2 * number - 1, segment.size_bytes) == place
        assert segment.locate(BASE + 19, segment.size_bytes) is None

    def test_locate_looks_only_below_the_limit(self, fs: FileSystem) -> None:
        segment = filled(fs, 10)
        assert segment.locate(BASE + 18, 10 * SIZE - 1) is None
        assert segment.locate(BASE + 16, 10 * SIZE - 1) is not None

    @pytest.mark.parametrize(
        ("max_bytes", "length"), [(1, 100), (99, 100), (100, 100), (199, 100), (200, 200), (750, 700), (900, 900), (10**6, 900)]
    )
    def test_a_slice_ends_where_a_batch_ends_and_has_one_at_least(self, fs: FileSystem, max_bytes: int, length: int) -> None:
        segment = filled(fs, 10)
        first = segment.locate(BASE + 2, segment.size_bytes)
        assert first is not None
        found = segment.slice_from(first, max_bytes, segment.size_bytes)
        assert (found.position, len(found)) == (100, length)
        assert len(parsed(found.read())) == length // SIZE

    @pytest.mark.parametrize(("max_bytes", "next_offset"), [(199, BASE + 4), (750, BASE + 16), (899, BASE + 18), (900, None)])
    def test_a_slice_that_is_cut_tells_the_offset_behind_it(
        self, fs: FileSystem, max_bytes: int, next_offset: int | None
    ) -> None:
        segment = filled(fs, 10)
        first = segment.locate(BASE + 2, segment.size_bytes)
        assert first is not None
        assert segment.slice_from(first, max_bytes, segment.size_bytes).next_offset == next_offset

    def test_a_slice_does_not_go_beyond_the_limit(self, fs: FileSystem) -> None:
        segment = filled(fs, 10)
        first = segment.locate(BASE, 500)
        assert first is not None
        assert len(segment.slice_from(first, 10**6, 500)) == 500

    def test_a_batch_larger_than_any_read(self, fs: FileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pybroker.log.segment.RECOVERY_READ_BYTES", 1_000)
        segment = new_segment(fs)
        sizes = (100, 5_000, 100, 950, 100, 3_000)
        append(segment, *(sized_batch(size, base_offset=BASE + number) for number, size in enumerate(sizes)))
        assert [found.size_bytes for _, found in segment.batches()] == list(sizes)
        assert [position for position, _ in segment.batches()] == [0, 100, 5_100, 5_200, 6_150, 6_250]
        assert [place.size_bytes for place in segment.places(0, segment.size_bytes)] == list(sizes)

    @pytest.mark.parametrize("cut", [1, 11, 26, 27, 60, 61, 99])
    def test_a_torn_tail_is_no_batch(self, fs: FileSystem, cut: int) -> None:
        segment = filled(fs, 3)
        fs.open(segment.path(LOG)).truncate(200 + cut)
        again = Segment(fs, "d", BASE, config(), OpenSegments(), size_bytes=200 + cut)
        assert [position for position, _ in again.batches()] == [0, 100]
        assert [place.position for place in again.places(0, 200 + cut)] == [0, 100]
        assert again.next_offset() == BASE + 3

    def test_zeros_behind_the_last_batch_are_no_batch(self, fs: FileSystem) -> None:
        segment = filled(fs, 3)
        fs.open(segment.path(LOG)).truncate(5_000)
        again = Segment(fs, "d", BASE, config(), OpenSegments(), size_bytes=5_000)
        assert len(list(again.batches())) == 3
        assert again.next_offset() == BASE + 5

    def test_first_batch_and_next_offset(self, fs: FileSystem) -> None:
        segment = new_segment(fs)
        assert segment.first_batch() is None
        assert segment.next_offset() == BASE
        append(segment, batch([b"a", b"b"], base_offset=BASE + 5), batch([b"c"], base_offset=BASE + 9))
        first = segment.first_batch()
        assert first is not None
        assert (first.base_offset, first.last_offset) == (BASE + 5, BASE + 6)
        assert segment.next_offset() == reopened(fs, segment).next_offset() == BASE + 10

    @pytest.mark.parametrize("codec", Codec)
    def test_what_was_appended_is_read(self, fs: FileSystem, codec: Codec) -> None:
        segment = new_segment(fs)
        values = [b"value %d" % number for number in range(20)]
        append(segment, batch(values, base_offset=BASE, codec=codec))
        first = segment.locate(BASE + 7, segment.size_bytes)
        assert first is not None
        found = segment.slice_from(first, 1, segment.size_bytes)
        assert records(found.read()) == [(BASE + number, value) for number, value in enumerate(values)]


class TestRolling:
    def rolls(self, segment: Segment, settings: LogConfig, **given: int) -> bool:
        asked = {"incoming_bytes": 100, "max_timestamp": 1_000, "last_offset": BASE + 50, "now_ms": 0, "jitter_ms": 0} | given
        return segment.should_roll(**asked, config=settings)

    def test_by_size(self, fs: FileSystem) -> None:
        settings = config(segment_bytes=1_000)
        segment = filled(fs, 5)
        assert not self.rolls(segment, settings, incoming_bytes=500)
        assert self.rolls(segment, settings, incoming_bytes=501)

    def test_an_empty_one_takes_any_batch(self, fs: FileSystem) -> None:
        assert not self.rolls(new_segment(fs), config(segment_bytes=1_000), incoming_bytes=5_000)

    def test_by_the_records_own_time(self, fs: FileSystem) -> None:
        settings = config(segment_ms=500)
        segment = filled(fs, 5)
        assert not self.rolls(segment, settings, max_timestamp=1_500, now_ms=10**9)
        assert self.rolls(segment, settings, max_timestamp=1_501)
        assert self.rolls(segment, settings, max_timestamp=1_401, jitter_ms=100)
        assert self.rolls(reopened(fs, segment), settings, max_timestamp=1_501), "the first batch tells"

    def test_by_the_clock_if_records_have_no_time(self, fs: FileSystem) -> None:
        settings = config(segment_ms=500)
        segment = new_segment(fs)
        assert not self.rolls(segment, settings, max_timestamp=-1, now_ms=501), "it is empty"
        append(segment, sized_batch(SIZE, base_offset=BASE, timestamp=-1))
        assert not self.rolls(segment, settings, max_timestamp=-1, now_ms=500)
        assert self.rolls(segment, settings, max_timestamp=-1, now_ms=501)

    @pytest.mark.parametrize("kind", ["index", "time_index"])
    def test_by_a_full_index(self, fs: FileSystem, kind: str) -> None:
        settings = config(segment_index_bytes=24, index_interval_bytes=1)
        segment = filled(fs, 2, settings)
        assert not self.rolls(segment, settings)
        if kind == "time_index":
            segment = filled(fs, 3, settings)
            segment.index.truncate_to(BASE)
        else:
            for number in range(2):
                append(segment, sized_batch(SIZE, base_offset=BASE + 4 + number, timestamp=1))
        assert self.rolls(segment, settings)

    def test_by_offset(self, fs: FileSystem) -> None:
        segment = filled(fs, 1)
        assert not self.rolls(segment, config(), last_offset=BASE + MAX_RELATIVE_OFFSET)
        assert self.rolls(segment, config(), last_offset=BASE + MAX_RELATIVE_OFFSET + 1)
        assert self.rolls(new_segment(fs, base_offset=0), config(), last_offset=MAX_RELATIVE_OFFSET + 1), "even an empty one"


class TestTruncation:
    @pytest.mark.parametrize(("offset", "kept"), [(BASE, 0), (BASE + 6, 3), (BASE + 7, 4), (BASE + 18, 9), (BASE + 19, 10)])
    def test_batches_that_reach_the_offset_go(self, fs: FileSystem, offset: int, kept: int) -> None:
        segment = filled(fs, 10)
        assert segment.truncate_to(offset) == (10 - kept) * SIZE
        assert segment.size_bytes == fs.open(segment.path(LOG)).size() == kept * SIZE
        assert all(entry.position < kept * SIZE for entry in entries(segment))
        assert segment.next_offset() == (BASE + 2 * kept - 1 if kept else BASE)
        assert segment.highest_timestamp.timestamp == (990 + 10 * kept if kept else -1)

    def test_appends_go_on(self, fs: FileSystem) -> None:
        segment = filled(fs, 10)
        segment.truncate_to(BASE + 8)
        for number in range(4, 10):
            append(segment, sized_batch(SIZE, base_offset=BASE + 2 * number, timestamp=500))
        assert segment.locate(BASE + 18, segment.size_bytes) == BatchPlace(900, SIZE, BASE + 18, BASE + 18)
        assert segment.highest_timestamp == TimestampOffset(1_030, BASE + 6)

    def test_the_rolling_time_starts_anew_where_nothing_is_left(self, fs: FileSystem) -> None:
        settings = config(segment_ms=500)
        segment = filled(fs, 3)
        segment.truncate_to(BASE)
        append(segment, sized_batch(SIZE, base_offset=BASE, timestamp=9_000))
        assert not TestRolling().rolls(segment, settings, max_timestamp=9_500)

    def test_aborted_transactions_behind_it_go(self, fs: FileSystem) -> None:
        segment = filled(fs, 10)
        for number in (4, 8, 12):
            segment.transaction_index.append(AbortedTransaction(1, BASE + number - 2, BASE + number, BASE + number + 1))
        segment.truncate_to(BASE + 8)
        assert [row.last_offset for row in segment.transaction_index.rows()] == [BASE + 4]


class TestSanity:
    def test_a_sound_one(self, fs: FileSystem) -> None:
        segment = filled(fs, 10)
        segment.became_inactive()
        reopened(fs, segment).sanity_check()

    @pytest.mark.parametrize("kind", [INDEX, TIME_INDEX])
    def test_a_missing_index(self, fs: FileSystem, kind: str) -> None:
        segment = filled(fs, 10)
        segment.close()
        fs.remove(segment.path(kind))
        with pytest.raises(CorruptIndexError, match="missing"):
            reopened(fs, segment).sanity_check()

    @pytest.mark.parametrize("kind", [INDEX, TIME_INDEX, TRANSACTION_INDEX])
    def test_a_torn_index(self, fs: FileSystem, kind: str) -> None:
        segment = filled(fs, 10)
        segment.transaction_index.append(AbortedTransaction(1, BASE, BASE + 2, BASE + 3))
        segment.close()
        file = fs.open(segment.path(kind))
        file.truncate(file.size() - 1)
        with pytest.raises(CorruptIndexError, match="no multiple"):
            reopened(fs, segment).sanity_check()

    def test_an_index_that_leads_beyond_the_log(self, fs: FileSystem) -> None:
        segment = filled(fs, 10)
        segment.close()
        segment.size_bytes = 900
        with pytest.raises(CorruptIndexError, match="outside of the segment"):
            reopened(fs, segment).sanity_check()

    def test_a_rebuild_makes_the_same_indexes(self, fs: FileSystem) -> None:
        segment = filled(fs, 10)
        segment.close()
        before = entries(segment), segment.time_index.entry_count
        segment.start_rebuild()
        assert not entries(segment)
        for position, found in segment.batches(0, 900):
            segment.index_batch(position, found)
        segment.end_indexing()
        assert segment.end_rebuild(900, sync=True) == 100
        assert segment.size_bytes == fs.open(segment.path(LOG)).size() == 900
        # The tenth batch, which had an entry, is gone; the time of the ninth is entered at the end of a rebuild.
        assert (entries(segment), segment.time_index.entry_count) == (before[0][:-1], before[1])
        reopened(fs, segment).sanity_check()


class TestFiles:
    def test_a_slice_outlives_the_release_of_its_segment(self, fs: FileSystem) -> None:
        segment = filled(fs, 3)
        first = segment.locate(BASE, 300)
        assert first is not None
        found = segment.slice_from(first, 10**6, 300)
        segment.release()
        assert len(parsed(found.read())) == 3
        assert segment.next_offset() == BASE + 5
        segment.change_suffix(DELETED)
        segment.delete()
        assert len(parsed(found.read())) == 3
        assert list(fs.scan("d")) == []

    def test_segments_let_go_under_pressure_and_open_again(self, fs: FileSystem) -> None:
        open_segments = OpenSegments(2)
        segments = []
        for number in range(6):
            segment = Segment(fs, "d", 100 * number, config(), open_segments)
            segment.create(config())
            append(segment, *(sized_batch(SIZE, base_offset=100 * number + each) for each in range(10)))
            segments.append(segment)
        slices = []
        for _ in range(3):
            for number, segment in enumerate(segments):
                first = segment.locate(100 * number + 5, segment.size_bytes)
                assert first is not None
                slices.append((number, segment.slice_from(first, 200, segment.size_bytes)))
                append(segment, sized_batch(SIZE, base_offset=segment.next_offset()))
                assert sum(each._file is not None for each in segments) <= 3
        for number, found in slices:
            assert [row[0] for row in records(found.read())] == [100 * number + 5, 100 * number + 6]
        assert [segment.next_offset() for segment in segments] == [100 * number + 13 for number in range(6)]

    def test_change_suffix_renames_what_is_there(self, fs: FileSystem) -> None:
        segment = filled(fs, 10)
        segment.transaction_index.append(AbortedTransaction(1, BASE, BASE + 2, BASE + 3))
        segment.change_suffix(DELETED)
        kinds = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)
        assert {entry.name for entry in fs.scan("d")} == {f"{BASE:020d}{kind}{DELETED}" for kind in kinds}
        segment.release()
        assert segment.next_offset() == BASE + 19
        assert len(segment.transaction_index.rows()) == 1

    def test_after_the_directory_moved(self, fs: FileSystem) -> None:
        segment = filled(fs, 10)
        fs.rename("d", "e")
        segment.directory_moved("e")
        segment.release()
        append(segment, sized_batch(SIZE, base_offset=BASE + 20))
        assert segment.next_offset() == BASE + 21
        assert fs.open(f"e/{BASE:020d}.log").size() == 1_100

    def test_a_closed_one_has_exact_indexes_and_opens_again(self, fs: FileSystem) -> None:
        segment = filled(fs, 8)
        segment.close()
        assert fs.open(segment.path(INDEX)).size() == 16
        segment.close()
        assert segment.next_offset() == BASE + 15

    def test_retention_counts_from_the_records_or_the_file(self) -> None:
        disk = SimDisk(clock=lambda: 77)
        disk.make_dirs("d")
        segment = new_segment(disk)
        append(segment, sized_batch(SIZE, base_offset=BASE, timestamp=-1))
        assert segment.retention_timestamp() == 77
        append(segment, sized_batch(SIZE, base_offset=BASE + 1, timestamp=5))
        assert segment.retention_timestamp() == 5

    def test_a_full_disk_appends_nothing(self) -> None:
        disk = SimDisk()
        disk.make_dirs("d")
        segment = filled(disk, 2)
        disk.capacity_bytes = sum(entry.size for entry in disk.scan("d")) + 50
        with pytest.raises(OSError, match="No space left"):
            append(segment, sized_batch(SIZE, base_offset=BASE + 4))
        assert segment.size_bytes == 200
        assert segment.next_offset() == BASE + 3
        disk.capacity_bytes = None
        append(segment, sized_batch(SIZE, base_offset=BASE + 4))
        assert [place.base_offset for place in segment.places(0, segment.size_bytes)] == [BASE, BASE + 2, BASE + 4]


@settings(deadline=None)
@given(
    sizes=st.lists(st.sampled_from([70, 80, 100, 300, 700, 2_000]), min_size=1, max_size=40),
    gaps=st.lists(st.integers(0, 3), min_size=40, max_size=40),
    interval=st.sampled_from([0, 100, 500, 4_096]),
    data=st.data(),
)
def test_reads_find_what_a_walk_finds(sizes: list[int], gaps: list[int], interval: int, data: st.DataObject) -> None:
    disk = SimDisk()
    disk.make_dirs("d")
    segment = new_segment(disk, config(index_interval_bytes=interval))
    places = []
    offset = BASE
    for size, gap in zip(sizes, gaps, strict=False):
        offset += gap
        places.append(BatchPlace(segment.size_bytes, size, offset, offset))
        append(segment, sized_batch(size, base_offset=offset))
        offset += 1
    limit = data.draw(st.sampled_from([place.end for place in places]), "limit")
    wanted = data.draw(st.integers(BASE, offset), "offset")
    expected = next((place for place in places if place.last_offset >= wanted and place.end <= limit), None)
    assert segment.locate(wanted, limit) == expected
    if expected is not None:
        max_bytes = data.draw(st.integers(0, 5_000), "max_bytes")
        ends = [place.end for place in places if place.end <= min(limit, expected.position + max_bytes)]
        stop = max([expected.end, *ends])
        assert len(segment.slice_from(expected, max_bytes, limit)) == stop - expected.position


class InterruptedRenames(OsFileSystem):
    """Behind every rename another thread gets a moment, before anybody is told of the new name."""

    def __init__(self) -> None:
        self.interrupt: Callable[[], object] = lambda: None
        self.threads: list[threading.Thread] = []

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        thread = threading.Thread(target=self.interrupt)
        self.threads.append(thread)
        thread.start()
        thread.join(0.1)


def test_a_reader_of_a_closed_segment_that_is_just_renamed_finds_all_of_it_and_makes_no_files(tmp_path: Path) -> None:
    disk = InterruptedRenames()
    directory = str(tmp_path)
    segment = Segment(disk, directory, BASE, config(), OpenSegments(), created_ms=0)
    segment.create(config())
    for number in range(8):
        append(segment, sized_batch(SIZE, base_offset=BASE + 2 * number, timestamp=1_000 + 10 * number))
    segment.became_inactive()
    found: list[tuple[int | None, int]] = []

    def read() -> None:
        segment.release()
        place = segment.locate(BASE + 12, segment.size_bytes)
        found.append((place and place.position, segment.time_index.entry_count))

    read()
    segment.release()
    disk.interrupt = read
    segment.change_suffix(DELETED)
    for thread in disk.threads:
        thread.join()
    assert found == [(600, segment.time_index.entry_count)] * 4
    assert found[0][1] > 0
    assert {path.suffix for path in tmp_path.iterdir()} == {DELETED}


def test_readers_that_open_a_segment_at_once_open_it_once(tmp_path: Path) -> None:
    open_segments = OpenSegments(10)
    segment = Segment(OsFileSystem(), str(tmp_path), BASE, config(), open_segments, created_ms=0)
    segment.create(config())
    segment.forget()
    barrier = threading.Barrier(8)

    class Counting(OsFileSystem):
        def open(self, path: str, *, create: bool = False, read_only: bool = False) -> OsFile:
            opened.append(path)
            return super().open(path, create=create, read_only=read_only)

    opened: list[str] = []
    segment._filesystem = Counting()

    def read() -> None:
        barrier.wait()
        segment._open()

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(opened), len(open_segments)) == (1, 1)
    segment.forget()
    assert len(open_segments) == 0


def test_a_segment_that_could_not_be_made_is_not_among_the_open_ones(tmp_path: Path) -> None:
    disk = FaultyDisk()
    open_segments = OpenSegments(10)
    segment = Segment(disk, str(tmp_path), BASE, config(), open_segments, created_ms=0)
    disk.full.add(segment.path(TIME_INDEX))
    with pytest.raises(OSError, match="No space left"):
        segment.create(config())
    assert len(open_segments) == 0
