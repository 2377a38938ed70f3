"""A DeleteRecords that waits until the followers that live have deleted what the leader has, or until its time is up."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pybroker.base.purgatory import DelayedOperation
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.offsets import DeleteRecordsPartitionResult
from pybroker.replication.partition import Partition


class Undeleted(NamedTuple):
    """A partition whose log starts at `offset` here, with its part of the answer."""

    partition: Partition
    offset: int
    result: DeleteRecordsPartitionResult

    def is_settled(self) -> bool:
        low_watermark = self.partition.low_watermark()
        if low_watermark is None:
            self.result.error_code, self.result.low_watermark = ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
            return True
        self.result.low_watermark = low_watermark
        return low_watermark >= self.offset


class DelayedDeleteRecords(DelayedOperation):
    __slots__ = ("_respond", "_waiting")

    def __init__(self, waiting: list[Undeleted], respond: Callable[[], None]) -> None:
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
                one.result.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._respond()
