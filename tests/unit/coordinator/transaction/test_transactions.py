"""Transactions from beginning to end: what is written, when markers go out, what retries find."""

from __future__ import annotations

import pytest
from unit.coordinator.transaction.producers import T0, T1, Client, TransactionWorld, ready

from pybroker.coordinator.shard import Producer, Reply, Request
from pybroker.coordinator.transaction.requests import DescribeTransaction, ListTransactions, MarkersWritten, SendMarkers
from pybroker.coordinator.transaction.transaction import State
from pybroker.protocol.errors import ErrorCode

OK = ErrorCode.NONE
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
UNKNOWN = ErrorCode.INVALID_PRODUCER_ID_MAPPING
WRONG = ErrorCode.INVALID_TXN_STATE


@pytest.fixture
def world() -> TransactionWorld:
    return TransactionWorld()


@pytest.fixture(params=[0, 2], ids=["client before KIP-890", "client with KIP-890"])
def client(world: TransactionWorld, request: pytest.FixtureRequest) -> Client:
    return ready(world, version=request.param)


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_is_prepared_then_told_to_its_partitions_then_complete(
    world: TransactionWorld, client: Client, commits: bool
) -> None:
    assert client.add(T0) is OK
    assert client.add(T1) is OK
    assert client.end(commits=commits) is OK
    (order,) = world.orders
    assert (order.partitions, order.commits, order.producer) == ({T0, T1}, commits, client.producer)
    prepared, complete = (
        (State.PREPARE_COMMIT, State.COMPLETE_COMMIT) if commits else (State.PREPARE_ABORT, State.COMPLETE_ABORT)
    )
    assert world.states() == [State.EMPTY, State.ONGOING, State.ONGOING, prepared]
    world.write_markers()
    assert world.states()[-1] is complete
    assert world.transaction().partitions == frozenset()
    assert client.add(T0) is OK
    assert world.transaction().started_ms == world.wall_ms


def test_the_markers_go_out_before_the_answer_so_that_the_next_transaction_need_not_wait_for_them(
    world: TransactionWorld, client: Client
) -> None:
    client.add()
    result = world.shard.handle(world.wall_ms, Request(client.ending(commits=True), None))
    assert [type(effect) for effect in result.effects] == [SendMarkers, Reply]


def test_the_markers_wait_until_the_decision_is_on_the_other_replicas(world: TransactionWorld, client: Client) -> None:
    client.add()
    world.log.lags = True
    ending = world.ask(client.ending(commits=True))
    assert not ending.is_there
    assert not world.orders
    world.commit()
    assert ending.is_there
    assert len(world.orders) == 1


def test_a_decision_that_the_log_refuses_is_none(world: TransactionWorld, client: Client) -> None:
    client.add()
    world.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert client.commit() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not world.orders
    assert world.transaction().state is State.ONGOING
    world.log.refuses = ErrorCode.NONE
    assert client.abort() is OK
    assert world.states()[-1] is State.PREPARE_ABORT


def test_no_marker_follows_an_append_that_failed(world: TransactionWorld, client: Client) -> None:
    client.add()
    world.log.fails = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert client.commit() is ErrorCode.NOT_COORDINATOR
    world.log.fails = ErrorCode.NONE
    assert not world.orders
    assert world.transaction().state is State.ONGOING


def test_with_kip_890_each_transaction_has_an_epoch_of_its_own(world: TransactionWorld) -> None:
    client = ready(world)
    for epoch in range(3):
        assert client.producer.epoch == epoch
        client.add()
        client.commit()
        # The marker closes the epoch: a late batch of the transaction is behind it.
        assert world.orders[0].producer.epoch == epoch + 1
        world.write_markers()


def test_before_kip_890_the_epoch_stays(world: TransactionWorld) -> None:
    client = ready(world, version=0)
    client.add()
    client.commit()
    assert world.orders[0].producer == client.producer == Producer(100, 0)
    assert world.orders[0].version == 0


