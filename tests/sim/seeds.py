"""Seeds of a world, and mistakes that they have to find."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Protocol

import pytest

from pybroker.testing.sim.outcome import Outcome

SEEDS = 500


class World(Protocol):
    def __init__(self, seed: int, *, swarm: bool = False) -> None: ...

    def run(self) -> Outcome: ...


def found_in(world: type[World], expected: str) -> None:
    for seed in range(SEEDS):
        error = world(seed, swarm=True).run().error
        if error is not None:
            print(f"seed {seed}: {error}"[:1000])
            if re.search(expected, str(error)):
                return
    raise AssertionError(f"{SEEDS} seeds saw nothing of {expected!r}")


def replaced(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, wrong: Callable[..., Any]) -> None:
    """Put `wrong` in the place of a method; it gets the right one first."""
    right = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *given, **named: wrong(right, *given, **named))


def same_under_two_hash_seeds(level: str, seeds: int) -> None:
    code = (
        "from pybroker.testing.sim.__main__ import run_seeds\n"
        f"for one in run_seeds({level!r}, range({seeds}), swarm=True):\n"
        "    print(one.seed, one.steps, one.virtual_ms, dict(one.facts), one.error)\n"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert len(outputs[0].splitlines()) == seeds
