"""The network: calls (a request and its response) between nodes, each as on a connection of its own.

A call may be late, lost in either direction, arrive twice, or be answered after its sender gave up. A broken connection fails
every call between two nodes at once and tells both sides that the other is lost; so does the end of a process, unless the way
to the other side is cut. A cut way swallows: only timeouts tell.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from pybroker.protocol.message import Message
from pybroker.testing.sim.faults import NetworkFaults
from pybroker.testing.sim.node import SimNode
from pybroker.testing.sim.schedule import Schedule


class Call:
    __slots__ = (
        "is_answered",
        "is_open",
        "is_over_with_answer",
        "message",
        "original",
        "request_id",
        "source",
        "source_life",
        "target",
        "target_life",
        "token",
        "version",
    )

    def __init__(
        self,
        source: SimNode,
        target: SimNode,
        request_id: int,
        message: Message,
        version: int | None = None,
        *,
        original: Call | None = None,
    ) -> None:
        self.source = source
        self.source_life = source.life
        self.target = target
        self.target_life = -1  # until it arrives
        self.request_id = request_id
        self.message = message
        self.version = version  # in which both go through bytes; None: as objects
        self.is_open = True
        self.is_over_with_answer = False
        self.is_answered = False
        self.original = original  # None: it is one itself
        self.token = -1  # the target's own name for it


class Network:
    def __init__(self, schedule: Schedule, random: Random, faults: NetworkFaults) -> None:
        self.nodes: dict[int, SimNode] = {}
        self.faults = faults
        self.copies_through_bytes = False
        self._schedule = schedule
        self._random = random
        self._calls: dict[tuple[int, int], list[Call]] = {}  # of a connection, which is there while the pair is
        self._cuts: dict[tuple[int, int], int] = {}

    def add(self, node: SimNode) -> None:
        self.nodes[node.node_id] = node

    # Calls.

    def send(
        self,
        source: SimNode,
        request_id: int,
        target_id: int,
        message: Message,
        timeout_ms: int,
        version: int | None = None,
        *,
        may_repeat: bool = True,
        is_over_with_answer: bool = False,
    ) -> None:
        """`may_repeat`: it may come twice, the second time at any time; `is_over_with_answer`: but not after its answer, as no
        connection could bring it."""
        target = self.nodes[target_id]
        call = Call(source, target, request_id, self._copied(message, version), version)
        call.is_over_with_answer = is_over_with_answer
        self._schedule.after(source.clock.span_us(timeout_ms), self._time_out, call)
        if not target.is_up:
            if self.is_open(source.node_id, target_id) and self.is_open(target_id, source.node_id):
                self._schedule.after(self._delay_us(), self._refuse, call)
            return
        self._calls.setdefault(_pair(source, target), []).append(call)
        draw = self._random.random
        if not self.is_open(source.node_id, target_id) or draw() < self.faults.drop:
            return
        self._schedule.after(self._delay_us(), self._arrive, call)
        if draw() < self.faults.duplicate and may_repeat:
            copy = Call(source, target, request_id, self._copied(message, version), version, original=call)
            self._schedule.after(int(draw() * self.faults.copy_us), self._arrive, copy)

    def respond(self, call: Call, message: Message) -> None:
        target_id = call.target.node_id
        if self.is_open(target_id, call.source.node_id) and self._random.random() >= self.faults.drop:
            self._schedule.after(self._delay_us(), self._reply, call, self._copied(message, call.version))

    def _arrive(self, call: Call) -> None:
        target = call.target
        original = call.original or call
        if not call.is_open or (original.is_answered and original.is_over_with_answer):
            return
        if not target.is_up:
            self._refuse(call)
            return
        call.target_life = target.life
        target.deliver(target.life, target.handle_request, call)

    def _reply(self, call: Call, message: Message) -> None:
        source = call.source
        if not call.is_open and call.original is None and self._random.random() >= self.faults.late_reply:
            return
        self._close(call)
        (call.original or call).is_answered = True
        source.deliver(call.source_life, source.handle_response, call.request_id, message)

    def _refuse(self, call: Call) -> None:
        if not call.is_open or call.original is not None:
            return
        self._fail(call)
        source = call.source
        source.deliver(call.source_life, source.handle_node_lost, call.target.node_id)

    def _time_out(self, call: Call) -> None:
        if call.is_open:
            self._fail(call)
            self._tell_target(call)

    def _fail(self, call: Call) -> None:
        self._close(call)
        source = call.source
        source.deliver(call.source_life, source.handle_failure, call.request_id)

    def _tell_target(self, call: Call) -> None:
        target = call.target
        if call.target_life >= 0 and self.is_open(call.source.node_id, target.node_id):
            self._schedule.after(self._delay_us(), target.deliver, call.target_life, target.handle_request_dropped, call)

    def _close(self, call: Call) -> None:
        if call.is_open:
            call.is_open = False
            calls = self._calls.get(_pair(call.source, call.target))
            if calls is not None and call in calls:
                calls.remove(call)

    def _copied(self, message: Message, version: int | None) -> Message:
        kind = type(message)
        if version is None:
            if not self.copies_through_bytes:
                return message
            version = kind.VERSIONS.high
        return kind.decode(version, bytearray(message.encode(version)))

    def _delay_us(self) -> int:
        faults, draw = self.faults, self._random.random
        delay_us = faults.min_delay_us + int(draw() * faults.spread_us)
        if draw() < faults.slow:
            delay_us += int(draw() * faults.slow_us)
        return delay_us

    # Connections.

    def break_connection(self, a: int, b: int) -> None:
        first, second = self.nodes[a], self.nodes[b]
        if self._drop_calls(first, second):
            for side, other in ((first, second), (second, first)):
                self._schedule.after(self._delay_us(), side.deliver, side.life, side.handle_node_lost, other.node_id)

    def process_ended(self, node: SimNode) -> None:
        """Of a process that is gone, the other sides hear at once, where the way to them is open."""
        for other in self.nodes.values():
            if other is not node and self.is_open(node.node_id, other.node_id) and self._drop_calls(node, other):
                self._schedule.after(self._delay_us(), other.deliver, other.life, other.handle_node_lost, node.node_id)

    def _drop_calls(self, a: SimNode, b: SimNode) -> bool:
        """Fail all calls between the two; whether they were connected at all."""
        calls = self._calls.pop(_pair(a, b), None)
        if calls is None:
            return False
        for call in calls:
            call.is_open = False
            source, target = call.source, call.target
            self._schedule.after(self._delay_us(), source.deliver, call.source_life, source.handle_failure, call.request_id)
            if call.target_life >= 0:
                self._schedule.after(self._delay_us(), target.deliver, call.target_life, target.handle_request_dropped, call)
        return True

    # Ways.

    def is_open(self, source_id: int, target_id: int) -> bool:
        return not self._cuts.get((source_id, target_id))

    def cut(self, ways: Iterable[tuple[int, int]]) -> None:
        for way in ways:
            self._cuts[way] = self._cuts.get(way, 0) + 1

    def mend(self, ways: Iterable[tuple[int, int]]) -> None:
        for way in ways:
            self._cuts[way] = max(0, self._cuts.get(way, 0) - 1)

    def heal(self) -> None:
        self._cuts.clear()


def _pair(a: SimNode, b: SimNode) -> tuple[int, int]:
    return (a.node_id, b.node_id) if a.node_id < b.node_id else (b.node_id, a.node_id)
