from __future__ import annotations

import logging
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.base.filesystem import OsFileSystem
from pybroker.log.checkpoints import CorruptFileError
from pybroker.log.leader_epochs import LeaderEpochs

FILESYSTEM = OsFileSystem()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "leader-epoch-checkpoint")


def on_disk(path: str) -> tuple[tuple[int, int], ...]:
    return LeaderEpochs.open(FILESYSTEM, path).entries


def test_a_new_partition_has_none(path: str) -> None:
    epochs = LeaderEpochs.open(FILESYSTEM, path)
    assert epochs.entries == ()
    assert (epochs.latest, epochs.latest_epoch, epochs.earliest) == (None, None, None)
    assert (epochs.previous_epoch(), epochs.previous_epoch(5), epochs.next_epoch(0)) == (None, None, None)
    assert epochs.epoch_for_offset(0) is None
    assert epochs.end_offset_for(0, 10) == (-1, -1)
    assert not Path(path).exists()


def test_an_assigned_epoch_is_on_disk(path: str) -> None:
    epochs = LeaderEpochs(FILESYSTEM, path)
    assert epochs.assign(2, 0)
    assert epochs.assign(5, 10)
    assert epochs.entries == on_disk(path) == ((2, 0), (5, 10))
    assert (epochs.latest, epochs.latest_epoch, epochs.earliest) == ((5, 10), 5, (2, 0))


def test_what_is_known_is_not_written_again(path: str) -> None:
    epochs = LeaderEpochs(FILESYSTEM, path)
    epochs.assign(2, 5)
    Path(path).unlink()
    assert not epochs.assign(2, 5)
    assert not epochs.assign(2, 9)
    assert epochs.entries == ((2, 5),)
    assert not Path(path).exists()


