"""The runtime with the smallest shard there is: counters, one record per change."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Hashable
from typing import Any

import pytest
from unit.coordinator.worlds import Answer, MemoryLog, World

from pybroker.coordinator.records import CoordinatorRecord
from pybroker.coordinator.runtime import CoordinatorRuntime, Elected, Loaded, Requested, RequestedOfAll, TransactionEnded
from pybroker.coordinator.shard import DelayTimers, Producer, Reply, Request, Result
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.internal.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from pybroker.protocol.records.compression import Codec


def record(name: str, value: int) -> CoordinatorRecord:
    key = OffsetCommitKey(group=name, topic="t", partition=0)
    return CoordinatorRecord(key, OffsetCommitValue(offset=value, metadata="", commit_timestamp=0), 3)


class Counters:
    """Messages: ("add", name), ("add in transaction", name, producer), ("read", name), ("remind", delay_ms), ("refuse",),
    ("crash",), ("add many", names)."""

    def __init__(self, partition: int, timers: DelayTimers) -> None:
        self.values: dict[str, int] = {}
        self.pending: dict[int, dict[str, int]] = {}
        self.offsets: list[int] = []
        self.reminded: list[int] = []
        self.waiting: list[Any] = []
        self.noted: list[dict[str, int]] = []
        self._timers = timers

    def handle(self, now_ms: int, request: Request) -> Result:
        what, *rest = request.message
        reply = [Reply(request.token, self)]
        if what == "add":
            return Result(
                [record(rest[0], self.values.get(rest[0], 0) + 1)], [Reply(request.token, self.values.get(rest[0], 0) + 1)]
            )
        if what == "add and note":
            return Result([record(rest[0], 1)], reply, on_written=lambda: self.noted.append(dict(self.values)))
        if what == "add many":
            return Result([record(name, 1) for name in rest[0]], [] if rest[1:] else reply, is_atomic=not rest[1:])
        if what == "add in transaction":
            return Result([record(rest[0], 1)], reply, producer=Producer(rest[1], 0))
        if what == "read":
            return Result(effects=[Reply(request.token, self.values.get(rest[0], 0))])
        if what == "remind":
            self._timers.set("reminder", rest[0])
            return Result(effects=reply)
        if what == "wait":
            self.waiting.append(request.token)
            return Result()
        if what == "add a bug":
            return Result([record("bug", 1)], reply)
        if what == "tell":
            return Result([record("told", 1)], [Reply(request.token, "told"), "an effect"])
        if what == "refuse":
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "no")
        raise ValueError(what)

    def timed_out(self, now_ms: int, key: Hashable) -> Result:
        self.reminded.append(now_ms)
        return Result([record("reminders", len(self.reminded))])

    def replay(self, offset: int, record: CoordinatorRecord, producer: Producer | None) -> None:
        assert isinstance(record.key, OffsetCommitKey)
        assert isinstance(record.value, OffsetCommitValue)
        assert record.key.group != "bug"
        self.offsets.append(offset)
        values = self.values if producer is None else self.pending.setdefault(producer.producer_id, {})
        values[record.key.group] = record.value.offset

    def replay_marker(self, producer: Producer, *, commits: bool) -> None:
        pending = self.pending.pop(producer.producer_id, {})
        if commits:
            self.values |= pending

    def loaded(self, now_ms: int) -> Result:
        return Result()

    def parked(self) -> list[Any]:
        return self.waiting


def world(**options: Any) -> World:
    return World(new_shard=Counters, **options)


# Leadership.


def test_a_partition_that_is_not_led_here_has_no_coordinator_here() -> None:
    assert world().ask(("read", "a"), partition=7).refusal is ErrorCode.NOT_COORDINATOR


def test_while_the_log_is_read_clients_are_told_so() -> None:
    coordinator = world(loads_at_once=False)
    assert coordinator.ask(("read", "a")).refusal is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    coordinator.load()
    assert coordinator.ask(("add", "a")).response == 1


def test_what_was_decided_is_there_after_a_replay_elsewhere() -> None:
    coordinator = world()
    for _ in range(3):
        coordinator.ask(("add", "a"))
    before = coordinator.shard.values
    coordinator.begin()
    assert coordinator.shard.values == before == {"a": 3}
    assert coordinator.ask(("add", "a")).response == 4


def test_a_load_that_fails_is_tried_again() -> None:
    coordinator = world(loads_at_once=False)
    coordinator.load(problem="the disk")
    assert coordinator.ask(("read", "a")).refusal is ErrorCode.NOT_COORDINATOR
    coordinator.advance(1000)
    coordinator.load()
    assert coordinator.ask(("add", "a")).response == 1


def test_a_load_that_is_over_after_the_partition_was_lost_and_won_again_is_not_taken_for_the_new_one() -> None:
    coordinator = world(loads_at_once=False)
    old = coordinator.loads[0]
    coordinator.resign()
    coordinator.run(Elected(0, 3))
    assert [load.shard is old.shard for load in coordinator.loads] == [True, False]
    coordinator.load()
    assert coordinator.ask(("read", "a")).refusal is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    coordinator.load()
    assert coordinator.ask(("add", "a")).response == 1


def test_the_next_epoch_of_the_same_leader_needs_no_load_but_one_that_skips_an_epoch_does() -> None:
    coordinator = world()
    shard = coordinator.shard
    coordinator.run(Elected(0, 2))
    assert coordinator.shard is shard
    coordinator.run(Elected(0, 4))
    assert coordinator.shard is not shard


def test_who_waits_is_told_when_the_partition_moves_away() -> None:
    coordinator = world()
    coordinator.log.lags = True
    parked, uncommitted = coordinator.ask(("wait",)), coordinator.ask(("add", "a"))
    assert not parked.is_there
    assert not uncommitted.is_there
    coordinator.resign()
    assert parked.refusal is uncommitted.refusal is ErrorCode.NOT_COORDINATOR
    assert coordinator.ask(("read", "a")).refusal is ErrorCode.NOT_COORDINATOR


# Commitment.


def test_an_answer_waits_for_the_high_watermark() -> None:
    coordinator = world()
    coordinator.log.lags = True
    adding = coordinator.ask(("add", "a"))
    assert not adding.is_there
    coordinator.commit()
    assert adding.response == 1


def test_what_is_committed_while_another_leads_is_not_what_was_decided_here() -> None:
    """It follows already, with others' records at the offsets of its own, and the coordinator is yet to hear of it."""
    coordinator = world()
    coordinator.log.lags = True
    telling = coordinator.ask(("tell",))
    coordinator.log.led_epoch = coordinator.epoch + 1
    coordinator.commit()
    assert not telling.is_there
    assert coordinator.effects == []
    coordinator.resign()
    assert telling.refusal is ErrorCode.NOT_COORDINATOR
    assert coordinator.effects == []


