"""`pybroker cluster start` as a developer uses it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from support.node_client import NodeClient
from support.ports import server_ports
from support.waiting import wait_until

WAIT_S = 60.0


class Started:
    def __init__(self, directory: Path, *options: str) -> None:
        self._output = directory / "output"
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                (sys.executable, "-m", "pybroker", "cluster", "start", *options),
                cwd=directory,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self) -> str:
        return self._output.read_text()

    def wait_for(self, text: str, times: int = 1) -> None:
        wait_until(lambda: self.said.count(text) >= times, WAIT_S, lambda: self.said)

    def stop(self) -> int:
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(WAIT_S)


def test_a_cluster_starts_serves_keeps_what_it_has_and_stops(tmp_path: Path) -> None:
    port = server_ports(6)[0]
    options = ("--dir", "nodes", "--port", str(port))
    first = Started(tmp_path, *options)
    first.wait_for(f"ready: localhost:{port},localhost:{port + 2},localhost:{port + 4}")
    with NodeClient(port) as client:
        client.create_topic("t", 3)
    assert first.stop() == 0
    second = Started(tmp_path, *options)
    second.wait_for("ready: ", times=2)
    with NodeClient(port + 2) as client:
        assert len(client.topic("t").partitions) == 3
    assert second.stop() == 0


def test_a_node_that_cannot_start_is_told_of_and_the_others_are_stopped(tmp_path: Path) -> None:
    options = ("--brokers", "1", "--controllers", "1", "--port", str(server_ports(2)[0]), "--override", "log.dirs=/dev/null/x")
    started = Started(tmp_path, *options)
    started.wait_for("node 1 does not start; the end of ")
    assert started._process.wait(WAIT_S) == 1
