"""Cutting a stream of bytes into frames: a length of four bytes, then so many bytes. Pure: no socket is seen here.

Whole frames are views of the buffer that was read into. The beginning of one that is not whole yet is kept, and the rest of
it is read right behind: first into `spaces`, then it is told to `feed`. Behind a large frame another one is expected, and read
to where it will stay, so that its bytes are not copied. What is kept grows with the bytes that have come, never with the length
that was claimed; but of a node that we ourselves connected to, the length is believed.
"""

from __future__ import annotations

import struct
from typing import Final

_length: Final = struct.Struct(">i").unpack_from
LENGTH_BYTES: Final = 4

# From here on a length may be the beginning of a TLS record (0x15 0x03 …, 0x16 0x03 …) or of a word, as HTTP has them.
_SUSPICIOUS: Final = 0x15000000
_AT_FIRST: Final = 16 * 1024
# A buffer from here on is fresh memory of the system's, which costs more than the reading; so it is used again, up to there.
_SPARE_FROM: Final = 64 * 1024
_SPARE_TO: Final = 2 * 1024 * 1024
_SPARES_BYTES: Final = 4 * 1024 * 1024

_HTTP: Final = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ", b"HTTP")


def describe_foreign(start: bytes) -> str | None:
    """What these first bytes are, if they are no length but another protocol."""
    if start[:4] in _HTTP:
        return "an HTTP request"
    if start[:2] == b"\x16\x03":
        return "a TLS handshake"
    if start[:2] == b"\x15\x03":
        return "a TLS alert"
    return None


class Spares:
    """Buffers for large frames, shared by the connections of a thread."""

    __slots__ = ("_buffers", "_bytes")

    def __init__(self) -> None:
        self._buffers: dict[int, list[bytearray]] = {}
        self._bytes = 0

    def take(self, capacity: int) -> bytearray | None:
        buffers = self._buffers.get(capacity)
        if not buffers:
            return None
        self._bytes -= capacity
        return buffers.pop()

    def give_if_free(self, buffer: bytearray) -> None:
        """As `give`, if nobody has a view of `buffer` any more."""
        try:
            # As long as there is one, the buffer cannot be resized.
            buffer.append(buffer.pop())
        except BufferError:
            return
        self.give(buffer)

    def give(self, buffer: bytearray) -> None:
        """Nobody looks at `buffer` any more."""
        capacity = len(buffer)
        # One of another size than a power of two, which a frame in pieces grew to, would be in the way for ever.
        is_usable = _SPARE_FROM < capacity <= _SPARE_TO and not capacity & (capacity - 1)
        if is_usable and self._bytes + capacity <= _SPARES_BYTES:
            self._bytes += capacity
            self._buffers.setdefault(capacity, []).append(buffer)


def _capacity(size: int) -> int:
    """Sizes of spare buffers are powers of two, so that one fits many frames."""
    return 1 << (size - 1).bit_length() if _SPARE_FROM < size <= _SPARE_TO else size


