"""The classic cases of replication, as the textbooks tell them: brokers with real logs, a step at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from unit.replication.brokers import MAX_LAG_MS, NAME, Brokers, committed

from pybroker.log.log import Log
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.messages.produce import PartitionProduceResponse
from pybroker.replication.delayed_produce import Uncommitted
from pybroker.replication.partition import Partition


def test_the_next_fetch_is_the_acknowledgement(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2, 3) as brokers:
        brokers.lead(1, isr=(1, 2, 3))
        brokers.produce(1, b"a", b"b")
        assert committed(brokers, 1) == 0
        brokers.fetch(2)
        assert brokers[2].values == ["a", "b"]
        # Both have the records, but the leader knows of neither yet.
        brokers.fetch(3)
        assert committed(brokers, 1) == 0
        brokers.fetch(2)
        assert committed(brokers, 1) == 0
        brokers.fetch(3)
        assert committed(brokers, 1) == 2
        # Broker 3 was told in the answer to the very fetch that committed it; broker 2 hears of it with its next one.
        assert (committed(brokers, 2), committed(brokers, 3)) == (0, 2)
        brokers.fetch(2)
        assert committed(brokers, 2) == 2


def test_a_follower_that_restarts_before_it_learned_the_high_watermark_loses_nothing(tmp_path: Path) -> None:
    """KIP-101, the first case: who cuts its log back to its high watermark loses what was committed."""
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(2, isr=(1, 2))
        brokers.produce(2, b"m1")
        brokers.fetch(1, times=2)
        brokers[1].logs.checkpoint_high_watermarks()
        brokers.produce(2, b"m2")
        brokers.fetch(1)
        source, request, _ = brokers[1].asked[0]
        brokers.answer(source, request)
        assert committed(brokers, 2) == 2  # m2 is committed: the leader knows that broker 1 has it
        assert committed(brokers, 1) == 1  # but the answer that says so is lost
        brokers[1].crash()
        brokers.restart(1)
        assert committed(brokers, 1) == 1
        brokers.fetch(1)
        assert brokers[1].values == ["m1", "m2"]
        # Now the leader dies, before broker 1 has fetched anything more.
        brokers[2].crash()
        brokers.lead(1, isr=(1,), heard_by=(1,))
        assert brokers[1].values == ["m1", "m2"]
        assert committed(brokers, 1) == 2


def test_the_restarted_follower_leads_at_once_and_loses_nothing(tmp_path: Path) -> None:
    """The same, with the leader dying before the follower has asked it for anything at all."""
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(2, isr=(1, 2))
        brokers.produce(2, b"m1", b"m2")
        brokers.fetch(1, times=1)
        brokers[1].crash()
        brokers[2].crash()
        brokers.restart(1)
        brokers.lead(1, isr=(1,), heard_by=(1,))
        assert brokers[1].values == ["m1", "m2"]
        assert committed(brokers, 1) == 2


def test_a_returning_old_leader_drops_what_was_never_committed(tmp_path: Path) -> None:
    """KIP-101, the second case: two logs of the same length that differ, and no high watermark tells."""
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1, 2))
        brokers.produce(1, b"m1")
        brokers.fetch(2, times=2)
        brokers.produce(1, b"m2")  # never leaves broker 1
        brokers[1].crash()
        brokers.lead(2, isr=(2,), heard_by=(2,))
        brokers.produce(2, b"m3")
        assert brokers[2].values == ["m1", "m3"]
        brokers.restart(1)
        assert brokers[1].values == ["m1", "m2"]
        brokers.fetch(1)  # it says "up to 2, and the last was of epoch 0"; the leader: "epoch 0 ended at 1"
        assert brokers[1].values == ["m1"]
        brokers.fetch(1)
        assert brokers[1].values == ["m1", "m3"]
        assert brokers[1].log.leader_epochs.entries == brokers[2].log.leader_epochs.entries


def test_what_a_deposed_leader_sends_of_its_successor_is_not_taken_for_its_own(tmp_path: Path) -> None:
    """KAFKA-18723: the answer lies in a file, and the file is another one when it leaves."""
    with Brokers(tmp_path, 1, 2, 3) as brokers:
        brokers.lead(1, isr=(1, 2, 3))
        brokers.produce(1, b"m1")
        brokers.fetch(2)
        brokers.produce(1, b"m2")
        brokers.fetch(3)
        assert brokers[3].values == ["m1", "m2"]
        brokers.produce(1, b"m3")

        def another_leads() -> None:
            brokers.lead(2, isr=(1, 2), heard_by=(1, 2))
            brokers.produce(2, b"n2", b"n3")
            brokers.fetch(1, times=2)
            assert brokers[1].values == ["m1", "n2", "n3"]

        brokers.fetch(3, meanwhile=another_leads)  # what is sent lies where m3 was, and is as long
        assert brokers[3].values == ["m1", "m2"]
        brokers.hear(3)
        brokers.fetch(3, times=3)  # the first is one to broker 1 that is out already
        assert brokers[3].values == ["m1", "n2", "n3"]
        assert brokers[3].log.leader_epochs.entries == brokers[2].log.leader_epochs.entries


def test_the_epoch_of_an_old_leader_is_unknown_to_the_new_one(tmp_path: Path) -> None:
    """KIP-279: leaders change so fast that each has an epoch of its own that the other never saw."""
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1, 2))
        brokers.produce(1, b"a", b"b")
        brokers.fetch(2, times=2)
        brokers.lead(1, isr=(1, 2), heard_by=(1,))  # epoch 1, of which broker 2 never hears
        brokers.produce(1, b"of epoch 1", b"and one more")
        brokers[1].crash()
        brokers.lead(2, isr=(2,), heard_by=(2,))  # epoch 2
        brokers.produce(2, b"of epoch 2")
        brokers.restart(1)
        brokers.fetch(1, times=3)
        assert brokers[1].values == brokers[2].values == ["a", "b", "of epoch 2"]
        assert brokers[1].log.leader_epochs.entries == brokers[2].log.leader_epochs.entries


def test_two_logs_that_parted_twice_agree_after_two_steps(tmp_path: Path) -> None:
    """KIP-279: neither knows the other's epochs; each answer takes the follower one epoch further back."""
    with Brokers(tmp_path, 1, 2, 3) as brokers:
        brokers.lead(1, isr=(1, 2, 3))
        brokers.produce(1, b"a")
        brokers.fetch(2, times=2)
        brokers.fetch(3, times=2)
        brokers.lead(2, isr=(1, 2, 3), heard_by=(2,))  # epoch 1: broker 2 alone writes, and dies
        brokers.produce(2, b"1", b"1", b"1")
        brokers[2].crash()
        brokers.lead(3, isr=(1, 3), heard_by=(3,))  # epoch 2: broker 3 alone writes, and dies
        brokers.produce(3, b"2", b"2")
        brokers[3].crash()
        brokers.restart(2)
        brokers.lead(2, isr=(1, 2), heard_by=(2,))  # epoch 3: broker 2 again, uncleanly
        brokers.produce(2, b"3")
        assert brokers[2].values == ["a", "1", "1", "1", "3"]
        brokers.restart(3)
        brokers.fetch(3)  # "up to 3, the last of epoch 2": "epoch 1 ended at 4"; it has none of epoch 1
        assert brokers[3].values == ["a"]
        brokers.fetch(3)
        assert brokers[3].values == brokers[2].values


