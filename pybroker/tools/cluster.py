"""`pybroker cluster start`: a cluster of real processes on this machine, for development.

Each node has a folder with its server.properties, its data and its log; a second start finds them again. Runs until Ctrl-C or
SIGTERM, and then stops the nodes as an operator would, with SIGTERM; a node that ends by itself is told of and left alone.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event
from typing import Final

from pybroker.base.ids import uuid_to_text
from pybroker.log.manager.directories import random_uuid

HOST: Final = "localhost"
READY: Final = "ready in "
START_S: Final = 60.0
STOP_S: Final = 60.0
POLL_S: Final = 0.05

_PROPERTIES: Final = """\
process.roles={roles}
node.id={node_id}
listeners={listeners}
controller.listener.names=CONTROLLER
controller.quorum.voters={voters}
log.dirs={data}
default.replication.factor={replicas}
min.insync.replicas={in_sync}
offsets.topic.replication.factor={replicas}
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr={in_sync}
share.coordinator.state.topic.replication.factor={replicas}
share.coordinator.state.topic.min.isr={in_sync}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    start = actions.add_parser("start", help="start the nodes, and stop them at Ctrl-C", allow_abbrev=False)
    start.add_argument("--brokers", type=_count, default=3, metavar="N", help="how many nodes are brokers (3)")
    start.add_argument("--controllers", type=_count, default=3, metavar="N", help="how many nodes are controllers, too (3)")
    start.add_argument("--dir", type=Path, default=Path("pybroker-cluster"), help="where the nodes have their folders")
    start.add_argument("--port", type=int, default=9092, help="of the first node; each takes two (9092)")
    start.add_argument("--override", action="append", default=[], metavar="KEY=VALUE", help="for every node; may be repeated")


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"found {number}; expected 1 or more")
    return number


class _Node:
    def __init__(self, number: int, args: argparse.Namespace) -> None:
        self.id = number
        self.is_broker = number <= args.brokers
        self.is_controller = number <= args.controllers
        self.broker_port = args.port + 2 * (number - 1)
        self.controller_port = self.broker_port + 1
        self.folder: Path = args.dir / f"node-{number}"
        self.log = self.folder / "node.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def address(self) -> str:
        return f"{HOST}:{self.broker_port}"

    def write(self, voters: str, brokers: int) -> None:
        """Its server.properties, as far as it has none: an operator may have edited it."""
        file = self.folder / "server.properties"
        if file.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        listeners = [f"PLAINTEXT://{self.address}"] if self.is_broker else []
        if self.is_controller:
            listeners.append(f"CONTROLLER://{HOST}:{self.controller_port}")
        roles = [role for role, has in (("broker", self.is_broker), ("controller", self.is_controller)) if has]
        replicas = min(3, brokers)
        file.write_text(
            _PROPERTIES.format(
                roles=",".join(roles),
                node_id=self.id,
                listeners=",".join(listeners),
                voters=voters,
                data=self.folder.resolve() / "data",
                replicas=replicas,
                in_sync=max(1, replicas - 1),
            )
        )

    def format(self, cluster_id: str) -> None:
        command = (sys.executable, "-m", "pybroker", "storage", "format", "-g", "-t", cluster_id)
        subprocess.run((*command, "-c", str(self.folder / "server.properties")), check=True, stdout=subprocess.DEVNULL)

    def start(self, overrides: list[str]) -> None:
        options = [part for one in overrides for part in ("--override", one)]
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                (sys.executable, "-m", "pybroker", "start", str(self.folder / "server.properties"), *options),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for us: we stop the nodes.
                start_new_session=True,
            )

    def has_ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def is_ready(self) -> bool:
        with self.log.open("rb") as said:
            said.seek(self._log_start)
            return READY.encode() in said.read()


def run(args: argparse.Namespace) -> int:
    nodes = [_Node(number, args) for number in range(1, max(args.brokers, args.controllers) + 1)]
    voters = ",".join(f"{node.id}@{HOST}:{node.controller_port}" for node in nodes if node.is_controller)
    stop = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    cluster_id = _cluster_id(args.dir)
    try:
        for node in nodes:
            node.write(voters, args.brokers)
            node.format(cluster_id)
        for node in nodes:
            node.start(args.override)
        if not _wait_ready(nodes, stop):
            return 1
        if not stop.is_set():
            print(f"ready: {','.join(node.address for node in nodes if node.is_broker)}", flush=True)
            print(f"{len(nodes)} nodes in {args.dir}, each with its node.log; Ctrl-C stops them", flush=True)
            _watch(nodes, stop)
    except subprocess.CalledProcessError as error:
        print(f"a node's folder could not be formatted: {error}", file=sys.stderr)
        return 1
    finally:
        stopped = _stop(nodes)
    return 0 if stopped else 1


def _cluster_id(directory: Path) -> str:
    file = directory / "cluster.id"
    if not file.exists():
        directory.mkdir(parents=True, exist_ok=True)
        file.write_text(uuid_to_text(random_uuid()) + "\n")
    return file.read_text().strip()


def _wait_ready(nodes: list[_Node], stop: Event) -> bool:
    deadline = time.monotonic() + START_S
    waiting = list(nodes)
    while waiting and not stop.wait(POLL_S):
        for node in waiting:
            if node.has_ended() or time.monotonic() > deadline:
                print(f"node {node.id} does not start; the end of {node.log}:", file=sys.stderr)
                print(*node.log.read_text(errors="replace").splitlines()[-10:], sep="\n", file=sys.stderr)
                return False
        waiting = [node for node in waiting if not node.is_ready()]
    return True


def _watch(nodes: list[_Node], stop: Event) -> None:
    alive = list(nodes)
    while not stop.wait(POLL_S):
        for node in [one for one in alive if one.has_ended()]:
            assert node.process is not None
            print(f"node {node.id} has ended with {node.process.returncode}; its last words are in {node.log}", flush=True)
            alive.remove(node)


def _stop(nodes: list[_Node]) -> bool:
    """All at once, so that none waits for leaders that nobody can take any more."""
    running = [node for node in nodes if node.process is not None and not node.has_ended()]
    for node in running:
        assert node.process is not None
        os.kill(node.process.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    clean = True
    for node in running:
        assert node.process is not None
        try:
            node.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            print(f"node {node.id} did not stop in {STOP_S:.0f} s and is killed", file=sys.stderr)
            node.process.kill()
            node.process.wait()
            clean = False
    return clean
