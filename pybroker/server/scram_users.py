"""SCRAM users as `pybroker storage format --add-scram` takes them: `SCRAM-SHA-256=[name=alice,password=secret]`.

In place of a password there may be `salt` with `saltedpassword`, both in base64, and there may be `iterations`; values can
stand in double quotes.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable
from secrets import token_bytes

from pybroker.metadata.scram import ScramCredential, ScramUser, scram_record
from pybroker.protocol.internal.metadata_log import UserScramCredentialRecord
from pybroker.security.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramMechanism,
    keys_of,
    mechanism_named,
    salted_password,
)

SALT_BYTES = 32


class ScramUserError(Exception):
    """A text that describes no user."""


def parse_scram_user(text: str, new_salt: Callable[[], bytes] = lambda: token_bytes(SALT_BYTES)) -> UserScramCredentialRecord:
    """ScramUserError, which names no password, if something is wrong with it."""
    name, equals, rest = text.strip().partition("=")
    mechanism = mechanism_named(name)
    if not equals or mechanism is None:
        known = " or ".join(one.sasl_name for one in ScramMechanism)
        raise ScramUserError(f"it begins with {name!r}; expected {known}, followed by =[name=...,password=...]")
    if not (rest.startswith("[") and rest.endswith("]")):
        raise ScramUserError(f"expected {name}=[...], in brackets")
    fields = dict(_field(part) for part in rest[1:-1].split(","))
    unknown = sorted(fields.keys() - {"name", "password", "iterations", "salt", "saltedpassword"})
    if unknown:
        raise ScramUserError(f"{', '.join(unknown)} is not known; expected name, password, iterations, salt, saltedpassword")
    if not fields.get("name"):
        raise ScramUserError("expected name=..., the user's name")
    iterations = _iterations(fields.get("iterations", str(MIN_ITERATIONS)))
    salt = _bytes(fields, "salt") if "salt" in fields else None
    if "password" in fields:
        salt = new_salt() if salt is None else salt
        salted = salted_password(mechanism, fields["password"], salt, iterations)
    elif "saltedpassword" not in fields:
        raise ScramUserError("expected password=..., or salt=... and saltedpassword=...")
    elif salt is None:
        raise ScramUserError("expected salt=... beside saltedpassword")
    else:
        salted = _bytes(fields, "saltedpassword")
    return scram_record(ScramUser(fields["name"], mechanism), ScramCredential(salt, *keys_of(mechanism, salted), iterations))


def _field(part: str) -> tuple[str, str]:
    name, equals, value = part.partition("=")
    if not equals:
        raise ScramUserError(f"expected pairs name=value between commas; found {len(part)} characters without an =")
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = value[1:-1]
    return name, value


def _iterations(text: str) -> int:
    if not text.isdecimal() or not MIN_ITERATIONS <= int(text) <= MAX_ITERATIONS:
        raise ScramUserError(f"iterations={text}; expected {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    return int(text)


def _bytes(fields: dict[str, str], name: str) -> bytes:
    try:
        return b64decode(fields[name], validate=True)
    except (binascii.Error, ValueError):
        raise ScramUserError(f"{name} is not base64") from None
