from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest
from support.batches import batch, marker, sized_batch
from unit.log.logs import NOW_MS, opened, read_all

from pybroker.base.ids import Uuid
from pybroker.log.log import Log
from pybroker.log.producer_entry import AppendOrigin
from pybroker.log.producer_snapshot import write_snapshot
from pybroker.log.transaction_index import AbortedTransaction
from pybroker.protocol.records.control import ControlType
from pybroker.testing.disk import SimDisk

SMALL = {"segment.bytes": 1000, "index.interval.bytes": 100}


def filled(directory: object, count: int = 30) -> Log:
    log = opened(directory, SMALL)
    for number in range(count):
        sent = sized_batch(100, timestamp=NOW_MS + number, producer_id=5, producer_epoch=0, sequence=number)
        log.append_as_leader(sent, number // 12, NOW_MS)
    return log


def snapshot(log: Log) -> tuple[object, ...]:
    producers = [(entry.producer_id, entry.last_sequence) for entry in log.producers.entries()]
    times = [log.offset_for_timestamp(NOW_MS + number) for number in range(0, 31, 3)]
    return log.log_start_offset, log.log_end_offset, log.leader_epochs.entries, producers, times, read_all(log)


def indexes(log: Log) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(log.directory).iterdir() if path.suffix in (".index", ".timeindex")}


def test_a_cleanly_closed_log_opens_as_it_was(tmp_path: Path) -> None:
    log = filled(tmp_path)
    before = snapshot(log)
    log.close()
    again = opened(tmp_path, SMALL, is_clean=True, recovery_point=30)
    assert snapshot(again) == before
    assert again.append_as_leader(batch(), 2, NOW_MS).first_offset == 30


def test_a_log_that_was_not_closed_is_recovered_to_the_same(tmp_path: Path) -> None:
    log = filled(tmp_path)
    before = snapshot(log)
    log.close()
    clean = indexes(log)
    again = opened(tmp_path, SMALL)
    assert snapshot(again) == before
    again.close()
    assert indexes(again) == clean


def test_a_torn_tail_is_cut_at_the_last_whole_batch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = filled(tmp_path)
    log.close_files()
    path = Path(log.active.path(".log"))
    path.write_bytes(path.read_bytes()[:-150] + b"?" * 20)
    again = opened(tmp_path, SMALL, recovery_point=20)
    assert again.log_end_offset == 28
    assert [offset for offset, _ in read_all(again)] == list(range(28))
    assert "segment 20 ends at offset 28, where 70 bytes that are no valid batch were cut off" in caplog.text


def test_what_comes_behind_a_broken_segment_is_dropped(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.close_files()
    path = Path(log.segments[1].path(".log"))
    path.write_bytes(path.read_bytes()[:550] + b"!" + path.read_bytes()[551:])
    again = opened(tmp_path, SMALL, recovery_point=10)
    assert again.log_end_offset == 15
    assert [segment.base_offset for segment in again.segments] == [0, 10]
    assert again.leader_epochs.entries == ((0, 0), (1, 12))
    assert again.recovery_point == 10


def test_a_segment_that_lost_whole_batches_takes_those_behind_it_along(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.close_files()
    path = Path(log.segments[1].path(".log"))
    path.write_bytes(path.read_bytes()[:-200])
    again = opened(tmp_path, SMALL, recovery_point=10)
    assert again.log_end_offset == 18
    assert [(entry.producer_id, entry.last_sequence) for entry in again.producers.entries()] == [(5, 17)]


@pytest.mark.parametrize(("cleaned_to", "end"), [(0, 18), (18, 18), (19, 30), (20, 30)])
def test_offsets_that_compaction_once_took_are_not_lost_ones(tmp_path: Path, cleaned_to: int, end: int) -> None:
    """Its policy may be another one now. What lies behind the cleaned part was there without a gap."""
    log = filled(tmp_path)
    log.close_files()
    path = Path(log.segments[1].path(".log"))
    path.write_bytes(path.read_bytes()[:-200])
    assert opened(tmp_path, SMALL, cleaned_to=cleaned_to).log_end_offset == end


def test_only_segments_from_the_recovery_point_on_are_scanned(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.close_files()
    path = Path(log.segments[0].path(".log"))
    path.write_bytes(path.read_bytes()[:550] + b"!" + path.read_bytes()[551:])
    assert opened(tmp_path, SMALL, recovery_point=10).log_end_offset == 30


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        (".index", "missing"),
        (".index", "short"),
        (".timeindex", "missing"),
        (".timeindex", "short"),
        (".timeindex", "empty"),
    ],
)
def test_a_missing_or_damaged_index_is_rebuilt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, suffix: str, damage: str
) -> None:
    log = filled(tmp_path)
    before = snapshot(log)
    log.close()
    whole = indexes(log)
    path = Path(log.segments[0].path(suffix))
    if damage == "missing":
        path.unlink()
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        path.write_bytes(path.read_bytes()[:-3])
    again = opened(tmp_path, SMALL, is_clean=True, recovery_point=30)
    assert "rebuilding the indexes of segment 0" in caplog.text
    assert snapshot(again) == before
    again.close()
    assert indexes(again) == whole


