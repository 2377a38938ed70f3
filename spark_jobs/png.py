"""A bar chart as a PNG file, from the standard library alone: a Spark cluster need not have a plotting package."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

WIDTH, MARGIN, BAR, GAP = 720, 12, 14, 6
_LABEL, _NUMBER = 200, 90
_WHITE, _INK, _BLUE, _RED = (255, 255, 255), (40, 40, 40), (70, 120, 190), (200, 80, 60)

# Five columns a character, the lowest bit on top.
_FONT = {
    character: bytes.fromhex(columns)
    for character, columns in zip(
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-._[]%:/",
        [
            "3e5149453e",
            "00427f4000",
            "4261514946",
            "2141454b31",
            "1814127f10",
            "2745454539",
            "3c4a494930",
            "0171090503",
            "3649494936",
            "064949291e",
            "7e1111117e",
            "7f49494936",
            "3e41414122",
            "7f4141221c",
            "7f49494941",
            "7f09090901",
            "3e4149497a",
            "7f0808087f",
            "00417f4100",
            "2040413f01",
            "7f08142241",
            "7f40404040",
            "7f020c027f",
            "7f0408107f",
            "3e4141413e",
            "7f09090906",
            "3e4151215e",
            "7f09192946",
            "4649494931",
            "01017f0101",
            "3f4040403f",
            "1f2040201f",
            "3f4038403f",
            "6314081463",
            "0708700807",
            "6151494543",
            "0808080808",
            "0060600000",
            "4040404040",
            "007f414100",
            "0041417f00",
            "2313086462",
            "0036360000",
            "2010080402",
        ],
    )
}


class Picture:
    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._pixels = bytearray(bytes(_WHITE) * (width * height))

    def fill(self, left: int, top: int, width: int, height: int, colour: tuple[int, int, int]) -> None:
        left, right = max(0, left), min(self.width, left + width)
        for row in range(max(0, top), min(self.height, top + height)):
            start = (row * self.width + left) * 3
            self._pixels[start : start + max(0, right - left) * 3] = bytes(colour) * max(0, right - left)

    def write(self, left: int, top: int, text: str) -> None:
        """Capitals: the font has no others. What it lacks stays blank."""
        for position, character in enumerate(text.upper()):
            for column, bits in enumerate(_FONT.get(character, b"")):
                for row in range(7):
                    if bits >> row & 1:
                        self.fill(left + position * 6 + column, top + row, 1, 1, _INK)

    def png(self) -> bytes:
        stride = self.width * 3
        lines = b"".join(b"\0" + self._pixels[row * stride : (row + 1) * stride] for row in range(self.height))
        header = struct.pack(">IIBBBBB", self.width, self.height, 8, 2, 0, 0, 0)
        return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(lines)) + _chunk(b"IEND", b"")


def bar_chart(groups: Sequence[tuple[str, Sequence[tuple[str, float, bool]]]]) -> bytes:
    """`groups` are titles with bars, each with a label, a value and whether it stands out."""
    height = MARGIN * 2 + sum((len(bars) + 2) * (BAR + GAP) for _, bars in groups)
    picture = Picture(WIDTH, height)
    top = MARGIN
    for title, bars in groups:
        picture.write(MARGIN, top + 4, title)
        top += BAR + GAP
        longest = max((value for _, value, _ in bars), default=0) or 1
        room = WIDTH - 2 * MARGIN - _LABEL - _NUMBER
        for label, value, stands_out in bars:
            picture.write(MARGIN, top + 4, label[: _LABEL // 6 - 1])
            length = round(room * value / longest)
            picture.fill(MARGIN + _LABEL, top, max(length, 1), BAR, _RED if stands_out else _BLUE)
            picture.write(MARGIN + _LABEL + length + 6, top + 4, f"{value:g}" if value < 1e6 else f"{value:.0f}")
            top += BAR + GAP
        top += BAR + GAP
    return picture.png()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
