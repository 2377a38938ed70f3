from __future__ import annotations

import pytest
from unit.config.configs import load_with, messages

from pybroker.config import Severity

SASL = {"listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"}
TLS = {"listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"}


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"broker.id": "2"}, "node.id=1 and broker.id=2"),
        ({"controller.quorum.bootstrap.servers": None}, "where the controllers are must be given"),
        ({"controller.quorum.voters": "2@h:1,3@h:2"}, "names 2, 3, but this controller is node 1"),
        ({"controller.quorum.voters": "1@h:1,1@i:1"}, "names node 1 twice"),
        ({"controller.quorum.voters": "1@0.0.0.0:1"}, "1@0.0.0.0:1 is no address to connect to"),
        ({"process.roles": "broker", "listeners": "PLAINTEXT://:1", "controller.quorum.voters": "1@h:1"}, "has no controller"),
        ({"listeners": "PLAINTEXT://:1,CONTROLLER://:1"}, "listeners uses port 1 twice: PLAINTEXT://:1, CONTROLLER://:1"),
        (
            {"listeners": "PLAINTEXT://:1,PLAINTEXT://:2,CONTROLLER://:3", "advertised.listeners": "PLAINTEXT://h:1"},
            "2 listeners of the name PLAINTEXT",
        ),
        ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}, "add CONTROLLER:PLAINTEXT"),
        ({"process.roles": "broker"}, "listeners has CONTROLLER, a controller listener"),
        ({"process.roles": "controller"}, "listeners has PLAINTEXT, but a controller only listens on"),
        ({"controller.listener.names": "controller"}, "write it CONTROLLER"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "0.0.0.0 is no address to connect to"),
        ({"listeners": "PLAINTEXT://[::]:9092,CONTROLLER://h:1"}, ":: is no address to connect to"),
        (
            {"advertised.listeners": "PLAINTEXT://h:1,SSL://h:2"},
            "advertised.listeners has SSL, which is not in listeners (CONTROLLER, PLAINTEXT)",
        ),
        (
            {"advertised.listeners": "PLAINTEXT://h:1,PLAINTEXT://i:2"},
            "advertised.listeners has 2 listeners of the name PLAINTEXT",
        ),
        ({"advertised.listeners": "CONTROLLER://h:1"}, "the listeners brokers advertise are none"),
        ({"inter.broker.listener.name": "OTHER"}, "has no protocol in listener.security.protocol.map"),
        (
            {"inter.broker.listener.name": "SSL"},
            "brokers are to talk over SSL, but the listeners brokers advertise are PLAINTEXT",
        ),
        ({"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"}, "give one of them"),
        ({"early.start.listeners": "OTHER"}, "early.start.listeners has OTHER"),
        ({"log.retention.ms": "0"}, "a retention of 0 ms keeps nothing"),
        ({"log.roll.ms": "0"}, "log.roll.ms=0: at least 1"),
        ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms=-1: it cannot be negative"),
        ({"log.cleaner.threads": "0"}, "log.cleaner.threads=0"),
        ({"log.cleaner.dedupe.buffer.size": "1048576"}, "each of 1 cleaners needs more than 1 MiB"),
        ({"log.dirs": "/a", "cordoned.log.dirs": "/b"}, "cordoned.log.dirs has /b, which is not in log.dirs (/a)"),
        (
            {"replica.fetch.wait.max.ms": "30001", "replica.lag.time.max.ms": "40000"},
            "more than replica.socket.timeout.ms=30000",
        ),
        ({"queued.max.request.bytes": "5"}, "no room for one request of 104857600 bytes"),
        ({"max.connections.per.ip": "0"}, "lets nobody in"),
        ({"connections.max.idle.ms": "100"}, "before a failed login is answered (100 ms)"),
        ({"group.coordinator.rebalance.protocols": "share"}, "must have classic"),
        ({"group.share.session.timeout.ms": "60001"}, "more than group.share.max.session.timeout.ms=60000"),
        ({"group.consumer.session.timeout.ms": "44999"}, "must not be more than group.consumer.session.timeout.ms=44999"),
        (
            {"group.streams.heartbeat.interval.ms": "45000", "group.streams.max.heartbeat.interval.ms": "45000"},
            "must be less than group.streams.session.timeout.ms",
        ),
        (TLS | {"ssl.keystore.location": "/k.jks"}, "pybroker takes PEM, ssl.keystore.type=PEM"),
        (
            TLS | {"ssl.truststore.location": "/k.p12", "ssl.truststore.type": "PKCS12"},
            "the trust store of listener PLAINTEXT is PKCS12",
        ),
        (SASL, "listener PLAINTEXT offers GSSAPI; pybroker has PLAIN"),
        (SASL | {"sasl.enabled.mechanisms": "PLAIN"}, "sasl.mechanism.inter.broker.protocol=GSSAPI is not in"),
    ],
)
def test_what_does_not_go_together(changes: dict[str, str | None], part: str) -> None:
    found = [message for message in messages(changes) if ": error: " in message]
    assert any(part in message for message in found), found


@pytest.mark.parametrize(
    "changes",
    [
        {"listeners": "PLAINTEXT://:0,CONTROLLER://:0"},
        {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://[::1]:9092"},
        {"process.roles": "broker", "listeners": "PLAINTEXT://h:1", "node.id": "9", "controller.quorum.voters": "1@h:1"},
        {"process.roles": "controller", "listeners": "CONTROLLER://h:1"},
        TLS | {"ssl.keystore.location": "/k.pem", "ssl.keystore.type": "pem"},
        {"ssl.keystore.location": "/k.jks", "ssl.truststore.location": "/t.p12"},  # and no listener that uses them
        {"cordoned.log.dirs": "*"},
        {"early.start.listeners": "PLAINTEXT,CONTROLLER"},
        SASL | {"sasl.enabled.mechanisms": "PLAIN", "sasl.mechanism.inter.broker.protocol": "PLAIN"},
        SASL
        | {
            "listener.name.plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        },
    ],
)
def test_what_does(changes: dict[str, str | None]) -> None:
    assert messages(changes) == []


def test_a_finding_about_a_broken_key_is_not_added_to_its_problem() -> None:
    [message] = messages({"controller.quorum.bootstrap.servers": "nowhere"})
    assert "controller.quorum.bootstrap.servers=nowhere is not allowed" in message


def test_a_finding_stands_where_its_key_is_given() -> None:
    [problem] = load_with({"log.retention.minutes": "0"}).problems
    assert problem.where == "test:log.retention.minutes"
    assert problem.keys == ("log.retention.ms", "log.retention.minutes", "log.retention.hours")


@pytest.mark.parametrize(
    "changes",
    [
        {"broker.session.timeout.ms": "2000"},
        {"group.min.session.timeout.ms": "1800001"},
        {"group.coordinator.rebalance.protocols": "classic,share"},
        SASL | {"sasl.enabled.mechanisms": "PLAIN,GSSAPI", "sasl.mechanism.inter.broker.protocol": "PLAIN"},
    ],
)
def test_what_is_only_unwise_is_a_warning(changes: dict[str, str | None]) -> None:
    config, [problem] = load_with(changes)
    assert config is not None
    assert problem.severity is Severity.WARNING