def test_a_time_index_is_empty_where_no_record_has_a_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = opened(tmp_path)
    log.append_as_leader(batch(timestamp=-1), 0, NOW_MS)
    log.close()
    assert opened(tmp_path, is_clean=True, recovery_point=1).log_end_offset == 1
    assert "rebuilding" not in caplog.text


@pytest.mark.parametrize("at", [1, 18])  # the version; the last offset
def test_a_transaction_index_of_the_right_size_with_a_wrong_row_is_rebuilt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, at: int
) -> None:
    log = opened(tmp_path)
    log.producers.verifies_transactions = False
    log.append_as_leader(batch(producer_id=5, producer_epoch=0, sequence=0, transactional=True), 0, NOW_MS)
    abort = marker(ControlType.ABORT, 5)
    log.append_as_leader(abort, 0, NOW_MS, origin=AppendOrigin.COORDINATOR, transaction_version=0)
    log.close()
    path = Path(log.active.path(".txnindex"))
    damaged = bytearray(path.read_bytes())
    damaged[at] ^= 0x80
    path.write_bytes(damaged)
    again = opened(tmp_path, is_clean=True, recovery_point=2)
    assert "rebuilding the indexes of segment 0" in caplog.text
    assert again.aborted_transactions(0, 2) == [AbortedTransaction(5, 0, 1, 2)]


