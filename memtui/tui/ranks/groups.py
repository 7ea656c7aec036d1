"""Groups of ranks: a line each, with a cell for each rank or for a few of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Optional

from memtui.analysis import units
from memtui.analysis.view import Level
from memtui.prometheus.fleet import Group
from memtui.ranks.row import RankRow
from memtui.tui import roles
from memtui.tui.look import Look
from memtui.tui.rows import Line, Row, cells, clip, shorten
from memtui.tui.widgets.header import MARKS, PLAIN_MARKS
from memtui.tui.widgets.lines import Lines

_BLOCKS, _PLAIN = "▁▂▃▄▅▆▇█", "._-~=+*#"
#: In place of how full it is.
_STATES = {"silent": "×", "lost": "?", "stopped": "×", "ended": "-"}
_LEAST_STRIP, _MOST_STRIP = 8, 64
_LONGEST_NAME = 34


class GroupsTable(Lines):
    """The groups in the order given; the chosen one is always in view."""

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self.groups: Sequence[Group] = ()
        self.by = "host"
        self.chosen = 0
        self._first = 0

    @property
    def first(self) -> int:
        """The place of the first group in view."""
        return self._first

    def per_page(self, height: int) -> int:
        """How many groups are in view."""
        return max(1, height - 1)

    def draw(self, width: int, height: int) -> list[Row]:
        """A head, and a line for each group."""
        if not self.groups or height < 2:
            return []
        page = self.per_page(height)
        self.chosen = max(0, min(self.chosen, len(self.groups) - 1))
        self._first = self.chosen // page * page
        shown = self.groups[self._first : self._first + page]
        names = max(len(self.by), *(len(cells(self.look.text(group.name))) for group in self.groups))
        name = min(names, _LONGEST_NAME, max(10, width // 3))
        peaks = [row.peak.value for group in self.groups for row in group.rows if row.peak.value is not None]
        unit = units.unit_of(max(peaks, default=0))
        wide = width >= 100
        fixed = 4 + name + 7 + 2 + 7 + (18 if wide else 0) + 9 + (18 if wide else 9)
        largest = max(len(group.rows) for group in self.groups)
        strip = max(_LEAST_STRIP, min(_MOST_STRIP, largest, width - fixed - (24 if width >= 150 else 1)))
        rows = [self._head(name, strip, unit, wide, width)]
        for place, group in enumerate(shown, self._first):
            rows.append(self._line(group, place == self.chosen, name, strip, unit, wide, width))
        return rows

    def _head(self, name: int, strip: int, unit: str, wide: bool, width: int) -> Row:
        line = Line().add("    " + self.by.ljust(name) + "  ranks  ", roles.DIM)
        label = "how full each is" if strip >= len("how full each is") else "how full"
        line.add(label.ljust(strip) + "fullest".rjust(9), roles.DIM)
        if wide:
            line.add(f"peak {unit}".rjust(16), roles.DIM)
        line.add(f"room {unit}".rjust(9) if wide else "room".rjust(9), roles.DIM)
        line.add("steps".rjust(18 if wide else 9), roles.DIM)
        return line.row(width)

    def _line(self, group: Group, chosen: bool, name: int, strip: int, unit: str, wide: bool, width: int) -> Row:
        look, line = self.look, Line()
        level = _level(group)
        marks = MARKS if look.glyphs.braille else PLAIN_MARKS
        line.add(look.glyphs.marker if chosen else " ", roles.SELECTED).add(" ", " ")
        line.add(marks[level] if level != "good" else " ", roles.LEVELS[level]).add(" ", " ")
        label = clip(look.text(group.name), name, look.glyphs.ellipsis)
        line.add(label + " " * (name - len(cells(label))), roles.SELECTED if chosen else roles.BRIGHT)
        line.add(f"{len(group.rows):,}".rjust(7), roles.TEXT).add("  ", " ")
        self._add_ranks(line, group.rows, strip)
        full = max((row.percent for row in group.rows if row.percent is not None), default=None)
        line.add(look.text(units.UNKNOWN if full is None else f"{full:.0f} %").rjust(9), roles.TEXT)
        if wide:
            line.add(look.text(_span([row.peak.value for row in group.rows], unit)).rjust(16), roles.TEXT)
        room = min((row.headroom.value for row in group.rows if row.headroom.value is not None), default=None)
        low = [row.level for row in group.rows if row.level in ("bad", "warning")]
        role = roles.LEVELS["bad" if "bad" in low else "warning"] if low else roles.PREDICTED
        line.add(look.text(units.UNKNOWN if room is None else units.number(room, unit)).rjust(9), role)
        line.add(look.text(_steps(group.rows, wide)).rjust(18 if wide else 9), roles.TEXT)
        room_left = width - line.width - 3
        if group.findings and room_left >= 12:
            text = shorten(look.text(_short(group)), room_left, look.glyphs.ellipsis)
            line.add("  ", " ").add(text, roles.LEVELS[level] if level != "good" else roles.DIM)
        return line.row(width)

    def _add_ranks(self, line: Line, rows: Sequence[RankRow], width: int) -> None:
        """A cell for a rank; of several that share one the worst, else the fullest."""
        count = min(width, len(rows))
        for place in range(count):
            part = rows[place * len(rows) // count : (place + 1) * len(rows) // count]
            character, role = self._cell(part)
            line.add(character, role)
        line.add(" " * (width - count), " ")

    def _cell(self, part: Sequence[RankRow]) -> tuple[str, str]:
        braille = self.look.glyphs.braille
        for state in ("silent", "stopped", "lost", "ended"):
            if any(row.state == state for row in part):
                character = _STATES[state] if braille or _STATES[state].isascii() else "x"
                return character, roles.DIM if state == "ended" else roles.BAD
        percents = [row.percent for row in part if row.percent is not None]
        if not percents:
            return self.look.text("·"), roles.DIM
        fullest = max(percents)
        levels = {row.level for row in part}
        role = roles.BAD if "bad" in levels else roles.WARNING if "warning" in levels else roles.ALLOCATED
        return (_BLOCKS if braille else _PLAIN)[max(0, min(7, int(fullest * 8 / 100)))], role


def _level(group: Group) -> Level:
    levels = {finding.level for finding in group.findings}
    return "bad" if "bad" in levels else "warning" if "warning" in levels else "good"


def _short(group: Group) -> str:
    """What is worst of it, in few words; nothing of what all groups have."""
    return next((finding.text for finding in group.findings if finding.level in ("bad", "warning")), "")


def _span(values: Sequence[Optional[int]], unit: str) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return units.UNKNOWN
    low, high = units.number(min(known), unit), units.number(max(known), unit)
    return low if low == high else f"{low} to {high}"


def _steps(rows: Sequence[RankRow], wide: bool) -> str:
    known = [row.step for row in rows if row.step is not None]
    if not known:
        return units.UNKNOWN
    low, high = min(known), max(known)
    if low == high or not wide:
        return f"{int(statistics.median(known)) if low != high else low:,}"
    return f"{low:,} to {high:,}"
