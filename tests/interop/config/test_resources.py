"""Changes of configs and DescribeConfigs, as LogConfig, GroupConfig, DynamicBrokerConfig and ConfigHelper answer them."""

from __future__ import annotations

import pytest
from interop.config.kafka_configs import MINIMAL, ask

from pybroker.config import Config, load
from pybroker.config.dynamic import check_dynamic
from pybroker.config.keys import BROKER, GROUP, TOPIC
from pybroker.config.problems import errors
from pybroker.config.reading import Given
from pybroker.config.resources import (
    check_group,
    check_topic,
    describe_broker,
    describe_group,
    describe_topic,
    levels_of,
)

TOPIC_CASES = [
    {},
    {"retention.ms": "-1"},
    {"retention.ms": "-2"},
    {"retention.msx": "1"},
    {"cleanup.policy": "compact,delete"},
    {"cleanup.policy": "shred"},
    {"cleanup.policy": ""},
    {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
    {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"},
    {"remote.storage.enable": "true"},
    {"remote.storage.enable": "maybe"},
    {"leader.replication.throttled.replicas": "*"},
    {"leader.replication.throttled.replicas": "0:1,1:2"},
    {"leader.replication.throttled.replicas": "0:1:2"},
    {"leader.replication.throttled.replicas": ""},
    {"segment.bytes": "1048575"},
    {"segment.bytes": "1048576"},
    {"min.insync.replicas": "0"},
    {"compression.zstd.level": "-131073"},
    {"message.timestamp.type": "createtime"},
    {"min.cleanable.dirty.ratio": "1.01"},
    {"local.retention.ms": "-3"},
]

GROUP_CASES = [
    {},
    {"consumer.session.timeout.ms": "44999"},
    {"consumer.session.timeout.ms": "60000"},
    {"consumer.session.timeout.ms": "60001"},
    {"consumer.heartbeat.interval.ms": "4999"},
    {"consumer.heartbeat.interval.ms": "15001"},
    {"consumer.assignment.interval.ms": "15001"},
    {"share.session.timeout.ms": "60001"},
    {"share.record.lock.duration.ms": "14999"},
    {"share.record.lock.duration.ms": "60001"},
    {"share.delivery.count.limit": "11"},
    {"share.delivery.count.limit": "1"},
    {"share.partition.max.record.locks": "4001"},
    {"share.auto.offset.reset": "earliest"},
    {"share.auto.offset.reset": "by_duration:PT1H"},
    {"share.auto.offset.reset": "by_duration:P1DT2H3M4.5S"},
    {"share.auto.offset.reset": "by_duration:PT"},
    {"share.auto.offset.reset": "by_duration:soon"},
    {"share.auto.offset.reset": "none"},
    {"share.isolation.level": "read_committed"},
    {"share.isolation.level": "READ_COMMITTED"},
    {"streams.num.standby.replicas": "2"},
    {"streams.num.standby.replicas": "3"},
    {"streams.initial.rebalance.delay.ms": "0"},
    {"consumer.session.timeout": "46000"},
]

DYNAMIC_CASES = [
    *({name: "1048576"} for name, key in BROKER.items() if key.type.label in ("int", "long") and key.implemented),
    {"compression.type": "zstd"},
    {"ssl.client.auth": "required"},
    {"listener.name.external.ssl.client.auth": "required"},
    {"listener.name.external.max.connections": "10"},
    {"listener.name.external.log.retention.ms": "10"},
    {"listener.name.external.ssl.keystore.type": "PEM"},
    {"ssl.keystore.type": "PEM"},
    {"ssl.truststore.password": "x"},
    {"sasl.enabled.mechanisms": "PLAIN"},
    {"listener.name.external.plain.sasl.jaas.config": "x"},
    {"some.other.key": "x"},
    {"log.retention.ms": "soon"},
]

DESCRIBE_CASES: list[dict[str, dict[str, str]]] = [
    {"static": {}, "cluster": {}, "broker": {}, "topic": {}, "group": {}},
    {
        "static": {"log.retention.hours": "24", "compression.type": " zstd", "log.cleaner.io.max.bytes.per.second": "1e9"},
        "cluster": {},
        "broker": {},
        "topic": {"retention.ms": "5", "cleanup.policy": "compact , delete", "min.cleanable.dirty.ratio": "1e-4"},
        "group": {"consumer.session.timeout.ms": "50000"},
    },
    {
        "static": {"log.retention.ms": "86400000", "ssl.key.password": "secret", "log.dirs": "/a, /b"},
        "cluster": {"log.retention.ms": "1000", "compression.type": "lz4"},
        "broker": {"log.retention.ms": "2000", "listener.name.plaintext.ssl.client.auth": "none"},
        "topic": {},
        "group": {"share.isolation.level": "read_committed"},
    },
    {
        "static": {"log.roll.jitter.hours": "2", "log.flush.scheduler.interval.ms": "7", "log.retention.minutes": "3"},
        "cluster": {"log.roll.ms": "77"},
        "broker": {},
        "topic": {"segment.ms": "100"},
        "group": {},
    },
]


def loaded(configs: dict[str, str]) -> Config:
    config = load({key: Given(value, "test") for key, value in configs.items()}).config
    assert config is not None
    return config


@pytest.mark.parametrize(
    ("scope", "cases", "check"), [("topic", TOPIC_CASES, check_topic), ("group", GROUP_CASES, check_group)]
)
def test_overrides_get_the_same_verdict(scope, cases, check) -> None:
    config = loaded(MINIMAL)
    verdicts = ask(scope, cases)
    ours = [check(case, config) for case in cases]
    differences = [
        f"{case}: Kafka says {theirs}, we say {[*map(str, problems)]}"
        for case, theirs, problems in zip(cases, verdicts, ours, strict=True)
        if (theirs is None) != (not errors(problems))
    ]
    assert not differences, "\n".join(differences)
    assert 0 < sum(verdict is None for verdict in verdicts) < len(cases)


@pytest.mark.parametrize("per_broker", [True, False])
def test_dynamic_changes_get_the_same_verdict(per_broker: bool) -> None:
    cases = [case for case in DYNAMIC_CASES if not next(iter(case)).startswith("pybroker.")]
    verdicts = ask("dynamic-broker" if per_broker else "dynamic-cluster", cases)
    differences = []
    for case, theirs in zip(cases, verdicts, strict=True):
        ours = errors(check_dynamic(case, per_broker=per_broker))
        if (theirs is None) != (not ours):
            differences.append(f"{case}: Kafka says {theirs}, we say {[*map(str, ours)]}")
    assert not differences, "\n".join(differences)
    assert 0 < sum(verdict is None for verdict in verdicts) < len(cases)


def test_describe_configs() -> None:
    compared = 0
    for case, answer in zip(DESCRIBE_CASES, ask("describe", DESCRIBE_CASES), strict=True):
        static = loaded(MINIMAL | case["static"])
        levels = levels_of(static, case["cluster"], case["broker"])
        config = static.with_changes(case["cluster"], case["broker"]).config
        assert config is not None
        ours = {
            "broker": {name: describe_broker(name, levels) for name in (*BROKER, *case["broker"])},
            "topic": {name: describe_topic(name, case["topic"], config, levels) for name in TOPIC},
            "group": {name: describe_group(name, case["group"], config, levels) for name in GROUP},
        }
        for scope, rows in answer.items():
            for name, row in rows.items():
                one = ours[scope][name]
                synonyms = [[synonym.name, synonym.value, synonym.source] for synonym in one.synonyms]
                ours_row = [one.value, one.source, one.read_only, one.sensitive, one.key.type, synonyms]
                assert ours_row == row, f"{scope} {name}"
                compared += 1
    assert compared > 1400
