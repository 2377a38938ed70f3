"""Apache Kafka as the judge: its jars, fetched once by Maven into build/, and small Java programs of ours against them."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from zipfile import ZipFile

import pytest

KAFKA_VERSION = "4.3.1"
ROOT = Path(__file__).resolve().parents[2]
JAVA = Path(__file__).resolve().parent / "java"
JARS = ROOT / "build" / f"kafka-{KAFKA_VERSION}"
CLASSES = ROOT / "build" / "interop-classes"


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
    return ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath, main_class)
