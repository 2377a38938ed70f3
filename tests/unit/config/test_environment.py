from __future__ import annotations

import pytest

from pybroker.config import Config, Loaded, Severity, load_text
from pybroker.config.environment import key_of

FILE = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=localhost:9093
log.dirs=/data
num.io.threads=4
"""


def load(environment: dict[str, str], *overrides: str, text: str = FILE) -> Loaded:
    return load_text(text, "server.properties", overrides, environment)


def well(environment: dict[str, str], *overrides: str, text: str = FILE) -> Config:
    loaded = load(environment, *overrides, text=text)
    assert loaded.problems == ()
    assert loaded.config is not None
    return loaded.config


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KAFKA_LOG_RETENTION_MS", "log.retention.ms"),
        ("KAFKA_LISTENER_NAME_SASL__SSL_SSL_KEYSTORE_TYPE", "listener.name.sasl_ssl.ssl.keystore.type"),
        (
            "KAFKA_LISTENER_NAME_INSIDE_SCRAM___SHA___256_SASL_JAAS_CONFIG",
            "listener.name.inside.scram-sha-256.sasl.jaas.config",
        ),
        ("KAFKA_A____B", "a-.b"),
        ("KAFKA_", None),
        ("kafka_log_retention_ms", None),
        ("LOG_RETENTION_MS", None),
    ],
)
def test_names(variable: str, key: str | None) -> None:
    assert key_of(variable) == key


def test_the_environment_stands_between_the_file_and_the_command_line() -> None:
    variables = {"KAFKA_NUM_IO_THREADS": "5", "KAFKA_LOG_RETENTION_MS": "60000"}
    config = well(variables)
    assert (config["num.io.threads"], config["log.retention.ms"], config["log.dirs"]) == (5, 60000, ("/data",))
    assert config.given["num.io.threads"].where == "environment variable KAFKA_NUM_IO_THREADS"
    assert well(variables, "num.io.threads=6")["num.io.threads"] == 6
    assert well({})["num.io.threads"] == 4


def test_without_one_nothing_is_read() -> None:
    loaded = load_text(FILE, "server.properties")
    assert loaded.config is not None
    assert loaded.config.given["num.io.threads"].where == "server.properties:7"


def test_a_file_may_be_empty() -> None:
    variables = {f"KAFKA_{key.upper().replace('.', '_')}": value for key, value in (x.split("=") for x in FILE.splitlines())}
    assert dict(well(variables, text="")) == dict(well({}))


def test_what_others_keep_in_such_variables_is_left_alone() -> None:
    others = ("HEAP_OPTS", "OPTS", "JMX_OPTS", "JMX_PORT", "JMX_HOSTNAME", "LOG4J_OPTS", "LOG4J_ROOT_LOGLEVEL", "LOG4J_LOGGERS")
    others += ("TOOLS_LOG4J_LOGLEVEL", "JVM_PERFORMANCE_OPTS", "GC_LOG_OPTS", "VERSION", "HOME", "CFG_FILE", "DEBUG")
    others += ("SERVICE_HOST", "SERVICE_PORT", "PORT_9092_TCP_ADDR", "PORT_9092_TCP_PROTO", "REST_PROXY_URL")
    config = well({f"KAFKA_{name}": "x" for name in others} | {"PATH": "/bin"})
    assert dict(config.given) == dict(well({}).given)


def test_a_key_that_is_misspelt_is_an_error_with_the_variables_name() -> None:
    config, [problem] = load({"KAFKA_LOG_RETENTION_MSS": "1"})
    assert config is None
    assert str(problem) == (
        "environment variable KAFKA_LOG_RETENTION_MSS: error: log.retention.mss is not a known key; "
        "did you mean log.retention.ms?"
    )
    config, [problem] = load({"KAFKA_LISTENER_NAME_INSIDE_SSL_KEYSTORE_TIPE": "PEM"})
    assert (config, problem.where) == (None, "environment variable KAFKA_LISTENER_NAME_INSIDE_SSL_KEYSTORE_TIPE")


def test_a_key_that_is_no_more_is_warned_about() -> None:
    config, [problem] = load({"KAFKA_ZOOKEEPER_CONNECT": "zk:2181"})
    assert config is not None
    assert (problem.severity, problem.keys) == (Severity.WARNING, ("zookeeper.connect",))


def test_keys_of_a_plugin_have_the_prefix_that_the_file_or_the_environment_says() -> None:
    assert well({"KAFKA_RSM_CONFIG_BUCKET": "b"}).with_prefix("rsm.config.") == {"bucket": "b"}
    prefix = {"KAFKA_REMOTE_LOG_STORAGE_MANAGER_IMPL_PREFIX": "mine."}
    assert load(prefix | {"KAFKA_MINE_BUCKET": "b", "KAFKA_RSM_CONFIG_BUCKET": "b"}).config is not None
    config = load(prefix | {"KAFKA_MINE_BUCKET": "b"}).config
    assert config is not None
    assert config.with_prefix("mine.") == {"bucket": "b"}


def test_a_password_is_not_quoted() -> None:
    _, problems = load({"KAFKA_SSL_KEY_PASSWORT": "s3cret"})
    assert problems
    assert "s3cret" not in repr(problems)
