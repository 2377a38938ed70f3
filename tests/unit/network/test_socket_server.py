"""The server as a whole: listeners, limits, placement, reconfiguration, the end."""

from __future__ import annotations

import logging
import os
import resource
import socket
import struct
import threading

import pytest
from support.reactor import (
    TIMEOUT_S,
    Client,
    FakeService,
    Later,
    Running,
    all_apis,
    answer,
    config,
    frame,
    loaded,
    open_descriptors,
    running,
)
from support.waiting import wait_until

from pybroker.base.metrics import Metrics
from pybroker.network import acceptor, connection, handler_pool, loop_thread, socket_server
from pybroker.network.acceptor import ListenerError
from pybroker.network.gate import Gate
from pybroker.network.request import Request
from pybroker.network.socket_server import SocketServer, limits_of

HAS_IPV6 = socket.has_dualstack_ipv6()


def texts(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def wait_for_line(caplog: pytest.LogCaptureFixture, part: str) -> None:
    wait_until(lambda: any(part in text for text in texts(caplog)), TIMEOUT_S, lambda: f"no {part!r} in {texts(caplog)}")


class TestListeners:
    def test_several_each_with_its_own_apis_and_threads(self) -> None:
        def apis_of(listener: str) -> dict[int, object]:
            return {18: all_apis(listener)[18]} if listener == "FIRST" else {3: all_apis(listener)[3]}

        names = []

        def handle(request: Request) -> bool:
            names.append((request.connection.listener_name, threading.current_thread().name))
            answer(request)
            return True

        settings = loaded(
            [
                "listeners=FIRST://127.0.0.1:0,SECOND://127.0.0.1:0",
                "listener.security.protocol.map=FIRST:PLAINTEXT,SECOND:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "inter.broker.listener.name=FIRST",
            ]
        )
        with running(FakeService(handle), settings, apis_of) as node:
            ports = node.server.ports()
            assert set(ports) == {"FIRST", "SECOND"}
            first, second = Client(ports["FIRST"]), Client(ports["SECOND"])
            first.send(1)
            assert first.receive_ids(1) == [1]
            second.send(1)
            assert second.is_closed_by_server()
            first.close()
            second.close()
        assert names == [("FIRST", "network-thread-FIRST-0")]

    @pytest.mark.skipif(not HAS_IPV6, reason="this machine has no IPv6")
    def test_one_thread_serves_a_listener_and_may_be_shared_where_there_is_a_gil(self) -> None:
        with running(settings=config(pybroker_connection_placement="fill")) as node:
            thread = node.server.host_thread("PLAINTEXT")
            assert thread is not None
            assert thread is node.server.host_thread("PLAINTEXT")
            assert node.server.host_thread("ELSEWHERE") is None
        assert node.server.host_thread("PLAINTEXT") is None
        with running(settings=config(pybroker_connection_placement="round-robin")) as node:
            assert node.server.host_thread("PLAINTEXT") is None

    def test_ipv6(self) -> None:
        peers = []

        def handle(request: Request) -> bool:
            peers.append(str(request.connection))
            answer(request)
            return True

        with running(FakeService(handle), loaded(["listeners=PLAINTEXT://[::1]:0"])) as node:
            client = node.client(host="::1")
            client.send(1)
            assert client.receive_ids(1) == [1]
        assert peers[0].startswith("[::1]:")

    def test_an_empty_host_means_all_interfaces(self) -> None:
        peers = []

        def handle(request: Request) -> bool:
            peers.append(request.connection.peer[0])
            answer(request)
            return True

        settings = loaded(["listeners=PLAINTEXT://:0", "advertised.listeners=PLAINTEXT://localhost:9092"])
        with running(FakeService(handle), settings) as node:
            for host in ("127.0.0.1", *(["::1"] if HAS_IPV6 else [])):
                client = node.client(host=host)
                client.send(1)
                assert client.receive_ids(1) == [1]
        assert peers[0] == "127.0.0.1", "an IPv4 peer is known by its IPv4 address"

    def test_a_name_is_resolved(self) -> None:
        with running(settings=loaded(["listeners=PLAINTEXT://localhost:0"])) as node:
            client = node.client()
            client.send(1)
            assert client.receive_ids(1) == [1]

    def test_a_port_in_use_is_named_and_the_other_listeners_are_closed_again(self) -> None:
        before = open_descriptors()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            settings = loaded(
                [
                    f"listeners=PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:{port}",
                    "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT,CONTROLLER:PLAINTEXT",
                ]
            )
            server = SocketServer(settings, FakeService(), all_apis)
            with pytest.raises(ListenerError) as caught:
                server.bind()
            assert str(caught.value) == (f"cannot listen on OTHER://127.0.0.1:{port}: port {port} is in use by another process")
        assert open_descriptors() == before

    @pytest.mark.parametrize(
        ("host", "reason"), [("192.0.2.1", "192.0.2.1 is no address of this machine"), ("no.such.host.invalid", "invalid")]
    )
    def test_a_host_that_is_not_here(self, host: str, reason: str) -> None:
        server = SocketServer(loaded([f"listeners=PLAINTEXT://{host}:0"]), FakeService(), all_apis)
        with pytest.raises(ListenerError, match=reason):
            server.bind()

    def test_a_protocol_that_is_not_there_yet_is_not_served_in_plain_text(self) -> None:
        settings = loaded(
            [
                "listeners=PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
                "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
                "sasl.enabled.mechanisms=PLAIN",
            ]
        )
        server = SocketServer(settings, FakeService(), all_apis)
        with pytest.raises(ListenerError, match="SASL_PLAINTEXT is not there yet"):
            server.bind()

    def test_bound_but_never_started(self) -> None:
        before = open_descriptors()
        server = SocketServer(config(), FakeService(), all_apis)
        server.bind()
        server.stop()
        assert open_descriptors() == before

    def test_sizes_of_socket_buffers(self) -> None:
        sizes = []

        def handle(request: Request) -> bool:
            fd = request.connection._transport.fd
            with socket.socket(fileno=os.dup(fd)) as copy:
                options = (socket.SO_SNDBUF, socket.SO_RCVBUF)
                sizes.append([copy.getsockopt(socket.SOL_SOCKET, option) for option in options])
                assert copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            answer(request)
            return True

        for size in (16_384, -1):
            settings = config(socket_send_buffer_bytes=size, socket_receive_buffer_bytes=size)
            with running(FakeService(handle), settings) as node:
                client = node.client()
                client.send(1)
                assert client.receive_ids(1) == [1]
        assert sizes[0] == [32_768, 32_768], "the system doubles what it is told"
        assert min(sizes[1]) > 32_768


class TestLimits:
    def test_max_connections_makes_the_next_wait(self, caplog: pytest.LogCaptureFixture) -> None:
        with running(settings=config(max_connections=2)) as node:
            first, second, third = node.client(), node.client(), node.client()
            for client in (first, second):
                client.send(1)
                assert client.receive_ids(1) == [1]
            third.send(3)
            wait_for_line(caplog, "new connections on PLAINTEXT wait: the node holds max.connections = 2 connections")
            assert node.connections() == 2
            first.close()
            assert third.receive_ids(1) == [3]
            assert node.connections() == 2

    def test_max_connections_per_ip_refuses(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        with running(settings=config(max_connections_per_ip=1)) as node:
            first = node.client()
            first.send(1)
            assert first.receive_ids(1) == [1]
            second = node.client()
            assert second.is_closed_by_server()
            assert "127.0.0.1 holds max.connections.per.ip = 1 connections already" in texts(caplog)[-1]
            first.close()
            node.wait_for_connections(0)
            third = node.client()
            third.send(3)
            assert third.receive_ids(1) == [3]

    def test_overrides_for_an_address_and_a_name(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        settings = loaded(["max.connections.per.ip.overrides=localhost:1,10.0.0.1:7,no-such-host.invalid:3"])
        with running(settings=settings) as node:
            first = node.client()
            first.send(1)
            assert first.receive_ids(1) == [1]
            assert node.client().is_closed_by_server()
        assert "no-such-host.invalid is passed over" in texts(caplog)[0]

    def test_the_rate_of_new_connections(self, caplog: pytest.LogCaptureFixture) -> None:
        with running(settings=config(max_connection_creation_rate=5)) as node:
            clients = [node.client() for _ in range(8)]
            for client in clients:
                client.send(1)
            for client in clients:
                assert client.receive_ids(1) == [1]
        assert len(texts(caplog)) == 1
        assert "faster than max.connection.creation.rate = 5 a second" in texts(caplog)[0]

    def test_a_connection_between_brokers_displaces_an_idle_client(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        settings = loaded(
            [
                "listeners=PLAINTEXT://127.0.0.1:0,BROKERS://127.0.0.1:0",
                "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "inter.broker.listener.name=BROKERS",
                "max.connections=2",
            ]
        )
        with running(settings=settings) as node:
            idle, active = node.client(), node.client()
            for client in (idle, active):
                client.send(1)
                assert client.receive_ids(1) == [1]
            broker = Client(node.server.ports()["BROKERS"])
            broker.send(5)
            assert broker.receive_ids(1) == [5]
            assert idle.is_closed_by_server()
            active.send(2)
            assert active.receive_ids(1) == [2]
            broker.close()
        assert sum("a connection between brokers takes its place" in text for text in texts(caplog)) == 1

    def test_limits_change_while_running(self) -> None:
        with running(settings=config(max_connections=1)) as node:
            first, second = node.client(), node.client()
            second.send(2)
            first.send(1)
            assert first.receive_ids(1) == [1]
            node.server.reconfigure(config(max_connections=5))
            assert second.receive_ids(1) == [2]
            node.server.reconfigure(config(max_connections_per_ip=2))
            assert node.client().is_closed_by_server()

    def test_out_of_descriptors_the_listener_waits_and_comes_back(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pybroker.network.acceptor.OUT_OF_RESOURCES_S", 0.05)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with running() as node:
            clients = [socket.socket() for _ in range(3)]
            highest = max(int(name) for name in os.listdir("/proc/self/fd"))
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
            gaps = []
            try:
                while True:
                    try:
                        gaps.append(os.dup(0))
                    except OSError:
                        break
                clients[0].connect(("127.0.0.1", node.port))
                wait_for_line(caplog, "new connections on PLAINTEXT wait: accept failed: Too many open files")
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                for fd in gaps:
                    os.close(fd)
            clients[0].sendall(frame(1))
            clients[0].settimeout(TIMEOUT_S)
            assert clients[0].recv(8) == struct.pack(">ii", 10, 1)
            for client in clients:
                client.close()

    def test_limits_of_a_listener(self) -> None:
        limits = limits_of(
            loaded(
                [
                    "listeners=PLAINTEXT://127.0.0.1:0,BROKERS://127.0.0.1:0",
                    "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT",
                    "inter.broker.listener.name=BROKERS",
                    "max.connections=10",
                    "listener.name.plaintext.max.connections=7",
                    "listener.name.brokers.max.connection.creation.rate=3",
                    "max.connections.per.ip.overrides=127.0.0.1:4,[::1]:5",
                ]
            )
        )
        assert limits.max_connections == 10
        assert limits.max_connections_by_listener == {"PLAINTEXT": 7}
        assert limits.max_rate_by_listener == {"BROKERS": 3}
        assert limits.max_by_ip == {"127.0.0.1": 4, "::1": 5}
        assert limits.protected_listener == "BROKERS"


class TestPlacement:
    @pytest.mark.parametrize(("placement", "threads"), [("fill", 1), ("round-robin", 3)])
    def test_connections_fill_one_thread_or_take_turns(self, placement: str, threads: int) -> None:
        settings = loaded([f"pybroker.connection.placement={placement}", "num.network.threads=3"])
        with running(settings=settings) as node:
            clients = [node.client() for _ in range(9)]
            for number, client in enumerate(clients):
                client.send(number)
            for number, client in enumerate(clients):
                assert client.receive_ids(1) == [number]
            names = {thread for _, _, thread in node.service.seen}
            assert names == {f"network-thread-PLAINTEXT-{number}" for number in range(threads)}

    def test_order_holds_with_several_threads_and_hops(self) -> None:
        def handle(request: Request) -> bool:
            match request.correlation_id % 4:
                case 0 | 1:
                    answer(request)
                case 2:
                    if not request.may_block:
                        return False
                    answer(request)
                case 3:
                    threading.Timer(0, answer, [request]).start()
            return True

        settings = loaded(["pybroker.connection.placement=round-robin", "num.network.threads=3", "num.io.threads=3"])
        with running(FakeService(handle), settings) as node:
            clients = [node.client() for _ in range(6)]
            for _ in range(5):
                for client in clients:
                    client.send(*range(20))
            for client in clients:
                assert client.receive_ids(100) == [*range(20)] * 5

    def test_the_number_of_threads_may_change(self) -> None:
        options = ["pybroker.connection.placement=round-robin"]
        with running(settings=loaded([*options, "num.network.threads=1"])) as node:
            client = node.client()
            client.send(1)
            assert client.receive_ids(1) == [1]
            node.server.reconfigure(loaded([*options, "num.network.threads=3"]))
            for _ in range(3):
                more = node.client()
                more.send(2)
                assert more.receive_ids(1) == [2]
            assert len({thread for _, _, thread in node.service.seen}) == 3


class TestListenersThatChange:
    PROTOCOLS = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT,CONTROLLER:PLAINTEXT"

    def test_one_is_added_and_removed_while_the_other_serves_on(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        with running(settings=loaded([self.PROTOCOLS])) as node:
            client = node.client()
            client.send(1)
            assert client.receive_ids(1) == [1]
            both = loaded([self.PROTOCOLS, "listeners=PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0"])
            node.server.reconfigure(both)
            port = node.server.ports()["OTHER"]
            other = Client(port)
            other.send(2)
            assert other.receive_ids(1) == [2]
            node.server.reconfigure(loaded([self.PROTOCOLS]))
            assert other.is_closed_by_server()
            other.close()
            with pytest.raises(ConnectionRefusedError):
                Client(port)
            assert set(node.server.ports()) == {"PLAINTEXT"}
            client.send(3)
            assert client.receive_ids(1) == [3]
        assert texts(caplog) == [
            f"opened listener OTHER://127.0.0.1:0 on port {port}",
            "closed listener OTHER://127.0.0.1:0",
        ]

    def test_the_first_may_go(self) -> None:
        """It is its thread that moves the meters on."""
        with running(settings=loaded([self.PROTOCOLS])) as node:
            node.server.reconfigure(
                loaded([self.PROTOCOLS, "inter.broker.listener.name=OTHER", "listeners=OTHER://127.0.0.1:0"])
            )
            client = Client(node.server.ports()["OTHER"])
            client.send(2)
            assert client.receive_ids(1) == [2]
            client.close()

    def test_one_that_cannot_be_opened_is_named_and_the_others_stay(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken, running(settings=loaded([self.PROTOCOLS])) as node:
            listeners = f"listeners=PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:{taken.getsockname()[1]}"
            with pytest.raises(ListenerError, match="in use by another process"):
                node.server.reconfigure(loaded([self.PROTOCOLS, listeners]))
            client = node.client()
            client.send(1)
            assert client.receive_ids(1) == [1]


class TestTheEnd:
    def test_stop_accepting_leaves_connections_alone(self) -> None:
        with running() as node:
            client = node.client()
            client.send(1)
            assert client.receive_ids(1) == [1]
            node.server.stop_accepting()
            with pytest.raises(ConnectionRefusedError):
                Client(node.port)
            client.send(2)
            assert client.receive_ids(1) == [2]

    def test_what_is_being_handled_is_answered_first(self) -> None:
        begun, go = threading.Event(), threading.Event()

        def handle(request: Request) -> bool:
            if not request.may_block:
                return False
            begun.set()
            assert go.wait(TIMEOUT_S)
            answer(request)
            return True

        with running(FakeService(handle), config(num_io_threads=1)) as node:
            client, queued = node.client(), node.client()
            client.send(1)
            assert begun.wait(TIMEOUT_S)
            queued.send(2)
            wait_until(lambda: node.queue_size() == 1, TIMEOUT_S, lambda: "not queued")
            stopper = threading.Thread(target=node.server.stop)
            stopper.start()
            go.set()
            assert client.receive_ids(1) == [1]
            assert queued.receive_ids(1) == [2]
            assert client.is_closed_by_server()
            stopper.join()

    def test_an_answer_after_the_end_is_dropped(self) -> None:
        later = Later()
        with running(FakeService(later)) as node:
            client = node.client()
            client.send(1)
            later.wait(1)
            node.server.stop()
            answer(later.requests[0])
            assert client.is_closed_by_server()

    def test_a_handler_that_does_not_end_is_named(self, caplog: pytest.LogCaptureFixture) -> None:
        begun, go = threading.Event(), threading.Event()

        def handle(request: Request) -> bool:
            if not request.may_block:
                return False
            begun.set()
            assert go.wait(TIMEOUT_S)
            answer(request)
            return True

        with running(FakeService(handle)) as node:
            client = node.client()
            client.send(1)
            assert begun.wait(TIMEOUT_S)
            node.server.stop(timeout_s=0.05)
            go.set()
        assert "request-handler-0 is still busy" in texts(caplog)[0]


class TestMetrics:
    def test_idle_ratios_and_queue_size_are_there(self) -> None:
        metrics = Metrics()
        server = SocketServer(config(), FakeService(), all_apis, metrics)
        server.bind()
        server.start()
        values = metrics.values()
        # The network thread has had its start to do.
        assert 0.0 <= values.pop(PROCESSORS) <= 1.0
        assert values == {HANDLERS: 1.0, "kafka.network:type=RequestChannel,name=RequestQueueSize": 0}
        server.stop()
        assert metrics.values() == {}


class TestEnds:
    """Who watches over nodes is told of a peer's end, whatever its connection is doing."""

    @pytest.mark.parametrize("is_waiting", [False, True], ids=["idle", "waiting for an answer"])
    @pytest.mark.parametrize("resets", [False, True], ids=["closed", "reset"])
    def test_it_is_told_at_once(self, is_waiting: bool, resets: bool) -> None:
        later = Later()
        told: list[int] = []
        server = SocketServer(
            config(), FakeService(later), all_apis, on_closed=lambda connection: told.append(connection.peer[1])
        )
        server.bind()
        server.start()
        try:
            client = Client(server.ports()["PLAINTEXT"])
            port = client.socket.getsockname()[1]
            client.send(1)
            later.wait(1)
            if not is_waiting:
                answer(later.requests[0])
                assert client.receive_ids(1) == [1]
            assert told == []
            if resets:
                client.reset()
            else:
                client.close()
            wait_until(lambda: port in told, TIMEOUT_S, lambda: "nobody was told of the end")
        finally:
            server.stop()


class Work(threading.local):
    """A clock of each thread's own, which only its work moves on, by a second."""

    now_ns = 1_000_000_000

    def do(self, *_: object) -> None:
        self.now_ns += 1_000_000_000


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    made = Work()
    for module in (acceptor, connection, handler_pool, loop_thread, socket_server):
        monkeypatch.setattr(module, "monotonic_ns", lambda: made.now_ns)
    return made


HANDLERS = "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent"
PROCESSORS = "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent"


class TestIdleRatios:
    """After one second of work, four seconds after the start."""

    def idle(self, node: Running) -> dict[str, float]:
        (thread,) = node.server._open["PLAINTEXT"].threads.started
        # What is being measured is counted when it is over.
        assert thread.run(lambda: None, TIMEOUT_S)
        metrics = node.server._metrics
        metrics.tick(5_000_000_000)
        values = metrics.values()
        return {"network": values[PROCESSORS], "handlers": values[HANDLERS]}

    def test_a_request_on_the_network_thread(self, work: Work) -> None:
        def handle(request: Request) -> bool:
            work.do()
            answer(request)
            return True

        with running(FakeService(handle)) as node:
            client = node.client()
            client.send(1)
            assert client.receive_ids(1) == [1]
            assert self.idle(node) == {"network": 0.75, "handlers": 1.0}

    def test_a_request_on_a_handler_thread(self, work: Work) -> None:
        def handle(request: Request) -> bool:
            if not request.may_block:
                return False
            work.do()
            answer(request)
            return True

        with running(FakeService(handle), config(num_io_threads=2)) as node:
            client = node.client()
            client.send(1)
            assert client.receive_ids(1) == [1]
            pool = node.server._pool
            wait_until(lambda: pool.busy_ns() > 0, TIMEOUT_S, lambda: "no time was counted")
            assert self.idle(node) == {"network": 1.0, "handlers": 0.875}

    @pytest.mark.parametrize("what", ["posted", "soon", "accepting", "a broken connection"])
    def test_other_work_of_the_network_thread(self, work: Work, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
        done = threading.Event()

        def do(*_: object) -> None:
            work.do()
            done.set()

        later = Later()
        with running(FakeService(later)) as node:
            (thread,) = node.server._open["PLAINTEXT"].threads.started
            if what == "posted":
                thread.post(do)
            elif what == "soon":
                assert thread.run(lambda: thread.soon(do, None), TIMEOUT_S)
            elif what == "accepting":
                enter = Gate.enter
                monkeypatch.setattr(Gate, "enter", lambda *arguments: (do(), enter(*arguments))[1])
                node.client()
            else:
                client = node.client()
                client.send(1)
                later.wait(1)
                (made,) = thread.connections
                client.send(2)
                wait_until(lambda: not made._is_reading, TIMEOUT_S, lambda: "it still reads")
                monkeypatch.setattr(node.server, "_told_of_closed", do)
                client.reset()
            assert done.wait(TIMEOUT_S)
            assert self.idle(node) == {"network": 0.75, "handlers": 1.0}
