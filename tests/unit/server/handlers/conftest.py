from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.server.handlers.nodes import Replicas


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    made = Replicas(tmp_path)
    yield made
    made.close()
