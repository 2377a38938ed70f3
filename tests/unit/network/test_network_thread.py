from __future__ import annotations

import asyncio
import builtins
import errno
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.reactor import TIMEOUT_S, FakeService, config, running
from support.waiting import wait_until

from pybroker.network import loop_thread
from pybroker.network.loop_thread import new_event_loop
from pybroker.network.network_thread import NetworkThread
from pybroker.network.request_queue import RequestQueue


@pytest.fixture
def thread() -> Iterator[NetworkThread]:
    one = NetworkThread("tested", RequestQueue(10, -1, lambda: None), -1, lambda _: None)
    one.start()
    yield one
    one.stop(TIMEOUT_S)


def test_posted_calls_run_on_the_thread_in_order(thread: NetworkThread) -> None:
    calls: list[tuple[int, int]] = []
    for number in range(1000):
        thread.post(lambda n: calls.append((n, threading.get_ident())), number)
    wait_until(lambda: len(calls) == 1000, TIMEOUT_S, lambda: f"{len(calls)} calls")
    assert calls == [(number, thread.ident) for number in range(1000)]


def test_what_comes_while_it_is_busy_wakes_it_once(thread: NetworkThread, monkeypatch: pytest.MonkeyPatch) -> None:
    busy, go, done = threading.Event(), threading.Event(), threading.Event()
    writes: list[int] = []
    write = loop_thread.os.write
    thread.post(lambda: (busy.set(), go.wait(TIMEOUT_S)))
    assert busy.wait(TIMEOUT_S)
    monkeypatch.setattr(loop_thread.os, "write", lambda fd, data: (writes.append(fd), write(fd, data)))
    for _ in range(100):
        thread.post(lambda: None)
    thread.post(done.set)
    go.set()
    assert done.wait(TIMEOUT_S)
    assert len(writes) == 1


def test_a_post_from_many_threads_is_never_lost(thread: NetworkThread) -> None:
    counts: list[int] = []

    def work() -> None:
        for number in range(2000):
            thread.post(counts.append, number)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    wait_until(lambda: len(counts) == 8000, TIMEOUT_S, lambda: f"{len(counts)} of 8000")


def test_a_posted_call_that_fails_does_not_end_the_thread(thread: NetworkThread, caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()
    thread.post(lambda: 1 // 0)
    thread.post(done.set)
    assert done.wait(TIMEOUT_S)
    assert "ZeroDivisionError" in caplog.text


def test_a_call_on_the_thread_itself_is_made_at_once(thread: NetworkThread) -> None:
    order: list[str] = []
    done = threading.Event()

    def first() -> None:
        thread.call(order.append, "called")
        thread.post(order.append, "posted")
        order.append("first")
        thread.post(done.set)

    thread.call(first)
    assert done.wait(TIMEOUT_S)
    assert order == ["called", "first", "posted"]


def test_what_is_to_be_done_soon_is_done_once_after_this_turn(thread: NetworkThread, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[object] = []

    def fail(argument: object) -> None:
        raise ValueError(argument)

    def turn() -> None:
        for argument in ("a", "b", "a"):
            thread.soon(calls.append, argument)
        thread.soon(fail, "this one")
        thread.soon(calls.append, "c")
        calls.append("still in the turn")

    assert thread.run(turn, TIMEOUT_S)
    wait_until(lambda: len(calls) == 4, TIMEOUT_S, lambda: str(calls))
    assert calls == ["still in the turn", "a", "b", "c"]
    assert "this one" in caplog.text
    assert thread.run(lambda: thread.soon(calls.append, "a"), TIMEOUT_S)
    wait_until(lambda: len(calls) == 5, TIMEOUT_S, lambda: str(calls))


def test_a_call_that_is_waited_for_is_given_up_in_time(thread: NetworkThread) -> None:
    go = threading.Event()
    thread.post(go.wait, TIMEOUT_S)
    assert not thread.run(lambda: None, 0.01)
    go.set()
    assert thread.run(lambda: None, TIMEOUT_S)


def test_guests_hear_of_the_end() -> None:
    thread = NetworkThread("hosting", RequestQueue(10, -1, lambda: None), -1, lambda _: None)
    thread.start()
    told: list[int] = []
    thread.post(thread.host, lambda: 1 / 0)
    thread.post(thread.host, lambda: told.append(threading.get_ident()))
    thread.stop(TIMEOUT_S)
    assert told == [thread.ident]


def test_a_post_after_the_end_is_dropped() -> None:
    ended = NetworkThread("tested", RequestQueue(10, -1, lambda: None), -1, lambda _: None)
    ended.start()
    ended.stop(TIMEOUT_S)
    ended.post(lambda: pytest.fail("called"))


def test_without_uvloop_the_standard_library_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without_uvloop(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "uvloop":
            raise ImportError(name)
        return original(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_uvloop)
    loop = new_event_loop()
    assert type(loop) is asyncio.SelectorEventLoop
    loop.close()
    with running() as node:
        client = node.client()
        client.send(1, 2)
        assert client.receive_ids(2) == [1, 2]


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_connections_reset_by_their_peers_are_noticed(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """uvloop stops watching a socket with an error and calls nobody back."""
    monkeypatch.setenv("PYBROKER_EVENT_LOOP", loop)
    with running() as node:
        clients = [node.client() for _ in range(50)]
        node.wait_for_connections(50)
        for client in clients:
            client.reset()
        node.wait_for_connections(0)


def test_with_a_pipe_where_there_is_no_eventfd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(loop_thread.os, "eventfd")
    with running(FakeService(lambda request: request.may_block and request.respond_nothing() is None), config()) as node:
        client = node.client()
        client.send(1)
        wait_until(lambda: len(node.service.seen) == 2, TIMEOUT_S, lambda: str(node.service.seen))


def test_other_errors_of_the_loop_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    loop = new_event_loop()
    for context in ({"exception": OSError(errno.EBADF, "of uvloop")}, {"message": "unexpected", "exception": OSError(5, "x")}):
        loop_thread._log_exception(loop, context)
    loop.close()
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == ["unexpected"]
