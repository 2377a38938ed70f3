"""One place that opens a log for tests."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar

from pybroker.base.filesystem import FileSystem, OsFileSystem
from pybroker.base.ids import Uuid
from pybroker.log.background import Background, Inline
from pybroker.log.files import TopicPartition
from pybroker.log.loader import open_log
from pybroker.log.log import Log
from pybroker.log.log_config import LogConfig
from pybroker.log.open_segments import OpenSegments
from pybroker.log.recovery import OrderedMap, one_by_one
from pybroker.log.stored_log import no_jitter
from pybroker.protocol.records.batch import iter_batches

PARTITION = TopicPartition("orders", 0)
NOW_MS = 10_000
Item = TypeVar("Item")
Result = TypeVar("Result")


def opened(
    directory: object,
    overrides: dict[str, Any] | None = None,
    *,
    filesystem: FileSystem | None = None,
    background: Background | None = None,
    is_clean: bool = False,
    recovery_point: int = 0,
    cleaned_to: int = 0,
    log_start_offset: int = 0,
    topic_id: Uuid | None = None,
    now_ms: int = NOW_MS,
    draw_below: Callable[[int], int] = no_jitter,
    open_segments: OpenSegments | None = None,
    on_segment_recovered: Callable[[int], None] | None = None,
    map_segments: OrderedMap = one_by_one,
) -> Log:
    return open_log(
        filesystem or OsFileSystem(),
        f"{directory}/{PARTITION}",
        PARTITION,
        LogConfig.of(overrides),
        now_ms=now_ms,
        background=background or Inline(),
        open_segments=OpenSegments() if open_segments is None else open_segments,
        is_clean=is_clean,
        recovery_point=recovery_point,
        cleaned_to=cleaned_to,
        log_start_offset=log_start_offset,
        topic_id=topic_id,
        draw_below=draw_below,
        on_segment_recovered=on_segment_recovered,
        map_segments=map_segments,
    )


def all_first(rng: random.Random) -> OrderedMap:
    """What threads do at the worst, in a way that can be repeated: all items are done before the first result is used, in any
    order."""

    def mapped(work: Callable[[Item], Result], items: Iterable[Item], /) -> Generator[Result]:
        numbered = list(enumerate(items))
        rng.shuffle(numbered)
        results = {number: work(item) for number, item in numbered}
        for number in range(len(results)):
            yield results[number]

    return mapped


def read_all(
    log: Log, start: int | None = None, *, max_bytes: int = 1000, upper: int | None = None
) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every record from `start` on, fetched as a consumer would."""
    offset = log.log_start_offset if start is None else start
    first = offset
    found: list[tuple[int, bytes | None]] = []
    while (fetched := log.read(offset, max_bytes, upper=upper)).slice is not None:
        data = fetched.slice.read()
        batches = list(iter_batches(data))
        assert sum(batch.size_bytes for batch in batches) == len(data) == len(fetched.slice)
        found += [(record.offset, record.value) for batch in batches for record in batch.records() if record.offset >= first]
        offset = batches[-1].next_offset
    return found
