from __future__ import annotations

import logging

import pytest
from unit.server.clusters import Clock, Controller, node_file

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.topics import CreatableTopicResult, CreateTopicsResponse
from pybroker.server.auto_topics import AutoTopics, creatable
from pybroker.server.dynamic_config import NodeConfig


class Asker:
    def __init__(self, properties: dict[str, str] | None = None) -> None:
        self.controller = Controller()
        self.clock = Clock()
        self.topics = AutoTopics(self.controller, NodeConfig(node_file(properties)), self.clock.now_ms)

    def asked(self) -> list[list[str]]:
        return [[topic.name for topic in request.topics] for request, _, _ in self.controller.asked]  # type: ignore[attr-defined]


def answer(name: str, code: ErrorCode = ErrorCode.NONE) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreatableTopicResult(name=name, error_code=code, error_message=None)])


def test_a_topic_gets_the_brokers_defaults() -> None:
    asker = Asker({"num.partitions": "6", "default.replication.factor": "2", "request.timeout.ms": "12345"})
    asker.topics.ask_for(["orders"])
    ((request, version, _),) = asker.controller.asked
    (topic,) = request.topics  # type: ignore[attr-defined]
    assert (topic.name, topic.num_partitions, topic.replication_factor, topic.configs) == ("orders", 6, 2, [])
    assert (request.timeout_ms, version) == (12345, 7)  # type: ignore[attr-defined]
    request.encode(version)


def test_the_controller_is_asked_once_until_it_has_answered() -> None:
    asker = Asker()
    asker.topics.ask_for(["orders", "payments"])
    asker.topics.ask_for(["orders", "returns"])
    assert asker.asked() == [["orders", "payments"], ["returns"]]
    asker.controller.answer(answer("orders"))
    asker.topics.ask_for(["orders", "payments", "returns"])
    assert asker.asked() == [["returns"], ["orders", "payments"]]


def test_the_controller_is_asked_again_if_it_does_not_answer_in_time() -> None:
    asker = Asker({"request.timeout.ms": "500"})
    asker.topics.ask_for(["orders"])
    asker.clock.advance(499)
    asker.topics.ask_for(["orders"])
    assert len(asker.asked()) == 1
    asker.clock.advance(1)
    asker.topics.ask_for(["orders"])
    assert asker.asked() == [["orders"], ["orders"]]


def test_illegal_names_never_reach_the_controller() -> None:
    asker = Asker()
    asker.topics.ask_for(["b@d", "", ".."])
    assert asker.asked() == []


def test_a_refusal_is_logged_but_not_that_somebody_was_faster(caplog: pytest.LogCaptureFixture) -> None:
    asker = Asker()
    with caplog.at_level(logging.WARNING):
        asker.topics.ask_for(["orders"])
        asker.controller.answer(answer("orders", ErrorCode.TOPIC_ALREADY_EXISTS))
        assert caplog.messages == []
        asker.topics.ask_for(["orders"])
        asker.controller.answer(answer("orders", ErrorCode.INVALID_REPLICATION_FACTOR))
    assert "topic orders was not created: INVALID_REPLICATION_FACTOR" in caplog.text


# What Apache Kafka 4.3.1 creates for each of them.
@pytest.mark.parametrize(
    ("name", "prefix", "configs"),
    [
        ("__consumer_offsets", "offsets.topic", {"cleanup.policy": "compact", "compression.type": "producer"}),
        (
            "__transaction_state",
            "transaction.state.log",
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": "1",
                "unclean.leader.election.enable": "false",
            },
        ),
        (
            "__share_group_state",
            "share.coordinator.state.topic",
            {"cleanup.policy": "delete", "compression.type": "producer", "min.insync.replicas": "1", "retention.ms": "-1"},
        ),
    ],
)
def test_internal_topics_are_made_as_they_have_to_be(name: str, prefix: str, configs: dict[str, str]) -> None:
    given = {f"{prefix}.num.partitions": "7", f"{prefix}.replication.factor": "1", f"{prefix}.segment.bytes": "1048577"}
    if "min.insync.replicas" in configs:
        given[f"{prefix}.min.isr"] = "1"
    topic = creatable(name, node_file(given))
    assert (topic.num_partitions, topic.replication_factor) == (7, 1)
    assert {one.name: one.value for one in topic.configs} == configs | {"segment.bytes": "1048577"}
