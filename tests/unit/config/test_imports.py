"""The package is imported at every start of every command: it stays small."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_nothing_slow_is_imported() -> None:
    code = "import sys; import pybroker.config; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    slow = {"asyncio", "dataclasses", "difflib", "inspect", "json", "logging", "pathlib", "socket", "threading"}
    assert "pybroker.config.keys.ssl" in done.stdout.split()
    assert not slow & set(done.stdout.split())
