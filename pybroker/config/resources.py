"""Configs of topics and groups: what an override would be told, and what DescribeConfigs answers. Pure.

The effective value of a key comes from the first of: the resource itself, this broker's dynamic configs, the cluster's
dynamic default, the node's file, the default. The synonyms list every level that says something, in that order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from pybroker.config.broker import Config
from pybroker.config.key import REQUIRED, Key, Update
from pybroker.config.keys import BROKER, GROUP, TOPIC, WHILE_RUNNING
from pybroker.config.problems import Problem, Severity, errors
from pybroker.config.reading import parse_override, read_resource
from pybroker.config.types import ConfigType, parse, to_text


class Source(IntEnum):
    """The numbers are those of DescribeConfigs."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class Levels(NamedTuple):
    """What the broker's side says, as texts: its own dynamic configs, the cluster's, the node's file."""

    broker: Mapping[str, str]
    cluster: Mapping[str, str]
    static: Mapping[str, str]


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: Source


class Described(NamedTuple):
    key: Key
    value: str | None
    source: Source
    synonyms: tuple[Synonym, ...]
    read_only: bool = False

    @property
    def sensitive(self) -> bool:
        return self.key.type is ConfigType.PASSWORD


def defaults_of(keys: Mapping[str, Key], config: Config) -> dict[str, Any]:
    """What a topic or group without overrides gets from its broker."""
    return {name: config[key.fallbacks[0].name] if key.fallbacks else key.default for name, key in keys.items()}


def check_topic(overrides: Mapping[str, str], config: Config, existing: Mapping[str, str] | None = None) -> list[Problem]:
    """What CreateTopics, or a change of a topic whose overrides were `existing`, would say."""
    values, problems = read_resource(TOPIC, "topic", overrides)
    if errors(problems):
        return problems
    values = defaults_of(TOPIC, config) | values
    messages = [*_topic_conflicts(values, config, existing or {})]
    return problems + [Problem(Severity.ERROR, "topic config", keys, message) for keys, message in messages]


def check_group(overrides: Mapping[str, str], config: Config) -> list[Problem]:
    """What a change of a group's configs would say: the broker's min and max keys bound them."""
    values, problems = read_resource(GROUP, "group", overrides)
    if errors(problems):
        return problems
    effective = defaults_of(GROUP, config) | values
    messages = [*_group_conflicts(values, effective, config)]
    return problems + [Problem(Severity.ERROR, "group config", keys, message) for keys, message in messages]


def _topic_conflicts(
    values: Mapping[str, Any], config: Config, existing: Mapping[str, str]
) -> Iterator[tuple[tuple[str, ...], str]]:
    low, high = "min.compaction.lag.ms", "max.compaction.lag.ms"
    if values[low] > values[high]:
        yield (low, high), f"{low}={values[low]} must not be more than {high}={values[high]}"
    remote = "remote.storage.enable"
    if not values[remote]:
        was_remote = existing.get(remote, "false").lower() == "true"
        if was_remote and not values["remote.log.delete.on.disable"]:
            keys = (remote, "remote.log.delete.on.disable")
            yield keys, f"{remote}=false loses what is stored remotely: give remote.log.delete.on.disable=true as well"
        return
    if not config["remote.log.storage.system.enable"]:
        yield (remote,), f"{remote}=true needs brokers with remote.log.storage.system.enable=true"
    if "compact" in values["cleanup.policy"]:
        yield (remote, "cleanup.policy"), "a compacted topic cannot use tiered storage"
    for unit in ("bytes", "ms"):
        local, whole = f"local.retention.{unit}", f"retention.{unit}"
        if values[local] == -2:
            continue
        if values[whole] >= 0 and not 0 <= values[local] <= values[whole]:
            yield (local, whole), f"{local}={values[local]} must not be more than {whole}={values[whole]}"
        elif values["remote.log.copy.disable"] and values[local] != values[whole]:
            yield (local, whole), f"with remote.log.copy.disable=true, {local} must be {whole} or -2"


