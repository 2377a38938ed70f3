from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from interop.answers.case import Pair
from interop.answers.differences import DIFFERENCES
from interop.answers.group_steps import answers_for_groups
from interop.answers.side import Side, prepare
from interop.answers.transaction_steps import answers_for_transactions
from interop.apache_broker import ApacheBroker
from interop.broker_process import BrokerProcess
from interop.pybroker_node import PybrokerNode
from support.waiting import wait_until

# INTEROP_JUDGE=1 compares Apache Kafka with itself: what differs then is a fault of the cases or of the comparison.
HERE = Path(__file__).resolve().parent
JUDGE = os.environ.get("INTEROP_JUDGE") == "1"


def properties(directory: Path) -> dict[str, str]:
    return {
        "log.dirs": f"{directory / 'data'},{directory / 'data2'}",
        "auto.create.topics.enable": "true",
        "log.retention.check.interval.ms": "3600000",
        "log.cleaner.enable": "false",
        "message.max.bytes": "1000000",
        "group.min.session.timeout.ms": "300",
        "group.max.size": "3",
    }


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Pair]:
    directories = tmp_path_factory.mktemp("apache"), tmp_path_factory.mktemp("here")
    other: Callable[[Path, dict[str, str]], BrokerProcess] = ApacheBroker if JUDGE else PybrokerNode
    with (
        ApacheBroker(directories[0], properties(directories[0])) as apache,
        other(directories[1], properties(directories[1])) as here,
    ):
        brokers = (apache, here)
        for broker in brokers:
            prepare(broker)
            wait_until(partial(answers_for_groups, broker), 30, lambda: "there is no group coordinator")
            wait_until(partial(answers_for_transactions, broker), 30, lambda: "there is no transaction coordinator")

        def side(broker: BrokerProcess, case: str) -> Side:
            return Side(broker, broker.properties["log.dirs"].split(","), case)

        pair = Pair(lambda case: (side(apache, case), side(here, case)), JUDGE)
        yield pair
    # A run of some cases says nothing about the rows that others need.
    modules = {item.path for item in request.session.items}
    if not JUDGE and not request.config.option.keyword and modules >= set(HERE.glob("test_*.py")):
        stale = [row for number, row in enumerate(DIFFERENCES) if number not in pair.allowed]
        assert not stale, f"differences that no answer shows any more: {stale}"