def test_what_was_committed_in_the_next_epoch_of_the_same_leader_counts_when_the_coordinator_hears_of_that() -> None:
    coordinator = world()
    coordinator.log.lags = True
    telling = coordinator.ask(("tell",))
    coordinator.log.led_epoch = coordinator.epoch + 1
    coordinator.commit()
    coordinator.run(Elected(0, coordinator.epoch + 1))
    assert telling.response == "told"
    assert coordinator.effects == ["an effect"]


def test_who_only_reads_waits_for_what_it_has_seen() -> None:
    coordinator = world()
    coordinator.log.lags = True
    coordinator.ask(("add", "a"))
    reading = coordinator.ask(("read", "a"))
    assert not reading.is_there
    coordinator.commit()
    assert reading.response == 1


def test_the_next_decision_builds_on_what_is_not_committed_yet() -> None:
    coordinator = world()
    coordinator.log.lags = True
    answers = [coordinator.ask(("add", "a")) for _ in range(3)]
    coordinator.commit()
    assert [answer.response for answer in answers] == [1, 2, 3]


def test_replicas_that_take_too_long_are_not_waited_for() -> None:
    coordinator = world()
    coordinator.log.lags = True
    early = coordinator.ask(("add", "a"))
    coordinator.advance(3000)
    late = coordinator.ask(("add", "a"))
    coordinator.advance(2000)
    assert early.refusal is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not late.is_there
    coordinator.commit()
    assert late.response == 2


