"""A real `pybroker start` on loopback: one node that is controller and broker at once, unless `process.roles` says otherwise.
What can be asked of it is in broker_process.py; this is the one place where the interop tests start one.

Its ports lie outside the range that the kernel deals out, since a client that reconnects during a restart could otherwise be
dealt the node's own port. Everything the node says is in `log_file`. It never outlives the thread that started it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from interop.broker_process import CLUSTER_ID, BrokerProcess

_PYBROKER = (sys.executable, "-m", "pybroker")
_LISTENING = re.compile(r"listening on (?:PLAINTEXT|CONTROLLER)://([^\s,]+:\d+)")
_READY = re.compile(r"\bready in (\d+(?:\.\d+)?) s\b")


class PybrokerNode(BrokerProcess):
    """`options` are more of `pybroker start`'s, such as ("--log-level", "debug")."""

    NAME = "pybroker"
    STOPPED = 0

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] | None = None,
        *,
        ports: tuple[int, int] | None = None,
        format_options: Sequence[str] = (),
        options: Sequence[str] = (),
    ) -> None:
        super().__init__(directory, properties, ports=ports, format_options=format_options)
        self._options = tuple(options)
        self._said_before = 0

    @property
    def ready_s(self) -> float:
        """The seconds that the last start took, in the node's own words."""
        found = _READY.search(self.said())
        assert found is not None, f"pybroker is not ready:\n{self.last_words()}"
        return float(found[1])

    def said(self) -> str:
        """What the node has said since its last start."""
        with self.log_file.open(errors="replace") as file:
            file.seek(self._said_before)
            return file.read()

    def format(self, config: Path) -> None:
        command = (*_PYBROKER, "storage", "format", "-t", CLUSTER_ID, "-c", str(config), *self.format_options)
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done

    def command(self, config: Path) -> Sequence[str]:
        self._said_before = self.log_file.stat().st_size if self.log_file.exists() else 0
        return (*_PYBROKER, "start", str(config), *self._options)

    def output(self) -> Path:
        return self.log_file

    def serves(self) -> bool:
        said = self.said()
        if _READY.search(said) is None:
            return False
        found = _LISTENING.findall(said)
        assert found, f"pybroker does not say where it listens:\n{self.last_words()}"
        expected = {self.bootstrap} if self.is_broker else {self.controller}
        assert expected <= set(found), f"pybroker listens elsewhere:\n{self.last_words()}"
        return super().serves()
