"""What a machine lacks skips the tests that need it, but in CI, where nobody would see it, fails them."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(what: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(f"in CI nothing is skipped: {what}", pytrace=False)
    pytest.skip(what)
