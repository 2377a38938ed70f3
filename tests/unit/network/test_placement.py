from __future__ import annotations

import sys

import pytest

from pybroker.network.placement import NetworkThreads, takes_turns


class FakeThread:
    def __init__(self, number: int) -> None:
        self.number = number
        self.is_started = False

    def start(self) -> None:
        self.is_started = True


def threads(size: int, placement: str) -> NetworkThreads:
    return NetworkThreads(size, placement, FakeThread)  # type: ignore[arg-type]


def chosen(threads: NetworkThreads, count: int) -> list[int]:
    return [threads.choose().number for _ in range(count)]  # type: ignore[attr-defined]


def test_auto_fills_the_first_while_there_is_a_gil(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)
    assert not takes_turns("auto")
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert takes_turns("auto")
    assert not takes_turns("fill")
    monkeypatch.delattr(sys, "_is_gil_enabled", raising=False)
    assert not takes_turns("auto")
    assert takes_turns("round-robin")


def test_fill_starts_one() -> None:
    filled = threads(3, "fill")
    filled.start()
    assert chosen(filled, 5) == [0] * 5
    assert len(filled.started) == 1


def test_round_robin_starts_each_with_its_first_connection() -> None:
    turns = threads(3, "round-robin")
    turns.start()
    assert chosen(turns, 2) == [0, 1]
    assert len(turns.started) == 2
    assert chosen(turns, 4) == [2, 0, 1, 2]
    assert all(thread.is_started for thread in turns.started)  # type: ignore[attr-defined]


def test_a_smaller_number_holds_for_new_connections() -> None:
    turns = threads(3, "round-robin")
    turns.start()
    chosen(turns, 3)
    turns.resize(2)
    assert chosen(turns, 4) == [1, 0, 1, 0]
    assert len(turns.started) == 3
