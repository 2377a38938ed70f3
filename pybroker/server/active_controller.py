"""The active controller as a broker sees it: this node's own if it leads, else one that is reached over the network.

Any thread; nothing here waits. A controller of this node that stops leading in the middle of it sends the request on its way
to the next one.
"""

from __future__ import annotations

from collections.abc import Callable

from pybroker.network.request import Request
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.server.controller_client import ControllerClient
from pybroker.server.quorum.metadata_quorum import MetadataQuorum
from pybroker.server.response_errors import errors_in


class ActiveController:
    """A ControllerChannel and a DirectController."""

    def __init__(self, quorum: MetadataQuorum, remote: ControllerClient) -> None:
        self._quorum = quorum
        self._remote = remote

    @property
    def _is_own(self) -> bool:
        """Whether this node has to answer: also to say that it cannot, as its metadata log cannot be written. Who else could
        it does not hear of then."""
        return self._quorum.is_active or self._quorum.has_failed

    def ask(self, request: Message, timeout_ms: int, done: Callable[[Message | None], None]) -> None:
        """Once, directly; None if there is no answer, or nobody to ask."""
        if self._quorum.is_active:
            self._quorum.submit(request, request.VERSIONS.high, done)
        else:
            self._remote.ask(request, timeout_ms, done)

    def submit(self, request: Message, version: int, done: Callable[[Message], None]) -> None:
        """See ControllerChannel."""

        def decided(response: Message) -> None:
            if ErrorCode.NOT_CONTROLLER in errors_in(response):
                self._remote.submit(request, version, done)
            else:
                done(response)

        if self._is_own:
            self._quorum.submit(request, version, decided)
        else:
            self._remote.submit(request, version, done)

    def forward(self, request: Request, message: Message, done: Callable[[Message | None], None]) -> None:
        """See ControllerChannel."""

        def decided(response: Message | None) -> None:
            if response is not None and ErrorCode.NOT_CONTROLLER in errors_in(response):
                self._remote.forward(request, message, done)
            else:
                done(response)

        if self._is_own:
            self._quorum.forward(request, message, decided)
        else:
            self._remote.forward(request, message, done)
