"""The wall clock of a node under test, some way off: Python imports this first when the folder is on PYTHONPATH.

CLOCK_SHIFT names a file with the shift in nanoseconds, which another process may change at any time. Monotonic time goes on, as
it does when an administrator sets the clock.
"""

from __future__ import annotations

import mmap
import os
import struct
import time

if path := os.environ.get("CLOCK_SHIFT"):
    with open(path, "rb") as _file:
        _shift = mmap.mmap(_file.fileno(), 8, access=mmap.ACCESS_READ)
    _unpack = struct.Struct("<q").unpack_from
    _time_ns = time.time_ns

    def _shifted_ns() -> int:
        return _time_ns() + int(_unpack(_shift)[0])

    time.time_ns = _shifted_ns
    time.time = lambda: _shifted_ns() / 1e9
