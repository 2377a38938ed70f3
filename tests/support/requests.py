"""A request that remembers how it was answered, for tests of handlers without a reactor."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pybroker.protocol.api_table import APIS, Api
from pybroker.protocol.message import Message

_APIS: dict[int | None, Api] = {api.key: api for api in APIS}


class AskedRequest:
    """What a handler sees of `message` sent in `version`; every answer goes through its codec, as on the wire."""

    def __init__(self, message: Message, version: int, *, may_block: bool = True, listener_name: str = "PLAINTEXT") -> None:
        self.api = _APIS[message.KEY]
        self.frame = memoryview(bytearray(message.encode(version)))
        self.position = 0
        self.message: Any = type(message).decode(version, self.frame)
        self.version = self.answer_version = version
        self.may_block = may_block
        self.client_id = "test"
        self.connection: Any = SimpleNamespace(listener_name=listener_name, peer=("127.0.0.1", 1))
        self.answers: list[Message] = []
        self.is_answered_with_nothing = False
        self.close_reason: str | None = None
        self.room_bytes = 0

    def make_room(self, size: int) -> None:
        self.room_bytes = size

    def respond(self, message: Message) -> None:
        self.answers.append(message)

    def respond_nothing(self) -> None:
        self.is_answered_with_nothing = True

    def close_connection(self, reason: str) -> None:
        self.close_reason = reason

    @property
    def answer(self) -> Any:
        (only,) = self.answers
        return only
