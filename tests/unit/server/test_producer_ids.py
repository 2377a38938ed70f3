from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.transactions import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from pybroker.server.producer_ids import MAX_PRODUCER_ID, ProducerIds


class Controller:
    def __init__(self, block_size: int = 1000) -> None:
        self.block_size = block_size
        self.requests: list[AllocateProducerIdsRequest] = []
        self.waiting: list[Callable[[Message], None]] = []
        self.start = 0

    def submit(self, request: Message, version: int, done: Callable[[Message], None]) -> None:
        assert isinstance(request, AllocateProducerIdsRequest)
        self.requests.append(request)
        self.waiting.append(done)

    def answer(self, error: ErrorCode = ErrorCode.NONE, *, start: int | None = None, size: int | None = None) -> None:
        start = self.start if start is None else start
        size = self.block_size if size is None else size
        self.start = start + size
        self.waiting.pop(0)(AllocateProducerIdsResponse(error_code=error, producer_id_start=start, producer_id_len=size))


def ids_from(controller: Controller) -> tuple[ProducerIds, list[int | None], Callable[[int], None]]:
    given: list[int | None] = []
    producer_ids = ProducerIds(controller, 3, lambda: 44)

    def take(count: int) -> None:
        for _ in range(count):
            producer_ids.take(given.append)

    return producer_ids, given, take


def test_a_block_is_asked_for_in_the_brokers_name_and_given_out_in_order() -> None:
    controller = Controller()
    _, given, take = ids_from(controller)
    take(2)
    assert given == []
    assert [(one.broker_id, one.broker_epoch) for one in controller.requests] == [(3, 44)]
    controller.answer(start=5000)
    take(1)
    assert given == [5000, 5001, 5002]
    assert len(controller.requests) == 1


def test_the_next_block_is_asked_for_before_this_one_is_used_up_so_that_nobody_waits() -> None:
    controller = Controller()
    _, given, take = ids_from(controller)
    take(1)
    controller.answer()
    take(898)
    assert len(controller.requests) == 1
    take(1)
    assert len(controller.requests) == 2
    take(50)
    controller.answer(start=7000)
    take(60)
    assert given == [*range(1000), *range(7000, 7010)]
    assert len(controller.requests) == 2


def test_those_who_wait_are_served_when_the_block_comes_and_more_than_a_block_of_them_by_the_next() -> None:
    controller = Controller(block_size=10)
    _, given, take = ids_from(controller)
    take(25)
    assert len(controller.requests) == 1
    for _ in range(3):
        controller.answer()
    assert given == list(range(25))


def test_a_refusal_is_told_to_all_who_wait_and_the_next_one_asks_again(caplog: pytest.LogCaptureFixture) -> None:
    controller = Controller()
    _, given, take = ids_from(controller)
    take(2)
    controller.answer(ErrorCode.BROKER_ID_NOT_REGISTERED)
    assert given == [None, None]
    assert "BROKER_ID_NOT_REGISTERED" in caplog.text
    take(1)
    controller.answer(start=0)
    assert given == [None, None, 0]


@pytest.mark.parametrize(("start", "size"), [(-5, 1000), (0, 0), (MAX_PRODUCER_ID - 5, 1000)])
def test_a_block_that_cannot_be_is_not_used(start: int, size: int) -> None:
    controller = Controller()
    _, given, take = ids_from(controller)
    take(1)
    controller.answer(start=start, size=size)
    assert given == [None]


def test_no_id_is_given_twice_though_many_threads_ask() -> None:
    controller = Controller(block_size=10)
    lock = threading.Lock()

    class AtOnce(Controller):
        def submit(self, request: Message, version: int, done: Callable[[Message], None]) -> None:
            with lock:
                start = controller.start
                controller.start += 10
            done(AllocateProducerIdsResponse(error_code=0, producer_id_start=start, producer_id_len=10))

    producer_ids, given, _ = ids_from(AtOnce())
    threads = [threading.Thread(target=lambda: [producer_ids.take(given.append) for _ in range(300)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert None not in given
    assert len(set(given)) == len(given) == 1200
