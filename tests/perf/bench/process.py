"""What a process and its children cost, and what the machine did meanwhile, from /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


@dataclass(slots=True, frozen=True)
class Memory:
    rss_mb: float
    """What is resident now."""
    peak_mb: float
    """The most that ever was (for a tree: the sum of each process's most)."""


@dataclass(slots=True, frozen=True)
class Noise:
    """What others did to the machine over a stretch of time."""

    load_average: float
    steal_percent: float
    busy_s: float
    """Processor time that was not idle, whoever had it."""


def process_tree(pid: int) -> list[int]:
    """`pid` and all that descend from it."""
    tree = [pid]
    for found in tree:
        try:
            children = (_PROC / f"{found}/task/{found}/children").read_text()
        except OSError:
            continue
        tree.extend(map(int, children.split()))
        # Children that another thread than the first has made.
        for task in _tasks(found):
            if task != found:
                tree.extend(map(int, _read(_PROC / f"{found}/task/{task}/children").split()))
    return tree


def cpu_s(pid: int) -> float:
    """User and system time of `pid`, of its children that have ended, and of those that live."""
    total = 0
    for found in process_tree(pid):
        fields = stat_fields(_read(_PROC / f"{found}/stat"))
        # utime, stime, cutime, cstime; of a child of ours too, for its own children.
        total += sum(map(int, fields[11:15])) if fields else 0
    return total * _TICK_S


def stat_fields(line: str) -> list[str]:
    """The fields of /proc/PID/stat from the third on: the second, a name in parentheses, may hold anything."""
    return line[line.rindex(")") + 2 :].split() if line else []


def memory(pid: int) -> Memory:
    rss_kb = peak_kb = 0
    for found in process_tree(pid):
        rows = dict(line.split(":", 1) for line in _read(_PROC / f"{found}/status").splitlines())
        if "VmRSS" in rows:
            rss_kb += int(rows["VmRSS"].split()[0])
            peak_kb += int(rows["VmHWM"].split()[0])
    return Memory(rss_kb * 1024 / 1e6, peak_kb * 1024 / 1e6)


class NoiseMeter:
    def __init__(self) -> None:
        self._before = _cpu_line()

    def read(self) -> Noise:
        """Since the meter was made."""
        spent = [after - before for before, after in zip(self._before, _cpu_line(), strict=True)]
        idle = spent[3] + spent[4]
        return Noise(os.getloadavg()[0], 100 * spent[7] / max(1, sum(spent)), (sum(spent) - idle) * _TICK_S)


def _cpu_line() -> list[int]:
    return [int(ticks) for ticks in (_PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]]


def _tasks(pid: int) -> list[int]:
    try:
        return [int(task.name) for task in (_PROC / f"{pid}/task").iterdir()]
    except OSError:
        return []


def _read(path: Path) -> str:
    """Nothing for a process that has just ended."""
    try:
        return path.read_text()
    except OSError:
        return ""
