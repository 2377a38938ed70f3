"""Producers that come again, recover, run out of time or out of epochs; of each transactional id only one may go on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from unit.coordinator.transaction.producers import T0, TIMEOUT_MS, Client, TransactionWorld, ready

from pybroker.coordinator.shard import Producer
from pybroker.coordinator.transaction.settings import TransactionSettings
from pybroker.coordinator.transaction.transaction import MAX_EPOCH, State, Transaction
from pybroker.protocol.errors import ErrorCode

OK = ErrorCode.NONE
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED


@pytest.fixture
def world() -> TransactionWorld:
    return TransactionWorld()


def test_a_second_producer_fences_the_first(world: TransactionWorld) -> None:
    first = ready(world)
    second = ready(world)
    assert (first.producer, second.producer) == (Producer(100, 0), Producer(100, 1))
    assert first.add() is FENCED
    assert second.add() is OK


@pytest.mark.parametrize("version", [0, 2])
def test_what_the_first_has_open_is_aborted_before_the_second_begins(world: TransactionWorld, version: int) -> None:
    zombie = ready(world, version=version)
    zombie.add()
    successor = Client(world, version=version)
    assert successor.init() is BUSY
    (order,) = world.orders
    assert (order.commits, order.producer) == (False, Producer(100, 1))
    # The zombie is fenced from the moment on at which its transaction is given up.
    assert zombie.add() is FENCED
    assert zombie.commit() is (ErrorCode.INVALID_TXN_STATE if version == 2 else FENCED)
    assert successor.init() is BUSY
    world.write_markers()
    assert successor.init() is OK
    assert successor.producer == Producer(100, 2)
    assert zombie.init(expected=True) is FENCED


def test_a_late_transaction_is_aborted(world: TransactionWorld) -> None:
    client = ready(world)
    client.add()
    world.advance(TIMEOUT_MS)
    assert not world.orders
    world.advance(world.transaction_settings.abort_check_interval_ms)
    (order,) = world.orders
    assert (order.commits, order.partitions, order.producer) == (False, {T0}, Producer(100, 1))
    world.write_markers()
    assert client.commit() is ErrorCode.INVALID_TXN_STATE
    assert client.add() is FENCED
    # It was not replaced by another: so it may recover.
    assert client.init(expected=True) is OK
    assert client.producer == Producer(100, 1)


def test_before_transaction_version_2_a_late_producer_does_not_recover() -> None:
    world = TransactionWorld(version=0)
    client = ready(world, version=0)
    client.add()
    world.advance(2 * TIMEOUT_MS)
    world.write_markers()
    assert world.transaction().state is State.COMPLETE_ABORT
    assert client.commit() is FENCED
    assert client.init(expected=True) is FENCED


def test_many_late_transactions_are_aborted_a_batch_at_a_time(world: TransactionWorld) -> None:
    for number in range(250):
        ready(world, id=f"id {number}").add()
    world.advance(2 * TIMEOUT_MS)
    assert len(world.orders) == 250
    assert max(batch.count for batch in world.log.batches[0]) == 100


def test_late_transactions_that_fit_no_batch_together_are_aborted_in_smaller_ones(world: TransactionWorld) -> None:
    for number in range(40):
        ready(world, id=f"id {number}").add()
    world.log.max_bytes = 1000
    world.advance(2 * TIMEOUT_MS)
    assert len(world.orders) == 40


def test_a_producer_recovers_after_an_error(world: TransactionWorld) -> None:
    client = ready(world, version=0)
    known = client.producer
    assert client.init(expected=True) is OK
    assert client.producer == Producer(100, 1)
    # The answer was lost: the same request again finds the same.
    client.producer = known
    assert client.init(expected=True) is OK
    assert client.producer == Producer(100, 1)
    ready(world)
    client.producer = known
    assert client.init(expected=True) is FENCED


def test_a_new_coordinator_does_not_take_a_retry_for_a_zombies(world: TransactionWorld) -> None:
    client = ready(world, version=0)
    known = client.producer
    client.init(expected=True)
    world.begin()
    client.producer = known
    # The last epoch is not in the log. To fence is the safe way.
    assert client.init(expected=True) is FENCED


def exhausted(world: TransactionWorld, epoch: int = MAX_EPOCH - 1, version: int = 2) -> Client:
    client = ready(world, version=version)
    transactions = world.shard.transactions
    transactions["id"] = transactions["id"].initialised(world.wall_ms, Producer(100, epoch), epoch - 1, TIMEOUT_MS)
    client.producer = Producer(100, epoch)
    return client


def test_the_last_epoch_but_one_is_handed_out(world: TransactionWorld) -> None:
    client = exhausted(world, MAX_EPOCH - 2)
    assert client.init() is OK
    assert client.producer == Producer(100, MAX_EPOCH - 1)


@pytest.mark.parametrize("expected", [False, True])
def test_behind_the_last_epoch_comes_another_producer_id(world: TransactionWorld, expected: bool) -> None:
    client = exhausted(world)
    before = client.producer
    assert client.init(expected=expected) is OK
    assert client.producer == Producer(101, 0)
    zombie = Client(world, producer=before)
    assert zombie.add() is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    # A retry of the one that recovered is known; if another has come, the one before is a zombie.
    assert zombie.init(expected=True) is (OK if expected else FENCED)


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_in_the_last_epoch_ends_with_another_producer_id(world: TransactionWorld, commits: bool) -> None:
    client = exhausted(world)
    client.add()
    again = client.ending(commits=commits)
    assert client.end(commits=commits) is OK
    assert client.producer == Producer(101, 0)
    # The markers are still the old producer's.
    assert world.orders[0].producer == Producer(100, MAX_EPOCH)
    assert client.add() is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    world.write_markers()
    assert world.ask(again).response == Producer(101, 0)
    assert client.add() is OK


def test_a_producer_in_the_last_epoch_can_still_be_fenced(world: TransactionWorld) -> None:
    client = exhausted(world)
    client.add()
    assert Client(world).init() is BUSY
    assert world.orders[0].producer == Producer(100, MAX_EPOCH)
    world.write_markers()
    # Nobody has been given this epoch.
    assert Client(world, producer=Producer(100, MAX_EPOCH)).abort() is FENCED
    successor = ready(world)
    assert successor.producer == Producer(101, 0)


def late_in_the_last_epoch(world: TransactionWorld) -> Client:
    """Its transaction was aborted with the epoch that nobody is given; it does not know."""
    client = exhausted(world)
    client.add()
    world.advance(2 * TIMEOUT_MS)
    world.write_markers()
    assert world.transaction().producer == Producer(100, MAX_EPOCH)
    return client


def test_a_late_producer_in_the_last_epoch_that_aborts_goes_on_with_another_producer_id(world: TransactionWorld) -> None:
    client = late_in_the_last_epoch(world)
    again = client.ending(commits=False)
    assert client.abort() is OK
    assert client.producer == Producer(101, 0)
    assert world.ask(again).refusal is BUSY
    world.write_markers()
    assert world.ask(again).response == Producer(101, 0)
    recovering = Client(world, producer=again.producer)
    assert recovering.init(expected=True) is OK
    assert recovering.producer == Producer(101, 0)
    assert client.add() is OK
    assert client.commit() is OK


def test_a_late_producer_in_the_last_epoch_that_recovers_goes_on_with_another_producer_id(world: TransactionWorld) -> None:
    client = late_in_the_last_epoch(world)
    known = client.producer
    assert client.init(expected=True) is OK
    assert client.producer == Producer(101, 0)
    client.producer = known
    # The answer was lost.
    assert client.init(expected=True) is OK
    assert client.producer == Producer(101, 0)
    assert client.add() is OK
    successor = Client(world)
    assert successor.init() is BUSY
    world.write_markers()
    assert successor.init() is OK


def test_after_the_last_end_of_a_producer_id_its_producer_may_still_recover(world: TransactionWorld) -> None:
    client = exhausted(world)
    known = client.producer
    client.add()
    client.commit()
    world.write_markers()
    client.producer = known  # it has not heard of the end
    assert client.init(expected=True) is OK
    assert client.producer == Producer(101, 0)


def in_the_epoch_that_is_nobodys(world: TransactionWorld, id: str = "id") -> Client:
    """As in a log of a coordinator that has handed it out."""
    client = ready(world, id=id)
    client.producer = Producer(client.producer.producer_id, MAX_EPOCH)
    transactions = world.shard.transactions
    transactions[id] = replace(transactions[id], epoch=MAX_EPOCH, state=State.COMPLETE_ABORT).with_partitions(
        world.wall_ms, {T0}, 2
    )
    world.shard._ongoing[id] = None
    return client


def test_a_transaction_of_the_epoch_that_is_nobodys_is_aborted_and_nobody_goes_on_with_it(world: TransactionWorld) -> None:
    poisoned = in_the_epoch_that_is_nobodys(world)
    assert poisoned.add() is poisoned.commit() is FENCED
    world.advance(2 * TIMEOUT_MS)
    assert [(order.producer, order.commits) for order in world.orders] == [(Producer(100, MAX_EPOCH), False)]
    world.write_markers()
    assert poisoned.add() is FENCED
    successor = ready(world)
    assert successor.producer == Producer(101, 0)


def test_one_late_transaction_that_cannot_be_aborted_does_not_keep_the_others_open(
    world: TransactionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fenced(transaction: Transaction, *given: Any) -> Transaction:
        assert transaction.transactional_id != "odd"
        return right(transaction, *given)

    right = Transaction.fenced
    monkeypatch.setattr(Transaction, "fenced", fenced)
    for name in ("odd", "a", "b"):
        ready(world, id=name).add()
    world.advance(2 * TIMEOUT_MS)
    assert sorted(order.transactional_id for order in world.orders) == ["a", "b"]


def test_a_late_transaction_that_fits_no_batch_does_not_keep_the_others_open(world: TransactionWorld) -> None:
    ready(world, id="large").add(*(("t", number) for number in range(1000)))
    for name in ("a", "b"):
        ready(world, id=name).add()
    world.log.max_bytes = 1000
    world.advance(3 * TIMEOUT_MS)
    assert sorted(order.transactional_id for order in world.orders) == ["a", "b"]
    world.log.max_bytes = 1_000_000
    world.advance(TIMEOUT_MS)
    assert len(world.orders) == 3


def test_an_id_that_is_not_used_is_forgotten() -> None:
    world = TransactionWorld(TransactionSettings(id_expiration_ms=100_000, expiry_check_interval_ms=10_000))
    idle, busy = ready(world, id="idle"), Client(world, "busy")
    busy.init(timeout_ms=900_000)
    busy.add()
    world.advance(99_000)
    assert idle.init() is OK
    world.advance(99_000)
    assert set(world.shard.transactions) == {"idle", "busy"}
    world.advance(20_000)
    assert set(world.shard.transactions) == {"busy"}
    assert world.log.rows()[-1][1] is None
    assert idle.add() is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    world.begin()
    assert set(world.shard.transactions) == {"busy"}
    assert idle.init() is OK
    assert idle.producer == Producer(102, 0)
