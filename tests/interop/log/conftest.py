from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from interop.apache_broker import ApacheBroker

NewBroker = Callable[..., ApacheBroker]


@pytest.fixture
def new_apache_broker(tmp_path: Path) -> Iterator[NewBroker]:
    """Starts an Apache Kafka of the test's own: `new_apache_broker({"key": "value"})`."""
    with ExitStack() as stack:

        def start(properties: Mapping[str, str] | None = None, name: str = "apache") -> ApacheBroker:
            return stack.enter_context(ApacheBroker(tmp_path / name, properties))

        yield start
