from __future__ import annotations

import hmac
from base64 import b64decode

from pybroker.security.scram import ScramMechanism, keys_of, mechanism_named, mechanism_of, salted_password


def test_the_example_of_rfc_7677() -> None:
    """User "user", password "pencil": the server's signature in the RFC follows from this server key."""
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = salted_password(ScramMechanism.SCRAM_SHA_256, "pencil", salt, 4096)
    keys = keys_of(ScramMechanism.SCRAM_SHA_256, salted)
    auth = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,"
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    assert hmac.digest(keys.server_key, auth, "sha256") == b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert len(keys.stored_key) == 32


def test_mechanisms_by_number_and_by_name() -> None:
    assert mechanism_of(2) is ScramMechanism.SCRAM_SHA_512
    assert mechanism_of(0) is None
    assert mechanism_of(3) is None
    assert mechanism_named("SCRAM-SHA-256") is ScramMechanism.SCRAM_SHA_256
    assert mechanism_named("PLAIN") is None
    assert len(keys_of(ScramMechanism.SCRAM_SHA_512, b"salted").server_key) == 64
