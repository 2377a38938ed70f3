"""What stands before every request and response.

Request header v1, or v2 (with tags) where the request is flexible; the client id keeps its two-byte length in both, so that
a broker can read it of an ApiVersions newer than it knows. Response header v0, or v1 where the response is flexible, except
ApiVersions, which is always answered under v0.
"""

from __future__ import annotations

from pybroker.protocol.message import Message, col


class RequestHeader(Message, versions="1-2", flexible="2+"):
    request_api_key:     int        = col("int16")
    request_api_version: int        = col("int16")
    correlation_id:      int        = col("int32")
    client_id:           str | None = col("string", "1+", nullable="1+", flexible="none")


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    correlation_id: int = col("int32")
