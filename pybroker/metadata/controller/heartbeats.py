"""When the active controller last heard of each broker: soft state, which is in no record.

It begins anew with every leadership, when each unfenced broker gets a full session, and only requests, connections and the
time change it. A broker is dead when its session has passed. It is taken for dead sooner when all of its connections broke
and none came back within a grace: a process that dies loses its sockets at once. Brokers look for a new controller at once,
so one that does not come while others do, within a few graces, died with the old one. Not so if no other broker has a
connection either: then the fault is likely here, and nobody could take over.

A broker that comes back in the same incarnation was a false alarm; every one doubles its grace, up to the session, so that a
flapping network cannot move leaders for ever. A quiet time forgets them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pybroker.metadata.image import BrokerState

# How many graces a broker has to find a new controller.
UNHEARD_GRACES = 4
# A false alarm is forgotten after so many sessions without another.
QUIET_SESSIONS = 10


@dataclass(slots=True)
class _Contact:
    """What is known of one incarnation of a broker."""

    epoch: int
    at_ms: int
    is_heard: bool = False  # not yet, if it only has the session that a leadership begins with
    is_over: bool = False
    metadata_offset: int = -1
    shutdown_offset: int | None = None
    lost_ms: int | None = None  # when the last of its connections broke
    is_lost_since_heard: bool = False
    was_alarm: bool = False  # the grace ended its session
    false_alarms: int = 0
    last_alarm_ms: int = 0


class Heartbeats:
    def __init__(self, session_timeout_ms: int, grace_ms: int, node_id: int) -> None:
        """`grace_ms` of 0 leaves a broken connection without meaning. `node_id` is this controller's own."""
        self._session_timeout_ms = session_timeout_ms
        self._grace_ms = grace_ms
        self._node_id = node_id
        self._contacts: dict[int, _Contact] = {}

    def start(self, now_ms: int, brokers: Iterable[BrokerState]) -> None:
        self._contacts = {broker.id: _Contact(broker.epoch, now_ms, lost_ms=now_ms) for broker in brokers if not broker.fenced}

    def register(self, now_ms: int, broker_id: int, epoch: int) -> None:
        """A broker registers, as a new incarnation or the one that it is."""
        contact = self._contacts.get(broker_id)
        if contact is None or contact.epoch != epoch:
            self._contacts[broker_id] = _Contact(epoch, now_ms, is_heard=True)

    def hear(self, now_ms: int, broker_id: int, epoch: int, metadata_offset: int) -> None:
        contact = self._contacts.get(broker_id)
        if contact is None or contact.epoch != epoch:
            contact = self._contacts[broker_id] = _Contact(epoch, now_ms)
        if not contact.is_heard:
            # The broker of this very process makes no connection.
            self.connection_made(now_ms, broker_id)
        if contact.was_alarm:
            contact.was_alarm, contact.lost_ms = False, None
            contact.false_alarms += 1
            contact.last_alarm_ms = now_ms
        elif contact.false_alarms and now_ms - contact.last_alarm_ms > QUIET_SESSIONS * self._session_timeout_ms:
            contact.false_alarms = 0
        contact.at_ms, contact.metadata_offset = now_ms, metadata_offset
        contact.is_heard, contact.is_over, contact.is_lost_since_heard = True, False, False

    def forget(self, broker_id: int) -> None:
        self._contacts.pop(broker_id, None)

    def has_session(self, now_ms: int, broker: BrokerState) -> bool:
        """Whether another incarnation must wait.

        Not for one that lost its connections after its last word, which looks like a restart, nor for one that this controller
        never heard of, which may have died with the one before; nor for the broker in this very process, unless it was heard
        of.
        """
        contact = self._contacts.get(broker.id)
        if contact is None or contact.epoch != broker.epoch or contact.is_over:
            return False
        if self._grace_ms and (contact.is_lost_since_heard or not contact.is_heard):
            return False
        if broker.id == self._node_id and not contact.is_heard:
            return False
        return now_ms <= contact.at_ms + self._session_timeout_ms

    # Controlled shutdown.

    def shutdown_offset(self, broker_id: int) -> int | None:
        """What the others must have replayed before the broker may go."""
        return self._contacts[broker_id].shutdown_offset

    def begin_shutdown(self, broker_id: int, offset: int) -> None:
        contact = self._contacts[broker_id]
        if contact.shutdown_offset is None:
            contact.shutdown_offset = offset

    def release(self, broker_id: int) -> None:
        """It may go, and its next incarnation need not wait."""
        contact = self._contacts[broker_id]
        contact.shutdown_offset = None
        contact.is_over = True

    def lowest_offset(self, brokers: Iterable[BrokerState]) -> int | None:
        """The offset that all active brokers have replayed, as far as they said; None if there is none."""
        active = [broker.id for broker in brokers if broker.is_active]
        if not active:
            return None
        return min(self._contacts[one].metadata_offset if one in self._contacts else -1 for one in active)

    # Connections.

    def connection_made(self, now_ms: int, broker_id: int) -> None:
        contact = self._contacts.get(broker_id)
        if contact is None or contact.lost_ms is None:
            return
        if all(one.lost_ms is not None for one in self._contacts.values()):
            # All were cut off, and this one is the first to be back: the others get their grace from now on.
            for one in self._contacts.values():
                one.lost_ms = now_ms
        contact.lost_ms = None

    def connection_lost(self, now_ms: int, broker_id: int) -> None:
        contact = self._contacts.get(broker_id)
        if contact is not None:
            contact.lost_ms = now_ms
            contact.is_lost_since_heard = True

    # The passing of time.

    def _grace_of(self, contact: _Contact) -> int:
        grace_ms = self._grace_ms << contact.false_alarms
        return min(grace_ms if contact.is_heard else grace_ms * UNHEARD_GRACES, self._session_timeout_ms)

    def _ends_ms(self, contact: _Contact, counts_grace: bool) -> int:
        """The first millisecond at which the broker is dead."""
        session_ms = contact.at_ms + self._session_timeout_ms + 1
        if contact.lost_ms is None or not counts_grace:
            return session_ms
        return min(session_ms, contact.lost_ms + self._grace_of(contact))

    def _watched(self, brokers: Mapping[int, BrokerState]) -> list[tuple[int, int, _Contact]]:
        """The brokers that are not fenced, each with when it is dead."""
        watched = []
        for broker_id, contact in self._contacts.items():
            broker = brokers.get(broker_id)
            if broker is not None and not broker.fenced and broker.epoch == contact.epoch:
                watched.append((broker_id, contact))
        counts_grace = self._grace_ms > 0 and any(contact.lost_ms is None for _id, contact in watched)
        return [(broker_id, self._ends_ms(contact, counts_grace), contact) for broker_id, contact in watched]

    def deadline_ms(self, brokers: Mapping[int, BrokerState]) -> int | None:
        return min((ends_ms for _id, ends_ms, _contact in self._watched(brokers)), default=None)

    def take_dead(self, now_ms: int, brokers: Mapping[int, BrokerState]) -> list[int]:
        """The unfenced brokers that are dead by now; their sessions are over."""
        dead = []
        for broker_id, ends_ms, contact in self._watched(brokers):
            if ends_ms <= now_ms:
                dead.append(broker_id)
                contact.is_over = True
                contact.shutdown_offset = None
                contact.was_alarm = now_ms <= contact.at_ms + self._session_timeout_ms
        return dead
