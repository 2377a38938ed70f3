"""Questions to Apache Kafka's own config classes, asked through java/ConfigTable.java."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from typing import Any

from interop.apache_kafka import java_command

MINIMAL = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
}


def ask(mode: str, questions: Iterable[object] = ()) -> list[Any]:
    """One answer per question, or the whole table."""
    stdin = "".join(f"{json.dumps(question)}\n" for question in questions)
    done = subprocess.run(
        [*java_command("ConfigTable"), mode], input=stdin, capture_output=True, text=True, encoding="utf-8", timeout=120
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]