class Framer:
    __slots__ = (
        "_ahead",
        "_believes",
        "_ceiling",
        "_expected",
        "_head",
        "_kind",
        "_length",
        "_max_bytes",
        "_partial",
        "_room",
        "_size",
        "_spares",
        "error",
        "is_empty",
        "reads_plainly",
    )

    def __init__(self, max_bytes: int, spares: Spares, kind: str = "request", *, believes: bool = False) -> None:
        """With `believes` a length is taken for true: a frame that does not come whole gets a buffer for all of it at once."""
        self._max_bytes = max_bytes
        self._spares = spares
        self._kind = kind
        self._believes = believes
        self._ceiling = min(max_bytes, _SUSPICIOUS - 1)
        self._head = b""  # of a frame of which not even the length is whole
        self._partial: bytearray | None = None
        self._room = 0  # where the next byte goes in it
        self._size = 0  # of the frame it will be
        self._expected = 0  # the size of the last frame, if it was a large one
        self._length = bytearray(LENGTH_BYTES)
        self._ahead: bytearray | None = None  # what was given out as space for a frame that is expected
        self.is_empty = True  # nothing is kept
        self.reads_plainly = True  # `spaces` need not be asked: the shared buffer is all
        self.error: str | None = None  # why nothing after the frames given out so far can be read

    def spaces(self, buffer: memoryview) -> list[memoryview]:
        """Where to read into, in this order, `buffer` being the shared one."""
        partial = self._partial
        if partial is None:
            if self.is_empty and self._expected:
                ahead = self._ahead or self._buffer(self._expected, self._expected)
                self._ahead = ahead
                # Of requests, of which one follows the other, no more than this one: the next has a place of its own.
                return [memoryview(self._length), memoryview(ahead) if self._believes else memoryview(ahead)[: self._expected]]
            kept = len(self._head)
            buffer[:kept] = self._head
            return [buffer[kept:]]
        room, size = self._room, self._size
        if room == len(partial):
            partial = self._buffer(size, 2 * room)
            partial[:room] = self._partial  # type: ignore[assignment]
            self._partial = partial
        free = memoryview(partial)[room:size]
        return [free, buffer] if len(partial) >= size else [free]

    def feed(self, buffer: memoryview, count: int) -> list[memoryview]:
        """`count` bytes were read into `buffer`, or into `spaces` of it: the frames that are now whole."""
        frames: list[memoryview] = []
        if self._ahead is not None:
            frames, buffer, count = self._feed_ahead(self._ahead, count)
        elif not self.is_empty:
            partial = self._partial
            if partial is None:
                count += len(self._head)
                self._head = b""
            else:
                size = self._size
                taken = min(count, min(len(partial), size) - self._room)
                self._room += taken
                if self._room < size:
                    return frames
                frames.append(self._whole(partial, size))
                count -= taken
            self.is_empty = self.reads_plainly = True
        position = 0
        ceiling = self._ceiling
        while count - position >= LENGTH_BYTES:
            size = _length(buffer, position)[0]
            if not 0 <= size <= ceiling and self._is_wrong(buffer, position, size):
                return frames
            start = position + LENGTH_BYTES
            position = start + size
            if position > count:
                self._keep(buffer[start:count], size)
                return frames
            frames.append(buffer[start:position])
            self._expected = 0
        if position < count:
            self._head = bytes(buffer[position:count])
            self.is_empty = self.reads_plainly = False
        elif self._expected:
            self.reads_plainly = False
        return frames

    def _feed_ahead(self, ahead: bytearray, count: int) -> tuple[list[memoryview], memoryview, int]:
        """What was expected has come, or something else: a whole frame, if there is one, and what lies behind it, apart."""
        self._ahead = None
        self.reads_plainly = True
        come = count - LENGTH_BYTES
        size = _length(self._length)[0] if come >= 0 else -1
        if not 0 <= come <= size <= self._ceiling:
            # Less than a length, no length, or a smaller frame than the last: as if it were read in the usual way.
            self._expected = 0
            apart = memoryview(self._length + memoryview(ahead)[: max(0, come)])
            self._spares.give(ahead)
            return [], apart, count
        if come == size:
            return [self._whole(ahead, size)], memoryview(ahead)[:0], 0
        self._partial, self._room, self._size = ahead, come, size
        self.is_empty = self.reads_plainly = False
        return [], memoryview(ahead)[:0], 0

    def _whole(self, buffer: bytearray, size: int) -> memoryview:
        """The frame of `size` bytes that `buffer` now holds."""
        self._partial = None
        if size < _SPARE_FROM or size > _SPARE_TO:
            self._expected = 0
        else:
            # The next answer may be a longer one again.
            self._expected = max(size, self._expected * 7 // 8) if self._believes else size
        view = memoryview(buffer)
        return view if len(buffer) == size else view[:size]

    def under_way(self) -> int:
        """The size of the frame whose beginning is kept, by its own word; 0 if there is none."""
        return 0 if self._partial is None else self._size

    def progress(self) -> str | None:
        """How much of an unfinished frame has come, in words."""
        if self.is_empty:
            return None
        if self._partial is None:
            return f"{len(self._head)} of the 4 bytes of a length"
        return f"{self._room:,} of {self._size:,} bytes of a {self._kind}"

    def _keep(self, start: memoryview, size: int) -> None:
        come = len(start)
        self._room = come
        self._size = size
        self._partial = partial = self._buffer(size, max(_AT_FIRST, 2 * come))
        partial[:come] = start
        self.is_empty = self.reads_plainly = False

    def _buffer(self, size: int, at_most: int) -> bytearray:
        """For a whole frame of `size` if its length is believed or there is a spare one, else of `at_most` bytes."""
        capacity = _capacity(size)
        return self._spares.take(capacity) or bytearray(capacity if at_most >= size or self._believes else at_most)

    def _is_wrong(self, buffer: memoryview, position: int, size: int) -> bool:
        foreign = describe_foreign(bytes(buffer[position : position + LENGTH_BYTES]))
        if foreign is not None:
            self.error = f"this is {foreign}, not a Kafka {self._kind}"
        elif size < 0:
            self.error = f"a {self._kind} with a length of {size} bytes"
        elif size > self._max_bytes:
            self.error = f"a {self._kind} of {size:,} bytes, more than socket.request.max.bytes = {self._max_bytes:,}"
        return self.error is not None
