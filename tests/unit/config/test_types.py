from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.config.types import ConfigType, Password, parse, to_text


@pytest.mark.parametrize(
    ("config_type", "text", "value"),
    [
        (ConfigType.INT, " 12\t", 12),
        (ConfigType.INT, "+12", 12),
        (ConfigType.INT, "-2147483648", -(2**31)),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.SHORT, "32767", 32767),
        (ConfigType.DOUBLE, "1", 1.0),
        (ConfigType.DOUBLE, ".5", 0.5),
        (ConfigType.DOUBLE, "1.5e3d", 1500.0),
        (ConfigType.DOUBLE, "-Infinity", float("-inf")),
        (ConfigType.BOOLEAN, " True ", True),
        (ConfigType.BOOLEAN, "false", False),
        (ConfigType.STRING, "  two words ", "two words"),
        (ConfigType.STRING, "", ""),
        (ConfigType.LIST, " a , b,c ", ("a", "b", "c")),
        (ConfigType.LIST, "  ", ()),
        (ConfigType.CLASS, " com.example.A ", "com.example.A"),
        (ConfigType.PASSWORD, " x ", Password("x")),
    ],
)
def test_texts_that_spell_a_value(config_type: ConfigType, text: str, value: object) -> None:
    parsed = parse(config_type, text)
    assert (parsed, type(parsed)) == (value, type(value))


@pytest.mark.parametrize(
    ("config_type", "text"),
    [
        (ConfigType.INT, ""),
        (ConfigType.INT, "1_000"),
        (ConfigType.INT, "0x10"),
        (ConfigType.INT, "1.0"),
        (ConfigType.INT, "1 2"),
        (ConfigType.INT, "2147483648"),
        (ConfigType.INT, "9" * 5000),
        (ConfigType.SHORT, "32768"),
        (ConfigType.LONG, "9223372036854775808"),
        (ConfigType.DOUBLE, "one"),
        (ConfigType.DOUBLE, "NaN"),
        (ConfigType.DOUBLE, "inf"),
        (ConfigType.DOUBLE, "1_0.5"),
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.BOOLEAN, "1"),
        (ConfigType.LIST, "a,,b"),
        (ConfigType.LIST, ","),
        (ConfigType.CLASS, ""),
    ],
)
def test_texts_that_spell_none(config_type: ConfigType, text: str) -> None:
    with pytest.raises(ValueError, match=r"^[a-z0-9 ,]+$"):
        parse(config_type, text)


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_long_comes_back_from_its_text(value: int) -> None:
    assert parse(ConfigType.LONG, str(to_text(value))) == value


@given(st.floats(allow_nan=False))
def test_a_double_comes_back_from_its_text(value: float) -> None:
    assert parse(ConfigType.DOUBLE, str(to_text(value))) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (0.5, "0.5"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (1e7, "1.0E7"),
        (12345678.5, "1.23456785E7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("inf"), "Infinity"),
        (("a", "b"), "a,b"),
        ((), ""),
        (Password("x"), "[hidden]"),
    ],
)
def test_texts_are_javas(value: object, text: str | None) -> None:
    assert to_text(value) == text


def test_a_password_shows_itself_to_nobody() -> None:
    password = Password("secret")
    assert password.value == "secret"
    shown = [str(password), repr(password), f"{password}", f"{password!r:>20}", repr([password]), f"{password:}"]
    assert not any("secret" in text for text in shown)
    with pytest.raises(TypeError) as error:
        pickle.dumps(password)
    assert "secret" not in str(error.value)


def test_passwords_are_equal_by_value() -> None:
    assert Password("a") == Password("a")
    assert Password("a") != Password("b")
    assert Password("a") != "a"
    assert len({Password("a"), Password("a")}) == 1
