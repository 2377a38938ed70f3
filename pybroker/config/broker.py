"""The configuration of a node: typed, immutable, and loaded whole or not at all.

Loading collects every problem of the file, of the environment and of the command line before it answers. Only `load_file`
does I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pybroker.config import properties
from pybroker.config.checks import findings
from pybroker.config.dynamic import check_dynamic
from pybroker.config.environment import with_environment
from pybroker.config.key import REQUIRED, Key
from pybroker.config.keys import BROKER
from pybroker.config.listeners import Listener, parse_listeners, parse_protocol_map
from pybroker.config.problems import Problem, Severity, errors
from pybroker.config.reading import BROKER_LEVEL, CLUSTER_LEVEL, Given, read_broker
from pybroker.config.types import ConfigType

if TYPE_CHECKING:
    from pathlib import Path

COMMAND_LINE = "command line"


class Config(Mapping[str, Any]):
    """`config["log.segment.bytes"]` is the effective value of a key: given, or from a fallback, or the default."""

    __slots__ = ("_given", "_overrides", "_values", "listeners")

    def __init__(self, given: Mapping[str, Given], values: Mapping[str, Any]) -> None:
        self._given = dict(given)
        self._values = {name: _effective(key, values) for name, key in BROKER.items()}
        self._overrides = {name: value for name, value in values.items() if name not in BROKER}
        self._derive()
        self.listeners: tuple[Listener, ...] = parse_listeners(self["listeners"])

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def int(self, name: str) -> int:
        return cast("int", self._values[name])

    def text(self, name: str) -> str:
        return cast("str", self._values[name])

    def flag(self, name: str) -> bool:
        return cast("bool", self._values[name])

    def items_of(self, name: str) -> tuple[str, ...]:
        return cast("tuple[str, ...]", self._values[name] or ())

    @property
    def given(self) -> Mapping[str, Given]:
        """The texts this configuration was made of, plugin keys and unknown ones among them."""
        return self._given

    @property
    def is_broker(self) -> bool:
        return "broker" in self["process.roles"]

    @property
    def is_controller(self) -> bool:
        return "controller" in self["process.roles"]

    @property
    def controller_listener_names(self) -> tuple[str, ...]:
        return tuple(name.upper() for name in self.items_of("controller.listener.names"))

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        return tuple(one for one in self.listeners if one.name not in self.controller_listener_names)

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        return tuple(one for one in self.listeners if one.name in self.controller_listener_names)

    @property
    def advertised_listeners(self) -> tuple[Listener, ...]:
        """What brokers advertise, then what controllers do: a controller listener not mentioned is advertised as is."""
        advertised = parse_listeners(self["advertised.listeners"] or map(str, self.broker_listeners))
        mentioned = {one.name for one in advertised}
        return advertised + tuple(one for one in self.controller_listeners if one.name not in mentioned)

    @property
    def security_protocols(self) -> dict[str, str]:
        """Listener name to protocol. Without an explicit map a controller listener is plaintext, if all others are."""
        protocols = parse_protocol_map(self["listener.security.protocol.map"])
        if "listener.security.protocol.map" not in self._given:
            names = {one.name for one in self.listeners} | set(self.controller_listener_names)
            if not names & {"SSL", "SASL_SSL", "SASL_PLAINTEXT"}:
                protocols = dict.fromkeys(self.controller_listener_names, "PLAINTEXT") | protocols
        return protocols

    def for_listener(self, listener: str, name: str, mechanism: str | None = None) -> Any:
        """The value of a key on one listener (and one SASL mechanism): the narrowest override there is."""
        prefix = f"listener.name.{listener.lower()}."
        if mechanism is not None and f"{prefix}{mechanism.lower()}.{name}" in self._overrides:
            return self._overrides[f"{prefix}{mechanism.lower()}.{name}"]
        return self._overrides.get(prefix + name, self._values[name])

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """The keys handed to a plugin, without the prefix."""
        return {name[len(prefix) :]: one.value for name, one in self._given.items() if name.startswith(prefix)}

    def with_changes(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> Loaded:
        """The file's configuration, which this must be, under the dynamic configs of the cluster and then of this broker."""
        problems = check_dynamic(cluster, per_broker=False) + check_dynamic(broker, per_broker=True)
        if errors(problems):
            return Loaded(None, tuple(problems))
        changes = {name: Given(text, CLUSTER_LEVEL) for name, text in cluster.items()}
        changes |= {name: Given(text, BROKER_LEVEL) for name, text in broker.items()}
        return load(self._given | changes)

    def _derive(self) -> None:
        values = self._values
        values["log.retention.ms"] = max(-1, values["log.retention.ms"])
        if not values["metadata.log.dir"]:
            values["metadata.log.dir"] = values["log.dirs"][0]
        if values["num.replica.alter.log.dirs.threads"] is None:
            values["num.replica.alter.log.dirs.threads"] = len(values["log.dirs"])
        if values["inter.broker.listener.name"] is None:
            values["inter.broker.listener.name"] = values["security.inter.broker.protocol"]


