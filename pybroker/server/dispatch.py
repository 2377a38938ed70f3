"""From a request to its handler, and from what the handler says to an answer.

Runs on whichever thread the reactor calls it on. `ROUTES` of a node is a table: an API that is not in it is neither served
nor advertised. A handler returns the response, None if it answers later by `request.respond`, or WOULD_BLOCK, having done
nothing, if it is on a network thread and would keep it waiting. A bug in a handler costs one request, not the node.
A shortcut answers the commonest requests straight from their bytes, as many at once as came together.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from pybroker.network.answers import Gather
from pybroker.network.connection import Connection
from pybroker.network.request import Request
from pybroker.protocol.api_table import API_VERSIONS_KEY, Api
from pybroker.protocol.errors import ErrorCode, KafkaError, ProtocolError
from pybroker.protocol.message import Message, decoder

logger = logging.getLogger(__name__)


class _WouldBlock:
    def __repr__(self) -> str:
        return "WOULD_BLOCK"


WOULD_BLOCK: Final = _WouldBlock()

Answer = Message | None | _WouldBlock
Handle = Callable[[Request, Any], Answer]
# How many of the frames, from the number given on, were answered into the gather or are owed to the connection; 0, with
# nothing done, if not even one.
Shortcut = Callable[[Connection, Sequence[memoryview], int, Gather], int]

KEY_AND_VERSION_BYTES: Final = 4
_unpack_key_and_version: Final = Struct(">I").unpack_from


class Route(NamedTuple):
    api: Api
    handle: Handle
    # Worth a try on the network thread: it never waits there, or says so by WOULD_BLOCK.
    is_quick: bool = False
    shortcut: Shortcut | None = None


class Dispatcher:
    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes: Mapping[int, Route] = {route.api.key: route for route in routes}
        self._shortcuts = {key: route.shortcut for key, route in self._routes.items() if route.shortcut is not None}

    def handle_pipelined(self, connection: Connection, frames: Sequence[memoryview], start: int, gather: Gather) -> int:
        frame = frames[start]
        if len(frame) < KEY_AND_VERSION_BYTES:
            return 0
        (key_and_version,) = _unpack_key_and_version(frame)
        shortcut = self._shortcuts.get(key_and_version >> 16)
        # What was learned from one listener's clients is not for another that does not serve this API.
        if shortcut is None or key_and_version not in connection.table:
            return 0
        return shortcut(connection, frames, start, gather)

    def handle(self, request: Request) -> bool:
        api, handle, is_quick, _ = self._routes[request.api.key]
        if not (is_quick or request.may_block):
            return False
        try:
            message, _ = decoder(api.request, request.version)(request.frame, request.position)
        except ProtocolError as error:
            if api.key != API_VERSIONS_KEY or request.version in api.versions:
                request.close_connection(f"a request that cannot be read: {error}")
                return True
            # Newer than we know, so not to be read at all; the answer says what we know.
            message = None
        try:
            answer = handle(request, message)
        except KafkaError as error:
            answer = _refusal(request, error)
        except Exception:
            logger.exception("%s v%d from %s failed", api.name, request.version, request.connection)
            answer = _refusal(request, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The broker failed on this request."))
        if answer is WOULD_BLOCK:
            return False
        if answer is not None:
            request.respond(answer)  # type: ignore[arg-type]
        return True


def _refusal(request: Request, error: KafkaError) -> Message | None:
    """The answer to a request that failed as a whole, if its API has a place for that."""
    response = request.api.response
    columns = {column.name for column in response.COLUMNS if request.answer_version in column.versions}
    if "error_code" not in columns:
        request.close_connection(f"{request.api.name} failed: {error}")
        return None
    refusal = response(**{column.name: response.stand_in_of(column) for column in response.COLUMNS})
    refusal.error_code = error.code  # type: ignore[attr-defined]
    if "error_message" in columns:
        refusal.error_message = error.message  # type: ignore[attr-defined]
    return refusal
