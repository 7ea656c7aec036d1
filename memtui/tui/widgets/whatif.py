"""What would change under a lever: a row each, a bar of what the device would hold, and the chosen one's reasons."""

from __future__ import annotations

import textwrap
from typing import Optional, Union

from memtui.analysis import units
from memtui.analysis.bar import band
from memtui.analysis.verdict import of
from memtui.analysis.view import Figure
from memtui.analysis.whatif.panel import Answer, Panel, where
from memtui.tui import figuretext, roles
from memtui.tui.look import Look
from memtui.tui.rows import Line, Row, shorten, words

from .bar import SHORT, shares
from .lines import Lines

#: How the page is left; and its other keys, where there is room.
_BACK, _KEYS = "q, escape: back  ", "+ -, b: batch   ← →: devices   "
_FIT_WORDS = {"fits": ("fits", roles.GOOD), "tight": ("tight", roles.WARNING), "no": ("no", roles.BAD)}
#: Columns: the lever, its peak, the change, whether it fits.
_LEVER, _FIGURE, _FITS = 28, 12, 7
_NARROW = 70  # narrower there is no change
_LEAST_BAR, _MOST_BAR = 12, 56
_CHANGES_FROM = 112  # as wide as this, what changes stands behind the bar
#: Lines that the reasons take at least, and of a screen that has room for headings and gaps.
_LEAST_REASONS, _TALL = 5, 32
#: A bar goes on past the device's end by at most this much of it.
_PAST = 1.5


