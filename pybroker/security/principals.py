"""Principals: who a connection speaks for."""

from __future__ import annotations

from typing import Final, NamedTuple

USER_TYPE: Final = "User"


class Principal(NamedTuple):
    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


# Everybody on a listener that asks nobody who they are.
ANONYMOUS: Final = Principal(USER_TYPE, "ANONYMOUS")
