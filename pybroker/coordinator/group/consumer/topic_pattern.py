"""Regular expressions that consumers subscribe to topics with: the syntax of RE2, matched in time linear in a topic's name.

Whoever may join a group may send one, so it must not be able to keep the coordinator busy: no backtracking, no references,
no lookaround, and a limit to its size. The names of topics have 65 different characters, all ASCII: a class of characters
is a number with one bit for each ASCII character. Parsed to a tree here; topic_automaton.py matches.
"""

from __future__ import annotations

import string
import unicodedata
from typing import Final

from pybroker.coordinator.group.consumer.topic_automaton import Assertion, Node, NodeKind, TopicAutomaton

MAX_DEPTH: Final = 100
MAX_REPEAT: Final = 1000

_ALL: Final = (1 << 128) - 1


class PatternError(ValueError):
    """What is wrong with an expression, in RE2's words."""


def _mask(characters: str) -> int:
    mask = 0
    for one in characters:
        if ord(one) < 128:
            mask |= 1 << ord(one)
    return mask


_ASCII: Final = "".join(map(chr, range(128)))
_CLASSES: Final = {
    "d": _mask(string.digits),
    "w": _mask(string.ascii_letters + string.digits + "_"),
    "s": _mask("\t\n\f\r "),
}
_POSIX: Final = {
    "alnum": _mask(string.ascii_letters + string.digits),
    "alpha": _mask(string.ascii_letters),
    "ascii": _ALL,
    "blank": _mask("\t "),
    "cntrl": _mask(_ASCII[:32] + "\x7f"),
    "digit": _mask(string.digits),
    "graph": _mask(_ASCII[33:127]),
    "lower": _mask(string.ascii_lowercase),
    "print": _mask(_ASCII[32:127]),
    "punct": _mask(string.punctuation),
    "space": _mask("\t\n\v\f\r "),
    "upper": _mask(string.ascii_uppercase),
    "word": _CLASSES["w"],
    "xdigit": _mask(string.hexdigits),
}
_CONTROLS: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ASSERTIONS: Final = {"A": Assertion.BEGIN, "z": Assertion.END, "b": Assertion.WORD_EDGE, "B": Assertion.NO_WORD_EDGE}
_NEWLINE: Final = _mask("\n")
_CATEGORIES: Final = frozenset(
    kind + one
    for kind, parts in {"C": "cfos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps"}.items()
    for one in ("", *parts)
)
# Of all scripts these have characters in ASCII; names of others are known by their look only.
_SCRIPTS: Final = {"Latin": _mask(string.ascii_letters), "Common": _ALL & ~_mask(string.ascii_letters)}


