"""Expressions for topics: RE2's syntax, whole names, linear time."""

from __future__ import annotations

import itertools
import random
import re
import time

import pytest

from pybroker.coordinator.group.consumer import topic_automaton
from pybroker.coordinator.group.consumer.topic_automaton import TooLargeError
from pybroker.coordinator.group.consumer.topic_pattern import compile_pattern


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("orders", ["orders"], ["orders-1", "my-orders"]),
        ("orders-.*", ["orders-", "orders-eu"], ["orders"]),
        ("a|b-[0-9]+", ["a", "b-17"], ["b-", "a-1"]),
        (r"^t\.\d{2,3}$", ["t.12", "t.123"], ["t.1", "t.1234", "tx12"]),
        ("(?i)Events", ["events", "EVENTS"], ["event"]),
        (r"[[:upper:]]+\w", ["ABc", "Z_"], ["abc"]),
        (r"\p{Lu}\PL", ["A1", "Z-"], ["AB", "11"]),
        (r"\Qa.b\E", ["a.b"], ["axb"]),
        (r"(?P<team>x|y)-.*", ["x-1", "y-"], ["z-1"]),
        (r"pre\b.*", ["pre", "pre-1"], ["prefix"]),
        ("x{,2}", [], ["x", "xx", ""]),
        ("[^a-m.]+", ["zoo", "n"], ["a", "n.n"]),
        (r"\x41\x{42}", ["AB"], ["41"]),
    ],
)
def test_what_matches(pattern: str, matching: list[str], others: list[str]) -> None:
    automaton = compile_pattern(pattern)
    assert [name for name in matching + others if automaton.matches(name)] == matching


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(", "missing closing )"),
        (")", "unexpected )"),
        ("[a", "missing closing ]"),
        ("a**", "invalid nested repetition operator"),
        ("*a", "missing argument to repetition operator"),
        (r"(a)\1", "invalid escape sequence"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("a{1001}", "invalid repetition size"),
        ("[b-a]", "invalid character class range"),
        ("a\\", "trailing backslash at end of expression"),
        ("((a{100}){100}){100}", "expression is too large"),
        ("(" * 200 + ")" * 200, "expression nests too deeply"),
    ],
)
def test_what_is_no_expression(pattern: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        compile_pattern(pattern)


def test_the_same_as_python_says_where_both_agree_on_the_syntax() -> None:
    rng = random.Random(5)

    def any_pattern(depth: int) -> str:
        kind = rng.randrange(6) if depth else 0
        if kind in (1, 2):
            return any_pattern(depth - 1) + any_pattern(depth - 1)
        if kind == 3:
            return f"({any_pattern(depth - 1)}|{any_pattern(depth - 1)})"
        if kind == 4:
            return f"({any_pattern(depth - 1)}){rng.choice(['*', '+', '?', '{1,2}'])}"
        return rng.choice(["a", "b", ".", "[ab]", "[^a]", r"\b", "^", "$"])

    names = ["".join(letters) for length in range(1, 6) for letters in itertools.product("ab-", repeat=length)]
    for _ in range(300):
        pattern = any_pattern(4)
        automaton, theirs = compile_pattern(pattern), re.compile(pattern)
        for name in rng.sample(names, 50):
            assert automaton.matches(name) == (theirs.fullmatch(name) is not None), (pattern, name)


def test_no_expression_keeps_the_coordinator_busy() -> None:
    begin = time.process_time()
    assert not compile_pattern("(a+)+(a|aa)*b").matches("a" * 249)
    assert time.process_time() - begin < 1.0


# Nearly everywhere at once, and never in the same places.
COSTLY = "([a-z]?){1000}([a-z]?){1000}x|.*a.{200}"


def any_names(count: int) -> list[str]:
    rng = random.Random(3)
    return ["".join(rng.choices("abcdefghij", k=40)) for _ in range(count)]


def test_an_expression_that_takes_too_long_for_the_topics_there_are_is_given_up() -> None:
    automaton = compile_pattern(COSTLY)
    assert automaton.matching(["x", "y"]) == ["x"]
    with pytest.raises(TooLargeError, match="takes too long"):
        automaton.matching(any_names(200))


def test_what_is_remembered_of_an_expression_is_bounded_by_its_size_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_automaton, "MAX_REMEMBERED", 50_000)
    automaton = compile_pattern(COSTLY)
    largest = 0
    for name in any_names(8):
        automaton.matching([name])
        held = {id(places): len(places) for step in automaton._steps.values() for places in (step[0],)}
        largest = max(largest, sum(held.values()))
    # The limit is looked at between two names.
    assert 50_000 < largest < 50_000 + 40 * 8_000


def test_many_topics_and_a_long_list_of_names_are_not_too_much() -> None:
    names = any_names(2000)
    wanted = names[:100]
    assert compile_pattern("|".join(wanted)).matching(names) == wanted
    assert compile_pattern(".*(abc|bcd|cde|def|efg).*").matching(names) == [
        name for name in names if any(part in name for part in ("abc", "bcd", "cde", "def", "efg"))
    ]
