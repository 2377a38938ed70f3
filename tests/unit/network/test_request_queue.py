from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from support.reactor import TIMEOUT_S
from support.waiting import wait_until

from pybroker.network.request_queue import RequestQueue


class Item(SimpleNamespace):
    __hash__ = object.__hash__


def item(requests: int = 1, size_bytes: int = 10) -> Any:
    return Item(pending=[memoryview(bytes(size_bytes))] * requests)


def queue(max_requests: int = 4, max_bytes: int = -1) -> RequestQueue:
    return RequestQueue(max_requests, max_bytes, lambda: None)


def test_first_come_first_served() -> None:
    requests = queue()
    first, second = item(), item(3)
    requests.put(first)
    requests.put(second)
    assert requests.waiting == 4
    assert requests.get() is first
    assert requests.waiting == 3
    assert requests.get() is second
    assert requests.waiting == 0


def test_full_at_its_bound_and_open_again_at_half_of_it() -> None:
    requests = queue(4)
    for number in range(4):
        assert not requests.is_full, number
        requests.put(item())
    assert requests.is_full
    requests.get()
    assert requests.is_full
    requests.get()
    assert not requests.is_full


def test_one_item_may_go_beyond_the_bound_since_it_is_in_memory_already() -> None:
    requests = queue(4)
    requests.put(item(10))
    assert requests.is_full
    requests.get()
    assert not requests.is_full


def test_full_by_bytes() -> None:
    requests = queue(100, max_bytes=1000)
    requests.put(item(1, 999))
    assert not requests.is_full
    requests.put(item(1, 1))
    assert requests.is_full
    requests.get()
    assert not requests.is_full


def test_those_who_wait_for_room_are_told_once() -> None:
    requests = queue(2)
    told: list[str] = []

    def wake() -> None:
        told.append("woken")

    assert not requests.wait_for_room(wake)
    requests.put(item(2))
    assert requests.wait_for_room(wake)
    assert requests.wait_for_room(wake)
    requests.get()
    assert told == ["woken"]
    requests.put(item(2))
    requests.get()
    assert told == ["woken"]


def test_a_handler_is_asked_for_when_none_waits() -> None:
    asked: list[int] = []
    requests = RequestQueue(10, -1, lambda: asked.append(1))
    requests.put(item())
    assert len(asked) == 1
    requests.get()
    got: list[Any] = []
    waiting = threading.Thread(target=lambda: got.append(requests.get()))
    waiting.start()
    wait_until(lambda: requests._idle == 1, TIMEOUT_S, lambda: "not waiting")
    requests.put(item())
    waiting.join(TIMEOUT_S)
    assert len(got) == 1
    assert len(asked) == 1


def test_a_handler_is_dismissed_after_what_was_put_before() -> None:
    requests = queue()
    first = item()
    requests.put(first)
    requests.dismiss()
    assert requests.get() is first
    assert requests.get() is None
