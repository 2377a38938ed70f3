"""The same work on many items by a few threads that live only for it: opening the logs of a directory, closing them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


def in_parallel(name: str, threads: int, work: Callable[[Item], None], items: Iterable[Item]) -> None:
    """Returns when all is done; after an error no new item is begun, and the first error is raised."""
    left = deque(items)
    errors: list[BaseException] = []

    def take() -> None:
        while not errors:
            try:
                item = left.popleft()
            except IndexError:
                return
            try:
                work(item)
            except BaseException as error:
                errors.append(error)

    helpers = [
        threading.Thread(target=take, name=f"{name}-{number}", daemon=True) for number in range(1, min(threads, len(left)))
    ]
    for helper in helpers:
        helper.start()
    take()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]
