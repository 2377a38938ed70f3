"""One request off a connection, and the ways to answer it.

Made by the reactor, one per frame; answered exactly once, by any thread. `frame` is writable, since an append stamps offsets
into it. With may_block False it is a view of a buffer that the next read overwrites: valid only until `handle` returns.
"""

from __future__ import annotations

import logging
from threading import get_ident
from typing import TYPE_CHECKING

from pybroker.network.answers import Gather, chunks_of, encode_answer
from pybroker.protocol.api_table import Api
from pybroker.protocol.message import Message, Splices

if TYPE_CHECKING:
    from pybroker.network.connection import Connection

logger = logging.getLogger(__name__)


class Request:
    __slots__ = (
        "answer_version",
        "answered",
        "api",
        "client_id",
        "close_reason",
        "connection",
        "correlation_id",
        "frame",
        "gather",
        "may_block",
        "position",
        "received_ns",
        "settled",
        "version",
    )

    def __init__(
        self,
        connection: Connection,
        api: Api,
        version: int,
        answer_version: int,
        correlation_id: int,
        client_id: str | None,
        frame: memoryview,
        position: int,
        received_ns: int,
        gather: Gather | None,
        may_block: bool,
    ) -> None:
        self.connection = connection
        self.api = api
        self.version = version
        self.answer_version = answer_version  # the version that the answer is encoded in
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.frame = frame  # the whole frame without its length
        self.position = position  # where the body starts in it
        self.received_ns = received_ns  # monotonic
        self.gather = gather  # of the thread that is inside `handle` with this; None once that has returned
        self.may_block = may_block  # False: we are on a network thread
        self.answered = False
        self.settled = False  # answered by the thread that is inside `handle`; any other's answer is a late one
        self.close_reason: str | None = None

    def make_room(self, size: int) -> None:
        """The answers to requests like this one are long: so many bytes of them should leave in one turn."""
        self.connection.make_room(size)

    def respond(self, message: Message) -> None:
        if self.answered:
            logger.error("%s was answered a second time, with %s", self, type(message).__name__)
            return
        gather = self.gather
        is_inside = gather is not None and gather.ident == get_ident()
        splices: Splices
        if gather is not None and is_inside:
            out, splices = gather.out, gather.splices
        else:
            out, splices = bytearray(), []
        try:
            encode_answer(message, self.answer_version, self.correlation_id, out, splices)
        except Exception:
            logger.exception("the answer to %s cannot be encoded", self)
            self.close_connection(f"no answer to its {self.api.name} v{self.version}")
            return
        self.answered = True
        if is_inside:
            self.settled = True
        else:
            self.connection.answer_late(self, chunks_of(out, splices))

    def respond_nothing(self) -> None:
        """The client expects no answer (acks=0); the connection goes on."""
        if self.answered:
            logger.error("%s was answered a second time, with nothing", self)
            return
        self.answered = True
        gather = self.gather
        if gather is not None and gather.ident == get_ident():
            self.settled = True
        else:
            self.connection.answer_late(self, [])

    def close_connection(self, reason: str) -> None:
        """Instead of an answer: one line in the log, and the connection is gone."""
        self.answered = True
        self.connection.is_closing = True
        gather = self.gather
        if gather is not None and gather.ident == get_ident():
            # The answers to earlier requests, gathered so far, still go out.
            self.settled = True
            self.close_reason = reason
        else:
            self.connection.close_soon(reason)

    def __str__(self) -> str:
        return f"{self.api.name} v{self.version} (correlation id {self.correlation_id}) from {self.connection}"
