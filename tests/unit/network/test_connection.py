"""Connections of a running reactor: order of answers, muting, sending, and how they end."""

from __future__ import annotations

import logging
import random
import re
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Any

import pytest
from support.reactor import (
    FETCH,
    TIMEOUT_S,
    FakeService,
    Later,
    Running,
    answer,
    config,
    fetched,
    frame,
    running,
)
from support.waiting import wait_until

from pybroker.base.filesystem import OsFileSystem
from pybroker.log.segment import FileSlice
from pybroker.network import connection as connection_module
from pybroker.network import socket_server
from pybroker.network.answers import Gather, Slice
from pybroker.network.connection import GATHER_BYTES, MAX_OWED, SMALL_BYTES, Connection, Owed
from pybroker.network.request import Request
from pybroker.network.transport import PlainTransport
from pybroker.protocol.messages.api_versions import ApiVersionsResponse
from pybroker.protocol.messages.fetch import FetchResponse
from pybroker.protocol.messages.headers import ResponseHeader


def closing_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "closing the connection" in record.getMessage()]


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


class Owing(FakeService):
    """Owes the answer to every even correlation id until the test settles it; answers the odd ones at once."""

    def __init__(self) -> None:
        super().__init__()
        self.owed: dict[int, Owed] = {}

    def handle_pipelined(self, connection: Connection, frames: Sequence[memoryview], start: int, gather: Gather) -> int:  # type: ignore[override]
        (correlation_id,) = struct.unpack_from(">i", frames[start], 4)
        if correlation_id % 2 or gather.ident != connection.thread.ident:
            return 0
        self.owed[correlation_id] = connection.owe(gather)
        return 1

    def wait_for(self, *correlation_ids: int) -> None:
        wait_until(lambda: set(correlation_ids) <= set(self.owed), TIMEOUT_S, lambda: f"handled are {list(self.owed)}")

    def settle(self, *correlation_ids: int) -> None:
        for one in correlation_ids:
            self.owed.pop(one).settle(struct.pack(">iihi", 10, one, 0, 0))


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

            def __init__(self, sock: socket.socket) -> None:
                super().__init__(sock)
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


