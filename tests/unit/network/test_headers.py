from __future__ import annotations

import struct

import pytest

from pybroker.network.headers import BadRequestError, Header, read_header, table_of
from pybroker.protocol.api_table import APIS
from pybroker.protocol.messages.headers import RequestHeader
from pybroker.protocol.schema import Versions

BY_KEY = {api.key: api for api in APIS}
TABLE = table_of({0: (BY_KEY[0], Versions(3, 12)), 3: (BY_KEY[3], Versions(0, 13)), 18: (BY_KEY[18], Versions(0, 4))})


def read(data: bytes) -> Header:
    return read_header(TABLE, memoryview(bytearray(data)))


def header(key: int, version: int, client_id: str | None = "me", header_version: int = 1, **values: object) -> bytes:
    return RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=42, client_id=client_id, **values
    ).encode(header_version)


@pytest.mark.parametrize("client_id", ["me", "", None, "größer"])
def test_the_header_of_every_request_served(client_id: str | None) -> None:
    for served in TABLE.values():
        encoded = header(served.api.key, served.version, client_id, served.api.request_header_version(served.version))
        assert read(encoded + b"body") == (served, 42, client_id, len(encoded))
        assert served.answer_version == served.version


def test_tagged_fields_of_a_header_are_passed_over() -> None:
    encoded = header(0, 9, header_version=2, unknown_tagged_fields={7: b"seven", 300: b""})
    assert read(encoded + b"body")[3] == len(encoded)


def test_api_versions_of_an_unknown_version_is_answered_in_version_0() -> None:
    encoded = header(18, 99, header_version=2)
    assert read(encoded)[0][1:] == (99, 0, True)
    assert read(header(18, -1))[0][1:] == (-1, 0, False)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "a request of 0 bytes ends within its header"),
        (bytes(9), "a request of 9 bytes ends within its header"),
        (header(99, 0), "a request with API key 99, which is not served on this listener"),
        (header(-5, 0), "a request with API key -5, which is not served on this listener"),
        (header(0, 2), "Produce v2, of which 3 to 12 are served"),
        (header(0, 13), "Produce v13, of which 3 to 12 are served"),
        (header(0, -1), "Produce v-1, of which 3 to 12 are served"),
        (struct.pack(">hhih", 3, 0, 1, 100) + b"abc", "a client id of 100 bytes in a request of 13"),
        (struct.pack(">hhih", 3, 0, 1, -2), "a client id of -2 bytes"),
        (struct.pack(">hhih", 3, 0, 1, 2) + b"\xff\xfe", "a client id that is not UTF-8"),
        (header(0, 9), "a request of 12 bytes ends within its header"),
        (header(0, 9) + b"\x01\x05\x7f", "a request header with a length of 127 bytes, but 0 remain"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, reason: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        read(data)
    assert str(caught.value) == reason
