"""Matches names against an expression's tree, by an automaton that is built as it is used.

Each step goes from a set of places in the expression to the next, whatever the name: linear in its length. Steps that were
taken before are remembered, up to a limit, so that many names cost a table lookup for each character. An expression that is
nearly everywhere at once, and never in the same places, is given up: whoever may join a group may send one, and everybody
else waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Final, NamedTuple

MAX_PLACES: Final = 10_000
MAX_REMEMBERED: Final = 200_000  # places, in all sets of them together
MAX_VISITED: Final = 2_000_000  # places, for all topics of a cluster: about a second


class NodeKind(Enum):
    CHARACTER = auto()
    SEQUENCE = auto()
    ONE_OF = auto()
    REPEAT = auto()
    ASSERTION = auto()


class Assertion(Enum):
    BEGIN = auto()
    END = auto()
    WORD_EDGE = auto()
    NO_WORD_EDGE = auto()


class Node(NamedTuple):
    kind: NodeKind
    children: tuple[Node, ...] = ()
    mask: int = 0  # of characters
    low: int = 0
    high: int | None = None  # None: any number of times
    assertion: Assertion = Assertion.BEGIN


class TooLargeError(ValueError):
    """An expression that would need more than MAX_PLACES, or visit more than MAX_VISITED of them."""


class _Place:
    """Where a match may stand: in front of a character, of an assertion, or of nothing; then in one of `nexts`."""

    __slots__ = ("assertion", "mask", "nexts")

    def __init__(self) -> None:
        self.mask = 0
        self.assertion: Assertion | None = None
        self.nexts: list[int] = []


# What stands on a side of a place.
_EDGE, _WORD, _OTHER = range(3)
_Step = tuple[frozenset[int], int]


class TopicAutomaton:
    def __init__(self, tree: Node) -> None:
        self._places: list[_Place] = []
        begin = self._new()
        self._end = self._add(tree, begin)
        self._begin: _Step = frozenset((begin,)), _EDGE
        self._steps: dict[tuple[_Step, str], _Step] = {}
        self._accepts: dict[_Step, bool] = {}
        self._remembered = 0
        self._visited = 0

    def matching(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that match; TooLargeError if that takes too long."""
        self._visited = 0
        return [name for name in names if self.matches(name)]

    def matches(self, name: str) -> bool:
        """Whether all of `name`, of ASCII characters, matches. Counts on for the limit of `matching`."""
        if self._remembered > MAX_REMEMBERED:
            self._steps.clear()
            self._accepts.clear()
            self._remembered = 0
        steps = self._steps
        here = self._begin
        for one in name:
            after = steps.get((here, one))
            if after is None:
                after = steps[here, one] = self._step(here, one)
                self._remembered += 1 + len(after[0])
            if not after[0]:
                return False
            here = after
        accepts = self._accepts.get(here)
        if accepts is None:
            accepts = self._accepts[here] = self._end in self._reached(here, _EDGE)
        return accepts

    def _step(self, here: _Step, one: str) -> _Step:
        after = _WORD if one.isalnum() or one == "_" else _OTHER
        bit = ord(one)
        reached: set[int] = set()
        for place in self._reached(here, after):
            if self._places[place].mask >> bit & 1:
                reached.update(self._places[place].nexts)
        return frozenset(reached), after

    def _reached(self, here: _Step, after: int) -> set[int]:
        """All places that are got to without a character, with `after` behind them."""
        places, before = here
        reached: set[int] = set()
        waiting = list(places)
        while waiting:
            number = waiting.pop()
            if number in reached:
                continue
            reached.add(number)
            place = self._places[number]
            if not place.mask and (place.assertion is None or _holds(place.assertion, before, after)):
                waiting += place.nexts
        self._visited += len(reached)
        if self._visited > MAX_VISITED:
            raise TooLargeError("it takes too long to match the topics of this cluster")
        return reached

    # Building.

    def _new(self) -> int:
        if len(self._places) >= MAX_PLACES:
            raise TooLargeError("expression is too large")
        self._places.append(_Place())
        return len(self._places) - 1

    def _add(self, node: Node, begin: int) -> int:
        """Put `node` behind the place `begin`; the place behind it."""
        if node.kind is NodeKind.SEQUENCE:
            for child in node.children:
                begin = self._add(child, begin)
            return begin
        if node.kind is NodeKind.ONE_OF:
            end = self._new()
            for child in node.children:
                branch = self._new()
                self._places[begin].nexts.append(branch)
                self._places[self._add(child, branch)].nexts.append(end)
            return end
        if node.kind is NodeKind.REPEAT:
            return self._add_repeat(node, begin)
        here, end = self._new(), self._new()
        self._places[begin].nexts.append(here)
        self._places[here].nexts.append(end)
        if node.kind is NodeKind.ASSERTION:
            self._places[here].assertion = node.assertion
        elif node.mask:
            self._places[here].mask = node.mask
        else:
            self._places[here].nexts.clear()  # a class without characters leads nowhere
        return end

    def _add_repeat(self, node: Node, begin: int) -> int:
        (child,) = node.children
        for _ in range(node.low):
            begin = self._add(child, begin)
        end = self._new()
        if node.high is None:
            loop = self._new()
            self._places[begin].nexts.append(loop)
            self._places[loop].nexts.append(end)
            self._places[self._add(child, loop)].nexts.append(loop)
            return end
        self._places[begin].nexts.append(end)
        for _ in range(node.high - node.low):
            here = self._new()
            self._places[begin].nexts.append(here)
            begin = self._add(child, here)
            self._places[begin].nexts.append(end)
        return end


def _holds(assertion: Assertion, before: int, after: int) -> bool:
    if assertion is Assertion.BEGIN:
        return before == _EDGE
    if assertion is Assertion.END:
        return after == _EDGE
    is_edge = (before == _WORD) != (after == _WORD)
    return is_edge == (assertion is Assertion.WORD_EDGE)
