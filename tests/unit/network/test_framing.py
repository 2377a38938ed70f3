from __future__ import annotations

import random
import struct

import pytest

from pybroker.network.framing import Framer, Spares, describe_foreign

BUFFER_BYTES = 4096


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class Stream:
    """Feeds a framer as a connection does: reads into the spaces it names."""

    def __init__(self, max_bytes: int = 1_000_000) -> None:
        self.spares = Spares()
        self.framer = Framer(max_bytes, self.spares)
        self.buffer = memoryview(bytearray(BUFFER_BYTES))
        self.frames: list[bytes] = []

    def receive(self, data: bytes) -> None:
        while data and self.framer.error is None:
            spaces = [self.buffer] if self.framer.reads_plainly else self.framer.spaces(self.buffer)
            count = 0
            for space in spaces:
                piece, data = data[: len(space)], data[len(space) :]
                space[: len(piece)] = piece
                count += len(piece)
            del spaces, space
            self.frames += map(bytes, self.framer.feed(self.buffer, count))


def test_several_frames_in_one_read() -> None:
    stream = Stream()
    stream.receive(framed(b"one") + framed(b"") + framed(b"three"))
    assert stream.frames == [b"one", b"", b"three"]
    assert stream.framer.is_empty


@pytest.mark.parametrize("longest", [1, 3, 100, 5000, 100_000])
@pytest.mark.parametrize("seed", range(5))
def test_any_chunking_gives_the_same_frames(seed: int, longest: int) -> None:
    rng = random.Random(seed)
    sizes = (0, 1, 10, 500) if longest < 100 else (0, 1, 10, 500, 4092, 4096, 5000, 40_000, 70_000, 300_000)
    payloads = [rng.randbytes(rng.choice(sizes)) for _ in range(20)]
    data = b"".join(map(framed, payloads))
    stream = Stream()
    while data:
        size = rng.randrange(1, longest + 1)
        stream.receive(data[:size])
        data = data[size:]
    assert stream.frames == payloads
    assert stream.framer.is_empty
    assert stream.framer.error is None


def test_frames_are_writable_views_of_what_was_read() -> None:
    stream = Stream()
    data = framed(b"abc")
    stream.buffer[: len(data)] = data
    (frame,) = stream.framer.feed(stream.buffer, len(data))
    frame[0] = ord("x")
    assert frame.obj is stream.buffer.obj
    assert bytes(stream.buffer[4:7]) == b"xbc"


def test_an_unfinished_frame_does_not_touch_what_is_read_next() -> None:
    """Its beginning is kept apart: other connections read into the same buffer meanwhile."""
    stream = Stream()
    stream.receive(framed(b"abcdefgh")[:9])
    stream.buffer[:] = bytes(BUFFER_BYTES)
    stream.receive(b"fgh" + framed(b"next"))
    assert stream.frames == [b"abcdefgh", b"next"]


def test_what_is_kept_grows_with_the_bytes_that_came_not_with_the_length_claimed() -> None:
    stream = Stream(max_bytes=100 * 1024 * 1024)
    stream.receive(struct.pack(">i", 100 * 1024 * 1024) + b"x")
    assert sum(map(len, stream.framer.spaces(stream.buffer))) <= 16 * 1024
    for _ in range(20):
        stream.receive(bytes(4096))
    kept = 20 * 4096 + 1
    assert sum(map(len, stream.framer.spaces(stream.buffer))) + kept <= 2 * (kept + 4096)


def test_a_large_buffer_is_used_again_when_nobody_looks_at_it_any_more() -> None:
    stream = Stream()
    stream.receive(framed(bytes(300_000))[:-1])
    (frame,) = stream.framer.feed(stream.buffer, _read(stream, b"x"))
    assert bytes(frame) == bytes(299_999) + b"x"
    stream.spares.give(frame.obj)
    stream.receive(framed(b"y" * 400_000)[:-1])
    (second,) = stream.framer.feed(stream.buffer, _read(stream, b"z"))
    assert second.obj is frame.obj
    assert bytes(second) == b"y" * 399_999 + b"z"


def test_the_buffer_of_a_frame_that_came_in_two_reads_is_of_use_again() -> None:
    """Most of it came with the first, so that its buffer was made for less than a spare one holds."""
    spares = Spares()
    framer = Framer(1_000_000, spares)
    buffer = memoryview(bytearray(256 * 1024))
    data = framed(bytes(200_000))
    buffer[:110_000] = data[:110_000]
    assert framer.feed(buffer, 110_000) == []
    rest = data[110_000:]
    space = framer.spaces(buffer)[0]
    space[: len(rest)] = rest
    (frame,) = framer.feed(buffer, len(rest))
    spares.give(frame.obj)
    assert spares.take(256 * 1024) is frame.obj


def test_behind_a_large_frame_the_next_is_read_to_where_it_stays() -> None:
    stream = Stream()
    stream.receive(framed(b"a" * 100_000))
    assert not stream.framer.reads_plainly
    length, room = stream.framer.spaces(stream.buffer)
    assert (len(length), len(room)) == (4, 100_000), "no more than this one, lest the next have to be moved"
    length[:], room[:] = (100_000).to_bytes(4, "big"), b"b" * 100_000
    (frame,) = stream.framer.feed(stream.buffer, 100_004)
    assert frame.obj is room.obj
    assert bytes(frame) == b"b" * 100_000


