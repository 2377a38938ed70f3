"""A principal as brokers forward it in an Envelope."""

from __future__ import annotations

from pybroker.protocol.message import Message, col


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    type:                str  = col("string")
    name:                str  = col("string")
    token_authenticated: bool = col("bool")
