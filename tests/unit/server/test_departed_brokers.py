from __future__ import annotations

from dataclasses import replace

from unit.server.clusters import Clock

from pybroker.base.ids import ZERO_UUID
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import EMPTY_IMAGE, BrokerState
from pybroker.server.departed_brokers import DepartedBrokers

LINGER_MS = 9_000


class Told:
    def __init__(self, linger_ms: int = LINGER_MS) -> None:
        self.clock = Clock()
        self.departed = DepartedBrokers(linger_ms, self.clock.now_ms)

    def fenced(self, **brokers: bool) -> None:
        """The image has these brokers, fenced or not."""
        states = {int(name[1:]): BrokerState(int(name[1:]), 1, ZERO_UUID, fenced=fenced) for name, fenced in brokers.items()}
        self.departed.publish(MetadataDelta(EMPTY_IMAGE), replace(EMPTY_IMAGE, brokers=states))


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


def test_it_can_be_switched_off() -> None:
    told = Told(linger_ms=0)
    told.fenced(b1=False)
    told.fenced(b1=True)
    assert told.departed.listed() == ()
