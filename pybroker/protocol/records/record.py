"""Records inside a batch: what one is, and the walks over a run of them.

The walks go over one `bytes` object (a batch's payload, decompressed or copied out of the receive buffer in one go), so
keys and values are `bytes` of their own: they outlive the buffer, hash and compare, and slicing bytes is no dearer than
slicing a memoryview. Every length is checked against the bytes that remain; what does not fit is INVALID_RECORD.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records.varint import decode_raw_varint, decode_raw_varlong, decode_varint, encode_varint

Headers = tuple[tuple[str, bytes | None], ...]
NO_HEADERS: Final[Headers] = ()


class Record(NamedTuple):
    """Header keys that are not UTF-8 keep their bytes as surrogate escapes, so that a rewrite loses nothing."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = NO_HEADERS


def encode_record(
    out: bytearray, offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None, headers: Headers
) -> None:
    """Append one record to `out`."""
    head = b"\x00" + encode_varint(timestamp_delta) + encode_varint(offset_delta)
    if key is None:
        head += b"\x01"
    else:
        head += encode_varint(len(key)) + key
    tail = _encode_headers(headers) if headers else b"\x00"
    if value is None:
        head += b"\x01"
        out += encode_varint(len(head) + len(tail))
        out += head
    else:
        head += encode_varint(len(value))
        out += encode_varint(len(head) + len(value) + len(tail))
        out += head
        out += value
    out += tail


def _encode_headers(headers: Headers) -> bytes:
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        raw = name.encode("utf-8", "surrogateescape")
        parts += (encode_varint(len(raw)), raw)
        parts += (b"\x01",) if value is None else (encode_varint(len(value)), value)
    return b"".join(parts)


# The walks read varints in place, since a call costs as much as the rest of a record: `raw` is the varint with its sign
# in the lowest bit, and where it is a length, an odd one is negative.


def walk_records(data: bytes, count: int, base_offset: int, base_timestamp: int, append_time: int | None) -> Iterator[Record]:
    """Every record of `data`, which must hold exactly `count`; `append_time` stands in for all timestamps if given."""
    size = len(data)
    pos = index = 0
    new = tuple.__new__
    try:
        for index in range(count):
            raw = data[pos]
            if raw < 0x80:
                pos += 1
            elif data[pos + 1] < 0x80:
                raw += (data[pos + 1] << 7) - 0x80
                pos += 2
            else:
                raw, pos = decode_raw_varint(data, pos)
            end = pos + (raw >> 1)
            if raw & 1 or end > size:
                raise _bad_length(index, raw, size - pos)
            pos += 1
            raw = data[pos]
            if raw < 0x80:
                pos += 1
            elif data[pos + 1] < 0x80:
                raw += (data[pos + 1] << 7) - 0x80
                pos += 2
            else:
                raw, pos = decode_raw_varlong(data, pos)
            timestamp = base_timestamp + (raw >> 1 if not raw & 1 else ~(raw >> 1))
            raw = data[pos]
            if raw < 0x80:
                pos += 1
            elif data[pos + 1] < 0x80:
                raw += (data[pos + 1] << 7) - 0x80
                pos += 2
            else:
                raw, pos = decode_raw_varint(data, pos)
            offset = base_offset + (raw >> 1 if not raw & 1 else ~(raw >> 1))
            raw = data[pos]
            if raw < 0x80:
                pos += 1
            else:
                raw, pos = decode_raw_varint(data, pos)
            if raw & 1:
                key = None
            else:
                raw = pos + (raw >> 1)
                key = data[pos:raw]
                pos = raw
            if pos >= end:
                raise _overrun(index, pos, end)
            raw = data[pos]
            if raw < 0x80:
                pos += 1
            elif data[pos + 1] < 0x80:
                raw += (data[pos + 1] << 7) - 0x80
                pos += 2
            else:
                raw, pos = decode_raw_varint(data, pos)
            if raw & 1:
                value = None
            else:
                raw = pos + (raw >> 1)
                value = data[pos:raw]
                pos = raw
            if pos >= end:
                raise _overrun(index, pos, end)
            if data[pos] == 0:
                headers = NO_HEADERS
                pos += 1
            else:
                headers, pos = _decode_headers(data, pos, end, index)
            if pos != end:
                raise _overrun(index, pos, end)
            yield new(Record, (offset, timestamp if append_time is None else append_time, key, value, headers))
    except (IndexError, ValueError) as error:
        raise _broken(index, count, pos, size, error) from None
    if pos != size:
        raise _trailing(count, size - pos)


