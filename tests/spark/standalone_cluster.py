"""Spark's own standalone cluster on loopback, from the pip package: one master and one worker, as processes of their own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Self

from interop.broker_process import free_ports
from spark.driver_process import SHORT_LIVED
from support.waiting import wait_until

START_S = 120.0
# Of a machine that knows nothing of this checkout.
BARE = {name: value for name, value in (os.environ | SHORT_LIVED).items() if name != "PYTHONPATH"}


class StandaloneCluster:
    """`url` is for --master. What the daemons say is in `directory`."""

    def __init__(self, directory: Path) -> None:
        import pyspark

        self.spark_home = Path(pyspark.__file__).parent
        self.url = f"spark://127.0.0.1:{free_ports()[0]}"
        self._directory = directory
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            port = self.url.rpartition(":")[2]
            self._start("master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", "0")
            self._wait_for("I have been elected leader")
            work = str(self._directory / "work")
            limits = ("--cores", "2", "--memory", "1g", "--work-dir", work)
            self._start("worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", *limits, self.url)
            self._wait_for("Successfully registered with master")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in self._daemons:
            # A group of its own each: the worker's executors go with it.
            os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait()

    def said(self) -> str:
        return "".join(path.read_text(errors="replace") for path in sorted(self._directory.glob("*.log")))

    def _start(self, name: str, *arguments: str) -> None:
        command = [str(self.spark_home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
        if setpriv := shutil.which("setpriv"):
            command = [setpriv, "--pdeathsig", "KILL", *command]
        self._directory.mkdir(parents=True, exist_ok=True)
        environment = BARE | {"SPARK_HOME": str(self.spark_home), "SPARK_LOCAL_IP": "127.0.0.1"}
        with (self._directory / f"{name}.log").open("wb") as log:
            self._daemons.append(
                subprocess.Popen(
                    command,
                    cwd=self._directory,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env=environment,
                )
            )

    def _wait_for(self, words: str) -> None:
        wait_until(lambda: words in self.said(), START_S, self.said)
