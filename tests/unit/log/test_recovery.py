"""Recovery in two steps: segments scanned in any order and at once give the very files that one after the other gives."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from support.batches import batch, marker
from unit.log.logs import NOW_MS, PARTITION, all_first, opened, read_all

from pybroker.log import recovery
from pybroker.log.log import Log
from pybroker.log.manager.parallel import Crew
from pybroker.log.open_segments import OpenSegments
from pybroker.log.recovery import OrderedMap, one_by_one, scan_segment
from pybroker.protocol.records.control import ControlType

CONFIG = {"segment.bytes": 2_000, "index.interval.bytes": 200}
INDEXES = (".index", ".timeindex", ".txnindex")


def filled(directory: Path, seed: int = 1, count: int = 200) -> Log:
    """Plain, idempotent and transactional batches; transactions reach over segments, and some stay open."""
    rng = random.Random(seed)
    log = opened(directory, CONFIG)
    sequences = dict.fromkeys(range(1, 6), 0)
    is_open = dict.fromkeys(sequences, False)
    for _ in range(count):
        producer_id = rng.choice(list(sequences))
        end = log.log_end_offset
        timestamp = NOW_MS + rng.randrange(1_000)
        if is_open[producer_id] and rng.random() < 0.3:
            kind = rng.choice((ControlType.ABORT, ControlType.COMMIT))
            sent = marker(kind, producer_id, timestamp=timestamp, base_offset=end)
            is_open[producer_id] = False
        elif rng.random() < 0.3:
            sent = batch([rng.randbytes(100)], base_offset=end, timestamp=timestamp)
        else:
            # The odd ones write in transactions.
            is_open[producer_id] = bool(producer_id % 2)
            sent = batch(
                [rng.randbytes(rng.randrange(200))],
                base_offset=end,
                timestamp=timestamp,
                producer_id=producer_id,
                producer_epoch=0,
                sequence=sequences[producer_id],
                transactional=is_open[producer_id],
            )
            sequences[producer_id] += 1
        log.append_as_follower(sent, NOW_MS)
    return log


def copied(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    return target


def files(directory: Path, *suffixes: str) -> dict[str, bytes]:
    found = (directory / str(PARTITION)).iterdir()
    return {path.name: path.read_bytes() for path in found if not suffixes or path.suffix in suffixes}


def recovered_by_crew(directory: Path, threads: int = 3, **how: int) -> Log:
    crew = Crew("recovery", threads)
    logs: list[Log] = []
    crew.run(lambda path: logs.append(opened(path, CONFIG, map_segments=crew.map, **how)), [directory])
    return logs[0]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("from_start", [True, False], ids=["from the start", "from a recovery point"])
def test_threads_leave_the_files_that_one_after_the_other_leaves(tmp_path: Path, seed: int, from_start: bool) -> None:
    source = tmp_path / "source"
    log = filled(source, seed)
    recovery_point = 0 if from_start else log.segments[len(log.segments) // 2].base_offset
    assert len(log.segments) > 10
    assert sum(bool(segment.transaction_index.rows()) for segment in log.segments) > 3
    log.close()
    written = files(source, *INDEXES)
    for path in (source / str(PARTITION)).iterdir():
        if path.suffix in INDEXES and (from_start or int(path.stem) >= recovery_point):
            path.write_bytes(b"what a crash leaves")
    paths = [copied(source, tmp_path / name) for name in ("one by one", "in any order", "by threads")]
    opened(paths[0], CONFIG, recovery_point=recovery_point).close()
    opened(paths[1], CONFIG, recovery_point=recovery_point, map_segments=all_first(random.Random(seed))).close()
    recovered_by_crew(paths[2], recovery_point=recovery_point).close()
    assert files(paths[0], *INDEXES) == written
    assert files(paths[1]) == files(paths[0])
    assert files(paths[2]) == files(paths[0])


def test_a_segment_of_very_many_transactions_is_read_twice_for_the_same_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path)
    log.close()
    written = files(tmp_path, ".txnindex")
    monkeypatch.setattr(recovery, "MAX_PLACES", 3)
    assert any(len(scan_segment(segment).transactions) == 3 for segment in log.segments)
    opened(tmp_path, CONFIG).close()
    assert files(tmp_path, ".txnindex") == written


@pytest.mark.parametrize("kind", ["torn", "short"])
def test_what_is_behind_a_broken_segment_goes_though_it_was_scanned_already(tmp_path: Path, kind: str) -> None:
    log = filled(tmp_path)
    log.close_files()
    broken = log.segments[4]
    path = Path(broken.path(".log"))
    data = bytearray(path.read_bytes())
    if kind == "torn":
        data[len(data) // 2] ^= 1
    else:
        del data[broken.locate(log.segments[5].base_offset - 1, len(data)).position :]  # type: ignore[union-attr]
    path.write_bytes(data)
    paths = [copied(tmp_path, tmp_path.with_name(f"{tmp_path.name}-{number}")) for number in range(3)]
    expected = opened(paths[0], CONFIG)
    for again in (opened(paths[1], CONFIG, map_segments=all_first(random.Random(1))), recovered_by_crew(paths[2])):
        assert [segment.base_offset for segment in again.segments] == [segment.base_offset for segment in log.segments[:5]]
        assert again.log_end_offset == expected.log_end_offset < log.segments[5].base_offset
        assert read_all(again) == read_all(expected)
        again.close()
    expected.close()
    assert files(paths[0]) == files(paths[1]) == files(paths[2])
    assert not [name for name in files(paths[2]) if name.endswith(".cleaned")]


def test_only_the_segment_at_the_cut_is_complained_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = filled(tmp_path)
    log.close_files()
    for segment in log.segments[3:6]:
        path = Path(segment.path(".log"))
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    opened(tmp_path, CONFIG, map_segments=all_first(random.Random(1)))
    complaints = [record.getMessage() for record in caplog.records if "states CRC" in record.getMessage()]
    assert len(complaints) == 1
    assert complaints[0].startswith(log.segments[3].path(".log"))


@pytest.mark.parametrize("threads", [1, 3])
def test_progress_is_told_segment_by_segment(tmp_path: Path, threads: int) -> None:
    log = filled(tmp_path)
    log.close_files()
    remaining: list[int] = []
    crew = Crew("recovery", threads)
    crew.run(lambda path: opened(path, CONFIG, map_segments=crew.map, on_segment_recovered=remaining.append), [tmp_path])
    assert remaining == list(reversed(range(len(log.segments))))


@pytest.mark.parametrize("map_segments", [one_by_one, all_first(random.Random(1))], ids=["one by one", "all first"])
def test_a_recovery_with_few_files_open_at_once_leaves_the_same(tmp_path: Path, map_segments: OrderedMap) -> None:
    log = filled(tmp_path)
    log.close()
    written = files(tmp_path, *INDEXES)
    opened(tmp_path, CONFIG, open_segments=OpenSegments(1), map_segments=map_segments).close()
    assert files(tmp_path, *INDEXES) == written


def test_a_scan_leaves_nothing_open(tmp_path: Path) -> None:
    filled(tmp_path).close()
    open_segments = OpenSegments()
    log = opened(tmp_path, CONFIG, is_clean=True, open_segments=open_segments)
    for segment in log.segments:
        segment.forget()
    for segment in log.segments:
        scan = scan_segment(segment)
        assert len(open_segments) == 0
        assert scan.valid_bytes == segment.size_bytes
        assert scan.next_offset <= log.log_end_offset
        assert scan.fault == ""
