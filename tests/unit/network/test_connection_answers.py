"""How answers leave a connection of a running reactor: from memory and from files, as fast as its peer takes them."""

from __future__ import annotations

import logging
import random
import re
import socket
import struct
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from support.reactor import (
    FETCH,
    TIMEOUT_S,
    FakeService,
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
from pybroker.network import socket_server
from pybroker.network.answers import Slice
from pybroker.network.connection import GATHER_BYTES, SMALL_BYTES
from pybroker.network.request import Request
from pybroker.network.transport import PlainTransport
from pybroker.protocol.messages.api_versions import ApiVersionsResponse
from pybroker.protocol.messages.fetch import FetchResponse
from pybroker.protocol.messages.headers import ResponseHeader


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

            def __init__(self, sock: socket.socket, receive_room: int) -> None:
                super().__init__(sock, receive_room)
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

    def test_a_long_answer_leaves_at_once_if_room_was_made_for_it(self, tmp_path: Path) -> None:
        """Its peer does not read, and the buffers of both are small at first."""
        size = 200_000
        file = OsFileSystem().open(str(tmp_path / "segment"), create=True)
        file.write(0, bytes(size))
        left: dict[int, int] = {}

        def handle(request: Request) -> bool:
            if request.correlation_id == 2:
                request.make_room(size)
            request.connection.send([FileSlice(file, 0, size)])
            left[request.correlation_id] = request.connection._unsent_bytes()
            request.respond_nothing()
            return True

        with running(FakeService(handle), config(socket_send_buffer_bytes=10_000)) as node:
            for number in (1, 2):
                client = node.client(receive_buffer_bytes=10_000)
                client.send(number)
                wait_until(lambda number=number: number in left, TIMEOUT_S, lambda: "not handled")  # type: ignore[misc]
        file.close()
        assert left[1] > 0
        assert left[2] == 0

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
