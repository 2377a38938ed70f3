"""The same work on many items by a few threads that live only for it: opening the logs of a directory, closing them.

Work on an item may have parts that several threads can do, as a log has segments: those go to the same threads, so that there
are never more than were asked for. Whoever waits for a part does another one of his meanwhile, and only waits if all of them
are under way; parts wait for nothing. So all comes to an end.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any, Generic, TypeVar, cast

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(name: str, threads: int, work: Callable[[Item], None], items: Iterable[Item]) -> None:
    """Returns when all is done; after an error no new item is begun, and the first error is raised."""
    Crew(name, threads).run(work, items)


class Crew:
    def __init__(self, name: str, threads: int) -> None:
        """`threads` counts the one that calls `run`; the others are started when there is something for them."""
        self._name = name
        self._threads = threads
        self._changed = threading.Condition()
        self._left: deque[Callable[[], None]] = deque()
        self._at_work = 0
        self._divided: list[_Parts[Any]] = []
        self._helpers: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    def run(self, work: Callable[[Item], None], items: Iterable[Item]) -> None:
        """As `in_parallel`; `work` may call `map`."""
        self._left.extend(partial(work, item) for item in items)
        with self._changed:
            self._hire(len(self._left) - 1)
        self._help()
        # None is hired any more: the items are done, or there was an error.
        for helper in self._helpers:
            helper.join()
        if self._errors:
            raise self._errors[0]

    def map(self, work: Callable[[Item], Result], items: Iterable[Item], /) -> Generator[Result]:
        """The results in the order of the items. Closed early it begins no more, and waits for what was begun."""
        parts: _Parts[Result] = _Parts(self._changed, (_Part(partial(work, item)) for item in items))
        with self._changed:
            self._divided.append(parts)
            self._hire(len(parts.left) - 1)
            self._changed.notify_all()
        try:
            yield from parts.results()
        finally:
            with self._changed:
                self._divided.remove(parts)
                parts.left.clear()
                while parts.under_way:
                    self._changed.wait()

    def _hire(self, wanted: int) -> None:
        while not self._errors and len(self._helpers) < min(wanted, self._threads - 1):
            helper = threading.Thread(target=self._help, name=f"{self._name}-{len(self._helpers) + 1}", daemon=True)
            self._helpers.append(helper)
            helper.start()

    def _help(self) -> None:
        while True:
            with self._changed:
                while (found := self._next()) is None:
                    if not self._at_work or self._errors:
                        return
                    self._changed.wait()
            found()

    def _next(self) -> Callable[[], None] | None:
        """Parts first: whoever waits for them holds a log half open."""
        for parts in self._divided:
            if parts.left:
                return parts.begin()
        if not self._left or self._errors:
            return None
        self._at_work += 1
        return partial(self._do, self._left.popleft())

    def _do(self, work: Callable[[], None]) -> None:
        error = None
        try:
            work()
        except BaseException as caught:
            error = caught
        with self._changed:
            if error is not None:
                self._errors.append(error)
            self._at_work -= 1
            self._changed.notify_all()


class _Part(Generic[Result]):
    __slots__ = ("error", "is_done", "result", "work")

    def __init__(self, work: Callable[[], Result]) -> None:
        self.work = work
        self.is_done = False
        self.result: Result | None = None
        self.error: BaseException | None = None


class _Parts(Generic[Result]):
    """Those of one `map`. All is touched with the crew's lock held, but for the work itself."""

    def __init__(self, changed: threading.Condition, parts: Iterable[_Part[Result]]) -> None:
        self._changed = changed
        self._all = list(parts)
        self.left = deque(self._all)
        self.under_way = 0

    def begin(self) -> Callable[[], None]:
        """The next part, to be called without the lock."""
        self.under_way += 1
        return partial(self._do, self.left.popleft())

    def results(self) -> Generator[Result]:
        for part in self._all:
            while True:
                with self._changed:
                    while not (part.is_done or self.left):
                        self._changed.wait()
                    if part.is_done:
                        break
                    another = self.begin()
                another()
            if part.error is not None:
                raise part.error
            yield cast("Result", part.result)

    def _do(self, part: _Part[Result]) -> None:
        try:
            part.result = part.work()
        except BaseException as error:
            part.error = error
        with self._changed:
            part.is_done = True
            self.under_way -= 1
            self._changed.notify_all()
