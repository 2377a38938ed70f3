"""Which requests a listener serves, and reading the header of one. Pure.

The table is keyed by the first four bytes of a frame, api key and version, so that one look-up checks both.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from pybroker.protocol.api_table import API_VERSIONS_KEY, Api
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.schema import Versions
from pybroker.protocol.wire import Buffer, read_unknown_tags

Apis = Mapping[int, tuple[Api, Versions]]

_unpack: Final = struct.Struct(">Iih").unpack_from  # api key and version, correlation id, length of the client id
HEADER_BYTES: Final = 10


class BadRequestError(Exception):
    """A frame that is no request which is served here; its text is the reason to close the connection."""


class Served(NamedTuple):
    api: Api
    version: int
    answer_version: int
    is_flexible: bool


Table = dict[int, Served]

# What it is, correlation id, client id, where the body starts. A plain tuple: every request makes one.
Header = tuple[Served, int, str | None, int]


def table_of(apis: Apis) -> Table:
    return {
        key << 16 | version: Served(api, version, version, version in api.request.FLEXIBLE)
        for key, (api, versions) in apis.items()
        for version in range(versions.low, versions.high + 1)
    }


def read_header(table: Table, frame: Buffer) -> Header:
    try:
        key_and_version, correlation_id, length = _unpack(frame)
        served = table.get(key_and_version)
        if served is None:
            served = _unknown(table, key_and_version)
        position = HEADER_BYTES
        client_id = None
        if length >= 0:
            position += length
            if position > len(frame):
                raise BadRequestError(f"a client id of {length} bytes in a request of {len(frame)}")
            client_id = str(frame[HEADER_BYTES:position], "utf-8")
        elif length != -1:
            raise BadRequestError(f"a client id of {length} bytes")
        if served.is_flexible:
            if frame[position]:
                _, position = read_unknown_tags(frame, position, len(frame))
            else:
                position += 1
    except (struct.error, IndexError):
        raise BadRequestError(f"a request of {len(frame)} bytes ends within its header") from None
    except UnicodeDecodeError:
        raise BadRequestError("a client id that is not UTF-8") from None
    except ProtocolError as error:
        raise BadRequestError(f"a request header with {error}") from None
    return served, correlation_id, client_id, position


def _unknown(table: Table, key_and_version: int) -> Served:
    """ApiVersions of whatever version is answered, in version 0, so that a newer client learns what there is."""
    key, version = struct.unpack(">hh", key_and_version.to_bytes(4, "big"))
    versions = [one.version for place, one in table.items() if place >> 16 == key]
    if not versions:
        raise BadRequestError(f"a request with API key {key}, which is not served on this listener")
    lowest = table[key << 16 | min(versions)]
    if key == API_VERSIONS_KEY:
        return Served(lowest.api, version, 0, version in lowest.api.request.FLEXIBLE)
    raise BadRequestError(f"{lowest.api.name} v{version}, of which {min(versions)} to {max(versions)} are served")
