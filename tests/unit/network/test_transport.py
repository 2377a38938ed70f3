"""The plain socket, and what is asked of the system for it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from pybroker.network.transport import NOT_PACING, PACING, do_not_pace_at_home

ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")


def _congestion_control(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


def _may_choose(name: bytes) -> bool:
    return ALLOWED.exists() and name.decode() in ALLOWED.read_text().split()


@pytest.mark.skipif(not _may_choose(PACING), reason="no congestion control that paces may be chosen on this machine")
class TestPacing:
    def test_connections_within_the_machine_are_not_paced_whoever_began_them(self) -> None:
        with socket.socket() as listening, socket.socket() as connecting:
            for sock in (listening, connecting):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, PACING)
                do_not_pace_at_home(sock, "127.0.0.1")
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            connecting.connect(listening.getsockname())
            accepted, _ = listening.accept()
            with accepted:
                assert [_congestion_control(sock) for sock in (connecting, accepted)] == [NOT_PACING, NOT_PACING]

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "2001:db8::1"])
    def test_others_are_left_as_the_system_wants_them(self, host: str) -> None:
        with socket.socket() as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, PACING)
            do_not_pace_at_home(sock, host)
            assert _congestion_control(sock) == PACING

    @pytest.mark.skipif(not _may_choose(b"cubic"), reason="CUBIC may not be chosen on this machine")
    def test_what_does_not_pace_is_left_alone_too(self) -> None:
        with socket.socket() as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
            do_not_pace_at_home(sock, "127.0.0.1")
            assert _congestion_control(sock) == b"cubic"


def test_a_socket_that_has_no_congestion_control_does_not_mind() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        do_not_pace_at_home(sock, "127.0.0.1")
