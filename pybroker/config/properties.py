"""The syntax of Java's .properties files: reading with line numbers, and writing.

Pure functions over text. What java.util.Properties reads, this reads to the same keys and values; what it takes in
silence (a key given twice) or refuses as a whole (a broken \\u escape) comes back as a note with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Entry(NamedTuple):
    key: str
    value: str
    line: int


class Note(NamedTuple):
    """Something wrong in the text: `fatal` when java.util.Properties would refuse the whole file for it."""

    line: int
    key: str
    message: str
    fatal: bool


class Properties(NamedTuple):
    entries: dict[str, Entry]
    notes: tuple[Note, ...]

    @property
    def values(self) -> dict[str, str]:
        return {key: entry.value for key, entry in self.entries.items()}


_BLANK = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}


def parse(text: str) -> Properties:
    entries: dict[str, Entry] = {}
    notes: list[Note] = []
    for line, logical in _logical_lines(text):
        raw_key, raw_value = _split(logical)
        try:
            entry = Entry(_unescape(raw_key), _unescape(raw_value), line)
        except ValueError as error:
            notes.append(Note(line, raw_key, str(error), fatal=True))
            continue
        earlier = entries.pop(entry.key, None)
        if earlier is not None:
            message = f"already given on line {earlier.line}; this line wins"
            notes.append(Note(line, entry.key, message, fatal=False))
        entries[entry.key] = entry
    return Properties(entries, tuple(notes))


def write(values: Mapping[str, str]) -> str:
    """The text that `parse`, and java.util.Properties, read back as `values`; ASCII only."""
    return "".join(f"{_escape(key, is_key=True)}={_escape(value, is_key=False)}\n" for key, value in values.items())


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines joined where a backslash ends one, without blank lines, comments and leading blanks."""
    joined = ""
    start = 0
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(_BLANK)
        if not joined:
            if not line or line[0] in "#!":
                continue
            start = number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            joined += line[:-1]
            continue
        yield start, joined + line
        joined = ""
    if joined:
        yield start, joined


def _split(line: str) -> tuple[str, str]:
    at = 0
    while at < len(line) and line[at] not in "=:" + _BLANK:
        at += 2 if line[at] == "\\" else 1
    key, rest = line[:at], line[at:].lstrip(_BLANK)
    if rest and rest[0] in "=:":
        rest = rest[1:].lstrip(_BLANK)
    return key, rest


def _unescape(raw: str) -> str:
    if "\\" not in raw:
        return raw
    unescaped = _ESCAPE.sub(_unescape_one, raw)
    return _SURROGATE_PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), unescaped)


def _unescape_one(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) == 5:
        return chr(int(escape[1:], 16))
    if escape == "u":
        # What follows is not quoted: it may be part of a password.
        raise ValueError("a \\u escape needs four hexadecimal digits (a backslash itself is written \\\\)")
    return _LETTERS.get(escape, escape)


def _escape(text: str, *, is_key: bool) -> str:
    pieces = []
    for position, char in enumerate(text):
        if char in _WRITTEN:
            pieces.append(_WRITTEN[char])
        elif char in "=:#!" or (char == " " and (is_key or position == 0)):
            pieces.append("\\" + char)
        elif " " <= char <= "~":
            pieces.append(char)
        else:
            utf16 = char.encode("utf-16-be", "surrogatepass")
            pieces.extend(f"\\u{utf16[i : i + 2].hex()}" for i in range(0, len(utf16), 2))
    return "".join(pieces)
