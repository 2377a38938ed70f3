from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
from support.stock import STOCK
from unit.config.configs import MINIMAL, config_with, load_with, messages

from pybroker.config import Config, Severity, load_file, load_text
from pybroker.config.key import Key, Update
from pybroker.config.listeners import Listener
from pybroker.config.properties import write
from pybroker.config.reading import Given, read_value
from pybroker.config.types import ConfigType, Password
from pybroker.config.validators import Validator

ROOT = Path(__file__).resolve().parents[3]


def test_the_stock_file_of_apache_kafka_loads_without_a_word() -> None:
    config, problems = load_text(STOCK, "server.properties")
    assert problems == ()
    assert config is not None
    assert config["log.dirs"] == ("/tmp/kraft-combined-logs",)


def test_our_sample_file_loads_without_a_word() -> None:
    config, problems = load_file(ROOT / "config" / "server.properties")
    assert problems == ()
    assert config is not None
    assert config.broker_listeners == (Listener("PLAINTEXT", "localhost", 9092),)


def test_all_problems_come_at_once_each_with_its_place() -> None:
    text = write(MINIMAL) + "log.segment.bytes=many\nlog.segment.byte=5\nmetric.reporters=com.example.R\nnum.io.threads=0\n"
    config, problems = load_text(text, "a.properties", ["num.network.threads=x", "log.cleaner.threads=0"])
    assert config is None
    assert [str(problem) for problem in problems] == [
        "a.properties:6: error: log.segment.bytes=many is not allowed; allowed: at least 1048576",
        "a.properties:7: error: log.segment.byte is not a known key; did you mean log.segment.bytes?",
        "a.properties:8: warning: metric.reporters has no effect: names Java classes; metrics are served over HTTP",
        "a.properties:9: error: num.io.threads=0 is not allowed; allowed: at least 1",
        "command line: error: num.network.threads=x is not allowed; allowed: at least 1",
        "command line: error: log.cleaner.threads=0: at least 1 is needed",
    ]


def test_a_password_is_in_no_problem() -> None:
    # Not even where it is where it does not belong.
    text = write(MINIMAL) + "ssl.key.password=s3cret\nssl.keystore.password=s3cret\nssl.key.password=s3cret\nb=s3cret\\u1\n"
    loaded = load_text(text, "a.properties", ["ssl.key.passwort=s3cret", "s3cret"])
    assert len(loaded.problems) == 5
    assert "s3cret" not in str(loaded)


def test_a_config_shows_no_password() -> None:
    config = config_with(ssl_key_password="s3cret")
    assert config["ssl.key.password"].value == "s3cret"
    assert "s3cret" not in f"{config} {config!r} {dict(config)} {config.given}"


def test_a_refused_password_is_not_shown() -> None:
    key = Key("k", ConfigType.PASSWORD, None, Validator("a longer one", lambda value: False), Update.READ_ONLY, "")
    _, problem = read_value(key, "k", Given("s3cret", "here"))
    assert str(problem) == "here: error: k=[hidden] is not allowed; allowed: a longer one"


def test_problems_of_the_syntax_have_their_line() -> None:
    loaded = load_text(write(MINIMAL) + "broker.rack=a\nbroker.rack=b\nlog.dirs=\\u12\n", "f")
    assert [(problem.where, problem.severity) for problem in loaded.problems] == [
        ("f:7", Severity.WARNING),
        ("f:8", Severity.ERROR),
    ]
    assert "line 6" in loaded.problems[0].message


def test_the_command_line_wins_over_the_file() -> None:
    config, problems = load_text(write(MINIMAL), "f", ["node.id=7", "broker.rack=a=b"])
    assert config is not None
    assert (config["node.id"], config["broker.rack"], problems) == (7, "a=b", ())


@pytest.mark.parametrize("override", ["", "node.id", "=7"])
def test_an_override_is_key_and_value(override: str) -> None:
    config, [problem] = load_text(write(MINIMAL), "f", [override])
    assert config is None
    assert str(problem) == "command line: error: an override is written key=value"


@pytest.mark.parametrize("key", ["process.roles", "node.id", "controller.listener.names"])
def test_a_required_key_that_is_missing_is_the_only_problem(key: str) -> None:
    [message] = messages({key: None})
    assert message.startswith(f"configuration: error: {key} must be given")


