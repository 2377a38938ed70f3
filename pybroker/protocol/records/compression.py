"""The five codecs of a record batch, in the framings that Kafka's clients write.

Pure functions, for any thread; each library is imported at its first use. Decompression works in pieces and stops one
piece beyond `max_bytes` at the latest (joining them holds the output twice for a moment). Whatever a library raises on
garbage comes out as INVALID_RECORD, which no client sends again; the limit is ours and says MESSAGE_TOO_LARGE.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING

from pybroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from zstandard import ZstdDecompressor

DEFAULT_MAX_BYTES = 128 * 1024 * 1024
_PIECE = 256 * 1024

Buffer = bytes | bytearray | memoryview


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def codec_of(attributes: int) -> Codec:
    """The codec in the lowest three bits of a batch's attributes; 5 to 7 name none."""
    number = attributes & 0x07
    if number > Codec.ZSTD:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"The batch is compressed with codec {number}; expected 0 none, 1 gzip, 2 snappy, 3 lz4 or 4 zstd.",
        )
    return Codec(number)


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """`data` compressed; `level` as in Kafka's compression.*.level keys (snappy has none), None for the default."""
    if codec is Codec.NONE:
        return bytes(data)
    return _COMPRESSORS[codec](data, level)


def decompress(codec: Codec, data: Buffer, max_bytes: int = DEFAULT_MAX_BYTES) -> bytes:
    """`data` decompressed, at most `max_bytes` of it."""
    if codec is Codec.NONE:
        if len(data) > max_bytes:
            raise _too_large(codec, len(data), max_bytes)
        return bytes(data)
    try:
        return _DECOMPRESSORS[codec](memoryview(data), max_bytes)
    except KafkaError:
        raise
    except Exception as error:
        raise _garbage(codec, len(data), str(error) or type(error).__name__) from error


def _too_large(codec: Codec, compressed: int, max_bytes: int) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"{compressed} bytes of {codec.name.lower()} records decompress to more than the limit of {max_bytes} bytes.",
    )


def _garbage(codec: Codec, compressed: int, problem: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_RECORD,
        f"{compressed} bytes of {codec.name.lower()} records cannot be decompressed: {problem}.",
    )


class _Pieces:
    """Output as it comes, refused as soon as it is more than the limit."""

    __slots__ = ("_codec", "_compressed", "_max_bytes", "_pieces", "size")

    def __init__(self, codec: Codec, compressed: int, max_bytes: int) -> None:
        self._codec = codec
        self._compressed = compressed
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        self.size = 0

    def room(self) -> int:
        """How much the next piece may hold: one byte beyond the limit shows that there is more."""
        return min(_PIECE, self._max_bytes - self.size + 1)

    def claim(self, size: int) -> None:
        if self.size + size > self._max_bytes:
            raise _too_large(self._codec, self._compressed, self._max_bytes)

    def add(self, piece: bytes) -> None:
        self.claim(len(piece))
        self.size += len(piece)
        self._pieces.append(piece)

    def joined(self) -> bytes:
        return b"".join(self._pieces)


def _gzip(data: Buffer, level: int | None) -> bytes:
    packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()


def _gunzip(data: memoryview, max_bytes: int) -> bytes:
    pieces = _Pieces(Codec.GZIP, len(data), max_bytes)
    pos = 0
    # Members may follow each other; Java's reader takes anything else behind one for the end.
    while pos == 0 or bytes(data[pos : pos + 2]) == b"\x1f\x8b":
        member = zlib.decompressobj(31)
        tail = b""
        while not member.eof:
            source: Buffer = tail
            if not tail:
                source = data[pos : pos + _PIECE]
                pos += len(source)
            plain = member.decompress(source, pieces.room())
            if not plain and not source:
                raise EOFError("the stream ends too early")
            pieces.add(plain)
            tail = member.unconsumed_tail
        pos -= len(member.unused_data)
    return pieces.joined()


_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01" * 2
_XERIAL_BLOCK = 32 * 1024
_INT = Struct(">i")


def _snap(data: Buffer, level: int | None) -> bytes:
    from snappy import compress as raw

    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for pos in range(0, len(view), _XERIAL_BLOCK):
        block = raw(view[pos : pos + _XERIAL_BLOCK])
        out += _INT.pack(len(block))
        out += block
    return bytes(out)