class Loaded(NamedTuple):
    """A configuration, unless one of the problems is an error."""

    config: Config | None
    problems: tuple[Problem, ...]


def load(given: Mapping[str, Given], source: str = "configuration") -> Loaded:
    """`source` is what a missing key is said to be missing in."""
    values, problems = read_broker(given)
    broken = {key for problem in errors(problems) for key in problem.keys}
    for key in BROKER.values():
        if key.default is REQUIRED and _is_missing(key, given):
            problems.append(Problem(Severity.ERROR, source, (key.name,), f"{key.name} must be given: {key.doc}"))
            broken.add(key.name)
    config = Config(given, values)
    for finding in findings(config):
        # A check that reads a broken key says nothing that its own problem did not say.
        if not broken.intersection(finding.keys):
            where = next((given[key].where for key in finding.keys if key in given), source)
            problems.append(Problem(finding.severity, where, finding.keys, finding.message))
    return Loaded(None if errors(problems) else config, tuple(problems))


def load_text(text: str, source: str, overrides: Iterable[str] = (), environment: Mapping[str, str] | None = None) -> Loaded:
    """The text of a properties file. The KAFKA_ variables of `environment` win over the file, an override (`key=value`) over
    both."""
    parsed = properties.parse(text)
    problems = []
    for note in parsed.notes:
        severity = Severity.ERROR if note.fatal else Severity.WARNING
        problems.append(Problem(severity, f"{source}:{note.line}", (note.key,), f"{note.key}: {note.message}"))
    given = {key: Given(entry.value, f"{source}:{entry.line}") for key, entry in parsed.entries.items()}
    if environment is not None:
        given = with_environment(given, environment)
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key.strip():
            # What stands there may hold a password: it is not repeated.
            problems.append(Problem(Severity.ERROR, COMMAND_LINE, (), "an override is written key=value"))
            continue
        given[key.strip()] = Given(value, COMMAND_LINE)
    loaded = load(given, source)
    problems += loaded.problems
    return Loaded(None if errors(problems) else loaded.config, tuple(problems))


def load_file(path: Path, overrides: Iterable[str] = (), environment: Mapping[str, str] | None = None) -> Loaded:
    try:
        raw = path.read_bytes()
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        return Loaded(None, (Problem(Severity.ERROR, str(path), (), message),))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        # What java.util.Properties takes every file for.
        text = raw.decode("latin-1")
    return load_text(text, str(path), overrides, environment)


def _effective(key: Key, values: Mapping[str, Any]) -> Any:
    if key.name in values:
        return values[key.name]
    for fallback in key.fallbacks:
        if fallback.name in values:
            return fallback.apply(values[fallback.name])
    if key.default is not None and key.default is not REQUIRED:
        return key.default
    for fallback in key.fallbacks:
        if (default := BROKER[fallback.name].default) is not None and default is not REQUIRED:
            return fallback.apply(default)
    # Of a required key that is missing, the checks still read something of its type.
    return None if key.default is None else () if key.type is ConfigType.LIST else -1


def _is_missing(key: Key, given: Mapping[str, Given]) -> bool:
    return not any(name in given for name in (key.name, *(fallback.name for fallback in key.fallbacks)))
