"""What a listener may be sent by anybody: the connection ends with one clear line, the node goes on, nothing leaks."""

from __future__ import annotations

import logging
import struct

import pytest
from support.reactor import Client, config, frame, running

TLS_CLIENT_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(500)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"\xde\xad\xbe\xef garbage", "a request with a length of -559038737 bytes"),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "this is an HTTP request, not a Kafka request"),
        (TLS_CLIENT_HELLO, "this is a TLS handshake, not a Kafka request"),
        (
            struct.pack(">i", 104_857_601),
            "a request of 104,857,601 bytes, more than socket.request.max.bytes = 104,857,600",
        ),
        (struct.pack(">i", -1), "a request with a length of -1 bytes"),
        (struct.pack(">i", 0), "a request of 0 bytes ends within its header"),
        (struct.pack(">i", 5) + bytes(5), "a request of 5 bytes ends within its header"),
        (frame(1, key=999), "a request with API key 999, which is not served on this listener"),
        (frame(1, key=3, version=99), "Metadata v99, of which 0 to 13 are served"),
        (frame(1, client_id=b"\xff\xfe"), "a client id that is not UTF-8"),
        (struct.pack(">ihhih", 10, 18, 0, 1, 30), "a client id of 30 bytes in a request of 10"),
        (struct.pack(">ihhih", 10, 3, 12, 1, -1), "a request of 10 bytes ends within its header"),
    ],
)
def test_the_connection_is_closed_with_one_line_that_says_why(
    sent: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with running() as node:
        good = node.client()
        bad = node.client()
        bad.send(1)
        assert bad.receive_ids(1) == [1]
        bad.socket.sendall(sent)
        assert bad.is_closed_by_server()
        node.wait_for_connections(1)
        good.send(2)
        assert good.receive_ids(1) == [2]
    assert len(lines(caplog)) == 1
    assert lines(caplog)[0].startswith("closing the connection of 127.0.0.1:")
    assert lines(caplog)[0].endswith(f" on PLAINTEXT: {reason}")


@pytest.mark.parametrize(
    ("sent", "progress"), [(frame(1)[:9], "5 of 14 bytes of a request"), (b"\0\0", "2 of the 4 bytes of a length")]
)
def test_half_a_request_and_then_the_end(sent: bytes, progress: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with running() as node:
        client = node.client()
        client.socket.sendall(sent)
        client.close()
        other = node.client()
        other.send(1)
        assert other.receive_ids(1) == [1]
        node.wait_for_connections(1)
    assert lines(caplog)[0].endswith(f"it ended after {progress}")


def test_a_request_that_never_ends_is_closed_when_idle_too_long(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with running(settings=config(connections_max_idle_ms=150)) as node:
        client = node.client()
        client.socket.sendall(struct.pack(">i", 50_000_000) + b"slow")
        assert client.is_closed_by_server()
    assert len(lines(caplog)) == 1
    assert "4 of 50,000,000 bytes of a request came, and not enough of it" in lines(caplog)[0]


def test_a_thousand_that_claim_100_mib_each_cost_what_they_sent() -> None:
    with running() as node:
        before = resident_bytes()
        clients = []
        for _ in range(1000):
            client = Client(node.port)
            client.socket.sendall(struct.pack(">i", 104_857_600) + bytes(100))
            clients.append(client)
        node.wait_for_connections(1000)
        good = node.client()
        good.send(1)
        assert good.receive_ids(1) == [1]
        assert resident_bytes() - before < 64 * 1024 * 1024
        for client in clients:
            client.close()
        node.wait_for_connections(1)


def test_only_what_the_listener_serves_is_taken() -> None:
    with running(apis_of=lambda _: {}) as node:
        client = node.client()
        client.send(1)
        assert client.is_closed_by_server()
    assert node.service.seen == []


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096
