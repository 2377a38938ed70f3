"""The simulated disk loses what a disk may lose, all of it sometimes, and never what was synced."""

from __future__ import annotations

import errno
import random
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.base.filesystem import read_file, write_file
from pybroker.testing.disk import SECTOR_BYTES, PowerCutError, SimDisk

SEEDS = 400
T = TypeVar("T")


def new_disk(seed: int = 0) -> SimDisk:
    disk = SimDisk(random.Random(seed))
    disk.make_dirs("d")
    disk.sync_dir("")
    return disk


def safe_file(disk: SimDisk, path: str, data: bytes = b"") -> None:
    file = disk.open(path, create=True)
    file.write(0, data)
    file.sync()
    disk.sync_dir("d")


def outcomes(workload: Callable[[SimDisk], object], look: Callable[[SimDisk], T]) -> set[T]:
    """Everything that is seen after a crash behind `workload`, over many seeds."""
    seen = set()
    for seed in range(SEEDS):
        disk = new_disk(seed)
        workload(disk)
        disk.crash()
        seen.add(look(disk))
    return seen


def names(disk: SimDisk, path: str = "d") -> frozenset[str]:
    return frozenset(entry.name for entry in disk.scan(path))


class TestWrites:
    def test_synced_ones_survive(self) -> None:
        def workload(disk: SimDisk) -> None:
            safe_file(disk, "d/f", b"safe")

        assert outcomes(workload, lambda disk: read_file(disk, "d/f")) == {b"safe"}

    def test_others_are_kept_lost_torn_at_any_byte_or_only_their_length_is_kept(self) -> None:
        def workload(disk: SimDisk) -> None:
            safe_file(disk, "d/f", b"safe")
            disk.open("d/f").write(4, b"more")

        lengths = {b"safe" + b"more"[:kept] for kept in range(5)}
        assert outcomes(workload, lambda disk: read_file(disk, "d/f")) == lengths | {b"safe\0\0\0\0"}

    def test_a_later_one_may_survive_an_earlier_one(self) -> None:
        def workload(disk: SimDisk) -> None:
            safe_file(disk, "d/f")
            file = disk.open("d/f")
            file.write(0, b"aa")
            file.write(2, b"bb")

        seen = outcomes(workload, lambda disk: read_file(disk, "d/f"))
        assert {b"", b"aa", b"aabb", b"\0\0bb"} <= seen

    def test_sectors_are_torn_by_themselves(self) -> None:
        def workload(disk: SimDisk) -> None:
            safe_file(disk, "d/f", b"-" * 3 * SECTOR_BYTES)
            disk.open("d/f").write(0, b"x" * 3 * SECTOR_BYTES)

        def sectors(disk: SimDisk) -> str:
            return read_file(disk, "d/f")[::SECTOR_BYTES].decode()

        assert {"---", "xxx", "-x-", "--x", "x-x"} <= outcomes(workload, sectors)

    def test_a_shrinking_that_is_lost_takes_what_came_behind_it_along(self) -> None:
        def workload(disk: SimDisk) -> None:
            safe_file(disk, "d/f", b"AABB")
            file = disk.open("d/f")
            file.truncate(0)
            file.write(0, b"aa")

        assert outcomes(workload, lambda disk: read_file(disk, "d/f")) == {b"AABB", b"", b"a", b"aa", b"\0\0"}

    def test_growing(self) -> None:
        def workload(disk: SimDisk) -> None:
            safe_file(disk, "d/f", b"a")
            disk.open("d/f").truncate(3)

        assert outcomes(workload, lambda disk: read_file(disk, "d/f")) == {b"a", b"a\0\0"}


class TestMappings:
    def test_pages_reach_the_disk_or_not(self) -> None:
        def workload(disk: SimDisk) -> None:
            safe_file(disk, "d/f", bytes(2 * SECTOR_BYTES))
            mapping = disk.open("d/f").map(2 * SECTOR_BYTES)
            struct.pack_into(">i", mapping, 0, -1)
            struct.pack_into(">i", mapping, SECTOR_BYTES, -1)

        def look(disk: SimDisk) -> tuple[bool, ...]:
            data = read_file(disk, "d/f")
            return data[0] == 255, data[SECTOR_BYTES] == 255

        assert outcomes(workload, look) == {(False, False), (False, True), (True, False), (True, True)}

    @pytest.mark.parametrize("synced_by", ["flush", "sync", "sync after close"])
    def test_flushed_ones_survive(self, synced_by: str) -> None:
        def workload(disk: SimDisk) -> None:
            safe_file(disk, "d/f", bytes(8))
            file = disk.open("d/f")
            mapping = file.map(8)
            struct.pack_into(">i", mapping, 0, -1)
            if synced_by == "flush":
                mapping.flush()
            else:
                if synced_by != "sync":
                    mapping.close()
                file.sync()

        assert outcomes(workload, lambda disk: read_file(disk, "d/f")) == {b"\xff" * 4 + bytes(4)}

    def test_a_mapping_of_before_the_crash_changes_nothing_any_more(self) -> None:
        disk = new_disk()
        safe_file(disk, "d/f", bytes(8))
        mapping = disk.open("d/f").map(8)
        disk.crash()
        struct.pack_into(">i", mapping, 0, -1)
        mapping.flush()
        mapping.close()
        assert read_file(disk, "d/f") == bytes(8)

    def test_to_shrink_a_file_under_its_mapping_is_a_mistake(self) -> None:
        disk = new_disk()
        file = disk.open("d/f", create=True)
        mapping = file.map(4096)
        with pytest.raises(AssertionError, match="shrinks under its mapping"):
            file.truncate(8)
        mapping.close()
        file.truncate(8)


