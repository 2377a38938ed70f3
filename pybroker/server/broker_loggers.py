"""The levels of this process's Python loggers, as the configs of a BROKER_LOGGER resource. Any thread.

A level set here lasts until the node stops. Log4j's TRACE is one step below Python's DEBUG, its FATAL is CRITICAL.
"""

from __future__ import annotations

import logging
from typing import Final

ROOT: Final = "root"
TRACE: Final = 5

LEVELS: Final = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def names() -> list[str]:
    """The loggers there are, and the packages above them."""
    return [ROOT, *sorted(logging.root.manager.loggerDict.copy())]


def exists(name: str) -> bool:
    return name == ROOT or name in logging.root.manager.loggerDict


def level_of(name: str) -> str:
    """The level that counts for a logger: its own or that of the next one above."""
    level = _logger(name).getEffectiveLevel()
    return next((text for text, number in LEVELS.items() if level <= number), "FATAL")


def set_level(name: str, level: str) -> None:
    _logger(name).setLevel(LEVELS[level])


def unset_level(name: str) -> None:
    """From now on the level of the next logger above counts."""
    _logger(name).setLevel(logging.NOTSET)


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)
