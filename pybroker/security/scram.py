"""SCRAM credentials (RFC 5802): the mechanisms, and the keys that are kept in place of a password."""

from __future__ import annotations

import hashlib
import hmac
from enum import IntEnum
from typing import Final, NamedTuple

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384


class ScramMechanism(IntEnum):
    """The numbers are the protocol's."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"


class ScramKeys(NamedTuple):
    stored_key: bytes
    server_key: bytes


def mechanism_of(number: int) -> ScramMechanism | None:
    return ScramMechanism(number) if number in (1, 2) else None


def mechanism_named(name: str) -> ScramMechanism | None:
    return next((one for one in ScramMechanism if one.sasl_name == name), None)


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Hi(password, salt, iterations) of the RFC; the password's bytes are taken as they are, as Kafka's clients do."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def keys_of(mechanism: ScramMechanism, salted: bytes) -> ScramKeys:
    """What a server has to know of a salted password."""
    client_key = hmac.digest(salted, b"Client Key", mechanism.hash_name)
    return ScramKeys(
        stored_key=hashlib.new(mechanism.hash_name, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", mechanism.hash_name),
    )
