"""The sparse indexes, against lists."""

from __future__ import annotations

import errno
import os
import random
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.base.filesystem import FileSystem, OsFile, OsFileSystem, read_file
from pybroker.log.index import (
    EVEN_FROM,
    FIRST_CAPACITY,
    MAX_RELATIVE_OFFSET,
    NO_TIMESTAMP,
    CorruptIndexError,
    OffsetIndex,
    OffsetPosition,
    TimeIndex,
    TimestampOffset,
)
from pybroker.testing.disk import SimDisk, SimFile

AnyIndex = TypeVar("AnyIndex", OffsetIndex, TimeIndex)

BASE = 1_000
MAX_BYTES = 1024 * 1024


@pytest.fixture(params=["os", "sim"])
def fs(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileSystem:
    monkeypatch.chdir(tmp_path)
    return OsFileSystem() if request.param == "os" else SimDisk()


def offset_index(fs: FileSystem, max_bytes: int = MAX_BYTES) -> OffsetIndex:
    return made(OffsetIndex(fs, "i", BASE, max_bytes), fs)


def time_index(fs: FileSystem, max_bytes: int = MAX_BYTES) -> TimeIndex:
    return made(TimeIndex(fs, "t", BASE, max_bytes), fs)


def made(index: AnyIndex, fs: FileSystem) -> AnyIndex:
    """With its file, if there is none yet."""
    if not fs.exists(index.path):
        index.create()
    return index


def filled(fs: FileSystem, count: int) -> OffsetIndex:
    index = offset_index(fs)
    for number in range(1, count + 1):
        index.append(BASE + number * 10, number * 100)
    return index


def test_a_late_reader_makes_no_file_where_one_was_deleted(fs: FileSystem) -> None:
    index = filled(fs, 3)
    index.release()
    fs.remove(index.path)
    with pytest.raises(FileNotFoundError):
        index.lookup(BASE + 10)
    assert not fs.exists(index.path)


class Descriptors(OsFileSystem):
    def __init__(self) -> None:
        self.are_short = False

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> OsFile:
        if self.are_short:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return super().open(path, create=create, read_only=read_only)


def test_a_flush_that_found_no_descriptor_is_not_taken_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    synced: list[str] = []
    monkeypatch.setattr(OsFile, "sync", lambda file: synced.append(file.path))
    disk = Descriptors()
    index = filled(disk, 3)
    disk.are_short = True
    with pytest.raises(OSError, match="Too many open files"):
        index.flush()
    disk.are_short = False
    index.flush()
    assert synced == ["i"]


def test_a_sync_that_failed_is_an_io_error_since_the_next_would_not_miss_what_it_lost(fs: FileSystem) -> None:
    index = filled(fs, 3)

    def full(file: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(OsFile if isinstance(fs, OsFileSystem) else SimFile, "sync", full)
        with pytest.raises(OSError, match="a flush failed: No space left") as caught:
            index.flush()
    assert caught.value.errno == errno.EIO


def file_size(fs: FileSystem, path: str) -> int:
    return len(read_file(fs, path))


class TestFormat:
    def test_offset_entries_are_4_bytes_relative_offset_and_4_bytes_position(self, fs: FileSystem) -> None:
        index = offset_index(fs)
        index.append(BASE + 1, 0x01020304)
        index.append(BASE + MAX_RELATIVE_OFFSET, 2**31 - 1)
        index.close()
        assert read_file(fs, "i").hex() == "0000000101020304" + "7fffffff7fffffff"

    def test_time_entries_are_8_bytes_timestamp_and_4_bytes_relative_offset(self, fs: FileSystem) -> None:
        index = time_index(fs)
        index.maybe_append(0x0102030405060708, BASE)
        index.close()
        assert read_file(fs, "t").hex() == "0102030405060708" + "00000000"

    def test_an_offset_too_far_from_the_base_is_refused(self, fs: FileSystem) -> None:
        index = offset_index(fs)
        for offset in (BASE - 1, BASE + MAX_RELATIVE_OFFSET + 1):
            with pytest.raises(AssertionError, match="cannot hold offset"):
                index.append(offset, 1)
        assert index.entry_count == 0

    def test_offsets_ascend(self, fs: FileSystem) -> None:
        index = filled(fs, 2)
        with pytest.raises(AssertionError, match="not behind the last entry"):
            index.append(BASE + 20, 999)


class TestSize:
    def test_an_open_one_is_small_and_a_closed_one_exact(self, fs: FileSystem) -> None:
        index = filled(fs, 3)
        assert file_size(fs, "i") == FIRST_CAPACITY
        index.close()
        assert file_size(fs, "i") == 24
        assert index.entry_count == 3

    def test_it_grows_by_doubling(self, fs: FileSystem) -> None:
        index = filled(fs, FIRST_CAPACITY // 8)
        assert file_size(fs, "i") == FIRST_CAPACITY
        index.append(10**6, 10**6)
        assert file_size(fs, "i") == 2 * FIRST_CAPACITY
        assert index.lookup(BASE + 15) == OffsetPosition(BASE + 10, 100)
        assert index.last() == OffsetPosition(10**6, 10**6)

    def test_entries_of_12_bytes_grow_too(self, fs: FileSystem) -> None:
        index = time_index(fs)
        for number in range(1_000):
            index.maybe_append(number, BASE + number)
        index.close()
        assert file_size(fs, "t") == 12_000
        assert time_index(fs).last() == TimestampOffset(999, BASE + 999)

    def test_trim_gives_back_and_an_append_takes_again(self, fs: FileSystem) -> None:
        index = filled(fs, 2)
        index.trim()
        assert file_size(fs, "i") == 16
        index.trim()
        index.append(BASE + 30, 300)
        assert index.entry_count == 3
        index.close()
        assert file_size(fs, "i") == 24
        assert offset_index(fs).last() == OffsetPosition(BASE + 30, 300)

    def test_trim_cuts_the_file_of_an_index_that_was_let_go_of_meanwhile(self, fs: FileSystem) -> None:
        index = filled(fs, 2)
        index.release()
        assert file_size(fs, "i") > 16
        index.trim()
        assert file_size(fs, "i") == 16
        assert index.entry_count == 2

    def test_full_is_what_the_config_says(self, fs: FileSystem) -> None:
        index = offset_index(fs, max_bytes=3 * 8 + 7)
        for number in range(1, 4):
            assert not index.is_full
            index.append(BASE + number, number)
        assert index.is_full
        index.set_max_bytes(100)
        assert not index.is_full
        assert index.size_bytes == 24

    def test_release_keeps_the_entries(self, fs: FileSystem) -> None:
        index = filled(fs, 2)
        index.release()
        index.release()
        assert index.last() == OffsetPosition(BASE + 20, 200)
        index.append(BASE + 30, 300)
        index.release()
        assert offset_index(fs).entry_count == 3


class TestReopening:
    def test_an_empty_one(self, fs: FileSystem) -> None:
        index = offset_index(fs)
        assert index.entry_count == 0
        assert index.last() == index.lookup(BASE + 99) == OffsetPosition(BASE, 0)
        assert index.lookup_position(99) == 0
        index.close()
        assert file_size(fs, "i") == 0

    @pytest.mark.parametrize("count", [0, 1, 2, 511, 512, 513, 1000])
    def test_a_preallocated_one_as_apache_kafka_leaves_it(self, fs: FileSystem, count: int) -> None:
        filled(fs, count).close()
        fs.open("i", create=True).truncate(10 * 1024 * 1024)
        index = offset_index(fs)
        assert index.entry_count == count
        assert index.last() == OffsetPosition(BASE + count * 10, count * 100)
        index.sanity_check(10**9)
        index.append(BASE + count * 10 + 1, count * 100 + 1)
        index.close()
        assert file_size(fs, "i") == (count + 1) * 8

    def test_a_preallocated_time_index(self, fs: FileSystem) -> None:
        index = time_index(fs)
        index.maybe_append(5, BASE)
        index.maybe_append(7, BASE + 3)
        index.close()
        fs.open("t").truncate(10 * 1024 * 1024 // 12 * 12)
        assert time_index(fs).entry_count == 2
        assert time_index(fs).last() == TimestampOffset(7, BASE + 3)

    def test_one_that_was_not_closed(self, fs: FileSystem) -> None:
        filled(fs, 3)
        assert offset_index(fs).entry_count == 3

    def test_after_a_move(self, fs: FileSystem) -> None:
        index = filled(fs, 1)
        fs.rename("i", "j")
        index.moved("j")
        index.append(BASE + 20, 200)
        index.release()
        assert index.entry_count == 2
        assert not fs.exists("i")


class TestTruncation:
    @pytest.mark.parametrize(("offset", "kept"), [(BASE, 0), (BASE + 10, 0), (BASE + 11, 1), (BASE + 30, 2), (BASE + 31, 3)])
    def test_entries_at_and_behind_the_offset_go(self, fs: FileSystem, offset: int, kept: int) -> None:
        index = filled(fs, 3)
        index.truncate_to(offset)
        assert index.entry_count == kept
        index.release()
        assert offset_index(fs).entry_count == kept, "a crash finds nothing of the rest"

    def test_of_times(self, fs: FileSystem) -> None:
        index = time_index(fs)
        for number in range(5):
            index.maybe_append(100 + number, BASE + number * 10)
        index.truncate_to(BASE + 20)
        assert index.last() == TimestampOffset(101, BASE + 10)
        index.start_over("t.new")
        assert index.last() == TimestampOffset(NO_TIMESTAMP, BASE)

    def test_starting_over_leaves_the_old_file_alone(self, fs: FileSystem) -> None:
        index = filled(fs, 600)
        index.start_over("new")
        assert index.entry_count == 0
        index.append(BASE + 1, 1)
        index.close()
        assert file_size(fs, "new") == 8
        assert offset_index(fs).entry_count == 600


class TestSanity:
    def test_a_missing_one(self, fs: FileSystem) -> None:
        places, times = offset_index(fs), time_index(fs)
        fs.remove(places.path)
        fs.remove(times.path)
        for check in (lambda: places.sanity_check(100), times.sanity_check):
            with pytest.raises(CorruptIndexError, match="missing"):
                check()

    @pytest.mark.parametrize("size", [1, 7, 4097])
    def test_no_multiple_of_an_entry(self, fs: FileSystem, size: int) -> None:
        fs.open("i", create=True).truncate(size)
        with pytest.raises(CorruptIndexError, match="no multiple of 8"):
            offset_index(fs).sanity_check(100)

    def test_an_empty_one_is_fine(self, fs: FileSystem) -> None:
        fs.open("i", create=True)
        fs.open("t", create=True)
        offset_index(fs).sanity_check(0)
        time_index(fs).sanity_check()

    def test_a_position_beyond_the_log(self, fs: FileSystem) -> None:
        index = filled(fs, 3)
        index.sanity_check(301)
        with pytest.raises(CorruptIndexError, match="last position 300 is outside"):
            index.sanity_check(300)

    def test_an_offset_below_the_base(self, fs: FileSystem) -> None:
        fs.open("i", create=True).write(0, bytes.fromhex("8000000000000001"))
        with pytest.raises(CorruptIndexError, match="not behind its base offset"):
            offset_index(fs).sanity_check(100)

    def test_times_that_go_back(self, fs: FileSystem) -> None:
        fs.open("t", create=True).write(0, bytes.fromhex("000000000000000900000001" + "000000000000000500000002"))
        with pytest.raises(CorruptIndexError, match="last timestamp 5 is below its first 9"):
            time_index(fs).sanity_check()


class TestTimes:
    def test_only_higher_ones_are_entered(self, fs: FileSystem) -> None:
        index = time_index(fs)
        for timestamp, offset in ((-1, 0), (5, 1), (5, 2), (3, 3), (6, 4), (-1, 5)):
            index.maybe_append(timestamp, BASE + offset)
        assert index.entry_count == 2
        assert index.lookup(4) == TimestampOffset(NO_TIMESTAMP, BASE)
        assert index.lookup(5) == TimestampOffset(5, BASE + 1)
        assert index.lookup(99) == index.last() == TimestampOffset(6, BASE + 4)

    def test_the_time_0_at_the_base_offset_is_an_entry_of_zeros(self, fs: FileSystem) -> None:
        index = time_index(fs)
        index.maybe_append(0, BASE)
        assert index.entry_count == 1
        assert index.last() == TimestampOffset(0, BASE)


ascending = st.lists(st.integers(1, 2**31 - 1), unique=True, max_size=60).map(sorted)


@given(offsets=ascending, positions=ascending, wanted=st.lists(st.integers(-5, 2**31 + 5), max_size=20))
def test_lookups_find_what_a_walk_finds(offsets: list[int], positions: list[int], wanted: list[int]) -> None:
    entries = [OffsetPosition(BASE + offset, position) for offset, position in zip(offsets, positions, strict=False)]
    index = offset_index(SimDisk())
    for entry in entries:
        index.append(*entry)
    for number in [*wanted, *offsets, *(offset - 1 for offset in offsets)]:
        below = [entry for entry in entries if entry.offset <= BASE + number]
        assert index.lookup(BASE + number) == (below[-1] if below else OffsetPosition(BASE, 0))
    for number in [*wanted, *positions]:
        below = [entry for entry in entries if entry.position <= number]
        assert index.lookup_position(number) == (below[-1].position if below else 0)


@pytest.mark.parametrize("count", [EVEN_FROM, EVEN_FROM + 1, 300])
@pytest.mark.parametrize(
    "step",
    [lambda _: 7, lambda number: number**3, lambda number: 1 if number % 50 else 90_000],
    ids=["even", "growing", "leaps"],
)
def test_lookups_in_a_long_one_find_what_a_walk_finds(count: int, step: Callable[[int], int]) -> None:
    """However far from even the distances are from which the search begins."""
    relative = list(accumulate(step(number) for number in range(1, count + 1)))
    assert relative == sorted(set(relative))
    index = offset_index(SimDisk())
    for offset in relative:
        index.append(BASE + offset, offset)
    for wanted in {near for offset in relative for near in (offset - 1, offset, offset + 1)}:
        at = bisect_right(relative, wanted)
        expected = relative[at - 1] if at else 0
        assert index.lookup(BASE + wanted) == OffsetPosition(BASE + expected, expected)
        assert index.lookup_position(wanted) == expected


@given(seed=st.integers(0, 2**32), steps=st.integers(1, 60))
def test_any_sequence_of_calls_leaves_what_a_list_has(seed: int, steps: int) -> None:
    rng = random.Random(seed)
    disk = SimDisk()
    index = time_index(disk)
    entries: list[TimestampOffset] = []
    timestamp, offset = 0, BASE
    for _ in range(steps):
        match rng.choice("aaaaartTcR"):
            case "a":
                offset += rng.randint(1, 5)
                timestamp = max(0, timestamp + rng.randint(-2, 6))
                if timestamp > (entries[-1].timestamp if entries else NO_TIMESTAMP):
                    entries.append(TimestampOffset(timestamp, offset))
                index.maybe_append(timestamp, offset)
            case "r":
                index.release()
            case "t":
                index.trim()
            case "T":
                offset = rng.randint(BASE, offset + 1)
                entries = [entry for entry in entries if entry.offset < offset]
                index.truncate_to(offset)
            case "c":
                index.close()
            case "R":
                index.release()
                index = time_index(disk)
        assert index.entry_count == len(entries)
        wanted = rng.randint(-1, timestamp + 3)
        below = [entry for entry in entries if entry.timestamp <= wanted]
        assert index.lookup(wanted) == (below[-1] if below else TimestampOffset(NO_TIMESTAMP, BASE))
    index.sanity_check()
