"""The way to the active controller, as handlers see it: this node's own, or one that is reached over the network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pybroker.protocol.message import Message


class ControllerChannel(Protocol):
    def submit(self, request: Message, version: int, done: Callable[[Message], None]) -> None:
        """Have the controller decide on `request`, in the version it was sent in.

        `done` gets the response, on some thread, when the records of the decision are committed; from this node's own
        controller, when they are also in the image and published here: logs made, configs applied. A controller that is reached
        over the network answers, as in Apache Kafka, before this node's image has come so far. It must not block.
        """
