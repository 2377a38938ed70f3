from __future__ import annotations

from pathlib import Path

import pybroker
from pybroker.config.key import REQUIRED
from pybroker.config.keys import BROKER, BROKER_THEMES, CLIENT_METRICS, GROUP, TOPIC
from pybroker.config.keys.removed import REMOVED, removed
from pybroker.config.types import parse, to_text

ALL = [*BROKER.values(), *TOPIC.values(), *GROUP.values(), *CLIENT_METRICS.values()]


def test_no_key_stands_in_two_themes() -> None:
    assert sum(map(len, BROKER_THEMES.values())) == len(BROKER)


def test_a_default_is_a_value_of_its_type() -> None:
    for key in ALL:
        if key.default is not None and key.default is not REQUIRED:
            assert parse(key.type, str(to_text(key.default))) == key.default, key.name


def test_a_default_is_allowed() -> None:
    unset = {"controller.quorum.voters", "controller.quorum.bootstrap.servers"}
    for key in ALL:
        if key.default is not None and key.default is not REQUIRED and key.name not in unset:
            assert key.allowed.accepts(key.default), key.name


def test_a_fallback_is_a_broker_key() -> None:
    assert {one.name for key in ALL for one in key.fallbacks} <= BROKER.keys()


def test_a_sentence_is_one_line_that_ends() -> None:
    for key in ALL:
        assert key.doc[0].isupper() or key.doc.startswith(("log.", "min.insync", "https")), key.name
        assert key.doc.endswith((".", "app.*")), key.name
        assert "\n" not in key.doc


def test_own_keys_have_our_prefix_and_are_few() -> None:
    assert sorted(name for name in BROKER if name.startswith("pybroker.")) == [
        "pybroker.broker.death.grace.ms",
        "pybroker.connection.placement",
        "pybroker.controller.quorum.death.grace.ms",
        "pybroker.metadata.departed.broker.linger.ms",
    ]


def test_a_key_that_nothing_reads_says_that_it_has_no_effect_and_no_other_does() -> None:
    """In the themes that are built; a key that is put together where it is read is known by its beginning."""
    package = Path(pybroker.__file__).parent
    source = "\n".join(path.read_text() for path in package.rglob("*.py") if path.parent.parts[-2:] != ("config", "keys"))
    built = ("Network", "Log", "Replication", "Groups", "Share groups", "Share coordinator")
    fallbacks = {one.name for key in ALL for one in key.fallbacks if key.implemented}
    put_together = ("group.consumer.m", "offsets.topic.", "share.coordinator.state.topic.")
    # What is only compared with others of no effect.
    compared = {"group.streams.num.standby.replicas", "group.streams.max.standby.replicas"}
    for key in (key for theme in built for key in BROKER_THEMES[theme]):
        is_read = f'"{key.name}"' in source or key.name in fallbacks or key.name.startswith(put_together)
        if key.implemented:
            assert is_read, key.name
        elif not key.name.startswith(put_together) and key.name not in compared:
            assert not is_read, key.name


def test_removed_keys() -> None:
    assert not REMOVED.keys() & BROKER.keys()
    assert removed("zookeeper.anything.at.all")
    assert removed("log.dirs") is None
