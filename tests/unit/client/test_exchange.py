from __future__ import annotations

import struct
from typing import Any

import pytest

import pybroker
from pybroker.client.exchange import (
    MAX_CORRELATION_ID,
    Answered,
    AskAgain,
    BadResponseError,
    Exchange,
    Greeted,
    UnsupportedError,
)
from pybroker.network.answers import encode_answer
from pybroker.network.headers import read_header, table_of
from pybroker.protocol.api_table import APIS
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from pybroker.protocol.messages.cluster import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from pybroker.protocol.messages.metadata import MetadataRequest
from pybroker.protocol.messages.raft import VoteRequest
from pybroker.protocol.schema import Versions

API_VERSIONS, METADATA, VOTE, HEARTBEAT = 18, 3, 52, 63
TABLE = table_of({api.key: (api, api.stable_versions) for api in APIS})


def answer(message: Message, version: int, correlation_id: int) -> memoryview:
    """A response as a server encodes it, without its length."""
    out = bytearray()
    encode_answer(message, version, correlation_id, out, [])
    return memoryview(out)[4:]


def versions(*rows: tuple[int, int, int], error_code: int = 0) -> ApiVersionsResponse:
    keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in rows]
    return ApiVersionsResponse(error_code=error_code, api_keys=keys)


def read(frame: bytearray) -> tuple[int, int, int, str | None, Message]:
    """Key, version, correlation id, client id and message of a request, as a server reads it."""
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    body = memoryview(frame)[4:]
    served, correlation_id, client_id, position = read_header(TABLE, body)
    message = served.api.request.decode(served.version, body[position:])
    return served.api.key, served.version, correlation_id, client_id, message


def greeted(*rows: tuple[int, int, int]) -> Exchange[Any]:
    exchange: Exchange[Any] = Exchange("node-1")
    _, version, correlation_id, _, _ = read(exchange.hello())
    exchange.receive(answer(versions(*rows), version, correlation_id))
    return exchange


def heartbeat(**more: Any) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(broker_id=1, current_metadata_offset=7, want_fence=False, want_shut_down=False, **more)


def alive(offset: int = 0) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(throttle_time_ms=offset, error_code=0, should_shut_down=False)


class TestGreeting:
    def test_the_newest_version_is_asked_first_and_says_who_we_are(self) -> None:
        exchange: Exchange[int] = Exchange("node-1")
        key, version, _, client_id, message = read(exchange.hello())
        assert (key, version, client_id) == (API_VERSIONS, 4, "node-1")
        assert message == ApiVersionsRequest(client_software_name="pybroker", client_software_version=pybroker.__version__)

    def test_the_answer_says_which_versions_there_are(self) -> None:
        exchange: Exchange[int] = Exchange("node-1")
        exchange.hello()
        assert exchange.receive(answer(versions((VOTE, 0, 2)), 4, 0)) == Greeted({VOTE: Versions(0, 2)})
        assert exchange.versions == {VOTE: Versions(0, 2)}

    @pytest.mark.parametrize(
        ("rows", "then"),
        [
            pytest.param([(API_VERSIONS, 0, 3)], 3, id="a broker that knows v3"),
            pytest.param([], 0, id="a broker too old to say what it knows"),
        ],
    )
    def test_a_broker_that_does_not_know_the_version_is_asked_again(self, rows: list[tuple[int, int, int]], then: int) -> None:
        exchange: Exchange[int] = Exchange("node-1")
        exchange.hello()
        outcome = exchange.receive(answer(versions(*rows, error_code=ErrorCode.UNSUPPORTED_VERSION), 0, 0))
        assert isinstance(outcome, AskAgain)
        assert read(outcome.hello)[:3] == (API_VERSIONS, then, 1)
        assert exchange.receive(answer(versions((VOTE, 0, 1)), then, 1)) == Greeted({VOTE: Versions(0, 1)})

    def test_a_broker_that_says_it_knows_the_version_which_it_refuses_is_not_asked_for_ever(self) -> None:
        exchange: Exchange[int] = Exchange("node-1")
        hello = exchange.hello()
        refusal = versions((API_VERSIONS, 0, 4), error_code=ErrorCode.UNSUPPORTED_VERSION)
        asked = [read(hello)[1]]
        for correlation_id in range(4):
            outcome = exchange.receive(answer(refusal, 0, correlation_id))
            assert isinstance(outcome, AskAgain)
            asked.append(read(outcome.hello)[1])
        assert asked == [4, 3, 2, 1, 0]
        with pytest.raises(BadResponseError, match="ApiVersions v0 was answered with the error UNSUPPORTED_VERSION"):
            exchange.receive(answer(refusal, 0, 4))

    @pytest.mark.parametrize(("code", "name"), [(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "CLUSTER_AUTH"), (1234, "1234")])
    def test_any_other_error_is_the_end(self, code: int, name: str) -> None:
        exchange: Exchange[int] = Exchange("node-1")
        exchange.hello()
        with pytest.raises(BadResponseError, match=f"the error {name}"):
            exchange.receive(answer(versions(error_code=code), 4, 0))

    def test_an_answer_to_something_else_is_the_end(self) -> None:
        exchange: Exchange[int] = Exchange("node-1")
        exchange.hello()
        with pytest.raises(BadResponseError, match="the correlation id 7; the next is 0 of ApiVersions v4"):
            exchange.receive(answer(versions(), 4, 7))


