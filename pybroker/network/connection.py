"""A connection: frames in, requests handled one after the other, answers out in the same order.

Owned by its network thread, which alone reads, writes and changes it; `answer_late`, `close_soon` and `Owed.settle` may come
from any thread. While a request is unanswered, or an answer is not wholly sent, nothing more is read and no further request
handled, so what one connection can make the node hold is bounded: one read's worth of requests and the answers to it. Only
requests that the service takes several of at once go on while it owes the answers to those before them, MAX_OWED at most.

`service` and `table` are the connection's own: an authentication stage is a service that answers the login's requests and
then puts the real ones in its place. `transport` is where TLS goes.
"""

from __future__ import annotations

import errno
import logging
import os
from contextlib import suppress
from enum import IntEnum
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from pybroker.network.answers import Chunk, Gather
from pybroker.network.framing import Framer
from pybroker.network.headers import BadRequestError, Table, read_header
from pybroker.network.request import Request
from pybroker.network.service import Service
from pybroker.network.transport import Transport

if TYPE_CHECKING:
    from pybroker.network.network_thread import NetworkThread

logger = logging.getLogger(__name__)

# Answers are gathered up to here before they are sent.
GATHER_BYTES: Final = 64 * 1024
# A part of an answer up to this long is put together with its neighbours, to be sent by one call: read from its file if it
# lies in one. Measured for header, records and trailer: 1 KiB 6.6 µs against 8-11 by sendfile, 16 KiB 9 against 9-11, but
# 64 KiB 19 against 13.
SMALL_BYTES: Final = 16 * 1024
# What one connection may send before the others of its thread get a turn.
TURN_BYTES: Final = 4 * 1024 * 1024
# So often a service may put off answers before nothing more is read.
MAX_OWED: Final = 64
# The time that a byte buys a request which is not whole: who sends at least 1 KiB a second is never too slow, and one byte now
# and then does not hold a connection for ever.
NS_PER_BYTE: Final = 1_000_000_000 // 1024

# Where a request did not come by one read, the system is to have room for so many of its size: each part of one costs a turn of
# the loop. For 128 KiB batches that are replicated, 5 % of all CPU.
ROOM_FOR: Final = 2

BROKE: Final = "closing the connection of %s on %s: its request met an error of ours"

_BUFFERS: Final = (bytes, bytearray, memoryview)


class State(IntEnum):
    READY = 0
    QUEUED = 1  # its frames are the handler pool's, until `on_released`
    WAITING = 2  # for a late answer


class Owed:
    """The place, in the order of a connection's answers, of one or several that the service gives later."""

    __slots__ = ("_connection", "data")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.data: bytes | bytearray | None = None

    def settle(self, data: bytes | bytearray) -> None:
        """These are the answers, encoded. From any thread, once."""
        self._connection.thread.call(self._connection.on_settled, self, data)


