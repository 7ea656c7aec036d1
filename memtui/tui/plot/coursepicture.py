"""The picture of a snapshot's timeline: what was allocated as an area, what was reserved as a line, and marks."""

from __future__ import annotations

from typing import Optional

from memtui.analysis import units
from memtui.snapshots.answers import Overview
from memtui.tui import roles
from memtui.tui.look import Look
from memtui.tui.rows import Line, Row, overlay

from .cells import Cell, column, dots, ground, row_of
from .coursewindow import CourseWindow
from .frame import GUTTER, Label, value_axis, with_cursor, with_labels
from .scale import Scale, round_top, scale

#: Between two labels on the axis of time.
LABEL_EVERY = 16
#: A request that failed, and the marked instant, in the topmost row.
FAILED, MARKED = "!", "m"


def course_scale(overview: Overview, height: int, *, fit: bool) -> Scale:
    """The scale of all of it, which stays when a part is looked at; `fit` to what was allocated, else reserved too."""
    return scale(round_top(max(1, overview.opened.course.peak_bytes) if fit else overview.top_bytes), height)


def area(
    overview: Overview, window: CourseWindow, cells: int, picture_scale: Scale, height: int, look: Look
) -> list[Row]:
    """The picture with its axis of bytes, without marks."""
    top, end = picture_scale.top, window.start + window.length
    allocated = overview.allocated.columns(window.start, end, 2 * cells)
    reserved = overview.reserved.columns(window.start, end, cells)
    behind, before = ground(height, []), None
    texts, styles = [], []
    for place in range(cells):
        # A damaged file's figures may be below nothing.
        left, right = ((max(0, low), max(0, high)) for low, high in allocated[2 * place : 2 * place + 2])
        row = row_of(max(0, reserved[place][1]), top, height)
        text, role = column(Cell(left, right, row, before, None, None), behind, top, height, look.glyphs)
        texts.append(text)
        styles.append(role)
        before = row
    rows = [Row("".join(text), "".join(role)) for text, role in zip(zip(*texts), zip(*styles))]
    if before is not None and before >= 0:
        rows = with_labels(rows, [Label(before, "reserved", roles.RESERVED)], look)
    axis = value_axis(picture_scale, height, look.glyphs)
    return [Row(left.text + row.text, left.roles + row.roles) for left, row in zip(axis, rows)]


def marked(
    rows: list[Row], overview: Overview, window: CourseWindow, cells: int, top: int, mark: Optional[int], look: Look
) -> list[Row]:
    """The picture with the cursor, the peak, requests that failed, and a marked instant, where they are in sight."""
    height = len(rows)
    place = window.column_of(window.cursor, cells)
    shown = rows if place is None else with_cursor(rows, GUTTER + place, look.glyphs)
    shown = _with_peak(list(shown), overview, window, cells, top, look)
    flags = [(instant, FAILED, roles.BAD) for instant in overview.failures]
    if mark is not None:
        flags.append((mark, MARKED, roles.KEY))
    for instant, character, role in flags:
        column_at = window.column_of(instant, cells)
        if column_at is not None and height:
            shown[0] = overlay(shown[0], GUTTER + column_at, character, role)
    return shown


def _with_peak(
    rows: list[Row], overview: Overview, window: CourseWindow, cells: int, top: int, look: Look
) -> list[Row]:
    course, height = overview.opened.course, len(rows)
    place = window.column_of(course.peak, cells)
    if place is None or course.instants == 1:
        return rows
    crest = (dots(max(0, course.peak_bytes), top, height * 8) + 7) // 8
    row = max(0, height - 1 - crest)
    arrow = "▼" if look.glyphs.braille else "v"
    start, text = GUTTER + place, f"{arrow} peak"
    if start + len(text) > GUTTER + cells:
        start, text = start + 1 - len(text), f"peak {arrow}"
    if set(rows[row].roles[start : start + len(text)]) - {" ", roles.CURSOR}:
        start, text = GUTTER + place, arrow
    rows[row] = overlay(rows[row], start, text, roles.BRIGHT)
    return rows


def time_axis(overview: Overview, window: CourseWindow, cells: int, scale_unit: str, look: Look) -> Row:
    """When the columns begin, since the first event; their events' numbers where there are no times."""
    unit = f"0 {scale_unit}".rjust(GUTTER - 1)
    row = Line().add(unit, roles.DIM).add(look.glyphs.corner, roles.AXIS).row(GUTTER + cells)
    if overview.opened.course.instants == 1:
        return row
    taken = [False] * cells

    def put(start: int, text: str, role: str) -> None:
        nonlocal row
        start = max(1, min(start, cells - len(text)))
        around = slice(max(0, start - 1), start + len(text) + 1)
        if start + len(text) <= cells and not any(taken[around]):
            taken[around] = [True] * len(taken[around])
            row = overlay(row, GUTTER + start, text, role)

    at = window.column_of(window.cursor, cells)
    if at is not None:
        text = _when(overview, window.cursor)
        put(at - len(text) // 2, text, roles.BRIGHT)
    end = _when(overview, window.start + window.length - 1)
    put(cells - len(end), end, roles.DIM)
    count = max(1, cells // LABEL_EVERY)
    for index in range(count):
        place = index * cells // count
        put(place, _when(overview, window.span(place, cells)[0]), roles.DIM)
    return row


def _when(overview: Overview, instant: int) -> str:
    time_us = overview.opened.course.time_us(instant)
    return f"{instant:,}" if time_us is None else units.moment(time_us)