def test_the_next_transaction_waits_for_the_markers_of_the_one_before(world: TransactionWorld, client: Client) -> None:
    client.add()
    client.commit()
    assert client.add() is BUSY
    assert client.verify(T0) is BUSY
    assert client.init() is BUSY
    world.write_markers()
    assert client.add() is OK


def test_partitions_that_are_in_already_cost_no_record(world: TransactionWorld, client: Client) -> None:
    client.add(T0, T1)
    records = len(world.log.rows())
    assert client.add(T1) is OK
    assert len(world.log.rows()) == records


def test_a_broker_may_ask_which_partitions_are_in(world: TransactionWorld, client: Client) -> None:
    client.add(T0)
    assert client.verify(T0, T1) == {T0}
    client.commit()
    world.write_markers()
    assert client.verify(T0) == frozenset()


def test_an_end_that_is_sent_again_is_answered_again(world: TransactionWorld, client: Client) -> None:
    client.add()
    again = client.ending(commits=True)
    client.commit()
    assert world.ask(again).refusal is BUSY
    assert world.ask(again._replace(commits=False)).refusal is WRONG
    world.write_markers()
    assert world.ask(again).response == client.producer
    assert world.ask(again._replace(commits=False)).refusal is WRONG


def test_there_must_be_something_to_commit(world: TransactionWorld, client: Client) -> None:
    assert client.commit() is WRONG
    client.add()
    client.commit()
    world.write_markers()
    if client.version == 2:
        assert client.commit() is WRONG


def test_with_kip_890_an_abort_of_nothing_raises_the_epoch(world: TransactionWorld) -> None:
    client = ready(world)
    assert client.abort() is OK
    assert client.producer == Producer(100, 1)
    world.write_markers()
    assert world.states() == [State.EMPTY, State.PREPARE_ABORT, State.COMPLETE_ABORT]
    assert client.abort() is OK
    assert client.producer == Producer(100, 2)
    assert ready(world, version=0, id="old").abort() is WRONG


def test_who_is_not_the_producer_is_told_so(world: TransactionWorld, client: Client) -> None:
    client.add()
    for stranger, code in ((Producer(100, 7), FENCED), (Producer(7, 0), UNKNOWN)):
        other = Client(world, client.id, client.version, stranger)
        assert other.add(T1) is code
        assert other.verify(T0) is code
        assert other.commit() is code
        assert other.init(expected=True) is FENCED
    nobody = Client(world, "nobody", client.version, client.producer)
    assert (nobody.add(), nobody.verify(T0), nobody.commit()) == (UNKNOWN, UNKNOWN, UNKNOWN)


def test_markers_of_an_end_that_is_over_mean_nothing(world: TransactionWorld, client: Client) -> None:
    client.add()
    client.commit()
    (order,) = world.orders
    world.write_markers()
    client.add()
    records = len(world.log.rows())
    assert world.ask(MarkersWritten(order.prepared)).is_there
    assert world.transaction().state is State.ONGOING
    client.commit()
    # Nor if they come twice, and the next one, of the same producer, waits for its own.
    assert world.ask(MarkersWritten(order.prepared)).is_there
    assert world.transaction().state is State.PREPARE_COMMIT
    assert len(world.log.rows()) == records + 1


def test_transactions_are_described_and_listed(world: TransactionWorld) -> None:
    first, second = ready(world, id="first"), ready(world, id="second")
    second.add(T1)
    assert world.ask(DescribeTransaction("second")).response.partitions == {T1}
    assert world.ask(DescribeTransaction("nobody")).response == "done"  # None
    listed = world.ask(ListTransactions()).response
    assert [(one.transactional_id, one.producer, one.state.label) for one in listed] == [
        ("first", first.producer, "Empty"),
        ("second", second.producer, "Ongoing"),
    ]


def test_a_cluster_without_the_feature_writes_records_that_its_oldest_broker_reads() -> None:
    world = TransactionWorld(version=0)
    client = ready(world, version=0)
    client.add()
    client.commit()
    values = [next(batch.records()).value for batch in world.log.batches[0]]
    assert [value[:2] for value in values if value is not None] == [b"\0\0"] * 3
