"""The real disk and the simulated one do the same, call for call."""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import pytest

from pybroker.base.filesystem import FileSystem, OsFileSystem, read_file, remove_tree, write_file
from pybroker.testing.disk import SimDisk


class Place:
    def __init__(self, filesystem: FileSystem, root: str) -> None:
        self.filesystem = filesystem
        self.root = root

    def __truediv__(self, name: str) -> str:
        return f"{self.root}/{name}"

    def names(self, path: str | None = None) -> dict[str, tuple[bool, int]]:
        entries = self.filesystem.scan(path or self.root)
        return {entry.name: (entry.is_dir, 0 if entry.is_dir else entry.size) for entry in entries}


@pytest.fixture(params=["os", "sim"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "os":
        return Place(OsFileSystem(), str(tmp_path))
    disk = SimDisk()
    disk.make_dirs("/data/place")
    return Place(disk, "/data/place")


@pytest.fixture
def fs(place: Place) -> FileSystem:
    return place.filesystem


class TestFiles:
    def test_one_that_is_missing_is_not_found(self, place: Place, fs: FileSystem) -> None:
        for options in ({}, {"read_only": True}):
            with pytest.raises(FileNotFoundError) as caught:
                fs.open(place / "none", **options)
            assert caught.value.filename == place / "none"
        assert not fs.exists(place / "none")

    def test_create_makes_it_but_no_directories(self, place: Place, fs: FileSystem) -> None:
        assert fs.open(place / "new", create=True).size() == 0
        assert fs.exists(place / "new")
        with pytest.raises(FileNotFoundError):
            fs.open(place / "missing/new", create=True)

    def test_create_keeps_what_is_there(self, place: Place, fs: FileSystem) -> None:
        fs.open(place / "file", create=True).write(0, b"kept")
        assert fs.open(place / "file", create=True).read(0, 10) == b"kept"

    def test_a_directory_is_no_file(self, place: Place, fs: FileSystem) -> None:
        fs.make_dirs(place / "dir")
        with pytest.raises(IsADirectoryError):
            fs.open(place / "dir", create=True)

    def test_below_a_file_is_nothing(self, place: Place, fs: FileSystem) -> None:
        fs.open(place / "file", create=True)
        with pytest.raises(NotADirectoryError):
            fs.open(place / "file/below", create=True)
        assert not fs.exists(place / "file/below")

    def test_read_gives_what_is_there(self, place: Place, fs: FileSystem) -> None:
        file = fs.open(place / "file", create=True)
        file.write(0, b"0123456789")
        assert file.read(2, 3) == b"234"
        assert file.read(8, 10) == b"89"
        assert file.read(10, 5) == b""
        assert file.read(99, 5) == b""

    def test_write_takes_any_buffer(self, place: Place, fs: FileSystem) -> None:
        file = fs.open(place / "file", create=True)
        file.write(0, b"aa")
        file.write(2, bytearray(b"bb"))
        file.write(4, memoryview(b"xccx")[1:3])
        assert file.read(0, 9) == b"aabbcc"

    def test_a_hole_reads_as_zeros(self, place: Place, fs: FileSystem) -> None:
        file = fs.open(place / "file", create=True)
        file.write(5, b"end")
        assert file.size() == 8
        assert file.read(0, 8) == b"\0\0\0\0\0end"

    def test_overwriting(self, place: Place, fs: FileSystem) -> None:
        file = fs.open(place / "file", create=True)
        file.write(0, b"0123456789")
        file.write(3, b"xyz")
        assert file.read(0, 99) == b"012xyz6789"

    def test_an_empty_write_does_not_grow_the_file(self, place: Place, fs: FileSystem) -> None:
        file = fs.open(place / "file", create=True)
        file.write(7, b"")
        assert file.size() == 0

    def test_truncate_cuts_and_fills(self, place: Place, fs: FileSystem) -> None:
        file = fs.open(place / "file", create=True)
        file.write(0, b"0123456789")
        file.truncate(4)
        file.truncate(6)
        assert file.read(0, 99) == b"0123\0\0"

    def test_two_handles_see_the_same_bytes(self, place: Place, fs: FileSystem) -> None:
        writer, reader = fs.open(place / "file", create=True), fs.open(place / "file", read_only=True)
        writer.write(0, b"abc")
        assert reader.read(0, 9) == b"abc"
        assert reader.size() == 3

    def test_read_only(self, place: Place, fs: FileSystem) -> None:
        fs.open(place / "file", create=True).write(0, b"abc")
        file = fs.open(place / "file", read_only=True)
        for change, error in ((lambda: file.write(0, b"x"), errno.EBADF), (lambda: file.truncate(0), errno.EINVAL)):
            with pytest.raises(OSError) as caught:  # noqa: PT011
                change()
            assert caught.value.errno == error
        with pytest.raises(PermissionError):
            file.map(3)
        assert file.read(0, 9) == b"abc"

    def test_a_closed_file_does_nothing(self, place: Place, fs: FileSystem) -> None:
        file = fs.open(place / "file", create=True)
        file.close()
        file.close()
        with pytest.raises(OSError) as caught:  # noqa: PT011
            file.read(0, 1)
        assert caught.value.errno == errno.EBADF

    def test_sync_changes_nothing_that_is_seen(self, place: Place, fs: FileSystem) -> None:
        file = fs.open(place / "file", create=True)
        file.write(0, b"abc")
        file.sync()
        assert file.read(0, 9) == b"abc"

    def test_modified(self, place: Place, fs: FileSystem) -> None:
        fs.open(place / "file", create=True)
        assert fs.modified_ms(place / "file") >= 0
        with pytest.raises(FileNotFoundError):
            fs.modified_ms(place / "none")

    def test_modified_is_what_it_is_set_to_until_the_next_write(self, place: Place, fs: FileSystem) -> None:
        file = fs.open(place / "file", create=True)
        file.write(0, b"abc")
        fs.set_modified_ms(place / "file", 1_600_000_000_123)
        assert fs.modified_ms(place / "file") == 1_600_000_000_123
        file.write(0, b"abd")
        assert fs.modified_ms(place / "file") != 1_600_000_000_123
        with pytest.raises(FileNotFoundError):
            fs.set_modified_ms(place / "none", 0)


class TestMappings:
    def test_map_grows_the_file_with_zeros(self, place: Place, fs: FileSystem) -> None:
        file = fs.open(place / "file", create=True)
        file.write(0, b"abc")
        mapping = file.map(4096)
        assert len(mapping) == 4096
        assert file.size() == 4096
        assert mapping[0:5] == b"abc\0\0"
        assert isinstance(mapping[0:5], bytes)

    def test_map_of_a_part_leaves_the_size(self, place: Place, fs: FileSystem) -> None:
        file = fs.open(place / "file", create=True)
        file.write(0, bytes(10_000))
        assert len(file.map(4096)) == 4096
        assert file.size() == 10_000

    def test_what_is_stored_is_read(self, place: Place, fs: FileSystem) -> None:
        file = fs.open(place / "file", create=True)
        mapping = file.map(4096)
        struct.pack_into(">ii", mapping, 8, 1, 2)
        with memoryview(mapping) as view:
            view[2000:2003] = b"xyz"
        assert file.read(8, 8) == struct.pack(">ii", 1, 2)
        assert file.read(2000, 3) == b"xyz"
        mapping.flush()
        assert struct.unpack_from(">ii", mapping, 8) == (1, 2)

    def test_what_is_written_is_mapped(self, place: Place, fs: FileSystem) -> None:
        file = fs.open(place / "file", create=True)
        mapping = file.map(4096)
        file.write(4090, b"abcdefghij")
        assert mapping[4090:4096] == b"abcdef"
        assert file.size() == 4100

    def test_two_mappings_of_a_file(self, place: Place, fs: FileSystem) -> None:
        file = fs.open(place / "file", create=True)
        one, two = file.map(4096), file.map(8192)
        struct.pack_into(">i", one, 0, 7)
        assert file.read(0, 4) == two[0:4] == b"\0\0\0\7"

    def test_a_mapping_outlives_file_and_name(self, place: Place, fs: FileSystem) -> None:
        file = fs.open(place / "file", create=True)
        mapping = file.map(4096)
        file.close()
        fs.rename(place / "file", place / "other")
        struct.pack_into(">i", mapping, 0, 7)
        assert fs.open(place / "other").read(0, 4) == b"\0\0\0\7"

    def test_a_closed_one_leaves_its_bytes(self, place: Place, fs: FileSystem) -> None:
        file = fs.open(place / "file", create=True)
        mapping = file.map(4096)
        struct.pack_into(">i", mapping, 0, 7)
        mapping.close()
        mapping.close()
        file.truncate(4)
        assert file.read(0, 99) == b"\0\0\0\7"
        with pytest.raises(ValueError, match="closed"):
            mapping[0:4]

    def test_one_in_use_does_not_close(self, place: Place, fs: FileSystem) -> None:
        mapping = fs.open(place / "file", create=True).map(4096)
        with memoryview(mapping), pytest.raises(BufferError):
            mapping.close()
        mapping.close()


class TestNames:
    def test_scan_tells_names_kinds_and_sizes(self, place: Place, fs: FileSystem) -> None:
        fs.make_dirs(place / "dir/below")
        fs.open(place / "file", create=True).write(0, b"abc")
        fs.open(place / "empty", create=True)
        assert place.names() == {"dir": (True, 0), "file": (False, 3), "empty": (False, 0)}
        assert place.names(place / "dir") == {"below": (True, 0)}

    def test_scan_of_nothing(self, place: Place, fs: FileSystem) -> None:
        with pytest.raises(FileNotFoundError):
            list(fs.scan(place / "none"))
        fs.open(place / "file", create=True)
        with pytest.raises(NotADirectoryError):
            list(fs.scan(place / "file"))

    def test_a_scan_goes_on_while_files_are_removed(self, place: Place, fs: FileSystem) -> None:
        for number in range(20):
            fs.open(place / str(number), create=True)
        for entry in fs.scan(place.root):
            fs.remove(place / entry.name)
        assert place.names() == {}

    def test_make_dirs_is_content_with_what_is_there(self, place: Place, fs: FileSystem) -> None:
        fs.make_dirs(place / "a/b/c")
        fs.make_dirs(place / "a/b")
        assert fs.exists(place / "a/b/c")
        fs.open(place / "file", create=True)
        with pytest.raises(FileExistsError):
            fs.make_dirs(place / "file")

    def test_rename_takes_the_place(self, place: Place, fs: FileSystem) -> None:
        fs.open(place / "old", create=True).write(0, b"old")
        replaced = fs.open(place / "new", create=True)
        replaced.write(0, b"replaced")
        fs.rename(place / "old", place / "new")
        assert place.names() == {"new": (False, 3)}
        assert read_file(fs, place / "new") == b"old"
        assert replaced.read(0, 99) == b"replaced"

    def test_rename_to_itself(self, place: Place, fs: FileSystem) -> None:
        fs.open(place / "file", create=True).write(0, b"abc")
        fs.rename(place / "file", place / "file")
        assert place.names() == {"file": (False, 3)}

    def test_rename_of_nothing(self, place: Place, fs: FileSystem) -> None:
        with pytest.raises(FileNotFoundError):
            fs.rename(place / "none", place / "new")

    def test_rename_of_a_directory_takes_all_that_is_in_it(self, place: Place, fs: FileSystem) -> None:
        fs.make_dirs(place / "t-0")
        file = fs.open(place / "t-0/file", create=True)
        fs.rename(place / "t-0", place / "t-0.1-delete")
        file.write(0, b"abc")
        assert place.names() == {"t-0.1-delete": (True, 0)}
        assert read_file(fs, place / "t-0.1-delete/file") == b"abc"

    def test_rename_between_kinds(self, place: Place, fs: FileSystem) -> None:
        fs.make_dirs(place / "dir")
        fs.make_dirs(place / "full/below")
        fs.open(place / "file", create=True)
        with pytest.raises(IsADirectoryError):
            fs.rename(place / "file", place / "dir")
        with pytest.raises(NotADirectoryError):
            fs.rename(place / "dir", place / "file")
        with pytest.raises(OSError) as caught:  # noqa: PT011
            fs.rename(place / "dir", place / "full")
        assert caught.value.errno == errno.ENOTEMPTY

    def test_remove_leaves_the_file_to_its_holder(self, place: Place, fs: FileSystem) -> None:
        file = fs.open(place / "file", create=True)
        file.write(0, b"abc")
        fs.remove(place / "file")
        assert not fs.exists(place / "file")
        assert file.read(0, 9) == b"abc"

    def test_remove_is_for_files(self, place: Place, fs: FileSystem) -> None:
        fs.make_dirs(place / "dir")
        with pytest.raises(IsADirectoryError):
            fs.remove(place / "dir")
        with pytest.raises(FileNotFoundError):
            fs.remove(place / "none")

    def test_remove_dir_is_for_empty_ones(self, place: Place, fs: FileSystem) -> None:
        fs.make_dirs(place / "dir/below")
        with pytest.raises(OSError) as caught:  # noqa: PT011
            fs.remove_dir(place / "dir")
        assert caught.value.errno == errno.ENOTEMPTY
        fs.remove_dir(place / "dir/below")
        fs.remove_dir(place / "dir")
        assert place.names() == {}
        fs.open(place / "file", create=True)
        with pytest.raises(NotADirectoryError):
            fs.remove_dir(place / "file")

    def test_sync_dir(self, place: Place, fs: FileSystem) -> None:
        fs.sync_dir(place.root)
        with pytest.raises(FileNotFoundError):
            fs.sync_dir(place / "none")
        fs.open(place / "file", create=True)
        with pytest.raises(NotADirectoryError):
            fs.sync_dir(place / "file")


class TestLocks:
    def test_a_second_holder_gets_none(self, place: Place, fs: FileSystem) -> None:
        lock = fs.lock(place / ".lock")
        assert lock is not None
        assert fs.exists(place / ".lock")
        assert fs.lock(place / ".lock") is None
        other = fs.lock(place / ".other")
        assert other is not None
        lock.release()
        again = fs.lock(place / ".lock")
        assert again is not None
        lock.release()
        assert fs.lock(place / ".lock") is None

    def test_in_a_directory_that_is_not_there(self, place: Place, fs: FileSystem) -> None:
        with pytest.raises(FileNotFoundError):
            fs.lock(place / "none/.lock")


class TestHelpers:
    @pytest.mark.parametrize("sync", [True, False])
    def test_write_file_replaces_all_of_it(self, place: Place, fs: FileSystem, sync: bool) -> None:
        write_file(fs, place / "file", b"a long content", sync=sync)
        write_file(fs, place / "file", b"short", sync=sync)
        assert place.names() == {"file": (False, 5)}
        assert read_file(fs, place / "file") == b"short"

    def test_write_file_is_not_led_astray_by_an_old_attempt(self, place: Place, fs: FileSystem) -> None:
        fs.open(place / "file.tmp", create=True).write(0, b"left by a crash, and longer")
        write_file(fs, place / "file", b"new")
        assert read_file(fs, place / "file") == b"new"

    def test_read_file_of_nothing(self, place: Place, fs: FileSystem) -> None:
        with pytest.raises(FileNotFoundError):
            read_file(fs, place / "none")

    def test_remove_tree(self, place: Place, fs: FileSystem) -> None:
        fs.make_dirs(place / "tree/a/b")
        for name in ("tree/1", "tree/a/2", "tree/a/b/3", "stays"):
            fs.open(place / name, create=True)
        remove_tree(fs, place / "tree")
        assert place.names() == {"stays": (False, 0)}
