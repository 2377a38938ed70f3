"""The parts of the wire format that generated codecs call rather than inline: long varints, tag sections, refusals.

Decoding works on (buffer, position) pairs; encoding appends to a bytearray.
"""

from __future__ import annotations

from pybroker.protocol.errors import ProtocolError

Buffer = bytes | bytearray | memoryview

MAX_STRING_BYTES = 32767


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The unsigned varint at `position`, at most 32 bits wide, and the position after it."""
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise ProtocolError("a varint of more than 5 bytes")
    if value > 0xFFFF_FFFF:
        raise ProtocolError("a varint of more than 32 bits")
    return value, position


def read_string_length(buffer: Buffer, position: int) -> tuple[int, int]:
    """The length + 1 of a compact string that takes more than one byte to say."""
    length, position = read_uvarint(buffer, position)
    if length > MAX_STRING_BYTES + 1:
        raise ProtocolError(f"a string of {length - 1} bytes, at most {MAX_STRING_BYTES} are allowed")
    return length, position


def put_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def put_string_length(out: bytearray, length: int) -> None:
    """The length + 1 of a compact string."""
    if length > MAX_STRING_BYTES + 1:
        raise ProtocolError(f"a string of {length - 1} bytes, at most {MAX_STRING_BYTES} are allowed")
    put_uvarint(out, length)


def read_unknown_tags(buffer: Buffer, position: int, end: int) -> tuple[dict[int, bytes], int]:
    """A whole tag section of a struct whose version knows no tag."""
    unknown = {}
    count, position = read_uvarint(buffer, position)
    for _ in range(count):
        tag, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        stop = position + size
        if stop > end:
            raise bad_length(size, end - position)
        unknown[tag] = bytes(buffer[position:stop])
        position = stop
    return unknown, position


def put_tags(out: bytearray, known: list[tuple[int, bytearray]], unknown: dict[int, bytes] | None) -> None:
    """A tag section in ascending order of tags."""
    tags: list[tuple[int, bytes | bytearray]] = [*known]
    if unknown:
        taken = {tag for tag, _ in known}
        for tag in unknown:
            if tag in taken:
                raise ProtocolError(f"unknown tagged field {tag} is a known one of this version")
        tags += unknown.items()
        tags.sort()
    put_uvarint(out, len(tags))
    for tag, body in tags:
        put_uvarint(out, tag)
        put_uvarint(out, len(body))
        out += body


def bad_length(length: int, remaining: int) -> ProtocolError:
    if length == -1:
        return ProtocolError("null, which this version does not allow")
    if length < 0:
        return ProtocolError(f"a negative length, {length}")
    return ProtocolError(f"a length of {length} bytes, but {remaining} remain")


def bad_count(count: int, remaining: int) -> ProtocolError:
    if count == -1:
        return ProtocolError("null, which this version does not allow")
    if count < 0:
        return ProtocolError(f"a negative count, {count}")
    return ProtocolError(f"{count} elements, which {remaining} remaining bytes cannot hold")


def bad_tag_size(tag: int, found: int, expected: int) -> ProtocolError:
    return ProtocolError(f"tagged field {tag} says {expected} bytes and holds {found}")


def not_in_version(value: object) -> ProtocolError:
    return ProtocolError(f"{value!r} cannot be carried: the field is not in this version")
