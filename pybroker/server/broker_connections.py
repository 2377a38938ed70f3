"""Which connections of a controller's listeners come from which node: when the last one of a node breaks, its process is
likely dead, and whoever wants to know hears of it at once.

Network threads call it; the lock is held for a few steps only.
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
            is_first = not connections
            connections.add(connection)
        if is_first:
            self._on_made(node_id)

    def closed(self, connection: Hashable) -> None:
        if connection not in self._node_of:
            return
        with self._lock:
            node_id = self._forget(connection)
        if node_id is not None:
            self._on_lost(node_id)

    def _forget(self, connection: Hashable) -> int | None:
        """The node that has no connection left by that, if it is so."""
        node_id = self._node_of.pop(connection, None)
        if node_id is None:
            return None
        connections = self._connections[node_id]
        connections.discard(connection)
        if connections:
            return None
        del self._connections[node_id]
        return node_id