def walk_keys(data: bytes, count: int, base_offset: int) -> Iterator[tuple[int, bytes | None]]:
    """The offset and the key of every record, as a compaction map needs them; values and headers are skipped unread."""
    size = len(data)
    pos = index = 0
    try:
        for index in range(count):
            raw = data[pos]
            if raw < 0x80:
                pos += 1
            elif data[pos + 1] < 0x80:
                raw += (data[pos + 1] << 7) - 0x80
                pos += 2
            else:
                raw, pos = decode_raw_varint(data, pos)
            end = pos + (raw >> 1)
            if raw & 1 or end > size:
                raise _bad_length(index, raw, size - pos)
            pos += 1
            while data[pos] > 0x7F:
                pos += 1
            pos += 1
            raw = data[pos]
            if raw < 0x80:
                pos += 1
            elif data[pos + 1] < 0x80:
                raw += (data[pos + 1] << 7) - 0x80
                pos += 2
            else:
                raw, pos = decode_raw_varint(data, pos)
            offset = base_offset + (raw >> 1 if not raw & 1 else ~(raw >> 1))
            raw = data[pos]
            if raw < 0x80:
                pos += 1
            else:
                raw, pos = decode_raw_varint(data, pos)
            if raw & 1:
                if pos > end:
                    raise _overrun(index, pos, end)
                yield offset, None
            else:
                raw = pos + (raw >> 1)
                if raw > end:
                    raise _overrun(index, raw, end)
                yield offset, data[pos:raw]
            pos = end
    except (IndexError, ValueError) as error:
        raise _broken(index, count, pos, size, error) from None
    if pos != size:
        raise _trailing(count, size - pos)


def _decode_headers(data: bytes, pos: int, end: int, index: int) -> tuple[Headers, int]:
    count, pos = decode_varint(data, pos)
    # A header takes at least two bytes; the check keeps a lie about the count from costing anything.
    if count < 0 or count > (end - pos) // 2:
        raise _invalid(f"Record {index} claims {count} headers in {end - pos} bytes; each takes 2 bytes or more.")
    headers: list[tuple[str, bytes | None]] = []
    for number in range(count):
        length, pos = decode_varint(data, pos)
        if length < 0 or pos + length > end:
            raise _invalid(f"Record {index}, header {number}: a key of {length} bytes where {end - pos} remain.")
        name = data[pos : pos + length].decode("utf-8", "surrogateescape")
        pos += length
        length, pos = decode_varint(data, pos)
        if length < 0:
            headers.append((name, None))
            continue
        if pos + length > end:
            raise _invalid(f"Record {index}, header {number}: a value of {length} bytes where {end - pos} remain.")
        headers.append((name, data[pos : pos + length]))
        pos += length
    return tuple(headers), pos


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)


def _bad_length(index: int, raw: int, remaining: int) -> KafkaError:
    length = (raw >> 1) ^ -(raw & 1)
    return _invalid(f"Record {index} claims a length of {length} bytes where {remaining} remain in its batch.")


def _overrun(index: int, pos: int, end: int) -> KafkaError:
    more = " and are not complete" if pos == end else ""
    return _invalid(f"Record {index} states its end at byte {end} of the payload, but its fields run to byte {pos}{more}.")


def _broken(index: int, count: int, pos: int, size: int, error: Exception) -> KafkaError:
    if isinstance(error, IndexError):
        return _invalid(f"The payload of {size} bytes ends inside record {index} of the {count} that its batch states.")
    return _invalid(f"Record {index}, before byte {pos} of the payload: {error}.")


def _trailing(count: int, remaining: int) -> KafkaError:
    return _invalid(f"{remaining} bytes follow the {count} records that the batch states; expected none.")
