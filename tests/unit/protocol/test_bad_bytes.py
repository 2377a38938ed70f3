"""Whatever the bytes, a decoder returns a message or raises a ProtocolError (tests/fuzz does the same with many more)."""

from __future__ import annotations

import random

from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.random_messages import message_versions, random_message

from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.message import Message
from pybroker.protocol.messages.fetch import FetchRequest

KINDS = list(message_versions())


def decode_or_refuse(cls: type[Message], version: int, frame: bytes) -> None:
    try:
        message = cls.decode(version, frame)
    except ProtocolError as error:
        assert (error.message, error.version) == (cls.__name__, version)
        assert 0 <= error.offset <= len(frame)
    else:
        encoded = message.encode(version)
        assert cls.decode(version, encoded).encode(version) == encoded


@settings(max_examples=1500, deadline=None)
@given(kind=st.sampled_from(KINDS), frame=st.binary(max_size=200))
@example(kind=(FetchRequest, 12), frame=b"\xff" * 40)
@example(kind=(FetchRequest, 12), frame=b"\x80" * 40)
def test_any_bytes(kind: tuple[type[Message], int], frame: bytes) -> None:
    decode_or_refuse(*kind, frame)


@settings(max_examples=1500, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 1 << 32),
    position=st.floats(0, 1),
    cut=st.integers(0, 8),
    patch=st.binary(max_size=8),
)
def test_a_whole_frame_with_a_patch(
    kind: tuple[type[Message], int], seed: int, position: float, cut: int, patch: bytes
) -> None:
    cls, version = kind
    frame = random_message(random.Random(seed), cls, version, unknown_tags=True).encode(version)
    start = int(position * len(frame))
    decode_or_refuse(cls, version, frame[:start] + patch + frame[start + cut :])
