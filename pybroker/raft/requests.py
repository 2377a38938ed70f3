"""Requests under way: one for each destination and kind, and a pause after one that failed.

A change of role forgets them all: a late answer is then nobody's.
"""

from __future__ import annotations

from typing import NamedTuple

from pybroker.protocol.message import Message
from pybroker.raft.events import Address, Effect, Send


class Sent(NamedTuple):
    node_id: int  # negative for a bootstrap server
    kind: int  # the api key


class Requests:
    __slots__ = ("_backoff_ms", "_busy", "_in_flight", "_next_id", "_pauses", "_timeout_ms")

    def __init__(self, timeout_ms: int, backoff_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._backoff_ms = backoff_ms
        self._next_id = 1
        self._in_flight: dict[int, Sent] = {}
        self._busy: set[Sent] = set()
        self._pauses: dict[Sent, int] = {}

    def wait_ms(self, now_ms: int, node_id: int, kind: int) -> int | None:
        """How long until this can be sent: 0 for now, None while one is under way."""
        sent = Sent(node_id, kind)
        if sent in self._busy:
            return None
        return max(0, self._pauses.get(sent, 0) - now_ms)

    def is_pausing(self, now_ms: int, node_id: int, kind: int) -> bool:
        return self._pauses.get(Sent(node_id, kind), 0) > now_ms

    def is_under_way(self, kind: int) -> bool:
        return any(sent.kind == kind for sent in self._busy)

    def send(self, out: list[Effect], node_id: int, address: Address, message: Message) -> None:
        kind = type(message).KEY
        assert kind is not None
        sent = Sent(node_id, kind)
        request_id = self._next_id
        self._next_id = request_id + 1
        self._in_flight[request_id] = sent
        self._busy.add(sent)
        out.append(Send(request_id, node_id, address, message, self._timeout_ms))

    def finish(self, request_id: int) -> Sent | None:
        """The request that this answers; None if it is nobody's any more."""
        sent = self._in_flight.pop(request_id, None)
        if sent is not None:
            self._busy.discard(sent)
            self._pauses.pop(sent, None)
        return sent

    def pause(self, now_ms: int, sent: Sent) -> None:
        self._pauses[sent] = now_ms + self._backoff_ms

    def forget(self) -> None:
        self._in_flight.clear()
        self._busy.clear()
        self._pauses.clear()
