from __future__ import annotations

from dataclasses import replace

from unit.server.clusters import Clock

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import EMPTY_IMAGE, BrokerState
from pybroker.metadata.internal_topics import OFFSETS_TOPIC
from pybroker.protocol.internal.metadata_log import PartitionRecord, TopicRecord
from pybroker.server.departed_brokers import DepartedBrokers

LINGER_MS = 9_000
TOPIC_ID = Uuid(b"internal-topic--")


def led_by(broker_id: int) -> PartitionRecord:
    return PartitionRecord(
        partition_id=broker_id,
        topic_id=TOPIC_ID,
        replicas=[broker_id],
        isr=[broker_id],
        removing_replicas=[],
        adding_replicas=[],
        leader=broker_id,
        leader_epoch=0,
        partition_epoch=0,
    )


class Told:
    def __init__(self, linger_ms: int = LINGER_MS) -> None:
        self.clock = Clock()
        self.departed = DepartedBrokers(linger_ms, self.clock.now_ms)

    def fenced(self, topic: str = OFFSETS_TOPIC, **brokers: bool) -> None:
        """The image has these brokers, fenced or not; all that live lead a partition of `topic`."""
        states = {int(name[1:]): BrokerState(int(name[1:]), 1, ZERO_UUID, fenced=fenced) for name, fenced in brokers.items()}
        delta = MetadataDelta(replace(EMPTY_IMAGE, brokers=states))
        delta.replay(TopicRecord(name=topic, topic_id=TOPIC_ID))
        for broker in states.values():
            if not broker.fenced:
                delta.replay(led_by(broker.id))
        self.departed.publish(delta, delta.image(0, 1))


def test_a_broker_that_is_fenced_is_listed_for_a_while() -> None:
    told = Told()
    told.fenced(b1=False, b2=False)
    assert told.departed.listed() == ()
    told.fenced(b1=False, b2=True)
    told.clock.advance(LINGER_MS - 1)
    assert told.departed.listed() == (2,)
    told.clock.advance(1)
    assert told.departed.listed() == ()


def test_other_changes_neither_end_nor_prolong_it() -> None:
    told = Told()
    told.fenced(b1=False, b2=False)
    told.fenced(b1=False, b2=True)
    told.clock.advance(LINGER_MS - 1)
    told.fenced(b1=False, b2=True, b3=False)
    assert told.departed.listed() == (2,)
    told.clock.advance(1)
    assert told.departed.listed() == ()


def test_one_that_is_back_or_unregistered_is_no_longer_listed() -> None:
    told = Told()
    told.fenced(b1=False, b2=False, b3=False)
    told.fenced(b1=False, b2=True, b3=True)
    assert told.departed.listed() == (2, 3)
    told.fenced(b1=False, b2=False)
    assert told.departed.listed() == ()


def test_one_that_was_fenced_when_this_node_came_is_not_listed() -> None:
    told = Told()
    told.fenced(b1=False, b2=True)
    assert told.departed.listed() == ()


def test_one_that_coordinated_nothing_is_forgotten_at_once() -> None:
    told = Told()
    told.fenced(topic="orders", b1=False, b2=False)
    told.fenced(topic="orders", b1=False, b2=True)
    assert told.departed.listed() == ()


def test_it_can_be_switched_off() -> None:
    told = Told(linger_ms=0)
    told.fenced(b1=False)
    told.fenced(b1=True)
    assert told.departed.listed() == ()