def test_a_leader_that_wrote_nothing_in_its_epoch_goes_on_as_a_follower(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1, 2))
        brokers.produce(1, b"a")
        brokers.fetch(2, times=2)
        brokers.lead(2, isr=(1, 2), heard_by=(2,))  # epoch 1, without a record, and unknown to broker 1
        brokers.lead(1, isr=(1, 2))
        brokers.produce(1, b"b")
        brokers.fetch(2)  # a late answer to what it asked for in epoch 0
        assert brokers[2].log.leader_epochs.latest_epoch == 1
        brokers.fetch(2)
        assert brokers[2].log.leader_epochs.latest_epoch == 0
        brokers.fetch(2)
        assert brokers[2].values == ["a", "b"]
        assert brokers[2].log.leader_epochs.entries == brokers[1].log.leader_epochs.entries


def test_a_leader_that_missed_another_one_in_between_does_not_count_on_what_it_knew(tmp_path: Path) -> None:
    """What the simulator found: broker 2 had the record, and gave it up for a leader that broker 1 never heard of."""
    with Brokers(tmp_path, 1, 2, 3) as brokers:
        brokers.lead(1, isr=(1, 2, 3))
        brokers.produce(1, b"a")
        brokers.fetch(2, times=2)
        brokers.lead(3, isr=(1, 2, 3), heard_by=(2, 3))  # epoch 1, and broker 3 has nothing
        brokers.fetch(2, times=2)
        assert brokers[2].values == []
        brokers.lead(1, isr=(1, 2))  # epoch 2; broker 1 hears of both at once
        assert committed(brokers, 1) == 0
        brokers.fetch(2, times=3)
        assert brokers[2].values == ["a"]
        assert committed(brokers, 1) == 1


