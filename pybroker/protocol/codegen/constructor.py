"""Generates `__init__`."""

from __future__ import annotations

from collections.abc import Callable

from pybroker.protocol.codegen.source import Source
from pybroker.protocol.schema import REQUIRED, StructMeta


def constructor(cls: StructMeta) -> Callable[..., None]:
    """`__init__` with keyword arguments; a list default is a fresh list each time."""
    source = Source(f"__init__ of {cls.__name__}")
    parameters, body = [], []
    for column in cls.COLUMNS:
        if column.default is REQUIRED:
            parameters.append(column.name)
            body.append(f"self.{column.name} = {column.name}")
        elif column.default == [] and column.is_array:
            parameters.append(f"{column.name}={source.constant(REQUIRED)}")
            body.append(f"self.{column.name} = [] if {column.name} is {source.constant(REQUIRED)} else {column.name}")
        else:
            parameters.append(f"{column.name}={source.constant(column.default)}")
            body.append(f"self.{column.name} = {column.name}")
    source.line(f"def __init__(self, *, {', '.join([*parameters, 'unknown_tagged_fields=None'])}):")
    with source.block():
        for line in body:
            source.line(line)
        source.line("self.unknown_tagged_fields = unknown_tagged_fields")
    function: Callable[..., None] = source.compile("__init__")
    return function
