"""What becomes of an I/O error: a broken disk takes its log directory offline, a full one does not."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import NamedTuple

from pybroker.base.ids import Uuid
from pybroker.log.background import Background
from pybroker.log.manager.log_dir import LogDir

logger = logging.getLogger(__name__)

OnIoError = Callable[[str, OSError], object]


class DirFailure(NamedTuple):
    """A log directory went offline. `is_last`: no other is left, the node cannot go on."""

    path: str
    directory_id: Uuid | None
    error: Exception
    is_last: bool


def is_shortage(error: OSError) -> bool:
    """A full disk still serves what it holds, and too many open files are not the disk's fault: both may pass."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT) or is_out_of_files(error)


def is_out_of_files(error: OSError) -> bool:
    return error.errno in (errno.EMFILE, errno.ENFILE)


class DirBackground:
    """The background of the logs in one directory: an I/O error there counts against the directory."""

    def __init__(self, background: Background, log_dir: LogDir, on_io_error: OnIoError) -> None:
        self._background = background
        self._log_dir = log_dir
        self._on_io_error = on_io_error

    def run(self, task: Callable[[], None], *, delay_ms: int = 0) -> None:
        def watched() -> None:
            log_dir = self._log_dir
            if not log_dir.is_online or log_dir.lock is None:
                # Offline, or the manager has let go of it: the next start sees to what is left.
                return
            try:
                task()
            except FileNotFoundError as error:
                # A log that was deleted or moved while its task waited.
                if log_dir.filesystem.exists(log_dir.path):
                    logger.info("%s: nothing left to do (%s)", watched.__qualname__, error)
                else:
                    self._on_io_error(log_dir.path, error)
            except OSError as error:
                self._on_io_error(log_dir.path, error)

        watched.__qualname__ = getattr(task, "__qualname__", watched.__qualname__)
        self._background.run(watched, delay_ms=delay_ms)