def test_a_fetch_that_was_looked_at_in_the_epoch_before_says_nothing_in_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that answers it has read the log when another one applies two changes of leadership at once."""
    with Brokers(tmp_path, 1, 2, 3) as brokers:
        brokers.lead(1, isr=(1, 2, 3))
        brokers.produce(1, b"a")
        brokers.fetch(2)  # it has the record; its next request, of epoch 0, says so
        source, request, _ = brokers[2].asked.pop(0)
        read = Partition.read

        def read_and_hear(partition: Partition, *arguments: Any, **options: Any) -> Any:
            found = read(partition, *arguments, **options)
            monkeypatch.undo()
            brokers.lead(3, isr=(1, 2, 3), heard_by=(2, 3))  # epoch 1: broker 2 gives the record up
            brokers.lead(1, isr=(1, 2))  # epoch 2; broker 1 hears of both at once
            return found

        monkeypatch.setattr(Partition, "follower_kept_up", lambda *_: None)  # the way of those that need more care
        monkeypatch.setattr(Partition, "read", read_and_hear)
        brokers.answer(source, request)
        assert committed(brokers, 1) == 0
        brokers.fetch(2, times=3)
        assert brokers[2].values == ["a"]
        assert committed(brokers, 1) == 1


def test_nor_does_one_that_is_about_to_be_looked_at_when_the_epoch_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Brokers(tmp_path, 1, 2, 3) as brokers:
        brokers.lead(1, isr=(1, 2, 3))
        brokers.produce(1, b"a")
        brokers.fetch(2)
        source, request, _ = brokers[2].asked.pop(0)
        kept_up = Partition.follower_kept_up
        found = []

        def hear_and_look(partition: Partition, *arguments: Any) -> Any:
            monkeypatch.undo()
            brokers.lead(3, isr=(1, 2, 3), heard_by=(2, 3))
            brokers.lead(1, isr=(1, 2))
            found.append(kept_up(partition, *arguments))
            return found[-1]

        monkeypatch.setattr(Partition, "follower_kept_up", hear_and_look)
        brokers.answer(source, request)
        assert found == [None]
        assert committed(brokers, 1) == 0


def test_the_short_way_of_a_fetch_says_the_same_as_the_long_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short: list[bool | None] = []
    kept_up = Partition.follower_kept_up

    def noted(partition: Partition, *arguments: Any) -> bool | None:
        short.append(kept_up(partition, *arguments))
        return short[-1]

    monkeypatch.setattr(Partition, "follower_kept_up", noted)
    by_the_short = story_of_commits(tmp_path / "short")
    assert {True, False} < set(short)
    monkeypatch.setattr(Partition, "follower_kept_up", lambda *_: None)
    assert story_of_commits(tmp_path / "long") == by_the_short


def story_of_commits(path: Path) -> list[tuple[int, int, int]]:
    """What the leader and a follower hold for committed, and how much that one has, fetch by fetch."""
    steps = []
    with Brokers(path, 1, 2, 3) as brokers:
        brokers.lead(1, isr=(1, 2, 3))
        for round_ in range(4):
            brokers.produce(1, *(f"{round_}-{number}".encode() for number in range(round_ + 1)))
            for follower in (2, 3, 3, 2, 2):
                brokers.fetch(follower)
                steps.append((committed(brokers, 1), committed(brokers, follower), len(brokers[follower].values)))
        brokers.register(2, epoch=99)  # it has come anew, and what its former life asks for counts no more
        brokers.produce(1, b"last")
        for follower in (3, 2, 3):
            brokers.fetch(follower)
            steps.append((committed(brokers, 1), committed(brokers, follower), len(brokers[follower].values)))
    return steps


def test_a_batch_that_meets_a_new_epoch_of_the_same_leader_is_appended_in_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idempotent producer has several requests on their way: with the first of them refused, the others were out of order,
    and the producer began anew, with what it could not know to be stored already."""
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1, 2))
        brokers.produce(1, b"a")
        append = Log.append_as_leader
        epochs = []

        def hear_and_append(log: Log, records: Any, leader_epoch: int, *arguments: Any, **options: Any) -> Any:
            if not epochs:
                brokers.lead(1, isr=(1, 2))
            epochs.append(leader_epoch)
            return append(log, records, leader_epoch, *arguments, **options)

        monkeypatch.setattr(Log, "append_as_leader", hear_and_append)
        assert brokers.produce(1, b"b") == 1
        assert epochs == [0, 1]
        assert [one.partition_leader_epoch for one in brokers[1].log.batches()] == [0, 1]
        epochs.clear()
        monkeypatch.setattr(brokers, "lead", lambda *_, lead=brokers.lead, **options: lead(2, **options))
        with pytest.raises(KafkaError) as refused:
            brokers.produce(1, b"c")
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_fetch_of_a_former_life_of_the_follower_says_nothing_of_this_one(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1, 2))
        brokers.produce(1, b"a")
        leader = brokers[1]
        epoch = leader.partition.leader_epoch
        brokers.register(2, epoch=21)
        leader.replicas.follower_fetched(leader.partition, epoch, 2, 20, 1, 0)
        assert committed(brokers, 1) == 0
        leader.replicas.follower_fetched(leader.partition, epoch, 2, 21, 1, 0)
        assert committed(brokers, 1) == 1


