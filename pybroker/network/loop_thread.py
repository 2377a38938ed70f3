"""A thread with an event loop for raw sockets, and a queue of posted calls: what serves connections and what opens them share.

Everything but `post`, `call` and `stop` runs on the thread itself. However many posts come while it is busy, it is woken once.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import select
from collections import deque
from collections.abc import Callable
from threading import Event, Lock, Thread, current_thread, get_ident
from time import monotonic_ns
from typing import Any, Final, Protocol, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

RECEIVE_BYTES: Final = 256 * 1024


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is installed; PYBROKER_EVENT_LOOP=asyncio keeps to the standard library."""
    if os.environ.get("PYBROKER_EVENT_LOOP") != "asyncio":
        try:
            import uvloop
        except ImportError:
            pass
        else:
            return uvloop.new_event_loop()
    return asyncio.SelectorEventLoop()


class Watched(Protocol):
    def on_broken(self) -> None: ...


class LoopThread:
    def __init__(self, name: str) -> None:
        self.name = name
        self.ident = 0  # of the running thread
        self.buffer = memoryview(bytearray(RECEIVE_BYTES))
        self.busy_ns = 0
        self.is_handling = False  # inside what was called for one connection, which may hold locks: others wait for a post
        # Tells of connections that the peer has reset. uvloop does not: libuv ends the watching of a socket with an error, and
        # its callback is never called. A connection that is not read from just now is heard of too.
        self._broken = select.epoll() if hasattr(select, "epoll") else None
        self._by_fd: dict[int, Watched] = {}
        self._guests: list[Callable[[], None]] = []
        self._posts: deque[tuple[Any, ...]] = deque()
        self._soon: dict[tuple[Callable[[Any], object], Any], None] = {}
        self._wake_lock = Lock()
        self._is_woken = False
        self._has_ended = False
        self._wake_reader, self._wake_writer = _wake_pipe()
        self._loop = new_event_loop()
        self._loop.set_exception_handler(_log_exception)
        self.add_reader = self._loop.add_reader
        self.remove_reader = self._loop.remove_reader
        self.add_writer = self._loop.add_writer
        self.remove_writer = self._loop.remove_writer
        self.call_later = self._loop.call_later
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    # From any thread

    def post(self, function: Callable[..., object], *arguments: object) -> None:
        """Call `function` on this thread, after what was posted before; dropped if the thread has ended."""
        self._posts.append((function, *arguments))
        if not self._is_woken:
            self._wake()

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """At once if this is the thread, else like `post`."""
        if get_ident() == self.ident:
            function(*arguments)
        else:
            self.post(function, *arguments)

    def run(self, function: Callable[[], object], timeout_s: float) -> bool:
        """Call `function` on this thread and wait for it; False if the thread has not come to it in time."""
        if get_ident() == self.ident:
            function()
            return True
        done = Event()

        def call() -> None:
            try:
                function()
            finally:
                done.set()

        self.post(call)
        return done.wait(timeout_s) or self._has_ended

    def stop(self, timeout_s: float) -> None:
        """Close all connections and end, after what was posted before."""
        self.post(self._end)
        if self._thread is not current_thread():
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                logger.warning("%s is still busy %.0f s after it was told to end", self.name, timeout_s)

    def _wake(self) -> None:
        # Under a lock, lest it write to whatever gets the number of the descriptor after its end.
        with self._wake_lock:
            if not self._is_woken and not self._has_ended:
                self._is_woken = True
                os.write(self._wake_writer, _ONE)

    # On the thread

    def host(self, on_end: Callable[[], None]) -> None:
        """Somebody else's sockets are served here, too; `on_end` is called when the thread ends, to close them."""
        self._guests.append(on_end)

    def soon(self, function: Callable[[T], object], argument: T) -> None:
        """Call `function` when every socket that is ready by now has had its turn, once, however often it is asked for."""
        if not self._soon:
            self._loop.call_soon(self._on_soon)
        self._soon[function, argument] = None

    def _on_soon(self) -> None:
        start_ns, busy_ns = monotonic_ns(), self.busy_ns
        calls, self._soon = self._soon, {}
        for function, argument in calls:
            try:
                function(argument)
            except Exception:
                logger.exception("%s: %r failed", self.name, function)
        # Not added to what it is by now: a connection that was called has counted its own part already.
        self.busy_ns = busy_ns + monotonic_ns() - start_ns

    def watch(self, fd: int, connection: Watched) -> None:
        """Have `connection` told when the system finds its socket broken."""
        if self._broken is not None:
            self._broken.register(fd, 0)
            self._by_fd[fd] = connection

    def unwatch(self, fd: int) -> None:
        """Its descriptor is still open."""
        if self._broken is not None and self._by_fd.pop(fd, None) is not None:
            self._broken.unregister(fd)

    def on_start(self) -> None:
        """First of all on the thread."""

    def close_all(self) -> None:
        """Last of all on the thread."""

    def _run(self) -> None:
        self.ident = get_ident()
        self._loop.add_reader(self._wake_reader, self._on_posts)
        if self._broken is not None:
            self._loop.add_reader(self._broken.fileno(), self._on_broken)
        self.on_start()
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _on_posts(self) -> None:
        start_ns, busy_ns = monotonic_ns(), self.busy_ns
        os.read(self._wake_reader, 4096)
        # Before looking: a post that comes after the look writes again.
        self._is_woken = False
        posts = self._posts
        # Those that come meanwhile wait for the next round, so that sockets get their turn.
        for _ in range(len(posts)):
            function, *arguments = posts.popleft()
            try:
                function(*arguments)
            except Exception:
                logger.exception("%s: a posted call failed", self.name)
            if self._has_ended:
                return
        if posts and not self._is_woken:
            self._wake()
        self.busy_ns = busy_ns + monotonic_ns() - start_ns

    def _on_broken(self) -> None:
        assert self._broken is not None
        start_ns, busy_ns = monotonic_ns(), self.busy_ns
        for fd, _ in self._broken.poll(0):
            if fd in self._by_fd:
                self._by_fd[fd].on_broken()
        self.busy_ns = busy_ns + monotonic_ns() - start_ns

    def _end(self) -> None:
        self.close_all()
        for on_end in self._guests:
            try:
                on_end()
            except Exception:
                logger.exception("%s: the end of a guest failed", self.name)
        self._loop.remove_reader(self._wake_reader)
        if self._broken is not None:
            self._loop.remove_reader(self._broken.fileno())
            self._broken.close()
        with self._wake_lock:
            self._has_ended = True
            os.close(self._wake_reader)
            if self._wake_writer != self._wake_reader:
                os.close(self._wake_writer)
        self._loop.stop()


_ONE: Final = (1).to_bytes(8, "little")


def _wake_pipe() -> tuple[int, int]:
    if hasattr(os, "eventfd"):
        fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        return fd, fd
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    return reader, writer


def _log_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    exception = context.get("exception")
    if isinstance(exception, OSError) and exception.errno == errno.EBADF and "message" not in context:
        # uvloop's way to say that a socket has an error: `_on_broken` knows which.
        return
    logger.error("%s", context.get("message"), exc_info=exception)
