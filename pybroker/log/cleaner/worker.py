"""The process that cleans: a job as a line of JSON comes in, a line for each segment and one with the figures go out.

Main thread alone works; a second one reads stdin and ends the process at once when that closes, so that no cleaning outlives
its broker and writes beside the next one's. Runs at low priority.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from dataclasses import asdict
from typing import Any, Final

from pybroker.base.filesystem import OsFileSystem
from pybroker.log.cleaner.cleaning import Cleaning
from pybroker.log.cleaner.job import NO_LIMIT, CleaningJob
from pybroker.log.cleaner.throttle import Throttle
from pybroker.protocol.errors import KafkaError

NICENESS: Final = 10
SEGMENT: Final = "segment"
DONE: Final = "done"
DISK_ERROR: Final = "disk_error"
ERROR: Final = "error"


def main() -> None:
    # Ctrl-C in a terminal reaches the whole group; the broker shuts down in its own order and then closes stdin.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_jobs, args=(jobs,), daemon=True).start()
    while True:
        _run(jobs.get())


def _read_jobs(jobs: queue.SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        jobs.put(line)
    os._exit(0)


def _run(line: bytes) -> None:
    started = time.perf_counter()
    try:
        job = CleaningJob.from_json(line)
        rate = job.config.max_bytes_per_second
        progress = _unthrottled if rate == NO_LIMIT else Throttle(rate, time.monotonic, time.sleep)
        cleaning = Cleaning(OsFileSystem(), job, progress)
        for segment in cleaning.run():
            _answer(SEGMENT, segment)
    except OSError as error:
        _answer(DISK_ERROR, (error.errno, error.strerror or str(error), error.filename))
    except KafkaError as error:
        _answer(ERROR, str(error))
    except Exception as error:
        _answer(ERROR, f"{type(error).__name__}: {error}")
    else:
        cleaning.stats.seconds = time.perf_counter() - started
        cleaning.stats.max_rss_bytes = _max_rss_bytes()
        _answer(DONE, asdict(cleaning.stats))


def _answer(kind: str, value: Any) -> None:
    sys.stdout.write(json.dumps((kind, value)) + "\n")
    sys.stdout.flush()


def _unthrottled(count: int) -> None:
    pass


def _max_rss_bytes() -> int:
    """getrusage would count the broker's own memory, as of the fork."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return 0


if __name__ == "__main__":
    main()
