"""UpdateFeatures v0-2: the controller decides. As with Apache Kafka, the time that a client gives does not count.

Any thread; nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable

from pybroker.metadata.controller.refusals import refused
from pybroker.network.request import Request
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.api_versions import UpdateFeaturesRequest
from pybroker.server.forwarding import Forwarding


class FeatureHandlers:
    def __init__(self, forwarding: Forwarding, timeout_ms: Callable[[], int]) -> None:
        """`timeout_ms` is how long the controller is waited for."""
        self._forwarding = forwarding
        self._timeout_ms = timeout_ms

    def handle_update_features(self, request: Request, message: UpdateFeaturesRequest) -> None:
        self._forwarding.forward(
            request,
            message,
            self._timeout_ms(),
            lambda: refused(message, ErrorCode.REQUEST_TIMED_OUT, "The controller has not answered in time."),
        )
