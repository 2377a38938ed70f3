from __future__ import annotations

from collections.abc import Iterator

import pytest
from interop.apache_kafka import ApacheTools
from interop.cluster.pair import Pair, pair


@pytest.fixture(scope="session")
def clusters(tools: ApacheTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """For all tests that leave them as they were; topics need names of their own."""
    with pair(tmp_path_factory.mktemp("pair"), tools) as both:
        yield both
