"""What a broker hands on to the controller, about leaders, replicas and members of the cluster: ElectLeaders v0-2,
AlterPartitionReassignments v0-1, ListPartitionReassignments v0, UnregisterBroker v0, DescribeQuorum v0-2, AddRaftVoter v0-1,
RemoveRaftVoter v0.

Any thread; nothing here waits. Where the request says how long its client waits, that is how long it is kept waiting.
"""

from __future__ import annotations

from collections.abc import Callable

from pybroker.network.request import Request
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.server.controller_client import refusal_of
from pybroker.server.forwarding import Forwarding


class ClusterAdminHandlers:
    def __init__(self, forwarding: Forwarding, timeout_ms: Callable[[], int]) -> None:
        """`timeout_ms` is for requests that do not say it."""
        self._forwarding = forwarding
        self._timeout_ms = timeout_ms

    def handle(self, request: Request, message: Message) -> None:
        def timed_out() -> Message:
            refusal = refusal_of(
                message, request.version, ErrorCode.REQUEST_TIMED_OUT, "The controller has not answered in time."
            )
            assert refusal is not None, f"there is no way to refuse {type(message).__name__}"
            return refusal

        timeout_ms = getattr(message, "timeout_ms", None)
        self._forwarding.forward(request, message, self._timeout_ms() if timeout_ms is None else timeout_ms, timed_out)