def test_what_has_to_follow_a_commit_follows_it_however_late() -> None:
    coordinator = world()
    coordinator.log.lags = True
    telling = coordinator.ask(("tell",))
    coordinator.advance(60_000)
    assert telling.refusal is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinator.effects == []
    coordinator.commit()
    assert coordinator.effects == ["an effect"]


# Appends.


def test_while_something_is_to_follow_a_late_commit_others_are_not_kept_waiting_either() -> None:
    coordinator = world()
    coordinator.log.lags = True
    coordinator.ask(("tell",))
    coordinator.advance(5000)
    late = coordinator.ask(("add", "a"))
    coordinator.advance(4999)
    assert not late.is_there
    coordinator.advance(1)
    assert late.refusal is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinator.runtime.deadline_ms is None, "nothing is left to wake up for"


def test_decisions_of_one_round_are_appended_together() -> None:
    coordinator = world()
    answers = coordinator.ask_together(("add", "a"), ("add", "a"), ("read", "a"), ("add", "b"))
    assert [answer.response for answer in answers] == [1, 2, 2, 1]
    assert [(batch.base_offset, batch.count) for batch in coordinator.log.batches[0]] == [(0, 3)]
    assert coordinator.shard.offsets == [0, 1, 2]


def test_without_lingering_every_decision_is_appended_by_itself() -> None:
    coordinator = world(linger_ms=0)
    answers = coordinator.ask_together(("add", "a"), ("add", "a"), ("read", "a"), ("add", "b"))
    assert [answer.response for answer in answers] == [1, 2, 2, 1]
    assert [(batch.base_offset, batch.count) for batch in coordinator.log.batches[0]] == [(0, 1), (1, 1), (2, 1)]


def test_what_lingers_is_appended_together_with_what_comes_meanwhile_and_answered_then() -> None:
    coordinator = world(linger_ms=10)
    first = coordinator.ask(("add", "a"))
    coordinator.advance(6)
    second, reader = coordinator.ask_together(("add", "a"), ("read", "a"))
    coordinator.advance(3)
    assert coordinator.log.batches == {}
    assert [one.is_there for one in (first, second, reader)] == [False] * 3
    coordinator.advance(1)
    assert [batch.count for batch in coordinator.log.batches[0]] == [2]
    assert [first.response, second.response, reader.response] == [1, 2, 2]
    # The next one has its own time.
    third = coordinator.ask(("add", "a"))
    coordinator.advance(9)
    assert not third.is_there
    coordinator.advance(1)
    assert third.response == 3


def test_a_batch_that_is_full_does_not_linger() -> None:
    coordinator = world(linger_ms=10)
    coordinator.log.max_bytes = 400
    answers = coordinator.ask_together(*(("add", "a") for _ in range(20)))
    written = sum(batch.count for batch in coordinator.log.batches[0])
    assert 0 < written < 20
    assert [answer.is_there for answer in answers] == [True] * written + [False] * (20 - written)
    coordinator.advance(10)
    assert [answer.response for answer in answers] == list(range(1, 21))


def test_what_lingers_when_the_partition_moves_away_is_refused_and_never_written() -> None:
    coordinator = world(linger_ms=10)
    answer = coordinator.ask(("add", "a"))
    coordinator.resign()
    assert answer.refusal is ErrorCode.NOT_COORDINATOR
    coordinator.advance(10)
    assert coordinator.log.batches == {}


