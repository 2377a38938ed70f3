"""A follower's fetch that finds nothing waits at its leader: what it is answered with, and when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.batches import sized_batch
from unit.replication.brokers import MAX_LAG_MS, Brokers, FakeRequest

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from pybroker.replication.partition import Partition

WAIT_MS = 500
SIZE = 1000


def waiting(brokers: Brokers) -> list[Message]:
    """Broker 2 follows broker 1 and has all, and its next fetch waits there; the answer will be in the list."""
    brokers.lead(1, isr=(1, 2))
    brokers.produce(1, b"first")
    brokers.fetch(2, times=4)
    answers: list[Message] = []
    _, request, _ = brokers[2].asked.pop(0)
    assert isinstance(request, FetchRequest)
    request.max_wait_ms = WAIT_MS
    fake: Any = FakeRequest(FetchRequest.VERSIONS.high, answers.append)
    assert brokers[1].fetches.handle_fetch(fake, request) is None
    assert answers == []
    return answers


def append(brokers: Brokers) -> None:
    """As producers' batches are under load."""
    leader = brokers[1]
    data = memoryview(sized_batch(SIZE))
    assert leader.log.append_plain_batches([data], leader.partition.leader_epoch, 1_000, commits=False)
    leader.replicas.wake(leader.partition)


def only(answers: list[Message]) -> PartitionData:
    (answer,) = answers
    assert isinstance(answer, FetchResponse)
    ((data,),) = [topic.partitions for topic in answer.responses]
    return data


def test_it_is_answered_with_what_is_appended_without_another_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        answers = waiting(brokers)
        monkeypatch.setattr(Partition, "read", lambda *_, **__: pytest.fail("this is the way of those that need more care"))
        append(brokers)
        data = only(answers)
        assert (data.error_code, len(data.records), data.high_watermark) == (0, SIZE, 1)


def test_it_is_answered_with_nothing_when_its_time_is_over(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        answers = waiting(brokers)
        brokers.pass_time(WAIT_MS)
        brokers.due(1)
        (answer,) = answers
        assert isinstance(answer, FetchResponse)
        assert (answer.error_code, answer.responses) == (0, [])


def test_a_follower_that_came_anew_meanwhile_gets_nothing_by_what_its_former_life_asked_for(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        answers = waiting(brokers)
        brokers.register(2, epoch=99)
        append(brokers)
        data = only(answers)
        assert (data.error_code, len(data.records)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)


def test_a_follower_that_left_the_isr_meanwhile_gets_the_same_by_the_long_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        answers = waiting(brokers)
        leader = brokers[1]
        # It lags behind a record that it does not hear of, for too long.
        assert leader.log.append_plain_batches([memoryview(sized_batch(SIZE))], 0, 1_000, commits=False)
        brokers.pass_time(MAX_LAG_MS + 1)
        leader.replicas.check_lag()
        assert brokers.proposal_of(1) == [1]
        brokers.decide(1)
        assert leader.partition.leadership is not None
        assert leader.partition.leadership.isr == {1}
        looked = []
        read = Partition.read
        monkeypatch.setattr(Partition, "read", lambda *one, **more: looked.append(one) or read(*one, **more))
        leader.replicas.wake(leader.partition)
        data = only(answers)
        assert len(looked) == 1
        assert (data.error_code, len(data.records), data.high_watermark) == (0, SIZE, 2)


def test_a_new_epoch_of_the_leader_is_told(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        answers = waiting(brokers)
        brokers.lead(1, isr=(1, 2), heard_by=(1,))
        assert only(answers).error_code == ErrorCode.FENCED_LEADER_EPOCH
