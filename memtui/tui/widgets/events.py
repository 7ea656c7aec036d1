"""What happened, newest first or as a list to scroll through."""

from __future__ import annotations

from memtui.analysis.view import EventLine
from memtui.tui import roles
from memtui.tui.look import Look
from memtui.tui.rows import Line, Row, shorten

from .evidence import LABEL_WIDTH
from .lines import Lines


class Events(Lines):
    """The newest events, the newest on top; with `full` the whole screen and a place to scroll to."""

    def __init__(self, look: Look, *, full: bool = False, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self.full = full
        self.events: tuple[EventLine, ...] = ()
        self.absent = ""  # why there are none but those that are shown
        self.offset_lines = 0

    def scroll_events(self, lines: int) -> None:
        """Moves the list down by `lines`, or up."""
        self.offset_lines = max(0, min(self.offset_lines + lines, len(self.events) - max(1, self.size.height - 2)))
        self.offset_lines = max(0, self.offset_lines)

    def source(self) -> object:
        """The events, and where the list is."""
        return self.events, self.offset_lines, self.absent

    def draw(self, width: int, height: int) -> list[Row]:
        """One line an event: time, text in the colour of its level."""
        if self.full:
            return self._page(width, height)
        newest = sorted(self.events, key=lambda event: -event.time_ns)[:height]
        rows = []
        for place, event in enumerate(newest):
            line = Line().add(" ", " ").add(("events" if not place else "").ljust(LABEL_WIDTH), roles.DIM)
            rows.append(self._event(line, event, width))
        if not newest:
            line = Line().add(" ", " ").add("events".ljust(LABEL_WIDTH), roles.DIM)
            rows.append(line.add(self.look.glyphs.dash, roles.UNKNOWN).row(width))
        return rows

    def _page(self, width: int, height: int) -> list[Row]:
        newest = sorted(self.events, key=lambda event: -event.time_ns)
        room = height - 2 - 2 * bool(self.absent and newest)
        shown = newest[self.offset_lines : self.offset_lines + room]
        title = Line().add(f" {len(newest):,} events, the newest first", roles.DIM)
        if len(newest) > len(shown):
            first = self.offset_lines + 1
            title.add(f"   {first:,} to {first + len(shown) - 1:,}", roles.DIM)
        rows = [title.row(width), Line().row(width)]
        rows.extend(self._event(Line().add(" ", " "), event, width) for event in shown)
        if self.absent:
            rows += [Line().row(width)] if newest else []
            text = shorten(self.look.text(self.absent), width - 2, self.look.glyphs.ellipsis)
            rows.append(Line().add(f" {text}", roles.TEXT).row(width))
        elif not newest:
            rows.append(Line().add(" nothing out of the ordinary has happened yet", roles.TEXT).row(width))
        return rows

    def _event(self, line: Line, event: EventLine, width: int) -> Row:
        marks = {"good": " ", "warning": "!", "bad": "x", "unknown": " "}
        line.add(event.time_text + " ", roles.DIM).add(marks[event.level], roles.LEVELS[event.level]).add(" ", " ")
        role = roles.TEXT if event.level in ("good", "unknown") else roles.LEVELS[event.level]
        text = shorten(self.look.text(event.text), width - line.width - 1, self.look.glyphs.ellipsis)
        return line.add(text, role).row(width)
