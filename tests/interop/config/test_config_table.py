"""Our tables against Apache Kafka's ConfigDefs: the same keys, types, defaults, limits, update modes and fallbacks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
from interop.config.kafka_configs import ask

from pybroker.config.key import REQUIRED, Key
from pybroker.config.keys import BROKER, CLIENT_METRICS, GROUP, TOPIC
from pybroker.config.keys.removed import REMOVED
from pybroker.config.types import to_text

OURS: Mapping[str, Mapping[str, Key]] = {
    "broker": BROKER,
    "topic": TOPIC,
    "group": GROUP,
    "client-metrics": CLIENT_METRICS,
}

# Kafka lets these be anything, and fails later or ignores them.
STRICTER = {
    "authorizer.class.name",
    "metrics.recording.level",
    "remote.log.metadata.manager.class.name",
    "replica.selector.class",
}


@cache
def kafka_table() -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["scope"], row["name"]): row for row in ask("table")}


def pairs() -> list[tuple[Key, dict[str, Any]]]:
    return [(OURS[scope][name], row) for (scope, name), row in kafka_table().items() if name in OURS[scope]]


def test_no_key_is_missing_and_none_is_invented() -> None:
    ours = {(scope, name) for scope, keys in OURS.items() for name in keys if not name.startswith("pybroker.")}
    assert ours == kafka_table().keys()
    print(dict(Counter(scope for scope, _ in ours)))


def test_no_removed_key_is_still_there() -> None:
    assert not REMOVED.keys() & {name for _, name in kafka_table()}


@pytest.mark.parametrize("scope", OURS)
def test_types_and_defaults(scope: str) -> None:
    compared = 0
    for (theirs, name), row in kafka_table().items():
        if theirs != scope:
            continue
        key = OURS[scope][name]
        assert key.type.name == row["type"], name
        assert (key.default is REQUIRED) == row["required"], name
        if not row["required"]:
            assert to_text(key.default) == row["default"], name
        assert key.internal == row["internal"], name
        compared += 1
    assert compared == sum(1 for name in OURS[scope] if not name.startswith("pybroker."))


def test_numeric_ranges() -> None:
    ranges = 0
    for key, row in pairs():
        if row["validatorClass"] != "Range":
            assert key.allowed.low is None, f"{row['scope']} {key.name}: we have {key.allowed.text}, Kafka no range"
            continue
        match = re.fullmatch(r"\[([^,]*),\.\.\.(?:,(.*))?\]", row["validator"])
        assert match, row["validator"]
        assert key.allowed.low == float(match[1]), key.name
        assert key.allowed.high == (float(match[2]) if match[2] else None), key.name
        ranges += 1
    assert ranges == sum(row["validatorClass"] == "Range" for row in kafka_table().values()) > 200


def test_enumerations() -> None:
    enumerations = 0
    for key, row in pairs():
        if row["validatorClass"] in ("ValidString", "CaseInsensitiveValidString", "ValidList") and row["validator"]:
            theirs = row["validator"].removeprefix("(case insensitive) ")[1:-1].split(", ")
            assert list(key.allowed.choices) == theirs, key.name
            sample = (theirs[0],) if row["validatorClass"] == "ValidList" else theirs[0].swapcase()
            takes_any_case = row["validatorClass"] != "ValidString"
            assert key.allowed.accepts(sample) == takes_any_case, key.name
            enumerations += 1
        elif key.name not in STRICTER:
            assert key.allowed.choices == (), key.name
    assert enumerations > 10


def test_lists_that_may_be_empty() -> None:
    lists = [(key, row) for key, row in pairs() if row["emptyAllowed"] is not None]
    for key, row in lists:
        assert key.allowed.accepts(()) == row["emptyAllowed"], key.name
    assert len(lists) > 20


def test_update_modes() -> None:
    modes = Counter()
    for key, row in pairs():
        if row["scope"] == "broker":
            assert key.update.value == row["mode"], key.name
            modes[row["mode"]] += 1
    print(dict(modes))
    assert min(modes[mode] for mode in ("read-only", "per-broker", "cluster-wide")) > 20


def test_broker_keys_that_give_topics_and_groups_their_defaults() -> None:
    with_fallback = 0
    for key, row in pairs():
        if row["scope"] == "topic":
            assert [[one.name, str(one.factor)] for one in key.fallbacks] == row["synonyms"], key.name
        elif row["scope"] == "group":
            assert [one.name for one in key.fallbacks] == row["synonyms"], key.name
        with_fallback += row["scope"] in ("topic", "group") and bool(key.fallbacks)
    assert with_fallback > 35


def test_time_units_of_broker_keys() -> None:
    units = 0
    for key, row in pairs():
        if row["scope"] == "broker" and row["synonyms"][0] == key.name and len(row["synonyms"]) > 1:
            assert [key.name, *(one.name for one in key.fallbacks)] == row["synonyms"]
            units += 1
    assert units == 4


def test_no_sentence_is_kafkas() -> None:
    def words(text: str) -> str:
        return " ".join(re.findall(r"[a-z]+", re.sub(r"<[^>]+>", " ", text).lower()))

    assert [key.name for key, row in pairs() if words(key.doc) in words(row["documentation"])] == []
