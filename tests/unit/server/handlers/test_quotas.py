from __future__ import annotations

from typing import Any

import pytest
from support.requests import AskedRequest
from unit.server.clusters import Clock, Cluster, Controller

from pybroker.metadata.quotas import quota_entity, quota_record
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
)
from pybroker.server.forwarding import Forwarding
from pybroker.server.handlers.quotas import MatchType, QuotaHandlers

EXACT, DEFAULT, SPECIFIED = MatchType
ENTITIES: dict[str, dict[str, str | None]] = {
    "alice": {"user": "alice"},
    "everybody": {"user": None},
    "alice's app": {"user": "alice", "client-id": "app"},
    "alice's apps": {"user": "alice", "client-id": None},
    "an address": {"ip": "10.0.0.1"},
}


class Broker:
    def __init__(self) -> None:
        self.cluster = Cluster()
        self.controller = Controller()
        self.clock = Clock()
        forwarding = Forwarding(self.controller, self.clock.timer, self.clock.now_ms)
        self.handlers: Any = QuotaHandlers(self.cluster.image_of, forwarding, lambda: 1000)
        for number, entity in enumerate(ENTITIES.values()):
            self.cluster.apply(quota_record(quota_entity(entity.items()), "a_rate", float(number)))

    def ask(self, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
        rows = [ComponentData(entity_type=kind, match_type=match, match=name) for kind, match, name in components]
        asked = AskedRequest(DescribeClientQuotasRequest(components=rows, strict=strict), 1)
        return self.handlers.handle_describe_client_quotas(asked, asked.message)

    def found(self, *components: tuple[str, int, str | None], strict: bool = False) -> list[str]:
        names = list(ENTITIES)
        return [names[int(entry.values[0].value)] for entry in self.ask(*components, strict=strict).entries]


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_a_filter_names_what_an_entity_must_have(broker: Broker) -> None:
    assert broker.found() == list(ENTITIES)
    assert broker.found(("user", EXACT, "alice")) == ["alice", "alice's app", "alice's apps"]
    assert broker.found(("user", DEFAULT, None)) == ["everybody"]
    assert broker.found(("user", SPECIFIED, None)) == ["alice", "everybody", "alice's app", "alice's apps"]
    assert broker.found(("user", EXACT, "alice"), ("client-id", DEFAULT, None)) == ["alice's apps"]
    assert broker.found(("ip", EXACT, "10.0.0.1")) == ["an address"]
    assert broker.found(("user", EXACT, "bob")) == []


def test_strictly_nothing_else(broker: Broker) -> None:
    assert broker.found(("user", EXACT, "alice"), strict=True) == ["alice"]
    assert broker.found(("user", SPECIFIED, None), ("client-id", SPECIFIED, None), strict=True) == [
        "alice's app",
        "alice's apps",
    ]
    assert broker.found(strict=True) == []


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", EXACT, "x")], ErrorCode.INVALID_REQUEST),
        ([("group", EXACT, "x")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, "a"), ("user", EXACT, "b")], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", SPECIFIED, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, "a"), ("ip", EXACT, "10.0.0.1")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_no_filter(broker: Broker, components: list[tuple[str, int, str | None]], code: ErrorCode) -> None:
    answer = broker.ask(*components)
    assert (answer.error_code, answer.entries) == (code, None)


def test_the_controller_alters_quotas_or_is_silent(broker: Broker) -> None:
    entity = [EntityData(entity_type="user", entity_name="alice")]
    rows = [AlterClientQuotasRequestEntryData(entity=entity, ops=[])]
    asked = AskedRequest(AlterClientQuotasRequest(entries=rows, validate_only=False), 1)
    broker.handlers.handle_alter_client_quotas(asked, asked.message)
    assert len(broker.controller.request.entries) == 1
    broker.clock.advance(1001)
    assert [one.error_code for one in asked.answer.entries] == [ErrorCode.REQUEST_TIMED_OUT]
