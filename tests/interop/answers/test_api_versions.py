"""ApiVersions 0-4 and versions that nobody knows; requests that no broker answers; what pipelined requests get: the same as
Apache Kafka does."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from interop.answers.admin import api_versions_of, describe_cluster, list_offsets, metadata_of
from interop.answers.case import Case, Pair, Step, family
from interop.answers.plain import plain
from interop.answers.side import APIS_BY_KEY, Side
from interop.answers.steps import fetch, on, produce, records, topic

from pybroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pybroker.protocol.messages.headers import RequestHeader, ResponseHeader
from pybroker.protocol.messages.metadata import MetadataRequest

versions = family(18)

# What this stage serves; what comes later is not advertised until it is there.
SERVED = (0, 1, 2, 3, 18, 19, 20, 21, 22, 23, 32, 33, 34, 35, 37, 44, 60, 61, 74, 75)


def asked(version: int, body: bytes = b"", *, tags: bytes = b"\0") -> Step:
    """ApiVersions in a version that may be unknown: the answer is then one of version 0."""

    def do(side: Side, _: int | None) -> Any:
        header = struct.pack(">hhih", 18, version, 77, 1) + b"c" + tags
        side.send_raw(header + body)
        answer = side.answer_raw()
        if not isinstance(answer, bytes):
            return repr(answer)
        found, position = ResponseHeader.decode_from(0, answer, 0)
        shown = plain(side, ApiVersionsResponse.decode(0, answer[position:]), 0)
        return {"correlation_id": found.correlation_id, **shown}

    return Step(f"api versions {version}", do)


def sent(text: str, frame: bytes, size: int | None = None) -> Step:
    """Whether a frame is answered, and how many answers come is all that is looked at."""

    def do(side: Side, _: int | None) -> Any:
        side.send_raw(frame, "raw", size)
        answer = side.answer_raw("raw")
        return "an answer" if isinstance(answer, bytes) else repr(answer)

    return Step(text, do)


def framed(key: int, version: int, body: bytes, header_version: int | None = None, client_id: str | None = "c") -> bytes:
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=9, client_id=client_id)
    if header_version is None:
        header_version = APIS_BY_KEY[key].request_header_version(version) if key in APIS_BY_KEY else 1
    return header.encode(header_version) + body


def raw(name: str, frame: bytes, size: int | None = None) -> Case:
    return versions(name, sent("frame", frame, size), api_versions_of(SERVED), versions="4")


METADATA = MetadataRequest(topics=[], allow_auto_topic_creation=False)
SOFTWARE = ApiVersionsRequest(client_software_name="c", client_software_version="1").encode(3)


def pipelined(*frames: tuple[int, int, bytes]) -> Step:
    """Several requests at once: the correlation ids and sizes of the answers, in their order."""

    def do(side: Side, _: int | None) -> Any:
        numbers = [side.send(APIS_BY_KEY[key], version, body, "raw") for key, version, body in frames]
        answers = [side.answer_raw("raw") for _ in frames]
        found = [struct.unpack_from(">i", answer)[0] if isinstance(answer, bytes) else repr(answer) for answer in answers]
        return "in order" if found == numbers else found

    return Step("pipelined", do)


CASES = [
    versions("what is served", api_versions_of(SERVED)),
    versions(
        "after another request", metadata_of("nobody"), api_versions_of(SERVED), describe_cluster(), api_versions_of(SERVED)
    ),
    *(
        versions(f"an unknown version {version}", asked(version, SOFTWARE), api_versions_of(SERVED), versions="4")
        for version in (5, 6, 99, 32767)
    ),
    versions("an unknown version with a body of nobody's", asked(99, b"\xff" * 20), api_versions_of(SERVED), versions="4"),
    versions("an unknown version without a body", asked(99, tags=b""), api_versions_of(SERVED), versions="4"),
    versions("a negative version", asked(-1), api_versions_of(SERVED), versions="4"),
    *(
        versions(f"software {name!r} {software!r}", api_versions_of(SERVED, name=name, software=software), versions="3+")
        for name, software in (
            ("", "1"),
            ("c", ""),
            ("a b", "1"),
            ("-a", "1"),
            ("a.b-c", "1.0-x"),
            ("c", "1 0"),
            ("c_d", "1"),
            ("ü", "1"),
            ("x" * 300, "1"),
        )
    ),
    # Closed, all of them
    *(
        raw(f"{APIS_BY_KEY[key].name} {version}", framed(key, version, bytes(40), 1))
        for key, version in (
            (0, 0),
            (0, 2),
            (0, 14),
            (1, 3),
            (1, 19),
            (2, 0),
            (3, 14),
            (19, 1),
            (20, 0),
            (32, 0),
            (22, 6),
            (23, 1),
            (60, 3),
            (75, 1),
            (3, -1),
        )
    ),
    *(raw(f"api key {key}", framed(key, 0, bytes(20), 1)) for key in (4, 7, 200, -1, 32767)),
    *(raw(f"{APIS_BY_KEY[key].name}, which only controllers serve", framed(key, 0, bytes(40))) for key in (52, 53, 58, 62, 63)),
    raw("an empty frame", b""),
    *(raw(f"a frame of {size} bytes", framed(3, 12, METADATA.encode(12))[:size]) for size in (1, 3, 4, 7, 8, 9, 11)),
    raw("a body cut off", framed(3, 12, METADATA.encode(12)[:-2])),
    raw("no body", framed(3, 12, b"")),
    raw("a body of nobody's", framed(3, 12, b"\xff" * 30)),
    raw("bytes behind the body", framed(3, 12, METADATA.encode(12) + b"more")),
    raw("bytes behind the body, not flexible", framed(3, 8, METADATA.encode(8) + b"more")),
    raw("no client id", framed(3, 12, METADATA.encode(12), client_id=None)),
    raw("an empty client id", framed(3, 12, METADATA.encode(12), client_id="")),
    raw("a client id of 32,767 bytes", framed(3, 12, METADATA.encode(12), client_id="x" * 32767)),
    raw("a header without tags where they belong", framed(3, 12, METADATA.encode(12), 1)),
    raw("an unknown tag in the header", framed(3, 12, b"", 1) + b"\x01\x63\x02ab" + METADATA.encode(12)),
    raw("an unknown tag in the body", framed(3, 12, METADATA.encode(12)[:-1] + b"\x01\x63\x02ab")),
    raw("a tag twice", framed(3, 12, METADATA.encode(12)[:-1] + b"\x02\x63\x02ab\x63\x02ab")),
    raw("an array of minus two", framed(3, 8, struct.pack(">i", -2) + b"\0\0\0")),
    raw("an array longer than the frame", framed(3, 8, struct.pack(">i", 1_000_000) + b"\0\0\0")),
    raw("a boolean of 7", framed(3, 8, struct.pack(">i", 0) + b"\x07\x00\x00")),
    raw("a negative length", b"", -1),
    raw("the most negative length", b"", -(2**31)),
    raw("a length above the limit", b"", 104_857_601),
    raw("HTTP", b"T / HTTP/1.1\r\n\r\n", struct.unpack(">i", b"GET ")[0]),
    # Order
    versions(
        "pipelined", pipelined(*[(18, 3, SOFTWARE), (3, 12, METADATA.encode(12))] * 5), api_versions_of(SERVED), versions="4"
    ),
    versions(
        "a silent one in between",
        topic(),
        produce(on(records=records()), acks=0, silent=True),
        list_offsets(on(at=-1)),
        fetch(on()),
        api_versions_of(SERVED),
        versions="4",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_same_answer(pair: Pair, case: Case) -> None:
    pair.compare(case)
