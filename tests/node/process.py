"""One `pybroker start` in a process of its own, as a user would call it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from support.node_client import NodeClient
from support.waiting import wait_until

ROOT = str(Path(__file__).resolve().parents[2])
WAIT_S = 30.0
# Ports of the system's choice, on loopback.
ANY_PORT = ("--override", "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0")

_LISTENING = re.compile(r"listening on PLAINTEXT://\S+:(\d+)$", re.MULTILINE)


class NodeProcess:
    """`arguments` follow `pybroker start`. What it prints is in `said` and, line by line, in order: both streams are one."""

    def __init__(self, directory: Path, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._output = directory / f"output-{len(list(directory.glob('output-*')))}"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                (sys.executable, "-m", "pybroker", "start", *arguments),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": ROOT, **(environment or {})},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def said(self) -> str:
        return self._output.read_text(errors="replace")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    @property
    def port(self) -> int:
        found = _LISTENING.search(self.said)
        assert found is not None, self.said
        return int(found[1])

    def client(self) -> NodeClient:
        return NodeClient(self.port)

    def wait_ready(self) -> Self:
        self.wait_for("ready in ")
        return self

    def wait_for(self, text: str) -> None:
        def has_said() -> bool:
            is_over = self._process.poll() is not None
            said = text in self.said
            assert said or not is_over, f"ended with {self._process.returncode} without a word of {text!r}:\n{self.said}"
            return said

        wait_until(has_said, WAIT_S, lambda: f"not a word of {text!r}:\n{self.said}")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """The exit code."""
        try:
            return self._process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still runs after {WAIT_S} s:\n{self.said}") from None

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def children(self) -> list[int]:
        """The ids of the processes that it has started and that run."""
        threads = Path(f"/proc/{self._process.pid}/task").iterdir()
        return [int(child) for thread in threads for child in (thread / "children").read_text().split()]
