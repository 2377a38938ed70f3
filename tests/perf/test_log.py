"""What the log costs: appends, look-ups, rebuilding an index. Printed, not asserted: `make bench-log`.

LOG_MIB is how large the partition for look-ups and rebuilds is (256 unless told; 1024 for the real figure).
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from perf.measure import report
from support.batches import batch, marker, sized_batch

from pybroker.base.filesystem import OsFileSystem
from pybroker.log.background import Inline
from pybroker.log.files import TopicPartition
from pybroker.log.loader import open_log
from pybroker.log.log import Log
from pybroker.log.log_config import LogConfig
from pybroker.log.manager.parallel import Crew
from pybroker.log.open_segments import OpenSegments
from pybroker.log.recovery import OrderedMap, one_by_one
from pybroker.protocol.records.control import ControlType

pytestmark = pytest.mark.perf

LOG_MIB = int(os.environ.get("LOG_MIB", "256"))
ZEROS = bytes(8)


class Never(Inline):
    """Drops background work: what the flusher thread does is not the append's cost."""

    def run(self, task: object, *, delay_ms: int = 0) -> None:
        pass


def opened(
    directory: Path,
    *,
    is_clean: bool = False,
    recovery_point: int = 0,
    segment_bytes: int = 1 << 30,
    map_segments: OrderedMap = one_by_one,
) -> Log:
    return open_log(
        OsFileSystem(),
        f"{directory}/bench-0",
        TopicPartition("bench", 0),
        LogConfig.of({"segment.bytes": segment_bytes}),
        now_ms=1_000,
        background=Never(),
        open_segments=OpenSegments(),
        is_clean=is_clean,
        recovery_point=recovery_point,
        map_segments=map_segments,
    )


def append(log: Log, sent: bytearray, count: int) -> float:
    """Seconds for `count` appends of one buffer, as a network thread would hand it over."""
    view = memoryview(sent)
    start = time.perf_counter()
    for _ in range(count):
        sent[:8] = ZEROS
        log.append_as_leader(view, 0, 1_000)
    return time.perf_counter() - start


def test_appends(tmp_path: Path) -> None:
    print()
    kib16 = batch([os.urandom(1000) for _ in range(16)])
    log = opened(tmp_path)
    took = min(append(log, kib16, 4000) for _ in range(5))
    report("append batches of 16 KiB, one thread", len(kib16) * 4000 / took / 1e6, "MB/s", 400)
    one = sized_batch(1024)
    took = min(append(log, one, 10_000) for _ in range(5))
    report("append batches of 1 KiB", 10_000 / took, "/s", 40_000)
    # A sequence number lies inside the CRC: each needs a batch of its own.
    idempotent = [batch([bytes(900)], producer_id=7, producer_epoch=0, sequence=number) for number in range(10_000)]
    start = time.perf_counter()
    for each in idempotent:
        log.append_as_leader(each, 0, 1_000)
    report("append idempotent batches of 1 KiB", len(idempotent) / (time.perf_counter() - start), "/s")
    log.close()


def test_lookups_and_rebuild(tmp_path: Path) -> None:
    print()
    log = opened(tmp_path)
    kib16 = batch([os.urandom(1000) for _ in range(16)])
    while log.size_bytes < LOG_MIB << 20:
        append(log, kib16, 500)
    rng = random.Random(1)
    offsets = [rng.randrange(log.log_end_offset) for _ in range(20_000)]
    for offset in offsets[:2000]:
        log.read(offset, 1)
    start = time.perf_counter()
    for offset in offsets:
        log.read(offset, 1)
    report(f"random offset look-up in {LOG_MIB} MiB, warm", (time.perf_counter() - start) / len(offsets) * 1e6, "µs", 25)
    start = time.perf_counter()
    for offset in offsets:
        log.read(offset, 65_536)
    report("the same, with the end of a 64 KiB slice found", (time.perf_counter() - start) / len(offsets) * 1e6, "µs")
    end, count = log.log_end_offset, 0
    start = time.perf_counter()
    offset = 0
    while offset < end:
        fetched = log.read(offset, 1 << 20)
        assert fetched.slice is not None
        offset += 16 * (len(fetched.slice) // len(kib16))
        count += 1
    report("read of 1 MiB in sequence", (time.perf_counter() - start) / count * 1e6, "µs")
    log.close()
    start = time.perf_counter()
    again = opened(tmp_path)
    took = time.perf_counter() - start
    report(f"recovery of {LOG_MIB} MiB, indexes rebuilt", again.size_bytes / took / 1e6, "MB/s", 500)
    again.close()
    start = time.perf_counter()
    opened(tmp_path, is_clean=True, recovery_point=end).close()
    report("open and close after a clean stop", (time.perf_counter() - start) * 1e3, "ms")


@pytest.mark.parametrize("kind", ["plain", "transactional"])
def test_recovery_of_many_segments(tmp_path: Path, kind: str) -> None:
    segment_bytes = 16 << 20
    log = opened(tmp_path, segment_bytes=segment_bytes)
    number = 0
    while log.size_bytes < LOG_MIB << 20:
        offset = log.log_end_offset
        if kind == "plain":
            sent = sized_batch(16_384, base_offset=offset)
        elif number % 100 < 99:
            sent = sized_batch(16_384, base_offset=offset, producer_id=7, producer_epoch=0, sequence=number, transactional=True)
        else:
            sent = marker(ControlType.ABORT, 7, base_offset=offset)
        log.append_as_follower(sent, 1_000)
        number += 1
    log.close()
    print()
    for threads in (1, 2):
        took = min(recovery_seconds(tmp_path, segment_bytes, threads) for _ in range(3))
        report(f"recovery of {len(log.segments)} {kind} segments, {threads} threads", log.size_bytes / took / 1e6, "MB/s", 500)


def recovery_seconds(directory: Path, segment_bytes: int, threads: int) -> float:
    crew = Crew("recovery", threads)
    start = time.perf_counter()
    crew.run(lambda path: opened(path, segment_bytes=segment_bytes, map_segments=crew.map).close(), [directory])
    return time.perf_counter() - start