def test_a_transaction_does_not_linger_and_what_came_before_it_is_written_before_it() -> None:
    coordinator = world(linger_ms=10)
    plain = coordinator.ask(("add", "a"))
    transactional = coordinator.ask(("add in transaction", "b", 9))
    assert [batch.is_transactional for batch in coordinator.log.batches[0]] == [False, True]
    assert plain.response == 1
    assert transactional.is_there


def test_batches_are_compressed_where_that_is_wanted() -> None:
    log = MemoryLog()
    runtime = CoordinatorRuntime("test", log, Counters, commit_timeout_ms=lambda: 5000, codec=Codec.GZIP)
    (load,) = runtime.run(0, 0, [Elected(0, 1)])
    runtime.run(0, 0, [Loaded(0, load.shard, 0), *(Requested(0, Request(("add", "a"))) for _ in range(50))])
    (batch,) = log.batches[0]
    assert (batch.codec, batch.count) == (Codec.GZIP, 50)
    assert load.shard.values == {"a": 50}


def test_a_batch_that_is_full_is_followed_by_another() -> None:
    coordinator = world()
    coordinator.log.max_bytes = 400
    answers = coordinator.ask_together(*(("add", "a") for _ in range(20)))
    assert [answer.response for answer in answers] == list(range(1, 21))
    assert len(coordinator.log.batches[0]) > 2
    assert coordinator.shard.offsets == list(range(20))


def test_a_decision_that_fits_no_batch_is_refused_and_changes_nothing() -> None:
    coordinator = world()
    coordinator.log.max_bytes = 400
    answer = coordinator.ask(("add many", [f"name {number}" for number in range(20)]))
    assert answer.refusal is ErrorCode.UNKNOWN_SERVER_ERROR
    assert coordinator.shard.values == {}
    assert coordinator.ask(("add", "a")).response == 1


def test_records_that_need_not_stay_together_are_spread_over_batches() -> None:
    coordinator = world()
    coordinator.log.max_bytes = 400
    coordinator.ask(("add many", [f"name {number}" for number in range(20)], "in parts"))
    assert len(coordinator.shard.values) == 20
    assert coordinator.shard.offsets == list(range(20))


def test_a_log_that_would_refuse_is_not_tried() -> None:
    coordinator = world()
    coordinator.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert coordinator.ask(("add", "a")).refusal is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinator.shard.values == {}
    assert coordinator.ask(("read", "a")).response == 0
    coordinator.log.refuses = ErrorCode.NONE
    assert coordinator.ask(("add", "a")).response == 1


def test_after_a_failed_append_the_log_is_right_and_the_shard_is_loaded_again() -> None:
    coordinator = world()
    coordinator.ask(("add", "a"))
    shard = coordinator.shard
    parked = coordinator.ask(("wait",))
    coordinator.log.fails = ErrorCode.KAFKA_STORAGE_ERROR
    answers = coordinator.ask_together(("add", "a"), ("add", "a"))
    assert [answer.refusal for answer in answers] == [ErrorCode.NOT_COORDINATOR] * 2
    assert parked.refusal is ErrorCode.NOT_COORDINATOR
    assert coordinator.shard is not shard
    assert coordinator.shard.values == {"a": 1}
    coordinator.log.fails = ErrorCode.NONE
    assert coordinator.ask(("add", "a")).response == 2


def test_an_append_that_fails_by_a_bug_costs_no_answer_and_leaves_nothing_that_the_log_does_not_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: Any, **__: Any) -> int:
        raise RuntimeError("a bug")

    coordinator = world()
    coordinator.ask(("add", "a"))
    ending = Answer()
    with monkeypatch.context() as patched:
        patched.setattr(coordinator.log, "append", broken)
        answers = coordinator.ask_together(("add", "a"), ("read", "a"))
        coordinator.run(TransactionEnded(0, Producer(9, 0), 1, commits=True, token=ending))
    assert [answer.refusal for answer in (*answers, ending)] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 3
    assert coordinator.shard.values == {"a": 1}
    assert coordinator.ask(("add", "a")).response == 2


