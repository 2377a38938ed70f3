from __future__ import annotations

import threading

from pybroker.server.broker_connections import BrokerConnections


class Heard:
    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []
        self.connections = BrokerConnections(
            lambda node_id: self.events.append(("made", node_id)), lambda node_id: self.events.append(("lost", node_id))
        )


def test_a_node_is_lost_with_its_last_connection() -> None:
    heard = Heard()
    heard.connections.seen(7, "heartbeats")
    heard.connections.seen(7, "fetches")
    heard.connections.closed("heartbeats")
    assert heard.events == [("made", 7)]
    heard.connections.closed("fetches")
    assert heard.events == [("made", 7), ("lost", 7)]


def test_a_node_that_comes_back_is_told_again() -> None:
    heard = Heard()
    heard.connections.seen(7, "one")
    heard.connections.closed("one")
    heard.connections.seen(7, "two")
    assert heard.events == [("made", 7), ("lost", 7), ("made", 7)]


def test_connections_of_clients_are_nobodys() -> None:
    heard = Heard()
    heard.connections.closed("a client")
    assert heard.events == []


def test_the_requests_of_a_connection_are_told_once() -> None:
    heard = Heard()
    for _ in range(3):
        heard.connections.seen(7, "one")
    assert heard.events == [("made", 7)]


def test_a_connection_that_speaks_for_another_node_is_that_nodes() -> None:
    heard = Heard()
    heard.connections.seen(7, "one")
    heard.connections.seen(8, "one")
    heard.connections.closed("one")
    assert heard.events == [("made", 7), ("lost", 7), ("made", 8), ("lost", 8)]


def test_a_loss_is_told_before_what_comes_after_it() -> None:
    """Another thread may make a connection while the loss of the last one is being told; a controller that heard of them the
    other way round would take a broker that lives for dead."""
    events: list[str] = []
    threads: list[threading.Thread] = []

    def lost(_node_id: int) -> None:
        comes_back = threading.Thread(target=connections.seen, args=(7, "two"))
        comes_back.start()
        threads.append(comes_back)
        # It cannot be done before the loss is told.
        comes_back.join(0.05)
        events.append("lost")

    connections = BrokerConnections(lambda _node_id: events.append("made"), lost)
    connections.seen(7, "one")
    connections.closed("one")
    threads[0].join()
    assert events == ["made", "lost", "made"]
