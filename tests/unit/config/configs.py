"""Configurations that the tests of this package begin with."""

from __future__ import annotations

from pybroker.config import Config, load
from pybroker.config.broker import Loaded
from pybroker.config.reading import Given

MINIMAL = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
}


def load_with(changes: dict[str, str | None]) -> Loaded:
    """MINIMAL with these changes; None takes a key away."""
    return load({key: Given(value, f"test:{key}") for key, value in (MINIMAL | changes).items() if value is not None})


def config_with(**changes: str) -> Config:
    """MINIMAL with these changes, a dot written as an underscore."""
    loaded = load_with({key.replace("_", "."): value for key, value in changes.items()})
    assert loaded.config is not None, [*map(str, loaded.problems)]
    return loaded.config


def messages(changes: dict[str, str | None]) -> list[str]:
    return [str(problem) for problem in load_with(changes).problems]