class TestNames:
    def test_a_prefix_of_the_operations_survives(self) -> None:
        def workload(disk: SimDisk) -> None:
            safe_file(disk, "d/old")
            disk.open("d/new", create=True)
            disk.rename("d/new", "d/renamed")
            disk.remove("d/old")

        expected = {
            frozenset({"old"}),
            frozenset({"old", "new"}),
            frozenset({"old", "renamed"}),
            frozenset({"renamed"}),
        }
        assert outcomes(workload, names) == expected

    def test_sync_dir_makes_them_safe(self) -> None:
        def workload(disk: SimDisk) -> None:
            disk.open("d/new", create=True)
            disk.rename("d/new", "d/renamed")
            disk.sync_dir("d")

        assert outcomes(workload, names) == {frozenset({"renamed"})}

    def test_the_sync_of_a_file_does_not_make_its_name_safe(self) -> None:
        assert outcomes(lambda disk: disk.open("d/new", create=True).sync(), names) == {frozenset(), frozenset({"new"})}

    def test_directories_stop_by_themselves(self) -> None:
        def workload(disk: SimDisk) -> None:
            disk.make_dirs("d/a")
            disk.make_dirs("d/b")
            disk.sync_dir("d")
            disk.open("d/a/1", create=True)
            disk.open("d/b/2", create=True)

        def look(disk: SimDisk) -> tuple[int, int]:
            return len(names(disk, "d/a")), len(names(disk, "d/b"))

        assert outcomes(workload, look) == {(0, 0), (0, 1), (1, 0), (1, 1)}

    def test_a_file_moved_between_directories_is_in_one_of_them(self) -> None:
        def workload(disk: SimDisk) -> None:
            disk.make_dirs("d/a")
            disk.sync_dir("d")
            safe_file(disk, "d/f")
            disk.rename("d/f", "d/a/f")

        def look(disk: SimDisk) -> tuple[bool, bool]:
            return disk.exists("d/f"), disk.exists("d/a/f")

        assert outcomes(workload, look) == {(True, False), (False, True)}

    def test_a_file_that_was_renamed_over_comes_back_with_its_bytes(self) -> None:
        def workload(disk: SimDisk) -> None:
            safe_file(disk, "d/f", b"old")
            write_file(disk, "d/f", b"new", sync=False)

        seen = outcomes(workload, lambda disk: read_file(disk, "d/f"))
        assert {b"old", b"new", b"\0\0\0", b""} <= seen

    def test_write_file_is_atomic(self) -> None:
        def workload(disk: SimDisk) -> None:
            safe_file(disk, "d/f", b"old")
            disk.cut_at = disk.operations + disk.rng.randrange(1, 7)
            with suppress(PowerCutError):
                write_file(disk, "d/f", b"new")

        assert outcomes(workload, lambda disk: read_file(disk, "d/f")) == {b"old", b"new"}


