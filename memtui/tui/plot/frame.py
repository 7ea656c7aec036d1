"""What stands around the picture: labels on its lines, the two axes, the cursor, the strip of phases."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Optional

from memtui.session.phases import PhaseHistory
from memtui.tui import roles
from memtui.tui.glyphs import Glyphs
from memtui.tui.look import Look
from memtui.tui.rows import Line, Row, overlay

from .cells import row_of
from .scale import SPANS, USUAL_SPAN, Scale, ago, clock_ticks

#: Left of the picture: a space, "1,024" or "0 GiB", and the axis.
GUTTER = 7

#: Phases that may last for many steps' time.
_LONG = frozenset(("evaluation", "checkpoint", "compilation"))
_SHORT = "steps are shorter than a column"

#: An axis shorter than this (a little more than the longest close window) tells parts of a second.
CLOSE_S = SPANS[USUAL_SPAN] * 0.9

#: What a label must not cover.
_FIGURES = frozenset((roles.ALLOCATED, roles.ENVELOPE))


class Label(NamedTuple):
    """A name for the line in a row; a `floating` one may stand above it where another has its row."""

    row: int
    text: str
    role: str
    floating: bool = False


@dataclass(frozen=True)
class TimeSpan:
    """The columns of the picture: `last` is the number of the one at the right end, each is `cell_ns` long."""

    last: int
    cells: int
    cell_ns: int

    @property
    def first(self) -> int:
        """The number of the column at the left end."""
        return self.last - self.cells + 1


def with_labels(rows: list[Row], labels: Sequence[Label], look: Look) -> list[Row]:
    """The picture with names at the right end of its lines, the first ones before the others.

    A label is on its line, or right above it where the line crosses figures there: it never hides one.
    """
    rows = list(rows)
    width = len(rows[0].text)
    lines = {label.row for label in labels}
    named: set[int] = set()
    written: set[int] = set()
    for row, text, role, floating in labels:
        shown = f" {look.text(text)} "
        start = width - len(shown) - 1
        if row < 0 or start < width // 8 or (row in named and not floating):
            continue
        named.add(row)
        for place in (row, row - 1):
            if place < 0 or place in written or (place != row and place in lines):
                continue
            if not _FIGURES.intersection(rows[place].roles[start:]):
                written.add(place)
                rows[place] = overlay(rows[place], start, shown, role)
                break
    return rows


def with_cursor(rows: list[Row], x: int, glyphs: Glyphs) -> list[Row]:
    """The picture with a cursor in column `x`; lines and labels under it stay readable."""
    if not 0 <= x < len(rows[0].text):
        return rows
    blank = (" ", glyphs.capacity, glyphs.forecast)
    result = []
    for row in rows:
        if row.roles[x] in _FIGURES:
            result.append(overlay(row, x, row.text[x], roles.CURSOR))
        else:
            result.append(overlay(row, x, glyphs.cursor, roles.CURSOR) if row.text[x] in blank else row)
    return result


@lru_cache(8)
def value_axis(scale: Scale | None, height: int, glyphs: Glyphs) -> tuple[Row, ...]:
    """The axis of bytes, `height` rows of GUTTER cells; without a scale it has no labels."""
    ticks = () if scale is None else scale.ticks
    labels = {row_of(value, scale.top, height): label for value, label in ticks if value and scale is not None}
    result = []
    for row in range(height):
        label = labels.get(row, "")
        mark = glyphs.tick if label else glyphs.axis
        result.append(Line().add(label.rjust(GUTTER - 2) + " ", roles.DIM).add(mark, roles.AXIS).row(GUTTER))
    return tuple(result)


def time_axis(
    span: TimeSpan, scale: Scale | None, now_ns: int, end_label: str, wall_offset_ns: Optional[int], look: Look
) -> Row:
    """The axis of time. It tells how long ago where it ends now, and the time of day where it does not.

    `end_label` is "now", or empty for a stretch of the past; `wall_offset_ns` added to a time is the wall clock.
    """
    unit = ("" if scale is None else f"0 {scale.unit}").rjust(GUTTER - 1)
    row = Line().add(unit, roles.DIM).add(look.glyphs.corner, roles.AXIS).row(GUTTER + span.cells)
    length_s = span.cells * span.cell_ns / 1e9
    right_ns = min(now_ns, (span.last + 1) * span.cell_ns)
    close = length_s < CLOSE_S

    def text(back_s: float) -> str:
        if close:  # of this axis' own end, which is told with its parts of a second
            return look.text("−") + ago(back_s, length_s)
        if not end_label and wall_offset_ns is not None:
            return _clock(right_ns - back_s * 1e9 + wall_offset_ns, length_s)
        return look.text("−") + ago((now_ns - right_ns) / 1e9 + back_s, length_s)

    right = end_label or text(0)
    if close:
        right = "" if wall_offset_ns is None else fine_clock(right_ns + wall_offset_ns)
    free_from = 0
    for back_s in clock_ticks(length_s, span.cells):
        place = span.cells - 1 - round(back_s * 1e9 / span.cell_ns)
        if place >= -1:  # a span is rounded up to whole columns, so its beginning may come out a column beyond
            place = max(1, place)  # and not on the corner
        label = text(back_s)
        if free_from <= place <= span.cells - len(right) - 2 - len(label):
            row = overlay(row, GUTTER + place, label, roles.DIM)
            free_from = place + len(label) + 1
    return overlay(row, GUTTER + span.cells - len(right), right, roles.DIM)


def phase_strip(
    span: TimeSpan,
    phases: Optional[PhaseHistory],
    step_ns: Optional[int],
    glyphs: Glyphs,
    closest_s: float = SPANS[USUAL_SPAN],
) -> Row:
    """The phase in the middle of each column, where steps are long enough for that to say something.

    Where they are not, what lasts longer than steps is shown all the same. `closest_s` is the shortest window there is.
    """
    line = Line().add(" phase ", roles.DIM)
    width = GUTTER + span.cells
    if phases is None:
        return line.row(width)
    short = step_ns is not None and step_ns < 3 * span.cell_ns
    start, end = span.first * span.cell_ns, (span.last + 1) * span.cell_ns
    names = _known(phases.window(start, end, span.cells))
    words = _SHORT if short else ""
    if short and step_ns is not None and step_ns * span.cells >= 3e9 * closest_s:
        words += ": + zooms in to their phases"
    if _LONG.intersection(names[: len(words)]):
        words = ""  # what is there is drawn in its place
    for place, name in enumerate(names):
        if short and name not in _LONG:
            line.add(words[place : place + 1] or " ", roles.FAINT)
        elif name:
            line.add(glyphs.phase(name), roles.phase(name))
        else:
            line.add(" ", " ")
    return line.row(width)


def _known(names: Iterable[Optional[str]]) -> list[str]:
    return [name or "" for name in names]


def fine_clock(wall_ns: int) -> str:
    """The time of day to the millisecond."""
    seconds, rest_ns = divmod(wall_ns, 1_000_000_000)
    return f"{time.strftime('%H:%M:%S', time.localtime(seconds))}.{rest_ns // 1_000_000:03}"


def _clock(wall_ns: float, length_s: float) -> str:
    pattern = "%H:%M:%S" if length_s <= 3600 else "%H:%M" if length_s <= 43_200 else "%d %b %H:%M"
    return time.strftime(pattern, time.localtime(wall_ns / 1e9))
