"""Where operations wait: for something to happen to one of the keys they are watched under, or for their deadline.

Any thread. An operation is tested by one thread at a time, and another that comes meanwhile does not wait for it but has it
tested once more: so nobody ever blocks on an operation, whatever locks are held around `check`. No lock of the purgatory is
held while an operation's own code runs. One that is done leaves all its lists at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from pybroker.base.timer import Deadlines, Handle

logger = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)


class DelayedOperation:
    """Base of what waits. Exactly one of its two ends is reached, once: a `try_complete` that returns True, or `on_expire`."""

    __slots__ = ("_handle", "_is_asked", "_is_due", "_keys", "_testing", "is_done")

    _testing: threading.Lock  # held by whoever tests it
    _is_asked: bool  # somebody wants it tested, again if need be
    _is_due: bool
    _keys: Sequence[Any]
    _handle: Handle | None
    is_done: bool

    def try_complete(self) -> bool:
        """Complete it, if what it waits for has happened; False if it has to wait on. Never two at a time."""
        raise NotImplementedError

    def on_expire(self) -> None:
        """Complete it as it is: its deadline has come."""
        raise NotImplementedError


class Purgatory(Generic[Key]):
    def __init__(self, timer: Deadlines) -> None:
        self.timer = timer
        self._lock = threading.Lock()
        self._watchers: dict[Key, dict[DelayedOperation, None]] = {}
        self._waiting = 0

    def __len__(self) -> int:
        """How many operations wait."""
        return self._waiting

    @property
    def watched(self) -> int:
        """How many there are in the lists of all keys together."""
        with self._lock:
            return sum(map(len, self._watchers.values()))

    def has_watchers(self, key: Key) -> bool:
        return key in self._watchers

    def watch(self, operation: DelayedOperation, keys: Sequence[Key], deadline_ms: int) -> bool:
        """Let `operation`, which the caller found it cannot complete, wait; True if it was completed after all.

        It is tested once more when it is watched under all keys: from there on no event is missed.
        """
        operation._testing = threading.Lock()
        operation._is_asked = operation._is_due = operation.is_done = False
        operation._keys = keys
        operation._handle = None
        watchers = self._watchers
        with self._lock:
            self._waiting += 1
            for key in keys:
                found = watchers.get(key)
                if found is None:
                    watchers[key] = {operation: None}
                else:
                    found[operation] = None
        if self._attempt(operation):
            return True
        operation._handle = handle = self.timer.add(deadline_ms, partial(self._expire, operation))
        if operation.is_done:
            handle.cancel()
        return False

    def check(self, key: Key) -> int:
        """Something happened to `key`: test what is watched under it; returns how many were completed."""
        if key not in self._watchers:
            return 0
        with self._lock:
            operations = list(self._watchers.get(key, ()))
        completed = 0
        for operation in operations:
            if self._attempt(operation):
                completed += 1
        return completed

    def _expire(self, operation: DelayedOperation) -> None:
        operation._is_due = True
        self._attempt(operation)

    def _attempt(self, operation: DelayedOperation) -> bool:
        """Test it; True if that ended it. If another thread is at it, that one tests it again, and sees what we saw."""
        operation._is_asked = True
        while operation._is_asked and operation._testing.acquire(blocking=False):
            try:
                if operation.is_done:
                    return False
                operation._is_asked = False
                if self._test(operation):
                    operation.is_done = True
                    self._leave(operation)
                    return True
            finally:
                operation._testing.release()
        return False

    def _test(self, operation: DelayedOperation) -> bool:
        is_due = operation._is_due
        try:
            if not is_due:
                return operation.try_complete()
            operation.on_expire()
        except Exception:
            logger.exception("a delayed operation failed: %r%s", operation, "" if is_due else "; it waits for its deadline")
        return is_due

    def _leave(self, operation: DelayedOperation) -> None:
        handle = operation._handle
        if handle is not None:
            handle.cancel()
        watchers = self._watchers
        with self._lock:
            self._waiting -= 1
            for key in operation._keys:
                found = watchers.get(key)
                if found is not None:
                    found.pop(operation, None)
                    if not found:
                        del watchers[key]
