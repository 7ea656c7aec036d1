"""The picture of a recorded step: the stacked area, its axes, the phases below it, the marks of peak and cursor."""

from __future__ import annotations

from collections.abc import Sequence

from memtui.analysis import units
from memtui.analysis.bar import band
from memtui.analysis.recorded import Column, StepTimeline
from memtui.tui import roles
from memtui.tui.look import Look
from memtui.tui.rows import Line, Row, overlay

from .cells import dots
from .frame import GUTTER, value_axis
from .scale import Scale, round_top, scale
from .stack import stacked
from .stepwindow import StepWindow

#: Between two labels on the axis of time.
LABEL_EVERY = 16


def step_scale(timeline: StepTimeline, rows: int) -> Scale:
    """The scale of the whole step, with a row above its peak; it stays when a part of the step is looked at."""
    peak = max(0, timeline.totals[timeline.peak])
    return scale(round_top(peak * rows * 20 // (21 * max(1, rows - 1))), rows)  # rounding up adds a twentieth itself


def area(timeline: StepTimeline, columns: Sequence[Column], height: int, look: Look) -> list[Row]:
    """The stacked area with its axis of bytes, without marks."""
    picture_scale = step_scale(timeline, height)
    tenants = [(name, band(name, 0).letter) for name in timeline.categories]
    rows = stacked([column.composition for column in columns], tenants, height, picture_scale.top, look)
    axis = value_axis(picture_scale, height, look.glyphs)
    return [Row(left.text + row.text, left.roles + row.roles) for left, row in zip(axis, rows)]


def marked(
    rows: list[Row], timeline: StepTimeline, columns: Sequence[Column], place: int | None, peak: int | None, look: Look
) -> list[Row]:
    """The area with a mark above the peak's column, and a line in the cursor's `place`, where they are in sight."""
    rows, height = list(rows), len(rows)
    top = step_scale(timeline, height).top
    if place is not None and place != peak:
        rows = [overlay(row, GUTTER + place, look.glyphs.cursor, roles.CURSOR) for row in rows]
    if peak is not None:
        tip = (dots(sum(columns[peak].composition), top, height * 8) + 7) // 8
        row = max(0, height - 1 - tip)
        arrow = "▼" if look.glyphs.braille else "v"
        text = f"{arrow} peak {units.size(timeline.totals[timeline.peak])}"
        start = GUTTER + peak
        if start + len(text) > len(rows[row].text):
            text = f"peak {units.size(timeline.totals[timeline.peak])} {arrow}"
            start = GUTTER + peak + 1 - len(text)
        if tip >= height or set(rows[row].roles[start : start + len(text)]) - {" ", roles.CURSOR}:
            text, start = arrow, GUTTER + peak
        rows[row] = overlay(rows[row], start, text, roles.BRIGHT)
    return rows


def time_axis(
    timeline: StepTimeline, window: StepWindow, cells: int, place: int | None, scale_unit: str, look: Look
) -> Row:
    """When the columns begin, and when the instant in column `place` is."""
    unit = f"0 {scale_unit}".rjust(GUTTER - 1)
    row = Line().add(unit, roles.DIM).add(look.glyphs.corner, roles.AXIS).row(GUTTER + cells)
    taken = [False] * (cells + 1)

    def put(start: int, text: str, role: str) -> None:
        nonlocal row
        start = max(1, min(start, cells - len(text)))
        span = slice(max(0, start - 1), start + len(text) + 1)
        if not any(taken[span]) and start + len(text) <= cells:
            taken[span] = [True] * len(taken[span])
            row = overlay(row, GUTTER + start, text, role)

    if place is not None:
        text = units.moment(timeline.time_us(window.instant(timeline)))
        put(place - len(text) // 2, text, roles.BRIGHT)
    end = units.moment(window.column_time_us(timeline, cells, cells))
    put(cells - len(end), end, roles.DIM)
    count = max(1, cells // LABEL_EVERY)
    for index in range(count):
        column = index * cells // count
        put(column, units.moment(window.column_time_us(timeline, column, cells)), roles.DIM)
    return row


def phase_strip(timeline: StepTimeline, edges: Sequence[int], look: Look) -> Row:
    """The phases below the area, by name where there is room; one that begins within a column is its phase."""
    line = Line().add(" phase ", roles.DIM)
    rule = "─" if look.glyphs.braille else "-"
    runs: list[tuple[str, int]] = []
    for first, end in zip(edges, edges[1:]):
        # The instants of a column are those after its events: event n makes instant n + 1.
        name = timeline.phase_starting(first - 1, end - 1) or timeline.phase(max(first, end - 1))
        if runs and runs[-1][0] == name:
            runs[-1] = (name, runs[-1][1] + 1)
        else:
            runs.append((name, 1))
    lettered = False  # the run before ends without a space
    for name, length in runs:
        role = roles.phase(name)
        shown = (" " if lettered else "") + look.text(name if name else "?")
        lettered = len(shown) + 2 > length
        if not lettered:
            line.add(shown + " ", role).add(rule * (length - len(shown) - 2) + " ", role)
        else:
            line.add((look.glyphs.phase(name) if name else "?") * length, role)
    return line.row(GUTTER + len(edges) - 1)
