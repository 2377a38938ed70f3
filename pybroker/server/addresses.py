"""Whether a text is an address, or the name of a host that has one. It asks the resolver, which may take its time."""

from __future__ import annotations

import socket


def is_address(text: str) -> bool:
    try:
        socket.getaddrinfo(text, None)
    except (OSError, UnicodeError):
        return False
    return True
