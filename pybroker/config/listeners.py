"""Listeners as values: `listeners`, `advertised.listeners` and `listener.security.protocol.map` parsed. Pure.

A name is upper case, whatever the file says; an empty host means all interfaces, port 0 one that the system picks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SERVED_PROTOCOLS = ("PLAINTEXT",)

_LISTENER = re.compile(r"(?P<name>[^:/\s]+)://(\[(?P<ipv6>[0-9a-zA-Z:%.]+)\]|(?P<host>[0-9a-zA-Z\-%._]*)):(?P<port>[0-9]{1,5})")


class Listener(NamedTuple):
    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def parse_listener(text: str) -> Listener:
    match = _LISTENER.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise ValueError(f"{text!r} is not a listener: expected name://host:port")
    return Listener(match["name"].upper(), match["ipv6"] or match["host"] or "", int(match["port"]))


def parse_listeners(texts: Iterable[str]) -> tuple[Listener, ...]:
    return tuple(parse_listener(text) for text in texts)


def parse_protocol_map(text: str) -> dict[str, str]:
    """Listener name to security protocol."""
    protocols = {}
    for pair in filter(None, (piece.strip() for piece in text.split(","))):
        name, _colon, protocol = (piece.strip().upper() for piece in pair.rpartition(":"))
        if not name or protocol not in SECURITY_PROTOCOLS:
            raise ValueError(f"{pair!r} is not name:protocol with a protocol of {', '.join(SECURITY_PROTOCOLS)}")
        protocols[name] = protocol
    return protocols


def problem_with_protocol(listener: Listener, protocol: str) -> str | None:
    """Why a node cannot listen on `listener`, whatever the machine says."""
    if protocol in SERVED_PROTOCOLS:
        return None
    return f"cannot listen on {listener}: {protocol} is not there yet, only {', '.join(SERVED_PROTOCOLS)} is"
