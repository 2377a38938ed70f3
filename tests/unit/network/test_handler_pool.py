"""The request queue and the handler threads: lazily started, bounded, nothing lost."""

from __future__ import annotations

import threading

import pytest
from support.reactor import TIMEOUT_S, FakeService, Later, answer, config, frame, running
from support.waiting import wait_until

from pybroker.network.request import Request


class Held:
    """Requests wait on a handler thread until the test lets them go."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.inside = 0
        self.most_inside = 0
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> bool:
        if not request.may_block:
            return False
        with self._lock:
            self.inside += 1
            self.most_inside = max(self.most_inside, self.inside)
        assert self.release.wait(TIMEOUT_S)
        with self._lock:
            self.inside -= 1
        answer(request)
        return True


def handlers() -> int:
    return sum(thread.name.startswith("request-handler-") for thread in threading.enumerate())


def test_threads_start_when_needed_and_no_more_than_told() -> None:
    held = Held()
    with running(FakeService(held), config(num_io_threads=3)) as node:
        assert handlers() == 0
        clients = [node.client() for _ in range(5)]
        clients[0].send(1)
        wait_until(lambda: held.inside == 1, TIMEOUT_S, lambda: "not handled")
        assert handlers() == 1
        for client in clients[1:]:
            client.send(1)
        wait_until(lambda: held.inside == 3, TIMEOUT_S, lambda: f"{held.inside} at once, not 3")
        held.release.set()
        for client in clients:
            assert client.receive_ids(1) == [1]
        assert handlers() == 3
    assert held.most_inside == 3


def test_one_thread_is_enough_for_what_comes_one_after_the_other() -> None:
    held = Held()
    held.release.set()
    with running(FakeService(held)) as node:
        client = node.client()
        for number in range(50):
            client.send(number)
            assert client.receive_ids(1) == [number]
        assert handlers() <= 2


def test_all_whole_frames_of_a_connection_hop_together() -> None:
    held = Held()
    held.release.set()
    with running(FakeService(held)) as node:
        client = node.client()
        client.send(*range(20))
        assert client.receive_ids(20) == list(range(20))
    inline = [correlation_id for correlation_id, may_block, _ in node.service.seen if not may_block]
    assert inline == [0]


def test_while_requests_wait_others_queue_behind_them() -> None:
    held = Held()

    def handle(request: Request) -> bool:
        if request.correlation_id == 99:
            answer(request)
            return True
        return held(request)

    with running(FakeService(handle), config(num_io_threads=1)) as node:
        first, second, third = node.client(), node.client(), node.client()
        first.send(1)
        wait_until(lambda: held.inside == 1, TIMEOUT_S, lambda: "not handled")
        second.send(2)
        wait_until(lambda: node.queue_size() == 1, TIMEOUT_S, lambda: "not queued")
        third.send(99)
        wait_until(lambda: node.queue_size() == 2, TIMEOUT_S, lambda: "not queued")
        held.release.set()
        for client, number in ((first, 1), (second, 2), (third, 99)):
            assert client.receive_ids(1) == [number]
    assert (99, True, "request-handler-0") in node.service.seen
    assert (99, False, "network-thread-PLAINTEXT-0") not in node.service.seen


@pytest.mark.parametrize(
    "settings", [{"queued_max_requests": 5}, {"queued_max_request_bytes": 50_000, "socket_request_max_bytes": 50_000}]
)
def test_a_full_queue_stops_reading_and_nothing_is_lost(settings: dict[str, int]) -> None:
    held = Held()
    body = bytes(10_000)
    with running(FakeService(held), config(num_io_threads=1, **settings)) as node:
        clients = [node.client() for _ in range(40)]
        for number, client in enumerate(clients):
            client.socket.sendall(frame(number, body=body))
        wait_until(lambda: node.is_full(), TIMEOUT_S, lambda: f"{node.queue_size()} queued")
        late = node.client()
        late.socket.sendall(frame(1000, body=body) * 3)
        node.wait_for_connections(41)
        assert node.queue_size() <= 6
        held.release.set()
        for number, client in enumerate(clients):
            assert client.receive_ids(1) == [number]
        assert late.receive_ids(3) == [1000] * 3
        for client in clients:
            client.send(7)
        for client in clients:
            assert client.receive_ids(1) == [7]
        assert node.queue_size() == 0


def test_a_late_answer_does_not_hold_the_handler_thread() -> None:
    later = Later()

    def handle(request: Request) -> bool:
        if not request.may_block:
            return False
        return later(request)

    with running(FakeService(handle), config(num_io_threads=1)) as node:
        clients = [node.client() for _ in range(10)]
        for number, client in enumerate(clients):
            client.send(number, number + 100)
        later.wait(10)
        for request in list(later.requests):
            answer(request)
        later.wait(20)
        for request in later.requests[10:]:
            answer(request)
        for number, client in enumerate(clients):
            assert client.receive_ids(2) == [number, number + 100]


def test_connections_that_end_in_the_queue_are_passed_over() -> None:
    held = Held()
    with running(FakeService(held), config(num_io_threads=1)) as node:
        clients = [node.client() for _ in range(5)]
        for client in clients:
            client.send(1, 2, 3)
        wait_until(lambda: held.inside == 1, TIMEOUT_S, lambda: "not handled")
        last = node.client()
        last.send(9)
        for client in clients:
            client.reset()
        held.release.set()
        assert last.receive_ids(1) == [9]
        node.wait_for_connections(1)


def test_the_number_of_threads_may_change() -> None:
    held = Held()
    with running(FakeService(held), config(num_io_threads=2)) as node:
        clients = [node.client() for _ in range(4)]
        for client in clients:
            client.send(1)
        wait_until(lambda: held.inside == 2, TIMEOUT_S, lambda: f"{held.inside}")
        node.server.reconfigure(config(num_io_threads=4))
        more = [node.client() for _ in range(2)]
        for client in more:
            client.send(1)
        wait_until(lambda: held.inside == 4, TIMEOUT_S, lambda: f"{held.inside} at once, not 4")
        held.release.set()
        for client in clients + more:
            assert client.receive_ids(1) == [1]
        node.server.reconfigure(config(num_io_threads=1))
        wait_until(lambda: handlers() == 1, TIMEOUT_S, lambda: f"{handlers()} threads")
        clients[0].send(2)
        assert clients[0].receive_ids(1) == [2]


class Threads:
    """The system's threads: `left` of them can still be started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, left: int) -> None:
        self.left = left
        start = threading.Thread.start

        def start_if_there_is_one(thread: threading.Thread) -> None:
            if thread.name.startswith("request-handler-"):
                if not self.left:
                    raise RuntimeError("can't start new thread")
                self.left -= 1
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_if_there_is_one)


