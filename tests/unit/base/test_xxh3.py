"""XXH3: digests that the reference implementation gives, one or more for each way an input of some length goes."""

from __future__ import annotations

import pytest

from pybroker.base.xxh3 import xxh3_64


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (b"", 0x2D06800538D394C2),
        (b"a", 0xE6C632B61E964E1F),
        (b"abc", 0x78AF5F94892F3950),
        (b"kafka", 0x9F2CC9B213728571),
        (b"consumer group", 0x3E3BBF93B1BC0C59),
        (bytes(range(100)), 0x4E4F921A64BD1C),
        (bytes(200), 0x8F8C9188233578C2),
        (bytes(range(256)), 0x9408A4433B952D71),
        (bytes(number % 251 for number in range(3000)), 0x1B846747012C24AA),
    ],
)
def test_digests(data: bytes, digest: int) -> None:
    assert xxh3_64(data) == digest
