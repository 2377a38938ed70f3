from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import pytest
from unit.replication.brokers import Brokers

from pybroker.protocol.messages.fetch import FetchResponse
from pybroker.replication.partition import Partition


def test_a_follower_whose_disk_was_full_goes_on_when_there_is_room(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1, 2))
        brokers.produce(1, b"a")
        brokers.disk.full.add(str(tmp_path / "broker-2"))
        brokers.fetch(2)
        assert brokers[2].values == []
        brokers.disk.full.clear()
        brokers.pass_time(2000)
        brokers.fetch(2)
        assert brokers[2].values == ["a"]


def test_a_follower_that_could_not_truncate_on_a_full_disk_does_when_there_is_room(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(2, isr=(1, 2))
        brokers.produce(2, b"a")
        brokers.fetch(1)
        brokers.lead(2, isr=(2,))
        brokers.produce(2, b"lost")
        brokers.lead(1, isr=(1,))
        brokers.produce(1, b"b", b"c")
        # The epochs are written anew when the log is cut.
        brokers.disk.full.add(str(tmp_path / "broker-2"))
        brokers.fetch(2)
        brokers.disk.full.clear()
        for _ in range(2):
            brokers.pass_time(2000)
            brokers.fetch(2)
        assert brokers[2].values == ["a", "b", "c"]


def test_a_partition_that_meets_an_error_of_ours_does_not_end_the_fetching(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> bool:
        raise AssertionError("a bug")

    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1, 2))
        brokers.produce(1, b"a")
        with monkeypatch.context() as patched:
            patched.setattr(Partition, "append_fetched", broken)
            brokers.fetch(2)
        brokers.pass_time(2000)
        brokers.fetch(2)
        assert brokers[2].values == ["a"]


@pytest.mark.parametrize("is_of_partition", [False, True])
def test_an_error_code_of_a_later_release_does_not_end_the_fetching(tmp_path: Path, is_of_partition: bool) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1, 2))
        brokers.produce(1, b"a")
        source, request, done = brokers[2].asked.pop(0)
        answer = brokers.answer(source, request)
        assert isinstance(answer, FetchResponse)
        if is_of_partition:
            answer.responses[0].partitions[0].error_code = 9999
        else:
            answer.error_code, answer.responses = 9999, []
        done(answer)
        brokers.pass_time(2000)
        brokers.fetch(2)
        assert brokers[2].values == ["a"]


def test_an_answer_does_not_wait_for_whoever_holds_the_fetcher(tmp_path: Path) -> None:
    """Say a truncation: the thread that brings the answer serves other connections, too."""
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1, 2))
        brokers.produce(1, b"a")
        (driver,) = brokers[2].fetchers._drivers.values()
        later: list[Any] = []
        background: Any = SimpleNamespace(run=later.append)
        driver._ports = dataclasses.replace(driver._ports, background=background)
        with driver._lock:
            brokers.fetch(2)
            assert brokers[2].values == []
        (job,) = later
        job()
        assert brokers[2].values == ["a"]
        brokers.fetch(2)
        assert len(later) == 1


@pytest.mark.parametrize("number", [2, 3])
def test_a_partition_goes_on_with_another_fetcher_when_their_number_changes(tmp_path: Path, number: int) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1, 2))
        brokers.produce(1, b"a")
        brokers.fetch(2)
        brokers.produce(1, b"b")
        follower = brokers[2]
        ((source, request, done),) = follower.asked
        follower.replicas.resize_fetchers(number)
        ((_, place),) = follower.fetchers._drivers
        assert place == crc32(b"orders-0") % number
        # What the former one had asked for comes too late.
        follower.asked.remove((source, request, done))
        done(brokers.answer(source, request))
        if place:
            assert follower.values == ["a"]
            brokers.fetch(2)
        assert follower.values == ["a", "b"]
        brokers.produce(1, b"c")
        brokers.fetch(2)
        assert follower.values == ["a", "b", "c"]
        follower.replicas.resize_fetchers(1)
        assert list(follower.fetchers._drivers) == [(1, 0)]
        assert len(follower.fetchers) == 1
