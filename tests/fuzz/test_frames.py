"""Mutated frames of every message and version: each is decoded or refused with a ProtocolError, never anything else.

FRAMES says how many (100,000 unless told). A frame that decodes must encode again, to bytes that mean the same. One in a
thousand is decoded under tracemalloc: what it takes stays in proportion to the frame.
"""

from __future__ import annotations

import os
import random
import time
import tracemalloc
from collections.abc import Iterator

import pytest
from support.random_messages import message_versions, random_message

from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.message import Message

FRAMES = int(os.environ.get("FRAMES", "100000"))
SEED = os.environ.get("FUZZ_SEED", "1")
EXTREMES = (
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
)

# A frame's bytes become Python objects: at worst an object of some hundred bytes for each byte of an array of empty structs.
BYTES_PER_BYTE = 400
BYTES_PER_FRAME = 50_000


def mutate(rng: random.Random, frame: bytes) -> bytes:
    mutant = bytearray(frame)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        position = rng.randrange(len(mutant) + 1)
        match rng.randrange(6):
            case 0:
                del mutant[position:]
            case 1:
                mutant[position : position + 1] = rng.randbytes(1)
            case 2:
                extreme = rng.choice(EXTREMES)
                mutant[position : position + len(extreme)] = extreme
            case 3:
                mutant[position:position] = rng.randbytes(rng.randrange(1, 6))
            case 4:
                del mutant[position : position + rng.randrange(1, 6)]
            case 5:
                start = rng.randrange(len(mutant) + 1)
                mutant[position:position] = mutant[start : start + rng.randrange(1, 20)]
    return bytes(mutant)


def frames(rng: random.Random) -> Iterator[tuple[type[Message], int, bytes]]:
    kinds = list(message_versions())
    share = -(-FRAMES // len(kinds))
    for cls, version in kinds:
        for number in range(share):
            if number % 20 == 0:
                frame = random_message(rng, cls, version, unknown_tags=True).encode(version)
            yield cls, version, mutate(rng, frame)


@pytest.mark.fuzz
def test_mutated_frames_are_decoded_or_refused() -> None:
    rng = random.Random(SEED)
    decoded = refused = slowest = 0
    start = time.perf_counter()
    for number, (cls, version, frame) in enumerate(frames(rng)):
        measured = number % 1000 == 999
        if measured:
            tracemalloc.start()
        before = time.perf_counter_ns()
        try:
            message = cls.decode(version, frame)
        except ProtocolError as error:
            refused += 1
            assert error.message == cls.__name__
            assert error.version == version
            assert 0 <= error.offset <= len(frame), f"{error}: {frame.hex()}"
        else:
            decoded += 1
            again = message.encode(version)
            assert cls.decode(version, again).encode(version) == again, f"{cls.__name__} v{version}: {frame.hex()}"
        slowest = max(slowest, time.perf_counter_ns() - before)
        if measured:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < BYTES_PER_FRAME + BYTES_PER_BYTE * len(frame), f"{cls.__name__} v{version}: {frame.hex()}"
    seconds = time.perf_counter() - start
    print(
        f"\n{decoded + refused:,} mutated frames: {decoded:,} decoded, {refused:,} refused, "
        f"in {seconds:.0f} s, the slowest {slowest / 1e6:.1f} ms"
    )
    assert min(decoded, refused) > 0
