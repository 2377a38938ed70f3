from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.config.properties import Entry, parse, write

characters = st.characters(exclude_categories=["Cs"])


@given(st.dictionaries(st.text(characters, min_size=1), st.text(characters)))
def test_what_is_written_is_read_back(values: dict[str, str]) -> None:
    parsed = parse(write(values))
    assert parsed.values == values
    assert parsed.notes == ()


@given(st.text(st.sampled_from("ab=:#!\\ \t\f\n\ru0041é")))
def test_any_text_is_parsed_to_entries_and_notes_with_lines_of_the_text(text: str) -> None:
    parsed = parse(text)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
    assert all(1 <= entry.line <= lines for entry in parsed.entries.values())
    assert all(1 <= note.line <= lines for note in parsed.notes)


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("a=b", "a", "b"),
        ("a:b", "a", "b"),
        ("a b", "a", "b"),
        ("  a \t=\f b  ", "a", "b  "),
        ("a", "a", ""),
        ("a=", "a", ""),
        ("a==b", "a", "=b"),
        ("a : : b", "a", ": b"),
        (r"a\=b\:c\ d=e", "a=b:c d", "e"),
        (r"\#a=b", "#a", "b"),
        (r"a=\t\n\r\f\\", "a", "\t\n\r\f\\"),
        (r"a=\z\"\=", "a", 'z"='),
        (r"a=\u00e9\u20AC", "a", "é€"),
        (r"a=\ud83d\ude00", "a", "😀"),
        ("a=b\\\n   c\\\n\td", "a", "bcd"),
        ("a=b\\\r\n c", "a", "bc"),
        ("a=b\\\\", "a", "b\\"),
        ("a=b\\\n#c", "a", "b#c"),
        ("a=b\\", "a", "b"),
        ("\\\n  a=b", "a", "b"),
    ],
)
def test_syntax(text: str, key: str, value: str) -> None:
    assert parse(text).values == {key: value}


@pytest.mark.parametrize("text", ["", "\n\r\n \t\f\n", "# a=b", "  ! a=b", "#a\\\n#b"])
def test_comments_and_blank_lines_hold_nothing(text: str) -> None:
    assert parse(text).entries == {}


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_an_entry_knows_the_line_it_begins_on(end: str) -> None:
    text = end.join(["# one", "", "a=1\\", "  2", "b=3"])
    assert list(parse(text).entries.values()) == [Entry("a", "12", 3), Entry("b", "3", 5)]


def test_of_a_key_given_twice_the_last_wins_and_a_note_says_so() -> None:
    parsed = parse("a=1\nb=2\na=3\n")
    assert parsed.values == {"b": "2", "a": "3"}
    [note] = parsed.notes
    assert (note.line, note.key, note.fatal) == (3, "a", False)
    assert "line 1" in note.message


@pytest.mark.parametrize("value", [r"\u", r"\u12", r"\u12G4", r"abc\uxyz"])
def test_a_broken_escape_is_fatal_and_its_value_is_not_repeated(value: str) -> None:
    parsed = parse(f"a=1\nssl.key.password={value}\nb=2\n")
    assert parsed.values == {"a": "1", "b": "2"}
    [note] = parsed.notes
    assert (note.line, note.key, note.fatal) == (2, "ssl.key.password", True)
    assert value not in note.message.replace(r"\u escape", "")
