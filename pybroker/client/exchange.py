"""Requests and responses of one outgoing connection: versions agreed on first, then correlation ids in order. Pure.

`hello` is the first request, ApiVersions in the newest version we know; a node that does not know it says so in v0, and is
asked again as it can understand. After that each request goes out in the highest version that both sides have. A Kafka node
answers the requests of a connection in their order: any other answer means that the two sides have lost each other.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

import pybroker
from pybroker.protocol.api_table import API_BY_KEY, API_VERSIONS_KEY, Api
from pybroker.protocol.errors import ErrorCode, ProtocolError, error_name
from pybroker.protocol.message import Message, decoder, encoder
from pybroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pybroker.protocol.schema import Versions
from pybroker.protocol.wire import read_unknown_tags

SOFTWARE_NAME: Final = "pybroker"
MAX_CORRELATION_ID: Final = 2**31 - 1

_PREFIX: Final = struct.Struct(">ihhi").pack  # size, api key, version, correlation id
_CLIENT_BYTES: Final = struct.Struct(">h").pack
_put_size: Final = struct.Struct(">i").pack_into
_correlation_id: Final = struct.Struct(">i").unpack_from
_error_code: Final = struct.Struct(">h").unpack_from

T = TypeVar("T")


class BadResponseError(Exception):
    """Nothing that comes after this can be understood; the text is the reason to close the connection."""


class UnsupportedError(Exception):
    """There is no version in which the request can be said to this node; the text says why."""


class Answered(NamedTuple, Generic[T]):
    token: T
    response: Message


class Greeted(NamedTuple):
    """The versions are known: requests may go out."""

    versions: Mapping[int, Versions]


class AskAgain(NamedTuple):
    """The hello was not understood: this one is to be sent in its place."""

    hello: bytearray


class _Way(NamedTuple):
    """How a kind of request goes to this node, and its answer comes back."""

    api: Api
    version: int
    header_end: bytes  # the client id, its length before it, and no tags
    encode: Callable[[Any, bytearray, None], None]


class _Asked(NamedTuple, Generic[T]):
    correlation_id: int
    way: _Way
    token: T


_API_VERSIONS: Final = API_BY_KEY[API_VERSIONS_KEY]


class Exchange(Generic[T]):
    """`T` is whatever the caller knows a request by."""

    def __init__(self, client_id: str) -> None:
        self.versions: Mapping[int, Versions] | None = None
        self._client_id = client_id.encode()
        self._next_correlation_id = 0
        self._hello: _Asked[None] | None = None
        self._asked: deque[_Asked[T]] = deque()
        self._ways: dict[tuple[type[Message], Versions | None], _Way] = {}

    @property
    def in_flight(self) -> int:
        """Requests without an answer yet, the hello not among them."""
        return len(self._asked)

    def unanswered(self) -> list[T]:
        return [asked.token for asked in self._asked]

    def hello(self, version: int = ApiVersionsRequest.VERSIONS.high) -> bytearray:
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=pybroker.__version__)
        self._hello = _Asked(self._take_id(), self._way(_API_VERSIONS, version), None)
        return _encode(request, self._hello.way, self._hello.correlation_id)

    def ask(self, request: Message, versions: Versions | None, token: T) -> bytearray:
        """The bytes to send; `versions` are those that can say what the request means, by default all stable ones.

        UnsupportedError, with nothing remembered, if there is no way to say it.
        """
        way = self._ways.get((type(request), versions))
        if way is None:
            way = self._ways[type(request), versions] = self._find_way(request, versions)
        try:
            frame = _encode(request, way, self._next_correlation_id)
        except ProtocolError as error:
            raise UnsupportedError(f"{way.api.name} v{way.version}, the newest of both sides: {error}") from error
        self._asked.append(_Asked(self._take_id(), way, token))
        return frame

    def _find_way(self, request: Message, versions: Versions | None) -> _Way:
        assert self.versions is not None, "a request before the versions are known"
        assert request.KEY is not None, f"{type(request).__name__} is no request"
        api = API_BY_KEY[request.KEY]
        return self._way(api, _common_version(api, versions or api.stable_versions, self.versions))

    def _way(self, api: Api, version: int) -> _Way:
        tags = b"\0" if api.request_header_version(version) == 2 else b""
        header_end = _CLIENT_BYTES(len(self._client_id)) + self._client_id + tags
        return _Way(api, version, header_end, encoder(api.request, version))

    def receive(self, frame: memoryview) -> Answered[T] | Greeted | AskAgain:
        """What the frame, one whole response, means. Records in the message are views of it."""
        if len(frame) < 4:
            raise BadResponseError(f"a response of {len(frame)} bytes; it begins with a correlation id of 4")
        correlation_id = _correlation_id(frame)[0]
        if self._hello is not None:
            asked, self._hello = self._hello, None
            _check_id(correlation_id, asked)
            return self._greeted(asked, frame)
        if not self._asked:
            raise BadResponseError(f"a response with the correlation id {correlation_id}, though nothing was asked")
        answered = self._asked[0]
        _check_id(correlation_id, answered)
        response = read_response(answered.way.api, answered.way.version, frame)
        self._asked.popleft()
        return Answered(answered.token, response)

    def _greeted(self, asked: _Asked[None], frame: memoryview) -> Greeted | AskAgain:
        error_code = ErrorCode.NONE.value if len(frame) < 6 else _error_code(frame, 4)[0]
        version = asked.way.version
        if error_code == ErrorCode.UNSUPPORTED_VERSION and version > 0:
            # Answered in v0 whatever was asked. A node that is too old to tell what it knows knows v0.
            response = read_response(_API_VERSIONS, 0, frame)
            known = _ranges(response).get(API_VERSIONS_KEY, Versions(0, 0))
            return AskAgain(self.hello(min(known.high, version - 1)))
        response = read_response(_API_VERSIONS, version, frame)
        if error_code:
            raise BadResponseError(f"ApiVersions v{version} was answered with the error {error_name(error_code)}")
        self.versions = _ranges(response)
        return Greeted(self.versions)

    def _take_id(self) -> int:
        taken = self._next_correlation_id
        self._next_correlation_id = 0 if taken == MAX_CORRELATION_ID else taken + 1
        return taken


def _encode(request: Message, way: _Way, correlation_id: int) -> bytearray:
    api, version, header_end, encode = way
    out = bytearray(_PREFIX(0, api.key, version, correlation_id))
    out += header_end
    encode(request, out, None)
    _put_size(out, 0, len(out) - 4)
    return out


def _common_version(api: Api, ours: Versions, theirs: Mapping[int, Versions]) -> int:
    offered = theirs.get(api.key)
    if offered is None:
        raise UnsupportedError(f"{api.name} is not served there")
    version = min(ours.high, offered.high)
    if version < max(ours.low, offered.low):
        raise UnsupportedError(f"{api.name} is served there in versions {offered}, and needed in {ours}")
    return version


def _check_id(correlation_id: int, asked: _Asked[Any]) -> None:
    if correlation_id != asked.correlation_id:
        expected = f"{asked.correlation_id} of {asked.way.api.name} v{asked.way.version}"
        raise BadResponseError(f"a response with the correlation id {correlation_id}; the next is {expected}")


def read_response(api: Api, version: int, frame: memoryview) -> Any:
    """The message of a whole response, whose correlation id, in its first four bytes, was looked at before."""
    position = 4
    try:
        if api.response_header_version(version) == 1:
            _, position = read_unknown_tags(frame, position, len(frame))
        response, position = decoder(api.response, version)(frame, position)
    except (ProtocolError, IndexError) as error:
        raise BadResponseError(f"an answer to {api.name} v{version} that cannot be read: {error}") from error
    if position != len(frame):
        raise BadResponseError(f"an answer to {api.name} v{version} with {len(frame) - position} bytes too many")
    return response


def _ranges(response: ApiVersionsResponse) -> dict[int, Versions]:
    return {one.api_key: Versions(one.min_version, one.max_version) for one in response.api_keys}
