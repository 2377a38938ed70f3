"""Transactions in virtual time: some seeds for every change, and mistakes planted in the broker that they find."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from sim.seeds import found_in, replaced, same_under_two_hash_seeds

from pybroker.coordinator.group.offset_store import OffsetStore
from pybroker.coordinator.runtime import CoordinatorRuntime
from pybroker.coordinator.transaction import shard as shard_module
from pybroker.coordinator.transaction.requests import SendMarkers
from pybroker.coordinator.transaction.shard import TransactionShard
from pybroker.coordinator.transaction.transaction import Transaction
from pybroker.log import producer_state
from pybroker.log.producer_state import ProducerStates
from pybroker.protocol.errors import ErrorCode
from pybroker.server.coordinators import shard_loader
from pybroker.server.coordinators.log_writer import LogWriter
from pybroker.server.coordinators.marker_sender import MarkerSender
from pybroker.server.coordinators.transaction_checks import TransactionChecks
from pybroker.server.handlers import plain_produce
from pybroker.testing.sim.__main__ import main
from pybroker.testing.sim.trace import Trace
from pybroker.testing.sim.transaction_world import TransactionWorld

pytestmark = pytest.mark.sim

TORN = "nobody asked for|and elsewhere not|can be seen|was told|is written into|not enough"


@pytest.mark.parametrize("swarm", [False, True])
def test_seeds(swarm: bool, capsys: pytest.CaptureFixture[str]) -> None:
    failed = main(["--level", "transactions", "--seeds", "15", *(["--swarm"] if swarm else [])])
    print(shown := capsys.readouterr().out)
    assert not failed, shown


def test_a_seed_is_a_run_and_a_trace_changes_nothing() -> None:
    for seed in range(3):
        quiet, loud = TransactionWorld(seed, swarm=True).run(), TransactionWorld(seed, swarm=True, trace=Trace(10)).run()
        assert (quiet.steps, quiet.facts) == (loud.steps, loud.facts)


def test_a_seed_is_the_same_run_whatever_the_hashes_are() -> None:
    same_under_two_hash_seeds("transactions", 5)


def test_seeds_see_what_they_are_meant_to_see() -> None:
    worlds = [TransactionWorld(seed, swarm=True) for seed in range(20)]
    facts = [world.run().facts for world in worlds]
    assert sum(one["committed"] for one in facts) > 200
    assert sum(one["aborted"] for one in facts) > 50
    assert sum(one["delivered"] for one in facts) > 500
    assert sum(one["leader_epochs"] for one in facts) > 100
    assert {world.version for world in worlds} == {0, 1, 2}


def test_produces_take_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    def answer(right: Any, *arguments: Any) -> int:
        done: int = right(*arguments)
        taken.append(done)
        return done

    replaced(monkeypatch, plain_produce.PlainProduce, "_replicate", answer)
    for seed in range(10):
        TransactionWorld(seed, swarm=True).run()
    assert sum(taken) > 30


def test_the_short_way_of_produce_answers_before_the_replicas_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def try_complete(right: Any, waiting: Any) -> bool:
        waiting._settle(ErrorCode.NONE)
        return True

    replaced(monkeypatch, plain_produce._Uncommitted, "try_complete", try_complete)
    found_in(TransactionWorld, "is acknowledged, and is not committed")


def test_markers_go_out_before_the_decision_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    def defer(right: Any, runtime: CoordinatorRuntime[Any], hosted: Any, effects: list[Any]) -> None:
        early = [one for one in effects if isinstance(one, SendMarkers)]
        if early and hosted.batch is None:
            runtime._effects += early
            effects = [one for one in effects if one not in early]
        right(runtime, hosted, effects)

    replaced(monkeypatch, CoordinatorRuntime, "_defer", defer)
    found_in(TransactionWorld, "sends markers, and .* is not committed")


def test_a_new_coordinator_does_not_go_on_with_what_was_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    def loaded(right: Any, shard: TransactionShard, now_ms: int) -> Any:
        result = right(shard, now_ms)
        result.effects.clear()
        return result

    replaced(monkeypatch, TransactionShard, "loaded", loaded)
    found_in(TransactionWorld, "not enough")


def test_a_partition_takes_records_of_an_old_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    def check_data(partition: Any, entry: Any, batch: Any, origin: Any, verification: Any) -> None: ...

    def start_verification(right: Any, states: ProducerStates, *given: Any, **named: Any) -> int:
        try:
            return int(right(states, *given, **named))
        except producer_state.KafkaError:
            return 0

    monkeypatch.setattr(producer_state, "check_data", check_data)
    monkeypatch.setattr(producer_state, "check_verified", lambda *given, **named: None)
    replaced(monkeypatch, ProducerStates, "start_verification", start_verification)
    found_in(TransactionWorld, "behind one of epoch|" + TORN)


def test_nobody_asks_the_coordinator_before_a_first_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """As before KIP-890: a write that comes late begins a transaction that nobody ends."""

    def submit(checks: TransactionChecks, check: Any) -> None:
        check.done({})

    monkeypatch.setattr(TransactionChecks, "submit", submit)
    found_in(TransactionWorld, TORN)


def test_pending_offsets_are_forgotten_when_a_shard_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def take(right: Any, reader: Any, batch: Any) -> None:
        if batch.is_control or not batch.is_transactional:
            right(reader, batch)

    replaced(monkeypatch, shard_loader._Reader, "take", take)
    found_in(TransactionWorld, "its log says|a transaction has committed")


def test_an_aborted_transaction_commits_its_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    def end_transaction(right: Any, store: OffsetStore, producer_id: int, *, commits: bool) -> None:
        right(store, producer_id, commits=True)

    replaced(monkeypatch, OffsetStore, "end_transaction", end_transaction)
    found_in(TransactionWorld, "a transaction has committed")


def test_the_last_stable_offset_passes_an_open_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_unstable(states: ProducerStates) -> int | None:
        return states._unreplicated[0][0] if states._unreplicated else None

    monkeypatch.setattr(ProducerStates, "first_unstable_offset", property(first_unstable))
    found_in(TransactionWorld, "the last stable offset is|is given to a consumer")


def test_a_transaction_is_stable_before_its_marker_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerStates, "first_unstable_offset", ProducerStates.first_undecided_offset)
    found_in(TransactionWorld, "the last stable offset is|is given to a consumer")


def test_a_new_producer_does_not_get_a_new_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that have the same transactional id go on beside each other."""

    def init(right: Any, shard: TransactionShard, now_ms: int, request: Any) -> Any:
        transaction = shard.transactions.get(request.message.transactional_id)
        if transaction is None or transaction.state.is_prepared:
            return right(shard, now_ms, request)
        return shard_module.Result(effects=[shard_module.Reply(request.token, transaction.producer)])

    right = TransactionShard._init
    monkeypatch.setitem(shard_module._HANDLERS, shard_module.InitProducer, lambda *given: init(right, *given))
    found_in(TransactionWorld, "of .* is given to")


