from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from interop.apache_broker import ApacheBroker
from interop.apache_kafka import ApacheTools, apache_tools

NewBroker = Callable[..., ApacheBroker]


@pytest.fixture(scope="session")
def tools() -> Iterator[ApacheTools]:
    """Apache Kafka's command line tools in one JVM."""
    with apache_tools() as running:
        yield running


@pytest.fixture(scope="session")
def apache_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheBroker]:
    """One Apache Kafka for all tests that leave it running; topics need names of their own."""
    with ApacheBroker(tmp_path_factory.mktemp("apache")) as broker:
        yield broker


@pytest.fixture
def new_apache_broker(tmp_path: Path) -> Iterator[NewBroker]:
    """Starts an Apache Kafka of the test's own: `new_apache_broker({"key": "value"})`."""
    with ExitStack() as stack:

        def start(properties: Mapping[str, str] | None = None, name: str = "apache") -> ApacheBroker:
            return stack.enter_context(ApacheBroker(tmp_path / name, properties))

        yield start
