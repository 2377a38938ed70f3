"""One request asked of several shards, answered when the last of them has spoken. Any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from pybroker.protocol.errors import ErrorCode
from pybroker.server.coordinators.groups import Pending

Row = TypeVar("Row")
Part = TypeVar("Part")


def gather(
    parts: Collection[Part],
    ask: Callable[[Part, Pending], None],
    rows_of: Callable[[Any], list[Row]],
    counts: Callable[[ErrorCode], bool],
    answer: Callable[[list[Row], ErrorCode], None],
) -> None:
    """`ask` each part; `answer` gets all rows, and the first refusal that `counts`."""
    rows: list[Row] = []
    if not parts:
        answer(rows, ErrorCode.NONE)
        return
    lock = threading.Lock()
    missing = len(parts)
    first_code = ErrorCode.NONE

    def came(found: list[Row], code: ErrorCode) -> None:
        nonlocal missing, first_code
        with lock:
            rows.extend(found)
            missing -= 1
            if not first_code and counts(code):
                first_code = code
            is_last = not missing
        if is_last:
            answer(rows, first_code)

    pending = Pending(lambda response: came(rows_of(response), ErrorCode.NONE), lambda code: came([], code))
    for part in parts:
        ask(part, pending)
