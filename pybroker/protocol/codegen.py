"""Generates, per (message, version), one flat function that encodes it and one that decodes it.

Adjacent fixed-size fields go through one bound `Struct` method, nested structs are inlined as loops, and nothing is looked up
by name at run time but the attributes themselves. Generated code carries no bookkeeping for errors: every line is noted with
the field it works on, so when one fails the line number of the traceback names the field and the local `p` the offset.

In generated code `b` is the buffer, `p` the position, `end` its length, `n` a length or count, `q` where a value ends,
`out` the bytearray written to, and `x0`, `x1` … the struct at each depth.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, Final

from pybroker.protocol import wire
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.schema import REQUIRED, Column, StructMeta

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
DECODE_FAULTS: Final = (IndexError, struct.error, UnicodeDecodeError, ProtocolError)
ENCODE_FAULTS: Final = (AttributeError, TypeError, OverflowError, ValueError, struct.error, ProtocolError)

# An array of at most this many numbers goes through a Struct made beforehand.
SHORT_ARRAY: Final = 8

# What a line works on: one field, or a run of fixed-size ones as (offset of the field's end within the run, field).
Place = str | list[tuple[int, str]]


def constructor(cls: StructMeta) -> Callable[..., None]:
    """`__init__` with keyword arguments; a list default is a fresh list each time."""
    source = _Source(f"__init__ of {cls.__name__}")
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


def decoder(cls: StructMeta, version: int) -> Callable[[wire.Buffer, int], tuple[Any, int]]:
    return _Decoder(cls, version).generate()


def encoder(cls: StructMeta, version: int) -> Callable[[Any, bytearray, Any], None]:
    return _Encoder(cls, version).generate()


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


class _Source:
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


class _Codec:
    """What both directions share: which columns a version has, how it spells lengths, and runs of fixed-size fields."""

    faults: tuple[type[Exception], ...]

    def __init__(self, cls: StructMeta, version: int, title: str) -> None:
        self.cls = cls
        self.version = version
        self.flexible = version in cls.FLEXIBLE
        self.source = _Source(f"{title} {cls.__name__} v{version}")
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
        names.update(
            (name, getattr(wire, name)) for name in dir(wire) if name.startswith(("read_", "put_", "bad_", "not_"))
        )
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


class _Decoder(_Codec):
    faults = DECODE_FAULTS

    def __init__(self, cls: StructMeta, version: int) -> None:
        super().__init__(cls, version, "decode")

    def generate(self) -> Callable[[wire.Buffer, int], tuple[Any, int]]:
        self.source.names["new"] = object.__new__

        def body() -> None:
            self.line("end = len(b)")
            self.struct(self.cls, "", 0)
            self.line("return x0, p")

        function: Callable[[wire.Buffer, int], tuple[Any, int]] = self.wrap("def decode(b, p):", body)
        return function

    def struct(self, cls: StructMeta, path: str, depth: int) -> None:
        body, tagged, absent = self.split(cls)
        var = f"x{depth}"
        self.line(f"{var} = new({self.source.name('C', cls)})", path)
        for column in body:
            self.field(cls, column, f"{path}.{column.json_name}" if path else column.json_name, depth)
        self.flush()
        for column in (*absent, *tagged):
            stand_in = column.stand_in
            self.line(f"{var}.{column.name} = {'[]' if stand_in == [] else self.source.constant(stand_in)}")
        if not self.flexible:
            self.line(f"{var}.unknown_tagged_fields = None")
        elif tagged:
            self.tags(cls, tagged, path, depth)
        else:
            place = f"{path} tags".lstrip()
            self.line("if b[p]:", place)
            with self.block():
                self.line(f"{var}.unknown_tagged_fields, p = read_unknown_tags(b, p, end)", place)
            self.line("else:")
            with self.block():
                self.line(f"{var}.unknown_tagged_fields = None")
                self.line("p += 1")

    def tags(self, cls: StructMeta, tagged: list[Column], path: str, depth: int) -> None:
        var, tag, start, stop = f"x{depth}", f"t{depth}", f"s{depth}", f"e{depth}"
        place = f"{path} tags".lstrip()
        self.line(f"{var}.unknown_tagged_fields = None")
        self.uvarint("n", place)
        self.line("for _ in range(n):")
        with self.block():
            self.uvarint(tag, place)
            self.uvarint("n", place)
            self.line(f"{start} = p")
            self.line(f"{stop} = p + n")
            self.line(f"if {stop} > end: raise bad_length(n, end - p)", place)
            word = "if"
            for column in tagged:
                self.line(f"{word} {tag} == {column.tag}:")
                with self.block():
                    self.field(cls, column, f"{path}.{column.json_name}" if path else column.json_name, depth)
                    self.flush()
                word = "elif"
            self.line("else:")
            with self.block():
                self.line(f"if {var}.unknown_tagged_fields is None: {var}.unknown_tagged_fields = {{}}")
                self.line(f"{var}.unknown_tagged_fields[{tag}] = bytes(b[p:{stop}])")
                self.line(f"p = {stop}")
            self.line(f"if p != {stop}: raise bad_tag_size({tag}, p - {start}, {stop} - {start})", place)

    def field(self, cls: StructMeta, column: Column, path: str, depth: int) -> None:
        target = f"x{depth}.{column.name}"
        nullable = self.version in column.nullable
        flexible = self.is_flexible(column)
        if column.is_array:
            self.array(cls, column, target, nullable, flexible, path, depth)
        elif column.is_struct:
            self.flush()
            if nullable:
                self.line("n = b[p]", path)
                self.line("p += 1")
                self.line(f"if n > 127: {target} = None")
                self.line("else:")
            with self.block_if(nullable):
                self.struct(cls.struct_of(column), path, depth + 1)
                self.line(f"{target} = x{depth + 1}")
        elif column.type in FORMATS:
            self._run.append((FORMATS[column.type], target, path))
        else:
            self.sized(column.type, column.zero_copy, target, nullable, flexible, path)

    def sized(self, type_: str, zero_copy: bool, target: str, nullable: bool, flexible: bool, path: str) -> None:
        """A string, bytes or records: a length and that many bytes."""
        string = type_ == "string"
        self.length("read_string_length" if string else "read_uvarint", "h" if string else "i", flexible, path)
        if nullable:
            self.line(f"if n == {0 if flexible else -1}: {target} = None")
            self.line("else:")
        with self.block_if(nullable):
            self.line("q = p + n - 1" if flexible else "q = p + n")
            self.line(f"if q < p or q > end: raise bad_length({'n - 1' if flexible else 'n'}, end - p)", path)
            if string:
                self.line(f'{target} = str(b[p:q], "utf-8")', path)
            elif zero_copy or type_ == "records":
                self.source.names["memoryview"] = memoryview
                self.line(f"{target} = memoryview(b)[p:q]")
            else:
                self.line(f"{target} = bytes(b[p:q])")
            self.line("p = q")

    def array(
        self, cls: StructMeta, column: Column, target: str, nullable: bool, flexible: bool, path: str, depth: int
    ) -> None:
        element = column.element
        self.length("read_uvarint", "i", flexible, path)
        if flexible:
            self.line("n -= 1")
        if nullable:
            self.line(f"if n == -1: {target} = None")
            self.line("else:")
        with self.block_if(nullable):
            least = (
                self.least_size(cls.struct_of(column)) if column.is_struct else self.least_size_of(element, flexible)
            )
            size = "n" if least == 1 else f"n * {least}"
            self.line(f"if n < 0 or {size} > end - p: raise bad_count(n, end - p)", path)
            if element == "uuid":
                self.line("q = p + n * 16")
                self.line(f"{target} = [bytes(b[i:i + 16]) for i in range(p, q, 16)]")
                self.line("p = q")
            elif element in FORMATS:
                code = FORMATS[element]
                short = self.source.name("U", _short_unpackers(code))
                self.source.names["unpack_from"] = struct.unpack_from
                self.line(
                    f"{target} = list({short}[n](b, p) if n <= {SHORT_ARRAY} else unpack_from(f'>{{n}}{code}', b, p))",
                    path,
                )
                self.line(f"p += {size}")
            else:
                self.line(f"l{depth} = {target} = []")
                self.line("for _ in range(n):")
                with self.block():
                    if column.is_struct:
                        self.struct(cls.struct_of(column), f"{path}[]", depth + 1)
                        self.line(f"l{depth}.append(x{depth + 1})")
                    else:
                        self.sized(element, False, "v", False, flexible, f"{path}[]")
                        self.line(f"l{depth}.append(v)")

    def length(self, read: str, code: str, flexible: bool, path: str) -> None:
        """Reads `n`: the length itself, or one more than it where the version is flexible."""
        if flexible:
            self.flush()
            self.uvarint("n", path, read)
        else:
            self._run.append((code, "n", path))
            self.flush()

    def uvarint(self, target: str, place: Place, read: str = "read_uvarint") -> None:
        self.line(f"{target} = b[p]", place)
        self.line("p += 1")
        self.line(f"if {target} > 127: {target}, p = {read}(b, p - 1)", place)

    def flush(self) -> None:
        if self._run:
            layout, targets, place = self.take_run()
            unpack = self.source.name("U", layout.unpack_from)
            self.line(f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = {unpack}(b, p)", place)
            self.line(f"p += {layout.size}")

    def least_size(self, cls: StructMeta) -> int:
        body, _, _ = self.split(cls)
        size = int(self.flexible)
        for column in body:
            flexible = self.is_flexible(column)
            if column.is_array:
                size += 1 if flexible else 4
            elif column.is_struct:
                size += 1 if self.version in column.nullable else self.least_size(cls.struct_of(column))
            else:
                size += self.least_size_of(column.type, flexible)
        assert size > 0, f"{cls.__name__} is empty in v{self.version}: an array of it could claim any count"
        return size

    @staticmethod
    def least_size_of(type_: str, flexible: bool) -> int:
        if type_ in FORMATS:
            return struct.calcsize(">" + FORMATS[type_])
        return 1 if flexible else 2 if type_ == "string" else 4


class _Encoder(_Codec):
    faults = ENCODE_FAULTS

    def __init__(self, cls: StructMeta, version: int) -> None:
        super().__init__(cls, version, "encode")
        self._out = "out"

    def generate(self) -> Callable[[Any, bytearray, Any], None]:
        def body() -> None:
            self.struct(self.cls, "", 0)
            self.line("return")

        function: Callable[[Any, bytearray, Any], None] = self.wrap("def encode(x0, out, splices):", body)
        return function

    def struct(self, cls: StructMeta, path: str, depth: int) -> None:
        body, tagged, absent = self.split(cls)
        var = f"x{depth}"
        for column in absent:
            if not column.ignorable:
                value = f"{var}.{column.name}"
                place = f"{path}.{column.json_name}" if path else column.json_name
                self.line(f"if {self.differs(value, column)}: raise not_in_version({value})", place)
        for column in body:
            self.field(cls, column, f"{path}.{column.json_name}" if path else column.json_name, depth)
        self.flush()
        if not self.flexible:
            return
        place = f"{path} tags".lstrip()
        if not tagged:
            self.line(f"if {var}.unknown_tagged_fields is None: {self._out}.append(0)")
            self.line(f"else: put_tags({self._out}, [], {var}.unknown_tagged_fields)", place)
            return
        tags = f"tags{depth}"
        self.line(f"{tags} = []")
        for column in tagged:
            self.tag(cls, column, tags, f"{path}.{column.json_name}" if path else column.json_name, depth)
        self.line(
            f"if {tags} or {var}.unknown_tagged_fields: put_tags({self._out}, {tags}, {var}.unknown_tagged_fields)",
            place,
        )
        self.line(f"else: {self._out}.append(0)")

    def tag(self, cls: StructMeta, column: Column, tags: str, path: str, depth: int) -> None:
        value = f"x{depth}.{column.name}"
        self.line(f"if {self.differs(value, column)}:")
        with self.block():
            outer, self._out = self._out, f"out{depth}"
            self.line(f"{self._out} = bytearray()")
            self.field(cls, column, path, depth)
            self.flush()
            if column.is_struct and not column.is_array and self.version not in column.nullable:
                # A struct whose fields all stand at their defaults is as good as absent, and Kafka writes none.
                default = bytes(_default_encoding(cls.struct_of(column), self.version, self.flexible))
                self.line(
                    f"if {self._out} != {self.source.constant(default)}: {tags}.append(({column.tag}, {self._out}))"
                )
            else:
                self.line(f"{tags}.append(({column.tag}, {self._out}))")
            self._out = outer

    def differs(self, value: str, column: Column) -> str:
        """An expression that is true when `value` is not what stands in for an absent field."""
        stand_in = column.stand_in
        if stand_in == []:
            return f"{value} or {value} is None" if column.tag is not None else value
        if stand_in is None:
            return f"{value} is not None"
        return f"{value} != {self.source.constant(stand_in)}"

    def field(self, cls: StructMeta, column: Column, path: str, depth: int) -> None:
        value = f"x{depth}.{column.name}"
        nullable = self.version in column.nullable
        flexible = self.is_flexible(column)
        if column.is_array:
            self.array(cls, column, value, nullable, flexible, path, depth)
        elif column.is_struct:
            self.flush()
            self.line(f"x{depth + 1} = {value}")
            if nullable:
                self.line(f"if x{depth + 1} is None: {self._out}.append(255)")
                self.line("else:")
            with self.block_if(nullable):
                if nullable:
                    self.line(f"{self._out}.append(1)")
                self.struct(cls.struct_of(column), path, depth + 1)
        elif column.type in FORMATS:
            self._run.append((FORMATS[column.type], value, path))
        else:
            self.sized(column.type, value, nullable, flexible, path)

    def sized(self, type_: str, value: str, nullable: bool, flexible: bool, path: str) -> None:
        string = type_ == "string"
        if flexible:
            self.flush()
        self.line(f"v = {value}")
        if nullable and flexible:
            self.line(f"if v is None: {self._out}.append(0)")
            self.line("else:")
        with self.block_if(nullable and flexible):
            if string:
                self.line(f"{'if v is not None: ' if nullable and not flexible else ''}v = v.encode()", path)
            if flexible:
                self.uvarint("len(v) + 1", path, "put_string_length" if string else "put_uvarint")
            else:
                length = "-1 if v is None else len(v)" if nullable else "len(v)"
                self._run.append(("h" if string else "i", length, path))
                self.flush()
            if type_ == "records":
                self.source.names["buffers"] = (bytes, bytearray, memoryview)
                present = "v is not None and " if nullable and not flexible else ""
                self.line(
                    f"if {present}splices is not None and not isinstance(v, buffers): splices.append((len(out), v))"
                )
                self.line(f"{'elif v is not None' if present else 'else'}: {self._out} += v", path)
            elif nullable and not flexible:
                self.line(f"if v is not None: {self._out} += v", path)
            else:
                self.line(f"{self._out} += v", path)

    def array(
        self, cls: StructMeta, column: Column, value: str, nullable: bool, flexible: bool, path: str, depth: int
    ) -> None:
        element = column.element
        items = f"l{depth}"
        if flexible:
            self.flush()
        self.line(f"{items} = {value}")
        if nullable and flexible:
            self.line(f"if {items} is None: {self._out}.append(0)")
            self.line("else:")
        with self.block_if(nullable and flexible):
            if flexible:
                self.uvarint(f"len({items}) + 1", path)
            else:
                length = f"-1 if {items} is None else len({items})" if nullable else f"len({items})"
                self._run.append(("i", length, path))
                self.flush()
            if nullable and not flexible:
                self.line(f"if {items} is not None:")
            with self.block_if(nullable and not flexible):
                self.elements(cls, column, items, flexible, path, depth)

    def elements(self, cls: StructMeta, column: Column, items: str, flexible: bool, path: str, depth: int) -> None:
        element = column.element
        if element in FORMATS:
            code = FORMATS[element]
            short = self.source.name("P", _short_packers(code))
            self.source.names["pack"] = struct.pack
            long = f"pack('>' + '{code}' * len({items}), *{items})"
            self.line(
                f"{self._out} += {short}[len({items})](*{items}) if len({items}) <= {SHORT_ARRAY} else {long}", path
            )
        elif column.is_struct:
            self.line(f"for x{depth + 1} in {items}:", path)
            with self.block():
                self.struct(cls.struct_of(column), f"{path}[]", depth + 1)
                self.line("pass")
        else:
            self.line(f"for i{depth} in {items}:", path)
            with self.block():
                self.sized(element, f"i{depth}", False, flexible, f"{path}[]")

    def uvarint(self, value: str, path: str, put: str = "put_uvarint") -> None:
        self.line(f"n = {value}", path)
        self.line(f"if n < 128: {self._out}.append(n)")
        self.line(f"else: {put}({self._out}, n)", path)

    def flush(self) -> None:
        if self._run:
            layout, values, place = self.take_run()
            self.line(f"{self._out} += {self.source.name('P', layout.pack)}({', '.join(values)})", place)


def _default_encoding(cls: StructMeta, version: int, flexible: bool) -> bytearray:
    """How a struct of fixed-size fields and strings looks when each stands at its default."""
    out = bytearray()
    for column in cls.COLUMNS:
        if version in column.versions and column.tag is None:
            if column.type in FORMATS:
                out += struct.pack(">" + FORMATS[column.type], column.stand_in)
            else:
                assert column.type == "string" and column.stand_in == "" and flexible, f"{cls.__name__}.{column.name}"
                out.append(1)
    out.append(0)
    return out


@cache
def _short_packers(code: str) -> list[Callable[..., bytes]]:
    return [struct.Struct(">" + code * count).pack for count in range(SHORT_ARRAY + 1)]


@cache
def _short_unpackers(code: str) -> list[Callable[[wire.Buffer, int], tuple[Any, ...]]]:
    return [struct.Struct(">" + code * count).unpack_from for count in range(SHORT_ARRAY + 1)]
