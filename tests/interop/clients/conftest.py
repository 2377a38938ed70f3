"""The broker and the client of a test. INTEROP_BROKERS=apache plays the scenarios against Apache Kafka instead, which is how
the tests themselves are tested; INTEROP_BROKERS=apache,pybroker against both."""

from __future__ import annotations

import os
from collections.abc import Iterator
from uuid import uuid4

import pytest
from interop.apache_broker import ApacheBroker
from interop.broker_process import BrokerProcess
from interop.clients.catalog import CLIENTS
from interop.clients.driver import Client
from interop.pybroker_node import PybrokerNode

BROKERS: dict[str, type[BrokerProcess]] = {"apache": ApacheBroker, "pybroker": PybrokerNode}
PLAYED = os.environ.get("INTEROP_BROKERS", "pybroker").split(",")


@pytest.fixture(scope="session", params=PLAYED)
def broker_class(request: pytest.FixtureRequest) -> type[BrokerProcess]:
    return BROKERS[request.param]


@pytest.fixture(scope="session")
def cluster(broker_class: type[BrokerProcess], tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A node that makes unknown topics when asked to, of three partitions."""
    properties = {"auto.create.topics.enable": "true", "num.partitions": "3"}
    with broker_class(tmp_path_factory.mktemp("cluster"), properties) as broker:
        yield broker


@pytest.fixture(scope="session")
def without_auto_create(broker_class: type[BrokerProcess], tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker_class(tmp_path_factory.mktemp("without"), {"auto.create.topics.enable": "false"}) as broker:
        yield broker


@pytest.fixture(scope="session")
def client(
    request: pytest.FixtureRequest, cluster: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    with CLIENTS[request.param].start(cluster.bootstrap, tmp_path_factory.mktemp("client")) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.originalname.removeprefix("test_"))
    return f"{name[:60]}-{uuid4().hex[:8]}"
