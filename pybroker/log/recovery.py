"""The recovery of a segment, in two steps: a scan that needs nothing of its neighbours, and a stitch in the log's order.

`scan_segment` reads every batch and builds the indexes aside; many may run at once, each on a thread of its own, and none
keeps more than a read's worth of a segment. `stitch_segment` cuts the file, finds the aborted transactions, and puts the
indexes in their place: one thread, from the first segment on, since transactions reach over segments.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Final, NamedTuple, Protocol, TypeVar

from pybroker.log.files import LOG
from pybroker.log.producer_state import ProducerStates
from pybroker.log.segment import Segment
from pybroker.log.transaction_index import AbortedTransaction
from pybroker.protocol.errors import KafkaError
from pybroker.protocol.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, RecordBatch
from pybroker.protocol.records.validation import check_batch

logger = logging.getLogger(__name__)

# Places of batches that a scan hands over; of a segment with more transactions all batches are looked at again.
MAX_PLACES: Final = 65_536

Item = TypeVar("Item")
Result = TypeVar("Result")


class OrderedMap(Protocol):
    """The results of `work` on the items, in their order. Closed early it begins no more, and waits for what was begun."""

    def __call__(self, work: Callable[[Item], Result], items: Iterable[Item], /) -> Generator[Result]: ...


def one_by_one(work: Callable[[Item], Result], items: Iterable[Item], /) -> Generator[Result]:
    """An item is worked on when its result is asked for."""
    for item in items:
        yield work(item)


class SegmentScan(NamedTuple):
    """What is in a segment: so many bytes of whole and valid batches, and what is wrong behind them, if it was not just cut
    short."""

    valid_bytes: int
    next_offset: int
    transactions: array[int]  # where the batches lie that begin or end one: enough to find the aborted ones again
    fault: str


def scan_segment(segment: Segment) -> SegmentScan:
    """Read every batch and build the offset and the time index anew, aside."""
    segment.start_rebuild()
    valid_bytes = 0
    next_offset = segment.base_offset
    transactions = array("I")
    open_ids: set[int] = set()
    fault = ""
    try:
        for position, batch in segment.batches():
            check_batch(batch)
            if batch.base_offset < next_offset or batch.last_offset_delta < 0 or not segment.can_hold(batch.last_offset):
                fault = f"offset {batch.base_offset} comes behind {next_offset}"
                break
            segment.index_batch(position, batch)
            if _is_of_transaction(batch) and len(transactions) < MAX_PLACES:
                producer_id = batch.producer_id
                if batch.attributes & CONTROL_BIT:
                    transactions.append(position)
                    open_ids.discard(producer_id)
                elif producer_id not in open_ids:
                    transactions.append(position)
                    open_ids.add(producer_id)
            next_offset = batch.next_offset
            valid_bytes = position + batch.size_bytes
    except KafkaError as error:
        fault = error.message
    segment.end_indexing()
    return SegmentScan(valid_bytes, next_offset, transactions, fault)


def stitch_segment(segment: Segment, scan: SegmentScan, producers: ProducerStates, *, sync: bool) -> int:
    """Finish what the scan began; returns how many bytes were cut off behind the last valid batch. `sync` as for a rebuild.

    `producers` has the transactions that are open at the start of the segment, and then those at its end: only by them the
    aborted ones are found again. Of what else it knows nothing is kept up to date.
    """
    if scan.fault:
        logger.warning("%s, at byte %d: %s", segment.path(LOG), scan.valid_bytes, scan.fault)
    for batch in _transaction_batches(segment, scan):
        _find_aborted(segment, batch, producers)
    return segment.end_rebuild(scan.valid_bytes, sync=sync)


def _transaction_batches(segment: Segment, scan: SegmentScan) -> Iterator[RecordBatch]:
    if len(scan.transactions) < MAX_PLACES:
        yield from map(segment.batch_at, scan.transactions)
        return
    for _, batch in segment.batches(0, scan.valid_bytes):
        if _is_of_transaction(batch):
            yield batch


def _is_of_transaction(batch: RecordBatch) -> bool:
    return batch.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT) != 0 and batch.producer_id >= 0


def _find_aborted(segment: Segment, batch: RecordBatch, producers: ProducerStates) -> None:
    completed = producers.update(batch)
    if completed is None:
        return
    if completed.is_aborted:
        stable = producers.last_stable_offset(completed)
        segment.transaction_index.append(
            AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)
        )
    producers.complete(completed)
