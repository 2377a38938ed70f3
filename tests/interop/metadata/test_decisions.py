"""Our controller and Apache Kafka's, given the same requests in the same order, answer the same."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from interop.apache_broker import ApacheBroker
from interop.metadata.cases import CASES, Case, TopicIdOf
from interop.metadata.our_cluster import OurCluster

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.topics import CreateTopicsResponse, DeleteTopicsRequest

# Where we mean to answer otherwise: what Apache Kafka says, what we say, why.
DIFFERENCES = {
    "alter: an operation that is not there": (
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.INVALID_REQUEST,
        "theirs is a null pointer that nobody caught",
    ),
    "grow: too far": (
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.POLICY_VIOLATION,
        "theirs writes the first 10,000 partitions all the same",
    ),
    **{
        f"{alter}: another broker": (
            ErrorCode.INVALID_REQUEST,
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            "theirs is asked by way of a broker, which refuses what is not its own; ours is the controller alone",
        )
        for alter in ("alter", "legacy alter")
    },
}


class Told:
    """What one cluster answered to every case, in a form that can be compared; remembers its topic ids."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self._ids: dict[str, Uuid] = {}
        self.answers = {case.name: self._ask(case) for case in CASES}

    def _ask(self, case: Case) -> list[dict[str, Any]]:
        request = copy.deepcopy(case.request)
        if isinstance(request, DeleteTopicsRequest):
            for topic in request.topics:
                if isinstance(topic.topic_id, TopicIdOf):
                    topic.topic_id = self._ids[topic.topic_id]
        response = self._cluster.ask(request, case.version)
        if isinstance(response, CreateTopicsResponse) and not request.validate_only:
            self._ids |= {one.name: one.topic_id for one in response.topics if one.error_code == ErrorCode.NONE}
        names = {topic_id: name for name, topic_id in self._ids.items()}
        (rows,) = [value for value in vars_of(response).values() if isinstance(value, list)]
        return sorted((comparable(row, names) for row in rows), key=repr)


def vars_of(message: Message) -> dict[str, Any]:
    return {column.name: getattr(message, column.name) for column in type(message).COLUMNS}


def comparable(row: Any, names: dict[Uuid, str]) -> dict[str, Any]:
    """Messages are in our own words, ids are drawn: what remains must be the same."""
    fields = vars_of(row)
    fields["has_message"] = bool(fields.pop("error_message")) or fields["error_code"] != ErrorCode.NONE
    fields["error_code"] = ErrorCode(fields["error_code"])
    topic_id = fields.pop("topic_id", None)
    if topic_id is not None:
        fields["id_of"] = "nobody" if topic_id == ZERO_UUID else names.get(topic_id, "somebody")
    if "configs" in fields:
        fields["configs"] = sorted(map(repr, fields["configs"]))
    return fields


@pytest.fixture(scope="module")
def apache_told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    with ApacheBroker(tmp_path_factory.mktemp("apache")) as broker:
        yield Told(broker)


@pytest.fixture(scope="module")
def our_told() -> Told:
    return Told(OurCluster())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_same_answer(case: Case, apache_told: Told, our_told: Told) -> None:
    theirs, ours = apache_told.answers[case.name], our_told.answers[case.name]
    if case.name in DIFFERENCES:
        apache, pybroker, _why = DIFFERENCES[case.name]
        assert ([row["error_code"] for row in theirs], [row["error_code"] for row in ours]) == ([apache], [pybroker])
    else:
        assert ours == theirs


def test_the_cases_are_told_apart_by_their_names() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert {case.name for case in CASES} >= DIFFERENCES.keys()
