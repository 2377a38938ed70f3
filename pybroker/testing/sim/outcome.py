"""What a run came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True, frozen=True)
class Outcome:
    seed: int
    error: BaseException | None
    steps: int
    virtual_ms: int
    facts: Mapping[str, int] = field(default_factory=dict)  # what happened, counted: the same for the same seed