def test_an_empty_file_names_all_that_is_required() -> None:
    config, problems = load_text("", "empty.properties")
    assert config is None
    assert {key for problem in problems for key in problem.keys} >= {
        "process.roles",
        "node.id",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
    }
    assert all(problem.where == "empty.properties" for problem in problems)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    config, [problem] = load_file(tmp_path / "none.properties")
    assert config is None
    assert problem.where.endswith("none.properties")
    assert problem.message == "cannot be read: No such file or directory"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_a_file_is_utf8_or_else_latin1(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "server.properties"
    path.write_text("broker.rack=é\n" + write(MINIMAL), encoding=encoding)
    config = load_file(path).config
    assert config is not None
    assert config["broker.rack"] == "é"


class TestUnknownKeys:
    def test_a_slip_of_the_pen_is_an_error(self) -> None:
        assert messages({"log.retention.hour": "1"}) == [
            "test:log.retention.hour: error: log.retention.hour is not a known key; did you mean log.retention.hours?"
        ]

    def test_somebody_elses_key_is_a_warning(self) -> None:
        assert messages({"confluent.license": "x"}) == [
            "test:confluent.license: warning: confluent.license is not a known key and has no effect"
        ]

    def test_our_prefix_is_ours(self) -> None:
        [message] = messages({"pybroker.speed": "fast"})
        assert "error: pybroker.speed is not a known key" in message

    def test_a_removed_key_is_a_warning_with_the_reason(self) -> None:
        [message] = messages({"zookeeper.connect": "h:2181"})
        assert "warning: zookeeper.connect has no effect: there is no ZooKeeper" in message

    def test_a_slip_behind_a_listener_prefix(self) -> None:
        [message] = messages({"listener.name.plaintext.ssl.client.aut": "none"})
        assert message.endswith("did you mean listener.name.plaintext.ssl.client.auth?")

    def test_plugin_keys_are_the_plugins(self) -> None:
        loaded = load_with({"rsm.config.dir": "/a", "rlmm.config.x": "y"})
        assert loaded.problems == ()
        assert loaded.config is not None
        assert loaded.config.with_prefix("rsm.config.") == {"dir": "/a"}

    def test_plugin_prefixes_can_be_changed(self) -> None:
        loaded = load_with({"remote.log.storage.manager.impl.prefix": "mine.", "mine.dir": "/a", "rsm.config.dir": "/b"})
        assert [problem.keys for problem in loaded.problems] == [("rsm.config.dir",)]


class TestListenerOverrides:
    CHANGES: ClassVar[dict[str, str | None]] = {
        "listeners": "IN://:1,OUT://:2,CONTROLLER://:3",
        "listener.security.protocol.map": "IN:SSL,OUT:SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "IN",
        "ssl.client.auth": "requested",
    }

    def test_the_narrowest_wins(self) -> None:
        config = load_with(
            self.CHANGES
            | {
                "listener.name.in.ssl.client.auth": "required",
                "sasl.jaas.config": "everywhere",
                "listener.name.in.sasl.jaas.config": "in",
                "listener.name.in.scram-sha-256.sasl.jaas.config": "scram",
            }
        ).config
        assert config is not None
        assert config.for_listener("IN", "ssl.client.auth") == "required"
        assert config.for_listener("OUT", "ssl.client.auth") == "requested"
        assert config.for_listener("IN", "sasl.jaas.config", "SCRAM-SHA-256") == Password("scram")
        assert config.for_listener("IN", "sasl.jaas.config", "PLAIN") == Password("in")
        assert config.for_listener("OUT", "sasl.jaas.config", "PLAIN") == Password("everywhere")

    def test_its_value_is_checked(self) -> None:
        [message] = messages(self.CHANGES | {"listener.name.in.ssl.client.auth": "maybe"})
        assert "listener.name.in.ssl.client.auth=maybe is not allowed; allowed: one of required" in message

    def test_of_a_listener_that_is_not_there(self) -> None:
        [message] = messages(self.CHANGES | {"listener.name.up.ssl.client.auth": "none"})
        assert "warning: listener.name.up.ssl.client.auth has no effect: there is no listener UP" in message

    def test_of_a_key_that_has_none(self) -> None:
        [message] = messages(self.CHANGES | {"listener.name.in.log.segment.bytes": "1048576"})
        assert "warning" in message
        assert "log.segment.bytes cannot be set for a single listener" in message


class TestValues:
    def test_every_key_has_one(self) -> None:
        config = config_with()
        assert len(config) == len(list(config)) > 300
        assert config["log.segment.bytes"] == config.int("log.segment.bytes") == 1 << 30
        assert config.flag("auto.create.topics.enable") is True
        assert config.text("compression.type") == "producer"
        assert config.items_of("process.roles") == ("broker", "controller")
        with pytest.raises(KeyError):
            config["no.such.key"]

    def test_a_config_cannot_be_changed(self) -> None:
        with pytest.raises(TypeError):
            config_with()["node.id"] = 2  # type: ignore[index]

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({}, 168 * 3_600_000),
            ({"log_retention_hours": "2"}, 7_200_000),
            ({"log_retention_hours": "2", "log_retention_minutes": "3"}, 180_000),
            ({"log_retention_hours": "2", "log_retention_minutes": "3", "log_retention_ms": "4"}, 4),
            ({"log_retention_hours": "-1"}, -1),
            ({"log_retention_ms": "-7"}, -1),
        ],
    )
    def test_the_finest_unit_of_a_time_counts(self, changes: dict[str, str], expected: int) -> None:
        assert config_with(**changes)["log.retention.ms"] == expected

    def test_other_fallbacks(self) -> None:
        config = config_with(log_dir="/a,/b")
        assert config["log.dirs"] == ("/a", "/b")
        assert config["metadata.log.dir"] == "/a"
        assert config["num.replica.alter.log.dirs.threads"] == 2
        assert config["log.flush.interval.ms"] == 2**63 - 1
        assert config["broker.id"] == 1
        assert config["inter.broker.listener.name"] == "PLAINTEXT"

    def test_an_old_file_gives_broker_id_only(self) -> None:
        config = load_with({"node.id": None, "broker.id": "5"}).config
        assert config is not None
        assert config["node.id"] == 5

    def test_an_item_given_twice_counts_once(self) -> None:
        assert config_with(log_dirs="/a,/b,/a")["log.dirs"] == ("/a", "/b")


