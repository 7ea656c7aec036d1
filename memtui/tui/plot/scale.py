"""Vertical scales with round ticks, and the steps in which time is zoomed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Optional

from memtui.analysis import units

_STEPS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_ROUND = (1, 2, 4, 5, 8, 10, 16, 20, 25, 32, 40, 50, 64, 100, 128, 200, 250, 256, 400, 500, 512, 1000, 1024)

#: Lengths of the visible window, in seconds; from one to the next is at most about threefold.
SPANS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 259200, 604800)

#: From here on a column is about as long as samples are apart; closer, most columns have none.
USUAL_SPAN = SPANS.index(5)
#: Samples that a closer window must have room for: else there is nothing to see in it.
LEAST_SAMPLES = 8

#: The live window at most, until the user zooms: long enough for steps of some seconds, short enough to see one.
DEFAULT_SPAN = SPANS.index(120)


#: A scale of so few of its unit, with fewer ticks than this, is told in the next smaller one.
FEW = 4


@dataclass(frozen=True)
class Scale:
    """Bytes from 0 to `top`; `ticks` are (bytes, label without unit) in `unit`."""

    top: int
    unit: str
    ticks: tuple[tuple[int, str], ...]


def scale(top: int, rows: int) -> Scale:
    """A scale that ends exactly at `top`, with round ticks at least three rows apart.

    Its unit is that of `top`; where that leaves hardly a tick ("1" and "0 GiB"), the next smaller one.
    """
    top = max(1, top)
    unit = units.unit_of(top)
    made = _scale_in(unit, top, rows)
    place = _STEPS.index(unit)
    most = max(1, rows // 3) + 1
    if place and top <= FEW * 1024**place and len(made.ticks) < min(FEW, most):
        finer = _scale_in(_STEPS[place - 1], top, rows)
        return finer if len(made.ticks) < len(finer.ticks) <= most else made
    return made


def _scale_in(unit: str, top: int, rows: int) -> Scale:
    size: int = 1024 ** _STEPS.index(unit)
    whole = top / size
    most = max(1, rows // 3)
    wanted = whole / most
    candidates = [step for step in _ROUND if step >= wanted] or [_ROUND[-1]]
    # A step that divides the whole puts a tick at the top; one not much larger than needed is worth it.
    even = [step for step in candidates if step <= 2.6 * wanted + 1 and abs(whole / step - round(whole / step)) < 1e-9]
    step = even[0] if even else candidates[0]
    count = math.floor(whole / step + 1e-9)
    return Scale(top, unit, tuple((min(top, index * step * size), f"{index * step:,}") for index in range(count + 1)))


def round_top(value: int) -> int:
    """The next round number of bytes at or above `value`, with some air above it."""
    wanted = max(1024, value * 1.05)
    size: int = 1024 ** _STEPS.index(units.unit_of(int(wanted)))
    for step in (1, 1.5, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 200, 256, 320, 400, 512):
        if step * size >= wanted:
            return int(step * size)
    return next((step * size for step in (640, 768, 896) if step * size >= wanted), 1024 * size)


def closest_span(spacing_ns: Optional[int]) -> int:
    """The place in SPANS of the closest window for samples that are so far apart."""
    wanted = math.inf if spacing_ns is None else spacing_ns * LEAST_SAMPLES
    return next((place for place in range(USUAL_SPAN) if SPANS[place] * 1e9 >= wanted), USUAL_SPAN)


#: Steps of the axis of less than a second.
_PARTS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


def clock_ticks(span_s: float, cells: int) -> list[float]:
    """Seconds before the right end at which the time axis gets a label, from left to right, without the end."""
    most = max(1, cells // 18)
    for step in (
        *_PARTS,
        1,
        2,
        5,
        10,
        15,
        30,
        60,
        120,
        300,
        600,
        900,
        1800,
        3600,
        7200,
        10800,
        21600,
        43200,
        86400,
        172800,
    ):
        if span_s / step <= most + 0.5:
            count = int(span_s // step + 1e-9)
            return [step * index for index in range(count, 0, -1)]
    return [span_s]


def ago(seconds: float, span_s: float = 0) -> str:
    """A distance in time on an axis of `span_s`: "60 s", "5 m", "1 h 30 m", "2 d"; one unit for a short axis."""
    whole = round(seconds)
    if 0 < span_s < SPANS[USUAL_SPAN]:
        return f"{seconds * 1e3:.0f} ms" if seconds < 0.9995 else f"{seconds:.1f} s"
    if whole < 120 or (whole <= 125 and span_s <= 130):
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m" + (f" {whole % 60:02} s" if whole % 60 else "")
    if whole < 86400:
        return f"{whole // 3600} h" + (f" {whole % 3600 // 60:02} m" if whole % 3600 // 60 else "")
    return f"{whole // 86400} d" + (f" {whole % 86400 // 3600} h" if whole % 86400 // 3600 else "")
