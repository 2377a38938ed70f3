from __future__ import annotations

import struct

import pytest
from support.reactor import fetched

from pybroker.network.answers import Gather, chunks_of, encode_answer
from pybroker.protocol.api_table import API_VERSIONS_KEY, APIS
from pybroker.protocol.message import Splices
from pybroker.protocol.messages.api_versions import ApiVersionsResponse
from pybroker.protocol.messages.headers import ResponseHeader


class Sized:
    """Records that lie in a file."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length


def test_the_table_of_apis_says_the_same_about_headers() -> None:
    """`encode_answer` looks at the class of the response alone."""
    for api in APIS:
        assert api.key == api.response.KEY
        for version in range(api.versions.low, api.versions.high + 1):
            is_tagged = version in api.response.FLEXIBLE and api.key != API_VERSIONS_KEY
            assert is_tagged == bool(api.response_header_version(version))


def test_size_header_and_message() -> None:
    out, splices = bytearray(b"before"), []
    message = ApiVersionsResponse(error_code=35, api_keys=[])
    encode_answer(message, 0, 99, out, splices)
    body = message.encode(0)
    assert out == b"before" + struct.pack(">ii", 4 + len(body), 99) + body


def test_spliced_records_count_for_the_size_and_stand_where_they_belong() -> None:
    out: bytearray = bytearray()
    splices: Splices = []
    records = Sized(1000)
    encode_answer(fetched(b"x" * 1000), 12, 1, whole := bytearray(), [])
    encode_answer(fetched(records), 12, 1, out, splices)
    assert struct.unpack_from(">i", out)[0] == len(whole) - 4 == len(out) - 4 + 1000
    head, middle, tail = chunks_of(out, splices)
    assert middle is records
    assert bytes(head) + b"x" * 1000 + bytes(tail) == whole


def test_two_answers_with_records_in_one_gather() -> None:
    gather = Gather(0)
    first, second = Sized(10), Sized(20)
    encode_answer(fetched(first), 12, 1, gather.out, gather.splices)
    encode_answer(fetched(second), 12, 2, gather.out, gather.splices)
    chunks = gather.take()
    assert [chunk for chunk in chunks if isinstance(chunk, Sized)] == [first, second]
    sent = b"".join(bytes(len(chunk)) if isinstance(chunk, Sized) else bytes(chunk) for chunk in chunks)
    size = struct.unpack_from(">i", sent)[0]
    assert struct.unpack_from(">ii", sent, 4 + size) == (len(sent) - size - 8, 2)
    assert gather.take() == []


def test_what_cannot_be_encoded_leaves_nothing_behind() -> None:
    out, splices = bytearray(b"before"), []
    bad = fetched(Sized(5))
    bad.responses[0].partitions.append("no partition")  # type: ignore[arg-type]
    with pytest.raises(Exception, match="FetchResponse"):
        encode_answer(bad, 12, 1, out, splices)
    assert out == b"before"
    assert splices == []


def test_flexible_answers_have_tags_in_the_header_but_api_versions_has_not() -> None:
    versions = ApiVersionsResponse(error_code=0, api_keys=[])
    for message, version, tags in ((fetched(b""), 11, 0), (fetched(b""), 12, 1), (versions, 3, 0)):
        out = bytearray()
        encode_answer(message, version, 7, out, [])
        header, position = ResponseHeader.decode_from(tags, out, 4)
        assert header.correlation_id == 7
        assert type(message).decode(version, out[position:]) == message
