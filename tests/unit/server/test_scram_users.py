from __future__ import annotations

import pytest

from pybroker.security.scram import ScramMechanism, keys_of, salted_password
from pybroker.server.scram_users import ScramUserError, parse_scram_user


def test_a_user_with_a_password() -> None:
    record = parse_scram_user(" SCRAM-SHA-256=[name=alice,password=secret] ", lambda: b"drawn")
    salted = salted_password(ScramMechanism.SCRAM_SHA_256, "secret", b"drawn", 4096)
    keys = keys_of(ScramMechanism.SCRAM_SHA_256, salted)
    assert (record.name, record.mechanism, record.salt, record.iterations) == ("alice", 1, b"drawn", 4096)
    assert (record.stored_key, record.server_key) == keys


def test_a_salt_is_drawn_for_each() -> None:
    one, other = (parse_scram_user("SCRAM-SHA-512=[name=a,password=b]") for _ in range(2))
    assert one.salt != other.salt
    assert one.stored_key != other.stored_key


def test_a_user_with_a_salted_password() -> None:
    record = parse_scram_user('SCRAM-SHA-512=[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]')
    assert (record.salt, record.iterations) == (b"7q", 8192)
    assert (record.stored_key, record.server_key) == keys_of(ScramMechanism.SCRAM_SHA_512, b"`!")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected SCRAM-SHA-256 or SCRAM-SHA-512"),
        ("PLAIN=[name=a,password=b]", "begins with 'PLAIN'"),
        ("SCRAM-SHA-256=name=a", "in brackets"),
        ("SCRAM-SHA-256=[name=a", "in brackets"),
        ("SCRAM-SHA-256=[password=b]", "the user's name"),
        ("SCRAM-SHA-256=[name=,password=b]", "the user's name"),
        ("SCRAM-SHA-256=[name=a]", "expected password"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=YCE=]", "salt=... beside"),
        ("SCRAM-SHA-256=[name=a,salt=!,saltedpassword=YCE=]", "salt is not base64"),
        ("SCRAM-SHA-256=[name=a,salt=YCE=,saltedpassword=!]", "saltedpassword is not base64"),
        ("SCRAM-SHA-256=[name=a,password=b,iterations=4095]", "iterations=4095; expected 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=b,iterations=many]", "iterations=many"),
        ("SCRAM-SHA-256=[name=a,password=b,shoe=44]", "shoe is not known"),
        ("SCRAM-SHA-256=[name=a,secret]", "without an ="),
    ],
)
def test_what_is_no_user(text: str, problem: str) -> None:
    with pytest.raises(ScramUserError) as caught:
        parse_scram_user(text)
    assert problem in str(caught.value)
    assert "secret" not in str(caught.value)