class TestVersions:
    def test_the_highest_that_both_have_is_used(self) -> None:
        exchange = greeted((HEARTBEAT, 0, 1), (METADATA, 0, 99))
        assert read(exchange.ask(heartbeat(), None, "a"))[:2] == (HEARTBEAT, 1)
        assert read(exchange.ask(MetadataRequest(topics=None), None, "b"))[:2] == (METADATA, 13)

    def test_a_request_may_need_certain_versions(self) -> None:
        exchange = greeted((HEARTBEAT, 0, 2))
        assert read(exchange.ask(heartbeat(), Versions(0, 0), "a"))[:2] == (HEARTBEAT, 0)

    def test_what_the_node_does_not_serve_is_not_sent(self) -> None:
        exchange = greeted((HEARTBEAT, 0, 1))
        with pytest.raises(UnsupportedError, match="Vote is not served there"):
            exchange.ask(VoteRequest(cluster_id=None, topics=[]), None, "a")
        assert exchange.in_flight == 0

    def test_without_a_common_version_it_is_not_sent(self) -> None:
        exchange = greeted((HEARTBEAT, 0, 0))
        with pytest.raises(UnsupportedError, match="BrokerHeartbeat is served there in versions 0, and needed in 1-2"):
            exchange.ask(heartbeat(), Versions(1, 2), "a")

    def test_what_the_common_version_cannot_carry_is_not_sent(self) -> None:
        exchange = greeted((HEARTBEAT, 0, 1))
        with pytest.raises(UnsupportedError, match=r"BrokerHeartbeat v1, the newest of both sides: .*cordonedLogDirs"):
            exchange.ask(heartbeat(cordoned_log_dirs=[]), None, "a")
        assert exchange.in_flight == 0
        # Nothing is lost: the next request takes the correlation id.
        assert read(exchange.ask(heartbeat(), None, "b"))[2] == 1


class TestAnswers:
    def test_they_come_in_the_order_of_the_requests(self) -> None:
        exchange = greeted((HEARTBEAT, 0, 1))
        ids = [read(exchange.ask(heartbeat(), None, token))[2] for token in "abc"]
        assert exchange.in_flight == 3
        outcomes = [exchange.receive(answer(alive(number), 1, number)) for number in ids]
        assert outcomes == [Answered(token, alive(number)) for token, number in zip("abc", ids, strict=True)]
        assert exchange.in_flight == 0

    def test_another_order_is_the_end(self) -> None:
        exchange = greeted((HEARTBEAT, 0, 1))
        for token in "ab":
            exchange.ask(heartbeat(), None, token)
        with pytest.raises(BadResponseError, match="the correlation id 2; the next is 1 of BrokerHeartbeat v1"):
            exchange.receive(answer(alive(), 1, 2))
        assert exchange.unanswered() == ["a", "b"]

    def test_an_answer_to_nothing_asked_is_the_end(self) -> None:
        exchange = greeted((HEARTBEAT, 0, 1))
        with pytest.raises(BadResponseError, match="the correlation id 1, though nothing was asked"):
            exchange.receive(answer(alive(), 1, 1))

    @pytest.mark.parametrize(
        ("body", "problem"),
        [
            (b"\0\0", "a response of 2 bytes"),
            (b"\0\0\0\1", "an answer to BrokerHeartbeat v1 that cannot be read"),
            (b"\0\0\0\1\0\0\0\0", "an answer to BrokerHeartbeat v1 that cannot be read"),
            (bytes(answer(alive(), 1, 1)) + b"x", "an answer to BrokerHeartbeat v1 with 1 bytes too many"),
        ],
    )
    def test_one_that_cannot_be_read_is_the_end(self, body: bytes, problem: str) -> None:
        exchange = greeted((HEARTBEAT, 0, 1))
        exchange.ask(heartbeat(), None, "a")
        with pytest.raises(BadResponseError, match=problem):
            exchange.receive(memoryview(bytearray(body)))
        assert exchange.unanswered() == ["a"]

    def test_correlation_ids_begin_again_after_the_largest(self) -> None:
        exchange = greeted((HEARTBEAT, 0, 1))
        exchange._next_correlation_id = MAX_CORRELATION_ID
        ids = [read(exchange.ask(heartbeat(), None, token))[2] for token in "ab"]
        assert ids == [MAX_CORRELATION_ID, 0]
        assert [exchange.receive(answer(alive(), 1, number)) for number in ids] == [Answered(one, alive()) for one in "ab"]
