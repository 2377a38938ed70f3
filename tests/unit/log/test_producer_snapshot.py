from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.log.producers import FILESYSTEM

from pybroker.log.checkpoints import CorruptFileError
from pybroker.log.producer_entry import BatchMetadata, ProducerEntry
from pybroker.log.producer_snapshot import SnapshotFiles, read_snapshot, snapshot_offsets, snapshot_path, write_snapshot
from pybroker.protocol.records.crc import crc32c

ENTRIES = [
    ProducerEntry(1, 2, 3, 400, 5, BatchMetadata(6, 70, 8, 400)),
    ProducerEntry(9, 0),
]


def with_crc(behind: bytes) -> bytes:
    return struct.pack(">hI", 1, crc32c(behind)) + behind


def files_at(tmp_path: Path, *offsets: int) -> SnapshotFiles:
    for offset in offsets:
        write_snapshot(FILESYSTEM, snapshot_path(str(tmp_path), offset), ENTRIES)
    return SnapshotFiles(FILESYSTEM, str(tmp_path), snapshot_offsets(FILESYSTEM, str(tmp_path)))


def test_version_crc_and_46_bytes_a_producer(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    write_snapshot(FILESYSTEM, path, ENTRIES)
    rows = struct.pack(">qhiqiqiq", 1, 2, 6, 70, 8, 400, 3, 5) + struct.pack(">qhiqiqiq", 9, -1 + 1, -1, -1, 0, -1, -1, -1)
    assert Path(path).read_bytes() == with_crc(struct.pack(">i", 2) + rows)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    write_snapshot(FILESYSTEM, path, ENTRIES, sync=False)
    assert list(map(repr, read_snapshot(FILESYSTEM, path))) == list(map(repr, ENTRIES))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "it has 0 bytes; expected at least 6"),
        (b"\0\1abc", "it has 5 bytes; expected at least 6"),
        (struct.pack(">hIi", 2, 0, 0), "its version is 2; expected 1"),
        (struct.pack(">hIi", 1, 7, 0), "its CRC is 0x00000007; expected 0x48674bc7"),
        (with_crc(struct.pack(">i", 1)), "ProducerSnapshot v1"),
        (with_crc(b""), "ProducerSnapshot v1"),
    ],
)
def test_a_damaged_snapshot(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    with pytest.raises(CorruptFileError, match=f"^{path}: {problem}"):
        read_snapshot(FILESYSTEM, str(path))


@given(st.integers(0, 101), st.integers(1, 255))
def test_no_flipped_byte_goes_unnoticed(tmp_path_factory: pytest.TempPathFactory, at: int, flip: int) -> None:
    path = tmp_path_factory.getbasetemp() / "flipped.snapshot"
    write_snapshot(FILESYSTEM, str(path), ENTRIES, sync=False)
    content = bytearray(path.read_bytes())
    content[at] ^= flip
    path.write_bytes(content)
    with pytest.raises(CorruptFileError):
        read_snapshot(FILESYSTEM, str(path))


def test_only_files_named_as_snapshots_are_snapshots(tmp_path: Path) -> None:
    for name in ("00000000000000000007.snapshot", "00000000000000000003.snapshot", "3.snapshot"):
        (tmp_path / name).touch()
    for name in ("00000000000000000005.snapshot.deleted", "00000000000000000005.snapshot.tmp", "00000000000000000005.log"):
        (tmp_path / name).touch()
    (tmp_path / "00000000000000000009.snapshot").mkdir()
    assert snapshot_offsets(FILESYSTEM, str(tmp_path)) == [3, 7]


def test_a_damaged_one_is_deleted_and_the_next_older_one_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = files_at(tmp_path, 5, 10, 15)
    (tmp_path / "00000000000000000015.snapshot").write_bytes(b"torn")
    (tmp_path / "00000000000000000010.snapshot").unlink()
    loaded = files.load_latest()
    assert loaded is not None
    assert loaded[0] == 5
    assert list(map(repr, loaded[1])) == list(map(repr, ENTRIES))
    assert files.offsets == snapshot_offsets(FILESYSTEM, str(tmp_path)) == [5]
    (record,) = caplog.records
    assert "00000000000000000015.snapshot: it has 4 bytes; expected at least 6" in record.getMessage()


def test_none_is_left_to_read(tmp_path: Path) -> None:
    files = files_at(tmp_path, 5)
    (tmp_path / "00000000000000000005.snapshot").write_bytes(b"")
    assert files.load_latest() is None
    assert (files.latest, files.oldest) == (None, None)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("segments", "kept"),
    [
        ([0, 10, 20], [10, 20, 25]),  # 25: a clean shutdown
        ([0, 10, 30], [10]),
        ([0, 20], [20, 25]),
        ([25], [25]),
        ([], [25]),
    ],
)
def test_strays(tmp_path: Path, segments: list[int], kept: list[int]) -> None:
    files = files_at(tmp_path, 5, 10, 20, 25)
    files.delete_strays(segments)
    assert files.offsets == snapshot_offsets(FILESYSTEM, str(tmp_path)) == kept


def test_deletions(tmp_path: Path) -> None:
    files = files_at(tmp_path, 5, 10, 20, 25, 30)
    assert (files.oldest, files.latest) == (5, 30)
    files.delete_outside(10, 25)
    assert files.offsets == snapshot_offsets(FILESYSTEM, str(tmp_path)) == [20, 25]
    files.delete_all()
    assert files.offsets == snapshot_offsets(FILESYSTEM, str(tmp_path)) == []


def test_marked_to_be_deleted(tmp_path: Path) -> None:
    files = files_at(tmp_path, 5, 10)
    assert files.mark_deleted(7) is None
    marked = files.mark_deleted(5)
    assert marked == str(tmp_path / "00000000000000000005.snapshot.deleted")
    assert Path(marked).exists()
    (tmp_path / "00000000000000000010.snapshot").unlink()
    assert files.mark_deleted(10) is None
    assert files.offsets == []


def test_written_again_at_the_same_offset(tmp_path: Path) -> None:
    files = files_at(tmp_path, 5, 20)
    files.write(10, ENTRIES)
    files.write(10, [])
    assert files.offsets == [5, 10, 20]
    assert read_snapshot(FILESYSTEM, files.path(10)) == []


def test_the_directory_moves(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    files = files_at(tmp_path / "a", 5)
    (tmp_path / "a").rename(tmp_path / "b")
    files.directory = str(tmp_path / "b")
    assert files.load_latest() is not None
