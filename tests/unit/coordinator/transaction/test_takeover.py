"""The coordinator dies, in any state, and the next one completes what was decided."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from unit.coordinator.transaction.producers import T0, T1, TIMEOUT_MS, Client, TransactionWorld, ready

from pybroker.coordinator.runtime import Elected
from pybroker.coordinator.shard import Producer
from pybroker.coordinator.transaction.requests import MarkersWritten
from pybroker.coordinator.transaction.settings import TransactionSettings
from pybroker.coordinator.transaction.transaction import TRANSITIONS, State
from pybroker.protocol.errors import ErrorCode

OK = ErrorCode.NONE
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED


@pytest.fixture
def world() -> TransactionWorld:
    return TransactionWorld()


@pytest.fixture(params=[0, 2])
def client(world: TransactionWorld, request: pytest.FixtureRequest) -> Client:
    return ready(world, version=request.param)


def test_an_ongoing_transaction_goes_on(world: TransactionWorld, client: Client) -> None:
    client.add(T0)
    world.begin()
    assert client.add(T1) is OK
    assert client.commit() is OK
    assert world.orders[0].partitions == {T0, T1}


def test_a_prepared_transaction_is_completed(world: TransactionWorld, client: Client) -> None:
    client.add(T0, T1)
    client.commit()
    (lost,) = world.orders
    world.effects.clear()
    world.begin()
    (order,) = world.orders
    assert (order.partitions, order.commits, order.producer) == (lost.partitions, lost.commits, lost.producer)
    assert order.version == lost.version
    world.write_markers()
    assert world.transaction().state is State.COMPLETE_COMMIT
    assert client.add() is OK


def by_its_client(world: TransactionWorld, client: Client) -> None:
    assert client.abort() is OK


def by_a_successor(world: TransactionWorld, client: Client) -> None:
    assert Client(world, version=client.version).init() is BUSY


def by_time(world: TransactionWorld, client: Client) -> None:
    world.advance(2 * TIMEOUT_MS)


@pytest.mark.parametrize("ended", [by_its_client, by_a_successor, by_time])
def test_an_abort_that_is_prepared_is_completed_whoever_asked_for_it(
    world: TransactionWorld, client: Client, ended: Callable[[TransactionWorld, Client], None]
) -> None:
    client.add(T0, T1)
    known = client.producer
    ended(world, client)
    (lost,) = world.orders
    world.effects.clear()
    world.begin()
    assert world.transaction().state is State.PREPARE_ABORT
    assert client.add() is (BUSY if ended is by_its_client else FENCED)
    (order,) = world.orders
    assert (order.partitions, order.commits, order.producer) == (lost.partitions, False, lost.producer)
    world.write_markers()
    assert world.transaction().state is State.COMPLETE_ABORT
    assert ready(world, version=client.version).producer.epoch > known.epoch
    assert Client(world, version=client.version, producer=known).add() is FENCED


def test_a_prepared_end_of_the_last_epoch_goes_on_with_the_next_producer_id() -> None:
    world = TransactionWorld(TransactionSettings(max_epoch=2))
    client = ready(world)
    assert client.init() is OK  # the last that is handed out
    client.add()
    again = client.ending(commits=True)
    assert client.commit() is OK
    assert client.producer == Producer(101, 0)
    world.effects.clear()
    world.begin()
    (order,) = world.orders
    assert (order.producer, order.commits) == (Producer(100, 2), True)
    assert world.ask(again).refusal is BUSY
    world.write_markers()
    assert world.transaction().producer == Producer(101, 0)
    # The answer was lost with the coordinator.
    assert world.ask(again).response == Producer(101, 0)
    assert client.add() is OK


def test_what_is_open_and_what_is_decided_outlives_the_feature_and_its_return() -> None:
    world = TransactionWorld(version=2)
    ongoing, prepared = ready(world, id="ongoing"), ready(world, id="prepared")
    for one in (ongoing, prepared):
        assert one.add(T0, T1) is OK
    assert prepared.commit() is OK
    for level in (0, 2):
        world.version = level
        world.effects.clear()
        world.begin()
        (order,) = world.orders
        # It was decided with an epoch of its own, and partitions are told so.
        assert (order.transactional_id, order.commits, order.version) == ("prepared", True, 2)
        assert (order.producer, order.partitions) == (prepared.producer, {T0, T1})
        assert ongoing.add(("t", 7 + level)) is OK
    world.write_markers()
    assert prepared.add() is OK
    assert ongoing.commit() is OK
    assert world.orders[0].partitions == {T0, T1, ("t", 7), ("t", 9)}


def test_an_id_that_has_no_transaction_yet_is_known(world: TransactionWorld, client: Client) -> None:
    world.begin()
    assert world.transaction().state is State.EMPTY
    assert not world.orders
    assert client.add() is OK
    assert ready(world, id="another").producer == Producer(101, 0)


@pytest.mark.parametrize("commits", [True, False])
def test_an_end_that_is_sent_again_to_the_next_coordinator_is_answered(
    world: TransactionWorld, client: Client, commits: bool
) -> None:
    client.add()
    again = client.ending(commits=commits)
    client.end(commits=commits)
    world.write_markers()
    world.begin()
    assert not world.orders
    assert world.ask(again).response == client.producer
    assert world.ask(again._replace(commits=not commits)).refusal is ErrorCode.INVALID_TXN_STATE
    assert client.add() is OK


def test_a_decision_that_only_the_dead_coordinator_had_is_none(world: TransactionWorld, client: Client) -> None:
    client.add()
    world.log.lags = True
    ending = world.ask(client.ending(commits=True))
    world.log.truncate_to_committed()
    world.log.lags = False
    world.begin()
    assert not ending.is_there
    assert not world.orders
    assert world.transaction().state is State.ONGOING
    assert client.abort() is OK


def test_a_late_transaction_of_the_last_coordinator_is_aborted(world: TransactionWorld, client: Client) -> None:
    client.add()
    world.begin()
    world.advance(120_000)
    assert [order.commits for order in world.orders] == [False]


def test_what_an_earlier_coordinator_is_told_of_its_markers_means_nothing(world: TransactionWorld, client: Client) -> None:
    client.add()
    client.commit()
    (lost,) = world.orders
    world.effects.clear()
    world.begin()
    world.ask(MarkersWritten(lost.prepared))
    # They are written, but who knows of which transaction of the same producer.
    assert world.transaction().state is State.PREPARE_COMMIT
    world.write_markers()
    assert world.transaction().state is State.COMPLETE_COMMIT


def test_an_order_counts_as_long_as_its_shard_is_the_coordinator(world: TransactionWorld, client: Client) -> None:
    client.add()
    client.commit()
    (order,) = world.orders
    assert world.runtime.epoch_of(0, order.shard) == 1
    world.run(Elected(0, 2))  # nobody else has led in between
    assert world.runtime.epoch_of(0, order.shard) == 2
    world.resign()
    world.run(Elected(0, 4))
    assert world.runtime.epoch_of(0, order.shard) is None
    assert world.runtime.epoch_of(0, world.shard) == 4


def test_waiting_producers_look_for_the_next_coordinator(world: TransactionWorld, client: Client) -> None:
    world.log.lags = True
    waiting = world.ask(client.adding())
    world.resign()
    assert waiting.refusal is ErrorCode.NOT_COORDINATOR


def test_every_state_but_the_last_leads_somewhere() -> None:
    assert set(TRANSITIONS) == set(State)
    assert [state for state, following in TRANSITIONS.items() if not following] == [State.DEAD]
    # What is decided cannot be decided otherwise.
    assert TRANSITIONS[State.PREPARE_COMMIT] == (State.COMPLETE_COMMIT,)
    assert TRANSITIONS[State.PREPARE_ABORT] == (State.COMPLETE_ABORT,)
    assert State.PREPARE_COMMIT not in {one for state in State if state is not State.ONGOING for one in TRANSITIONS[state]}
