"""One Spark session, one broker and one PostgreSQL for all tests of the jobs; what cannot be had skips its tests,
but not in CI.

The broker is pybroker, Apache Kafka (--broker apache), or one that runs already (--bootstrap-servers): then those tests are
skipped that kill their broker or need it to advertise a proxy.
"""

from __future__ import annotations

import importlib.util
import re
import secrets
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from interop.broker_process import BrokerProcess, ask
from spark.driver_process import SHORT_LIVED
from spark.needs import missing
from spark.postgres_server import PostgresServer
from support.waiting import wait_until

from pybroker.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from pybroker.protocol.messages.metadata import MetadataRequest

HERE = Path(__file__).parent
RUN = secrets.token_hex(3)  # so that topics of an earlier run on the same cluster are not met again
# A JVM that lives for minutes, on a machine with two cores.
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.fileSink.log.compactInterval": "2",
}
STOP_S = 120.0
# Records have the timestamps that a test gives them, years ago: nothing is too old to keep.

PROPERTIES = {"auto.create.topics.enable": "true", "num.partitions": "2", "log.retention.ms": "-1"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker", choices=("pybroker", "apache"), default="pybroker", help="whose broker the Spark jobs run against"
    )
    parser.addoption("--bootstrap-servers", metavar="HOST:PORT", help="the Spark jobs run against this cluster, which is there")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)


class Run(NamedTuple):
    code: int
    out: str
    err: str

    def summary(self) -> str:
        """The last line of a run that went well."""
        assert self.code == 0, self.err
        return self.out.splitlines()[-1]


class Jobs:
    """`python -m spark_jobs`, but in this process, in one session."""

    def __init__(self, spark: Any, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self._capsys = capsys

    def __call__(self, job: str, *arguments: str) -> Run:
        from spark_jobs.cli import main

        self._capsys.readouterr()
        code = main([job, "--bootstrap-servers", self.bootstrap, *arguments], self.spark)
        said = self._capsys.readouterr()
        return Run(code, said.out, said.err)


@contextmanager
def stop_when(condition: Callable[[], bool]) -> Iterator[None]:
    """SIGTERM for a job within that goes on for ever, once the condition holds."""
    is_over = threading.Event()

    def wait() -> None:
        wait_until(lambda: is_over.is_set() or condition(), STOP_S, lambda: "what the job was waited for has not come")
        if not is_over.is_set():
            signal.raise_signal(signal.SIGTERM)

    stopper = threading.Thread(target=wait)
    stopper.start()
    try:
        yield
    finally:
        is_over.set()
        stopper.join()


class NewBroker:
    """Makes brokers, none of which runs yet, that a test may do with as it likes."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __call__(self, directory: Path, properties: Mapping[str, str] | None = None) -> BrokerProcess:
        settings = PROPERTIES | dict(properties or {})
        if self._kind == "apache":
            from interop.apache_broker import ApacheBroker

            return ApacheBroker(directory, settings)
        from interop.pybroker_node import PybrokerNode

        return PybrokerNode(directory, settings)


@pytest.fixture(scope="session")
def running_cluster(request: pytest.FixtureRequest) -> str | None:
    found = request.config.getoption("--bootstrap-servers", None)
    return None if found is None else str(found)


@pytest.fixture(scope="session")
def new_broker(request: pytest.FixtureRequest, running_cluster: str | None) -> NewBroker:
    if running_cluster is not None:
        pytest.skip(f"needs a broker of its own, to kill it or to stand before it; {running_cluster} is everybody's")
    return NewBroker(str(request.config.getoption("--broker", "pybroker")))


@pytest.fixture(scope="session")
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, running_cluster: str | None
) -> Iterator[str]:
    if running_cluster is not None:
        _check_settings(running_cluster)
        yield running_cluster
        return
    new_broker = request.getfixturevalue("new_broker")
    with new_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running.bootstrap


def _check_settings(address: str) -> None:
    """The tests let the broker create topics."""
    node = ask(address, MetadataRequest(topics=[])).brokers[0].node_id
    broker = DescribeConfigsResource(resource_type=4, resource_name=str(node), configuration_keys=list(PROPERTIES))
    found = {row.name: row.value for row in ask(address, DescribeConfigsRequest(resources=[broker])).results[0].configs}
    wrong = [f"{key}={value}" for key, value in PROPERTIES.items() if found.get(key) != value]
    if wrong:
        pytest.fail(f"{address} is not set up for these tests: they need {', '.join(wrong)}", pytrace=False)


@pytest.fixture(scope="session")
def jars() -> Path:
    if importlib.util.find_spec("pyspark") is None:
        missing("pyspark is not installed (make spark-jars)")
    from spark_jobs.errors import JobError
    from spark_jobs.jars import default_folder, jars_in, java_command

    try:
        java_command()
    except JobError as error:
        missing(str(error))
    if not jars_in(default_folder()):
        missing("Spark's Kafka connector is not here (make spark-jars)")
    return default_folder()


@pytest.fixture(scope="session")
def spark(jars: Path) -> Iterator[Any]:
    from spark_jobs.session import open_session

    with pytest.MonkeyPatch.context() as patch:
        for name, value in SHORT_LIVED.items():
            patch.setenv(name, value)
        session = open_session("local[2]", "tests", jars, SETTINGS)
    yield session
    session.stop()


@pytest.fixture
def jobs(spark: Any, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Jobs:
    return Jobs(spark, bootstrap, capsys)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name of this test's and this run's own."""
    return re.sub("[^A-Za-z0-9.]+", "-", request.node.name.removeprefix("test_")).strip("-")[:150] + f".{RUN}"
