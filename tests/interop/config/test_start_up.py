"""Whole configurations before both judges: what KafkaConfig refuses we refuse, and what it takes we take."""

from __future__ import annotations

from pathlib import Path

from interop.config.kafka_configs import MINIMAL, ask

from pybroker.config import load, properties
from pybroker.config.problems import errors
from pybroker.config.reading import Given

ROOT = Path(__file__).resolve().parents[3]
BROKER_ONLY = {"process.roles": "broker", "listeners": "PLAINTEXT://:9092", "controller.quorum.voters": "2@h:9093"}
CONTROLLER_ONLY = {"process.roles": "controller", "listeners": "CONTROLLER://:9093"}

# Each is laid over MINIMAL; None takes a key away.
CASES: list[dict[str, str | None]] = [
    {},
    {"process.roles": None},
    {"process.roles": ""},
    {"process.roles": "broker, controller"},
    {"process.roles": "broker,worker"},
    {"process.roles": "broker"},
    {"process.roles": "controller"},
    BROKER_ONLY,
    CONTROLLER_ONLY,
    BROKER_ONLY | {"listeners": None},
    BROKER_ONLY | {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"},
    BROKER_ONLY | {"controller.listener.names": "CONTROLLER,OTHER"},
    CONTROLLER_ONLY | {"listeners": None},
    CONTROLLER_ONLY | {"advertised.listeners": "CONTROLLER://h:9093"},
    CONTROLLER_ONLY | {"inter.broker.listener.name": "PLAINTEXT"},
    CONTROLLER_ONLY | {"inter.broker.listener.name": "OTHER"},
    {"node.id": None},
    {"node.id": "-1"},
    {"node.id": None, "broker.id": "1"},
    {"broker.id": "1"},
    {"broker.id": "2"},
    {"controller.quorum.voters": None},
    {"controller.quorum.voters": "1@localhost"},
    {"controller.quorum.voters": "localhost:9093"},
    {"controller.quorum.voters": "2@localhost:9093"},
    {"controller.quorum.voters": "1@0.0.0.0:9093"},
    {"controller.quorum.voters": None, "controller.quorum.bootstrap.servers": "localhost"},
    {"controller.quorum.voters": None, "controller.quorum.bootstrap.servers": "localhost:9093"},
    {"controller.quorum.voters": None, "controller.quorum.bootstrap.servers": "[::1]:9093,b:9093"},
    {"controller.listener.names": None},
    {"controller.listener.names": ""},
    {"controller.listener.names": "OTHER"},
    {"controller.listener.names": "controller"},
    {"listeners": None},
    {"listeners": ""},
    {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9092"},
    {"listeners": "PLAINTEXT://:0,CONTROLLER://:0"},
    {"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9094,CONTROLLER://:9093"},
    {"listeners": "PLAINTEXT://[::1]:9092,CONTROLLER://:9093"},
    {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://[::1]:9092"},
    {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.2:9092"},
    {"listeners": "plaintext://:9092,CONTROLLER://:9093"},
    {"listeners": "OTHER://:9092,CONTROLLER://:9093"},
    {"listeners": "PLAINTEXT:9092,CONTROLLER://:9093"},
    {"listeners": "PLAINTEXT://a b:9092,CONTROLLER://:9093"},
    {"listeners": "PLAINTEXT://h:9092 , CONTROLLER://:9093"},
    {"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093"},
    {"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093", "advertised.listeners": "PLAINTEXT://h:9092"},
    {"listener.security.protocol.map": None},
    {"listener.security.protocol.map": "PLAINTEXT:OTHER,CONTROLLER:PLAINTEXT"},
    {"listener.security.protocol.map": "PLAINTEXT,CONTROLLER:PLAINTEXT"},
    {"listener.security.protocol.map": "plaintext:plaintext,controller:plaintext"},
    {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
    {"advertised.listeners": "PLAINTEXT://h:9092"},
    {"advertised.listeners": "PLAINTEXT://:9092"},
    {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"},
    {"advertised.listeners": "OTHER://h:9092"},
    {"advertised.listeners": "CONTROLLER://h:9092"},
    {"advertised.listeners": "PLAINTEXT://h:9092,CONTROLLER://h:9092"},
    {"advertised.listeners": "PLAINTEXT://h:9092,PLAINTEXT://i:9093"},
    {"inter.broker.listener.name": "OTHER"},
    {"inter.broker.listener.name": "CONTROLLER"},
    {"inter.broker.listener.name": "plaintext"},
    {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
    {"security.inter.broker.protocol": "SSL"},
    {"security.inter.broker.protocol": "TLS"},
    {"early.start.listeners": "PLAINTEXT"},
    {"early.start.listeners": "OTHER"},
    {"log.dirs": ""},
    {"log.dir": ""},
    {"log.dirs": "/a,,b"},
    {"log.dirs": "/a,/a"},
    {"log.retention.ms": "0"},
    {"log.retention.hours": "0"},
    {"log.retention.hours": "-5"},
    {"log.retention.hours": "0", "log.retention.minutes": "1"},
    {"log.roll.ms": "0"},
    {"log.roll.hours": "0"},
    {"log.roll.jitter.ms": "-1"},
    {"log.cleaner.dedupe.buffer.size": "1048577"},
    {"log.cleaner.dedupe.buffer.size": "1048576"},
    {"log.cleaner.threads": "0"},
    {"log.dirs": "/a", "cordoned.log.dirs": "/a"},
    {"log.dirs": "/a", "cordoned.log.dirs": "/b"},
    {"cordoned.log.dirs": "*"},
    {"log.segment.bytes": " 10485760 "},
    {"log.segment.bytes": "+10485760"},
    {"log.segment.bytes": "10_485_760"},
    {"log.segment.bytes": "9999999999"},
    {"log.segment.bytes": "1"},
    {"log.segment.bytes": ""},
    {"log.preallocate": " TRUE "},
    {"log.preallocate": "yes"},
    {"log.cleaner.min.cleanable.ratio": "1.5"},
    {"log.cleaner.min.cleanable.ratio": "0.5f"},
    {"log.cleaner.min.cleanable.ratio": "5e-1"},
    {"log.cleaner.min.cleanable.ratio": "half"},
    {"log.cleaner.io.max.bytes.per.second": "Infinity"},
    {"log.cleanup.policy": ""},
    {"log.cleanup.policy": "compact,compact"},
    {"log.cleanup.policy": "none"},
    {"compression.type": "ZSTD"},
    {"compression.gzip.level": "0"},
    {"compression.gzip.level": "-1"},
    {"compression.zstd.level": "23"},
    {"offsets.topic.compression.codec": "5"},
    {"offsets.topic.compression.codec": "4"},
    {"offsets.topic.replication.factor": "40000"},
    {"share.coordinator.state.topic.compression.codec": "-1"},
    {"replica.fetch.wait.max.ms": "30001"},
    {"replica.fetch.wait.max.ms": "30001", "replica.socket.timeout.ms": "50000"},
    {"queued.max.request.bytes": "1000"},
    {"queued.max.request.bytes": "104857600"},
    {"max.connections.per.ip": "0"},
    {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"},
    {"max.connections.per.ip.overrides": "127.0.0.1:x"},
    {"max.connections.per.ip.overrides": "127.0.0.1:5,example.org:4"},
    {"connections.max.idle.ms": "100"},
    {"connections.max.idle.ms": "-1"},
    {"group.coordinator.rebalance.protocols": "consumer"},
    {"group.consumer.migration.policy": "Upgrade"},
    {"group.consumer.heartbeat.interval.ms": "50000", "group.consumer.max.heartbeat.interval.ms": "60000"},
    {"group.share.max.delivery.count.limit": "5", "group.share.delivery.count.limit": "6"},
    {"group.streams.num.standby.replicas": "3"},
    {"group.share.record.lock.duration.ms": "10000"},
    {"group.share.partition.max.record.locks": "5000"},
    *(
        {f"group.{kind}.{bound}{what}": value}
        for kind in ("consumer", "share", "streams")
        for what in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
        for bound, value in (("", "1"), ("", "70000"), ("min.", "70000"), ("max.", "1"))
    ),
    {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    },
    {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    },
    {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    },
    {"ssl.keystore.location": "/keys/broker.jks"},  # and no listener that uses it
]

# What Kafka takes and we do not, and why.
STRICTER: list[dict[str, str | None]] = [
    {"listeners": "PLAINTEXT://:99999,CONTROLLER://:9093"},  # not a port
    {"controller.quorum.voters": "1@h:9093,1@i:9093"},  # two addresses for one voter
    {"log.cleaner.min.cleanable.ratio": "NaN"},
    {"metrics.recording.level": "loud"},
    {"authorizer.class.name": "com.example.Authorizer"},  # fails a little later in Kafka, too
    {"listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"},  # Kerberos is the default
    {"listener.name.plaintext.ssl.client.auth": "maybe"},
    {  # we take PEM
        "ssl.keystore.location": "/keys/broker.jks",
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
    },
]


def complete(case: dict[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in (MINIMAL | case).items() if value is not None}


def our_errors(configs: dict[str, str]) -> list[str]:
    return [str(error) for error in errors(load({key: Given(value, "test") for key, value in configs.items()}).problems)]


def test_the_same_verdict() -> None:
    cases = [complete(case) for case in CASES]
    verdicts = ask("broker", cases)
    differences = [
        f"{case}: Kafka says {theirs}, we say {ours}"
        for case, theirs, ours in zip(CASES, verdicts, map(our_errors, cases), strict=True)
        if (theirs is None) != (not ours)
    ]
    assert not differences, "\n".join(differences)
    assert 50 < sum(verdict is not None for verdict in verdicts) < len(cases) - 30


def test_where_we_are_stricter() -> None:
    cases = [complete(case) for case in STRICTER]
    assert ask("broker", cases) == [None] * len(cases)
    assert all(map(our_errors, cases))


def test_apache_kafka_takes_our_sample_file() -> None:
    sample = properties.parse((ROOT / "config" / "server.properties").read_text()).values
    assert ask("broker", [sample]) == [None]
