"""Kafka Streams' word count as a process: its jars, fetched once by Maven into build/, and WordCount.java against them."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Self

import pytest
from interop.apache_kafka import JVM, KAFKA_VERSION, ROOT

HERE = Path(__file__).resolve().parent
_JARS = ROOT / "build" / f"kafka-streams-{KAFKA_VERSION}"


@cache
def _classpath() -> str:
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    pom, source, stamp = HERE / "pom.xml", HERE / "WordCount.java", _JARS / "WordCount.class"
    if not stamp.exists() or stamp.stat().st_mtime < max(pom.stat().st_mtime, source.stat().st_mtime):
        _run("mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={_JARS}")
        _run("javac", "-nowarn", "-d", str(_JARS), "-cp", f"{_JARS}/*", str(source))
    return f"{_JARS}:{_JARS}/*"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


class WordCount:
    """`directory` holds its state over restarts, and what it says."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        self._directory = directory
        self._bootstrap = bootstrap
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        command = ["java", *JVM, "-Xmx256m", "-cp", _classpath(), "WordCount", self._bootstrap, str(self._directory / "state")]
        with (self._directory / "output").open("ab") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        """kill -9."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def last_words(self) -> str:
        return (self._directory / "output").read_text(errors="replace")[-6000:]