def _unsnap(data: memoryview, max_bytes: int) -> bytes:
    size = len(data)
    pieces = _Pieces(Codec.SNAPPY, size, max_bytes)
    if data[:8] != _XERIAL_MAGIC:
        _unsnap_block(data, pieces)
        return pieces.joined()
    pos = 0
    while size - pos >= 4:  # fewer bytes are the end, to Java's reader too
        if data[pos : pos + 8] == _XERIAL_MAGIC:  # at the start, and where streams follow each other
            pos += 16
            continue
        (length,) = _INT.unpack_from(data, pos)
        pos += 4
        if not 0 <= length <= size - pos:
            raise ValueError(f"a block of {length} bytes where {size - pos} remain")
        _unsnap_block(data[pos : pos + length], pieces)
        pos += length
    if pos > size:
        raise EOFError("the xerial header ends too early")
    return pieces.joined()


def _unsnap_block(block: memoryview, pieces: _Pieces) -> None:
    from snappy import uncompress

    # A raw block opens with its decompressed size, for which the library would make room unasked.
    claimed = shift = pos = 0
    while True:
        byte = block[pos]
        claimed |= (byte & 0x7F) << shift
        pos += 1
        shift += 7
        if byte < 0x80:
            break
        if shift > 28:
            raise ValueError("the size of a block is longer than 5 bytes")
    pieces.claim(claimed)
    # The densest tag makes 64 bytes of 3.
    if claimed > (len(block) - pos) * 64:
        raise ValueError(f"a block of {len(block)} bytes cannot hold {claimed}")
    pieces.add(uncompress(block))


def _lz4(data: Buffer, level: int | None) -> bytes:
    import lz4.frame

    # Java reads independent blocks only.
    frame: bytes = lz4.frame.compress(
        data,
        compression_level=0 if level is None else level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return frame


def _unlz4(data: memoryview, max_bytes: int) -> bytes:
    import lz4.frame

    context = lz4.frame.create_decompression_context()
    pieces = _Pieces(Codec.LZ4, len(data), max_bytes)
    pos = 0
    while True:
        plain, read, end = lz4.frame.decompress_chunk(context, data[pos:], max_length=pieces.room())
        pieces.add(plain)
        if end:  # Java's reader looks at nothing behind the first frame
            return pieces.joined()
        if not plain and not read:
            raise EOFError("the frame ends too early")
        pos += read


def _zstd(data: Buffer, level: int | None) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=3 if level is None else level, write_content_size=False).compress(data)


# To make one takes longer than to decompress a small batch. Each serves one thread at a time: taken out while it works.
_idle_unzstd: list[ZstdDecompressor] = []
_MAX_IDLE = 8
_MAX_IDLE_WINDOW = 8 * 1024 * 1024  # what one keeps in memory; only levels above 19 ask for more


def _unzstd(data: memoryview, max_bytes: int) -> bytes:
    import zstandard

    window_bytes = _check_zstd_frames(data)
    pieces = _Pieces(Codec.ZSTD, len(data), max_bytes)
    try:
        context = _idle_unzstd.pop()
    except IndexError:
        context = zstandard.ZstdDecompressor()
    with context.stream_reader(data, read_across_frames=True) as reader:
        while plain := reader.read(pieces.room()):
            pieces.add(plain)
    if window_bytes <= _MAX_IDLE_WINDOW and len(_idle_unzstd) < _MAX_IDLE:
        _idle_unzstd.append(context)
    return pieces.joined()


def _check_zstd_frames(data: memoryview) -> int:
    """The largest window of the frames; EOFError if they break off.

    The library's reader takes a stream that breaks off for one that ends; so find the end from the block headers.
    """
    import zstandard

    size = len(data)
    pos = window_bytes = 0
    while pos < size:
        if bytes(data[pos + 1 : pos + 4]) == b"\x2a\x4d\x18" and data[pos] & 0xF0 == 0x50:  # a frame to skip
            pos += 8 + int.from_bytes(data[pos + 4 : pos + 8], "little")
        else:
            parameters = zstandard.get_frame_parameters(data[pos:])
            window_bytes = max(window_bytes, parameters.window_size)
            checksum = 4 if parameters.has_checksum else 0
            pos += zstandard.frame_header_size(data[pos:])
            last = 0
            while not last:
                header = int.from_bytes(data[pos : pos + 3], "little")
                if pos + 3 > size:
                    raise EOFError("the frame ends too early")
                last = header & 1
                pos += 3 + (1 if header >> 1 & 3 == 1 else header >> 3)
            pos += checksum
        if pos > size:
            raise EOFError("the frame ends too early")
    return window_bytes


_COMPRESSORS: dict[Codec, Callable[[Buffer, int | None], bytes]] = {
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snap,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
_DECOMPRESSORS: dict[Codec, Callable[[memoryview, int], bytes]] = {
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnap,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
