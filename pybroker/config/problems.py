"""What is wrong with a configuration, in a form that people read and tests can take apart."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"


class Problem(NamedTuple):
    severity: Severity
    where: str
    """`file:line`, `file` for what is missing in it, `environment variable X`, or `command line`."""
    keys: tuple[str, ...]
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.severity.value}: {self.message}"


def errors(problems: Iterable[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem.severity is Severity.ERROR]
