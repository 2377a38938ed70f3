"""^C and SIGTERM.

An exception in the middle of a call to the JVM would leave the answer for the next call to read: a job that can stop between
two calls heeds the wish itself.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Stop:
    """`is_heeded` is set by a job that looks at `is_wanted`; until then a signal ends it by KeyboardInterrupt."""

    def __init__(self) -> None:
        self.is_heeded = False
        self._wanted = threading.Event()

    @property
    def is_wanted(self) -> bool:
        return self._wanted.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleep, unless the wish comes first."""
        return self._wanted.wait(seconds)

    def __call__(self, *_: object) -> None:
        self._wanted.set()
        if not self.is_heeded:
            raise KeyboardInterrupt

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Signals reach the main thread only: elsewhere there is nothing to do."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
