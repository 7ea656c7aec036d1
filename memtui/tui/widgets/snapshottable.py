"""A table of a snapshot with a marked row, that opens."""

from __future__ import annotations

from typing import Optional

from textual import events

from memtui.tui import roles
from memtui.tui.look import Look
from memtui.tui.messages import SnapshotTurned
from memtui.tui.rows import EMPTY, Line, Row, clip

from .lines import Lines
from .snapshotrows import Rows, fitting

WHEEL_LINES = 3
#: A line of title and one of heads.
_TITLES = 2


class SnapshotTable(Lines):
    """Shows rows; while it is open, what there is to say of the marked one stands below it."""

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self.rows: Optional[Rows] = None
        self.title, self.right = "", ""
        self.waiting = ""  # in place of rows
        self.first = self.marked = 0
        self.open = False

    def show(self, title: str, right: str, rows: Optional[Rows], waiting: str, *, anew: bool) -> None:
        """Other rows; `anew` where they are of something else, and are looked at from the top."""
        self.title, self.right, self.rows, self.waiting = title, right, rows, waiting
        if anew:
            self.first, self.marked, self.open = 0, 0, False
        self.mark(self.marked)

    def mark(self, place: int) -> None:
        """Marks a row, the nearest there is."""
        self.marked = max(0, min(place, (len(self.rows) if self.rows is not None else 0) - 1))

    def page(self, direction: int) -> None:
        """Moves the mark by what fits."""
        self.mark(self.marked + direction * max(1, self.size.height - _TITLES))

    def on_click(self, event: events.Click) -> None:
        """A row is pointed at."""
        place = self.first + event.y - _TITLES
        if self.rows is not None and event.y >= _TITLES and not self.open and place < len(self.rows):
            self.mark(place)
            self.post_message(SnapshotTurned())

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel moves the mark."""
        self._wheel(event, -WHEEL_LINES)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel moves the mark."""
        self._wheel(event, WHEEL_LINES)

    def _wheel(self, event: events.MouseEvent, lines: int) -> None:
        event.stop()
        self.mark(self.marked + lines)
        self.post_message(SnapshotTurned())

    def source(self) -> object:
        """Which rows, and the place in them."""
        return id(self.rows), self.title, self.right, self.waiting, self.marked, self.open, self.look

    def draw(self, width: int, height: int) -> list[Row]:
        """The title, the heads, and the rows around the mark."""
        rows = [self._title(width)]
        table = self.rows
        if table is None or not len(table):
            text = self.waiting if table is None else table.nothing
            return [*rows, EMPTY, Line().add(f"   {self.look.text(text)}", roles.DIM).row(width)]
        rows.append(table.head(width, self.look))
        room = max(1, height - len(rows))
        details = fitting(table.details(self.marked), room - 1) if self.open else []
        seen = room - len(details)
        self.first = max(0, min(self.first, self.marked, len(table) - seen), self.marked - seen + 1)
        for place in range(self.first, min(len(table), self.first + seen)):
            rows.append(table.row(place, place == self.marked, width, self.look))
            if place == self.marked:
                rows += [self._detail(role, text, width) for role, text in details]
        return rows

    def _title(self, width: int) -> Row:
        line = Line().add(" ", " ").add(f" {self.look.text(self.title)} ", roles.ACTIVE)
        count = 0 if self.rows is None else len(self.rows)
        right = self.look.text(self.right)
        if count:
            right = f"{right}   {self.marked + 1:,} of {count:,}".strip()
        room = width - line.width - 4
        if right and room >= 8:
            right = clip(right, room, self.look.glyphs.ellipsis)
            line.pad(width - 1 - len(right)).add(right, roles.DIM)
        return line.row(width)

    def _detail(self, role: str, text: str, width: int) -> Row:
        shown = clip(self.look.text(text), max(1, width - 8), self.look.glyphs.ellipsis)
        return Line().add("       ", " ").add(shown, role).row(width)