def _group_conflicts(
    given: Mapping[str, Any], values: Mapping[str, Any], config: Config
) -> Iterator[tuple[tuple[str, ...], str]]:
    for name, value in given.items():
        kind, _dot, what = name.partition(".")
        if what == "num.standby.replicas":
            what = "standby.replicas"
        low, high = f"group.{kind}.min.{what}", f"group.{kind}.max.{what}"
        if low in BROKER and value < config[low]:
            yield (name,), f"{name}={value} must not be less than the brokers' {low}={config[low]}"
        if high in BROKER and value > config[high]:
            yield (name,), f"{name}={value} must not be more than the brokers' {high}={config[high]}"
    for kind in ("consumer", "share", "streams"):
        heartbeat, session = f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms"
        if values[heartbeat] >= values[session]:
            yield (heartbeat, session), f"{heartbeat}={values[heartbeat]} must be less than {session}={values[session]}"


def levels_of(static: Config, cluster: Mapping[str, str], broker: Mapping[str, str]) -> Levels:
    """`static` is the node's configuration as its file gave it; node.id and broker.id stand for each other."""
    texts = {name: one.value for name, one in static.given.items()}
    node_id = texts.get("node.id", texts.get("broker.id", ""))
    return Levels(broker, cluster, {"node.id": node_id, "broker.id": node_id} | texts)


def describe_broker(name: str, levels: Levels) -> Described:
    """One key of a broker; `name` may carry a listener prefix."""
    override = parse_override(name)
    key = override.key if override else BROKER.get(name) or WHILE_RUNNING[name]
    synonyms = _synonyms(name, [name, key.name] if override else _time_units(name), levels)
    given = next((level[name] for level in levels if name in level), None)
    value = _default_text(key) if given is None else _normal(key, given)
    source = synonyms[0].source if synonyms else Source.DEFAULT
    # Apache Kafka calls a listener's override read-only, and a throttle, though they are not.
    read_only = key.update is Update.READ_ONLY or override is not None or name in WHILE_RUNNING
    return Described(key, value, source, synonyms, read_only)


def describe_topic(name: str, overrides: Mapping[str, str], config: Config, levels: Levels) -> Described:
    return _describe_resource(TOPIC[name], overrides, Source.DYNAMIC_TOPIC, config, levels)


def describe_group(name: str, overrides: Mapping[str, str], config: Config, levels: Levels) -> Described:
    described = _describe_resource(GROUP[name], overrides, Source.GROUP, config, levels)
    if described.key.fallbacks:
        return described
    default = Synonym(name, _default_text(described.key), Source.DEFAULT)
    return described._replace(synonyms=(*described.synonyms, default))


def _describe_resource(key: Key, overrides: Mapping[str, str], own: Source, config: Config, levels: Levels) -> Described:
    value = _default_text(key)
    synonyms: tuple[Synonym, ...] = ()
    if key.fallbacks:
        name = key.fallbacks[0].name
        value = to_text(config[name])
        synonyms = _synonyms(name, _time_units(name), levels)
    if key.name in overrides:
        value = _normal(key, overrides[key.name])
        synonyms = (Synonym(key.name, value, own), *synonyms)
    return Described(key, value, synonyms[0].source if synonyms else Source.DEFAULT, synonyms)


def _time_units(name: str) -> list[str]:
    """The key and those that give the same time, finest unit first, which is how Apache Kafka lists them."""
    for units in _TIMES:
        if name in units:
            return units
    return [name]


_TIMES = [
    [key.name, *(fallback.name for fallback in key.fallbacks)]
    for key in BROKER.values()
    if key.fallbacks and key.type is ConfigType.LONG
]


def _synonyms(name: str, names: list[str], levels: Levels) -> tuple[Synonym, ...]:
    found = []
    for source, texts in (
        (Source.DYNAMIC_BROKER, levels.broker),
        (Source.DYNAMIC_DEFAULT_BROKER, levels.cluster),
        (Source.STATIC_BROKER, levels.static),
        (Source.DEFAULT, _DEFAULTS),
    ):
        found += [Synonym(one, _shown(one, texts[one]), source) for one in names if one in texts]
    # Apache Kafka leaves out what comes before the key's own name: a coarser unit in a higher place.
    while found and found[0].name != name:
        del found[0]
    return tuple(found)


def _shown(name: str, text: str) -> str | None:
    override = parse_override(name)
    key = override.key if override else BROKER.get(name) or WHILE_RUNNING[name]
    return None if key.type is ConfigType.PASSWORD else text


def _normal(key: Key, text: str) -> str | None:
    return None if key.type is ConfigType.PASSWORD else to_text(parse(key.type, text))


def _default_text(key: Key) -> str | None:
    return None if key.default is REQUIRED else to_text(key.default)


_DEFAULTS = {name: text for name, key in BROKER.items() if (text := _default_text(key)) is not None}
