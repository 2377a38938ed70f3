from __future__ import annotations

import pytest

from pybroker.config.listeners import SECURITY_PROTOCOLS, Listener, parse_listener, parse_protocol_map, problem_with_protocol


@pytest.mark.parametrize(
    ("text", "listener"),
    [
        ("PLAINTEXT://localhost:9092", Listener("PLAINTEXT", "localhost", 9092)),
        ("internal://:0", Listener("INTERNAL", "", 0)),
        ("A_b.c-1://10.0.0.1:65535", Listener("A_B.C-1", "10.0.0.1", 65535)),
        ("SSL://[::1]:9093", Listener("SSL", "::1", 9093)),
        ("SSL://[fe80::1%eth0]:9093", Listener("SSL", "fe80::1%eth0", 9093)),
    ],
)
def test_a_listener_is_parsed_and_written_back(text: str, listener: Listener) -> None:
    assert parse_listener(text) == listener
    assert parse_listener(str(listener)) == listener


@pytest.mark.parametrize(
    "text", ["", "h:1", "A://h", "A://h:", "A://h:65536", "A://::1:9092", "://h:1", "A://h:1/", "A://h h:1"]
)
def test_what_is_not_a_listener(text: str) -> None:
    with pytest.raises(ValueError, match="expected name://host:port"):
        parse_listener(text)


def test_a_protocol_map() -> None:
    assert parse_protocol_map(" a:plaintext ,B:SASL_SSL") == {"A": "PLAINTEXT", "B": "SASL_SSL"}
    with pytest.raises(ValueError, match="PLAINTEXT, SSL"):
        parse_protocol_map("A:TLS")


@pytest.mark.parametrize("protocol", SECURITY_PROTOCOLS)
def test_only_plaintext_is_served_yet(protocol: str) -> None:
    problem = problem_with_protocol(Listener("IN", "::1", 9092), protocol)
    if protocol == "PLAINTEXT":
        assert problem is None
    else:
        assert problem == f"cannot listen on IN://[::1]:9092: {protocol} is not there yet, only PLAINTEXT is"