def compile_pattern(text: str) -> TopicAutomaton:
    """Matches whole names; PatternError if `text` is no expression."""
    return TopicAutomaton(_Parser(text).parse())


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._folds = False  # (?i)
        self._dot_newline = False  # (?s)
        self._names: set[str] = set()

    def parse(self) -> Node:
        node = self._alternatives()
        if self._at < len(self._text):
            raise PatternError("unexpected )")
        return node

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _take(self, expected: str) -> bool:
        if self._text.startswith(expected, self._at):
            self._at += len(expected)
            return True
        return False

    def _next(self, problem: str) -> str:
        if self._at >= len(self._text):
            raise PatternError(problem)
        self._at += 1
        return self._text[self._at - 1]

    # Structure.

    def _alternatives(self) -> Node:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else Node(NodeKind.ONE_OF, children=tuple(branches))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        can_repeat = False
        while (one := self._peek()) not in ("", "|", ")"):
            repeat = self._repeat(one)
            if repeat is not None:
                if not parts:
                    raise PatternError("missing argument to repetition operator")
                if not can_repeat:
                    raise PatternError("invalid nested repetition operator")
                parts[-1] = Node(NodeKind.REPEAT, children=(parts[-1],), low=repeat[0], high=repeat[1])
                can_repeat = False
                continue
            if self._take(r"\Q"):
                quoted, _, _ = self._text[self._at :].partition(r"\E")
                self._at = min(self._at + len(quoted) + 2, len(self._text))
                parts += [self._literal(character) for character in quoted]
            else:
                parts.append(self._atom())
            can_repeat = True
        return parts[0] if len(parts) == 1 else Node(NodeKind.SEQUENCE, children=tuple(parts))

    def _repeat(self, one: str) -> tuple[int, int | None] | None:
        """Least and most of a repetition that stands here, or None; braces that say none are characters."""
        bounds: tuple[int, int | None] | None
        if one in "*+?":
            self._at += 1
            bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}[one]
        elif one == "{":
            bounds = self._braces()
        else:
            return None
        if bounds is not None:
            self._take("?")  # lazy: whether a name matches does not depend on it
        return bounds

    def _braces(self) -> tuple[int, int | None] | None:
        end = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : end].partition(",") if end > 0 else ("", "", "")
        if not _is_number(low) or (high and not _is_number(high)):
            return None
        bounds = int(low), (int(low) if not comma else int(high) if high else None)
        if bounds[0] > MAX_REPEAT or (bounds[1] is not None and not bounds[0] <= bounds[1] <= MAX_REPEAT):
            raise PatternError("invalid repetition size")
        self._at = end + 1
        return bounds

    def _atom(self) -> Node:
        one = self._next("unexpected end")
        if one == "(":
            return self._group()
        if one == "[":
            return Node(NodeKind.CHARACTER, mask=self._class())
        if one == ".":
            return Node(NodeKind.CHARACTER, mask=_ALL if self._dot_newline else _ALL & ~_NEWLINE)
        if one in "^$":
            # Names of topics are one line.
            return Node(NodeKind.ASSERTION, assertion=Assertion.BEGIN if one == "^" else Assertion.END)
        if one == "\\":
            after = self._peek()
            if after in _ASSERTIONS:
                self._at += 1
                return Node(NodeKind.ASSERTION, assertion=_ASSERTIONS[after])
            mask = self._escaped_class()
            return self._literal(self._escape()) if mask is None else Node(NodeKind.CHARACTER, mask=mask)
        return self._literal(one)

    def _literal(self, one: str) -> Node:
        return Node(NodeKind.CHARACTER, mask=self._folded(_mask(one)))

    def _folded(self, mask: int) -> int:
        if self._folds:
            upper, lower = mask & _POSIX["upper"], mask & _POSIX["lower"]
            mask |= upper << 32 | lower >> 32
        return mask

    # Groups and flags.

    def _group(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise PatternError("expression nests too deeply")
        before = self._folds, self._dot_newline
        if self._take("?") and self._flags_end():
            self._depth -= 1
            return Node(NodeKind.SEQUENCE)  # (?i): from here to the end of the group around it
        node = self._alternatives()
        if not self._take(")"):
            raise PatternError("missing closing )")
        self._folds, self._dot_newline = before
        self._depth -= 1
        return node

    def _flags_end(self) -> bool:
        """What stands between `(?` and the group's own text; True if there is no such text."""
        if self._take("P<") or self._take("<"):
            name, closed, _ = self._text[self._at :].partition(">")
            if not closed or not _is_word(name):
                raise PatternError("invalid named capture")
            if name in self._names:
                raise PatternError("duplicate capture group name")
            self._names.add(name)
            self._at += len(name) + 1
            return False
        sets = True
        while True:
            flag = self._next("missing argument to repetition operator")
            if flag in ":)":
                return flag == ")"
            if flag == "-" and sets:
                sets = False
            elif flag == "i":
                self._folds = sets
            elif flag == "s":
                self._dot_newline = sets
            elif flag not in "mU":
                raise PatternError("invalid or unsupported Perl syntax")

    # Classes and escapes.

    def _class(self) -> int:
        negates = self._take("^")
        mask = 0
        is_first = True
        while is_first or self._peek() != "]":
            if self._peek() == "":
                raise PatternError("missing closing ]")
            is_first = False
            mask |= self._class_part()
        self._at += 1
        mask = self._folded(mask)
        return _ALL & ~mask if negates else mask

    def _class_part(self) -> int:
        if self._take("[:"):
            name, closed, _ = self._text[self._at :].partition(":]")
            if closed:
                self._at += len(name) + 2
                known = _POSIX.get(name.removeprefix("^"))
                if known is None:
                    raise PatternError("invalid character class range")
                return _ALL & ~known if name.startswith("^") else known
            self._at -= 2
        if self._peek() == "\\":
            self._at += 1
            mask = self._escaped_class()
            if mask is not None:
                return mask
            low = self._escape()
        else:
            low = self._next("missing closing ]")
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in ("", "]"):
            return _mask(low)
        self._at += 1
        high = self._next("missing closing ]")
        if high == "\\":
            high = self._escape()
        if low > high:
            raise PatternError("invalid character class range")
        return _mask("".join(map(chr, range(ord(low), min(ord(high), 127) + 1))))

    def _escaped_class(self) -> int | None:
        r"""\d, \pL and the like, behind the backslash; None if it is no class."""
        one = self._peek()
        if one and one.lower() in _CLASSES:
            self._at += 1
            mask = _CLASSES[one.lower()]
            return mask if one.islower() else _ALL & ~mask
        if one not in ("p", "P"):
            return None
        self._at += 1
        name = self._next("invalid character class range")
        if name == "{":
            name, closed, _ = self._text[self._at :].partition("}")
            if not closed:
                raise PatternError("invalid character class range")
            self._at += len(name) + 1
        negates = (one == "P") != name.startswith("^")
        mask = _category(name.removeprefix("^"))
        return _ALL & ~mask if negates else mask

    def _escape(self) -> str:
        one = self._next("trailing backslash at end of expression")
        if one in _CONTROLS:
            return _CONTROLS[one]
        if one == "x":
            return self._hex()
        if one == "0" or (one in "1234567" and self._peek() in tuple("01234567")):
            digits = one
            while len(digits) < 3 and self._peek() in tuple("01234567"):
                digits += self._next("")
            return chr(int(digits, 8))
        if ord(one) < 128 and not _is_word(one):
            return one
        raise PatternError("invalid escape sequence")

    def _hex(self) -> str:
        if self._take("{"):
            digits, closed, _ = self._text[self._at :].partition("}")
            is_whole = bool(closed)
            self._at += len(digits) + 1
        else:
            digits = self._text[self._at : self._at + 2]
            is_whole = len(digits) == 2
            self._at += 2
        is_hex = bool(digits) and all(one in string.hexdigits for one in digits)
        if not is_whole or not is_hex or int(digits, 16) > 0x10FFFF:
            raise PatternError("invalid escape sequence")
        return chr(int(digits, 16))


def _category(name: str) -> int:
    if name == "Any":
        return _ALL
    if name in _CATEGORIES:
        return _mask("".join(one for one in _ASCII if unicodedata.category(one).startswith(name)))
    if name in _SCRIPTS:
        return _SCRIPTS[name]
    if len(name) > 2 and name[0].isupper() and _is_word(name):
        return 0
    raise PatternError("invalid character class range")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _is_word(text: str) -> bool:
    return text.isascii() and text.replace("_", "a").isalnum()