def test_a_thread_that_cannot_be_started_takes_no_place_in_the_pool(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    held = Held()
    with running(FakeService(held), config(num_io_threads=2)) as node:
        threads = Threads(monkeypatch, left=1)
        clients = [node.client() for _ in range(3)]
        clients[0].send(1)
        wait_until(lambda: held.inside == 1, TIMEOUT_S, lambda: "not handled")
        clients[1].send(2)
        wait_until(lambda: node.queue_size() == 1, TIMEOUT_S, lambda: "not queued")
        threads.left = 1
        clients[2].send(3)
        wait_until(lambda: held.inside == 2, TIMEOUT_S, lambda: f"{held.inside} at once, not 2")
        held.release.set()
        for number, client in enumerate(clients):
            assert client.receive_ids(1) == [number + 1]
    assert "no thread more than these 1" in caplog.text


def test_a_request_that_no_thread_can_be_started_for_costs_its_connection_and_the_next_one_is_served(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    held = Held()
    held.release.set()
    with running(FakeService(held), config(num_io_threads=2, queued_max_requests=1)) as node:
        threads = Threads(monkeypatch, left=0)
        client, other = node.client(), node.client()
        client.send(1, 2)
        assert client.is_closed_by_server()
        assert node.queue_size() == 0
        assert not node.is_full()
        threads.left = 1
        other.send(3)
        assert other.receive_ids(1) == [3]
    assert "can't start new thread" in caplog.text
