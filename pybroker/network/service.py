"""What the reactor serves: the port that the layer above fills.

Both ways in run on a network thread (may_block False) or on a handler thread (may_block True).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from pybroker.network.answers import Gather
from pybroker.network.request import Request

if TYPE_CHECKING:
    from pybroker.network.connection import Connection


class Service(Protocol):
    def handle_pipelined(self, connection: Connection, frames: Sequence[memoryview], start: int, gather: Gather) -> int:
        """Answer frames from number `start` on together, without making a request of each, and tell how many; 0, and nothing
        is done, if the first is not of a kind that this is worth for. It never waits. The answers, in order, are in `gather`
        when it returns, or `connection.owe` was told that they come later, which is the only way while some are owed already;
        until then the frames are theirs to write to, as a request's is."""
        ...

    def handle(self, request: Request) -> bool:
        """Answer `request`, now or later, from any thread. Never raises. False: nothing was done, since it would block here
        (may_block is False); the reactor then queues it and calls again from a handler thread, with bytes of the request's
        own and may_block True."""
        ...