def test_a_marker_that_cannot_be_replayed_is_refused_and_the_shard_is_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("a bug")

    coordinator = world()
    coordinator.ask(("add in transaction", "x", 9))
    ending, after = Answer(), Answer()
    monkeypatch.setattr(coordinator.shard, "replay_marker", broken)
    coordinator.run(
        TransactionEnded(0, Producer(9, 0), 1, commits=True, token=ending),
        Requested(0, Request(("read", "x"), after)),
    )
    assert (ending.refusal, after.refusal) == (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert coordinator.ask(("read", "x")).response == 1, "the marker is in the log"


def test_a_shard_that_cannot_begin_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Result:
        raise RuntimeError("a bug")

    coordinator = world(loads_at_once=False)
    with monkeypatch.context() as patched:
        patched.setattr(Counters, "loaded", broken)
        coordinator.load()
    assert coordinator.ask(("read", "a")).refusal is ErrorCode.NOT_COORDINATOR
    coordinator.advance(1000)
    coordinator.load()
    assert coordinator.ask(("add", "a")).response == 1


def test_a_log_that_somebody_else_wrote_to_is_read_again() -> None:
    coordinator = world()
    coordinator.ask(("add", "a"))
    other = World(new_shard=Counters, log=coordinator.log)
    other.ask(("add", "a"))
    assert coordinator.ask(("add", "b")).refusal is ErrorCode.NOT_COORDINATOR
    assert coordinator.shard.values == {"a": 2, "b": 1}


# Transactions.


def test_records_of_a_transaction_are_a_batch_of_its_own_and_count_when_the_marker_comes() -> None:
    coordinator = world()
    coordinator.ask_together(("add", "a"), ("add in transaction", "x", 9), ("add", "b"))
    assert [(batch.is_transactional, batch.producer_id) for batch in coordinator.log.batches[0]] == [
        (False, -1),
        (True, 9),
        (False, -1),
    ]
    assert coordinator.shard.values == {"a": 1, "b": 1}
    ending = Answer()
    coordinator.run(TransactionEnded(0, Producer(9, 0), 1, commits=True, token=ending))
    assert ending.is_there
    assert coordinator.shard.values == {"a": 1, "b": 1, "x": 1}
    assert coordinator.log.batches[0][-1].is_control
    coordinator.begin()
    assert coordinator.shard.values == {"a": 1, "b": 1, "x": 1}


def test_a_producer_that_the_log_refuses_costs_its_own_request_only() -> None:
    coordinator = world()
    shard = coordinator.shard
    coordinator.log.fails = ErrorCode.INVALID_PRODUCER_EPOCH
    assert coordinator.ask(("add in transaction", "x", 9)).refusal is ErrorCode.INVALID_PRODUCER_EPOCH
    assert coordinator.shard is shard
    assert shard.pending == {}


def test_a_marker_for_a_partition_that_is_not_here_is_refused() -> None:
    coordinator = world()
    ending = Answer()
    coordinator.run(TransactionEnded(3, Producer(9, 0), 1, commits=True, token=ending))
    assert ending.refusal is ErrorCode.NOT_COORDINATOR


# Timers and mishaps.


def test_a_timer_comes_when_its_time_has_come() -> None:
    coordinator = world()
    coordinator.ask(("remind", 500))
    assert coordinator.runtime.deadline_ms == 500
    coordinator.advance(499)
    assert coordinator.shard.reminded == []
    coordinator.advance(1)
    assert len(coordinator.shard.reminded) == 1
    assert coordinator.shard.values == {"reminders": 1}


def test_timers_of_a_shard_that_is_gone_never_come() -> None:
    coordinator = world()
    shard = coordinator.shard
    coordinator.ask(("remind", 500))
    coordinator.resign()
    coordinator.advance(1000)
    assert shard.reminded == []


def test_a_refusal_and_a_bug_cost_one_request() -> None:
    coordinator = world()
    refused, broken, fine = coordinator.ask_together(("refuse",), ("nonsense",), ("add", "a"))
    assert refused.refusal is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broken.refusal is ErrorCode.UNKNOWN_SERVER_ERROR
    assert fine.response == 1


def test_a_record_that_cannot_be_replayed_is_never_written_and_the_shard_is_loaded_again() -> None:
    coordinator = world()
    coordinator.ask(("add", "a"))
    shard, parked = coordinator.shard, coordinator.ask(("wait",))
    early, broken, late = coordinator.ask_together(("add", "a"), ("add a bug",), ("read", "a"))
    assert broken.refusal is ErrorCode.UNKNOWN_SERVER_ERROR
    assert early.refusal is parked.refusal is ErrorCode.NOT_COORDINATOR
    assert late.refusal is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert coordinator.shard is not shard
    assert coordinator.ask(("add", "a")).response == 2


def test_a_request_for_all_shards_reaches_those_that_are_loaded() -> None:
    log = MemoryLog()
    coordinator = World(new_shard=Counters, log=log)
    coordinator.run(Elected(1, 1))
    coordinator.loads_at_once = False
    coordinator.run(Elected(2, 1))
    coordinator.run(RequestedOfAll(Request(("add", "a"))))
    assert sorted(log.batches) == [0, 1]
    assert coordinator.runtime.partitions == [0, 1, 2]


def test_shards_do_not_see_each_other() -> None:
    coordinator = world()
    coordinator.run(Elected(1, 1))
    one, other = Answer(), Answer()
    coordinator.run(Requested(0, Request(("add", "a"), one)), Requested(1, Request(("add", "a"), other)))
    assert (one.response, other.response) == (1, 1)


def test_a_shard_that_was_unloaded_is_not_kept_by_its_timers() -> None:
    coordinator = world()
    coordinator.ask(("remind", 3_600_000))
    shard = weakref.ref(coordinator.shard)
    coordinator.resign()
    gc.collect()
    assert shard() is None


def test_a_timer_whose_records_cannot_be_written_comes_again() -> None:
    coordinator = world()
    coordinator.ask(("remind", 500))
    coordinator.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    coordinator.advance(500)
    assert len(coordinator.shard.reminded) == 1
    assert coordinator.shard.values == {}
    coordinator.log.refuses = ErrorCode.NONE
    coordinator.advance(500)
    assert coordinator.shard.values == {"reminders": 2}
    assert coordinator.runtime.deadline_ms is None


def test_a_timer_that_fails_by_a_bug_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Result:
        raise RuntimeError("a bug")

    coordinator = world()
    coordinator.ask(("remind", 500))
    with monkeypatch.context() as patched:
        patched.setattr(Counters, "timed_out", broken)
        coordinator.advance(500)
    assert coordinator.shard.values == {}
    coordinator.advance(500)
    assert coordinator.shard.values == {"reminders": 1}
    assert coordinator.runtime.deadline_ms is None


def test_who_is_heard_of_in_the_round_in_which_its_time_is_up_is_in_time() -> None:
    coordinator = world()
    coordinator.ask(("remind", 500))
    coordinator.now_ms = 700
    coordinator.ask(("remind", 500))
    assert coordinator.shard.reminded == []
    coordinator.advance(500)
    assert len(coordinator.shard.reminded) == 1


def test_what_follows_from_a_write_follows_when_it_is_accepted_and_never_when_it_is_refused() -> None:
    coordinator = world()
    coordinator.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert coordinator.ask(("add and note", "a")).refusal is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinator.shard.noted == []
    coordinator.log.refuses = ErrorCode.NONE
    assert coordinator.ask(("add and note", "a")).is_there
    assert coordinator.shard.noted == [{"a": 1}]
