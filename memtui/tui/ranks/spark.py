"""What a rank has allocated over time, in one line of cells or in several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from memtui.session.session import Session
from memtui.tui import roles
from memtui.tui.look import Look
from memtui.tui.plot.cells import Cell, column, ground
from memtui.tui.plot.track import Column
from memtui.tui.rows import Row

_BLOCKS, _PLAIN = " ▁▂▃▄▅▆▇█", " .:-=+*#%"
#: A figure holds until the next sample for so long.
_HOLD_NS = 2_500_000_000
_STRIDES = 12


def samples(session: Session, device: str, end_ns: int, step_ns: int, count: int) -> list[Column]:
    """(least, most) of what was allocated in `count` columns of `step_ns` up to now; short gaps are bridged.

    Columns begin at multiples of their length, and the picture moves by a twelfth of its width at a time: mostly the
    newest of them alone are drawn again.
    """
    series = session.series(device, "allocated_bytes")
    if series is None or count <= 0:
        return [None] * max(0, count)
    stride = max(1, count // _STRIDES)
    last = (end_ns // step_ns // stride + 1) * stride
    found = series.window((last - count) * step_ns, last * step_ns, count)
    held: Optional[int] = None
    since = 0
    for place, each in enumerate(found):
        if each is not None:
            held, since = each[1], place
        elif (last - count + place) * step_ns > end_ns:
            break
        elif held is not None and (place - since) * step_ns <= _HOLD_NS:
            found[place] = (held, held)
    return found


def highest(tracks: Sequence[Sequence[Column]]) -> int:
    """The most of several charts, which they are all drawn to: unlike heights are unlike bytes."""
    return max((each[1] for track in tracks for each in track if each is not None), default=0)


def line(track: Sequence[Column], top: int, look: Look) -> tuple[str, str]:
    """Characters and roles of one line, a column a cell."""
    characters = _BLOCKS if look.glyphs.braille else _PLAIN
    text = []
    for each in track:
        if each is None or top <= 0:
            text.append(" ")
        else:
            text.append(characters[max(1 if each[1] > 0 else 0, min(8, (each[1] * 8 + top // 2) // top))])
    return "".join(text), roles.ALLOCATED * len(text)


def area(track: Sequence[Column], top: int, height: int, look: Look) -> list[Row]:
    """`height` rows, two columns a cell where there is braille: dark up to the least, bright to the most."""
    pairs = _pairs(track) if look.glyphs.braille else [(each, each) for each in track]
    behind = ground(height, [])
    drawn = [
        column(Cell(left, right, None, None, None, None), behind, max(1, top), height, look.glyphs)
        for left, right in pairs
    ]
    rows = []
    for place in range(height):
        rows.append(Row("".join(text[place] for text, _ in drawn), "".join(role[place] for _, role in drawn)))
    return rows


def columns_of(cells: int, look: Look) -> int:
    """How many columns an area of so many cells has."""
    return 2 * cells if look.glyphs.braille else cells


def _pairs(track: Sequence[Column]) -> list[tuple[Column, Column]]:
    whole = [*track, None] if len(track) % 2 else list(track)
    return list(zip(whole[::2], whole[1::2]))
