"""A snapshot's answers and its timeline, with a cursor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from textual import events

from memtui.analysis import units
from memtui.analysis.text import clean
from memtui.snapshots.answers import Answer, Mark, Overview
from memtui.snapshots.moments import place_words
from memtui.snapshots.queries import OutOfMemory
from memtui.tui import roles
from memtui.tui.look import Look
from memtui.tui.messages import SnapshotTurned
from memtui.tui.plot import coursepicture
from memtui.tui.plot.coursewindow import CourseWindow, highest
from memtui.tui.plot.frame import GUTTER
from memtui.tui.rows import EMPTY, Line, Row, cells, clip, shorten

from .lines import Lines

#: Two lines that answer, and one of the cursor.
ANSWER_LINES = 3
READING = "reading…"


class Course(Lines):
    """Draws a device's timeline below what matters most of it; without an overview that it is being read."""

    def __init__(self, look: Look, name: str, *, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self.name_read = name  # until it is open
        self.overview: Optional[Overview] = None
        self.window = CourseWindow.whole(1, 0)
        self.mark: Optional[Mark] = None
        self.answer: Optional[Answer] = None
        self.said = ""
        self.fit = False  # the scale, to what was allocated
        self._picture: tuple[object, list[Row]] = (None, [])

    def show(self, overview: Overview, number: int, mark: Optional[Mark]) -> None:
        """Another device, from an instant."""
        self.overview, self.mark, self.answer = overview, mark, None
        self.window = CourseWindow.whole(overview.last + 1, number)

    @property
    def cells(self) -> int:
        """Columns of the picture."""
        return max(1, self.size.width - GUTTER)

    def move(self, columns: int) -> None:
        """Moves the cursor by columns."""
        if self.overview is not None:
            self.window = self.window.moved(columns, self.cells, self.overview.opened.course.allocated_bytes)

    def on_click(self, event: events.Click) -> None:
        """A column is pointed at: the most in it."""
        place = event.x - GUTTER
        if self.overview is not None and event.y >= ANSWER_LINES and 0 <= place < self.cells:
            first, end = self.window.span(place, self.cells)
            figures = self.overview.opened.course.allocated_bytes
            self.window = self.window.at(highest(figures, first, end))
            self.post_message(SnapshotTurned())

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel zooms in."""
        self._wheel(event, -1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel zooms out."""
        self._wheel(event, 1)

    def _wheel(self, event: events.MouseEvent, steps: int) -> None:
        event.stop()
        self.window = self.window.zoomed(steps)
        self.post_message(SnapshotTurned())

    def source(self) -> object:
        """What is shown of which snapshot."""
        return self.overview, self.window, self.mark, self.answer, self.said, self.fit, self.look

    def draw(self, width: int, height: int) -> list[Row]:
        """The answers, the cursor's figures, the picture and its axis of time."""
        if self.overview is None:
            name = shorten(self.look.text(self.name_read), max(10, width - 12), self.look.glyphs.ellipsis)
            return [Line().add(f" {name} ", roles.BRIGHT).add(self.look.text(READING), roles.DIM).row(width)]
        rows = self._answers(self.overview, width)[: max(1, height)]
        room = height - len(rows)
        return rows + (self._chart(self.overview, room) if room >= 4 else [EMPTY] * room)

    def _answers(self, overview: Overview, width: int) -> list[Row]:
        rows = []
        for sentences, role in (
            (overview.peak, roles.BRIGHT),
            (overview.below, roles.BAD if overview.failures else roles.TEXT),
        ):
            rows.append(Line().add(" ", " ").add(self._longest(sentences, width - 2), role).row(width))
        return [*rows, self._cursor(overview, width)]

    def _cursor(self, overview: Overview, width: int) -> Row:
        """What there was at the cursor; on the right which file, or what was last said."""
        course, number = overview.opened.course, self.window.cursor
        where = place_words(number, course)
        allocated, reserved = course.allocated_bytes[number], course.reserved_bytes[number]
        texts = [f"at {where}: {units.size(allocated)} allocated of {units.size(reserved)}"]
        role = roles.KEY
        answer = self.answer
        if answer is not None and answer.at.number == number and answer.failed is not None:
            texts, role = _failed_words(answer.failed), roles.BAD
        line = Line().add(" ", " ").add(self._longest(texts, width - 2), role)
        right = self.said or ("" if answer is not None and answer.at.number == number else READING) or overview.name
        room = width - line.width - 4
        if self.said and room < len(self.said):
            line, room = Line(), width - 2
        if room >= 10:
            shown = clip(self.look.text(right), room, self.look.glyphs.ellipsis)
            line.pad(width - 1 - len(cells(shown))).add(shown, roles.NOTE if self.said else roles.DIM)
        return line.row(width)

    def _chart(self, overview: Overview, height: int) -> list[Row]:
        window, across, rows = self.window, self.cells, height - 1
        used = coursepicture.course_scale(overview, rows, fit=self.fit)
        asked = (id(overview), window.start, window.length, across, rows, used, self.look)
        if asked != self._picture[0]:
            self._picture = (asked, coursepicture.area(overview, window, across, used, rows, self.look))
        mark = self.mark.number if self.mark is not None and self.mark.opened is overview.opened else None
        shown = coursepicture.marked(self._picture[1], overview, window, across, used.top, mark, self.look)
        return [*shown, coursepicture.time_axis(overview, window, across, used.unit, self.look)]

    def _longest(self, sentences: Sequence[str], width: int) -> str:
        """The first that fits, else the last one shortened."""
        texts = [self.look.text(each) for each in sentences]
        fitting = [each for each in texts if len(cells(each)) <= width]
        return fitting[0] if fitting else shorten(texts[-1], width, self.look.glyphs.ellipsis)


def _failed_words(failed: OutOfMemory) -> list[str]:
    event, asked = f"out of memory at event {failed.event:,}", f"{units.size(failed.requested_bytes)} asked for"
    free, largest = units.size(failed.device_free_bytes), units.size(failed.largest_free_bytes)
    whole = f"{event}: {asked}, {free} free on the device, largest free block {largest}"
    return [
        f"{whole}; {clean(failed.stack.site, 70)}",
        whole,
        f"{event}: {asked}, {free} free, largest block {largest}",
        f"out of memory: {asked}, {free} free, largest block {largest}",
    ]
