"""The short way of Produce on a simulated broker: a request as a frame, on a connection that has no more to it than that way
looks at. As in production it is tried first, and learns from the requests that had to go the whole way."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pybroker.network.answers import Gather
from pybroker.protocol.api_table import APIS
from pybroker.protocol.messages.headers import RequestHeader
from pybroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from pybroker.server.handlers.plain_produce import PlainProduce

_PRODUCE: Final = next(api for api in APIS if api.request is ProduceRequest)
_THREAD: Final = 1  # all that a broker does is on one
_SIZE_AND_CORRELATION_ID: Final = 8


def produce_frame(message: ProduceRequest, version: int, client_id: str) -> tuple[memoryview, int]:
    """What comes in without its length, and where the body begins. The batch in it is stamped where it lies."""
    header = RequestHeader(
        request_api_key=_PRODUCE.key, request_api_version=version, correlation_id=0, client_id=client_id
    ).encode(_PRODUCE.request_header_version(version))
    return memoryview(bytearray(header + message.encode(version))), len(header)


class ShortProduce:
    ident = _THREAD

    def __init__(self, plain: PlainProduce, run_soon: Callable[[Callable[[], object]], None]) -> None:
        self._plain = plain
        self._run_soon = run_soon

    def answer(self, request: Any) -> bool:
        """Whether `request` is answered, or will be; False: nothing is done."""
        connection: Any = _Connection(self, request)
        gather = Gather(_THREAD)
        if not self._plain.answer(connection, (request.frame,), 0, gather):
            return False
        if gather.out:
            connection.settle(gather.out)
        return True

    def soon(self, function: Callable[[Any], object], argument: Any) -> None:
        self._run_soon(partial(function, argument))


class _Connection:
    """Of one request."""

    owed = ()

    def __init__(self, thread: ShortProduce, request: Any) -> None:
        self.thread = thread
        self._request = request

    def owe(self, gather: Gather) -> _Connection:
        return self

    def settle(self, data: bytes | bytearray) -> None:
        version = self._request.version
        body = _SIZE_AND_CORRELATION_ID + _PRODUCE.response_header_version(version)  # a header v1 has no tags in one byte more
        self._request.respond(ProduceResponse.decode(version, memoryview(data)[body:]))
