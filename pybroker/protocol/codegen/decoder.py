"""Generates decoders.

In generated code `b` is the buffer, `p` the position, `end` its length, `n` a length or count, `q` where a value ends,
`x0`, `x1` … the struct at each depth and `l0`, `l1` … the array being filled there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from pybroker.protocol import wire
from pybroker.protocol.codegen.source import FORMATS, SHORT_ARRAY, Codec, Place
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.schema import Column, StructMeta


def decoder(cls: StructMeta, version: int) -> Callable[[wire.Buffer, int], tuple[Any, int]]:
    return Decoder(cls, version).generate()


class Decoder(Codec):
    faults = (IndexError, struct.error, UnicodeDecodeError, ProtocolError)

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
            if column.has_struct_default:
                stand_in = f"{self.source.name('D', partial(cls.stand_in_of, column))}()"
            else:
                stand_in = "[]" if column.stand_in == [] else self.source.constant(column.stand_in)
            self.line(f"{var}.{column.name} = {stand_in}")
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
                # A byte says whether there is one: -1 for none, but 0 in a tagged field.
                self.line("n = b[p]", path)
                self.line("p += 1")
                self.line(f"if n {'> 127' if column.tag is None else '== 0'}: {target} = None")
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
            least = self.least_size(cls.struct_of(column)) if column.is_struct else self.least_size_of(element, flexible)
            size = "n" if least == 1 else f"n * {least}"
            self.line(f"if n < 0 or {size} > end - p: raise bad_count(n, end - p)", path)
            if element == "uuid":
                self.line("q = p + n * 16")
                self.line(f"{target} = [bytes(b[i:i + 16]) for i in range(p, q, 16)]")
                self.line("p = q")
            elif element in FORMATS:
                code = FORMATS[element]
                short = self.source.name("U", short_unpackers(code))
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


@cache
def short_unpackers(code: str) -> list[Callable[[wire.Buffer, int], tuple[Any, ...]]]:
    return [struct.Struct(">" + code * count).unpack_from for count in range(SHORT_ARRAY + 1)]
