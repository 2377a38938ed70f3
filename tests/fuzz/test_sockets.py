"""Mutated requests in random pieces over real sockets: the reactor closes what it cannot read, answers the rest, and stands.

FRAMES says how many (20,000 unless told). Every connection begins with a good request, whose answer must come first.
Afterwards no descriptor and no thread is left over, and a good client is served as before.
"""

from __future__ import annotations

import errno
import logging
import os
import random
import socket
import struct
import threading
import time
from functools import partial

import pytest
from fuzz.crowd import crowd
from fuzz.test_frames import mutate
from support.random_messages import random_message
from support.reactor import Client, FakeService, all_apis, answer, config, frame, running

from pybroker.network.request import Request
from pybroker.protocol.api_table import APIS
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.message import decoder
from pybroker.protocol.messages.headers import RequestHeader

FRAMES = int(os.environ.get("FRAMES", "20000"))
SEED = os.environ.get("FUZZ_SEED", "1")


class Decoding:
    """Decodes every request; answers at once, on a handler thread or later, or not at all, as its correlation id says."""

    def __init__(self) -> None:
        self.decoded = self.refused = 0

    def handle_pipelined(self, *_: object) -> int:
        return 0

    def handle(self, request: Request) -> bool:
        way = request.correlation_id % 5
        if way == 1 and not request.may_block:
            return False
        try:
            if request.version == request.answer_version:
                decoder(request.api.request, request.version)(request.frame, request.position)
            self.decoded += 1
        except ProtocolError as error:
            self.refused += 1
            request.close_connection(str(error))
            return True
        # Whatever was asked, in bytes that any version of ApiVersions can carry.
        request.answer_version = 0
        if way == 2:
            threading.Thread(target=answer, args=[request]).start()
        elif way == 3:
            request.respond_nothing()
        else:
            answer(request)
        return True


def good_frame(rng: random.Random) -> bytes:
    api = rng.choice(APIS)
    version = rng.randrange(api.stable_versions.low, api.stable_versions.high + 1)
    header = RequestHeader(
        request_api_key=api.key,
        request_api_version=version,
        correlation_id=rng.randrange(2**31),
        client_id=rng.choice((None, "", "fuzz")),
    ).encode(api.request_header_version(version))
    payload = header + random_message(rng, api.request, version, unknown_tags=True).encode(version)
    return struct.pack(">i", len(payload)) + payload


def any_frame(rng: random.Random) -> bytes:
    """Good, or mutated anywhere, or mutated behind a length that is right."""
    good = good_frame(rng)
    match rng.randrange(6):
        case 0:
            return mutate(rng, good)
        case 1 | 2:
            payload = mutate(rng, good[4:])
            return struct.pack(">i", len(payload)) + payload
    return good


def visit(rng: random.Random, port: int, frames: int) -> None:
    """One connection: a good request, then `frames` of which some are mutated, in pieces of any size; then some end."""
    data = frame(5) + b"".join(any_frame(rng) for _ in range(frames))
    client = Client(port)
    answers = bytearray()
    try:
        while data:
            size = rng.choice((1, 3, 50, 2000, 100_000))
            client.socket.sendall(data[:size])
            data = data[size:]
        match rng.randrange(6):
            case 0:
                client.reset()
                return
            case 1:
                client.close()
                return
        client.socket.shutdown(socket.SHUT_WR)
        while piece := client.socket.recv(65536):
            answers += piece
    except OSError as error:
        # Closed by the server with our bytes unread.
        assert error.errno in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN), error
        answers.clear()
    finally:
        client.close()
    if answers:
        assert struct.unpack_from(">ii", answers)[1] == 5
        position = 0
        while position < len(answers):
            position += 4 + struct.unpack_from(">i", answers, position)[0]
        assert position == len(answers), "the last answer is cut off"


@pytest.mark.fuzz
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_mutated_requests_over_sockets(loop: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("PYBROKER_EVENT_LOOP", loop)
    caplog.set_level(logging.ERROR)
    service = Decoding()
    start = time.perf_counter()
    with running(FakeService(service.handle), config(num_io_threads=3, socket_request_max_bytes=1_000_000), all_apis) as node:
        crowd(FRAMES // 2, 12, f"{SEED}-{loop}", lambda rng: partial(visit, rng, node.port))
        node.wait_for_connections(0)
        client = node.client()
        client.send(10, 11, 15)
        assert client.receive_ids(3) == [10, 11, 15]
        assert node.queue_size() == 0
    errors = [record for record in caplog.records if record.exc_info]
    assert not errors, errors[0].getMessage()
    print(
        f"\n{loop}: {service.decoded:,} requests answered, {service.refused:,} refused by their decoder, "
        f"in {time.perf_counter() - start:.0f} s"
    )
    assert min(service.decoded, service.refused) > 0