class TestAnswers:
    def test_an_unknown_version_of_api_versions_is_answered_in_version_0(self) -> None:
        seen = []

        def handle(request: Request) -> bool:
            seen.append((request.version, request.answer_version))
            answer(request)
            return True

        with running(FakeService(handle)) as node:
            client = node.client()
            client.socket.sendall(frame(1, version=77, body=b"\0whatever comes"))
            assert client.receive() == (1, ApiVersionsResponse(error_code=0, api_keys=[]).encode(0))
        assert seen == [(77, 0)]

    def test_a_flexible_answer_has_a_header_with_tags(self) -> None:
        def handle(request: Request) -> bool:
            request.respond(fetched(b"records"))
            return True

        with running(FakeService(handle)) as node:
            client = node.client()
            client.socket.sendall(frame(9, key=FETCH, version=12, body=b"\0"))
            correlation_id, rest = client.receive()
        header = struct.pack(">i", correlation_id) + rest
        assert ResponseHeader.decode_from(1, header, 0) == (ResponseHeader(correlation_id=9), 5)
        assert FetchResponse.decode(12, rest[1:]) == fetched(b"records")

    @pytest.mark.parametrize("hops", [False, True])
    def test_file_slices_are_sent_from_the_file_resumed_when_the_peer_reads(self, tmp_path: Path, hops: bool) -> None:
        data = bytes(range(256)) * 12_000
        file = OsFileSystem().open(str(tmp_path / "segment"), create=True)
        file.write(0, b"before" + data + b"after")

        def handle(request: Request) -> bool:
            if hops and not request.may_block:
                return False
            request.respond(fetched(FileSlice(file, 6, len(data))))
            return True

        with running(FakeService(handle)) as node:
            client = node.client(receive_buffer_bytes=4096)
            request = frame(1, key=FETCH, version=12, body=b"\0")
            client.socket.sendall(request * 3)
            for _ in range(3):
                _, rest = client.receive()
                assert FetchResponse.decode(12, rest[1:]).responses[0].partitions[0].records == data
        file.close()

    def test_small_and_long_slices_of_one_answer_come_in_their_order(self, tmp_path: Path) -> None:
        """Sizes around those at which parts are put together, or sent from the file; the answer is resumed many times."""
        edges = (1, 3_000, SMALL_BYTES - 1, SMALL_BYTES, SMALL_BYTES + 1, GATHER_BYTES, 400_000)
        sizes = [*edges, *reversed(edges), 0, *[SMALL_BYTES] * 9, 700_000, 5]
        data = random.Random(1).randbytes(sum(sizes))
        file = OsFileSystem().open(str(tmp_path / "segment"), create=True)
        file.write(0, data)
        ends = list(accumulate(sizes))

        def handle(request: Request) -> bool:
            slices = [FileSlice(file, end - size, size) for end, size in zip(ends, sizes, strict=True)]
            request.respond(fetched(*slices))
            return True

        with running(FakeService(handle)) as node:
            client = node.client(receive_buffer_bytes=4096)
            client.socket.sendall(frame(1, key=FETCH, version=12, body=b"\0") * 2)
            for _ in range(2):
                _, rest = client.receive()
                found = [bytes(one.records) for one in FetchResponse.decode(12, rest[1:]).responses[0].partitions]
                assert found == [data[end - size : end] for end, size in zip(ends, sizes, strict=True)]
        file.close()

    def test_a_small_answer_with_records_leaves_by_one_call(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The transport sees whole answers, and slices only of what is long."""
        calls: list[tuple[str, int]] = []

        class Noted(PlainTransport):
            __slots__ = ()

            def __init__(self, sock: socket.socket) -> None:
                super().__init__(sock)
                send = self.send

                def noted(data: Any, *flags: int) -> int:
                    calls.append(("send", len(data)))
                    return send(data, *flags)

                self.send = noted  # type: ignore[assignment]

            def send_slice(self, part: Slice, start: int) -> int:
                calls.append(("slice", part.length - start))
                return super().send_slice(part, start)

        monkeypatch.setattr(socket_server, "PlainTransport", Noted)
        file = OsFileSystem().open(str(tmp_path / "segment"), create=True)
        file.write(0, bytes(100_000))

        def handle(request: Request) -> bool:
            request.respond(fetched(FileSlice(file, 0, 100_000 if request.correlation_id == 3 else 1_000)))
            return True

        with running(FakeService(handle)) as node:
            client = node.client()
            for number in (1, 2, 3):
                client.socket.sendall(frame(number, key=FETCH, version=12, body=b"\0"))
                client.receive()
        file.close()
        (first, size), (second, same_size), (head, _), (long, long_size), *_, (trailer, trailer_size) = calls
        assert (first, second, size) == ("send", "send", same_size)
        assert size > 1_000
        assert (head, long, long_size) == ("send", "slice", 100_000)
        assert (trailer, trailer_size) == ("send", 3)  # tags of partition, topic, message

    def test_a_peer_that_goes_in_the_midst_of_a_slice_leaves_nothing_behind(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        file = OsFileSystem().open(str(tmp_path / "segment"), create=True)
        file.write(0, bytes(5_000_000))

        def handle(request: Request) -> bool:
            request.respond(fetched(FileSlice(file, 0, 100), FileSlice(file, 0, 5_000_000)))
            return True

        with running(FakeService(handle)) as node:
            client = node.client(receive_buffer_bytes=4096)
            client.socket.sendall(frame(1, key=FETCH, version=12, body=b"\0"))
            received = 0
            while received < 20_000:
                received += len(client.socket.recv(20_000))
            client.reset()
            node.wait_for_connections(0)
        assert re.search(r"with 4,\d{3},\d{3} bytes of an answer not sent", closing_lines(caplog)[0])
        file.close()

    def test_an_empty_slice_is_no_end_of_the_file(self, tmp_path: Path) -> None:
        file = OsFileSystem().open(str(tmp_path / "segment"), create=True)

        def handle(request: Request) -> bool:
            request.respond(fetched(FileSlice(file, 0, 0)))
            return True

        with running(FakeService(handle)) as node:
            client = node.client()
            client.socket.sendall(frame(1, key=FETCH, version=12, body=b"\0"))
            _, rest = client.receive()
            assert FetchResponse.decode(12, rest[1:]) == fetched(b"")
        file.close()

    @pytest.mark.parametrize("size", [100, 1_000_000], ids=["read", "sent from the file"])
    def test_a_slice_longer_than_its_file_ends_the_connection(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, size: int
    ) -> None:
        file = OsFileSystem().open(str(tmp_path / "segment"), create=True)
        file.write(0, bytes(size - 95))

        def handle(request: Request) -> bool:
            request.respond(fetched(FileSlice(file, 0, size)))
            return True

        with running(FakeService(handle)) as node:
            client = node.client()
            client.socket.sendall(frame(1, key=FETCH, version=12, body=b"\0"))
            with pytest.raises(EOFError):
                client.receive()
        assert "is 95 bytes longer than its file" in closing_lines(caplog)[0]
        file.close()

    def test_a_second_answer_is_reported_and_not_sent(self, caplog: pytest.LogCaptureFixture) -> None:
        def handle(request: Request) -> bool:
            answer(request)
            answer(request)
            request.respond_nothing()
            return True

        with running(FakeService(handle)) as node:
            client = node.client()
            client.send(1, 2)
            assert client.receive_ids(2) == [1, 2]
        assert sum("answered a second time" in record.getMessage() for record in caplog.records) == 4

    @pytest.mark.parametrize("hops", [False, True])
    def test_an_answer_that_cannot_be_encoded_ends_the_connection_and_nothing_else(
        self, caplog: pytest.LogCaptureFixture, hops: bool
    ) -> None:
        def handle(request: Request) -> bool:
            if hops and not request.may_block:
                return False
            request.respond(ApiVersionsResponse(error_code="none", api_keys=[]) if request.correlation_id == 2 else GOOD)  # type: ignore[arg-type]
            return True

        with running(FakeService(handle)) as node:
            client = node.client()
            client.send(1, 2, 3)
            assert client.receive_ids(1) == [1]
            assert client.is_closed_by_server()
            again = node.client()
            again.send(1)
            assert again.receive_ids(1) == [1]
        assert "cannot be encoded" in caplog.text
        assert len(closing_lines(caplog)) == 1


GOOD = ApiVersionsResponse(error_code=0, api_keys=[])


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
