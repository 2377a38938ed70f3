"""Which connections of a controller's listeners come from which node: when the last one of a node breaks, its process is
likely dead, and whoever wants to know hears of it at once.

Network threads call it. What happened to a node is told under the lock, so that it is told in the order in which it happened;
whoever is told takes note of it and returns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable


class BrokerConnections:
    def __init__(self, on_made: Callable[[int], None], on_lost: Callable[[int], None]) -> None:
        """Both are told the id of a node: that it has a connection after it had none, and that it has none any more."""
        self._on_made = on_made
        self._on_lost = on_lost
        self._node_of: dict[Hashable, int] = {}
        self._connections: dict[int, set[Hashable]] = {}
        self._lock = threading.Lock()

    def seen(self, node_id: int, connection: Hashable) -> None:
        """A request in the name of `node_id` came over `connection`."""
        if self._node_of.get(connection) == node_id:
            return
        with self._lock:
            self._forget(connection)
            self._node_of[connection] = node_id
            connections = self._connections.setdefault(node_id, set())
            connections.add(connection)
            if len(connections) == 1:
                self._on_made(node_id)

    def closed(self, connection: Hashable) -> None:
        if connection not in self._node_of:
            return
        with self._lock:
            self._forget(connection)

    def _forget(self, connection: Hashable) -> None:
        node_id = self._node_of.pop(connection, None)
        if node_id is None:
            return
        connections = self._connections[node_id]
        connections.discard(connection)
        if not connections:
            del self._connections[node_id]
            self._on_lost(node_id)
