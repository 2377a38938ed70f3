"""How connections of a running reactor end: peers that misbehave, idle or drip, and errors of ours."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.reactor import (
    FETCH,
    TIMEOUT_S,
    FakeService,
    Later,
    Owing,
    Running,
    answer,
    closing_lines,
    config,
    fetched,
    frame,
    running,
)
from support.waiting import wait_until

from pybroker.base.filesystem import OsFileSystem
from pybroker.log.segment import FileSlice
from pybroker.network import connection as connection_module
from pybroker.network.request import Request
from pybroker.protocol.messages.api_versions import ApiVersionsResponse


class TestPeersThatMisbehave:
    def test_one_that_reads_nothing_is_not_read_from_either(self) -> None:
        """Its answers stop where the socket's buffers end, however many requests it sends."""
        big = ApiVersionsResponse(error_code=0, api_keys=[], unknown_tagged_fields={99: bytes(100_000)})

        def handle(request: Request) -> bool:
            request.respond(big)
            return True

        count = 1000
        request = frame(5, version=3, body=b"\0")
        with running(FakeService(handle)) as node:
            client = node.client(receive_buffer_bytes=4096)
            sender = threading.Thread(target=client.socket.sendall, args=[request * count])
            sender.start()
            sender.join()
            wait_until(lambda: node.service.seen, TIMEOUT_S, lambda: "nothing was handled")
            other = node.client()
            other.socket.sendall(request)
            assert other.receive()[0] == 5
            assert len(node.service.seen) < 100
            assert client.receive_ids(count) == [5] * count

    def test_one_that_never_reads_is_closed_when_idle_too_long(self, caplog: pytest.LogCaptureFixture) -> None:
        big = ApiVersionsResponse(error_code=0, api_keys=[], unknown_tagged_fields={99: bytes(10_000_000)})

        def handle(request: Request) -> bool:
            request.respond(big)
            return True

        with running(FakeService(handle), config(connections_max_idle_ms=200)) as node:
            client = node.client(receive_buffer_bytes=4096)
            client.socket.sendall(frame(1, version=3, body=b"\0"))
            wait_until(lambda: node.service.seen, TIMEOUT_S, lambda: "nothing was handled")
            node.wait_for_connections(0)
        assert "connections.max.idle.ms = 200" in closing_lines(caplog)[0]

    def test_one_that_resets_in_the_middle_of_a_file(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        file = OsFileSystem().open(str(tmp_path / "segment"), create=True)
        file.write(0, bytes(20_000_000))

        def handle(request: Request) -> bool:
            request.respond(fetched(FileSlice(file, 0, 20_000_000)))
            return True

        with running(FakeService(handle)) as node:
            client = node.client(receive_buffer_bytes=4096)
            client.socket.sendall(frame(1, key=FETCH, version=12, body=b"\0"))
            client.socket.recv(1000)
            client.reset()
            node.wait_for_connections(0)
        assert "bytes of an answer not sent" in closing_lines(caplog)[0]
        file.close()

    def test_one_that_leaves_while_its_request_waits(self) -> None:
        later = Later()
        with running(FakeService(later)) as node:
            client = node.client()
            client.send(1, 2)
            later.wait(1)
            client.reset()
            answer(later.requests[0])
            wait_until(lambda: node.connections() == 0 or len(later.requests) > 1, TIMEOUT_S, lambda: "the connection went on")
            for request in later.requests[1:]:
                answer(request)
            node.wait_for_connections(0)

    def test_one_that_resets_while_its_request_waits_is_gone_before_the_answer(self) -> None:
        later = Later()
        with running(FakeService(later)) as node:
            client = node.client()
            client.send(1)
            later.wait(1)
            client.reset()
            node.wait_for_connections(0)
            answer(later.requests[0])

    def test_one_that_resets_right_after_its_requests_has_them_handled(self) -> None:
        """As a producer with acks=0 may."""
        entered, go = threading.Event(), threading.Event()

        def handle(request: Request) -> bool:
            if request.correlation_id == 0:
                entered.set()
                assert go.wait(TIMEOUT_S)
            request.respond_nothing()
            return True

        with running(FakeService(handle)) as node:
            blocker, client = node.client(), node.client()
            node.wait_for_connections(2)
            blocker.send(0)
            assert entered.wait(TIMEOUT_S)
            client.send(1, 2, 3)
            client.reset()
            go.set()
            node.wait_for_connections(1)
        assert [correlation_id for correlation_id, _, _ in node.service.seen] == [0, 1, 2, 3]

    def test_one_that_only_sends_and_closes_its_side_still_gets_its_answer(self) -> None:
        later = Later()
        with running(FakeService(later)) as node:
            client = node.client()
            client.send(1)
            client.socket.shutdown(1)
            later.wait(1)
            answer(later.requests[0])
            assert client.receive_ids(1) == [1]
            assert client.is_closed_by_server()


class TestIdle:
    def test_an_idle_connection_is_closed(self) -> None:
        with running(settings=config(connections_max_idle_ms=150)) as node:
            client = node.client()
            client.send(1)
            assert client.receive_ids(1) == [1]
            assert client.is_closed_by_server()

    def test_one_that_waits_for_our_answer_is_not_idle(self) -> None:
        later = Later()
        with running(FakeService(later), config(connections_max_idle_ms=150)) as node:
            waiting, idle = node.client(), node.client()
            waiting.send(1)
            later.wait(1)
            assert idle.is_closed_by_server()
            again = node.client()
            assert again.is_closed_by_server()
            answer(later.requests[0])
            assert waiting.receive_ids(1) == [1]

    @pytest.mark.parametrize("more", [(), (2,)], ids=["at once", "behind another request"])
    def test_one_that_ended_its_side_does_not_wait_for_its_answer_for_ever(
        self, caplog: pytest.LogCaptureFixture, more: Sequence[int]
    ) -> None:
        """A fetch may ask for a wait of weeks; nothing else would ever close its connection."""
        later = Later()
        with running(FakeService(later), config(connections_max_idle_ms=150)) as node:
            client = node.client()
            client.send(1)
            later.wait(1)
            client.send(*more)
            client.socket.shutdown(socket.SHUT_WR)
            node.wait_for_connections(0)
            answer(later.requests[0])
        (line,) = closing_lines(caplog)
        assert "it ended its side" in line

    def test_one_that_ended_its_side_does_not_wait_for_what_is_owed_for_ever(self) -> None:
        with running(Owing(), config(connections_max_idle_ms=150)) as node:
            client = node.client()
            client.send(2)
            node.service.wait_for(2)
            client.socket.shutdown(socket.SHUT_WR)
            node.wait_for_connections(0)
            node.service.settle(2)

    def test_never_if_the_time_is_negative(self) -> None:
        with running(settings=config(connections_max_idle_ms=-1)) as node:
            client = node.client()
            client.send(1)
            assert client.receive_ids(1) == [1]


class Dripping:
    """A client that sends a request in pieces, on a clock that stands still in between."""

    def __init__(self, node: Running, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1_000_000.0
        monkeypatch.setattr(connection_module, "monotonic_ns", lambda: int(self.now_s * 1e9))
        self.client = node.client()
        node.wait_for_connections(1)
        (self._thread,) = node.server._open["PLAINTEXT"].threads.started
        wait_until(lambda: self._thread.connections, TIMEOUT_S, lambda: "no connection")
        (self._connection,) = self._thread.connections

    def send(self, data: bytes) -> None:
        """Returns when it is read."""
        begun = self._read()
        self.client.socket.sendall(data)
        wait_until(lambda: self._read() - begun >= len(data), TIMEOUT_S, lambda: f"{self._read() - begun} bytes were read")

    def _read(self) -> int:
        framer = self._connection._framer
        return len(framer._head) if framer._partial is None else framer._room + 4

    def wait(self, seconds: float) -> bool:
        """Whether the connection is still there afterwards."""
        self.now_s += seconds
        before_ns = int((self.now_s - IDLE_S) * 1e9)
        assert self._thread.run(lambda: self._connection.expire(before_ns, IDLE_S * 1000), TIMEOUT_S)
        return not self._connection.is_closed


IDLE_S = 600


class TestRequestsInPieces:
    def test_a_byte_now_and_then_does_not_hold_a_connection_for_ever(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        with running(settings=config(connections_max_idle_ms=-1)) as node:
            one = Dripping(node, monkeypatch)
            request = frame(1, body=bytes(100))
            one.send(request[:1])
            assert one.wait(IDLE_S * 0.9)
            one.send(request[1:2])
            assert not one.wait(IDLE_S * 0.9)
        assert "2 of the 4 bytes of a length came, and not enough of it" in caplog.text

    def test_nor_does_a_piece_of_a_body(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with running(settings=config(connections_max_idle_ms=-1)) as node:
            one = Dripping(node, monkeypatch)
            request = frame(1, body=bytes(100_000))
            one.send(request[:50])
            pieces = 0
            while pieces < 10 and one.wait(IDLE_S / 4):
                one.send(request[50 + pieces : 51 + pieces])
                pieces += 1
            assert pieces == 4

    def test_a_large_request_over_a_slow_line_may_take_its_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with running(settings=config(connections_max_idle_ms=-1)) as node:
            one = Dripping(node, monkeypatch)
            request = frame(1, body=bytes(3_000_000))
            step = 300_000
            for start in range(0, len(request) - step, step):
                one.send(request[start : start + step])
                assert one.wait(step / 1024)
            one.client.socket.sendall(request[len(request) // step * step :])
            assert one.client.receive_ids(1) == [1]
            assert one.wait(IDLE_S * 0.9)

    def test_whole_requests_now_and_then_are_enough(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with running(settings=config(connections_max_idle_ms=-1)) as node:
            one = Dripping(node, monkeypatch)
            for number in range(5):
                one.client.send(number)
                assert one.client.receive_ids(1) == [number]
                assert one.wait(IDLE_S * 0.9)


class TestErrorsOfOurs:
    @pytest.mark.parametrize("hops", [False, True])
    def test_an_exception_ends_the_connection_with_a_traceback_and_the_thread_lives(
        self, caplog: pytest.LogCaptureFixture, hops: bool
    ) -> None:
        def handle(request: Request) -> bool:
            if hops and not request.may_block:
                return False
            if request.correlation_id == 13:
                raise ZeroDivisionError("a bug")
            answer(request)
            return True

        with running(FakeService(handle)) as node:
            for _ in range(20):
                client = node.client()
                client.send(13)
                assert client.is_closed_by_server()
            client = node.client()
            client.send(1)
            assert client.receive_ids(1) == [1]
        assert caplog.text.count("ZeroDivisionError: a bug") == 20
        assert len(closing_lines(caplog)) == 20

    def test_a_service_that_refuses_a_handler_thread_too(self, caplog: pytest.LogCaptureFixture) -> None:
        with running(FakeService(lambda _: False)) as node:
            client = node.client()
            client.send(1)
            assert client.is_closed_by_server()
        assert "was not handled on a thread that may block" in caplog.text

    @pytest.mark.parametrize("hops", [False, True])
    def test_a_request_may_close_the_connection_after_earlier_answers(
        self, caplog: pytest.LogCaptureFixture, hops: bool
    ) -> None:
        def handle(request: Request) -> bool:
            if hops and not request.may_block:
                return False
            if request.correlation_id == 2:
                request.close_connection("it asked for too much")
            else:
                answer(request)
            return True

        with running(FakeService(handle)) as node:
            client = node.client()
            client.send(1, 2, 3)
            assert client.receive_ids(1) == [1]
            assert client.is_closed_by_server()
        assert closing_lines(caplog)[0].endswith("on PLAINTEXT: it asked for too much")
        assert 3 not in [correlation_id for correlation_id, _, _ in node.service.seen]

    def test_a_late_request_may_close_the_connection(self) -> None:
        later = Later()
        with running(FakeService(later)) as node:
            client = node.client()
            client.send(1, 2)
            later.wait(1)
            later.requests[0].close_connection("too late")
            assert client.is_closed_by_server()
            node.wait_for_connections(0)
        assert len(later.requests) == 1
