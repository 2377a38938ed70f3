"""A cluster on which everything can go wrong that goes wrong with machines: each fault is a context, healed at its end.

Data lies in a small file system of its own where mounting is allowed, so that a disk can be full; nodes reach each other
through links that can be cut; the wall clock of each can be set. Clients come by a listener of their own, straight.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random

from cluster.links import Links
from cluster.processes import COMBINED, Cluster, Member
from node.process import ROOT
from support.ports import server_ports

IDS = (1, 2, 3)
DISK_MIB = 256
# Within what the defaults allow: records may be an hour ahead of the broker's clock (message.timestamp.after.max.ms), and a
# producer is forgotten after a day (producer.id.expiration.ms).
SHIFTS_S = (-50 * 60, 20 * 3600)
_CLOCK_SHIFT = str(Path(__file__).resolve().parent / "clock_shift")

Fault = Callable[[Random], AbstractContextManager[str]]


class FaultyCluster:
    def __init__(self, directory: Path, properties: Mapping[str, str]) -> None:
        self._stack = ExitStack()
        nodes = self.nodes = Cluster(directory, dict.fromkeys(IDS, COMBINED), properties, dynamic=False)
        self._stack.callback(nodes.close)
        self.links = Links(lambda: {one.id: one.process.pid for one in nodes.running if one.process is not None})
        self._stack.callback(self.links.close)
        self.why_no_disks = self._mount_disks()
        self._write()
        nodes.format()

    def close(self) -> None:
        self._stack.close()

    def _write(self) -> None:
        ports = server_ports(3 * len(IDS))
        relays = {node_id: ports[3 * number : 3 * number + 3] for number, node_id in enumerate(IDS)}
        voters = ",".join(f"{node_id}@127.0.0.1:{relays[node_id][1]}" for node_id in IDS)
        for one in self.nodes.members.values():
            broker_relay, controller_relay, internal = relays[one.id]
            self.links.relay(broker_relay, one.id, internal)
            self.links.relay(controller_relay, one.id, one.controller_port)
            clients, between = f"PLAINTEXT://127.0.0.1:{one.broker_port}", "BETWEEN://127.0.0.1:"
            one.write(
                self.nodes.properties
                | {
                    "listeners": f"{clients},{between}{internal},CONTROLLER://127.0.0.1:{one.controller_port}",
                    "advertised.listeners": f"{clients},{between}{broker_relay},CONTROLLER://127.0.0.1:{controller_relay}",
                    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BETWEEN:PLAINTEXT,CONTROLLER:PLAINTEXT",
                    "inter.broker.listener.name": "BETWEEN",
                    "controller.quorum.voters": voters,
                    "broker.rack": f"rack-{one.id}",
                }
            )
            self._clock_file(one).write_bytes(bytes(8))
            one.environment = {"PYTHONPATH": f"{_CLOCK_SHIFT}:{ROOT}", "CLOCK_SHIFT": str(self._clock_file(one))}

    def _mount_disks(self) -> str:
        """Nothing, or why a disk cannot be filled here."""
        if os.geteuid() != 0 or shutil.which("mount") is None:
            return "mounting a small file system takes root"
        for one in self.nodes.members.values():
            data = one.directory / "data"
            data.mkdir(parents=True)
            command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(data)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                return f"mount: {done.stderr.strip()}"
            self._stack.callback(subprocess.run, ["umount", "--lazy", str(data)], check=False)
        # The nodes go before their disks, the links last.
        self._stack.callback(self.nodes.close)
        return ""

    def _clock_file(self, member: Member) -> Path:
        return member.directory / "clock"

    def recover(self) -> list[int]:
        """When no fault is left: all run again. Who ended by itself."""
        over = [one for one in self.nodes.running if one.process is not None and one.process.is_over]
        for one in over:
            one.kill()
            one.start()
        for one in self.nodes.members.values():
            one.wait_ready()
        return [one.id for one in over]

    # The faults. What a context gives is its story, for a failing run to tell.

    @property
    def kinds(self) -> dict[str, Fault]:
        kinds: dict[str, Fault] = {
            "kill": self.killed,
            "kill all": self.all_killed,
            "stop": self.stopped,
            "hang": self.hung,
            "isolate": self.isolated,
            "cut": self.cut,
            "clock": self.clock_set,
        }
        return kinds if self.why_no_disks else kinds | {"full disk": self.disk_filled}

    def _any(self, draw: Random) -> Member:
        """One that no other fault has taken down."""
        return draw.choice([one for one in self.nodes.members.values() if one.process is not None])

    @contextmanager
    def killed(self, draw: Random) -> Iterator[str]:
        member = self._any(draw)
        member.kill()
        yield f"node {member.id} killed"
        member.start()

    @contextmanager
    def all_killed(self, draw: Random) -> Iterator[str]:
        down = self.nodes.running
        for one in down:
            one.kill()
        for one in down:
            one.start()
        yield "all killed"

    @contextmanager
    def stopped(self, draw: Random) -> Iterator[str]:
        member = self._any(draw)
        assert member.stop() == 0
        yield f"node {member.id} stopped"
        member.start()

    @contextmanager
    def hung(self, draw: Random) -> Iterator[str]:
        member = self._any(draw)
        member.pause()
        yield f"node {member.id} hangs"
        member.resume()

    @contextmanager
    def isolated(self, draw: Random) -> Iterator[str]:
        """From the other nodes, not from clients."""
        lonely = draw.choice(IDS)
        self.links.cut((a, b) for a in IDS for b in IDS if a != b and lonely in (a, b))
        yield f"node {lonely} isolated"
        self.links.mend()

    @contextmanager
    def cut(self, draw: Random) -> Iterator[str]:
        """Some ways between two nodes, in one direction or both."""
        ways = draw.sample([(a, b) for a in IDS for b in IDS if a != b], draw.randint(1, 3))
        self.links.cut(ways)
        yield f"ways {ways} cut"
        self.links.mend()

    @contextmanager
    def disk_filled(self, draw: Random) -> Iterator[str]:
        member = self._any(draw)
        filler = member.directory / "data" / "filler"
        with filler.open("wb") as file:
            while free := shutil.disk_usage(filler.parent).free:
                with suppress(OSError):  # the node writes meanwhile
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, free)
        yield f"disk of node {member.id} full"
        filler.unlink()

    @contextmanager
    def clock_set(self, draw: Random) -> Iterator[str]:
        """And left so."""
        member = draw.choice(list(self.nodes.members.values()))
        shift_s = draw.randint(*SHIFTS_S)
        with self._clock_file(member).open("r+b") as file:
            file.write(struct.pack("<q", shift_s * 10**9))
        yield f"clock of node {member.id} off by {shift_s} s"


@contextmanager
def faulty_cluster(directory: Path, properties: Mapping[str, str]) -> Iterator[FaultyCluster]:
    """Formatted, not started."""
    made = FaultyCluster(directory, properties)
    try:
        yield made
    finally:
        made.close()
