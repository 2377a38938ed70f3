"""Every message by the name of its schema: requests, responses, headers, and the records of internal topics and files."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from pybroker.protocol import internal, messages
from pybroker.protocol.message import Message


@cache
def message_classes() -> dict[str, type[Message]]:
    classes = {}
    for package in (messages, internal):
        for module in iter_modules(package.__path__, package.__name__ + "."):
            for name, value in vars(import_module(module.name)).items():
                if isinstance(value, type) and issubclass(value, Message) and value is not Message:
                    classes[name] = value
    return classes
