"""Markers reach every partition: wherever it is led, however often that takes, and for no coordinator that was replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pybroker.base.address import Address
from pybroker.base.ids import Uuid
from pybroker.base.timer import Timer
from pybroker.client.request_error import Failure, RequestError
from pybroker.coordinator.transaction.requests import SendMarkers
from pybroker.coordinator.transaction.transaction import State, Transaction
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import EMPTY_IMAGE
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.metadata_log import PartitionRecord, TopicRecord
from pybroker.protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pybroker.server.coordinators import marker_sender
from pybroker.server.coordinators.marker_sender import RETRY_MS, MarkerSender

OWN = 1
TOPIC_ID = Uuid(b"t".ljust(16, b"-"))


class Sent:
    """A request to another broker that has no answer yet."""

    def __init__(self, address: Address, request: WriteTxnMarkersRequest, done: Callable[[Any], None]) -> None:
        self.address = address
        self.markers = request.markers
        self._done = done

    def answer(self, code: int = ErrorCode.NONE) -> None:
        self._done(WriteTxnMarkersResponse(markers=answers(self.markers, code)))

    def fail(self) -> None:
        self._done(RequestError(Failure.TIMED_OUT, self.address, "no answer"))


def answers(markers: list[WritableTxnMarker], code: int) -> list[WritableTxnMarkerResult]:
    return [
        WritableTxnMarkerResult(
            producer_id=marker.producer_id,
            topics=[
                WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=[
                        WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                        for index in topic.partition_indexes
                    ],
                )
                for topic in marker.topics
            ],
        )
        for marker in markers
    ]


class World:
    def __init__(self) -> None:
        self.now_ms = 0
        self.timer = Timer(0)
        self.image = EMPTY_IMAGE
        self.epoch: int | None = 7
        self.sent: list[Sent] = []
        self.own: list[WritableTxnMarker] = []
        self.own_code = ErrorCode.NONE
        self.written: list[str] = []
        self.registered = {2, 3}
        self.sender = MarkerSender(
            OWN,
            image=lambda: self.image,
            address_of=lambda broker: Address("host", broker) if broker in self.registered else None,
            send=lambda address, request, timeout_ms, done: self.sent.append(Sent(address, request, done)),  # type: ignore[arg-type]
            write_here=self._write,
            epoch_of=lambda order: self.epoch,
            on_written=lambda order: self.written.append(order.transactional_id),
            timer=self.timer,
            now_ms=lambda: self.now_ms,
            timeout_ms=lambda: 30_000,
        )

    def _write(self, markers: list[WritableTxnMarker], done: Callable[[list[WritableTxnMarkerResult]], None]) -> None:
        self.own += markers
        done(answers(markers, self.own_code))

    def lead(self, *leaders: int) -> None:
        """The partitions of "t" are led by these; -1 by nobody."""
        delta = MetadataDelta(EMPTY_IMAGE)
        delta.replay(TopicRecord(name="t", topic_id=TOPIC_ID))
        for index, leader in enumerate(leaders):
            delta.replay(
                PartitionRecord(
                    partition_id=index,
                    topic_id=TOPIC_ID,
                    replicas=[1, 2, 3],
                    isr=[1, 2, 3],
                    removing_replicas=[],
                    adding_replicas=[],
                    leader=leader,
                    leader_epoch=0,
                    partition_epoch=0,
                )
            )
        self.image = delta.image(1, 1)

    def order(self, name: str, producer_id: int, *partitions: int, commits: bool = True) -> None:
        names = frozenset(("t", index) for index in partitions)
        state = State.PREPARE_COMMIT if commits else State.PREPARE_ABORT
        self.sender.send(SendMarkers(None, Transaction(name, producer_id, 1, 60_000, 0, state, names, client_version=2)))

    def advance(self, delay_ms: int = RETRY_MS) -> None:
        self.now_ms += delay_ms
        self.timer.advance(self.now_ms)


@pytest.fixture
def world() -> World:
    return World()


def places(marker: WritableTxnMarker) -> list[tuple[str, list[int]]]:
    return [(topic.name, topic.partition_indexes) for topic in marker.topics]


def test_each_partition_hears_from_where_it_is_led(world: World) -> None:
    world.lead(OWN, 2, 3, 2)
    world.order("a", 10, 0, 1, 2, 3)
    assert places(world.own[0]) == [("t", [0])]
    by_broker = {one.address.port: one for one in world.sent}
    assert places(by_broker[2].markers[0]) == [("t", [1, 3])]
    marker = by_broker[3].markers[0]
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (10, 1, True)
    assert (marker.coordinator_epoch, marker.transaction_version) == (7, 2)
    by_broker[2].answer()
    assert world.written == []
    by_broker[3].answer()
    assert world.written == ["a"]


def test_without_partitions_nobody_has_to_hear(world: World) -> None:
    world.order("a", 10)
    assert world.written == ["a"]


def test_while_a_request_is_under_way_the_next_one_gathers(world: World) -> None:
    world.lead(2)
    for number in range(5):
        world.order(f"id {number}", number, 0)
    assert [len(one.markers) for one in world.sent] == [1]
    world.sent[0].answer()
    assert [len(one.markers) for one in world.sent] == [1, 4]
    world.sent[1].answer()
    assert sorted(world.written) == [f"id {number}" for number in range(5)]


def test_two_ends_of_one_producer_do_not_share_a_request(world: World) -> None:
    world.lead(2, 2)
    world.order("busy", 9, 0)
    world.order("a", 10, 0)
    world.order("a", 10, 1)
    world.sent[0].answer()
    assert [len(one.markers) for one in world.sent] == [1, 1]
    world.sent[1].answer()
    world.sent[2].answer()
    assert world.written == ["busy", "a", "a"]


@pytest.mark.parametrize(
    "code",
    [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 9999],
)
def test_a_partition_that_cannot_take_it_is_asked_again_at_its_new_leader(world: World, code: int) -> None:
    world.lead(2)
    world.order("a", 10, 0)
    world.sent[0].answer(code)
    assert len(world.sent) == 1
    world.lead(3)
    world.advance()
    assert world.sent[1].address.port == 3
    world.sent[1].answer()
    assert world.written == ["a"]


def test_a_request_without_an_answer_is_sent_again(world: World) -> None:
    world.lead(2)
    world.order("a", 10, 0)
    world.sent[0].fail()
    world.advance()
    world.sent[1].answer()
    assert world.written == ["a"]


@pytest.mark.parametrize("leader", [-1, 9], ids=["no leader", "a leader that is not registered"])
def test_a_partition_that_cannot_be_reached_is_waited_for(world: World, leader: int) -> None:
    world.lead(leader, OWN)
    world.order("a", 10, 0, 1)
    world.advance()
    assert world.written == []
    world.lead(OWN, OWN)
    world.advance()
    assert world.written == ["a"]
    assert len(world.own) == 2


def test_a_partition_that_is_gone_needs_none(world: World) -> None:
    world.lead(OWN)
    world.order("a", 10, 0, 5)
    assert world.written == ["a"]


def test_a_partition_that_has_seen_a_later_producer_needs_none(world: World) -> None:
    world.lead(OWN)
    world.own_code = ErrorCode.INVALID_PRODUCER_EPOCH
    world.order("a", 10, 0)
    assert world.written == ["a"]


def test_a_coordinator_that_was_replaced_stops(world: World) -> None:
    world.lead(2, -1)
    world.order("a", 10, 0, 1)
    world.epoch = None
    world.sent[0].answer(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.lead(2, 2)
    world.advance()
    assert len(world.sent) == 1
    assert world.written == []


def test_a_coordinator_that_a_partition_knows_to_be_replaced_stops(world: World) -> None:
    world.lead(2)
    world.order("a", 10, 0)
    world.sent[0].answer(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    world.advance()
    assert len(world.sent) == 1
    assert world.written == []


def test_markers_behind_a_broker_that_hangs_go_to_the_new_leader_at_once(world: World) -> None:
    world.lead(2, 2)
    world.order("asked", 10, 0, 1)
    world.order("waiting", 11, 0)
    world.lead(3, 2)
    world.sender.leaders_moved()
    hung, moved = world.sent
    assert [place for marker in moved.markers for place in places(marker)] == [("t", [0])]
    moved.answer()
    world.sent[2].answer()
    assert world.written == ["waiting"]
    # What is still the first one's to answer counts when it does.
    hung.answer()
    assert world.written == ["waiting", "asked"]


def test_what_a_former_leader_says_of_a_marker_that_is_on_its_way_to_the_next_one_does_not_count(world: World) -> None:
    """With it the transaction were over, and the marker, before KIP-890, would end the next one."""
    world.lead(2)
    world.order("a", 10, 0)
    world.lead(3)
    world.sender.leaders_moved()
    before, now = world.sent
    before.answer()
    assert world.written == []
    world.sender.leaders_moved()
    assert len(world.sent) == 2
    now.answer()
    assert world.written == ["a"]


def test_a_request_has_so_many_markers_and_no_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_sender, "MAX_MARKERS", 3)
    world.lead(2)
    for number in range(8):
        world.order(f"id {number}", number, 0)
    for number in range(4):
        world.sent[number].answer()
    assert [len(one.markers) for one in world.sent] == [1, 3, 3, 1]
    assert len(world.written) == 8
