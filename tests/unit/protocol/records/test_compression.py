from __future__ import annotations

import gzip
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from unit.protocol.records.batches import blobs

from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records import compression
from pybroker.protocol.records.compression import Codec, codec_of, compress, decompress

PACKED = tuple(Codec)[1:]
TEXT = b"".join(b'{"id": %d, "amount": %d}' % (number, number * number % 9973) for number in range(9000))


@given(st.sampled_from(Codec), blobs(400_000))
def test_there_and_back(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, memoryview(data))) == data


@pytest.mark.parametrize(("codec", "levels"), [(Codec.GZIP, (1, 9)), (Codec.LZ4, (1, 17)), (Codec.ZSTD, (-5, 1, 22))])
def test_levels(codec: Codec, levels: tuple[int, ...]) -> None:
    packed = [compress(codec, TEXT, level) for level in levels]
    assert [decompress(codec, each) for each in packed] == [TEXT] * len(levels)
    assert len(packed[-1]) < len(packed[0])


def test_what_other_writers_frame_differently() -> None:
    assert decompress(Codec.GZIP, gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:])) == TEXT
    assert decompress(Codec.SNAPPY, snappy.compress(TEXT)) == TEXT
    assert decompress(Codec.SNAPPY, compress(Codec.SNAPPY, b"ab") + compress(Codec.SNAPPY, b"cd")) == b"abcd"
    assert decompress(Codec.ZSTD, zstandard.compress(TEXT[:1000]) + zstandard.compress(TEXT[1000:])) == TEXT
    checked = zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)
    skipped = b"\x5a\x2a\x4d\x18" + b"\x03\x00\x00\x00" + b"abc"
    assert decompress(Codec.ZSTD, skipped + checked) == TEXT


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("checksums", [True, False])
def test_lz4_frames_of_every_make(linked: bool, sized: bool, checksums: bool) -> None:
    frame = lz4.frame.compress(
        TEXT, block_linked=linked, store_size=sized, block_checksum=checksums, content_checksum=checksums
    )
    assert decompress(Codec.LZ4, frame) == TEXT


@pytest.mark.parametrize("codec", PACKED)
def test_a_stream_that_breaks_off_is_refused(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    for end in (1, 5, len(packed) // 2, len(packed) - 1):
        with pytest.raises(KafkaError, match="cannot be decompressed") as caught:
            decompress(codec, packed[:end])
        assert caught.value.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", PACKED)
def test_a_broken_stream_does_not_spoil_the_next(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    broken = packed[:40] + bytes(byte ^ 0xFF for byte in packed[40:80]) + packed[80:]
    for _ in range(3):
        with suppress(KafkaError):
            decompress(codec, broken)
        assert decompress(codec, packed) == TEXT


@pytest.mark.parametrize("codec", PACKED)
def test_threads_do_not_meet(codec: Codec) -> None:
    texts = [TEXT[number * 997 :] for number in range(8)]
    packed = [compress(codec, text) for text in texts]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(10):
            assert list(threads.map(partial(decompress, codec), packed)) == texts


def test_a_large_window_is_not_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    idle: list[zstandard.ZstdDecompressor] = []
    monkeypatch.setattr(compression, "_idle_unzstd", idle)
    wide = zstandard.ZstdCompressionParameters.from_level(3, window_log=27)
    writer = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    assert decompress(Codec.ZSTD, writer.compress(TEXT) + writer.flush()) == TEXT
    assert idle == []
    for _ in range(2):
        assert decompress(Codec.ZSTD, compress(Codec.ZSTD, TEXT)) == TEXT
        assert len(idle) == 1


@pytest.mark.parametrize("codec", Codec)
def test_the_limit_is_exact(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(KafkaError, match=f"more than the limit of {len(TEXT) - 1} bytes") as caught:
        decompress(codec, packed, len(TEXT) - 1)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_costs_no_more_than_the_limit_and_a_piece(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 * 1024 * 1024))
    decompress(codec, compress(codec, b"import the library"))
    tracemalloc.start()
    try:
        with pytest.raises(KafkaError, match="limit"):
            decompress(codec, bomb, 1024 * 1024)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * 1024 * 1024


def test_a_snappy_block_cannot_claim_what_its_bytes_cannot_hold() -> None:
    with pytest.raises(KafkaError, match="cannot hold"):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\x3f" + b"\x00abc")


@given(st.sampled_from(PACKED), st.binary(max_size=200), blobs(2000), st.data())
def test_garbage_raises_nothing_but_a_refusal(codec: Codec, noise: bytes, plain: bytes, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, plain))
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at] ^= data.draw(st.integers(1, 255))
    for garbage in (noise, bytes(packed), packed[:at] + noise + packed[at:]):
        with suppress(KafkaError):
            assert len(decompress(codec, garbage, 5000)) <= 5000


def test_the_codec_in_the_attributes() -> None:
    assert [codec_of(0x78 | number) for number in range(5)] == list(Codec)
    for number in (5, 6, 7):
        with pytest.raises(KafkaError, match=f"codec {number}"):
            codec_of(number)
