"""Generates encoders.

In generated code `out` is the bytearray written to (`out0`, `out1` … while a tagged field is built aside), `v` a value, `n`
a length or count, `x0`, `x1` … the struct at each depth and `l0`, `l1` … the array being written there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from pybroker.protocol.codegen.source import FORMATS, SHORT_ARRAY, Codec
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.schema import Column, StructMeta


def encoder(cls: StructMeta, version: int) -> Callable[[Any, bytearray, Any], None]:
    return Encoder(cls, version).generate()


class Encoder(Codec):
    faults = (AttributeError, TypeError, OverflowError, ValueError, struct.error, ProtocolError)

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
            if column.has_struct_default or (column.is_struct and not column.is_array and self.version not in column.nullable):
                # A struct whose fields all stand at their defaults is as good as absent, and Kafka writes none.
                default = bytes(default_encoding(cls.struct_of(column), self.version, self.flexible))
                if column.has_struct_default:
                    default = b"\x01" + default
                self.line(f"if {self._out} != {self.source.constant(default)}: {tags}.append(({column.tag}, {self._out}))")
            else:
                self.line(f"{tags}.append(({column.tag}, {self._out}))")
            self._out = outer

    def differs(self, value: str, column: Column) -> str:
        """An expression that is true when `value` is not what stands in for an absent field."""
        stand_in = column.stand_in
        if column.has_struct_default:
            return "True"
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
            self.line(f"x{depth + 1} = {value}", path)
            if nullable:
                self.line(f"if x{depth + 1} is None: {self._out}.append({255 if column.tag is None else 0})")
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
        self.line(f"v = {value}", path)
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
                self.line(f"if {present}splices is not None and not isinstance(v, buffers): splices.append((len(out), v))")
                self.line(f"{'elif v is not None' if present else 'else'}: {self._out} += v", path)
            elif nullable and not flexible:
                self.line(f"if v is not None: {self._out} += v", path)
            else:
                self.line(f"{self._out} += v", path)

    def array(self, cls: StructMeta, column: Column, value: str, nullable: bool, flexible: bool, path: str, depth: int) -> None:
        items = f"l{depth}"
        if flexible:
            self.flush()
        self.line(f"{items} = {value}", path)
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
            short = self.source.name("P", short_packers(code))
            self.source.names["pack"] = struct.pack
            long = f"pack('>' + '{code}' * len({items}), *{items})"
            self.line(f"{self._out} += {short}[len({items})](*{items}) if len({items}) <= {SHORT_ARRAY} else {long}", path)
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


def default_encoding(cls: StructMeta, version: int, flexible: bool) -> bytearray:
    """How a struct of fixed-size fields, strings and arrays looks when each stands at its default."""
    out = bytearray()
    for column in cls.COLUMNS:
        if version in column.versions and column.tag is None:
            if column.type in FORMATS:
                out += struct.pack(">" + FORMATS[column.type], column.stand_in)
            else:
                is_empty = column.stand_in == "" or column.stand_in == []
                assert is_empty, f"{cls.__name__}.{column.name} has a default that is not empty"
                assert flexible, f"{cls.__name__} is tagged, in a version without tags"
                out.append(1)
    out.append(0)
    return out


@cache
def short_packers(code: str) -> list[Callable[..., bytes]]:
    return [struct.Struct(">" + code * count).pack for count in range(SHORT_ARRAY + 1)]
