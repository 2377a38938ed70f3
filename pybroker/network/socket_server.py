"""The reactor put together: listeners with their network threads, one request queue and one handler pool for all.

    server = SocketServer(config, service, apis_of)
    server.bind(); server.start(); …; server.stop_accepting(); server.stop()

Safe from any thread: a lock keeps these calls apart.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from threading import Event, RLock
from time import monotonic_ns
from typing import Final

from pybroker.base.metrics import TICK_S, IdleMeter, Metrics
from pybroker.config.broker import Config
from pybroker.config.listeners import Listener, problem_with_protocol
from pybroker.network.acceptor import OS_DEFAULT, Acceptor, ListenerError, bind
from pybroker.network.connection import Connection
from pybroker.network.gate import Gate
from pybroker.network.handler_pool import HandlerPool
from pybroker.network.headers import Apis, table_of
from pybroker.network.limits import Limits
from pybroker.network.loop_thread import LoopThread
from pybroker.network.network_thread import NetworkThread
from pybroker.network.placement import NetworkThreads, takes_turns
from pybroker.network.service import Service
from pybroker.network.transport import MAX_RECEIVE_ROOM, PlainTransport

logger = logging.getLogger(__name__)

STOP_TIMEOUT_S: Final = 10.0


class _Open:
    """A listener that is open."""

    __slots__ = ("acceptor", "threads")

    def __init__(self, acceptor: Acceptor, threads: NetworkThreads) -> None:
        self.acceptor = acceptor
        self.threads = threads


class SocketServer:
    def __init__(
        self,
        config: Config,
        service: Service,
        apis_of: Callable[[str], Apis],
        metrics: Metrics | None = None,
        *,
        listeners_of: Callable[[Config], Sequence[Listener]] = lambda config: config.listeners,
        on_closed: Callable[[Connection], None] = lambda connection: None,
    ) -> None:
        """`listeners_of` says which listeners are this server's; `on_closed` hears, on a network thread, of every connection
        that is gone, or whose peer has ended though a request of it is not answered yet: maybe twice."""
        self._config = config
        self._listeners_of = listeners_of
        self._told_of_closed = on_closed
        self._service = service
        self._apis_of = apis_of
        self._pool = HandlerPool(
            config.int("num.io.threads"), config.int("queued.max.requests"), config.int("queued.max.request.bytes")
        )
        self.request_queue = self._pool.queue
        self._gate = Gate(limits_of(config), self._displace)
        self._open: dict[str, _Open] = {}
        self._lock = RLock()
        self._is_started = self._is_stopped = False
        self._ticking: NetworkThread | None = None
        self._metrics = metrics or Metrics()
        self._register(self._metrics)

    def bind(self) -> None:
        """Open every listener; ListenerError if one cannot be, and then none is."""
        with self._lock:
            try:
                for listener in self._listeners_of(self._config):
                    self._bind(listener)
            except ListenerError:
                for one in self._open.values():
                    one.acceptor.close()
                self._open.clear()
                raise

    def listeners(self) -> list[Listener]:
        """Those that are open, with the real port where 0 was asked for."""
        return [one.acceptor.listener._replace(port=one.acceptor.port) for one in list(self._open.values())]

    def ports(self) -> dict[str, int]:
        return {listener.name: listener.port for listener in self.listeners()}

    def host_thread(self, listener: str) -> LoopThread | None:
        """The thread that serves all connections of the listener, started already, for others who have to do with them and
        would only get in its way on a thread of their own; None where several threads are worth it, or there is no such
        listener."""
        with self._lock:
            found = self._open.get(listener)
            if found is None or self._is_stopped or takes_turns(self._config.text("pybroker.connection.placement")):
                return None
            return found.threads.start()

    def start(self) -> None:
        with self._lock:
            self._is_started = True
            for one in self._open.values():
                one.acceptor.start(one.threads.start())
            self._keep_ticking()

    def stop_accepting(self) -> None:
        """No new connections; those that are there go on."""
        with self._lock:
            for one in self._open.values():
                self._close_acceptor(one)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Requests in the queue are still handled and their answers sent as far as they go at once; then all ends."""
        with self._lock:
            if self._is_stopped:
                return
            self._is_stopped = True
            self.stop_accepting()
            self._pool.stop(timeout_s)
            for one in self._open.values():
                one.threads.stop(timeout_s)
            for name in self._names:
                self._metrics.remove(name)

    def reconfigure(self, config: Config) -> None:
        """Take over what may change while running: limits of connections, numbers of threads, the listeners themselves.

        ListenerError if a new one cannot be opened; everything else is then done.
        """
        # Looked at before the lock is asked for: `stop` holds it while it waits for handler threads, of which this may be one.
        if self._is_stopped:
            return
        with self._lock:
            self._config = config
            self._gate.change(limits_of(config))
            self._pool.resize(config.int("num.io.threads"))
            wanted = {listener.name: listener for listener in self._listeners_of(config)}
            for name, one in list(self._open.items()):
                if wanted.get(name) == one.acceptor.listener:
                    one.threads.resize(_threads_of(config, one.acceptor.listener))
                else:
                    self._close_acceptor(one)
                    one.threads.stop(STOP_TIMEOUT_S)
                    del self._open[name]
                    logger.info("closed listener %s", one.acceptor.listener)
            problem: ListenerError | None = None
            for listener in wanted.values():
                if listener.name not in self._open:
                    try:
                        self._add(listener)
                    except ListenerError as error:
                        problem = problem or error
            self._keep_ticking()
            if problem is not None:
                raise problem

    def connection_count(self, listener: str) -> int:
        return self._gate.connections(listener)

    def _add(self, listener: Listener) -> None:
        self._bind(listener)
        one = self._open[listener.name]
        if self._is_started:
            one.acceptor.start(one.threads.start())
        logger.info("opened listener %s on port %d", listener, one.acceptor.port)

    def _bind(self, listener: Listener) -> None:
        config = self._config
        protocol = config.security_protocols.get(listener.name, listener.name)
        problem = problem_with_protocol(listener, protocol)
        if problem is not None:
            raise ListenerError(problem)
        receive_buffer_bytes = config.int("socket.receive.buffer.bytes")
        receive_room = MAX_RECEIVE_ROOM if receive_buffer_bytes == OS_DEFAULT else receive_buffer_bytes
        sock = bind(listener, config.int("socket.listen.backlog.size"), receive_buffer_bytes)
        max_idle_ms = config.int("connections.max.idle.ms")

        def new_thread(number: int) -> NetworkThread:
            name = f"network-thread-{listener.name}-{number}"
            return NetworkThread(name, self._pool.queue, max_idle_ms, self._on_closed, self._told_of_closed)

        threads = NetworkThreads(_threads_of(config, listener), config.text("pybroker.connection.placement"), new_thread)
        max_bytes = config.int("socket.request.max.bytes")
        table = table_of(self._apis_of(listener.name))

        def take(accepted: socket.socket, peer: tuple[str, int]) -> None:
            thread = threads.choose()
            transport = PlainTransport(accepted, receive_room)
            thread.call(thread.adopt, Connection(thread, listener.name, peer, transport, self._service, table, max_bytes))

        acceptor = Acceptor(listener, sock, self._gate, config.int("socket.send.buffer.bytes"), take)
        self._open[listener.name] = _Open(acceptor, threads)

    def _close_acceptor(self, one: _Open) -> None:
        if not one.threads.started:
            one.acceptor.close()
            return
        if one.acceptor.is_closed:
            return
        closed = Event()

        def close() -> None:
            one.acceptor.close()
            closed.set()

        one.threads.started[0].post(close)
        if not closed.wait(STOP_TIMEOUT_S):
            logger.warning("%s is too busy to close its listening socket", one.threads.started[0].name)

    def _on_closed(self, connection: Connection) -> None:
        self._gate.leave(connection.listener_name, connection.peer[0])
        self._told_of_closed(connection)

    def _displace(self) -> None:
        """Close the connection, not one between brokers, that has been idle longest on the fullest thread."""
        protected = self._config.text("inter.broker.listener.name")
        threads = [thread for name, one in self._open.items() if name != protected for thread in one.threads.started]
        fullest = max(threads, key=lambda thread: len(thread.connections), default=None)
        if fullest is not None:
            fullest.post(fullest.close_idlest, "a connection between brokers takes its place, max.connections is reached")

    def _keep_ticking(self) -> None:
        """Some network thread moves the meters on."""
        started = [thread for one in self._open.values() for thread in one.threads.started]
        if started and self._ticking not in started:
            self._ticking = started[0]
            started[0].post(self._tick, started[0])

    def _tick(self, thread: NetworkThread) -> None:
        if thread is self._ticking:
            self._metrics.tick(monotonic_ns())
            thread.call_later(TICK_S, self._tick, thread)

    def _register(self, metrics: Metrics) -> None:
        pool = self._pool
        now_ns = monotonic_ns()
        handlers = "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent"
        processors = "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent"
        queue = "kafka.network:type=RequestChannel,name=RequestQueueSize"
        self._names = (handlers, processors, queue)
        metrics.idle_meter(handlers, IdleMeter(pool.busy_ns, lambda: pool.size, now_ns))
        metrics.idle_meter(processors, IdleMeter(self._network_busy_ns, self._network_threads, now_ns))
        metrics.gauge(queue, lambda: pool.queue.waiting)

    def _network_busy_ns(self) -> int:
        return sum(thread.busy_ns for one in self._open.values() for thread in one.threads.started)

    def _network_threads(self) -> int:
        """Those that run: what the first has no time for, the others do not take off it while there is a GIL."""
        return sum(len(one.threads.started) for one in self._open.values())


