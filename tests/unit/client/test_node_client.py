from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.peers import Peer, encoded, everything, free_address, peer_node
from support.reactor import TIMEOUT_S, FakeService, Later, fetched, open_descriptors, running
from support.waiting import wait_until

from pybroker.base.address import Address
from pybroker.base.ids import ZERO_UUID
from pybroker.client.node_client import NodeClient
from pybroker.client.request_error import Failure, RequestError
from pybroker.network.loop_thread import LoopThread
from pybroker.network.request import Request
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from pybroker.protocol.messages.cluster import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from pybroker.protocol.messages.fetch import FetchRequest, FetchResponse
from pybroker.protocol.messages.raft import DescribeQuorumRequest
from pybroker.protocol.schema import Versions

LONG_MS = 10_000
SHORT_MS = 100


class Outcomes:
    """What the callbacks of requests were called with, and on which threads."""

    def __init__(self) -> None:
        self.all: list[tuple[object, Message | RequestError]] = []
        self.threads: set[str] = set()

    def of(self, name: object) -> Callable[[Message | RequestError], None]:
        def done(outcome: Message | RequestError) -> None:
            self.threads.add(threading.current_thread().name)
            self.all.append((name, outcome))

        return done

    def wait(self, count: int) -> list[Message | RequestError]:
        wait_until(lambda: len(self.all) >= count, TIMEOUT_S, lambda: f"{len(self.all)} of {count} outcomes: {self.all}")
        assert len(self.all) == count
        return [outcome for _, outcome in self.all]

    def failures(self, count: int) -> list[Failure]:
        found = self.wait(count)
        assert all(isinstance(one, RequestError) for one in found), found
        return [one.failure for one in found if isinstance(one, RequestError)]


@contextmanager
def started(**settings: Any) -> Iterator[NodeClient]:
    """A client; at its end every descriptor and thread that it took is gone."""
    threads, descriptors = threading.active_count(), open_descriptors()
    client = NodeClient(client_id="node-1", **{"backoff_ms": 1, **settings})
    client.start()
    try:
        yield client
    finally:
        client.stop()
        wait_until(lambda: threading.active_count() <= threads, TIMEOUT_S, lambda: str(threading.enumerate()))
        wait_until(lambda: open_descriptors() <= descriptors, TIMEOUT_S, lambda: f"{open_descriptors()}, not {descriptors}")


def heartbeat(broker_id: int = 1) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(broker_id=broker_id, current_metadata_offset=0, want_fence=False, want_shut_down=False)


def alive(number: int = 0) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(throttle_time_ms=number, error_code=0, should_shut_down=False)


def fetch() -> FetchRequest:
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])


def echo(peer: Peer) -> None:
    """Answer each heartbeat with its broker's id."""
    peer.greet()
    while True:
        received = peer.receive()
        assert isinstance(received.message, BrokerHeartbeatRequest)
        peer.answer(received, alive(received.message.broker_id))


class ServerOfAll(FakeService):
    """Answers ApiVersions with everything, and the rest by a function."""

    def __init__(self, serve: Callable[[Request], object]) -> None:
        def handle(request: Request) -> None:
            if request.api.name == "ApiVersions":
                request.respond(everything())
            else:
                serve(request)

        super().__init__(handle)


