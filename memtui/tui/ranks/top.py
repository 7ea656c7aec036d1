"""The lines above the ranks: what is watched, all of them in a line, and what is wrong between them."""

from __future__ import annotations

from typing import Optional

from memtui.ranks.view import RanksView
from memtui.tui import roles
from memtui.tui.look import Look
from memtui.tui.rows import Line, Row, cells, shorten, words
from memtui.tui.widgets.header import MARKS, PLAIN_MARKS
from memtui.tui.widgets.lines import Lines


class RanksTop(Lines):
    """Two lines and one for each finding, as many as the screen gives."""

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self.view: Optional[RanksView] = None
        self.message = ""
        self.replay = ""  # of a recording, the time of day
        self.age = ""  # of the figures, where they are not of now

    def wanted(self, width: int, most: int) -> int:
        """Lines that all findings take, `most` of them at most; one for that nothing was found."""
        if self.view is None:
            return 2
        lines = sum(min(2, len(_wrapped(finding.text, width - 6))) for finding in self.view.findings)
        return 1 + min(most, max(1, lines))

    def source(self) -> object:
        """What the lines say."""
        view = self.view
        said = None if view is None else (view.program, view.hosts, len(view.rows), view.summary, view.findings)
        return said, self.message, self.replay, self.age

    def draw(self, width: int, height: int) -> list[Row]:
        """Who, the summary, and findings with the worst first."""
        view = self.view
        if view is None:
            return []
        rows = [self._who(view, width)]
        marks = MARKS if self.look.glyphs.braille else PLAIN_MARKS
        if self.message:
            rows.append(
                Line().add("     ", " ").add(shorten(self.look.text(self.message), width - 6), roles.TITLE).row(width)
            )
        if not view.findings and height > len(rows):
            text, level, role = "nothing is out of the ordinary between the ranks", "good", roles.GOOD
            if view.apart and len(view.rows) == 1:
                text = "nothing is out of the ordinary"
            elif view.apart:
                text, level, role = "these are not one training: nothing is compared", "unknown", roles.TEXT
            line = Line().add(" ", " ").add(f" {marks[level]} ", roles.CHIPS[level]).add(f" {text}", role)
            rows.append(line.row(width))
        for place, finding in enumerate(view.findings):
            room = height - len(rows)
            if room <= 0:
                break
            left = len(view.findings) - place
            pieces = _wrapped(self.look.text(finding.text), width - 6)
            lines = 2 if room >= left + 1 and len(pieces) > 1 else 1
            chip = Line().add(" ", " ").add(f" {marks[finding.level]} ", roles.CHIPS[finding.level]).add(" ", " ")
            role = roles.TEXT if finding.level == "unknown" else roles.LEVELS[finding.level]
            if lines == 1:
                chip.add(shorten(self.look.text(finding.text), width - 6, self.look.glyphs.ellipsis), role)
                rows.append(chip.row(width))
                continue
            rows.append(chip.add(pieces[0], role).row(width))
            rest = self.look.text(finding.text)[len(pieces[0]) :].strip()
            rows.append(Line().pad(5).add(shorten(rest, width - 6, self.look.glyphs.ellipsis), role).row(width))
        return rows

    def _who(self, view: RanksView, width: int) -> Row:
        dot = f" {self.look.glyphs.dot} "
        count = f"{len(view.rows):,} ranks" if len(view.rows) > 1 else "1 rank"
        if view.apart:
            count = f"{len(view.rows):,} processes" if len(view.rows) > 1 else "1 process"
        where = f" on {', '.join(view.hosts)}" if view.hosts else ""
        if len(view.hosts) > 2:
            where = f" on {len(view.hosts)} hosts"
        right = shorten(self.look.text(view.summary), width - 24, self.look.glyphs.ellipsis)
        line = Line().add(" ", " ")
        if self.replay:
            line.add(f" REPLAY {self.replay} ", roles.CHIPS["unknown"]).add(" ", " ")
        room = width - line.width - len(cells(right)) - 2
        tail = dot + count + (dot + self.age if self.age else "")
        if len("memtui" + dot + tail + where) + 16 <= room:
            tail = dot + count + where + (dot + self.age if self.age else "")
        front = "memtui" + dot if len("memtui" + dot + tail) + 14 <= room else ""
        program = words(
            self.look.text(view.program), max(0, room - len(front) - len(tail) - 1), self.look.glyphs.ellipsis
        )
        if len(program) < 4:
            program, tail = "", count
        line.add(front, roles.TITLE).add(program, roles.BRIGHT).add(tail, roles.DIM)
        return line.pad(width - len(cells(right)) - 1).add(right, roles.TEXT).row(width)


def _wrapped(text: str, width: int) -> list[str]:
    """Pieces of whole words."""
    pieces, current = [], ""
    for word in text.split(" "):
        longer = f"{current} {word}" if current else word
        if len(cells(longer)) > width and current:
            pieces.append(current)
            current = word
        else:
            current = longer
    return [*pieces, current]