def test_what_comes_instead_of_a_large_frame_is_understood_all_the_same() -> None:
    large = framed(b"a" * 100_000)
    for rest in (
        [b"\0", b"\0\0\x05small"],  # not even a whole length
        [framed(b"small")],
        [framed(b"small") + framed(b"") + framed(b"b" * 90_000)[:500], framed(b"b" * 90_000)[500:]],
        [framed(b"c" * 150_000)[:120_000], framed(b"c" * 150_000)[120_000:]],  # larger still
        [framed(b"c" * 99_000) + framed(b"d" * 99_000)],
    ):
        stream = Stream()
        stream.receive(large)
        for piece in rest:
            stream.receive(piece)
        assert b"".join(map(framed, stream.frames)) == large + b"".join(rest)
        assert stream.framer.is_empty
    stream = Stream()
    stream.receive(large + b"GET / HTTP/1.1")
    assert stream.framer.error == "this is an HTTP request, not a Kafka request"


def test_a_buffer_that_somebody_looks_at_is_no_spare_one() -> None:
    spares = Spares()
    buffer = bytearray(128 * 1024)
    view = memoryview(buffer)[10:20]
    spares.give_if_free(buffer)
    assert spares.take(128 * 1024) is None
    view.release()
    spares.give_if_free(buffer)
    assert spares.take(128 * 1024) is buffer
    assert len(buffer) == 128 * 1024


def test_so_many_spare_buffers_and_no_more() -> None:
    spares = Spares()
    for _ in range(100):
        spares.give(bytearray(1024 * 1024))
        spares.give(bytearray(1024))
        spares.give(bytearray(64 * 1024 * 1024))
    assert sum(spares.take(1024 * 1024) is not None for _ in range(100)) == 4
    assert spares.take(1024) is None
    assert spares.take(64 * 1024 * 1024) is None


def _read(stream: Stream, data: bytes) -> int:
    space = stream.framer.spaces(stream.buffer)[0]
    space[: len(data)] = data
    return len(data)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"GET / HTTP/1.1\r\n", "this is an HTTP request, not a Kafka request"),
        (b"POST /x", "this is an HTTP request, not a Kafka request"),
        (bytes.fromhex("1603010200010001fc0303"), "this is a TLS handshake, not a Kafka request"),
        (b"\xff\xff\xff\xff", "a request with a length of -1 bytes"),
        (b"\x80\x00\x00\x00", "a request with a length of -2147483648 bytes"),
        (struct.pack(">i", 1_000_001), "a request of 1,000,001 bytes, more than socket.request.max.bytes = 1,000,000"),
    ],
)
def test_what_is_no_frame_is_named(data: bytes, problem: str) -> None:
    stream = Stream()
    stream.receive(framed(b"good") + data)
    assert stream.frames == [b"good"]
    assert stream.framer.error == problem


def test_a_tls_hello_is_no_length_even_if_lengths_may_be_as_large() -> None:
    stream = Stream(max_bytes=2**31 - 1)
    stream.receive(bytes.fromhex("16030102"))
    assert stream.framer.error == "this is a TLS handshake, not a Kafka request"


def test_a_large_length_is_fine_if_the_limit_allows_it() -> None:
    stream = Stream(max_bytes=2**31 - 1)
    stream.receive(struct.pack(">i", 0x17000000) + b"abc")
    assert stream.framer.error is None
    assert stream.framer.progress() == "3 of 385,875,968 bytes of a request"


def test_the_largest_length_allowed() -> None:
    stream = Stream(max_bytes=10)
    stream.receive(framed(bytes(10)))
    assert stream.frames == [bytes(10)]
    stream.receive(framed(bytes(11)))
    assert stream.framer.error is not None


def test_progress_in_words() -> None:
    stream = Stream()
    assert stream.framer.progress() is None
    stream.receive(b"\0\0")
    assert stream.framer.progress() == "2 of the 4 bytes of a length"
    stream.receive(b"\0\x09ab")
    assert stream.framer.progress() == "2 of 9 bytes of a request"


def test_foreign_protocols() -> None:
    assert describe_foreign(b"\0\0\0\x20") is None
    assert describe_foreign(b"PRI * HTTP/2.0") == "an HTTP request"


def test_the_length_of_a_node_that_we_connected_to_is_believed_and_its_answer_stays_where_it_is_read_to() -> None:
    framer = Framer(1 << 30, Spares(), "response", believes=True)
    buffer = memoryview(bytearray(1024))
    buffer[:1000] = (5000).to_bytes(4, "big") + b"a" * 996
    assert framer.feed(buffer, 1000) == []
    assert framer.progress() == "996 of 5,000 bytes of a response"
    room, shared = framer.spaces(buffer)
    assert (len(room), shared) == (4004, buffer)
    room[:] = b"b" * 4004
    (frame,) = framer.feed(buffer, 4004)
    assert bytes(frame) == b"a" * 996 + b"b" * 4004
    assert frame.obj is room.obj, "the rest was read to where the frame is"


def test_a_tls_listener_that_was_spoken_to_in_plain_is_recognised() -> None:
    framer = Framer(1 << 30, Spares(), "response", believes=True)
    buffer = memoryview(bytearray(b"\x15\x03\x03\x00\x02\x02\x46"))
    assert framer.feed(buffer, len(buffer)) == []
    assert framer.error == "this is a TLS alert, not a Kafka response"