def _threads_of(config: Config, listener: Listener) -> int:
    threads: int = config.for_listener(listener.name, "num.network.threads")
    return threads


def limits_of(config: Config) -> Limits:
    names = [listener.name for listener in config.listeners]
    inter_broker = config.text("inter.broker.listener.name")
    return Limits(
        max_connections=config.int("max.connections"),
        max_connections_by_listener=_overrides(config, "max.connections"),
        max_per_ip=config.int("max.connections.per.ip"),
        max_by_ip=_by_ip(config.text("max.connections.per.ip.overrides")),
        max_rate=config.int("max.connection.creation.rate"),
        max_rate_by_listener=_overrides(config, "max.connection.creation.rate"),
        protected_listener=inter_broker if inter_broker in names and len(names) > 1 else None,
    )


def _overrides(config: Config, key: str) -> dict[str, int]:
    values = {listener.name: config.for_listener(listener.name, key) for listener in config.listeners}
    return {name: value for name, value in values.items() if value != config.int(key)}


def _by_ip(text: str) -> dict[str, int]:
    """`address:count,…`; a host name stands for all its addresses."""
    counts: dict[str, int] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        host, _, count = item.rpartition(":")
        try:
            found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        except OSError as error:
            logger.warning("max.connections.per.ip.overrides: %s is passed over: %s", host, error.strerror)
            continue
        counts |= {str(address[0]): int(count) for _, _, _, _, address in found}
    return counts