class TestListeners:
    def test_roles(self) -> None:
        config = config_with()
        assert config.is_broker
        assert config.is_controller
        assert config.broker_listeners == (Listener("PLAINTEXT", "localhost", 9092),)
        assert config.controller_listeners == (Listener("CONTROLLER", "localhost", 9093),)

    def test_what_is_not_advertised_otherwise_is_advertised_as_is(self) -> None:
        config = config_with(advertised_listeners="PLAINTEXT://example.org:19092")
        assert [str(one) for one in config.advertised_listeners] == [
            "PLAINTEXT://example.org:19092",
            "CONTROLLER://localhost:9093",
        ]

    def test_a_controller_listener_without_map_is_plaintext(self) -> None:
        assert config_with().security_protocols["CONTROLLER"] == "PLAINTEXT"

    def test_but_not_beside_one_that_is_not(self) -> None:
        [message] = messages({"listeners": "SSL://:1,CONTROLLER://:2", "security.inter.broker.protocol": "SSL"})
        assert "does not say which protocol listener CONTROLLER speaks" in message


class TestChanges:
    def test_a_change_makes_a_new_config(self) -> None:
        config = config_with(log_retention_hours="1")
        changed, problems = config.with_changes({"log.retention.ms": "5"}, {"log.retention.ms": "6"})
        assert problems == ()
        assert changed is not None
        assert changed["log.retention.ms"] == 6
        assert config["log.retention.ms"] == 3_600_000

    def test_taking_a_change_back_is_starting_from_the_file_again(self) -> None:
        config = config_with(compression_type="lz4")
        changed = config.with_changes({"compression.type": "zstd"}, {}).config
        assert isinstance(changed, Config)
        assert changed["compression.type"] == "zstd"
        restored = config.with_changes({}, {}).config
        assert restored is not None
        assert restored["compression.type"] == "lz4"

    def test_a_refused_change_changes_nothing(self) -> None:
        changed, [problem] = config_with().with_changes({"node.id": "2"}, {})
        assert changed is None
        assert "node.id is read when the node starts" in problem.message

    def test_a_change_is_cross_checked(self) -> None:
        changed, [problem] = config_with().with_changes({"log.cleaner.threads": "1000"}, {})
        assert changed is None
        assert "dynamic cluster config: error: log.cleaner.dedupe.buffer.size" in str(problem)
