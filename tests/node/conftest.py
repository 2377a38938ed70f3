"""Everything below this folder starts real processes and is marked `cluster`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from node.process import NodeProcess

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., NodeProcess]]:
    """`start(*arguments)` runs `pybroker start` in the test's folder; whatever still runs at the end is killed."""
    with ExitStack() as running:
        yield lambda *arguments: running.enter_context(NodeProcess(tmp_path, arguments))
