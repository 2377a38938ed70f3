"""Why a request to another node has no answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pybroker.base.address import Address


class Failure(Enum):
    """What is known of the request's fate differs: after DISCONNECTED and TIMED_OUT the other node may have done it."""

    NOT_CONNECTED = "not connected"  # it was never sent
    DISCONNECTED = "disconnected"
    TIMED_OUT = "timed out"
    UNSUPPORTED_VERSION = "unsupported version"  # it was never sent: the other node cannot understand it
    REFUSED = "refused here"  # it was never sent: too many wait for this node already


@dataclass(slots=True, frozen=True)
class RequestError:
    """Given in place of a response: expected, so a value and no exception."""

    failure: Failure
    address: Address
    reason: str

    def __str__(self) -> str:
        return f"{self.address}: {self.failure.value}: {self.reason}"
