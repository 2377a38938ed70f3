"""Keys of server.properties from environment variables, as the common container images take them: KAFKA_LOG_RETENTION_MS is
log.retention.ms.

Pure: the environment is a parameter. Other programs have KAFKA_ variables too (KAFKA_HEAP_OPTS, KAFKA_HOME, Kubernetes's
KAFKA_SERVICE_HOST), so a variable counts only if somebody means a key with it; a misspelt key counts, and loading refuses it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pybroker.config.reading import Given, is_meant

PREFIX: Final = "KAFKA_"

_UNDERSCORES: Final = re.compile("_{1,3}")
_MEANING: Final = {"_": ".", "__": "_", "___": "-"}


def key_of(variable: str) -> str | None:
    """The key that a variable would name; None for one without the prefix."""
    if not variable.startswith(PREFIX) or variable == PREFIX:
        return None
    return _UNDERSCORES.sub(lambda match: _MEANING[match[0]], variable.removeprefix(PREFIX).lower())


def with_environment(given: Mapping[str, Given], environment: Mapping[str, str]) -> dict[str, Given]:
    """What the file gives, under what the environment does."""
    named = {
        key: Given(value, f"environment variable {variable}")
        for variable, value in environment.items()
        if (key := key_of(variable)) is not None
    }
    everything = {**given, **named}
    return {name: one for name, one in everything.items() if name not in named or is_meant(name, everything)}
