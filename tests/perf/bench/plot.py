"""A plot of ratios as SVG: a row per figure, a dot per server, a tick for the bar, on a logarithmic axis around 1. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log2

_WIDTH = 1080
_LABELS = 550
_RIGHT = 30
_ROW = 22
_HEAD = 58
_COLOURS = ("#c2410c", "#2563eb", "#15803d", "#7c3aed")
_INK = "#57606a"
_GRID = "#d0d7de"


@dataclass(slots=True, frozen=True)
class Row:
    label: str
    ratios: Sequence[float | None]
    """One for each series; None where there is none."""
    bar: float | None = None


@dataclass(slots=True, frozen=True)
class Panel:
    title: str
    rows: Sequence[Row]


def plot(series: Sequence[str], panels: Sequence[Panel]) -> str:
    """The whole SVG file; panels below each other, on one scale."""
    values = [value for panel in panels for row in panel.rows for value in (*row.ratios, row.bar) if value]
    low = floor(log2(min([*values, 0.5])))
    high = ceil(log2(max([*values, 2.0])))
    step = 1 if high - low < 10 else 2  # so that the labels of the axis stay apart

    def x(ratio: float) -> float:
        return _LABELS + (log2(ratio) - low) / (high - low) * (_WIDTH - _LABELS - _RIGHT)

    out: list[str] = []
    top = 34
    for number, name in enumerate(series):
        left = _LABELS + number * 170
        out.append(_circle(left, 16, number) + _text(left + 10, 20, name))
    for panel in panels:
        bottom = top + _HEAD + _ROW * len(panel.rows)
        out.append(_text(10, top + 24, panel.title, weight="bold"))
        for power in range(low, high + 1):
            at, first = x(2.0**power), power == 0
            label = (f"{2**power}" if power >= 0 else f"1/{2**-power}") if power % step == 0 else ""
            colour, width = (_INK, 1.5) if first else (_GRID, 1)
            out.append(_line(at, top + _HEAD - 12, at, bottom - 8, colour, width) + _text(at, top + 40, label, anchor="middle"))
        for index, row in enumerate(panel.rows):
            middle = top + _HEAD + _ROW * index
            out.append(_text(_LABELS - 14, middle + 4, row.label, anchor="end"))
            if row.bar is not None:
                out.append(_line(x(row.bar), middle - 8, x(row.bar), middle + 8, "#111827", 2.5))
            for series_number, ratio in enumerate(row.ratios):
                if ratio:
                    out.append(_circle(x(ratio), middle, series_number))
        top = bottom
    height = top + 8
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
        + "\n".join(out)
        + "\n</svg>\n"
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="#24292f" text-anchor="{anchor}" font-weight="{weight}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>'


def _circle(x: float, y: float, series: int) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5.5" fill="{_COLOURS[series % len(_COLOURS)]}" fill-opacity="0.85"/>'
