"""SASL inside Kafka frames: the mechanism is agreed on, then its tokens go back and forth."""

from __future__ import annotations

from pybroker.protocol.message import Message, col


class SaslHandshakeRequest(Message, key=17, versions="0-1"):
    mechanism: str = col("string")


class SaslHandshakeResponse(Message, key=17, versions="0-1"):
    error_code: int       = col("int16")
    mechanisms: list[str] = col("[]string")


class SaslAuthenticateRequest(Message, key=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes = col("bytes")


class SaslAuthenticateResponse(Message, key=36, versions="0-2", flexible="2+"):
    error_code:          int        = col("int16")
    error_message:       str | None = col("string", nullable="0+")
    auth_bytes:          bytes      = col("bytes")
    session_lifetime_ms: int        = col("int64", "1+", default=0, ignorable=True)