def test_a_shrunken_isr_lets_the_high_watermark_advance(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2, 3) as brokers:
        brokers.lead(1, isr=(1, 2, 3))
        brokers.produce(1, b"a")
        brokers.fetch(2, times=2)
        assert committed(brokers, 1) == 0  # broker 3 is silent
        brokers.pass_time(MAX_LAG_MS)
        brokers[1].replicas.check_lag()
        assert brokers.proposal_of(1) is None
        brokers.pass_time(1)
        brokers.fetch(2)
        brokers[1].replicas.check_lag()
        assert brokers.proposal_of(1) == [1, 2]
        assert committed(brokers, 1) == 0  # as long as the controller has not said so, broker 3 counts
        brokers.decide(1)
        assert committed(brokers, 1) == 1


def test_while_it_is_asked_for_a_new_member_counts_already(tmp_path: Path) -> None:
    """The maximal ISR: the controller may have added broker 2, and made it the leader, before its answer is here."""
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1,))
        brokers.produce(1, b"a")
        assert committed(brokers, 1) == 1
        brokers.fetch(2, times=2)
        assert brokers.proposal_of(1) == [1, 2]
        brokers.produce(1, b"b")
        assert committed(brokers, 1) == 1
        brokers.fetch(2, times=2)
        assert committed(brokers, 1) == 2
        brokers.produce(1, b"c")
        brokers.decide(1, error=ErrorCode.INELIGIBLE_REPLICA)
        # Refused, and so not added; but it has caught up, and is waited for as long as it keeps up.
        assert committed(brokers, 1) == 2
        brokers.pass_time(MAX_LAG_MS + 1)
        brokers[1].replicas.check_lag()
        assert committed(brokers, 1) == 3


def test_an_answer_that_says_the_partition_moved_on_leaves_the_proposal_standing(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1,))
        brokers.produce(1, b"a")
        brokers.fetch(2, times=2)
        brokers.decide(1, error=ErrorCode.INVALID_UPDATE_VERSION)
        brokers.produce(1, b"b")
        assert committed(brokers, 1) == 1  # it may have been added after all
        brokers.lead(1, isr=(1,))
        assert committed(brokers, 1) == 2


