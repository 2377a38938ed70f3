"""Apache Kafka as the judge: its jars, fetched once by Maven into build/, its command line tools, and small Java programs
of ours against them. `apache_tool` runs a tool once; `apache_tools` keeps one JVM for many runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import pytest

KAFKA_VERSION = "4.3.1"
ROOT = Path(__file__).resolve().parents[2]
JAVA = Path(__file__).resolve().parent / "java"
JARS = ROOT / "build" / f"kafka-{KAFKA_VERSION}"
CLASSES = ROOT / "build" / "interop-classes"
# A JVM that lives for seconds: the first compiler only, and what it prints is UTF-8 whatever the locale says.
JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8")

STORAGE_TOOL = "kafka.tools.StorageTool"
DUMP_LOG_SEGMENTS = "org.apache.kafka.tools.DumpLogSegments"
TOPIC_COMMAND = "org.apache.kafka.tools.TopicCommand"
GET_OFFSET_SHELL = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS_COMMAND = "org.apache.kafka.tools.DeleteRecordsCommand"
TRANSACTIONS_COMMAND = "org.apache.kafka.tools.TransactionsCommand"
METADATA_SHELL = "org.apache.kafka.shell.MetadataShell"
HEX_DECODER = "DumpLines$Hex"  # for DumpLogSegments, in the JVM of `apache_tools`


@cache
def jars() -> Path:
    """The folder of Apache Kafka's jars; skips the test where Java or Maven is missing."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    stamp = JARS / ".complete"
    pom = JAVA / "pom.xml"
    if not stamp.exists() or stamp.stat().st_mtime < pom.stat().st_mtime:
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={JARS}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
        if done.returncode != 0:
            pytest.fail(f"Maven could not fetch Apache Kafka {KAFKA_VERSION}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        stamp.touch()
    return JARS


def jar(artifact: str) -> ZipFile:
    return ZipFile(jars() / f"{artifact}-{KAFKA_VERSION}.jar")


@cache
def java_command(main_class: str) -> tuple[str, ...]:
    """The command line that runs `java/{main_class}.java` against Apache Kafka's jars, compiled if need be."""
    source = JAVA / f"{main_class}.java"
    compiled = CLASSES / f"{main_class}.class"
    classpath = f"{CLASSES}:{jars()}/*"
    if not compiled.exists() or compiled.stat().st_mtime < source.stat().st_mtime:
        CLASSES.mkdir(parents=True, exist_ok=True)
        command = ["javac", "-nowarn", "-d", str(CLASSES), "-cp", classpath, str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            pytest.fail(f"javac {source.name}:\n{done.stderr}")
    return ("java", *JVM, "-cp", classpath, main_class)


class ToolRun(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str

    def checked(self) -> str:
        """The output of a run that had nothing to complain about."""
        assert self.exit_code == 0, self
        assert not self.stderr, self
        return self.stdout


def apache_tool(main_class: str, *args: str, stdin: str = "", timeout_s: float = 60) -> ToolRun:
    """One run of a tool in a JVM of its own (about a second); its logger says nothing."""
    command = ("java", *JVM, "-cp", f"{jars()}/*", main_class, *args)
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, encoding="utf-8", timeout=timeout_s)
    return ToolRun(done.returncode, done.stdout, done.stderr)


class ApacheTools:
    """Tools one after the other in one JVM, some milliseconds each (java/DumpLines.java)."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, main_class: str, *args: str, timeout_s: float = 60) -> ToolRun:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        limit = threading.Timer(timeout_s, self._process.kill)
        limit.start()
        try:
            self._process.stdin.write(json.dumps([main_class, *args]) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            limit.cancel()
        assert line, f"the JVM ended in {main_class}, after {timeout_s} s at most"
        answer = json.loads(line)
        return ToolRun(answer["exit"], answer["out"], answer["err"])


@contextmanager
def apache_tools() -> Iterator[ApacheTools]:
    command = java_command("DumpLines")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8") as process:
        try:
            yield ApacheTools(process)
        finally:
            process.kill()
