"""What every job is handed."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spark_jobs.errors import Begun
from spark_jobs.kafka import Kafka
from spark_jobs.stop import Stop


@dataclass(frozen=True)
class Context:
    """What a job works with. `kafka` has been reached."""

    spark: Any
    kafka: Kafka
    given: argparse.Namespace
    say: Callable[[str], None]  # a line of progress, to the terminal
    stop: Stop
    begun: Begun  # marked before the first write