@pytest.mark.parametrize(
    ("epoch", "start_offset", "left"),
    [
        (7, 20, [(1, 0), (3, 10), (7, 20)]),  # nothing was written in epoch 5
        (7, 15, [(1, 0), (3, 10), (7, 15)]),
        (7, 10, [(1, 0), (7, 10)]),
        (7, 0, [(7, 0)]),
        (4, 30, [(1, 0), (3, 10), (4, 30)]),
        (3, 30, [(1, 0), (3, 30)]),
        (5, 19, [(1, 0), (3, 10), (5, 19)]),
        (0, 5, [(0, 5)]),
    ],
)
def test_a_new_epoch_removes_what_contradicts_it(path: str, epoch: int, start_offset: int, left: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs(FILESYSTEM, path, [(1, 0), (3, 10), (5, 20)])
    assert epochs.assign(epoch, start_offset)
    assert epochs.entries == on_disk(path) == tuple(left)


def test_only_a_real_contradiction_is_warned_of(path: str, caplog: pytest.LogCaptureFixture) -> None:
    epochs = LeaderEpochs(FILESYSTEM, path, [(1, 0), (3, 10)])
    with caplog.at_level(logging.WARNING):
        epochs.assign(4, 10)
        assert not caplog.records
        epochs.assign(5, 8)
    (record,) = caplog.records
    assert record.getMessage() == f"{path}: epoch 5 at offset 8 removed [(4, 10)]"


@pytest.mark.parametrize(("epoch", "start_offset"), [(-1, 0), (0, -1)])
def test_negative_numbers_are_refused(path: str, epoch: int, start_offset: int) -> None:
    with pytest.raises(ValueError, match=f"epoch {epoch} at offset {start_offset}; expected both to be 0 or more"):
        LeaderEpochs(FILESYSTEM, path).assign(epoch, start_offset)


@pytest.mark.parametrize(
    ("requested", "answer"),
    [
        (-1, (-1, -1)),
        (1, (1, 5)),  # below all: its records are gone
        (2, (2, 10)),
        (3, (2, 10)),
        (4, (4, 20)),
        (5, (4, 20)),
        (6, (6, 99)),  # the latest one has not ended
        (7, (-1, -1)),
    ],
)
def test_end_offset_for(path: str, requested: int, answer: tuple[int, int]) -> None:
    epochs = LeaderEpochs(FILESYSTEM, path, [(2, 5), (4, 10), (6, 20)])
    assert epochs.end_offset_for(requested, 99) == answer


@pytest.mark.parametrize(("offset", "epoch"), [(4, None), (5, 2), (9, 2), (10, 4), (20, 6), (1000, 6)])
def test_epoch_for_offset(path: str, offset: int, epoch: int | None) -> None:
    assert LeaderEpochs(FILESYSTEM, path, [(2, 5), (4, 10), (6, 20)]).epoch_for_offset(offset) == epoch


def test_neighbours(path: str) -> None:
    epochs = LeaderEpochs(FILESYSTEM, path, [(2, 5), (4, 10), (6, 20)])
    assert epochs.previous_epoch() == 4
    assert [epochs.previous_epoch(epoch) for epoch in (2, 3, 6, 9)] == [None, 2, 4, 6]
    assert [epochs.next_epoch(epoch) for epoch in (0, 2, 5, 6)] == [2, 4, 6, None]
    assert [epochs.entry(epoch) for epoch in (1, 4, 7)] == [None, (4, 10), None]


@pytest.mark.parametrize(
    ("end_offset", "left"),
    [(21, 3), (20, 2), (11, 2), (10, 1), (5, 0), (0, 0), (-1, 3)],
)
def test_truncate_from_end(path: str, end_offset: int, left: int) -> None:
    entries = [(2, 5), (4, 10), (6, 20)]
    epochs = LeaderEpochs(FILESYSTEM, path, entries)
    assert epochs.truncate_from_end(end_offset) == (left < 3)
    assert epochs.entries == tuple(entries[:left])
    assert epochs.latest_epoch == (entries[left - 1][0] if left else None)
    assert Path(path).exists() == (left < 3)


@pytest.mark.parametrize(
    ("start_offset", "left"),
    [
        (4, [(2, 5), (4, 10), (6, 20)]),
        (5, [(2, 5), (4, 10), (6, 20)]),
        (9, [(2, 9), (4, 10), (6, 20)]),
        (10, [(4, 10), (6, 20)]),
        (15, [(4, 15), (6, 20)]),
        (30, [(6, 30)]),
    ],
)
def test_truncate_from_start_keeps_the_epoch_that_covers_it(path: str, start_offset: int, left: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs(FILESYSTEM, path, [(2, 5), (4, 10), (6, 20)])
    assert epochs.truncate_from_start(start_offset) == (start_offset > 5)
    assert epochs.entries == tuple(left)
    if start_offset > 5:
        assert on_disk(path) == tuple(left)


def test_a_truncation_may_be_written_later(path: str) -> None:
    epochs = LeaderEpochs(FILESYSTEM, path)
    epochs.assign(1, 0)
    epochs.assign(2, 10)
    assert epochs.truncate_from_end(10, flush=False)
    assert epochs.entries == ((1, 0),)
    assert on_disk(path) == ((1, 0), (2, 10))
    epochs.flush()
    assert on_disk(path) == ((1, 0),)


def test_clear(path: str) -> None:
    epochs = LeaderEpochs(FILESYSTEM, path)
    epochs.assign(1, 0)
    assert epochs.clear(flush=False)
    assert on_disk(path) == ((1, 0),)
    assert epochs.clear(), "the file has it still"
    assert on_disk(path) == ()
    assert not epochs.clear()
    epochs.assign(2, 0)
    assert epochs.clear()
    assert on_disk(path) == ()


def test_several_from_remote_storage(path: str) -> None:
    epochs = LeaderEpochs(FILESYSTEM, path)
    epochs.assign_all([(1, 0), (2, 10)])
    assert on_disk(path) == ((1, 0), (2, 10))
    Path(path).unlink()
    epochs.assign_all([(2, 10)])
    assert not Path(path).exists()


def test_a_late_flush_finds_the_directory_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    epochs = LeaderEpochs(FILESYSTEM, str(tmp_path / "gone" / "checkpoint"), [(1, 0)])
    with pytest.raises(FileNotFoundError):
        epochs.flush()
    epochs.flush(missing_dir_ok=True)
    assert "its directory is gone" in caplog.text
    epochs.moved(str(tmp_path / "checkpoint"))
    epochs.flush()
    assert on_disk(str(tmp_path / "checkpoint")) == ((1, 0),)


def test_a_checkpoint_that_contradicts_itself_is_read_as_far_as_it_can_be_right(path: str) -> None:
    Path(path).write_text("0\n3\n1 0\n3 20\n2 10\n")
    assert on_disk(path) == ((1, 0), (2, 10))


def test_a_damaged_checkpoint(path: str) -> None:
    Path(path).write_text("0\n1\n")
    with pytest.raises(CorruptFileError, match="line 3: the file ends behind 0 entries"):
        LeaderEpochs.open(FILESYSTEM, path)


# Against a log that is a list: the epoch of every offset.

Steps = st.lists(
    st.tuples(st.just("lead"), st.integers(1, 3))
    | st.tuples(st.just("append"), st.integers(1, 4))
    | st.tuples(st.just("truncate"), st.integers(0, 30))
    | st.tuples(st.just("delete"), st.integers(0, 30)),
    max_size=40,
)


@given(Steps)
def test_as_a_list_that_knows_the_epoch_of_every_offset(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    path = str(tmp_path_factory.getbasetemp() / "epochs")
    Path(path).unlink(missing_ok=True)
    epochs = LeaderEpochs(FILESYSTEM, path)
    log: list[int] = []
    start = epoch = 0
    for step, number in steps:
        if step == "lead":
            epoch += number
        elif step == "append":
            for _ in range(number):
                epochs.assign(epoch, len(log))
                log.append(epoch)
        elif step == "truncate":
            end = max(start, len(log) - number)
            del log[end:]
            epochs.truncate_from_end(end, flush=number % 2 == 0)
        else:
            start = min(len(log), start + number)
            epochs.truncate_from_start(start, flush=number % 2 == 0)
        entries = epochs.entries
        assert all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairwise(entries))
        for offset in range(start, len(log)):
            assert epochs.epoch_for_offset(offset) == log[offset]
        for asked in {*log[start:]}:
            end = max(offset for offset in range(start, len(log)) if log[offset] == asked) + 1
            assert epochs.end_offset_for(asked, len(log)) == (asked, end)
    epochs.flush()
    assert on_disk(path) == epochs.entries