class Connection:
    __slots__ = (
        "_early_answer",
        "_framer",
        "_is_reading",
        "_transport",
        "_unsent",
        "_unsent_start",
        "_waiting_for",
        "is_closed",
        "is_closing",
        "last_active_ns",
        "listener_name",
        "owed",
        "peer",
        "pending",
        "received_ns",
        "service",
        "state",
        "table",
        "thread",
    )

    def __init__(
        self,
        thread: NetworkThread,
        listener_name: str,
        peer: tuple[str, int],
        transport: Transport,
        service: Service,
        table: Table,
        max_bytes: int,
    ) -> None:
        self.thread = thread
        self.listener_name = listener_name
        self.peer = peer
        self.service = service
        self.table = table
        self.state = State.READY
        # Lists, though things leave at the front: they are short, and an idle connection has thousands of siblings.
        self.pending: list[memoryview] = []  # whole frames not handled yet, with bytes of their own
        self.received_ns = self.last_active_ns = monotonic_ns()
        self.is_closing = self.is_closed = False
        self._transport = transport
        self._framer = Framer(max_bytes, thread.spares)
        self._unsent: list[Chunk] = []
        self._unsent_start = 0  # how much of the first of them is sent
        self._is_reading = False
        self._waiting_for: Request | None = None
        self.owed: list[Owed] = []  # only while the state is READY
        self._early_answer: tuple[Request, list[Chunk]] | None = None  # came while the state was still QUEUED

    def __str__(self) -> str:
        host, port = self.peer
        return f"{f'[{host}]' if ':' in host else host}:{port}"

    # From any thread

    def answer_late(self, request: Request, chunks: list[Chunk]) -> None:
        self.thread.call(self.on_answer, request, chunks)

    def close_soon(self, reason: str | None) -> None:
        self.is_closing = True
        self.thread.call(self.close, reason)

    def make_room(self, size: int) -> None:
        """Let the system take so many bytes of answers at once, whatever socket.send.buffer.bytes says."""
        with suppress(OSError):  # it is lost, which its thread will find
            self._transport.make_room(size)

    # Reading

    def start(self) -> None:
        self.thread.watch(self._transport.fd, self)
        self.start_reading()

    def start_reading(self) -> None:
        self._is_reading = True
        self.thread.add_reader(self._transport.fd, self.on_readable)

    def on_readable(self) -> None:
        thread = self.thread
        if (
            self.state
            or self._unsent
            or self.pending
            or len(self.owed) >= MAX_OWED
            or (thread.queue.is_full and thread.wait_for_room(self))
        ):
            # Muted when it matters, not before: most clients send nothing while they wait. What is pending comes first, also
            # when its turn has been posted and is yet to come.
            self._stop_reading()
            if self.state is State.WAITING and self._transport.has_ended():
                # It may still want its answer; but whoever watches over nodes should not hear of a death only when that is due.
                thread.on_ended(self)
            return
        now_ns = monotonic_ns()
        framer = self._framer
        buffer = thread.buffer
        is_start = framer.is_empty
        try:
            if framer.reads_plainly:
                count = self._transport.receive_into(buffer)
            else:
                count = self._transport.receive_scattered(framer.spaces(buffer))
            if count == 0:
                if self.owed:
                    # As above: it may still want them, and the end is read again when they are sent.
                    self._stop_reading()
                    thread.on_ended(self)
                else:
                    self._ended_by_peer()
                return
            frames = framer.feed(buffer, count)
            if not frames:
                self._transport.make_receive_room(ROOM_FOR * framer.under_way())
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._lost(error)
        except MemoryError:
            self.close(f"no memory for the rest after {framer.progress()}")
        else:
            self.received_ns = now_ns
            if is_start or frames:
                self.last_active_ns = now_ns
            else:
                self.last_active_ns = min(now_ns, self.last_active_ns + count * NS_PER_BYTE)
            if frames:
                first: Any = frames[0].obj
                # Others may lie in the same buffer as the first: it is spare when all of them are done with.
                if self._handle(frames) == len(frames) and first is not buffer.obj:
                    thread.spares.give(first)
            if framer.error is not None and not self.is_closed:
                self.close(framer.error)
        finally:
            thread.busy_ns += monotonic_ns() - now_ns

    def read_request(self, frame: memoryview, gather: Gather, may_block: bool) -> Request:
        (api, version, answer_version, _), correlation_id, client_id, position = read_header(self.table, frame)
        return Request(
            self,
            api,
            version,
            answer_version,
            correlation_id,
            client_id,
            frame,
            position,
            self.received_ns,
            gather,
            may_block,
        )

    # Handling, on the network thread

    def _handle(self, frames: list[memoryview]) -> int:
        """How many of them are done with; the rest waits, here or in the queue."""
        thread = self.thread
        queue = thread.queue
        gather = thread.gather
        was_handling, thread.is_handling = thread.is_handling, True
        handled = 0
        request: Request | None = None
        try:
            while handled < len(frames):
                if queue.waiting and not self.owed:
                    self._enqueue(frames, handled)
                    break
                together = 0
                if len(self.owed) < MAX_OWED:
                    together = self.service.handle_pipelined(self, frames, handled, gather)
                if self.owed and not together:
                    # Its answer would overtake those.
                    self._keep(frames, handled)
                    break
                if together:
                    handled += together
                    if self.is_closing:
                        break
                else:
                    request = self.read_request(frames[handled], gather, False)
                    done = self.service.handle(request)
                    handled += 1
                    if self.is_closing:
                        break
                    if not request.settled:
                        request.gather = None
                        if done:
                            self.state = State.WAITING
                            self._waiting_for = request
                            self._keep(frames, handled)
                        else:
                            handled -= 1
                            self._enqueue(frames, handled)
                        break
                if gather.splices or len(gather.out) > GATHER_BYTES:
                    self._flush(gather)
                    if self.is_closed:
                        break
                if self._unsent:
                    self._keep(frames, handled)
                    break
            if gather.out:
                self._flush(gather)
            if self.is_closing and request is not None and request.close_reason is not None:
                self.close(request.close_reason)
        except BadRequestError as error:
            if gather.out:
                self._flush(gather)
            self.close(str(error))
        except Exception:
            gather.drop()
            logger.exception(BROKE, self, self.listener_name)
            self.close(None)
        finally:
            thread.is_handling = was_handling
        return handled

    def _keep(self, frames: list[memoryview], start: int) -> None:
        shared = self.thread.buffer.obj
        for frame in frames[start:]:
            self.pending.append(memoryview(bytearray(frame)) if frame.obj is shared else frame)

    def _enqueue(self, frames: list[memoryview], start: int) -> None:
        self._keep(frames, start)
        self.thread.queue.put(self)
        self.state = State.QUEUED

    def on_answer(self, request: Request, chunks: list[Chunk]) -> None:
        """A late answer. It may overtake the handler thread's word that it has let go of the connection."""
        if self.is_closed:
            return
        if self.state is State.QUEUED:
            self._early_answer = (request, chunks)
            return
        assert self._waiting_for is request, f"an answer to {request}, but {self._waiting_for} is waited for"
        self._waiting_for = None
        self.state = State.READY
        self.send(chunks)
        self._go_on()

    def on_released(self, chunks: list[Chunk], waiting_for: Request | None) -> None:
        """The handler thread is done with the connection, but for a request that is answered later."""
        if self.is_closed:
            return
        self.send(chunks)
        self.state = State.READY
        if waiting_for is not None:
            self.state = State.WAITING
            self._waiting_for = waiting_for
            if self._early_answer is not None:
                request, chunks = self._early_answer
                self._early_answer = None
                self.on_answer(request, chunks)
                return
        self._go_on()

    # Answers that are owed

    def owe(self, gather: Gather) -> Owed:
        """For a service inside `handle_pipelined` on the network thread: the answers to the next frames come later, by the
        `settle` of what this returns; the frames count as answered. Nothing is put into `gather` while any are owed."""
        if gather.out:
            self._flush(gather)
        owed = Owed(self)
        self.owed.append(owed)
        return owed

    def on_settled(self, owed: Owed, data: bytes | bytearray) -> None:
        owed.data = data
        waiting = self.owed
        if self.is_closed or not waiting or waiting[0].data is None:
            return
        ready = 1
        while ready < len(waiting) and waiting[ready].data is not None:
            ready += 1
        chunks: list[Chunk] = [one.data for one in waiting[:ready] if one.data]
        del waiting[:ready]
        self.send(chunks)
        if not waiting:
            self._go_on()

    def _go_on(self) -> None:
        """Whatever held the connection up is over."""
        if self.state or self._unsent or self.is_closed:
            return
        if self.pending:
            thread = self.thread
            if thread.is_handling:
                # Inside `handle` for another connection, which may hold locks: later.
                thread.post(self.resume)
            else:
                self.resume()
        elif not self._is_reading:
            self.start_reading()

    def resume(self) -> None:
        if self.state or self._unsent or self.is_closed:
            return
        frames, self.pending = self.pending, []
        if frames:
            self._handle(frames)
        if not self.pending:
            self._go_on()

    def on_room(self) -> None:
        """There is room in the request queue again."""
        if not self._is_reading and not self.state and not self._unsent and not self.is_closed:
            self.start_reading()

    # Writing

    def send(self, chunks: list[Chunk]) -> None:
        if self.is_closed or not chunks:
            return
        if self._unsent:
            self._unsent.extend(chunks)
            return
        self.last_active_ns = monotonic_ns()
        self._unsent.extend(chunks)
        self._send_unsent()
        if self._unsent:
            self.thread.add_writer(self._transport.fd, self.on_writable)

    def _flush(self, gather: Gather) -> None:
        if gather.splices or self._unsent:
            self.send(gather.take())
            return
        out = gather.out
        try:
            sent = self._transport.send(out)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            gather.drop()
            self._lost(error)
            return
        if sent < len(out):
            self._unsent.append(bytes(out[sent:]))
            self.thread.add_writer(self._transport.fd, self.on_writable)
        del out[:]

    def on_writable(self) -> None:
        now_ns = monotonic_ns()
        self._send_unsent()
        self.last_active_ns = now_ns
        if not self._unsent and not self.is_closed:
            self.thread.remove_writer(self._transport.fd)
            self._go_on()
        self.thread.busy_ns += monotonic_ns() - now_ns

    def _send_unsent(self) -> None:
        """Send what goes now: small neighbours as one, long slices from their files.

        The socket is not corked: where the congestion control paces (BBR), each packet of a corked stream sets a timer, and a
        long answer costs three times as much (with CUBIC it makes no difference). Only the head of an answer is held back to
        leave with the first slice. Under BBR, CPU ms per MB for 1 and 4 consumers: so 0.35 and 0.26, with all heads of
        partitions held back 0.40 and 0.26, with none 0.36 and 0.42.
        """
        unsent = self._unsent
        transport = self._transport
        start = self._unsent_start
        done = turn = 0
        last = len(unsent) - 1
        try:
            while done <= last and turn < TURN_BYTES:
                chunk = unsent[done]
                size = len(chunk)
                if size <= SMALL_BYTES and done < last and not start and len(unsent[done + 1]) <= SMALL_BYTES:
                    done = _pack(unsent, done)
                    chunk = unsent[done]
                    size = len(chunk)
                if not isinstance(chunk, _BUFFERS):
                    sent = transport.send_slice(chunk, start)
                    if sent == 0:
                        raise ShortFileError(f"{chunk} is {size - start} bytes longer than its file")
                else:
                    rest = memoryview(chunk)[start:] if start else chunk
                    sent = transport.send(rest) if turn or done == last else transport.send_more(rest)
                start += sent
                turn += sent
                if start < size:
                    # The socket is full; to be told so would cost another call.
                    break
                done += 1
                start = 0
        except (BlockingIOError, InterruptedError):
            pass
        except ShortFileError as error:
            self.close(str(error))
            return
        except OSError as error:
            self._unsent_start = start
            del unsent[:done]
            self._lost(error)
            return
        self._unsent_start = start
        del unsent[:done]

    # Ending

    def on_broken(self) -> None:
        """The peer has reset the connection, whether or not we were reading or writing."""
        if self._is_reading:
            # What came before the reset is still there to be read; the reset itself is read after it.
            self.on_readable()
        if self._is_reading or self.is_closed:
            return
        # Nothing is read now, so nobody would read the reset; it would be told of again in every turn until somebody does.
        error = self._transport.error()
        self._lost(OSError(error or errno.EPIPE, os.strerror(error or errno.EPIPE)))

    def expire(self, before_ns: int, idle_ms: int) -> None:
        """Close it if nothing went either way since `before_ns`, or too little of a request. One that waits for us is closed
        only if its peer has ended its side, since then we are all that keeps it."""
        if self.last_active_ns >= before_ns or self.state is State.QUEUED:
            return
        if self.state is State.WAITING or self.owed:
            if self._transport.has_ended():
                self.close(f"it ended its side, and its answer did not come in connections.max.idle.ms = {idle_ms:,}")
            return
        if not (self._is_reading or self._unsent):
            return
        progress = self._framer.progress()
        if self._unsent:
            self.close(f"it took no byte of {self._unsent_bytes():,} for connections.max.idle.ms = {idle_ms:,}")
        elif progress is not None:
            self.close(f"{progress} came, and not enough of it within connections.max.idle.ms = {idle_ms:,}")
        else:
            self.close("idle", logging.DEBUG)

    def close(self, reason: str | None, level: int = logging.WARNING) -> None:
        if self.is_closed:
            return
        self.is_closing = self.is_closed = True
        if reason is not None:
            logger.log(level, "closing the connection of %s on %s: %s", self, self.listener_name, reason)
        fd = self._transport.fd
        self._stop_reading()
        self.thread.remove_writer(fd)
        self.thread.on_closed(self, fd)
        self._transport.close()
        self._unsent.clear()
        self.owed.clear()
        if self.state is not State.QUEUED:
            self.pending.clear()
        self._waiting_for = self._early_answer = None

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self.thread.remove_reader(self._transport.fd)

    def _unsent_bytes(self) -> int:
        return sum(map(len, self._unsent)) - self._unsent_start

    def _ended_by_peer(self) -> None:
        progress = self._framer.progress()
        if progress is not None:
            self.close(f"it ended after {progress}", logging.INFO)
        else:
            self.close("it ended", logging.DEBUG)

    def _lost(self, error: OSError) -> None:
        what = error.strerror or str(error)
        if self._unsent:
            self.close(f"{what}, with {self._unsent_bytes():,} bytes of an answer not sent", logging.INFO)
        elif (progress := self._framer.progress()) is not None:
            self.close(f"{what}, after {progress}", logging.INFO)
        else:
            self.close(what, logging.DEBUG)


class ShortFileError(Exception):
    """A file has fewer bytes than a slice of it."""


def _pack(chunks: list[Chunk], first: int) -> int:
    """Make one chunk of the small ones from `first` on, at most GATHER_BYTES, and tell where in `chunks` it is now."""
    total = 0
    end = first
    while end < len(chunks):
        size = len(chunks[end])
        if size > SMALL_BYTES or total + size > GATHER_BYTES:
            break
        total += size
        end += 1
    if end - first < 2:
        return first
    parts = []
    for chunk in chunks[first:end]:
        if isinstance(chunk, _BUFFERS):
            parts.append(chunk)
        else:
            found = chunk.read()
            if len(found) < len(chunk):
                raise ShortFileError(f"{chunk} is {len(chunk) - len(found)} bytes longer than its file")
            parts.append(found)
    chunks[end - 1] = b"".join(parts)
    return end - 1
