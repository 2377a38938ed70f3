"""Everything below this folder is marked `interop`; the brokers that the tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from interop.apache_broker import ApacheBroker
from interop.apache_kafka import ApacheTools, apache_tools
from interop.pybroker_node import PybrokerNode

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.interop)


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


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PybrokerNode]:
    """One pybroker for all tests that leave it running; topics need names of their own."""
    with PybrokerNode(tmp_path_factory.mktemp("pybroker")) as running:
        yield running
