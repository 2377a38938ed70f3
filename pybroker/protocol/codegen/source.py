"""The text of a generated function while it grows, and what encoders and decoders share."""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

from pybroker.protocol import wire
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.schema import Column, StructMeta

FORMATS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}

# An array of at most this many numbers goes through a Struct made beforehand.
SHORT_ARRAY: Final = 8

# What a line works on: one field, or a run of fixed-size ones as (offset of the field's end within the run, field).
Place = str | list[tuple[int, str]]


class Source:
    """The text of a generated function, with the names it uses and the place each line works on."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.names: dict[str, Any] = {}
        self.places: list[Place] = []
        self._lines: list[str] = []
        self._indent = ""

    def line(self, text: str, place: Place = "") -> None:
        self._lines.append(self._indent + text)
        self.places.append(place)

    @contextmanager
    def block(self) -> Iterator[None]:
        self._indent += "    "
        yield
        self._indent = self._indent[:-4]

    def block_if(self, condition: bool) -> AbstractContextManager[None]:
        """A block, or the same level where no line opened one."""
        return self.block() if condition else nullcontext()

    def constant(self, value: object) -> str:
        """An expression for `value`: its literal, or a name bound to it."""
        if value is None or isinstance(value, bool | int | float | str):
            return repr(value)
        return self.name("K", value)

    def name(self, prefix: str, value: object) -> str:
        for known, other in self.names.items():
            if other is value:
                return known
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name

    def compile(self, function: str) -> Any:
        text = "\n".join(self._lines) + "\n"
        filename = f"<pybroker {self.title}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        exec(compile(text, filename, "exec"), self.names)  # noqa: S102
        return self.names[function]


class Codec:
    """What both directions share: which columns a version has, how it spells lengths, and runs of fixed-size fields."""

    faults: tuple[type[Exception], ...]

    def __init__(self, cls: StructMeta, version: int, title: str) -> None:
        self.cls = cls
        self.version = version
        self.flexible = version in cls.FLEXIBLE
        self.source = Source(f"{title} {cls.__name__} v{version}")
        self.line = self.source.line
        self.block = self.source.block
        self.block_if = self.source.block_if
        self._run: list[tuple[str, str, str]] = []  # (format, target or expression, field)

    def is_flexible(self, column: Column) -> bool:
        return self.flexible if column.flexible is None else self.version in column.flexible

    def split(self, struct_class: StructMeta) -> tuple[list[Column], list[Column], list[Column]]:
        """The columns in the body, in the tag section, and not in this version at all."""
        body, tagged, absent = [], [], []
        for column in struct_class.COLUMNS:
            if self.version not in column.versions:
                absent.append(column)
            elif column.tag is not None:
                tagged.append(column)
            else:
                body.append(column)
        return body, sorted(tagged, key=lambda column: column.tag or 0), absent

    def wrap(self, header: str, body: Callable[[], None]) -> Any:
        """A function whose faults come out explained, raised outside of the handler so that no frame is kept alive."""
        names = self.source.names
        names.update(faults=self.faults, explain=explain, places=self.source.places)
        names.update((name, getattr(wire, name)) for name in dir(wire) if name.startswith(("read_", "put_", "bad_", "not_")))
        self.line(header)
        with self.block():
            self.line("try:")
            with self.block():
                body()
            self.line("except faults as fault:")
            with self.block():
                self.line(f"error = explain(fault, places, {self.cls.__name__!r}, {self.version})")
            self.line("raise error")
        return self.source.compile(header[4 : header.index("(")])

    def take_run(self) -> tuple[struct.Struct, list[str], Place]:
        layout = struct.Struct(">" + "".join(code for code, _, _ in self._run))
        expressions = [expression for _, expression, _ in self._run]
        place: list[tuple[int, str]] = []
        stop = 0
        for code, _, field in self._run:
            stop += struct.calcsize(">" + code)
            place.append((stop, field))
        self._run.clear()
        return layout, expressions, place[0][1] if len(place) == 1 else place


def explain(fault: Exception, places: list[Place], message: str, version: int) -> ProtocolError:
    """What a fault of a generated function means for a reader of the protocol."""
    assert fault.__traceback__ is not None
    where = fault.__traceback__.tb_frame.f_locals
    place = places[fault.__traceback__.tb_lineno - 1]
    offset = where.get("p", -1)
    if isinstance(fault, ProtocolError):
        problem = fault.problem
    elif isinstance(fault, UnicodeDecodeError):
        problem = f"bytes that are not UTF-8: {fault.reason} at byte {fault.start} of the string"
    elif offset >= 0:
        problem = f"the frame ends too early, after {where['end']} bytes"
        if isinstance(place, list):
            place = next((field for stop, field in place if offset + stop > where["end"]), place[-1][1])
    else:
        problem = f"cannot be encoded: {fault}"
    if isinstance(place, list):
        place = ", ".join(field for _, field in place if field)
    return ProtocolError(problem, message=message, version=version, field=place, offset=offset)
