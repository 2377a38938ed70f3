"""The clients of other languages: built once into build/, started by need, skipped where the toolchain is absent."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
from interop.apache_kafka import JVM, ROOT, jars
from interop.clients.drive_kcat import Kcat
from interop.clients.driver import Client, Program

HERE = Path(__file__).resolve().parent
BUILD = ROOT / "build" / "clients"


def java_4(bootstrap: str, directory: Path) -> Client:
    return Program(_java(jars()), bootstrap, directory / "stderr")


def java_3(bootstrap: str, directory: Path) -> Client:
    return Program(_java(_java_3_jars()), bootstrap, directory / "stderr")


def franz_go(bootstrap: str, directory: Path) -> Client:
    return Program(_franz_go(), bootstrap, directory / "stderr")


def sarama(bootstrap: str, directory: Path) -> Client:
    return Program([str(_go() / "sarama")], bootstrap, directory / "stderr")


def kafka_go(bootstrap: str, directory: Path) -> Client:
    return Program([str(_go() / "kafkago")], bootstrap, directory / "stderr")


def kafkajs(bootstrap: str, directory: Path) -> Client:
    return Program(_kafkajs(), bootstrap, directory / "stderr")


def kcat(bootstrap: str, _: Path) -> Client:
    command = shutil.which("kcat") or shutil.which("kafkacat")
    if command is None:
        pytest.skip("kcat is not installed")
    return Kcat(command, bootstrap)


def _java(folder: Path) -> Sequence[str]:
    classpath = f"{_java_classes(folder)}{os.pathsep}{folder}/*"
    return ("java", *JVM, "-Xmx512m", "-cp", classpath, "JavaClient")


def _franz_go() -> Sequence[str]:
    return (str(_go() / "franz"),)


def _kafkajs() -> Sequence[str]:
    return ("node", str(_js() / "client.js"))


# The commands, but for the bootstrap address, of those that have the op "member": see group_members.py.
MEMBERS: Mapping[str, Callable[[], Sequence[str]]] = {
    "java-4": lambda: _java(jars()),
    "java-3": lambda: _java(_java_3_jars()),
    "franz-go": _franz_go,
    "kafkajs": _kafkajs,
}


@cache
def _java_classes(folder: Path) -> Path:
    source = HERE / "java" / "JavaClient.java"
    classes = BUILD / f"java-{folder.name}"
    if not _newer(classes / "JavaClient.class", source):
        _run(["javac", "-nowarn", "-d", str(classes), "-cp", f"{folder}/*", str(source)])
    return classes


@cache
def _java_3_jars() -> Path:
    _need("java", "javac", "mvn")
    pom = HERE / "java" / "pom.xml"
    folder = BUILD / "java-3"
    stamp = folder / ".complete"
    if not _newer(stamp, pom):
        _run(["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"])
        stamp.touch()
    return folder


@cache
def _go() -> Path:
    _need("go")
    folder = BUILD / "go"
    folder.mkdir(parents=True, exist_ok=True)
    # Go itself knows what is up to date.
    _run(["go", "build", "-mod=readonly", "-o", f"{folder}/", "./franz", "./sarama", "./kafkago"], HERE / "go")
    return folder


@cache
def franz_go_suite() -> tuple[Path, Path]:
    """franz-go's own tests as a program, and the folder of their source."""
    _need("go")
    package = "github.com/twmb/franz-go/pkg/kgo"
    program = BUILD / "go" / "kgo.test"
    _run(["go", "test", "-c", "-mod=readonly", "-o", str(program), package], HERE / "go")
    listed = _run(["go", "list", "-mod=readonly", "-f", "{{.Dir}}", package], HERE / "go")
    return program, Path(listed.strip())


@cache
def _js() -> Path:
    _need("node", "npm")
    folder = BUILD / "js"
    folder.mkdir(parents=True, exist_ok=True)
    lock = HERE / "js" / "package-lock.json"
    stamp = folder / ".complete"
    if not _newer(stamp, lock):
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / "js" / name, folder / name)
        _run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)
        stamp.touch()
    # Beside the modules, where node looks for them.
    shutil.copy(HERE / "js" / "client.js", folder / "client.js")
    return folder


def _newer(made: Path, source: Path) -> bool:
    return made.exists() and made.stat().st_mtime >= source.stat().st_mtime


def _need(*commands: str) -> None:
    for command in commands:
        if shutil.which(command) is None:
            pytest.skip(f"{command} is not installed")


def _run(command: list[str], cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=1200)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout
