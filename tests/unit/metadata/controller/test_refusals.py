from __future__ import annotations

from random import Random
from typing import Any

import pytest
from support.random_messages import random_message

from pybroker.metadata.controller.controller import _DECISIONS, Controller
from pybroker.metadata.controller.refusals import refused
from pybroker.protocol.api_table import API_BY_KEY
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.partitions import ElectLeadersRequest


def codes(value: Any) -> set[int]:
    """Every error code in a message."""
    if isinstance(value, list):
        return set().union(*map(codes, value)) if value else set()
    if not hasattr(value, "COLUMNS"):
        return set()
    own = {value.error_code} if hasattr(value, "error_code") else set()
    return own.union(*(codes(getattr(value, column.name)) for column in type(value).COLUMNS))


def has_no_place(kind: type[Message], version: int) -> bool:
    """For an error of the whole, beside its rows."""
    return kind is ElectLeadersRequest and version == 0


@pytest.mark.parametrize("kind", _DECISIONS, ids=lambda kind: kind.__name__)
def test_whatever_the_controller_decides_on_it_can_refuse(kind: type[Message]) -> None:
    rng = Random(1)
    for version in range(kind.VERSIONS.low, kind.VERSIONS.high + 1):
        for _ in range(20):
            request = random_message(rng, kind, version)
            assert Controller.handles(request)
            answer = refused(request, ErrorCode.NOT_CONTROLLER, "not here", version)
            assert kind.KEY is not None
            assert isinstance(answer, API_BY_KEY[kind.KEY].response)
            answer.encode(version)
            assert codes(answer) <= {ErrorCode.NOT_CONTROLLER, *({ErrorCode.NONE} if has_no_place(kind, version) else ())}
