from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.waiting import wait_until
from unit.server.clusters import Clock
from unit.server.test_broker_lifecycle import IDENTITY, SETTINGS

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.cluster import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from pybroker.server.broker_lifecycle import (
    BrokerLifecycle,
    BrokerState,
    ControlledShutdownRequested,
    MetadataPublished,
    Recovered,
    Started,
    StopRequested,
)
from pybroker.server.broker_membership import BrokerMembership

WAIT_S = 20.0
EPOCH = 42


class Controller:
    """Keeps what it is asked; `answers`, if there are any, are given at once, on the asking thread."""

    def __init__(self) -> None:
        self.asked: list[tuple[Message, int, Callable[[Message | None], None]]] = []
        self.at_once = False

    def ask(self, request: Message, timeout_ms: int, done: Callable[[Message | None], None]) -> None:
        self.asked.append((request, timeout_ms, done))
        if self.at_once:
            self.answer()

    def take(self) -> tuple[Any, Callable[[Message | None], None]]:
        ((request, timeout_ms, done),) = self.asked
        assert timeout_ms > 0
        self.asked.clear()
        return request, done

    def answer(self) -> None:
        """As a controller does that is content with everything."""
        request, done = self.take()
        if isinstance(request, BrokerRegistrationRequest):
            done(BrokerRegistrationResponse(error_code=0, broker_epoch=EPOCH))
        else:
            done(heartbeat_answer(is_fenced=request.want_fence, should_shut_down=request.want_shut_down))

    def fail(self) -> None:
        self.take()[1](None)


def heartbeat_answer(**fields: Any) -> BrokerHeartbeatResponse:
    values = {"error_code": 0, "is_caught_up": True, "is_fenced": False, "should_shut_down": False} | fields
    return BrokerHeartbeatResponse(**values)


class Broker:
    def __init__(self) -> None:
        self.clock = Clock()
        self.controller = Controller()
        self.stopped: list[str] = []
        lifecycle = BrokerLifecycle(IDENTITY, SETTINGS, draw_below=lambda limit: limit // 2)
        self.membership = BrokerMembership(lifecycle, self.controller, self.clock.timer, self.clock.now_ms, self.stopped.append)

    def join(self) -> None:
        self.controller.at_once = True
        self.membership.tell(Started())
        self.membership.tell(MetadataPublished(EPOCH))
        self.membership.tell(Recovered())
        self.clock.advance(1)
        assert self.membership.state is BrokerState.RUNNING
        self.controller.at_once = False


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_a_broker_registers_and_is_let_in(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    membership, controller = broker.membership, broker.controller
    assert (membership.state, membership.broker_epoch) == (BrokerState.NOT_RUNNING, -1)
    membership.tell(Started())
    assert isinstance(controller.asked[0][0], BrokerRegistrationRequest)
    controller.answer()
    assert membership.broker_epoch == EPOCH
    assert "registered, with broker epoch 42" in caplog.text
    membership.tell(MetadataPublished(EPOCH))
    broker.clock.advance(1)
    controller.answer()
    assert membership.state is BrokerState.RECOVERY
    membership.tell(Recovered())
    broker.clock.advance(1)
    controller.answer()
    assert membership.state is BrokerState.RUNNING
    assert "unfenced by the controller" in caplog.text


def test_answers_that_come_at_once_are_taken_in_order_and_not_within_each_other(broker: Broker) -> None:
    """A controller of this very node answers on the asking thread."""
    broker.join()
    assert broker.membership.broker_epoch == EPOCH


def test_heartbeats_go_out_by_the_timer(broker: Broker) -> None:
    broker.join()
    for _ in range(3):
        broker.clock.advance(SETTINGS.heartbeat_interval_ms)
        request, done = broker.controller.take()
        assert isinstance(request, BrokerHeartbeatRequest)
        assert request.broker_epoch == EPOCH
        done(heartbeat_answer())


def test_a_controller_that_does_not_answer_is_asked_again(broker: Broker) -> None:
    broker.membership.tell(Started())
    broker.controller.fail()
    broker.clock.advance(SETTINGS.session_timeout_ms)
    assert isinstance(broker.controller.asked[0][0], BrokerRegistrationRequest)


def test_a_refusal_is_told_to_people(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    broker.membership.tell(Started())
    _request, done = broker.controller.take()
    done(BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION, broker_epoch=-1))
    assert "does not register this broker" in caplog.text


def test_whoever_waits_for_a_state_goes_on_when_it_comes(broker: Broker) -> None:
    membership = broker.membership
    assert not membership.wait_for(BrokerState.RUNNING, timeout_s=0.01)
    reached: list[bool] = []
    waiting = threading.Thread(
        target=lambda: reached.append(membership.wait_for(BrokerState.RUNNING, BrokerState.SHUTTING_DOWN, timeout_s=WAIT_S))
    )
    waiting.start()
    broker.join()
    waiting.join(WAIT_S)
    assert reached == [True]


def test_a_broker_that_never_gets_in_stops_when_its_time_is_up(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    broker.membership.tell(Started())
    while broker.clock.now < SETTINGS.initial_registration_timeout_ms + 2000 and not broker.stopped:
        if broker.controller.asked:
            broker.controller.fail()
        broker.clock.advance(100)
    (reason,) = broker.stopped
    assert reason in caplog.text


def test_a_controlled_shutdown_waits_for_the_controllers_word(broker: Broker) -> None:
    broker.join()
    broker.membership.tell(ControlledShutdownRequested())
    assert broker.membership.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
    _request, done = broker.controller.take()
    done(heartbeat_answer())
    assert not broker.membership.wait_for(BrokerState.SHUTTING_DOWN, timeout_s=0.01)
    broker.clock.advance(SETTINGS.heartbeat_interval_ms)
    _request, done = broker.controller.take()
    done(heartbeat_answer(should_shut_down=True))
    assert broker.membership.wait_for(BrokerState.SHUTTING_DOWN, timeout_s=0)


def test_a_stop_ends_the_heartbeats(broker: Broker) -> None:
    broker.join()
    broker.membership.tell(StopRequested())
    assert broker.membership.state is BrokerState.SHUTTING_DOWN
    broker.controller.asked.clear()
    broker.clock.advance(10 * SETTINGS.heartbeat_interval_ms)
    assert not broker.controller.asked


def test_a_mistake_while_one_thing_is_done_does_not_keep_the_rest_from_being_done(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(broker.controller, "ask", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            broker.membership.tell(Started())
    broker.clock.advance(SETTINGS.session_timeout_ms)
    broker.membership.tell(StopRequested())
    assert broker.membership.state is BrokerState.SHUTTING_DOWN
    assert not broker.membership._effects


def test_many_threads_tell_and_every_effect_is_done_once(broker: Broker) -> None:
    broker.join()
    threads = [
        threading.Thread(target=lambda: [broker.membership.tell(MetadataPublished(EPOCH + n)) for n in range(50)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    wait_until(lambda: not broker.membership._is_running, WAIT_S, lambda: "somebody still runs effects")
    broker.clock.advance(SETTINGS.heartbeat_interval_ms)
    request, _done = broker.controller.take()
    assert request.current_metadata_offset == EPOCH + 49