class TestRequests:
    @pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
    def test_a_request_is_answered_on_the_clients_thread(self, loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PYBROKER_EVENT_LOOP", loop)
        outcomes = Outcomes()
        with running(ServerOfAll(lambda request: request.respond(alive(5)))) as server, started() as client:
            client.send(Address("127.0.0.1", server.port), heartbeat(), LONG_MS, outcomes.of("a"))
            assert outcomes.wait(1) == [alive(5)]
        assert outcomes.threads == {"node-client-node-1"}

    def test_a_host_name_is_looked_up(self) -> None:
        outcomes = Outcomes()
        with peer_node(echo) as node, started() as client:
            client.send(Address("localhost", node.address.port), heartbeat(3), LONG_MS, outcomes.of("a"))
            assert outcomes.wait(1) == [alive(3)]

    def test_many_are_under_way_on_one_connection(self) -> None:
        outcomes = Outcomes()
        with peer_node(echo) as node, started() as client:
            for number in range(1000):
                client.send(node.address, heartbeat(number), LONG_MS, outcomes.of(number))
            outcomes.wait(1000)
            assert node.connections == 1
        assert outcomes.all == [(number, alive(number)) for number in range(1000)]

    def test_no_more_than_the_limit_are_under_way(self) -> None:
        seen: list[int] = []
        go = threading.Event()

        def serve(peer: Peer) -> None:
            peer.greet()
            first = [peer.receive(), peer.receive()]
            peer.socket.settimeout(0.2)
            with pytest.raises(TimeoutError):
                peer.receive()
            peer.socket.settimeout(TIMEOUT_S)
            seen.append(len(first))
            for received in first:
                peer.answer(received, alive())
            peer.answer(peer.receive(), alive())
            go.wait(TIMEOUT_S)

        outcomes = Outcomes()
        with peer_node(serve) as node, started(max_in_flight=2) as client:
            for number in range(3):
                client.send(node.address, heartbeat(), LONG_MS, outcomes.of(number))
            assert outcomes.wait(3) == [alive()] * 3
            go.set()
        assert seen == [2]

    def test_no_more_than_the_limit_wait(self) -> None:
        def serve(peer: Peer) -> None:
            peer.wait_for_end()

        outcomes = Outcomes()
        with peer_node(serve) as node, started(max_waiting=2) as client:
            for number in range(3):
                client.send(node.address, heartbeat(), LONG_MS, outcomes.of(number))
            (error,) = outcomes.wait(1)
            assert str(error) == f"{node.address}: refused here: 2 requests wait for this node already"

    def test_a_request_that_is_held_back_does_not_hold_back_another_lane(self) -> None:
        later = Later()

        def serve(request: Request) -> None:
            if request.api.name == "Fetch":
                later(request)
            else:
                request.respond(alive())

        outcomes = Outcomes()
        with running(ServerOfAll(serve)) as server, started() as client:
            address = Address("127.0.0.1", server.port)
            client.send(address, fetch(), LONG_MS, outcomes.of("fetch"), lane="fetch")
            later.wait(1)
            client.send(address, heartbeat(), LONG_MS, outcomes.of("heartbeat"))
            outcomes.wait(1)
            later.requests[0].respond(fetched())
            outcomes.wait(2)
            assert server.connections() == 2
        assert [name for name, _ in outcomes.all] == ["heartbeat", "fetch"]

    def test_the_records_of_a_long_answer_are_views_of_what_was_received(self) -> None:
        records = [bytes([number]) * (600_000 + number) for number in range(3)]
        outcomes = Outcomes()

        def serve(request: Request) -> None:
            request.respond(fetched(*records))

        with running(ServerOfAll(serve)) as server, started() as client:
            for number in range(2):
                client.send(Address("127.0.0.1", server.port), fetch(), LONG_MS, outcomes.of(number))
            answers = outcomes.wait(2)
        for answer in answers:
            assert isinstance(answer, FetchResponse)
            views = [partition.records for partition in answer.responses[0].partitions]
            assert [bytes(view) for view in views] == records
            assert all(isinstance(view, memoryview) for view in views)
            frame = views[0].obj
            assert all(view.obj is frame for view in views)
            assert sum(map(len, records)) < len(frame) < 2 * sum(map(len, records))

    def test_an_answer_may_come_in_whatever_pieces(self) -> None:
        records = b"r" * 300_000
        outcomes = Outcomes()

        def serve(peer: Peer) -> None:
            peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.greet()
            first, second = peer.receive(), peer.receive()
            stream = encoded(first, alive(1)) + encoded(second, fetched(records))
            for start in range(40):
                peer.socket.sendall(stream[start : start + 1])
            peer.socket.sendall(stream[40:100_000])
            peer.socket.sendall(stream[100_000:])
            peer.wait_for_end()

        with peer_node(serve) as node, started() as client:
            client.send(node.address, heartbeat(), LONG_MS, outcomes.of("a"))
            client.send(node.address, fetch(), LONG_MS, outcomes.of("b"))
            first, second = outcomes.wait(2)
        assert first == alive(1)
        assert isinstance(second, FetchResponse)
        assert bytes(second.responses[0].partitions[0].records) == records

    def test_a_large_request_goes_out_as_the_other_side_reads(self) -> None:
        outcomes = Outcomes()

        def serve(peer: Peer) -> None:
            peer.greet()
            received = peer.receive()
            assert isinstance(received.message, BrokerHeartbeatRequest)
            peer.answer(received, alive(len(received.message.offline_log_dirs)))
            peer.wait_for_end()

        request = heartbeat()
        request.offline_log_dirs = [ZERO_UUID] * 500_000
        with peer_node(serve) as node, started() as client:
            client.send(node.address, request, LONG_MS, outcomes.of("a"))
            assert outcomes.wait(1) == [alive(500_000)]

    def test_a_callback_that_fails_costs_nothing_but_a_line(self, caplog: pytest.LogCaptureFixture) -> None:
        def done(outcome: object) -> None:
            raise ValueError("of the caller")

        outcomes = Outcomes()
        with peer_node(echo) as node, started() as client:
            client.send(node.address, heartbeat(), LONG_MS, done)
            client.send(node.address, heartbeat(2), LONG_MS, outcomes.of("a"))
            assert outcomes.wait(1) == [alive(2)]
        assert "of the caller" in caplog.text


class TestVersions:
    def test_they_can_be_read_once_a_connection_was_made(self) -> None:
        outcomes = Outcomes()
        with peer_node(echo) as node, started() as client:
            assert client.versions_of(node.address) is None
            client.send(node.address, heartbeat(), LONG_MS, outcomes.of("a"))
            outcomes.wait(1)
            versions = client.versions_of(node.address)
            assert versions is not None
            assert versions[63] == BrokerHeartbeatRequest.VERSIONS

    def test_an_older_node_is_asked_again_as_it_understands(self) -> None:
        asked: list[int] = []

        def serve(peer: Peer) -> None:
            first = peer.receive()
            keys = [ApiVersion(api_key=18, min_version=0, max_version=2), ApiVersion(api_key=63, min_version=0, max_version=0)]
            peer.answer(first._replace(version=0), ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=keys))
            second = peer.receive()
            peer.answer(second, ApiVersionsResponse(error_code=0, api_keys=keys))
            third = peer.receive()
            asked.extend((first.version, second.version, third.version))
            peer.answer(third, alive())
            peer.wait_for_end()

        outcomes = Outcomes()
        with peer_node(serve) as node, started() as client:
            client.send(node.address, heartbeat(), LONG_MS, outcomes.of("a"))
            assert outcomes.wait(1) == [alive()]
        assert asked == [4, 2, 0]

    def test_what_the_node_cannot_understand_is_not_sent_and_the_connection_lives(self) -> None:
        def serve(peer: Peer) -> None:
            keys = [ApiVersion(api_key=63, min_version=0, max_version=1)]
            peer.answer(peer.receive(), ApiVersionsResponse(error_code=0, api_keys=keys))
            peer.answer(peer.receive(), alive(7))
            peer.wait_for_end()

        outcomes = Outcomes()
        with peer_node(serve) as node, started() as client:
            client.send(node.address, DescribeQuorumRequest(topics=[]), LONG_MS, outcomes.of("a"))
            client.send(node.address, heartbeat(), LONG_MS, outcomes.of("b"), versions=Versions(2, 2))
            client.send(node.address, heartbeat(), LONG_MS, outcomes.of("c"))
            outcomes.wait(3)
        reasons = {name: str(outcome).partition(": ")[2] for name, outcome in outcomes.all[:2]}
        assert reasons == {
            "a": "unsupported version: DescribeQuorum is not served there",
            "b": "unsupported version: BrokerHeartbeat is served there in versions 0-1, and needed in 2",
        }
        assert outcomes.all[2] == ("c", alive(7))


