"""Cases: steps that are done on both sides, one version after the other, and the comparison of what was answered.

    case("an unknown topic", topic("t"), fetch("nobody"), versions="4-12")

What comes before the first request of the API in question is done once; from there on, everything is done in every version.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

from interop.answers.differences import DIFFERENCES
from interop.answers.side import APIS_BY_KEY, Side

from pybroker.protocol.schema import Versions

Answers = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """`do` gets the side and the version of the sweep (None: the API's newest); what it returns is compared."""

    text: str
    do: Callable[[Side, int | None], Any]
    key: int | None = None  # the API of the request
    changes: bool = False  # whether the controller is asked to change something


@dataclass(frozen=True, slots=True)
class Case:
    family: str
    name: str
    steps: tuple[Step, ...]
    key: int
    versions: Versions
    ignore: str = ""  # a pattern of paths in the answers that nothing specifies

    def __str__(self) -> str:
        return self.name

    @property
    def slug(self) -> str:
        """A part of topic names that no other case has."""
        text = f"{self.family} {self.name}"
        return f"{re.sub(r'[^a-z0-9]+', '-', text.lower())[:60].strip('-')}-{crc32(text.encode()):08x}"

    def answers(self, side: Side) -> Answers:
        first = next((number for number, step in enumerate(self.steps) if step.key == self.key), len(self.steps))
        assert first < len(self.steps), f"{self.name}: no step asks {APIS_BY_KEY[self.key].name}"
        out: Answers = {}
        self._run(side, self.steps[:first], None, out)
        for version in range(self.versions.low, self.versions.high + 1):
            side.version = version
            self._run(side, self.steps[first:], version, out)
        return out

    def _run(self, side: Side, steps: tuple[Step, ...], version: int | None, out: Answers) -> None:
        for number, step in enumerate(steps, 1):
            swept = version if step.key == self.key else None
            label = f"{'once' if version is None else f'v{version}'} {number} {step.text}"
            out[label] = step.do(side, swept)
            if step.changes:
                side.settle()


class Family(NamedTuple):
    """The cases of an API; called, it makes one."""

    key: int
    name: str

    def __call__(self, name: str, *steps: Step, versions: str = "", ignore: str = "") -> Case:
        stable = APIS_BY_KEY[self.key].stable_versions
        asked = Versions.parse(versions) if versions else stable
        return Case(self.name, name, steps, self.key, Versions(asked.low, min(asked.high, stable.high)), ignore)


def family(key: int, name: str = "") -> Family:
    return Family(key, name or APIS_BY_KEY[key].name)


@dataclass
class Pair:
    """Apache Kafka and the broker it judges."""

    sides: Callable[[str], tuple[Side, Side]]
    judge: bool  # both are Apache Kafka: no difference is allowed
    allowed: set[int] = field(default_factory=set)  # the rows of DIFFERENCES that were seen

    def compare(self, case: Case) -> None:
        __tracebackhide__ = True
        one, other = self.sides(case.slug)
        with one, other, ThreadPoolExecutor(2) as both:
            running = [both.submit(case.answers, side) for side in (one, other)]
            theirs, ours = (run.result() for run in running)
        found = [row for row in differences(theirs, ours) if not (case.ignore and re.search(case.ignore, row.path))]
        left = found if self.judge else [row for row in found if not row.says_more and not self._is_allowed(case, row)]
        shown = "\n".join(
            f"  {row.path}\n    Apache Kafka: {row.theirs!r}\n    here:         {row.ours!r}" for row in left[:40]
        )
        assert not left, f"{case.family}: {case.name}: {len(left)} differences\n{shown}"

    def _is_allowed(self, case: Case, row: Difference) -> bool:
        for number, (cases, path, _) in enumerate(DIFFERENCES):
            if re.fullmatch(cases, f"{case.family}: {case.name}") and re.search(path, row.path):
                self.allowed.add(number)
                return True
        return False


class Difference(NamedTuple):
    path: str
    theirs: Any
    ours: Any

    @property
    def says_more(self) -> bool:
        """An error that comes with words where Apache Kafka has none."""
        return self.path.endswith("/error_message") and self.theirs is None


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


NOTHING = _Nothing()


def differences(theirs: Any, ours: Any, path: str = "") -> Iterator[Difference]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in {**theirs, **ours}:
            yield from differences(theirs.get(key, NOTHING), ours.get(key, NOTHING), f"{path}/{key}" if path else str(key))
    elif isinstance(theirs, list) and isinstance(ours, list):
        for number in range(max(len(theirs), len(ours))):
            their, our = (side[number] if number < len(side) else NOTHING for side in (theirs, ours))
            yield from differences(their, our, f"{path}/{number}")
    elif theirs != ours:
        yield Difference(path, theirs, ours)
