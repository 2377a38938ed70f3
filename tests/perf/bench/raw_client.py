"""A client that costs little: frames encoded beforehand, answers checked at fixed positions, fetched records thrown away by
the kernel (MSG_TRUNC). It checks every answer: error codes, correlation ids, offsets that advance.

One thread and epoll for producing, a blocking thread per consumer for fetching.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from perf.bench.frames import FETCH_VERSION, PARTITION_MAX_BYTES, PRODUCE_VERSION, fetch_frame, with_correlation_id

from pybroker.base.ids import Uuid
from pybroker.protocol.api_table import APIS
from pybroker.protocol.messages.produce import ProduceResponse

_INT32 = struct.Struct(">i")
_IN, _IN_OUT = select.EPOLLIN, select.EPOLLIN | select.EPOLLOUT
_RECEIVE_BYTES = 65_536
_TIMEOUT_S = 30.0
_SEND_AT_ONCE = 8


class WrongAnswerError(Exception):
    """The broker refused, or answered something else than what was asked."""


@dataclass(slots=True)
class Produced:
    """What one run of a producer did."""

    requests: int = 0
    seconds: float = 0.0
    latencies_ns: list[int] = field(default_factory=list)


class _ProducerConnection:
    """A connection with up to `in_flight` unanswered requests, taken from `frames` in turn."""

    def __init__(self, address: tuple[str, int], frames: Sequence[bytes], in_flight: int, partitions_a_request: int) -> None:
        self.socket = connect(address)
        self.socket.setblocking(False)
        self.fd = self.socket.fileno()
        self.in_flight = in_flight
        self.to_send = 0
        self.blocked = False
        # Correlation ids tell the frames of the ring apart; as many rings as it takes to be longer than the window.
        ring = len(frames) * -(-max(in_flight, _SEND_AT_ONCE) // len(frames))
        self._ring = [with_correlation_id(frames[number % len(frames)], number) for number in range(ring)]
        self._next_sent = 0
        self._next_answered = 0
        self._unsent: list[memoryview] = []
        self._sent_at: deque[int] = deque()
        self._received = bytearray()
        self._last_offset: dict[int, int] = {}
        self._rows = partitions_a_request
        # size, correlation id, header tags | topics, topic id, partitions (compact) | index, error, base offset, append time,
        # log start, record errors, error message, tags | tags | throttle time, tags
        self._answer = struct.Struct(">iiBB16sB" + "ihqqqBBB" * partitions_a_request + "BiB")

    def fill(self) -> None:
        """Send until the window is full or the socket is."""
        if self._unsent and not self._flush():
            return
        while self.to_send and (room := self.in_flight - len(self._sent_at)) > 0:
            count = min(room, self.to_send, _SEND_AT_ONCE)
            ring, start = self._ring, self._next_sent
            self._unsent = [memoryview(ring[(start + number) % len(ring)]) for number in range(count)]
            self._next_sent = (start + count) % len(ring)
            self.to_send -= count
            now = time.monotonic_ns()
            self._sent_at.extend((now,) * count)
            if not self._flush():
                return

    def _flush(self) -> bool:
        pieces = self._unsent
        while pieces:
            try:
                sent = self.socket.sendmsg(pieces)
            except BlockingIOError:
                self.blocked = True
                return False
            while pieces and sent >= len(pieces[0]):
                sent -= len(pieces[0])
                del pieces[0]
            if sent:
                pieces[0] = pieces[0][sent:]
        self.blocked = False
        return True

    def receive(self, latencies_ns: list[int]) -> int:
        """Take in the answers that are there, and say how many."""
        data = self.socket.recv(_RECEIVE_BYTES)
        if not data:
            raise WrongAnswerError("the broker closed the connection")
        received = self._received
        if received:
            received += data
            data = bytes(received)
            received.clear()
        now = time.monotonic_ns()
        position, answers, end = 0, 0, len(data)
        while end - position >= 4:
            size = 4 + _INT32.unpack_from(data, position)[0]
            if end - position < size:
                break
            self._check(data, position, size)
            latencies_ns.append(now - self._sent_at.popleft())
            position += size
            answers += 1
        if position < end:
            received += data[position:]
        return answers

    def _check(self, data: bytes, position: int, size: int) -> None:
        expected, self._next_answered = self._next_answered, (self._next_answered + 1) % len(self._ring)
        if size != self._answer.size:
            raise WrongAnswerError(f"Produce: {_decoded(data[position + 4 : position + size])}")
        fields = self._answer.unpack_from(data, position)
        if fields[1] != expected:
            raise WrongAnswerError(f"Produce: correlation id {fields[1]}, expected {expected}")
        last = self._last_offset
        for row in range(6, 6 + 8 * self._rows, 8):
            index, error, offset = fields[row : row + 3]
            if error or offset <= last.get(index, -1):
                raise WrongAnswerError(f"Produce: {_decoded(data[position + 4 : position + size])} after offset {last}")
            last[index] = offset


class RawProducer:
    """Connections that keep brokers busy; each goes to an address and takes its own frames."""

    def __init__(self, ways: Sequence[tuple[str, Sequence[bytes]]], in_flight: int, partitions_a_request: int = 1) -> None:
        self._connections = [
            _ProducerConnection(parsed_address(address), frames, in_flight, partitions_a_request) for address, frames in ways
        ]
        self._by_fd = {connection.fd: connection for connection in self._connections}
        self._epoll = select.epoll()
        for connection in self._connections:
            self._epoll.register(connection.fd, _IN)

    def run(self, requests: int, limit_s: float) -> Produced:
        """`requests` over all connections, or as many as are sent in `limit_s`; ends when all are answered."""
        done = Produced()
        connections, by_fd, epoll = self._connections, self._by_fd, self._epoll
        share, rest = divmod(requests, len(connections))
        began = time.monotonic()
        deadline = began + limit_s
        for number, connection in enumerate(connections):
            connection.to_send = share + (number < rest)
        expected = requests
        for connection in connections:
            connection.fill()
            epoll.modify(connection.fd, _IN_OUT if connection.blocked else _IN)
        while done.requests < expected:
            ready = epoll.poll(_TIMEOUT_S)
            if not ready:
                raise WrongAnswerError(f"no answer within {_TIMEOUT_S} s")
            for fd, events in ready:
                connection = by_fd[fd]
                if events & ~select.EPOLLOUT:
                    done.requests += connection.receive(done.latencies_ns)
                blocked = connection.blocked
                connection.fill()
                if connection.blocked is not blocked:
                    epoll.modify(fd, _IN_OUT if connection.blocked else _IN)
            if time.monotonic() > deadline:
                for connection in connections:
                    expected -= connection.to_send
                    connection.to_send = 0
        done.seconds = time.monotonic() - began
        return done

    def close(self) -> None:
        self._epoll.close()
        for connection in self._connections:
            connection.socket.close()


class FetchConnection:
    """One Fetch at a time over some partitions of a topic whose batches are all alike."""

    # size, correlation id, header tags | throttle time, error, session | topics, topic id, partitions (compact)
    _HEAD = struct.Struct(">iiBihiB16sB")
    # index, error, high watermark, last stable offset, log start | aborted transactions, preferred replica
    _ROW = struct.Struct(">ihqqqBi")
    # base offset, batch length, leader epoch, magic
    _BATCH = struct.Struct(">qiib")
    # Never written to: the kernel is told to throw the bytes away.
    _NOWHERE = bytearray(1 << 26)

    def __init__(
        self,
        address: str,
        topic_id: Uuid,
        partitions: Sequence[int],
        batch_bytes: int,
        batch_records: int,
        partition_max_bytes: int = PARTITION_MAX_BYTES,
    ) -> None:
        self.socket = connect(parsed_address(address))
        self.topic_id = topic_id
        self.offsets = dict.fromkeys(partitions, 0)
        self.high_watermarks = dict.fromkeys(partitions, 0)
        self._batch_bytes = batch_bytes
        self._batch_records = batch_records
        self._partition_max_bytes = partition_max_bytes
        self._unread = b""
        self._correlation_id = 0

    def ask(self) -> None:
        self._correlation_id += 1
        self.socket.sendall(
            fetch_frame(self.topic_id, list(self.offsets.items()), self._correlation_id, self._partition_max_bytes)
        )

    def answer(self) -> int:
        """Bytes of records in the answer; `offsets` then point behind it."""
        fields = self._HEAD.unpack(self._take(self._HEAD.size))
        _, correlation_id, _, _, error, _, topics, _, rows = fields
        if error or correlation_id != self._correlation_id or topics > 2:
            raise WrongAnswerError(f"Fetch: error {error}, correlation id {correlation_id}, {topics - 1} topics")
        total = 0
        for _ in range(rows - 1):
            total += self._partition()
        self._take(2)  # tags of the topic and of the message
        return total

    def _partition(self) -> int:
        index, error, high_watermark, _, _, aborted, _ = self._ROW.unpack(self._take(self._ROW.size))
        if error or aborted > 1:
            raise WrongAnswerError(f"Fetch: error {error} for partition {index}, aborted transactions {aborted}")
        size = self._uvarint() - 1
        if size > 0:
            base_offset, length, _, magic = self._BATCH.unpack(self._take(self._BATCH.size))
            if (base_offset, length, magic) != (self.offsets[index], self._batch_bytes - 12, 2):
                raise WrongAnswerError(f"Fetch: batch at {base_offset} of {length} bytes, asked for {self.offsets[index]}")
            self._discard(size - self._BATCH.size)
            self.offsets[index] += size // self._batch_bytes * self._batch_records
        self.high_watermarks[index] = high_watermark
        self._take(1)  # tags
        return max(0, size)

    def _uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _take(self, size: int) -> bytes:
        while len(self._unread) < size:
            data = self.socket.recv(512)
            if not data:
                raise WrongAnswerError("the broker closed the connection")
            self._unread += data
        taken, self._unread = self._unread[:size], self._unread[size:]
        return taken

    def _discard(self, size: int) -> None:
        have = min(size, len(self._unread))
        self._unread = self._unread[have:]
        size -= have
        while size:
            got = self.socket.recv_into(self._NOWHERE, size, socket.MSG_TRUNC | socket.MSG_WAITALL)
            if not got:
                raise WrongAnswerError("the broker closed the connection")
            size -= got


@dataclass(slots=True)
class Fetched:
    bytes: int = 0
    requests: int = 0
    seconds: float = 0.0
    latencies_ns: list[int] = field(default_factory=list)


def fetch_all(connections: Sequence[FetchConnection], limit_s: float) -> Fetched:
    """Each connection on a thread of its own reads its partitions to the end, again and again, until `limit_s` is over."""
    parts = [Fetched() for _ in connections]
    problems: list[BaseException] = []
    began = time.monotonic()

    def read(connection: FetchConnection, part: Fetched) -> None:
        try:
            while time.monotonic() < began + limit_s:
                asked = time.monotonic_ns()
                connection.ask()
                part.bytes += connection.answer()
                part.latencies_ns.append(time.monotonic_ns() - asked)
                part.requests += 1
                if connection.offsets == connection.high_watermarks:
                    connection.offsets = dict.fromkeys(connection.offsets, 0)
        except BaseException as problem:
            problems.append(problem)

    threads = [
        threading.Thread(target=read, args=(connection, part)) for connection, part in zip(connections, parts, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    seconds = time.monotonic() - began
    latencies = [latency for part in parts for latency in part.latencies_ns]
    return Fetched(sum(part.bytes for part in parts), sum(part.requests for part in parts), seconds, latencies)


def end_to_end(
    address: str, produce: bytes, consumer: FetchConnection, batch_bytes: int, samples: int, pause_s: float
) -> list[int]:
    """Nanoseconds from sending a record to having it, for a consumer that was waiting, `samples` times."""
    with connect(parsed_address(address)) as producer:
        latencies = []
        for _ in range(samples):
            consumer.ask()
            # Long enough for the Fetch to be waiting at the broker.
            time.sleep(pause_s)
            began = time.monotonic_ns()
            producer.sendall(produce)
            got = consumer.answer()
            while not got and time.monotonic_ns() - began < _TIMEOUT_S * 1e9:
                # It was answered with nothing after MAX_WAIT_MS.
                consumer.ask()
                got = consumer.answer()
            latencies.append(time.monotonic_ns() - began)
            if got != batch_bytes:
                raise WrongAnswerError(f"Fetch: {got} bytes of records, {batch_bytes} were written")
            size = _INT32.unpack(producer.recv(4, socket.MSG_WAITALL))[0]
            answer = _decoded(producer.recv(size, socket.MSG_WAITALL))
            if answer.responses[0].partition_responses[0].error_code:
                raise WrongAnswerError(f"Produce: {answer}")
        return latencies


def connect(address: tuple[str, int]) -> socket.socket:
    connection = socket.create_connection(address, _TIMEOUT_S)
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def parsed_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def _decoded(answer: bytes) -> ProduceResponse:
    """Slow; for what is not as expected, and where there is time."""
    api = next(api for api in APIS if api.key == ProduceResponse.KEY)
    header_bytes = 5 if api.response_header_version(PRODUCE_VERSION) else 4
    return ProduceResponse.decode(PRODUCE_VERSION, answer[header_bytes:])


assert FETCH_VERSION >= 13, "topics by id"
