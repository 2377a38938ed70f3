from __future__ import annotations

from collections.abc import Iterator

import pytest
from interop.records.record_lines import RecordLines, record_lines


@pytest.fixture(scope="session")
def java() -> Iterator[RecordLines]:
    with record_lines() as lines:
        yield lines
