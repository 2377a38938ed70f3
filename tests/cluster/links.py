"""The links between nodes, which can be cut: each node is reached by the others through a relay on loopback.

A relay knows whose connection it carries by the process that owns the other end (/proc), so that any one way from a node to
another can be closed by itself. A cut loses no byte: what is sent waits, and so does the end of a connection, as with packets
that are dropped and sent again. Clients of the cluster do not come this way. One thread of its own carries everything.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

Way = tuple[int, int]
_CHUNK_BYTES = 65_536
_POLL_S = 0.01


class Links:
    def __init__(self, pids: Callable[[], dict[int, int]]) -> None:
        """`pids` gives the processes of the nodes that run."""
        self._pids = pids
        self._cut: frozenset[Way] = frozenset()
        self._loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def relay(self, port: int, target: int, target_port: int) -> None:
        """From now on `port` leads to `target_port` of the node `target`."""

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(asyncio.CancelledError):  # at the end
                await self._carry(reader, writer, target, target_port)

        made = asyncio.run_coroutine_threadsafe(asyncio.start_server(accepted, "127.0.0.1", port), self._loop)
        self._servers.append(made.result(10))

    def cut(self, ways: Iterable[Way]) -> None:
        self._cut |= set(ways)

    def mend(self) -> None:
        self._cut = frozenset()

    def close(self) -> None:
        async def end() -> None:
            for server in self._servers:
                server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int, target_port: int) -> None:
        source = self._owner_of(writer.get_extra_info("peername")[1], writer.get_extra_info("sockname")[1])
        if source is None:
            writer.close()
            return
        try:
            await self._until_open((source, target))
            further, onward = await asyncio.open_connection("127.0.0.1", target_port)
        except OSError:
            writer.close()
            return
        pumps = [
            asyncio.ensure_future(self._pump(reader, onward, (source, target))),
            asyncio.ensure_future(self._pump(further, writer, (target, source))),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            for one in (writer, onward):
                one.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way) -> None:
        with suppress(OSError):
            while True:
                data = await reader.read(_CHUNK_BYTES)
                await self._until_open(way)
                if not data:
                    return
                writer.write(data)
                await writer.drain()

    async def _until_open(self, way: Way) -> None:
        while way in self._cut:
            await asyncio.sleep(_POLL_S)

    def _owner_of(self, port: int, relay_port: int) -> int | None:
        """The node whose connection goes from `port` to a relay's; None if its process is gone."""
        wanted = (f"0100007F:{port:04X}", f"0100007F:{relay_port:04X}")
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if (fields[1], fields[2]) == wanted:
                socket = f"socket:[{fields[9]}]"
                return next((node for node, pid in self._pids().items() if socket in _descriptors(pid)), None)
        return None


def _descriptors(pid: int) -> set[str]:
    found = set()
    with suppress(OSError):
        for one in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                found.add(os.readlink(one.path))
    return found
