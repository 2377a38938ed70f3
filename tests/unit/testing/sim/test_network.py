"""Calls between simulated nodes: answered once, or failed, and what a broken connection and a dead process tell."""

from __future__ import annotations

from random import Random

from pybroker.protocol.message import Message
from pybroker.protocol.messages.raft import DescribeQuorumRequest, DescribeQuorumResponse
from pybroker.testing.sim.clock import SimClock
from pybroker.testing.sim.faults import NetworkFaults, draw_cut
from pybroker.testing.sim.network import Call, Network
from pybroker.testing.sim.node import SimNode
from pybroker.testing.sim.schedule import Schedule


class Recorder(SimNode):
    """Notes what reaches it, and answers at once unless it is told to sit still."""

    network: Network
    answers = True

    def boot(self) -> None:
        self.seen: list[str] = []

    def lose_memory(self) -> None:
        self.network.process_ended(self)

    def next_deadline_ms(self) -> int | None:
        return None

    def handle_deadline(self) -> None: ...

    def handle_request(self, call: Call) -> None:
        self.seen.append(f"request {call.request_id}")
        if self.answers:
            self.network.respond(call, DescribeQuorumResponse(error_code=0, topics=[]))

    def handle_request_dropped(self, call: Call) -> None:
        self.seen.append(f"dropped {call.request_id}")

    def handle_response(self, request_id: int, message: Message) -> None:
        self.seen.append(f"response {request_id}")

    def handle_failure(self, request_id: int) -> None:
        self.seen.append(f"failure {request_id}")

    def handle_node_lost(self, node_id: int) -> None:
        self.seen.append(f"lost {node_id}")


class Net:
    def __init__(self, faults: NetworkFaults | None = None) -> None:
        self.schedule = Schedule()
        self.network = Network(self.schedule, Random(1), faults or NetworkFaults())
        self.nodes = [Recorder(self.schedule, id_, SimClock(0)) for id_ in (1, 2, 3)]
        for node in self.nodes:
            node.network = self.network
            self.network.add(node)
            node.start()

    def send(self, source: Recorder, target_id: int, request_id: int = 7) -> None:
        self.network.send(source, request_id, target_id, DescribeQuorumRequest(topics=[]), 1_000)

    def run_ms(self, span_ms: int) -> None:
        self.schedule.run_until(self.schedule.now_us + 1_000 * span_ms)


def test_a_call_is_answered_once() -> None:
    net = Net()
    a, b, _ = net.nodes
    net.send(a, 2)
    net.run_ms(2_000)
    assert a.seen == ["response 7"]
    assert b.seen == ["request 7"]


def test_a_cut_way_swallows_until_the_call_is_out_of_time() -> None:
    for way, arrives in (((1, 2), False), ((2, 1), True)):
        net = Net()
        a, b, _ = net.nodes
        net.network.cut([way])
        net.send(a, 2)
        net.run_ms(999)
        assert a.seen == []
        net.run_ms(100)
        assert a.seen == ["failure 7"]
        assert b.seen == (["request 7", "dropped 7"] if arrives else [])
        net.network.mend([way])
        net.send(a, 2, 8)
        net.run_ms(100)
        assert a.seen[-1] == "response 8"


def test_a_broken_connection_fails_what_is_under_way_and_tells_both_sides() -> None:
    net = Net()
    a, b, c = net.nodes
    b.answers = False
    net.send(a, 2)
    net.run_ms(100)
    net.network.break_connection(2, 1)
    net.run_ms(100)
    assert sorted(a.seen) == ["failure 7", "lost 2"]
    assert sorted(b.seen) == ["dropped 7", "lost 1", "request 7"]
    net.network.break_connection(1, 3)
    net.run_ms(100)
    assert c.seen == [], "they were not connected"


def test_the_end_of_a_process_is_seen_by_those_it_was_connected_with() -> None:
    net = Net()
    a, b, c = net.nodes
    net.send(a, 2)
    net.send(c, 2)
    net.run_ms(100)
    net.network.cut([(2, 3)])
    b.crash()
    net.run_ms(100)
    assert a.seen == ["response 7", "lost 2"]
    assert c.seen == ["response 7"], "the way to it is cut"


def test_a_process_that_is_down_refuses() -> None:
    net = Net()
    a, b, _ = net.nodes
    b.crash()
    net.send(a, 2)
    net.run_ms(100)
    assert a.seen == ["failure 7", "lost 2"]


def test_an_answer_for_an_earlier_life_goes_nowhere() -> None:
    net = Net()
    a, _, _ = net.nodes
    net.send(a, 2)
    a.crash()
    a.start()
    net.run_ms(2_000)
    assert a.seen == []


def test_a_paused_process_handles_everything_when_it_goes_on() -> None:
    net = Net()
    a, b, _ = net.nodes
    b.pause()
    net.send(a, 2, 7)
    net.send(a, 2, 8)
    net.run_ms(500)
    assert b.seen == []
    b.resume()
    assert sorted(b.seen) == ["request 7", "request 8"]
    net.run_ms(100)
    assert sorted(a.seen) == ["response 7", "response 8"]


def test_copies_of_a_request_are_answered_too() -> None:
    net = Net(NetworkFaults(duplicate=1.0))
    a, b, _ = net.nodes
    net.send(a, 2)
    net.run_ms(2_000)
    assert b.seen == ["request 7"] * 2
    assert a.seen == ["response 7"] * 2


def test_an_answer_may_come_after_the_sender_gave_up() -> None:
    net = Net(NetworkFaults(slow=1.0, slow_us=1_500_000, late_reply=1.0))
    a, _, _ = net.nodes
    for request_id in range(20):
        net.send(a, 2, request_id)
    net.run_ms(5_000)
    late = [id_ for id_ in range(20) if {f"failure {id_}", f"response {id_}"} <= set(a.seen)]
    assert late


def test_cuts_are_of_one_direction_or_both() -> None:
    random = Random(5)
    cuts = [set(draw_cut(random, [1, 2, 3])) for _ in range(200)]
    assert any(cut and all((b, a) in cut for a, b in cut) for cut in cuts)
    assert any(cut and all((b, a) not in cut for a, b in cut) for cut in cuts)
    assert draw_cut(random, [1]) == []
