"""A produce with acks=all that waits until all replicas in sync have what it appended, or until its time is up."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from pybroker.base.purgatory import DelayedOperation
from pybroker.protocol.errors import ErrorCode
from pybroker.replication.isr import Leadership
from pybroker.replication.partition import Partition


class Answer(Protocol):
    """What is said of one partition."""

    error_code: int


class Uncommitted(NamedTuple):
    """What was appended to a partition, with its part of the answer as it is if all goes well."""

    partition: Partition
    leadership: Leadership | None
    end_offset: int
    response: Answer

    def is_settled(self) -> bool:
        """Whether there is no more to wait for: it is committed, or never will be as far as this leader knows."""
        code = self.partition.committed(self.leadership, self.end_offset)
        if code is None:
            return False
        self.response.error_code = code
        return True


class DelayedProduce(DelayedOperation):
    __slots__ = ("_respond", "_waiting")

    def __init__(self, waiting: list[Uncommitted], respond: Callable[[], None]) -> None:
        """`respond` sends the answer that the responses of `waiting` are part of."""
        self._waiting = waiting
        self._respond = respond

    def try_complete(self) -> bool:
        self._waiting = [one for one in self._waiting if not one.is_settled()]
        if self._waiting:
            return False
        self._respond()
        return True

    def on_expire(self) -> None:
        for one in self._waiting:
            if not one.is_settled():
                one.response.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._respond()
