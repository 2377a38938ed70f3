from __future__ import annotations

import struct
from typing import Any

import pytest

from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.messages.cluster import EnvelopeRequest
from pybroker.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from pybroker.security.principals import ANONYMOUS, Principal
from pybroker.server.envelopes import FORWARDABLE, principal_bytes, unwrap, wrap, wrapped_answer

ALICE = Principal("User", "alice")
TOPIC = CreatableTopic(name="t", num_partitions=3, replication_factor=1, assignments=[], configs=[])
CREATE = CreateTopicsRequest(topics=[TOPIC], timeout_ms=1000)


def on_the_wire(envelope: EnvelopeRequest) -> EnvelopeRequest:
    return EnvelopeRequest.decode(0, memoryview(bytearray(envelope.encode(0))))


@pytest.mark.parametrize("version", [2, 7])
@pytest.mark.parametrize(("client_id", "host"), [("admin", "10.1.2.3"), (None, "fe80::1%eth0")])
def test_what_is_wrapped_comes_out_again(version: int, client_id: str | None, host: str) -> None:
    envelope = on_the_wire(wrap(CREATE, version, 99, client_id, ALICE, host))
    forwarded = unwrap(envelope)
    assert forwarded.api.name == "CreateTopics"
    assert (forwarded.version, forwarded.correlation_id, forwarded.client_id) == (version, 99, client_id)
    assert (forwarded.principal, forwarded.host) == (ALICE, host.partition("%")[0])
    assert CreateTopicsRequest.decode(version, forwarded.frame[forwarded.position :]) == CREATE


def test_a_principal_is_its_version_and_then_the_message() -> None:
    assert principal_bytes(ANONYMOUS) == b"\0\0" + b"\x05User" + b"\x0aANONYMOUS" + b"\0" + b"\0"


def test_an_address_is_its_bytes() -> None:
    assert wrap(CREATE, 7, 1, None, ALICE, "127.0.0.1").client_host_address == bytes([127, 0, 0, 1])
    assert wrap(CREATE, 7, 1, None, ALICE, "::1").client_host_address == bytes(15) + b"\1"


def test_the_answer_has_the_header_of_the_request_inside() -> None:
    forwarded = unwrap(wrap(CREATE, 7, 99, "x", ALICE, "127.0.0.1"))
    response = CreateTopicsResponse(topics=[])
    answer = wrapped_answer(forwarded, response)
    assert answer.response_data is not None
    assert bytes(answer.response_data) == struct.pack(">iB", 99, 0) + response.encode(7)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"request_principal": None}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\0"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\0\7" + principal_bytes(ALICE)[2:]}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": principal_bytes(ALICE)[:-3]}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"client_host_address": b"12345"}, ErrorCode.INVALID_REQUEST),
        ({"request_data": b""}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": struct.pack(">hhih", 19, 99, 1, -1)}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": struct.pack(">hhih", 999, 0, 1, -1)}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": struct.pack(">hhihb", 3, 12, 1, -1, 0)}, ErrorCode.INVALID_REQUEST),  # Metadata
    ],
)
def test_what_cannot_be_unwrapped_is_answered_with_kafkas_errors(changes: dict[str, Any], code: ErrorCode) -> None:
    envelope = wrap(CREATE, 7, 1, None, ALICE, "127.0.0.1")
    for name, value in changes.items():
        setattr(envelope, name, value)
    with pytest.raises(KafkaError) as raised:
        unwrap(on_the_wire(envelope))
    assert raised.value.code is code


def test_what_only_nodes_say_to_each_other_is_not_forwarded() -> None:
    assert not FORWARDABLE & {0, 1, 3, 18, 52, 53, 54, 56, 58, 59, 62, 63, 70, 73, 82}