def test_an_index_that_apache_kafka_left_preallocated_is_read_up_to_its_entries(tmp_path: Path) -> None:
    log = filled(tmp_path)
    before = snapshot(log)
    log.close()
    for path in Path(log.directory).iterdir():
        if path.suffix in (".index", ".timeindex"):
            entry = 8 if path.suffix == ".index" else 12
            path.write_bytes(path.read_bytes().ljust(10 * 1024 * 1024 // entry * entry, b"\0"))
    again = opened(tmp_path, SMALL, is_clean=True, recovery_point=30)
    assert snapshot(again) == before
    assert again.segments[0].index.entry_count == log.segments[0].index.entry_count


def test_a_record_of_the_year_1970_is_found_again(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append_as_leader(batch(timestamp=0), 0, NOW_MS)
    log.close()
    found = opened(tmp_path, is_clean=True).offset_for_timestamp(0)
    assert found is not None
    assert found[:2] == (0, 0)


def test_leftovers_of_deletion_and_cleaning_go_and_foreign_files_stay(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.close()
    directory = Path(log.directory)
    names = ("00000000000000000000.log.deleted", "00000000000000000010.log.cleaned", "00000000000000000500.index", "notes.txt")
    for name in names:
        (directory / name).write_bytes(b"x")
    again = opened(tmp_path, SMALL, is_clean=True, recovery_point=30)
    assert [name for name in names if (directory / name).exists()] == ["notes.txt"]
    assert again.log_end_offset == 30


def rename(log: Log, number: int, state: str) -> None:
    for path in Path(log.directory).glob(f"{log.segments[number].base_offset:020d}.*"):
        if path.suffix != ".snapshot":
            path.rename(f"{path}{state}")


def test_a_complete_swap_takes_the_place_of_the_originals(tmp_path: Path) -> None:
    log = filled(tmp_path)
    before = read_all(log)
    log.close()
    rename(log, 0, ".swap")
    (Path(log.directory) / "00000000000000000005.log").write_bytes(batch(base_offset=5))
    again = opened(tmp_path, SMALL, is_clean=True, recovery_point=30)
    assert [segment.base_offset for segment in again.segments] == [0, 10, 20]
    assert read_all(again) == before


def test_a_swap_behind_one_that_was_still_being_renamed_is_dropped(tmp_path: Path) -> None:
    log = filled(tmp_path)
    before = read_all(log)
    log.close()
    directory = Path(log.directory)
    (directory / "00000000000000000000.log.cleaned").write_bytes(batch())
    (directory / "00000000000000000010.log.swap").write_bytes(batch(base_offset=10))
    assert read_all(opened(tmp_path, SMALL, is_clean=True, recovery_point=30)) == before
    assert not list(directory.glob("*.cleaned"))
    assert not list(directory.glob("*.swap"))


def test_records_before_the_checkpointed_start_do_not_come_back(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.close()
    again = opened(tmp_path, SMALL, is_clean=True, recovery_point=30, log_start_offset=13)
    assert (again.log_start_offset, again.leader_epochs.entries) == (13, ((1, 13), (2, 24)))
    again.close()
    beyond = opened(tmp_path, SMALL, log_start_offset=99)
    assert (beyond.log_start_offset, beyond.log_end_offset, read_all(beyond)) == (99, 99, [])


def test_damaged_leader_epochs_and_snapshots_are_done_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = filled(tmp_path)
    log.close()
    directory = Path(log.directory)
    (directory / "leader-epoch-checkpoint").write_text("0\nmany\n")
    for path in directory.glob("*.snapshot"):
        path.write_bytes(b"\0\1broken")
    with caplog.at_level(logging.WARNING):
        again = opened(tmp_path, SMALL, is_clean=True, recovery_point=30)
    assert "starting without leader epochs" in caplog.text
    assert "damaged producer snapshot" in caplog.text
    assert [(entry.producer_id, entry.last_sequence) for entry in again.producers.entries()] == [(5, 29)]


def test_the_topic_id_stays_with_the_directory(tmp_path: Path) -> None:
    topic_id = Uuid(bytes(range(16)))
    opened(tmp_path, topic_id=topic_id).close()
    assert opened(tmp_path).topic_id == topic_id
    assert opened(tmp_path, topic_id=Uuid(b"x" * 16)).topic_id == topic_id


def test_a_new_log_starts_at_the_offset_it_is_given(tmp_path: Path) -> None:
    log = opened(tmp_path, log_start_offset=7)
    assert log.append_as_leader(batch(), 0, NOW_MS).first_offset == 7
    assert {path.name for path in Path(log.directory).iterdir()} >= {
        "00000000000000000007.log", "00000000000000000007.index", "00000000000000000007.timeindex", "leader-epoch-checkpoint",
    }  # fmt: skip


def test_a_preallocated_segment_gives_its_rest_back_when_closed(tmp_path: Path) -> None:
    log = opened(tmp_path, {"preallocate": True, "segment.bytes": 1 << 20})
    log.append_as_leader(sized_batch(100), 0, NOW_MS)
    path = Path(log.active.path(".log"))
    assert path.stat().st_size == 1 << 20
    log.close()
    assert path.stat().st_size == 100
    again = opened(tmp_path, {"preallocate": True}, is_clean=True)
    assert again.log_end_offset == 1


def test_an_empty_log_keeps_its_indexes(tmp_path: Path) -> None:
    log = opened(tmp_path)
    paths = [Path(log.active.path(suffix)) for suffix in (".log", ".index", ".timeindex")]
    before = [path.stat().st_ino for path in paths]
    log.close_files()
    assert opened(tmp_path).log_end_offset == 0
    assert [path.stat().st_ino for path in paths] == before


def test_an_empty_segment_whose_indexes_a_crash_cost_gets_new_ones(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.close_files()
    for suffix in (".index", ".timeindex"):
        Path(log.active.path(suffix)).unlink()
    again = opened(tmp_path)
    again.append_as_leader(batch(), 0, NOW_MS)
    assert [offset for offset, _ in read_all(again)] == [0]


def test_an_empty_segment_with_entries_in_its_indexes_gets_new_ones(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.close_files()
    path = Path(log.active.path(".index"))
    path.write_bytes(bytes.fromhex("0000000900000123"))
    again = opened(tmp_path)
    assert path.read_bytes() == b""
    again.append_as_leader(batch(), 0, NOW_MS)
    assert [offset for offset, _ in read_all(again)] == [0]


def test_what_the_opening_removed_does_not_come_back_with_a_crash() -> None:
    for seed in range(20):
        disk = SimDisk(random.Random(seed))
        disk.make_dirs("data")
        disk.sync_dir("")
        log = opened("data", filesystem=disk)
        log.append_as_leader(batch(producer_id=5, producer_epoch=0, sequence=0), 0, NOW_MS)
        log.flush()
        stray = f"{log.directory}/00000000000000000009.snapshot"
        write_snapshot(disk, stray, log.producers.entries())
        disk.kill()
        opened("data", filesystem=disk)
        disk.crash()
        assert not disk.exists(stray), f"seed {seed}"
