from __future__ import annotations

from pybroker.protocol.message import Encoded, col, encoder
from pybroker.protocol.messages.metadata import MetadataResponse

VERSION = 13


class EncodedAnswer(Encoded, key=3, versions="0-13", flexible="9+"):
    body: bytes = col("bytes")


def test_what_was_encoded_before_goes_out_as_it_is() -> None:
    body = MetadataResponse(brokers=[], topics=[], cluster_id="c").encode(VERSION)
    once = EncodedAnswer(body=body)
    assert once.encode(VERSION) == body
    out = bytearray(b"header")
    encoder(EncodedAnswer, VERSION)(once, out, None)
    assert out == b"header" + body
