from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.base.filesystem import OsFileSystem
from pybroker.log.index import CorruptIndexError
from pybroker.log.transaction_index import AbortedTransaction, TransactionIndex

FILESYSTEM = OsFileSystem()
ROWS = [
    AbortedTransaction(1, 0, 10, 5),
    AbortedTransaction(2, 5, 13, 11),
    AbortedTransaction(1, 12, 20, 21),
    AbortedTransaction(3, 30, 35, 36),
]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "00000000000000000000.txnindex")


def index_of(path: str, rows: list[AbortedTransaction], base_offset: int = 0) -> TransactionIndex:
    index = TransactionIndex(FILESYSTEM, path, base_offset)
    for row in rows:
        index.append(row)
    return index


def test_the_file_is_made_with_the_first_row(path: str) -> None:
    index = TransactionIndex(FILESYSTEM, path, 0)
    assert index.is_empty
    assert index.collect(0, 100) == ([], False)
    index.truncate_to(0)
    index.flush()
    index.sanity_check()
    assert not Path(path).exists()
    index.append(ROWS[0])
    assert Path(path).stat().st_size == 34
    assert not index.is_empty


def test_a_row_is_34_bytes(path: str) -> None:
    index_of(path, [AbortedTransaction(1, 2, 3, 4)])
    assert Path(path).read_bytes().hex() == "0000" + "".join(f"{number:016x}" for number in (1, 2, 3, 4))


def test_what_was_written_is_read_after_a_reopening(path: str) -> None:
    index_of(path, ROWS)
    index = TransactionIndex(FILESYSTEM, path, 0)
    assert index.rows() == ROWS
    index.append(AbortedTransaction(9, 40, 41, 42))
    assert TransactionIndex(FILESYSTEM, path, 0).rows() == [*ROWS, (9, 40, 41, 42)]


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("last_offset", [34, 35])
def test_last_offsets_ascend(path: str, reopened: bool, last_offset: int) -> None:
    index = index_of(path, ROWS)
    if reopened:
        index = TransactionIndex(FILESYSTEM, path, 0)
    with pytest.raises(ValueError, match=f"ends at offset {last_offset} cannot follow one that ends at 35"):
        index.append(AbortedTransaction(1, 30, last_offset, 0))
    assert index.rows() == ROWS


@pytest.mark.parametrize(
    ("fetch_offset", "upper_bound", "found", "is_complete"),
    [
        (0, 100, ROWS, False),
        (0, 36, ROWS, True),
        (0, 31, ROWS, True),
        (0, 30, ROWS[:3], True),
        (0, 5, ROWS[:1], True),
        (0, 6, ROWS[:2], True),
        (14, 22, ROWS[2:3], True),
        (11, 12, ROWS[1:2], True),
        (36, 100, [], False),
    ],
)
def test_collect(path: str, fetch_offset: int, upper_bound: int, found: list[AbortedTransaction], is_complete: bool) -> None:
    assert index_of(path, ROWS).collect(fetch_offset, upper_bound) == (found, is_complete)


@pytest.mark.parametrize(("offset", "left"), [(36, 4), (35, 3), (14, 2), (13, 1), (0, 0)])
def test_truncate_to(path: str, offset: int, left: int) -> None:
    index = index_of(path, ROWS)
    index.truncate_to(offset)
    assert index.rows() == TransactionIndex(FILESYSTEM, path, 0).rows() == ROWS[:left]
    for row in ROWS[left:]:
        index.append(row)
    assert index.rows() == ROWS


@pytest.mark.parametrize("is_left_over", [False, True])
def test_start_over_in_another_file(path: str, is_left_over: bool) -> None:
    index = index_of(path, ROWS)
    if is_left_over:
        Path(path + ".cleaned").write_bytes(bytes(34))
    index.start_over(path + ".cleaned")
    index.flush()
    assert index.is_empty
    assert not Path(path + ".cleaned").exists()
    index.append(ROWS[0])
    index.flush()
    assert TransactionIndex(FILESYSTEM, path + ".cleaned", 0).rows() == ROWS[:1]
    assert TransactionIndex(FILESYSTEM, path, 0).rows() == ROWS


def test_a_torn_row_does_not_count_and_is_written_over(path: str) -> None:
    index_of(path, ROWS[:2])
    with Path(path).open("ab") as file:
        file.write(b"\0" * 20)
    index = TransactionIndex(FILESYSTEM, path, 0)
    assert index.rows() == ROWS[:2]
    with pytest.raises(CorruptIndexError, match="its 88 bytes are no multiple of 34"):
        index.sanity_check()
    index.append(ROWS[2])
    index.sanity_check()
    assert TransactionIndex(FILESYSTEM, path, 0).rows() == ROWS[:3]


@pytest.mark.parametrize(
    ("data", "base_offset", "problem"),
    [
        (bytes(34), 5, "its last offset 0 is below its base offset 5"),
        (bytes(68), 0, "its last offset 0 comes behind 0"),
        (b"\0\1" + bytes(32), 0, "a row has version 1; expected 0"),
    ],
)
def test_sanity_check(path: str, data: bytes, base_offset: int, problem: str) -> None:
    Path(path).write_bytes(data)
    with pytest.raises(CorruptIndexError, match=problem):
        TransactionIndex(FILESYSTEM, path, base_offset).sanity_check()


def test_released_and_renamed(path: str) -> None:
    index = index_of(path, ROWS[:1])
    index.flush()
    index.release()
    Path(path).rename(path + ".deleted")
    index.moved(path + ".deleted")
    index.append(ROWS[1])
    index.flush()
    assert TransactionIndex(FILESYSTEM, path + ".deleted", 0).rows() == ROWS[:2]


Gaps = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=20)


@given(Gaps, st.integers(0, 200), st.integers(0, 200), st.integers(0, 200))
def test_as_a_list(
    tmp_path_factory: pytest.TempPathFactory, gaps: list[tuple[int, int, int]], start: int, end: int, cut: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "transactions"
    path.unlink(missing_ok=True)
    rows = []
    last_offset = -1
    for gap, length, behind in gaps:
        last_offset += gap
        rows.append(AbortedTransaction(gap, max(0, last_offset - length), last_offset, max(0, last_offset + 1 - behind)))
    index = index_of(str(path), rows)
    stop = next((number + 1 for number, row in enumerate(rows) if row.last_stable_offset >= end), None)
    expected = [row for row in rows[:stop] if row.last_offset >= start and row.first_offset < end]
    assert index.collect(start, end) == (expected, stop is not None)
    index.truncate_to(cut)
    assert index.rows() == [row for row in rows if row.last_offset < cut]
