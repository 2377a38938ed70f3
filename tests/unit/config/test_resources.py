from __future__ import annotations

import pytest
from unit.config.configs import config_with

from pybroker.config.keys import TOPIC
from pybroker.config.problems import errors
from pybroker.config.resources import (
    Levels,
    Source,
    Synonym,
    check_group,
    check_topic,
    defaults_of,
    describe_broker,
    describe_group,
    describe_topic,
    levels_of,
)

TIERED = {"remote_log_storage_system_enable": "true"}
REMOTE = {"remote.storage.enable": "true"}


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        ({"retention.mss": "5"}, "retention.mss is not a topic config; did you mean retention.ms?"),
        ({"log.retention.ms": "5"}, "is not a topic config"),
        ({"retention.ms": "-2"}, "retention.ms=-2 is not allowed; allowed: at least -1"),
        ({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}, "min.compaction.lag.ms=6 must not be more than"),
        (REMOTE | {"cleanup.policy": "compact"}, "a compacted topic cannot use tiered storage"),
        (REMOTE | {"retention.bytes": "5", "local.retention.bytes": "6"}, "local.retention.bytes=6 must not be more than"),
        (REMOTE | {"retention.bytes": "5", "local.retention.bytes": "-1"}, "local.retention.bytes=-1 must not be more than"),
        (
            REMOTE | {"remote.log.copy.disable": "true", "local.retention.ms": "5"},
            "local.retention.ms must be retention.ms or -2",
        ),
    ],
)
def test_overrides_that_a_topic_refuses(overrides: dict[str, str], part: str) -> None:
    problems = check_topic(overrides, config_with(**TIERED))
    assert len(problems) == 1
    assert part in problems[0].message


@pytest.mark.parametrize(
    "overrides",
    [{}, {"retention.ms": "-1"}, {"cleanup.policy": "compact,delete"}, REMOTE, REMOTE | {"local.retention.ms": "5"}],
)
def test_overrides_that_a_topic_takes(overrides: dict[str, str]) -> None:
    assert check_topic(overrides, config_with(**TIERED)) == []


def test_tiered_storage_must_be_on() -> None:
    [problem] = check_topic(REMOTE, config_with())
    assert "needs brokers with remote.log.storage.system.enable=true" in problem.message


def test_leaving_tiered_storage_says_what_becomes_of_the_data() -> None:
    [problem] = check_topic({}, config_with(**TIERED), existing=REMOTE)
    assert "remote.log.delete.on.disable=true" in problem.message
    assert check_topic({"remote.log.delete.on.disable": "true"}, config_with(**TIERED), existing=REMOTE) == []


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        ({"consumer.session.timeout.ms": "60001"}, "the brokers' group.consumer.max.session.timeout.ms=60000"),
        ({"share.record.lock.duration.ms": "14999"}, "the brokers' group.share.min.record.lock.duration.ms=15000"),
        ({"streams.num.standby.replicas": "3"}, "the brokers' group.streams.max.standby.replicas=2"),
        ({"share.auto.offset.reset": "never"}, "allowed: latest, earliest, or by_duration"),
        ({"retention.ms": "5"}, "retention.ms is not a group config"),
    ],
)
def test_overrides_that_a_group_refuses(overrides: dict[str, str], part: str) -> None:
    [problem] = errors(check_group(overrides, config_with()))
    assert part in problem.message


def test_a_group_key_without_effect_says_so() -> None:
    [problem] = check_group({"streams.num.standby.replicas": "1"}, config_with())
    assert str(problem) == "group config: warning: streams.num.standby.replicas has no effect: streams groups are not served"


def test_a_group_that_heartbeats_too_seldom() -> None:
    config = config_with(group_consumer_max_heartbeat_interval_ms="50000")
    [problem] = check_group({"consumer.heartbeat.interval.ms": "45000"}, config)
    assert "must be less than consumer.session.timeout.ms=45000" in problem.message


def test_what_is_said_of_share_groups_has_no_effect() -> None:
    [problem] = check_group({"share.isolation.level": "read_committed"}, config_with())
    assert str(problem) == "group config: warning: share.isolation.level has no effect: share groups are not served"


def test_overrides_that_a_group_takes() -> None:
    assert check_group({"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "6000"}, config_with()) == []


def test_a_topic_without_overrides_has_the_brokers_values() -> None:
    defaults = defaults_of(TOPIC, config_with(log_retention_hours="1", message_max_bytes="5"))
    assert (defaults["retention.ms"], defaults["max.message.bytes"], defaults["remote.storage.enable"]) == (3_600_000, 5, False)


def test_a_value_has_its_source_and_every_level_below_it() -> None:
    config = config_with(log_retention_ms="4", log_retention_hours="9")
    levels = levels_of(config, cluster={"log.retention.ms": "3"}, broker={"log.retention.ms": "2"})
    described = describe_topic("retention.ms", {"retention.ms": " 1"}, config, levels)
    assert (described.value, described.source) == ("1", Source.DYNAMIC_TOPIC)
    assert described.synonyms == (
        Synonym("retention.ms", "1", Source.DYNAMIC_TOPIC),
        Synonym("log.retention.ms", "2", Source.DYNAMIC_BROKER),
        Synonym("log.retention.ms", "3", Source.DYNAMIC_DEFAULT_BROKER),
        Synonym("log.retention.ms", "4", Source.STATIC_BROKER),
        Synonym("log.retention.hours", "9", Source.STATIC_BROKER),
        Synonym("log.retention.hours", "168", Source.DEFAULT),
    )


def test_a_group_key_without_broker_key_has_its_default_as_synonym() -> None:
    config = config_with()
    described = describe_group("share.isolation.level", {}, config, levels_of(config, {}, {}))
    assert (described.value, described.source) == ("read_uncommitted", Source.DEFAULT)
    assert described.synonyms == (Synonym("share.isolation.level", "read_uncommitted", Source.DEFAULT),)


def test_a_group_override() -> None:
    config = config_with()
    described = describe_group(
        "consumer.session.timeout.ms", {"consumer.session.timeout.ms": "50000"}, config, levels_of(config, {}, {})
    )
    assert (described.value, described.source) == ("50000", Source.GROUP)
    assert described.synonyms[-1] == Synonym("group.consumer.session.timeout.ms", "45000", Source.DEFAULT)


def test_a_password_is_described_without_value() -> None:
    levels = Levels({}, {}, {"ssl.key.password": "s3cret", "listener.name.in.ssl.key.password": "s3cret"})
    for name in ("ssl.key.password", "listener.name.in.ssl.key.password"):
        described = describe_broker(name, levels)
        assert described.sensitive
        assert (described.value, described.source) == (None, Source.STATIC_BROKER)
        assert "s3cret" not in str(described)


def test_the_two_names_of_the_node_id() -> None:
    levels = levels_of(config_with(), {}, {})
    assert describe_broker("broker.id", levels).value == describe_broker("node.id", levels).value == "1"


def test_read_only_keys() -> None:
    levels = levels_of(config_with(), {}, {})
    assert describe_broker("node.id", levels).read_only
    assert not describe_broker("log.retention.ms", levels).read_only