class TestCrashes:
    @given(cut_at=st.integers(1, 5))
    def test_the_power_goes_at_the_given_operation(self, cut_at: int) -> None:
        disk = new_disk()
        disk.cut_at = disk.operations + cut_at
        opened = []

        def workload() -> None:
            opened.append(disk.open("d/f", create=True))
            for number in range(9):
                opened[0].write(number, b"x")

        with pytest.raises(PowerCutError):
            workload()
        assert disk.operations == disk.cut_at
        for access in (lambda: disk.exists("d/f"), lambda: list(disk.scan("d")), lambda: disk.sync_dir("d")):
            with pytest.raises(PowerCutError):
                access()
        disk.crash()
        assert disk.exists("d")
        for file in opened:
            with pytest.raises(OSError) as caught:  # noqa: PT011
                file.read(0, 1)
            assert caught.value.errno == errno.EBADF

    def test_no_handler_of_errors_sees_it(self) -> None:
        assert not issubclass(PowerCutError, Exception)

    def test_a_crash_in_sync_leaves_the_file_unsynced(self) -> None:
        def workload(disk: SimDisk) -> None:
            safe_file(disk, "d/f")
            file = disk.open("d/f")
            file.write(0, b"a")
            disk.cut_at = disk.operations + 1
            with pytest.raises(PowerCutError):
                file.sync()

        assert outcomes(workload, lambda disk: read_file(disk, "d/f")) == {b"", b"a", b"\0"}

    def test_what_a_crash_left_is_there_after_the_next(self) -> None:
        for seed in range(50):
            disk = new_disk(seed)
            disk.open("d/f", create=True).write(0, b"abc")
            disk.crash()
            left = {name: read_file(disk, f"d/{name}") for name in names(disk)}
            disk.crash()
            assert {name: read_file(disk, f"d/{name}") for name in names(disk)} == left

    def test_the_end_of_a_process_loses_no_byte_but_its_locks(self) -> None:
        disk = new_disk()
        lock = disk.lock("d/.lock")
        file = disk.open("d/f", create=True)
        mapping = file.map(8)
        struct.pack_into(">i", mapping, 4, -1)
        disk.kill()
        assert read_file(disk, "d/f") == bytes(4) + b"\xff" * 4
        assert disk.lock("d/.lock") is not None
        assert lock is not None
        lock.release()
        with pytest.raises(OSError) as caught:  # noqa: PT011
            file.size()
        assert caught.value.errno == errno.EBADF

    def test_the_same_seed_gives_the_same_crash(self) -> None:
        def run(seed: int) -> tuple[frozenset[str], list[bytes]]:
            disk = new_disk(seed)
            for number in range(5):
                disk.open(f"d/{number}", create=True).write(0, bytes([number]) * 2000)
            disk.crash()
            return names(disk), [read_file(disk, f"d/{name}") for name in sorted(names(disk))]

        assert [run(seed) for seed in range(20)] == [run(seed) for seed in range(20)]


class TestFaults:
    def test_broken(self) -> None:
        disk = new_disk()
        file = disk.open("d/f", create=True)
        disk.open("d/g", create=True)
        disk.broken["d/f"] = errno.EIO
        for access in (lambda: file.write(0, b"x"), file.sync, lambda: disk.exists("d/f"), lambda: disk.remove("d/f")):
            with pytest.raises(OSError) as caught:  # noqa: PT011
                access()
            assert caught.value.errno == errno.EIO
        assert disk.exists("d/g")
        disk.broken.clear()
        file.write(0, b"x")

    def test_read_only(self) -> None:
        disk = new_disk()
        safe_file(disk, "d/f", b"abc")
        disk.read_only.add("d")
        changes = (
            lambda: disk.open("d/f"),
            lambda: disk.open("d/g", create=True),
            lambda: disk.make_dirs("d/e"),
            lambda: disk.rename("d/f", "d/g"),
            lambda: disk.remove("d/f"),
        )
        for change in changes:
            with pytest.raises(OSError) as caught:  # noqa: PT011
                change()
            assert caught.value.errno == errno.EROFS
        assert read_file(disk, "d/f") == b"abc"

    def test_a_full_disk_takes_what_fits(self) -> None:
        disk = new_disk()
        safe_file(disk, "d/f", b"12345")
        disk.capacity_bytes = 12
        file = disk.open("d/g", create=True)
        file.write(0, b"1234")
        with pytest.raises(OSError) as caught:  # noqa: PT011
            file.write(4, b"56789")
        assert caught.value.errno == errno.ENOSPC
        assert file.read(0, 99) == b"1234567"
        file.write(0, b"7654321")
        with pytest.raises(OSError) as caught:  # noqa: PT011
            disk.open("d/h", create=True).map(8)
        assert caught.value.errno == errno.ENOSPC
        disk.remove("d/f")
        file.write(7, b"89")
        assert file.read(0, 99) == b"765432189"

    def test_the_clock_says_when_a_file_changed(self) -> None:
        now = 5
        disk = SimDisk(clock=lambda: now)
        file = disk.open("f", create=True)
        assert disk.modified_ms("f") == 5
        now = 7
        file.read(0, 1)
        assert disk.modified_ms("f") == 5
        mapping = file.map(8)
        now = 9
        struct.pack_into(">i", mapping, 0, 1)
        assert disk.modified_ms("f") == 9

    def test_a_file_has_no_descriptor(self) -> None:
        with pytest.raises(OSError, match="no descriptor"):
            new_disk().open("d/f", create=True).fileno()
