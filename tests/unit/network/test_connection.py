"""Connections of a running reactor: which thread handles a request, in which order it is answered, and muting."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from support.reactor import (
    TIMEOUT_S,
    FakeService,
    Later,
    Owing,
    answer,
    config,
    frame,
    running,
)
from support.waiting import wait_until

from pybroker.network import socket_server
from pybroker.network.answers import Gather
from pybroker.network.connection import MAX_OWED, Connection
from pybroker.network.request import Request
from pybroker.network.transport import MAX_RECEIVE_ROOM, PlainTransport

RMEM_MAX = Path("/proc/sys/net/core/rmem_max")


def _told(size: int) -> int:
    """What the system says of a receive buffer that was to have `size` bytes: it doubles what it is told, and has a bound."""
    return 2 * min(size, int(RMEM_MAX.read_text()))


class TestOrder:
    def test_a_request_that_cannot_block_is_handled_on_the_network_thread(self) -> None:
        with running() as node:
            client = node.client()
            client.send(1)
            assert client.receive() == (1, struct.pack(">hi", 0, 0))
        assert node.service.seen == [(1, False, "network-thread-PLAINTEXT-0")]

    def test_a_request_that_would_block_comes_again_on_a_handler_thread(self) -> None:
        def handle(request: Request) -> bool:
            if request.may_block:
                answer(request)
            return request.may_block

        with running(FakeService(handle)) as node:
            client = node.client()
            client.send(1)
            assert client.receive_ids(1) == [1]
        assert node.service.seen == [(1, False, "network-thread-PLAINTEXT-0"), (1, True, "request-handler-0")]

    def test_answers_keep_the_order_of_requests_however_they_come_about(self) -> None:
        """Of three: one at once, one by a handler thread, one later by a third thread."""

        def handle(request: Request) -> bool:
            match request.correlation_id % 3:
                case 0:
                    answer(request)
                case 1:
                    if not request.may_block:
                        return False
                    answer(request)
                case 2:
                    threading.Timer(0.001, answer, [request]).start()
            return True

        count = 90
        with running(FakeService(handle)) as node:
            clients = [node.client() for _ in range(4)]
            for client in clients:
                client.send(*range(count))
            for client in clients:
                assert client.receive_ids(count) == list(range(count))

    def test_the_next_request_is_not_handled_before_the_former_is_answered(self) -> None:
        later = Later()
        with running(FakeService(later)) as node:
            client = node.client()
            client.send(1, 2)
            client.send(3)
            later.wait(1)
            other = node.client()
            other.send(7)
            later.wait(2)
            assert [request.correlation_id for request in later.requests] == [1, 7]
            for number in range(3):
                later.wait(number + 1 + (number > 0))
                request = next(one for one in later.requests if one.correlation_id == number + 1)
                answer(request)
                assert client.receive_ids(1) == [number + 1]
                wait_until(
                    lambda wanted=number + 2: wanted > 3 or any(one.correlation_id == wanted for one in later.requests),
                    TIMEOUT_S,
                    lambda: "the next request was not handled",
                )

    def test_a_late_answer_on_the_network_thread_itself_wakes_the_other_connection(self) -> None:
        """A produce that completes a waiting fetch, whose connection has a further request in hand."""
        waiting: list[Request] = []

        def handle(request: Request) -> bool:
            if request.correlation_id == 1:
                waiting.append(request)
                return True
            if request.correlation_id == 100:
                answer(waiting.pop())
            answer(request)
            return True

        with running(FakeService(handle)) as node:
            fetcher, producer = node.client(), node.client()
            fetcher.send(1, 2, 3)
            wait_until(lambda: waiting, TIMEOUT_S, lambda: "the fetch did not come")
            producer.send(100)
            assert fetcher.receive_ids(3) == [1, 2, 3]
            assert producer.receive_ids(1) == [100]
        assert {thread for _, _, thread in node.service.seen} == {"network-thread-PLAINTEXT-0"}

    def test_what_arrives_while_the_turn_of_a_pending_request_is_posted_does_not_overtake_it(self) -> None:
        """An idempotent producer's second batch was handled before its first: a follower's fetch, on the same thread, completed
        the batch before both, and the selector told of new bytes before the posted turn came."""
        waiting: list[Request] = []

        def handle(request: Request) -> bool:
            if request.correlation_id == 1:
                waiting.append(request)
                return True
            if request.correlation_id == 100:
                producing = waiting.pop()
                answer(producing)
                producing.connection.on_readable()
            answer(request)
            return True

        with running(FakeService(handle)) as node:
            producer, follower = node.client(), node.client()
            producer.send(1, 2)
            wait_until(lambda: waiting, TIMEOUT_S, lambda: "the first batch did not come")
            producer.send(3)
            follower.send(100)
            assert producer.receive_ids(3) == [1, 2, 3]
        assert [number for number, _, _ in node.service.seen] == [1, 100, 2, 3]

    def test_an_answer_that_overtakes_the_handler_thread_keeps_its_place(self) -> None:
        """Another thread answers before `handle` has returned; the handler's earlier answer still goes first."""

        def handle(request: Request) -> bool:
            if not request.may_block:
                return False
            if request.correlation_id == 2:
                thread = threading.Thread(target=answer, args=[request])
                thread.start()
                thread.join()
            else:
                answer(request)
            return True

        with running(FakeService(handle)) as node:
            client = node.client()
            client.send(1, 2, 3, 4)
            assert client.receive_ids(4) == [1, 2, 3, 4]

    def test_a_handler_thread_may_answer_a_request_that_it_left_for_later(self) -> None:
        left: list[Request] = []

        def handle(request: Request) -> bool:
            if not request.may_block:
                return False
            if request.correlation_id == 1:
                left.append(request)
                return True
            if left:
                answer(left.pop())
            answer(request)
            return True

        with running(FakeService(handle), config(num_io_threads=1)) as node:
            first, second = node.client(), node.client()
            first.send(1, 5)
            wait_until(lambda: left, TIMEOUT_S, lambda: "the request did not come")
            second.send(2)
            assert first.receive_ids(2) == [1, 5]
            assert second.receive_ids(1) == [2]

    def test_a_request_without_answer_lets_the_connection_go_on(self) -> None:
        later = Later()

        def handle(request: Request) -> bool:
            if request.correlation_id < 10:
                request.respond_nothing()
            elif request.correlation_id == 10:
                later(request)
            else:
                answer(request)
            return True

        with running(FakeService(handle)) as node:
            client = node.client()
            client.send(*range(1, 12))
            later.wait(1)
            later.requests[0].respond_nothing()
            assert client.receive_ids(1) == [11]

    def test_many_connections(self) -> None:
        with running() as node:
            clients = [node.client() for _ in range(300)]
            for number, client in enumerate(clients):
                client.send(number, number + 1)
            for number, client in enumerate(clients):
                assert client.receive_ids(2) == [number, number + 1]
            assert node.connections() == 300

    def test_what_arrives_byte_by_byte_is_put_together(self) -> None:
        with running() as node:
            client = node.client()
            for byte in frame(1) + frame(2):
                client.socket.sendall(bytes([byte]))
            assert client.receive_ids(2) == [1, 2]

    def test_a_frame_larger_than_the_receive_buffer_is_whole_and_writable(self) -> None:
        body = bytes(range(256)) * 4096
        bodies = []

        def handle(request: Request) -> bool:
            bodies.append(bytes(request.frame[request.position :]))
            request.frame[request.position] = 99
            answer(request)
            return True

        with running(FakeService(handle)) as node:
            client = node.client()
            client.socket.sendall(frame(1, body=body) + frame(2, body=b"x") + frame(3, body=body))
            assert client.receive_ids(3) == [1, 2, 3]
        assert bodies == [body, b"x", body]

    @pytest.mark.skipif(not RMEM_MAX.exists(), reason="how this system sizes its buffers is not known here")
    @pytest.mark.parametrize(("size", "room"), [(16_384, 200_000), (400_000, 400_000), (-1, 0)])
    def test_a_request_larger_than_the_receive_buffer_gets_its_connection_room_for_the_next(self, size: int, room: int) -> None:
        """Where that is left to the system, it stays so: a size that is told once counts for ever."""
        rooms = []

        def handle(request: Request) -> bool:
            with socket.socket(fileno=os.dup(request.connection._transport.fd)) as copy:
                rooms.append(copy.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
            answer(request)
            return True

        with running(FakeService(handle), config(socket_receive_buffer_bytes=size)) as node:
            client, other = node.client(), node.client()
            client.send(1)
            client.receive()
            client.socket.sendall(frame(2, body=bytes(100_000)))
            client.receive()
            client.socket.sendall(frame(3, body=bytes(90_000_000)))
            client.receive()
            other.send(4)
            other.receive()
        small, large, largest, others = rooms
        assert small == others
        if room:
            assert small == _told(size)
            assert _told(room) <= large < 1.1 * _told(room)
            assert largest == _told(MAX_RECEIVE_ROOM)
        else:
            assert _told(MAX_RECEIVE_ROOM) not in rooms

    def test_the_bytes_of_a_request_that_hops_are_its_own(self) -> None:
        """Requests of other connections come into the shared buffer while it waits."""
        gate = threading.Event()
        bodies = []

        def handle(request: Request) -> bool:
            if not request.may_block:
                return False
            gate.wait(TIMEOUT_S)
            bodies.append(bytes(request.frame[request.position :]))
            answer(request)
            return True

        with running(FakeService(handle)) as node:
            clients = [node.client() for _ in range(10)]
            for number, client in enumerate(clients):
                client.socket.sendall(frame(number, body=bytes([number]) * 100))
            wait_until(lambda: len(node.service.seen) >= 10, TIMEOUT_S, lambda: "not all came")
            gate.set()
            for number, client in enumerate(clients):
                assert client.receive_ids(1) == [number]
        assert sorted(bodies) == [bytes([number]) * 100 for number in range(10)]


class Pipelined(FakeService):
    """Answers up to `at_once` frames together, while their correlation ids are even; the others one by one."""

    def __init__(self, at_once: int = 3, handle: Callable[[Request], bool | None] | None = None, padding: int = 0) -> None:
        super().__init__(handle)
        self._at_once = at_once
        self._padding = bytes(padding)
        self.together: list[tuple[list[int], str]] = []  # correlation ids, name of the thread

    def handle_pipelined(self, connection: Connection, frames: Sequence[memoryview], start: int, gather: Gather) -> int:  # type: ignore[override]
        ids = [struct.unpack_from(">i", frame, 4)[0] for frame in frames[start : start + self._at_once]]
        even = list(takewhile(lambda number: number % 2 == 0, ids))
        for correlation_id in even:
            gather.out += struct.pack(">iihi", 10 + len(self._padding), correlation_id, 0, 0) + self._padding
        if even:
            self.together.append((even, threading.current_thread().name))
        return len(even)


class TestPipelined:
    def test_what_is_answered_together_keeps_its_place_among_the_others(self) -> None:
        with running(Pipelined()) as node:
            client = node.client()
            client.send(2, 4, 6, 8, 1, 3, 10, 5, 12, 14)
            assert client.receive_ids(10) == [2, 4, 6, 8, 1, 3, 10, 5, 12, 14]
        assert [number for number, _, _ in node.service.seen] == [1, 3, 5]
        assert sorted(number for ids, _ in node.service.together for number in ids) == [2, 4, 6, 8, 10, 12, 14]

    def test_behind_a_request_that_would_block_it_is_done_on_the_handler_thread(self) -> None:
        def handle(request: Request) -> bool:
            if request.may_block:
                answer(request)
            return request.may_block

        with running(Pipelined(handle=handle)) as node:
            client = node.client()
            client.send(1, 2, 4, 3, 6)
            assert client.receive_ids(5) == [1, 2, 4, 3, 6]
        assert [ids for ids, name in node.service.together if name == "request-handler-0"] == [[2, 4], [6]]

    def test_nothing_is_handled_while_an_answer_is_not_wholly_sent(self) -> None:
        """Answers of 1 MiB to a client that does not read: the rest of its requests waits."""
        with running(Pipelined(at_once=1, padding=1 << 20)) as node:
            client = node.client(receive_buffer_bytes=4096)
            numbers = range(0, 100, 2)
            client.send(*numbers)
            wait_until(lambda: bool(node.service.together), TIMEOUT_S, lambda: "nothing was handled")
            other = node.client()
            other.send(1)
            assert other.receive_ids(1) == [1]
            assert len(node.service.together) < 50
            assert client.receive_ids(50) == list(numbers)

    def test_a_bug_in_it_costs_one_connection(self, caplog: pytest.LogCaptureFixture) -> None:
        class Broken(FakeService):
            def handle_pipelined(self, connection: Connection, frames: Any, *_: object) -> int:  # type: ignore[override]
                assert len(frames) == 1, "two at once"
                return 0

        with running(Broken()) as node:
            client, other = node.client(), node.client()
            client.send(1, 2)
            assert client.is_closed_by_server()
            other.send(3)
            assert other.receive_ids(1) == [3]
        assert "two at once" in caplog.text


class TestOwed:
    def test_requests_go_on_while_answers_are_owed_and_all_leave_in_order(self) -> None:
        with running(Owing()) as node:
            client = node.client()
            client.send(2, 4)
            node.service.wait_for(2, 4)
            client.send(6)
            node.service.wait_for(6)
            node.service.settle(6, 4)
            node.service.settle(2)
            assert client.receive_ids(3) == [2, 4, 6]

    def test_a_request_of_another_kind_waits_for_what_is_owed(self) -> None:
        with running(Owing()) as node:
            client = node.client()
            client.send(1, 2, 3, 4, 5)
            node.service.wait_for(2)
            assert client.receive_ids(1) == [1]
            assert [number for number, _, _ in node.service.seen] == [1]
            node.service.settle(2)
            assert client.receive_ids(2) == [2, 3]
            node.service.wait_for(4)
            node.service.settle(4)
            assert client.receive_ids(2) == [4, 5]

    def test_what_was_gathered_before_leaves_before(self) -> None:
        with running(Owing()) as node:
            client = node.client()
            client.send(1, 3, 2)
            node.service.wait_for(2)
            node.service.settle(2)
            assert client.receive_ids(3) == [1, 3, 2]

    def test_no_more_is_read_than_may_be_owed(self) -> None:
        with running(Owing()) as node:
            client = node.client()
            numbers = range(2, 2 * MAX_OWED + 10, 2)
            client.send(*numbers)
            most = numbers[:MAX_OWED]
            node.service.wait_for(*most)
            other = node.client()
            other.send(1)
            assert other.receive_ids(1) == [1]  # a turn later
            assert sorted(node.service.owed) == list(most)
            node.service.settle(*most)
            node.service.wait_for(*numbers[MAX_OWED:])
            node.service.settle(*numbers[MAX_OWED:])
            assert client.receive_ids(len(numbers)) == list(numbers)

    def test_a_client_that_ends_its_side_still_gets_what_is_owed(self) -> None:
        with running(Owing()) as node:
            client = node.client()
            client.send(2)
            node.service.wait_for(2)
            client.socket.shutdown(socket.SHUT_WR)
            other = node.client()
            other.send(1)
            assert other.receive_ids(1) == [1]
            node.service.settle(2)
            assert client.receive_ids(1) == [2]
            assert client.is_closed_by_server()

    def test_what_is_owed_to_a_connection_that_is_gone_is_dropped(self) -> None:
        with running(Owing()) as node:
            client = node.client()
            client.send(2)
            node.service.wait_for(2)
            client.reset()
            other = node.client()
            other.send(1)
            assert other.receive_ids(1) == [1]
            node.service.settle(2)
            other.send(3)
            assert other.receive_ids(1) == [3]

    @pytest.mark.parametrize("behind", [[3], range(4, 2 * MAX_OWED + 10, 2)], ids=["another kind", "too many"])
    def test_a_reset_ends_a_connection_at_once_though_requests_wait_behind_what_is_owed(self, behind: Sequence[int]) -> None:
        """The network thread was told of the reset in every turn of its loop, until the produce was over."""
        with running(Owing()) as node:
            client = node.client()
            client.send(2, *behind)
            node.service.wait_for(2)
            client.reset()
            node.wait_for_connections(0)
            assert 2 in node.service.owed

    @pytest.mark.parametrize("together", [False, True], ids=["one by one", "together with what was owed"])
    def test_no_answer_leaves_before_the_rest_of_one_that_was_sent_in_part(
        self, monkeypatch: pytest.MonkeyPatch, together: bool
    ) -> None:
        class Clogged(PlainTransport):
            """Takes three bytes at first; then there is room."""

            def __init__(self, sock: socket.socket, receive_room: int) -> None:
                super().__init__(sock, receive_room)
                self.send = self._send_three

            def _send_three(self, data: Any, *_: int) -> int:
                self.send = self._socket.send
                return self._socket.send(bytes(data[:3]))

        class AtOnce(Owing):
            """What is owed is settled before the next frame is looked at."""

            def handle_pipelined(self, connection: Connection, frames: Sequence[memoryview], start: int, gather: Gather) -> int:
                done = super().handle_pipelined(connection, frames, start, gather)
                self.settle(*list(self.owed))
                if done and together:
                    (correlation_id,) = struct.unpack_from(">i", frames[start + 1], 4)
                    gather.out += struct.pack(">iihi", 10, correlation_id, 0, 0)
                    done += 1
                return done

        monkeypatch.setattr(socket_server, "PlainTransport", Clogged)
        with running(AtOnce()) as node:
            client = node.client()
            client.send(1, 2, 3, 5, 4, 7)
            assert client.receive_ids(6) == [1, 2, 3, 5, 4, 7]


class TestStages:
    def test_a_service_may_hand_the_connection_over_to_another(self) -> None:
        """As an authentication stage does once the login is good."""
        real = FakeService()

        def log_in(request: Request) -> bool:
            answer(request)
            if request.correlation_id == 2:
                request.connection.service = real
            return True

        with running(FakeService(log_in)) as node:
            client, stranger = node.client(), node.client()
            client.send(1, 2, 3)
            client.send(4)
            assert client.receive_ids(4) == [1, 2, 3, 4]
            stranger.send(7)
            assert stranger.receive_ids(1) == [7]
        assert [correlation_id for correlation_id, _, _ in real.seen] == [3, 4]
        assert [correlation_id for correlation_id, _, _ in node.service.seen] == [1, 2, 7]