class WhatIfTable(Lines):
    """The page; it stays as of the moment it was opened."""

    def __init__(self, look: Look, title: str, panel: Panel) -> None:
        super().__init__(look, id="page")
        self.heading, self.panel = title, panel
        self.chosen = 0

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The present first."""
        return () if self.panel.present is None else (self.panel.present, *self.panel.answers)

    def choose(self, place: int) -> None:
        """Moves the mark to a row, the nearest there is."""
        self.chosen = max(0, min(place, len(self.answers) - 1))
        self.again()

    def again(self) -> None:
        """Draws what is now to be shown."""
        self.take_changes()
        self.refresh()

    def draw(self, width: int, height: int) -> list[Row]:
        """All of the page; where there is too little room, the rows around the chosen one."""
        rows = [self._title(width)]
        if not self.answers:
            rows += [Line().row(width), *self._wrapped("", self.panel.reason, width)]
            return rows
        tall = height >= _TALL
        rows += [Line().row(width)] if tall else []
        ellipsis = self.look.glyphs.ellipsis
        largest, basis = (self.look.text(text) for text in (self.panel.largest_words, f"from {self.panel.basis}"))
        rows.append(Line().add("  " + shorten(largest, width - 3, ellipsis), roles.BRIGHT).row(width))
        rows.append(Line().add("  " + shorten(basis, width - 3, ellipsis), roles.DIM).row(width))
        rows += [Line().row(width)] if tall else []
        rows.append(self._heads(width))
        lines = self._lines(headings=height >= _TALL + len(self.answers) // 3)
        room = max(1, height - len(rows) - 1 - _LEAST_REASONS)
        first = max(0, min(lines.index(self.chosen) - room // 2, len(lines) - room))
        rows += [self._line(line, width) for line in lines[first : first + room]]
        rows.append(Line().row(width))
        return [*rows, *self._reasons(width, None if tall else max(1, height - len(rows)))]

    def _title(self, width: int) -> Row:
        keys, back = self.look.text(_KEYS), _BACK
        hint = keys + back if self.answers and width >= len(keys) + len(back) + 30 else back
        heading = shorten(self.look.text(self.heading), max(0, width - len(hint) - 3), self.look.glyphs.ellipsis)
        line = Line().add(f"  {heading} ", roles.BRIGHT)
        return line.pad(width - len(hint)).add(hint, roles.DIM).row(width)

    # The table

    def _lines(self, *, headings: bool) -> list[Union[int, str]]:
        """Places of answers, and groups above the first of each where there are to be headings."""
        lines: list[Union[int, str]] = []
        group = ""
        for place, answer in enumerate(self.answers):
            if headings and answer.group != group:
                lines.append(answer.group)
            group = answer.group
            lines.append(place)
        return lines

    def _heads(self, width: int) -> Row:
        lever = self._lever_width(width)
        line = Line().add("   " + "".ljust(lever) + "peak".rjust(_FIGURE - 4) + "    ", roles.DIM)
        if width >= _NARROW:
            line.add(" " + "change".rjust(_FIGURE - 4) + "    ", roles.DIM)
        line.add("  " + "fits?".ljust(_FITS), roles.DIM)
        bar = self._bar_width(width)
        if bar:
            head = f"device, {units.size(self.panel.capacity_bytes)}"
            line.add((head if len(head) <= bar else "device").ljust(bar + 2), roles.DIM)
        if width >= _CHANGES_FROM:
            line.add("what changes", roles.DIM)
        return line.row(width)

    def _line(self, line: Union[int, str], width: int) -> Row:
        if isinstance(line, str):
            return Line().add(f"  {line}", roles.TITLE).row(width)
        return self._row(self.answers[line], width, chosen=line == self.chosen)

    def _row(self, answer: Answer, width: int, *, chosen: bool) -> Row:
        glyphs, lever = self.look.glyphs, self._lever_width(width)
        line = Line().add(f" {glyphs.marker if chosen else ' '} ", roles.KEY)
        said = words(self.look.text(answer.words), lever - 1, glyphs.ellipsis)
        line.add(said.ljust(lever), roles.BRIGHT if chosen or not answer.group else roles.TEXT)
        predicted = roles.PREDICTED if answer.group else roles.BRIGHT
        line.add(self._column(*_peak(answer)), roles.DIM if answer.why_not else predicted)
        if answer.why_not:
            line.add("  " + shorten(self.look.text(answer.why_not), width - line.width - 3, glyphs.ellipsis), roles.DIM)
            return line.row(width)
        if width >= _NARROW:
            line.add(" " + self._column(*_change(answer)), roles.DIM if not answer.change_bytes else roles.TEXT)
        fits, role = _FIT_WORDS.get(answer.fits, (units.UNKNOWN, roles.UNKNOWN))
        line.add("  " + self.look.text(fits).ljust(_FITS), role)
        self._bar(line, answer, self._bar_width(width))
        if width >= _CHANGES_FROM:
            line.add("  ", " ")
            self._parts(line, answer, width)
        return line.row(width)

    def _column(self, number: str, unit: str) -> str:
        return f"{self.look.text(number):>{_FIGURE - 4}} {unit:<3}"

    def _lever_width(self, width: int) -> int:
        return min(_LEVER, max(10, width - 3 - _FIGURE - 2 - _FITS))

    def _bar_width(self, width: int) -> int:
        left = width - 3 - _LEVER - 2 * _FIGURE - 3 - _FITS - 1
        if width >= _CHANGES_FROM:
            left -= max(26, left // 2)
        return min(left, _MOST_BAR) if left >= _LEAST_BAR else 0

    def _bar(self, line: Line, answer: Answer, width: int) -> None:
        """What the device would hold, to one scale for all rows; what is past the device's end is drawn past it."""
        if not width:
            return
        capacity = self.panel.capacity_bytes or 0
        needs = [sum(held for _, held in each.bands) for each in self.answers]
        scale = max(capacity, min(max(needs), round(_PAST * (capacity or max(needs))))) or 1
        held = sum(size for _, size in answer.bands)
        filled = min(width, round(held * width / scale))
        for (key, _), count in zip(answer.bands, shares([size for _, size in answer.bands], filled)):
            letter = self.look.text(band(key, 0).letter)
            line.add((letter if len(letter) == 1 else "?") * count, roles.fill(key))
        free = max(0, round(capacity * width / scale) - filled)
        line.add(band("device_free", 0).letter * free, roles.fill("device_free"))
        line.add(" " * (width - filled - free), " ")

    def _parts(self, line: Line, answer: Answer, width: int) -> None:
        """The categories that move, by letter, the largest first; as many as there is room for."""
        for key, before, after in sorted(answer.parts, key=lambda part: -abs(part[2] - part[1])):
            shown = self.look.text(_signed(after - before))
            if line.width + len(shown) + 4 > width:
                return
            line.add(self.look.text(band(key, 0).letter), roles.ink(key)).add(f" {shown}  ", roles.TEXT)

    # The chosen one

    def _reasons(self, width: int, most: Optional[int]) -> list[Row]:
        """What is to be said of the chosen one; with `most` lines all that it rests on is one paragraph."""
        answer = self.answers[self.chosen]
        head = answer.words if answer.group else "at the peak as it is"
        if answer.peak_bytes is not None:
            head += f": {answer.sign}{units.size(answer.peak_bytes)} {where(answer)}"
        if answer.device_bytes is not None and self.panel.capacity_bytes:
            head += f", device {answer.sign}{of(answer.device_bytes, self.panel.capacity_bytes)}"
        shown = shorten(self.look.text(head), width - 3, self.look.glyphs.ellipsis)
        rows = [Line().add("  " + shown, roles.TITLE).row(width)]
        held = self._held(answer, width)
        rows += held if most is None or not answer.group else held[:1]
        said = [each for each in _rests_on(answer) if each[1]]
        if most is None:
            return rows + [row for label, text in said for row in self._wrapped(label, text, width)]
        return rows + self._paragraph(said, width, most - len(rows))

    def _paragraph(self, said: list[tuple[str, str]], width: int, most: int) -> list[Row]:
        text = " · ".join(f"{label}: {words}" if label else words for label, words in said)
        ellipsis = self.look.glyphs.ellipsis
        pieces = textwrap.wrap(
            self.look.text(text), max(10, width - 4), max_lines=max(1, most), placeholder=f" {ellipsis}"
        )
        return [Line().add(f"  {piece}", roles.TEXT).row(width) for piece in pieces]

    def _held(self, answer: Answer, width: int) -> list[Row]:
        """Each category before and after, with its letter; of the present what each holds."""
        if answer.group:
            entries = [(key, f"{units.size(before)} → {units.size(after)}") for key, before, after in answer.parts]
        else:
            entries = [(key, units.size(size)) for key, size in answer.bands]
        rows: list[Row] = []
        line = Line().add("  ", " ")
        for key, said in entries:
            found = band(key, 0)
            text = self.look.text(f" {SHORT.get(key, found.label)} {said}   ")
            if line.width > 2 and line.width + len(text) + 1 > width:
                rows.append(line.row(width))
                line = Line().add("  ", " ")
            line.add(self.look.text(found.letter), roles.ink(key)).add(text, roles.TEXT)
        return [*rows, line.row(width)] if line.width > 2 else rows

    def _wrapped(self, label: str, text: str, width: int) -> list[Row]:
        rows = []
        shown = f"  {label:<8} " if label else "  "
        for piece in textwrap.wrap(self.look.text(text), max(10, min(110, width - len(shown) - 2))):
            rows.append(Line().add(shown, roles.DIM).add(piece, roles.TEXT).row(width))
            shown = " " * len(shown)
        return rows


def _rests_on(answer: Answer) -> tuple[tuple[str, str], ...]:
    rule = answer.rule
    if answer.group and answer.change_bytes == 0:
        rule += f"; the peak is {where(answer)}, and there that changes nothing"
    return ("", answer.why_not), ("derived", rule), ("price", answer.price), ("assumes", answer.assumes)


def _peak(answer: Answer) -> tuple[str, str]:
    """A number, a bound's sign before it, and its unit."""
    number, unit = figuretext.parts(Figure(answer.peak_bytes, "unknown" if answer.peak_bytes is None else "derived"))
    return answer.sign + number if unit else number, unit


def _change(answer: Answer) -> tuple[str, str]:
    value = answer.change_bytes
    if not value:
        return (units.UNKNOWN, "") if value is None else ("same", "")
    unit = units.unit_of(value)
    return answer.sign + _sign(value) + units.number(abs(value), unit), unit


def _signed(value: int) -> str:
    return _sign(value) + units.size(abs(value))


def _sign(value: int) -> str:
    return "+" if value > 0 else "−"
