"""A verdict on the safety of data stands: what `AGAIN=1` may excuse is a machine that was slow, not a record that is lost.

A test marked `verdict` that failed keeps a run of `--last-failed` from being any better, until it was run anew, and passed. A
condition that did not come true in time is no verdict.
"""

from __future__ import annotations

from typing import Final

import pytest
from support.waiting import NotInTimeError

KEY: Final = "pybroker/verdicts"
NOT_TRIED_AGAIN: Final = 42


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    standing = _standing(config).intersection(item.nodeid for item in items)
    if standing and config.getoption("lf", default=False):
        pytest.exit(f"a verdict is not tried again: {', '.join(sorted(standing))}", NOT_TRIED_AGAIN)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> object:
    report = yield
    if item.get_closest_marker("verdict") is not None and (report.failed or report.when == "call"):
        found = None if call.excinfo is None else call.excinfo.value
        is_verdict = isinstance(found, AssertionError) and not isinstance(found, NotInTimeError)
        standing = _standing(item.config) - {item.nodeid} | ({item.nodeid} if is_verdict else set())
        assert item.config.cache is not None
        item.config.cache.set(KEY, sorted(standing))
    return report


def _standing(config: pytest.Config) -> set[str]:
    return set() if config.cache is None else set(config.cache.get(KEY, []))
