"""Identifiers as Kafka writes them.

A Uuid is its 16 bytes, big end first: cheap to slice out of a frame, to hash and to compare. Its text is 22 characters of
url-safe base64 without padding, which is what meta.properties, the tools and the JSON form of messages show.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NewType

Uuid = NewType("Uuid", bytes)

ZERO_UUID = Uuid(bytes(16))
METADATA_TOPIC_UUID = Uuid(bytes(15) + b"\x01")


def uuid_to_text(uuid: Uuid) -> str:
    return urlsafe_b64encode(uuid)[:22].decode("ascii")


def uuid_from_text(text: str) -> Uuid:
    """The uuid that `text` spells; ValueError if it spells none."""
    try:
        raw = urlsafe_b64decode(text + "==") if len(text) == 22 else b""
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 16 or uuid_to_text(Uuid(raw)) != text:
        raise ValueError(f"{text!r} is not a uuid: expected 22 characters of url-safe base64")
    return Uuid(raw)
