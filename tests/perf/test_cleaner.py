"""Compaction: the map alone, a cleaning of CLEANER_MIB in its process, and appends to the very log meanwhile."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles

import pytest
from perf.measure import best_us, report
from unit.log.cleaner.compacted import CompactedLog

from pybroker.base.filesystem import OsFileSystem
from pybroker.log.cleaner.job import CleanerStats
from pybroker.log.cleaner.offset_map import SLOT_BYTES, OffsetMap
from pybroker.log.cleaner.process import CleanerProcess
from pybroker.protocol.records.builder import BatchBuilder

pytestmark = pytest.mark.perf

MIB = 1024 * 1024
LOG_MIB = int(os.environ.get("CLEANER_MIB", "128"))
KEYS = 1_000_000
BATCH_RECORDS = 16


def test_offset_map() -> None:
    keys = [b"key-%d" % number for number in range(10_000)]
    rows = list(enumerate(keys))
    print()
    offsets = OffsetMap(24 * MIB, max_keys=len(keys))
    report("a key put into the map, 99 % full in the end", best_us(lambda: _filled(offsets, rows)) / len(keys), "µs")
    report("a known key put again", best_us(lambda: offsets.put_all(rows, 0)) / len(keys), "µs")
    get = offsets.get
    report("a key looked up", best_us(lambda: [get(key) for key in keys]) / len(keys), "µs")
    large = OffsetMap(128 * MIB, max_keys=KEYS)
    large.put_all(((number, b"key-%d" % number) for number in range(KEYS)), 0)
    some = random.Random(1).sample(range(KEYS), 100_000)
    cold = [b"key-%d" % number for number in some]
    report("a key looked up among a million", best_us(lambda: [large.get(key) for key in cold]) / len(cold), "µs")
    cold = [b"no-key-%d" % number for number in some]
    report("a key that is not there, among a million", best_us(lambda: [large.get(key) for key in cold]) / len(cold), "µs")
    report("the map of a million keys", large.size_bytes / 1e6, "MB")


def _filled(offsets: OffsetMap, rows: list[tuple[int, bytes]]) -> None:
    offsets.clear()
    offsets.put_all(rows, 0)


def test_compaction_beside_appends(tmp_path: Path) -> None:
    process = CleanerProcess(OsFileSystem())
    topic = CompactedLog(tmp_path / "compacted", {"segment.bytes": 256 * MIB}, runner=process)
    _fill(topic)
    alone = _appends(topic, seconds=2.0)
    results: list[CleanerStats | None] = []
    cleaning = threading.Thread(target=lambda: results.append(topic.clean()))
    cleaning.start()
    beside = _appends(topic, while_alive=cleaning)
    cleaning.join()
    process.close()
    (stats,) = results
    assert stats is not None
    print()
    report(f"cleaned, of {LOG_MIB} MiB in records of 1 KiB", stats.bytes_read / 1e6 / stats.seconds, "MB/s", 60)
    report("records that stayed", 100 * stats.records_written / stats.records_read, "%")
    report("the map", stats.map_size_bytes / 1e6, "MB")
    report("peak memory of the process", stats.max_rss_bytes / MIB, "MiB")
    report("peak memory of the process above the map", (stats.max_rss_bytes - stats.map_size_bytes) / MIB, "MiB", 64)
    for name, times in (("alone", alone), ("beside the cleaning", beside)):
        report(f"append of 16 KiB {name}, median of {len(times)}", quantiles(times, n=100)[49] * 1e3, "ms")
        report(f"append of 16 KiB {name}, p99", quantiles(times, n=100)[98] * 1e3, "ms", 10)


def test_compaction_without_anything_to_drop(tmp_path: Path) -> None:
    """The worst for the map: no key comes twice, so that it is 99 % full in the end; and the records that were clean before
    have keys that are not in it, which takes longest to find out."""
    process = CleanerProcess(OsFileSystem())
    topic = CompactedLog(tmp_path / "compacted", {"segment.bytes": 256 * MIB}, runner=process)
    print()
    for half in (b"first", b"second"):
        numbers = iter(range(LOG_MIB * 512))
        _write(topic, LOG_MIB * 512, lambda half=half, numbers=numbers: b"%s-%d" % (half, next(numbers)))
        stats = topic.clean()
        assert stats is not None
        report(f"cleaned with the {half.decode()} {LOG_MIB // 2} MiB dirty", stats.bytes_read / 1e6 / stats.seconds, "MB/s", 60)
        report("the map is full to", 100 * SLOT_BYTES * stats.map_keys / stats.map_size_bytes, "%")
    process.close()


def _fill(topic: CompactedLog) -> None:
    rng = random.Random(1)
    _write(topic, LOG_MIB * 1024, lambda: b"key-%d" % rng.randrange(KEYS))


def _write(topic: CompactedLog, records: int, next_key: Callable[[], bytes]) -> None:
    value = random.Random(1).randbytes(1000)
    for _ in range(records // BATCH_RECORDS):
        topic.write(*((next_key(), value) for _ in range(BATCH_RECORDS)))
    topic.roll()


def _appends(topic: CompactedLog, *, seconds: float = 0.0, while_alive: threading.Thread | None = None) -> list[float]:
    """How long appends took, a few hundred a second."""
    builder = BatchBuilder(0)
    builder.append(1, b"k", bytes(16 * 1024))
    sent = bytes(builder.build())
    times = []
    pause = threading.Event()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or (while_alive is not None and while_alive.is_alive()):
        batch = bytearray(sent)
        start = time.perf_counter()
        topic.log.append_as_leader(batch, 0, 1)
        times.append(time.perf_counter() - start)
        pause.wait(0.002)
    return times
