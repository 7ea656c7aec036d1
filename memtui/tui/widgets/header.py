"""The top lines: what is watched, the answer, and what is out of the ordinary."""

from __future__ import annotations

from memtui.analysis import units
from memtui.analysis.view import View
from memtui.tui import roles
from memtui.tui.look import Look
from memtui.tui.rows import Line, Row, cells, shorten, words

from .lines import Lines

MARKS = {"good": "✓", "warning": "!", "bad": "✗", "unknown": "?"}
PLAIN_MARKS = {"good": "+", "warning": "!", "bad": "x", "unknown": "?"}
_STATE_LEVELS = {
    "starting": "unknown",
    "live": "good",
    "paused": "warning",
    "silent": "warning",
    "lost": "bad",
    "ended": "unknown",
}


class Header(Lines):
    """Three lines; the third is empty in an ordinary moment."""

    HEIGHT = 3

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self.view: View | None = None
        self.replay = False
        self.status: tuple[str, str] | None = None  # (role, text): a readout or a message, before the state

    def extra(self, width: int) -> int:
        """Lines beyond the usual three: one more for the reason of an end that is too long for the rest."""
        view = self.view
        if view is None or view.state != "ended" or width < 2:
            return 0
        return int(len(cells(view.verdict.text)) > width - 6 and bool(view.verdict.peak))

    def source(self) -> object:
        """What the lines say."""
        view = self.view
        if view is None:
            return None
        full = next((row.percent for row in view.rows if row.percent is not None), None)
        who = (view.program, view.pid, view.place, view.device, view.notices)
        said = (*who, view.state, view.state_text, view.verdict)
        return said, full, self.status, self.replay

    def draw(self, width: int, height: int) -> list[Row]:
        """Who, the verdict, the state; the peak beside the verdict or below it."""
        view = self.view
        if view is None:
            return []
        verdict, peak, rest = self._verdict(view, width)
        rows = [self._who(view, width), verdict, self._state(view, width, "" if height > 3 else peak, rest)]
        if height > 3:
            said = shorten(peak, width - 6, self.look.glyphs.ellipsis)
            rows.append(Line().pad(5).add(said, roles.TEXT).row(width))
        return rows

    def _who(self, view: View, width: int) -> Row:
        """The program on the left, the device in the middle, the step on the right; the least goes first."""
        text, dot = self.look.text, f" {self.look.glyphs.dot} "
        place, device = text(view.place), text(view.device)
        if width < 60:
            place = place.split(dot)[0]
        right = len(cells(place)) + 2
        room = width - 1 - right - len(device) - 4
        tail = dot + f"pid {view.pid}" if view.pid and room >= 34 else ""
        name = f"{device} {text(view.device_name)}".rstrip()
        program = words(
            text(view.program) or self.look.glyphs.dash, max(8, room - len(tail)), self.look.glyphs.ellipsis
        )
        left = len(cells(program)) + len(tail)
        if left + len(cells(name)) - len(device) + 2 <= room:
            device = name
            room -= len(cells(name)) - len(text(view.device))
        where = dot + "@".join(part for part in (view.user, view.host) if part) if view.user or view.host else ""
        if left + len(cells(where)) + 4 <= room:
            tail += where
            left += len(cells(where))
        front = "memtui" + dot if left + 12 <= room else ""
        line = Line().add(" ", " ").add(front, roles.TITLE).add(program, roles.BRIGHT).add(tail, roles.DIM)
        gap = max(2, (width - right - line.width - len(cells(device))) // 2)
        line.add(" " * gap, " ").add(device, roles.TEXT)
        return line.pad(width + 1 - right).add(place, roles.TEXT).row(width)

    def _verdict(self, view: View, width: int) -> tuple[Row, str, str]:
        """The answer; and what has to go to the next line: the peak, the rest of the answer."""
        verdict = view.verdict
        marks = MARKS if self.look.glyphs.braille else PLAIN_MARKS
        line = Line().add(" ", " ").add(f" {marks[verdict.level]} ", roles.CHIPS[verdict.level]).add(" ", " ")
        peak, text = self.look.text(verdict.peak), self.look.text(verdict.text)
        used = next((row for row in view.rows if row.percent is not None), None)
        if used is not None and used.percent is not None:
            full = f"{used.percent:.0f} % full"
            if line.width + len(full) + 3 + len(cells(text)) <= width - 1:
                line.add(full, roles.BRIGHT).add(f" {self.look.glyphs.dot} ", roles.FAINT)
        role = roles.TEXT if verdict.level == "unknown" else roles.LEVELS[verdict.level]
        rest = ""
        room = width - line.width - 1
        if view.state_text == verdict.text and len(cells(text)) > room > 20:
            cut = text.rfind(" ", 0, room)
            text, rest = text[:cut], text[cut + 1 :]
        line.add(shorten(text, room, self.look.glyphs.ellipsis), role)
        if peak and line.width + len(cells(peak)) + 4 <= width:
            line.pad(width - len(cells(peak)) - 1).add(peak, roles.TEXT)
            peak = ""
        return line.row(width), peak, rest

    def _state(self, view: View, width: int, peak: str, rest: str) -> Row:
        line = Line().add(" ", " ")
        if self.replay:
            line.add(" REPLAY ", roles.CHIPS["unknown"]).add(" ", " ")
        if view.state != "live" and not (self.replay and view.state in ("silent", "lost")):
            level = _STATE_LEVELS[view.state]
            if view.state == "ended" and view.verdict.level == "bad":
                level = "bad"
            line.add(f" {view.state.upper()} ", roles.CHIPS[level]).add(" ", " ")
        role, text = roles.TEXT, rest if view.state_text == view.verdict.text else view.state_text
        if self.status is not None:
            role, text = self.status
        elif not text and view.notices and view.state == "live" and not peak:
            role, text = roles.NOTE, f"note: {view.notices[0]}"
        line.add(shorten(self.look.text(text), width - line.width - 1, self.look.glyphs.ellipsis), role)
        if peak and line.width == 1:  # below the verdict's text, not below its mark
            line.pad(5).add(shorten(peak, width - 6, self.look.glyphs.ellipsis), roles.TEXT)
        elif peak and not text:
            line.add(shorten(peak, width - line.width - 1, self.look.glyphs.ellipsis), roles.TEXT)
        elif peak and line.width + len(cells(peak)) + 2 <= width:
            line.pad(width - len(cells(peak)) - 1).add(peak, roles.TEXT)
        return line.row(width)


def elapsed(nanoseconds: int) -> str:
    """A pause or a distance to the cursor, in whole seconds so that it does not dance."""
    seconds = max(0, nanoseconds) // 1_000_000_000
    return f"{seconds} s" if seconds < 60 else units.duration(seconds * 1_000_000_000)
