"""What a JVM says while it starts: kept, for the one line that tells why it did not; afterwards passed on, to stderr.

A JVM that starts prints warnings of its own, and one that fetches packages some fifty lines, none of which a user needs when
all goes well. A thread reads them for as long as the JVM lives.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

_STDOUT, _STDERR = 1, 2
_MAX_LINES = 2000  # kept; older ones are forgotten
_END_S = 10.0


class StartingWords:
    """A process that is started within inherits a pipe as its stdout and stderr, since a job's stdout is for its results.
    `is_heard` passes everything on at once."""

    def __init__(self, *, is_heard: bool = False) -> None:
        self._kept: deque[str] = deque(maxlen=_MAX_LINES)
        self._is_heard = is_heard

    def __enter__(self) -> Self:
        readable, writable = os.pipe()
        self._real = {number: os.dup(number) for number in (_STDOUT, _STDERR)}
        for number in self._real:
            os.dup2(writable, number)
        os.close(writable)
        self._reader = threading.Thread(target=self._read, args=(readable, os.dup(self._real[_STDERR])), daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for number, real in self._real.items():
            os.dup2(real, number)
            os.close(real)
        self._is_heard = True

    def of_the_end(self) -> list[str]:
        """The lines of a process that has ended."""
        self._reader.join(_END_S)
        return list(self._kept)

    def _read(self, readable: int, real: int) -> None:
        with os.fdopen(readable, "rb") as lines, os.fdopen(real, "wb", buffering=0) as onward:
            for line in lines:
                if self._is_heard:
                    onward.write(line)
                else:
                    self._kept.append(line.decode(errors="replace").rstrip())
