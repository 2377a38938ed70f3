from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from interop.apache_broker import ApacheBroker
from interop.apache_kafka import ApacheTools
from interop.broker_process import BrokerProcess
from interop.tools.both import Both


@pytest.fixture(scope="session")
def both(
    tools: ApacheTools, apache_broker: ApacheBroker, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Both]:
    """INTEROP_JUDGE=1 compares Apache Kafka with itself."""
    if os.environ.get("INTEROP_JUDGE") == "1":
        with ApacheBroker(tmp_path_factory.mktemp("second")) as second:
            yield Both(tools, apache_broker, second)
    else:
        node: BrokerProcess = request.getfixturevalue("node")
        yield Both(tools, apache_broker, node)
