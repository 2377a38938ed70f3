"""From texts to typed values, one key at a time: which row of the tables a name belongs to, and is its value allowed.

Pure. Cross checks between keys are in `checks`; here every key stands alone, and its problem quotes its value unless
the value is a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pybroker.config.key import Key
from pybroker.config.keys import BROKER, PER_LISTENER, WHILE_RUNNING
from pybroker.config.keys.removed import removed
from pybroker.config.problems import Problem, Severity
from pybroker.config.types import HIDDEN, ConfigType, parse
from pybroker.config.validators import expectation

OWN_PREFIX = "pybroker."
# Where a config is given that the metadata log holds.
CLUSTER_LEVEL, BROKER_LEVEL = "dynamic cluster config", "dynamic broker config"
PLUGIN_PREFIX_KEYS = ("remote.log.storage.manager.impl.prefix", "remote.log.metadata.manager.impl.prefix")

# A shorter distance is taken for a slip of the pen, a longer one for somebody else's key.
_TYPO = 0.9
_LISTENER_KEY = re.compile(r"listener\.name\.(?P<listener>[^.]+)\.(?P<rest>.+)")


class Given(NamedTuple):
    """A text and where it stands. Its repr hides the text, which may be a password."""

    value: str
    where: str

    def __repr__(self) -> str:
        return f"Given({HIDDEN}, {self.where!r})"


class Override(NamedTuple):
    """What follows `listener.name.` in the name of a key: whose override it is."""

    listener: str
    mechanism: str | None
    key: Key


class Reading(NamedTuple):
    values: dict[str, Any]
    problems: list[Problem]


def read_value(key: Key, name: str, given: Given) -> tuple[Any, Problem | None]:
    """The typed value, or the problem with it."""
    shown = HIDDEN if key.type is ConfigType.PASSWORD else given.value
    try:
        value = parse(key.type, given.value)
        if key.type is ConfigType.LIST:
            value = tuple(dict.fromkeys(value))
        if key.allowed.accepts(value):
            return value, None
    except ValueError:
        pass
    message = f"{name}={shown} is not allowed; allowed: {expectation(key.type, key.allowed)}"
    return None, Problem(Severity.ERROR, given.where, (name,), message)


def parse_override(name: str) -> Override | None:
    """`listener.name.{listener}.{key}` or `listener.name.{listener}.{mechanism}.{key}` taken apart."""
    match = _LISTENER_KEY.fullmatch(name)
    if match is None:
        return None
    listener, rest = match["listener"].upper(), match["rest"]
    if rest in BROKER:
        return Override(listener, None, BROKER[rest])
    mechanism, _dot, key = rest.partition(".")
    return Override(listener, mechanism.upper(), BROKER[key]) if key in BROKER else None


def read_broker(given: Mapping[str, Given]) -> Reading:
    """The typed values of all that is given, listener overrides under their whole names, and every problem found."""
    reading = Reading({}, [])
    prefixes = _plugin_prefixes(given)
    for name, one in given.items():
        override = parse_override(name)
        key = override.key if override else BROKER.get(name)
        if name in WHILE_RUNNING:
            reading.problems.extend(_while_running(name, one))
            continue
        if key is None:
            if not name.startswith(prefixes):
                reading.problems.append(_unknown(name, one))
            continue
        if key.ignored is not None:
            message = f"{name} has no effect: {key.ignored}"
            reading.problems.append(Problem(Severity.WARNING, one.where, (name,), message))
        elif override is not None and key.name not in PER_LISTENER:
            message = f"{name} has no effect: {key.name} cannot be set for a single listener"
            reading.problems.append(Problem(Severity.WARNING, one.where, (name,), message))
        value, problem = read_value(key, name, one)
        if problem is not None:
            reading.problems.append(problem)
        else:
            reading.values[name] = value
    return reading


def read_resource(keys: Mapping[str, Key], what: str, given: Mapping[str, str]) -> Reading:
    """The same for a topic or a group, where an unknown key is always an error."""
    reading = Reading({}, [])
    for name, text in given.items():
        where = f"{what} config"
        if name not in keys:
            message = f"{name} is not a {what} config{_did_you_mean(nearest(name, keys))}"
            reading.problems.append(Problem(Severity.ERROR, where, (name,), message))
            continue
        if (ignored := keys[name].ignored) is not None:
            reading.problems.append(Problem(Severity.WARNING, where, (name,), f"{name} has no effect: {ignored}"))
        value, problem = read_value(keys[name], name, Given(text, where))
        if problem is not None:
            reading.problems.append(problem)
        else:
            reading.values[name] = value
    return reading


def is_meant(name: str, given: Mapping[str, Given]) -> bool:
    """Whether one who gives this name means a key: one there is or was, a plugin's, or one of these misspelt."""
    if name in BROKER or parse_override(name) is not None or removed(name) is not None:
        return True
    return name.startswith(_plugin_prefixes(given)) or _is_slip(name)


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    from difflib import get_close_matches  # takes longer to load than this whole package

    return next(iter(get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)


def _plugin_prefixes(given: Mapping[str, Given]) -> tuple[str, ...]:
    return tuple(given[name].value.strip() if name in given else BROKER[name].default for name in PLUGIN_PREFIX_KEYS)


def _while_running(name: str, given: Given) -> list[Problem]:
    if given.where in (CLUSTER_LEVEL, BROKER_LEVEL):
        _, problem = read_value(WHILE_RUNNING[name], name, given)
        return [] if problem is None else [problem]
    message = f"{name} has no effect here: it is set while the broker runs, by kafka-configs"
    return [Problem(Severity.WARNING, given.where, (name,), message)]


def _unknown(name: str, given: Given) -> Problem:
    reason = removed(name)
    if reason is not None:
        return Problem(Severity.WARNING, given.where, (name,), f"{name} has no effect: {reason}")
    base = _without_listener(name)
    near = nearest(base, BROKER)
    hint = _did_you_mean(name.removesuffix(base) + near if near else None)
    if _is_slip(name):
        return Problem(Severity.ERROR, given.where, (name,), f"{name} is not a known key{hint}")
    return Problem(Severity.WARNING, given.where, (name,), f"{name} is not a known key and has no effect{hint}")


def _is_slip(name: str) -> bool:
    return name.startswith(OWN_PREFIX) or nearest(_without_listener(name), BROKER, _TYPO) is not None


def _without_listener(name: str) -> str:
    match = _LISTENER_KEY.fullmatch(name)
    return match["rest"] if match else name


def _did_you_mean(name: str | None) -> str:
    return f"; did you mean {name}?" if name else ""