def test_acks_all_is_settled_by_the_high_watermark(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2, min_insync_replicas=2) as brokers:
        brokers.lead(1, isr=(1, 2))
        leader = brokers[1].partition
        offset = brokers.produce(1, b"a", acks=-1)
        assert leader.committed(leader.leadership, offset + 1) is None
        brokers.fetch(2, times=2)
        assert leader.committed(leader.leadership, offset + 1) is ErrorCode.NONE


def test_too_few_in_sync_before_the_append_and_after_it(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2, 3, min_insync_replicas=2) as brokers:
        brokers.lead(1, isr=(1, 2))
        leader = brokers[1].partition
        term = leader.leadership
        offset = brokers.produce(1, b"a", acks=-1)
        brokers.pass_time(MAX_LAG_MS + 1)
        brokers[1].replicas.check_lag()
        brokers.decide(1)
        # What is under the minimum does not commit (KIP-966), so the producer waits for broker 2 to come back.
        assert leader.committed(term, offset + 1) is None
        with pytest.raises(KafkaError) as refused:
            brokers.produce(1, b"b", acks=-1)
        assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        assert brokers.produce(1, b"c", acks=1) == 1
        assert committed(brokers, 1) == 0
        brokers.fetch(2, times=2)
        assert brokers.proposal_of(1) == [1, 2]
        brokers.decide(1)
        assert leader.committed(term, offset + 1) is ErrorCode.NONE


def test_committed_but_with_too_few_left_is_told_apart(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2, min_insync_replicas=2) as brokers:
        brokers.lead(1, isr=(1, 2))
        leader = brokers[1].partition
        offset = brokers.produce(1, b"a", acks=-1)
        brokers.fetch(2, times=2)
        brokers.pass_time(MAX_LAG_MS + 1)
        brokers.produce(1, b"b")
        brokers[1].replicas.check_lag()
        brokers.decide(1)
        assert leader.committed(leader.leadership, offset + 1) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_a_produce_to_a_leader_that_is_none_any_more_is_told_so(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1, 2))
        old = brokers[1].partition
        term = old.leadership
        offset = brokers.produce(1, b"a", acks=-1)
        brokers.lead(2, isr=(1, 2))
        assert old.committed(term, offset + 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        brokers.lead(1, isr=(1, 2))
        # It leads again, but what it appended before may have been cut off meanwhile.
        assert old.committed(term, offset + 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(KafkaError) as refused:
            brokers.produce(2, b"b")
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_unclean_leader_makes_the_others_forget(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1,))
        brokers.produce(1, b"a", b"b", b"c")
        assert committed(brokers, 1) == 3
        brokers[1].crash()
        brokers.lead(2, isr=(2,), heard_by=(2,))  # it has nothing
        brokers.produce(2, b"x")
        brokers.restart(1)
        brokers.fetch(1)  # of epoch 0 the leader has nothing, so nothing stays
        brokers.fetch(1, times=2)
        assert brokers[1].values == brokers[2].values == ["x"]
        assert committed(brokers, 1) == 1


def test_a_follower_that_was_away_too_long_starts_over_where_the_leader_starts(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1,))
        brokers.produce(1, b"a")
        brokers.fetch(2)
        brokers.produce(1, b"b", b"c")
        brokers[1].log.advance_log_start_offset(2)
        brokers.fetch(2)  # OFFSET_OUT_OF_RANGE
        brokers.fetch(2)  # where does the leader end?
        brokers.fetch(2)  # and where does it start?
        assert (brokers[2].log.log_start_offset, brokers[2].log.log_end_offset) == (2, 2)
        brokers.fetch(2)
        assert brokers[2].values == ["c"]


def test_what_the_leader_deletes_the_followers_delete(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1, 2))
        brokers.produce(1, b"a", b"b")
        brokers.fetch(2, times=3)
        brokers[1].log.advance_log_start_offset(1)
        brokers.fetch(2)
        assert brokers[2].log.log_start_offset == 1
        leadership = brokers[1].partition.leadership
        assert leadership is not None
        assert leadership.low_watermark(1) == 0
        brokers.fetch(2)
        assert leadership.low_watermark(1) == 1


