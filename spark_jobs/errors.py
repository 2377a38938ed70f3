"""What a user is told when a job cannot go on: one line, and an exit code."""

from __future__ import annotations

from typing import Any

FAILED = 1  # the job began and could not end
REFUSED = 2  # the command line, the machine or the data are not as they should be: nothing was written
INTERRUPTED = 130

_MAX_CAUSES = 20
_MAX_CHARS = 500


class Begun:
    """Whether a job has written anything yet: a topic, a row, a checkpoint. What cannot go on from then on has failed, and
    is not refused any more."""

    def __init__(self) -> None:
        self.is_set = False

    def mark(self) -> None:
        self.is_set = True


class JobError(Exception):
    """Says what was found, what was expected and what to do."""

    def __init__(self, message: str, exit_code: int = REFUSED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def explain(error: BaseException) -> str:
    """One line for an error of Spark's: that of the innermost cause, which is where the story begins."""
    throwable = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if throwable is None:
        return _one_line(f"{type(error).__name__}: {error}")
    names = [_describe(throwable)]
    for _ in range(_MAX_CAUSES):
        throwable = throwable.getCause()
        if throwable is None:
            break
        names.append(_describe(throwable))
    return _one_line(_of_python(names) or names[-1])


def _describe(throwable: Any) -> str:
    return f"{throwable.getClass().getSimpleName()}: {throwable.getMessage()}"


def _of_python(names: list[str]) -> str | None:
    """An error that was raised in foreachBatch or in a function of ours comes back as a Python traceback in Java's message,
    which may go on with Spark's plan: the first line behind the traceback that is not indented names the error."""
    for name in names:
        _, traceback, rest = name.rpartition("Traceback (most recent call last):")
        if traceback:
            raised = [line for line in name.splitlines() if "JobError: " in line]
            lines = [line for line in rest.splitlines() if line and not line.startswith((" ", "\t"))]
            return raised[-1].split("JobError: ", 1)[1] if raised else next(iter(lines), None)
    return None


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_CHARS else line[: _MAX_CHARS - 1] + "…"
