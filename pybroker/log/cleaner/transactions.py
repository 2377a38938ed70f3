"""Which transactions a cleaning passes on its way through the log: what was aborted goes, and a marker may go when no data
of its transaction is left.

Batches come in the order of the log. One thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from pybroker.log.transaction_index import AbortedTransaction, TransactionIndex
from pybroker.protocol.records.batch import TRANSACTIONAL_BIT, RecordBatch
from pybroker.protocol.records.control import ControlType, control_type


class _Ongoing:
    __slots__ = ("has_data", "row")

    def __init__(self, row: AbortedTransaction) -> None:
        self.row = row
        self.has_data = False


class PassedTransactions:
    __slots__ = ("_aborted", "_committed", "_to_come", "index")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """`aborted` are those that end at or behind the first batch to come."""
        self.index: TransactionIndex | None = None  # gets the rows of transactions whose marker stays because of their data
        self._to_come = sorted(aborted, key=attrgetter("first_offset"), reverse=True)
        self._aborted: dict[int, _Ongoing] = {}
        self._committed: set[int] = set()

    def on_data(self, batch: RecordBatch) -> bool:
        """Whether the batch belongs to an aborted transaction."""
        if self._to_come:
            self._begin_up_to(batch.last_offset)
        if not batch.attributes & TRANSACTIONAL_BIT:
            return False
        ongoing = self._aborted.get(batch.producer_id)
        if ongoing is None:
            self._committed.add(batch.producer_id)
            return False
        ongoing.has_data = True
        return True

    def on_control(self, batch: RecordBatch) -> bool:
        """Whether the batch may go, once its delete horizon has passed: no data of its transaction was seen."""
        self._begin_up_to(batch.last_offset)
        record = next(batch.records(), None)
        if record is None:
            return True
        kind = control_type(record.key)
        if kind is ControlType.COMMIT:
            had_data = batch.producer_id in self._committed
            self._committed.discard(batch.producer_id)
            return not had_data
        if kind is ControlType.ABORT:
            ongoing = self._aborted.pop(batch.producer_id, None)
            if ongoing is None or not ongoing.has_data:
                return True
            if self.index is not None:
                self.index.append(ongoing.row)
        return False

    def _begin_up_to(self, offset: int) -> None:
        to_come = self._to_come
        while to_come and to_come[-1].first_offset <= offset:
            row = to_come.pop()
            self._aborted.setdefault(row.producer_id, _Ongoing(row))