class TestBadServers:
    @pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
    def test_nobody_listens(self, loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PYBROKER_EVENT_LOOP", loop)
        lost: list[Address] = []
        address, outcomes = free_address(), Outcomes()
        with started(on_lost=lost.append) as client:
            client.send(address, heartbeat(), LONG_MS, outcomes.of("a"))
            client.send(address, heartbeat(), LONG_MS, outcomes.of("b"))
            assert outcomes.failures(2) == [Failure.NOT_CONNECTED] * 2
        assert lost[0] == address
        assert str(outcomes.all[0][1]) == f"{address}: not connected: Connection refused"

    def test_a_host_that_does_not_exist(self) -> None:
        outcomes = Outcomes()
        with started() as client:
            client.send(Address("no-such-host.invalid", 9092), heartbeat(), LONG_MS, outcomes.of("a"))
            assert outcomes.failures(1) == [Failure.NOT_CONNECTED]
        assert "the host name is not known" in str(outcomes.all[0][1])

    def test_it_closes_in_the_middle_of_a_frame(self, caplog: pytest.LogCaptureFixture) -> None:
        def serve(peer: Peer) -> None:
            peer.greet()
            peer.socket.sendall(encoded(peer.receive(), alive())[:9])

        outcomes, lost = Outcomes(), list[Address]()
        with peer_node(serve) as node, started(on_lost=lost.append) as client, caplog.at_level(logging.INFO):
            client.send(node.address, heartbeat(), LONG_MS, outcomes.of("a"))
            assert outcomes.failures(1) == [Failure.DISCONNECTED]
            wait_until(lambda: lost, TIMEOUT_S, lambda: "nobody was told of the loss")
            assert lost == [node.address]
        assert [one.getMessage() for one in caplog.records] == [
            f"lost the connection to {node.address}: it was closed there after 5 of 15 bytes of a response"
        ]

    @pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
    def test_it_resets_the_connection(self, loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PYBROKER_EVENT_LOOP", loop)

        def serve(peer: Peer) -> None:
            peer.greet()
            peer.receive()
            peer.reset()

        outcomes, lost = Outcomes(), list[Address]()
        with peer_node(serve) as node, started(on_lost=lost.append) as client:
            client.send(node.address, heartbeat(), LONG_MS, outcomes.of("a"))
            assert outcomes.failures(1) == [Failure.DISCONNECTED]
            wait_until(lambda: lost, TIMEOUT_S, lambda: "nobody was told of the loss")

    @pytest.mark.parametrize(
        ("garbage", "line"),
        [
            (b"\x7f\xff\xff\xff", "a response of 2,147,483,647 bytes, more than socket.request.max.bytes = 104,857,600"),
            (b"\xff\xff\xff\xff", "a response with a length of -1 bytes"),
            (b"HTTP/1.1 400 Bad Request\r\n", "this is an HTTP request, not a Kafka response"),
            (b"\x15\x03\x03\0\2\2\x46", "this is a TLS alert, not a Kafka response"),
            (b"\0\0\0\5\0\0\0\x09x", "a response with the correlation id 9; the next is 1 of BrokerHeartbeat v2"),
            (b"\0\0\0\6\0\0\0\x01\0x", "an answer to BrokerHeartbeat v2 that cannot be read"),
        ],
    )
    def test_it_answers_garbage(self, garbage: bytes, line: str, caplog: pytest.LogCaptureFixture) -> None:
        def serve(peer: Peer) -> None:
            peer.greet()
            peer.receive()
            peer.socket.sendall(garbage)
            peer.wait_for_end()

        outcomes, lost = Outcomes(), list[Address]()
        with peer_node(serve) as node, started(on_lost=lost.append) as client:
            client.send(node.address, heartbeat(), LONG_MS, outcomes.of("a"))
            assert outcomes.failures(1) == [Failure.DISCONNECTED]
        (record,) = caplog.records
        assert record.getMessage().startswith(f"closing the connection to {node.address}: {line}")
        assert not lost, "it was we who closed the connection"

    def test_it_answers_in_the_wrong_order(self, caplog: pytest.LogCaptureFixture) -> None:
        def serve(peer: Peer) -> None:
            peer.greet()
            first, second = peer.receive(), peer.receive()
            peer.answer(second, alive(2))
            peer.answer(first, alive(1))
            peer.wait_for_end()

        outcomes = Outcomes()
        with peer_node(serve) as node, started() as client:
            for name in "ab":
                client.send(node.address, heartbeat(), LONG_MS, outcomes.of(name))
            assert outcomes.failures(2) == [Failure.DISCONNECTED] * 2
        assert len(caplog.records) == 1

    def test_it_answers_what_nobody_asked(self, caplog: pytest.LogCaptureFixture) -> None:
        def serve(peer: Peer) -> None:
            peer.greet()
            received = peer.receive()
            peer.socket.sendall(encoded(received, alive(1)) + encoded(received, alive(2)))
            peer.wait_for_end()

        outcomes = Outcomes()
        with peer_node(serve) as node, started() as client:
            client.send(node.address, heartbeat(), LONG_MS, outcomes.of("a"))
            assert outcomes.wait(1) == [alive(1)]
            wait_until(lambda: caplog.records, TIMEOUT_S, lambda: "no line")
        assert "though nothing was asked" in caplog.text

    def test_it_never_answers(self) -> None:
        """The request that is out of time takes the connection, and those behind it, with it."""

        def serve(peer: Peer) -> None:
            peer.greet()
            peer.wait_for_end()

        outcomes, lost = Outcomes(), list[Address]()
        with peer_node(serve) as node, started(on_lost=lost.append, max_in_flight=2) as client:
            client.send(node.address, heartbeat(), SHORT_MS, outcomes.of("late"))
            client.send(node.address, heartbeat(), LONG_MS, outcomes.of("behind"))
            client.send(node.address, heartbeat(), LONG_MS, outcomes.of("not sent"))
            outcomes.wait(3)
        failures = {name: outcome.failure for name, outcome in outcomes.all if isinstance(outcome, RequestError)}
        assert failures == {
            "late": Failure.TIMED_OUT,
            "behind": Failure.DISCONNECTED,
            "not sent": Failure.NOT_CONNECTED,
        }
        assert not lost

    def test_what_was_given_up_is_not_delivered_any_more(self) -> None:
        """A copy that the kernel goes on sending could arrive behind the request that took its place."""

        def serve(peer: Peer) -> None:
            peer.greet()
            peer.receive()
            with pytest.raises(ConnectionResetError):
                peer.socket.recv(1)

        outcomes = Outcomes()
        with peer_node(serve) as node, started() as client:
            client.send(node.address, heartbeat(), SHORT_MS, outcomes.of("late"))
            assert outcomes.failures(1) == [Failure.TIMED_OUT]

    def test_each_request_has_a_time_of_its_own(self) -> None:
        """Though one alarm serves all: set for the first, put forward for a shorter one, and set again for what is left."""

        def serve(peer: Peer) -> None:
            peer.greet()
            peer.answer(peer.receive(), alive())
            peer.wait_for_end()

        outcomes = Outcomes()
        with peer_node(serve) as node, started(max_in_flight=1) as client:
            client.send(node.address, heartbeat(), 2 * SHORT_MS, outcomes.of("answered"))
            outcomes.wait(1)
            client.send(node.address, heartbeat(), LONG_MS, outcomes.of("waits on"))
            for number, timeout_ms in enumerate((4 * SHORT_MS, 3 * SHORT_MS, 5 * SHORT_MS)):
                client.send(node.address, heartbeat(), timeout_ms, outcomes.of(number))
            # None of those three is sent while the one before them has no answer.
            outcomes.wait(4)
            assert [name for name, _ in outcomes.all] == ["answered", 1, 0, 2]
            texts = [str(outcome) for _, outcome in outcomes.all[1:]]
            assert ["300 ms" in texts[0], "400 ms" in texts[1], "500 ms" in texts[2]] == [True] * 3, texts
        assert [name for name, _ in outcomes.all[4:]] == ["waits on"]

    def test_it_answers_after_the_time_is_up(self) -> None:
        timed_out = threading.Event()
        connections: list[Peer] = []

        def serve(peer: Peer) -> None:
            connections.append(peer)
            peer.greet()
            received = peer.receive()
            if len(connections) == 1:
                timed_out.wait(TIMEOUT_S)
            peer.answer(received, alive(len(connections)))
            peer.wait_for_end()

        outcomes = Outcomes()
        with peer_node(serve) as node, started() as client:
            client.send(node.address, heartbeat(), SHORT_MS, outcomes.of("a"))
            assert outcomes.failures(1) == [Failure.TIMED_OUT]
            timed_out.set()
            client.send(node.address, heartbeat(), LONG_MS, outcomes.of("b"))
            assert outcomes.wait(2)[1] == alive(2)

    def test_it_takes_the_connection_and_says_nothing(self) -> None:
        outcomes = Outcomes()
        with peer_node(lambda peer: peer.wait_for_end()) as node, started(connection_timeout_ms=SHORT_MS) as client:
            client.send(node.address, heartbeat(), LONG_MS, outcomes.of("a"))
            (error,) = outcomes.wait(1)
            assert str(error) == f"{node.address}: not connected: still agreeing on versions after 100 ms"

    def test_a_request_waits_for_a_connection_no_longer_than_it_may(self) -> None:
        outcomes = Outcomes()
        with peer_node(lambda peer: peer.wait_for_end()) as node, started() as client:
            client.send(node.address, heartbeat(), SHORT_MS, outcomes.of("a"))
            (error,) = outcomes.wait(1)
            reason = "BrokerHeartbeatRequest was not sent within 100 ms: agreeing on versions"
            assert str(error) == f"{node.address}: timed out: {reason}"

    def test_a_backlog_that_is_full_is_no_refusal(self) -> None:
        """A node that is stopped, not dead, does not take connections, but its system does not refuse them."""
        outcomes, lost = Outcomes(), list[Address]()
        with socket.socket() as listening, started(on_lost=lost.append, connection_timeout_ms=SHORT_MS) as client:
            listening.bind(("127.0.0.1", 0))
            listening.listen(0)
            address = Address(*listening.getsockname())
            for lane in "abc":
                client.send(address, heartbeat(), LONG_MS, outcomes.of(lane), lane=lane)
            assert outcomes.failures(3) == [Failure.NOT_CONNECTED] * 3
        assert not lost


class TestConnections:
    def test_after_a_loss_the_next_request_makes_a_new_one(self) -> None:
        def serve(peer: Peer) -> None:
            peer.greet()
            peer.answer(peer.receive(), alive())

        lost: list[Address] = []
        with peer_node(serve) as node, started(on_lost=lost.append) as client:
            for number in range(1, 4):
                outcomes = Outcomes()
                client.send(node.address, heartbeat(), LONG_MS, outcomes.of(number))
                assert outcomes.wait(1) == [alive()]
                wait_until(lambda: len(lost) == number, TIMEOUT_S, lambda: f"{lost} after {number}")  # noqa: B023
            assert node.connections == 3

    def test_the_loss_of_a_node_is_that_of_its_last_connection(self) -> None:
        ends = {"a": threading.Event(), "b": threading.Event()}

        def serve(peer: Peer) -> None:
            peer.greet()
            received = peer.receive()
            assert isinstance(received.message, BrokerHeartbeatRequest)
            peer.answer(received, alive())
            ends["ab"[received.message.broker_id]].wait(TIMEOUT_S)

        outcomes, lost = Outcomes(), list[Address]()
        with peer_node(serve) as node, started(on_lost=lost.append) as client:
            for number, lane in enumerate("ab"):
                client.send(node.address, heartbeat(number), LONG_MS, outcomes.of(lane), lane=lane)
            outcomes.wait(2)
            waits = Outcomes()
            client.send(node.address, heartbeat(), LONG_MS, waits.of("a"), lane="a")
            ends["a"].set()
            assert waits.failures(1) == [Failure.DISCONNECTED]
            assert lost == []
            ends["b"].set()
            wait_until(lambda: lost == [node.address], TIMEOUT_S, lambda: str(lost))

    def test_between_vain_attempts_there_is_a_pause_in_which_requests_wait(self) -> None:
        attempts: list[Address] = []
        address = free_address()
        with started(on_lost=attempts.append, backoff_ms=300, backoff_max_ms=300) as client:
            for _ in range(2):
                outcomes = Outcomes()
                client.send(address, heartbeat(), LONG_MS, outcomes.of("a"))
                assert outcomes.failures(1) == [Failure.NOT_CONNECTED]
            waits = Outcomes()
            client.send(address, heartbeat(), 10, waits.of("b"))
            assert waits.failures(1) == [Failure.TIMED_OUT]
            assert "waiting to connect again" in str(waits.all[0][1])
            assert len(attempts) == 2

    def test_an_idle_one_is_closed_without_a_word(self, caplog: pytest.LogCaptureFixture) -> None:
        outcomes, lost, ended = Outcomes(), list[Address](), threading.Event()

        def serve(peer: Peer) -> None:
            peer.greet()
            peer.answer(peer.receive(), alive())
            peer.wait_for_end()
            ended.set()

        with peer_node(serve) as node, started(on_lost=lost.append, max_idle_ms=SHORT_MS) as client:
            client.send(node.address, heartbeat(), LONG_MS, outcomes.of("a"))
            assert ended.wait(TIMEOUT_S)
            wait_until(lambda: not client._lanes, TIMEOUT_S, lambda: f"{client._lanes}")
            client.send(node.address, heartbeat(), LONG_MS, outcomes.of("b"))
            assert outcomes.wait(2) == [alive(), alive()]
        assert not lost
        assert not caplog.records

    def test_one_that_waits_for_an_answer_is_not_idle(self) -> None:
        outcomes, later = Outcomes(), Later()
        with running(ServerOfAll(later)) as server, started(max_idle_ms=50) as client:
            client.send(Address("127.0.0.1", server.port), fetch(), LONG_MS, outcomes.of("a"))
            later.wait(1)
            other = Outcomes()
            client.send(Address("127.0.0.1", server.port), fetch(), 200, other.of("b"), lane="clock")
            assert other.failures(1) == [Failure.TIMED_OUT]
            for request in later.requests:
                request.respond(fetched())
            assert isinstance(outcomes.wait(1)[0], FetchResponse)


class TestStop:
    def test_every_request_gets_its_error(self) -> None:
        outcomes, got = Outcomes(), threading.Event()

        def serve(peer: Peer) -> None:
            peer.greet()
            peer.receive()
            got.set()
            peer.wait_for_end()

        with peer_node(serve) as node, started(max_in_flight=1) as client:
            client.send(node.address, heartbeat(), LONG_MS, outcomes.of("sent"))
            client.send(node.address, heartbeat(), LONG_MS, outcomes.of("not sent"))
            assert got.wait(TIMEOUT_S)
            client.stop()
            assert outcomes.failures(2) == [Failure.DISCONNECTED, Failure.NOT_CONNECTED]
            client.send(node.address, heartbeat(), LONG_MS, outcomes.of("after"))
            assert outcomes.failures(3)[2] is Failure.NOT_CONNECTED

    def test_requests_sent_by_many_threads_during_the_stop_are_each_ended_once(self) -> None:
        outcomes = Outcomes()
        with peer_node(echo) as node, started() as client:

            def work(name: int) -> None:
                for number in range(300):
                    client.send(node.address, heartbeat(), LONG_MS, outcomes.of((name, number)))

            threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
            for thread in threads:
                thread.start()
            wait_until(lambda: outcomes.all, TIMEOUT_S, lambda: "nothing was answered")
            client.stop()
            for thread in threads:
                thread.join()
            outcomes.wait(1200)
        assert len({name for name, _ in outcomes.all}) == 1200

    def test_a_client_that_was_never_started_can_be_stopped(self) -> None:
        NodeClient(client_id="x").stop()


@contextmanager
def hosting() -> Iterator[LoopThread]:
    host = LoopThread("the-host")
    host.start()
    try:
        yield host
    finally:
        host.stop(TIMEOUT_S)


class TestGuest:
    """A client on a thread that others run."""

    def test_its_callbacks_come_on_that_thread(self) -> None:
        outcomes = Outcomes()
        with peer_node(echo) as node, hosting() as host, started(host=lambda: host) as client:
            client.send(node.address, heartbeat(3), LONG_MS, outcomes.of("a"))
            assert outcomes.wait(1) == [alive(3)]
        assert outcomes.threads == {"the-host"}

    def test_a_request_from_a_callback_is_sent_before_the_call_returns(self) -> None:
        outcomes, unsent = Outcomes(), []
        with peer_node(echo) as node, hosting() as host, started(host=lambda: host) as client:

            def again(outcome: Message | RequestError) -> None:
                client.send(node.address, heartbeat(2), LONG_MS, outcomes.of("b"), at_once=True)
                unsent.extend(client._posted)

            client.send(node.address, heartbeat(1), LONG_MS, again)
            assert outcomes.wait(1) == [alive(2)]
        assert unsent == []

    def test_a_host_that_ends_ends_what_was_under_way_and_the_client_goes_on_by_itself(self) -> None:
        outcomes, got = Outcomes(), threading.Event()

        def silent_at_first(peer: Peer) -> None:
            peer.greet()
            received = peer.receive()
            assert isinstance(received.message, BrokerHeartbeatRequest)
            if received.message.broker_id == 1:
                got.set()
                peer.receive()
            peer.answer(received, alive(received.message.broker_id))

        with peer_node(silent_at_first) as node, hosting() as host, started(host=lambda: host) as client:
            client.send(node.address, heartbeat(1), LONG_MS, outcomes.of("sent"))
            assert got.wait(TIMEOUT_S)
            entered, release = threading.Event(), threading.Event()
            host.post(lambda: (entered.set(), release.wait(TIMEOUT_S)))
            assert entered.wait(TIMEOUT_S)
            ending = threading.Thread(target=host.stop, args=(TIMEOUT_S,))
            ending.start()
            wait_until(lambda: len(host._posts) == 1, TIMEOUT_S, lambda: "the host is not told to end")
            client.send(node.address, heartbeat(2), LONG_MS, outcomes.of("posted behind the end"))
            release.set()
            ending.join()
            outcomes.wait(2)
            results = dict(outcomes.all)
            assert isinstance(results["sent"], RequestError)
            assert results["posted behind the end"] == alive(2)
        assert "node-client-node-1" in outcomes.threads

    def test_its_stop_leaves_the_host_alone(self) -> None:
        outcomes = Outcomes()
        with peer_node(echo) as node, hosting() as host:
            with started(host=lambda: host) as client:
                client.send(node.address, heartbeat(3), LONG_MS, outcomes.of("a"))
                outcomes.wait(1)
            done = threading.Event()
            host.post(done.set)
            assert done.wait(TIMEOUT_S)
            client.send(node.address, heartbeat(3), LONG_MS, outcomes.of("late"))
            assert outcomes.all[-1][0] == "late"
