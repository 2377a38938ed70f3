"""Talks to java/MessageLines.java."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from interop.apache_kafka import java_command


def ask(lines: Sequence[str]) -> list[str]:
    """One answer per line, from Apache Kafka's own message classes."""
    done = subprocess.run(
        java_command("MessageLines"),
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    # Not splitlines(): a JSON string may hold characters that Python takes for line ends.
    answers = done.stdout.removesuffix("\n").split("\n")
    assert len(answers) == len(lines)
    return answers