def test_an_end_of_an_old_epoch_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(right: Any, shard: TransactionShard, now_ms: int, request: Any) -> Any:
        transaction = shard.transactions.get(request.message.transactional_id)
        if transaction is not None and transaction.state is shard_module.State.ONGOING:
            request = request._replace(message=request.message._replace(producer=transaction.producer))
        return right(shard, now_ms, request)

    right = TransactionShard._end
    monkeypatch.setitem(shard_module._HANDLERS, shard_module.EndTransaction, lambda *given: end(right, *given))
    found_in(TransactionWorld, TORN + "|of .* is given to")


def test_markers_of_an_old_coordinator_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def check_marker(right: Any, partition: Any, entry: Any, *given: Any) -> None:
        try:
            right(partition, entry, *given)
        except producer_state.KafkaError as error:
            if (
                error.code is not ErrorCode.TRANSACTION_COORDINATOR_FENCED
                and error.code is not ErrorCode.INVALID_PRODUCER_EPOCH
            ):
                raise

    right = producer_state.check_marker
    monkeypatch.setattr(producer_state, "check_marker", lambda *given: check_marker(right, *given))
    found_in(TransactionWorld, TORN + "|behind one of epoch")


def test_what_is_committed_while_another_leads_is_taken_for_what_was_decided_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The high watermark of a follower, which has truncated the decision, before the coordinator hears that it is one."""

    def high_watermark(writer: LogWriter, partition: int, epoch: int) -> int:
        found = writer._replicas.partition(writer.topic, partition)
        return -1 if isinstance(found, ErrorCode) else found.log.high_watermark

    monkeypatch.setattr(LogWriter, "high_watermark", high_watermark)
    found_in(TransactionWorld, "sends markers, and .* is not committed")


def test_the_last_epoch_is_given_to_a_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionShard, "_is_exhausted", lambda shard, one: one.epoch >= shard._max_epoch)
    found_in(TransactionWorld, "is given out, the last one")


def test_markers_are_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MarkerSender, "_retry", lambda sender, job, partitions: None)
    found_in(TransactionWorld, "not enough")


def test_an_end_does_not_raise_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write or a marker that comes late is then one of the next transaction."""

    def prepared(right: Any, transaction: Transaction, *given: Any, **named: Any) -> Transaction:
        wrong: Transaction = replace(right(transaction, *given, **named), epoch=transaction.epoch)
        return wrong

    replaced(monkeypatch, Transaction, "prepared", prepared)
    found_in(TransactionWorld, TORN + "|behind one of epoch|is acknowledged")


def test_a_guard_outlives_the_end_of_its_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that was confirmed comes after the end, and begins a transaction that nobody ends. That takes some time: now
    and then a confirmation is late here, which by itself does no harm."""
    number = itertools.count(1)

    def submit(right: Any, checks: TransactionChecks, check: Any) -> None:
        def later(outside: Any) -> None:
            checks._timer.add(checks._now_ms() + 1500, lambda: check.done(outside))

        right(checks, check if next(number) % 8 else check._replace(done=later))

    def update(right: Any, states: ProducerStates, batch: Any) -> Any:
        waiting = states._verifications.get(batch.producer_id)
        ended = right(states, batch)
        if batch.is_control and waiting is not None:
            states._verifications[batch.producer_id] = waiting
        return ended

    replaced(monkeypatch, TransactionChecks, "submit", submit)
    replaced(monkeypatch, ProducerStates, "update", update)
    found_in(TransactionWorld, TORN)
