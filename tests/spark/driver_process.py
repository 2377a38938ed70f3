"""`python -m spark_jobs` in a process of its own, which may be told to kill itself and its JVM around a commit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
RUN_S = 280.0
# A JVM that lives for seconds: the first compiler only.
SHORT_LIVED = {"JAVA_TOOL_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
ENVIRONMENT = os.environ | SHORT_LIVED | {"PYTHONPATH": str(ROOT)}

# The whole process group dies, as with a machine, on the first commit of a transaction.
_KILLED = """
import os, signal, sys
from spark_jobs import cli, postgres

class Connection:
    def __init__(self, real): self._real = real
    def __getattr__(self, name): return getattr(self._real, name)
    def commit(self):
        if {when!r} == "after":
            self._real.commit()
        os.killpg(0, signal.SIGKILL)

class Database(postgres.Database):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._connection = Connection(self._connection)

import spark_jobs.jobs.to_postgres as job
job.Database = Database
sys.exit(cli.main(sys.argv[1:]))
"""


class DriverProcess:
    """`kill` is "before" or "after" the commit of the first batch."""

    def __init__(self, directory: Path, arguments: Sequence[str], kill: str | None = None) -> None:
        self._output = directory / f"driver-{len(list(directory.glob('driver-*')))}"
        program = ("-m", "spark_jobs") if kill is None else ("-c", _KILLED.format(when=kill))
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                (sys.executable, *program, *arguments),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=ENVIRONMENT,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def said(self) -> str:
        return self._output.read_text(errors="replace")

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> int:
        """The exit code."""
        return self._process.wait(RUN_S)

    def kill(self) -> None:
        """kill -9 of the driver and its JVM."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