def test_a_fetch_in_the_name_of_a_broker_that_was_restarted_since_is_refused(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1, 2))
        brokers.produce(1, b"a")
        brokers.fetch(2)
        brokers[2].epoch -= 1  # from now on it asks as the broker that it was before
        brokers.fetch(2)
        assert committed(brokers, 1) == 1  # this one was sent before that
        brokers.produce(1, b"b")
        brokers.pass_time(1000)
        brokers.fetch(2)
        assert brokers[2].values == ["a"]
        assert committed(brokers, 1) == 1


def test_a_stale_leader_epoch_is_fenced_and_an_unknown_one_waits(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1, 2))
        brokers.fetch(2)
        brokers.lead(1, isr=(1, 2), heard_by=(2,))  # broker 1 does not know yet that it leads in epoch 1
        brokers.produce(1, b"a")
        brokers.fetch(2, times=2)
        assert brokers[2].values == []
        brokers.hear(1)
        brokers.pass_time(1000)
        brokers.fetch(2)
        assert brokers[2].values == ["a"]
        brokers.lead(1, isr=(1, 2), heard_by=(1,))  # and now broker 2 does not know of epoch 2
        brokers.produce(1, b"b")
        brokers.fetch(2)
        assert brokers[2].values == ["a"]
        assert not brokers[2].asked  # it rests until it hears
        brokers.hear(2)
        brokers.fetch(2)
        assert brokers[2].values == ["a", "b"]


def test_the_high_watermark_survives_a_restart_by_its_checkpoint(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2, 3) as brokers:
        brokers.lead(1, isr=(1, 2, 3))
        brokers.produce(1, b"a", b"b")
        for broker in (2, 3, 2, 3, 2):
            brokers.fetch(broker)
        assert committed(brokers, 2) == 2
        brokers[2].logs.checkpoint_high_watermarks()
        brokers[2].crash()
        brokers.restart(2)
        assert committed(brokers, 2) == 2
        # A new leader does not commit on its own: the others in sync have to be heard first.
        brokers.lead(2, isr=(2, 3))
        brokers.produce(2, b"c")
        assert committed(brokers, 2) == 2


def test_waiting_producers_and_consumers_are_woken(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1, 2))
        woken: list[int] = []
        brokers[1].replicas.watch_commits(NAME, lambda: woken.append(committed(brokers, 1)))
        brokers.produce(1, b"a")
        brokers.fetch(2, times=2)
        assert woken[-1] == 1
        brokers[1].replicas.watch_commits(NAME, None)
        seen = len(woken)
        brokers.produce(1, b"b")
        assert len(woken) == seen


def test_uncommitted_is_settled_once(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1, 2))
        leader = brokers[1].partition
        offset = brokers.produce(1, b"a", acks=-1)
        response = PartitionProduceResponse(index=0, error_code=0, base_offset=offset)
        waiting = Uncommitted(leader, leader.leadership, offset + 1, response)
        assert not waiting.is_settled()
        brokers.lead(2, isr=(1, 2))
        assert waiting.is_settled()
        assert response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_leader_whose_disk_is_full_leads_all_the_same_and_writes_its_epoch_when_there_is_room(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(2, isr=(1, 2))
        brokers.produce(2, b"a")
        brokers.fetch(1, times=2)
        brokers.disk.full.add(str(tmp_path / "broker-1"))
        brokers.lead(1, isr=(1, 2))
        assert brokers[1].partition.is_leader
        with pytest.raises(KafkaError) as caught:
            brokers.produce(1, b"b")
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        brokers.disk.full.clear()
        brokers.produce(1, b"b")
        brokers.fetch(2)
        assert brokers[2].values == ["a", "b"]
        assert brokers[1].log.leader_epochs.entries == ((0, 0), (1, 1))


def test_a_disk_that_fails_a_new_leader_does_not_keep_the_rest_of_the_metadata_from_being_applied(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(2, isr=(1, 2))
        brokers.disk.broken.add(str(tmp_path / "broker-1" / "orders-0"))
        brokers.lead(1, isr=(1, 2))
        assert brokers[1].replicas.image is brokers[1].image
        assert brokers[1].replicas.generation > 1
        assert not brokers[1].logs.online_dirs
