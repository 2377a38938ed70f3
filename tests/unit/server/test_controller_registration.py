from __future__ import annotations

from collections.abc import Callable

import pytest
from unit.server.clusters import Clock, Cluster

from pybroker.base.ids import Uuid
from pybroker.metadata.controller.features import CONTROLLER_REGISTRATION, METADATA_VERSION
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.metadata_log import FeatureLevelRecord, RegisterControllerRecord
from pybroker.protocol.message import Message
from pybroker.protocol.messages.cluster import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
    Listener,
)
from pybroker.server.controller_registration import SHOWN_WITHIN_MS, ControllerIdentity, ControllerRegistrar

OURS, OTHER = Uuid(b"o" * 16), Uuid(b"x" * 16)
LISTENER = Listener(name="CONTROLLER", host="127.0.0.1", port=9093, security_protocol=0)
FEATURE = Feature(name="kraft.version", min_supported_version=0, max_supported_version=1)
REQUEST = ControllerRegistrationRequest(
    controller_id=3, incarnation_id=OURS, zk_migration_ready=False, listeners=[LISTENER], features=[FEATURE]
)
ACKNOWLEDGED = ControllerRegistrationResponse(error_code=0, error_message=None)


class Node:
    """A controller in virtual time; the test plays the active one."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.asked: list[tuple[Message, Callable[[Message | None], None]]] = []
        self.registrar = ControllerRegistrar(
            ControllerIdentity(3, OURS, [LISTENER], [FEATURE]),
            self._ask,
            self.clock.timer,
            self.clock.now_ms,
            lambda limit: limit // 2,
        )
        self.cluster = Cluster(self.registrar.publish)

    def _ask(self, message: Message, timeout_ms: int, done: Callable[[Message | None], None]) -> None:
        self.asked.append((message, done))

    def level(self, level: int = CONTROLLER_REGISTRATION) -> None:
        self.cluster.apply(FeatureLevelRecord(name=METADATA_VERSION, feature_level=level))

    def shows(self, incarnation_id: Uuid) -> None:
        record = RegisterControllerRecord(
            controller_id=3, incarnation_id=incarnation_id, zk_migration_ready=False, end_points=[], features=[]
        )
        self.cluster.apply(record)

    def something_else_happens(self) -> None:
        self.cluster.broker(9)

    def take(self) -> Callable[[Message | None], None]:
        ((message, done),) = self.asked
        self.asked.clear()
        assert message == REQUEST
        return done


@pytest.fixture
def node() -> Node:
    return Node()


def test_a_controller_registers_once_the_metadata_allow_it(node: Node) -> None:
    node.level(CONTROLLER_REGISTRATION - 1)
    assert not node.asked
    node.level()
    node.take()(ACKNOWLEDGED)
    # Until the metadata show it, it waits.
    node.something_else_happens()
    node.clock.advance(SHOWN_WITHIN_MS - 1)
    assert not node.asked
    node.shows(OURS)
    node.something_else_happens()
    assert not node.asked


def test_only_one_request_is_under_way(node: Node) -> None:
    node.level()
    node.something_else_happens()
    assert len(node.asked) == 1


def test_a_controller_found_in_the_metadata_at_its_start_is_a_former_incarnation(node: Node) -> None:
    node.shows(OTHER)
    node.level()
    node.take()


def test_one_that_is_there_already_does_not_ask(node: Node) -> None:
    node.shows(OURS)
    node.level()
    assert not node.asked


def test_when_the_metadata_show_another_incarnation_it_registers_again(node: Node) -> None:
    node.level()
    node.take()(ACKNOWLEDGED)
    node.shows(OURS)
    node.shows(OTHER)
    node.take()(ACKNOWLEDGED)
    node.shows(OURS)
    assert not node.asked


def test_an_answer_that_the_metadata_have_overtaken_says_nothing_any_more(node: Node) -> None:
    node.level()
    done = node.take()
    node.shows(OURS)
    node.shows(OTHER)
    done(ACKNOWLEDGED)
    node.take()


def test_one_that_was_acknowledged_but_is_not_shown_asks_again(node: Node) -> None:
    """Cluster swarm seed 5144. A late request of the former incarnation was written just behind the new one's, both came in one
    image, and that showed what it had always shown."""
    node.level()
    node.shows(OTHER)
    done = node.take()
    done(ACKNOWLEDGED)
    node.shows(OTHER)
    node.clock.advance(SHOWN_WITHIN_MS - 1)
    assert node.asked == []
    node.clock.advance(1)
    node.take()(ACKNOWLEDGED)
    node.shows(OURS)
    node.clock.advance(2 * SHOWN_WITHIN_MS)
    assert node.asked == []


def test_without_an_answer_it_asks_again_after_growing_pauses(node: Node) -> None:
    node.level()
    refusal = ControllerRegistrationResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message="not here")
    for pause_ms in (100, 200, 400, 800):
        node.take()(None if pause_ms % 400 else refusal)
        node.clock.advance(pause_ms - 1)
        node.something_else_happens()
        assert not node.asked
        node.clock.advance(1)
    node.take()(ACKNOWLEDGED)
    node.clock.advance(SHOWN_WITHIN_MS - 1)
    assert not node.asked


def test_the_pauses_have_an_end(node: Node) -> None:
    node.level()
    for _ in range(30):
        node.take()(None)
        node.clock.advance(120_000)
    node.take()


def test_a_pause_is_over_when_the_metadata_show_it_all_the_same(node: Node) -> None:
    """The answer was lost, not the registration."""
    node.level()
    node.take()(None)
    node.shows(OURS)
    node.clock.advance(1000)
    assert not node.asked


def test_a_controller_that_cannot_be_asked_at_the_moment_answers_at_once(node: Node) -> None:
    calls: list[Message] = []

    def nobody(message: Message, timeout_ms: int, done: Callable[[Message | None], None]) -> None:
        calls.append(message)
        done(None)

    node.registrar._ask = nobody
    node.level()
    node.clock.advance(100)
    node.clock.advance(200)
    assert len(calls) == 3


def test_after_the_stop_it_asks_no_more(node: Node) -> None:
    node.level()
    node.take()(None)
    node.registrar.stop()
    node.clock.advance(1000)
    node.something_else_happens()
    assert not node.asked
