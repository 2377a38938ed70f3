from __future__ import annotations

import pytest

from pybroker.log.producer_entry import NO_GUARD, BatchMetadata, ProducerEntry, Verification
from pybroker.protocol.records.batch import MAX_SEQUENCE


@pytest.mark.parametrize(("last", "delta", "first"), [(5, 0, 5), (5, 5, 0), (1, 3, MAX_SEQUENCE - 1), (0, 1, MAX_SEQUENCE)])
def test_the_first_sequence_of_a_batch_may_lie_before_the_wrap(last: int, delta: int, first: int) -> None:
    batch = BatchMetadata(last, last_offset=100, offset_delta=delta, timestamp=0)
    assert batch.first_sequence == first
    assert batch.first_offset == 100 - delta


def test_a_new_epoch_forgets_the_batches() -> None:
    entry = ProducerEntry(1, 3, batch=BatchMetadata(5, 10, 0, 0))
    entry.start_epoch(3)
    assert (entry.last_sequence, entry.last_data_offset) == (5, 10)
    entry.start_epoch(4)
    assert (entry.epoch, entry.batches, entry.last_sequence, entry.last_data_offset) == (4, [], -1, -1)


def test_guards_are_unique() -> None:
    guards = {Verification(0, 0, supports_epoch_bump=True, timestamp=0).guard for _ in range(10)}
    assert len(guards) == 10
    assert NO_GUARD not in guards


@pytest.mark.parametrize(
    ("sequence", "epoch", "lowest"),
    [(5, 2, (5, 2)), (4, 2, (4, 2)), (6, 2, (5, 2)), (9, 3, (9, 3)), (0, 1, (5, 2))],
)
def test_the_lowest_sequence_of_the_newest_epoch_counts(sequence: int, epoch: int, lowest: tuple[int, int]) -> None:
    verification = Verification(5, 2, supports_epoch_bump=False, timestamp=0)
    verification.note(sequence, epoch)
    assert (verification.lowest_sequence, verification.epoch) == lowest
