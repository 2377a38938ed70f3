"""The broker's side of the cleaning process: started with the first job, kept for the next, replaced when it dies.

`clean` runs on one cleaner thread, which waits on a pipe without the GIL; `abort` and `close` come from any thread and kill
the process, which is safe at any moment: only `.cleaned` files are ever lost.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pybroker
from pybroker.base.filesystem import FileSystem
from pybroker.log.cleaner.cleaning import remove_cleaned
from pybroker.log.cleaner.job import CleanedSegment, CleanerStats, CleaningAbortedError, CleaningJob
from pybroker.log.cleaner.runner import Swap
from pybroker.log.cleaner.worker import DISK_ERROR, DONE, SEGMENT

_COMMAND = (sys.executable, "-P", "-m", "pybroker.log.cleaner.worker")


class CleaningFailedError(Exception):
    """The log could not be cleaned, and it is no fault of the disk."""


class WorkerDiedError(Exception):
    """The process went away in the middle of a job."""


class CleanerProcess:
    def __init__(self, filesystem: FileSystem) -> None:
        self._filesystem = filesystem
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_aborted = False
        self._is_busy = False
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        process = self._process
        return None if process is None else process.pid

    def clean(self, job: CleaningJob, swap: Swap) -> CleanerStats:
        try:
            return self._converse(self._started(), job, swap)
        except BaseException:
            self._end()
            remove_cleaned(self._filesystem, job.directory)
            raise
        finally:
            with self._lock:
                self._is_aborted = self._is_busy = False

    def _converse(self, process: subprocess.Popen[bytes], job: CleaningJob, swap: Swap) -> CleanerStats:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(job.to_json().encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise self._died(process) from None
        while True:
            line = process.stdout.readline()
            if not line.endswith(b"\n"):
                raise self._died(process)
            kind, value = json.loads(line)
            if kind == SEGMENT:
                base_offset, size_bytes, sources = value
                swap(CleanedSegment(base_offset, size_bytes, tuple(sources)))
            elif kind == DONE:
                return CleanerStats(**value)
            elif kind == DISK_ERROR:
                raise OSError(*value)
            else:
                raise CleaningFailedError(value)

    def abort(self) -> None:
        with self._lock:
            self._is_aborted = True
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        """No job can be given any more; one that is under way is aborted."""
        with self._lock:
            self._is_closed = True
            is_busy = self._is_busy
        if is_busy:
            # The thread in `clean` sees the end and tidies up.
            self.abort()
        else:
            self._end()

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_closed or self._is_aborted:
                raise CleaningAbortedError
            self._is_busy = True
            process = self._process
            if process is not None and process.poll() is not None:
                _close_pipes(process)
                process = None
            if process is None:
                process = self._process = subprocess.Popen(
                    _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment()
                )
            return process

    def _died(self, process: subprocess.Popen[bytes]) -> Exception:
        if self._is_aborted or self._is_closed:
            return CleaningAbortedError()
        return WorkerDiedError(
            f"the cleaning process {process.pid} ended with status {process.wait()} in the middle of its work"
        )

    def _end(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            _close_pipes(process)


def _close_pipes(process: subprocess.Popen[Any]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()


def _environment() -> dict[str, str]:
    """The worker must find the same package, wherever the broker has it from."""
    root = str(Path(pybroker.__file__).parent.parent)
    inherited = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": os.pathsep.join([root, inherited]) if inherited else root}
