from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from support.requests import AskedRequest

from pybroker.network.answers import Gather
from pybroker.protocol.api_table import APIS
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.message import Message
from pybroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pybroker.protocol.messages.metadata import DescribeClusterRequest, DescribeClusterResponse, MetadataRequest
from pybroker.server.dispatch import WOULD_BLOCK, Answer, Dispatcher, Route

APIS_BY_KEY = {api.key: api for api in APIS}
GATHER = Gather(0)


class Asked(AskedRequest):
    """With the bytes that a dispatcher decodes."""

    def __init__(self, message: Message, version: int, **options: Any) -> None:
        super().__init__(message, version, **options)
        self.frame = memoryview(bytearray(b"header" + message.encode(version)))
        self.position = 6


def cluster_request(**options: Any) -> Asked:
    return Asked(DescribeClusterRequest(include_cluster_authorized_operations=False), 0, **options)


def dispatcher(handle: Any, key: int = 60, *, is_quick: bool = False) -> Dispatcher:
    return Dispatcher([Route(APIS_BY_KEY[key], handle, is_quick)])


def described(*_: Any) -> Answer:
    return DescribeClusterResponse(error_code=0, error_message=None, cluster_id="c", controller_id=1, brokers=[])


def test_a_handler_gets_the_message_and_its_answer_is_sent() -> None:
    seen = []

    def handle(request: Any, message: Any) -> Answer:
        seen.append(message)
        return described()

    request = cluster_request()
    assert dispatcher(handle).handle(request)  # type: ignore[arg-type]
    assert seen == [request.message]
    assert request.answer.cluster_id == "c"


def test_what_may_block_is_not_even_decoded_on_a_network_thread() -> None:
    request = cluster_request(may_block=False)
    assert not dispatcher(described).handle(request)  # type: ignore[arg-type]
    assert request.answers == []
    assert dispatcher(described, is_quick=True).handle(request)  # type: ignore[arg-type]
    assert len(request.answers) == 1


def test_a_handler_can_say_that_it_would_block() -> None:
    request = cluster_request(may_block=False)
    assert not dispatcher(lambda *_: WOULD_BLOCK, is_quick=True).handle(request)  # type: ignore[arg-type]
    assert request.answers == []


def test_a_handler_can_answer_later() -> None:
    request = cluster_request()
    assert dispatcher(lambda *_: None).handle(request)  # type: ignore[arg-type]
    assert request.answers == []


def test_bytes_that_are_no_such_message_end_the_connection() -> None:
    request = Asked(MetadataRequest(topics=None), 9)
    request.frame = request.frame[:-1]
    assert dispatcher(described, 3).handle(request)  # type: ignore[arg-type]
    assert request.close_reason is not None
    assert request.close_reason.startswith("a request that cannot be read: MetadataRequest v9")


def test_a_refusal_as_a_whole_is_in_the_answer_where_that_has_a_place_for_it() -> None:
    def refuse(*_: Any) -> Answer:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "No.")

    request = cluster_request()
    assert dispatcher(refuse).handle(request)  # type: ignore[arg-type]
    assert (request.answer.error_code, request.answer.error_message) == (ErrorCode.INVALID_REQUEST, "No.")
    elsewhere = Asked(MetadataRequest(topics=None), 9)
    assert dispatcher(refuse, 3).handle(elsewhere)  # type: ignore[arg-type]
    assert elsewhere.close_reason == "Metadata failed: INVALID_REQUEST: No."


def test_a_bug_in_a_handler_costs_one_request_and_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def break_down(*_: Any) -> Answer:
        raise ZeroDivisionError

    request = cluster_request()
    with caplog.at_level(logging.ERROR):
        assert dispatcher(break_down).handle(request)  # type: ignore[arg-type]
    assert request.answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "ZeroDivisionError" in caplog.text


def test_api_versions_of_an_unknown_version_reaches_its_handler_unread() -> None:
    seen = []

    def handle(request: Any, message: Any) -> Answer:
        seen.append(message)
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])

    request = Asked(ApiVersionsRequest(), 0)
    request.version = 99
    assert dispatcher(handle, 18).handle(request)  # type: ignore[arg-type]
    assert seen == [None]


class TestShortcut:
    """A way for many frames at once, where a route has one."""

    PRODUCE = bytes([0, 0, 0, 12]) + b"the rest"
    METADATA = bytes([0, 3, 0, 12]) + b"the rest"

    def answered(self, *frames: bytes, table: dict[int, Any] | None = None, start: int = 0) -> tuple[int, list[Any]]:
        """How many were answered, and what the shortcut was given."""
        seen: list[Any] = []

        def shortcut(_: Any, frames: Any, start: int, gather: Any) -> int:
            seen.append((len(frames), start, gather))
            return 2

        routes = [Route(APIS_BY_KEY[0], described, shortcut=shortcut), Route(APIS_BY_KEY[3], described)]
        connection: Any = SimpleNamespace(table={12: "served"} if table is None else table)
        views = [memoryview(bytearray(one)) for one in frames]
        return Dispatcher(routes).handle_pipelined(connection, views, start, GATHER), seen

    def test_it_gets_the_frames_of_its_api(self) -> None:
        assert self.answered(self.METADATA, self.PRODUCE, self.PRODUCE, start=1) == (2, [(3, 1, GATHER)])

    @pytest.mark.parametrize("frame", [METADATA, b"", b"\0\0\0", b"\x7f\xff\0\0"])
    def test_other_frames_have_none(self, frame: bytes) -> None:
        assert self.answered(frame, table={12: "served", 3 << 16 | 12: "served"}) == (0, [])

    def test_a_listener_that_does_not_serve_the_api_has_none_either(self) -> None:
        assert self.answered(self.PRODUCE, table={}) == (0, [])
