from __future__ import annotations

import pytest

from pybroker.metadata.controller.topic_names import problem_with_name, twin_of


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * 249, "__consumer_offsets"])
def test_good_names(name: str) -> None:
    assert problem_with_name(name) is None


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "empty"),
        (".", "directory"),
        ("..", "directory"),
        ("x" * 250, "found 250"),
        ("a b", "'a b'"),
        ("a\n", "letters"),
        ("é", "letters"),
        ("a/b", "letters"),
    ],
)
def test_bad_names_are_told_why(name: str, problem: str) -> None:
    assert problem in (problem_with_name(name) or "")


def test_dots_and_underscores_are_twins() -> None:
    assert twin_of("a.b", {"a_b": 1}) == "a_b"
    assert twin_of("a_b.c", {"a.b_c": 1}) == "a.b_c"
    assert twin_of("a.b", {"a.b": 1, "ab": 1, "a-b": 1}) is None
    assert twin_of("ab", {"a_b": 1}) is None


def test_a_name_with_very_many_dots_is_compared_with_every_topic() -> None:
    assert twin_of("." * 100, {"_" * 100: 1, "x": 1}) == "_" * 100
    assert twin_of("." * 100, {"." * 100: 1, "x": 1}) is None
