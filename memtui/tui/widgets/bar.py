"""The category bar: one device's memory by tenant, adding up exactly, with the bytes of each below it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from memtui.analysis import units
from memtui.analysis.view import Band, Figure
from memtui.analysis.view import Bar as BarView
from memtui.tui import figuretext, roles
from memtui.tui.look import Look
from memtui.tui.rows import Line, Row, clip

from .lines import Lines

#: A band with less than this share of a cell gets none; its bytes stand in the legend.
DESERVES = 0.25

#: Labels for narrow screens.
SHORT = {
    "optimizer_state": "optimizer",
    "other_processes": "others",
    "device_unattributed": "unknown",
    "driver_reserved": "driver",
    "active_pending_free": "pending",
    "reusable_cache": "cache",
    "inactive_split": "pinned",
    "private_pool_idle": "graph pools",
    "unattributed": "unattrib.",
    "device_free": "free",
    "communication": "comm",
    "private_pools": "held",
}


def shares(values: Sequence[int], width: int) -> list[int]:
    """Cells of each value in a bar of `width`: they add up to it; who deserves a cell has one; negative ones none.

    Largest remainders, so that no band is more than about a cell off.
    """
    positive = [max(0, value) for value in values]
    total = sum(positive)
    if not total or width <= 0:
        return [0] * len(values)
    exact = [value * width / total for value in positive]
    result = [max(int(cells), 1 if cells >= DESERVES else 0) for cells in exact]
    missing = width - sum(result)
    while missing > 0:
        place = max(range(len(exact)), key=lambda index: exact[index] - result[index])
        result[place] += 1
        missing -= 1
    while missing < 0:
        fat = [index for index in range(len(exact)) if result[index] > 1]
        place = max(fat or range(len(exact)), key=lambda index: result[index] - exact[index])
        result[place] -= 1
        missing += 1
    return result


class Bar(Lines):
    """A line of coloured cells with letters, then the legend: letter, name and bytes of every tenant seen so far."""

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self.bar: BarView | None = None
        self._seen: set[str] = set()

    def listed(self) -> list[Band]:
        """The bands of the legend: each that ever held something, so that none comes and goes with every step."""
        if self.bar is None:
            return []
        self._seen.update(band.key for band in self.bar.bands if band.figure.value)
        return [band for band in self.bar.bands if band.key in self._seen or band.figure.kind == "unknown"]

    def legend_height(self, width: int) -> int:
        """Lines that the whole legend takes."""
        bands = self.listed()
        per_line = _per_line(self._labels(bands, width), width)
        return -(-len(bands) // per_line) if bands else 0

    def source(self) -> object:
        """The bar."""
        return self.bar

    def draw(self, width: int, height: int) -> list[Row]:
        """The bar and as much of the legend as there is room for; the smallest are summed up where there is not."""
        if self.bar is None:
            return []
        return [self._bar(width), *self._legend(width, height - 1)]

    def _bar(self, width: int) -> Row:
        assert self.bar is not None
        glyphs = self.look.glyphs
        line = Line().add(f" {self.bar.label} ", roles.DIM)
        line.add(self.look.text(units.size(self.bar.total.value)) + " ", roles.BRIGHT)
        line.add(glyphs.bar_left, roles.AXIS)
        note = self.look.text(self.bar.note)
        room = width - line.width - 2
        if note and room - len(note) - 1 >= 40:
            room -= len(note) + 1
        else:
            note = ""
        bands = self.bar.bands
        for band, count in zip(bands, shares([band.figure.value or 0 for band in bands], room)):
            line.add(self._letter(band) * count, roles.fill(band.key))
        line.add(glyphs.bar_right, roles.AXIS)
        if note:
            line.add(" " + note, roles.DIM)
        return line.row(width)

    def _letter(self, band: Band) -> str:
        letter = self.look.text(band.letter)
        return letter if len(letter) == 1 else "?"

    def _labels(self, bands: Sequence[Band], width: int) -> tuple[str, ...]:
        if width >= 150:
            return tuple(self.look.text(band.label) for band in bands)
        return tuple(self.look.text(SHORT.get(band.key, band.label)) for band in bands)

    def _legend(self, width: int, height: int) -> list[Row]:
        bands = self.listed()
        labels = self._labels(bands, width)
        per_line = _per_line(labels, width)
        entries = list(zip(bands, labels))
        rest = ""
        if len(entries) > per_line * height > 0:
            kept = sorted(entries, key=lambda entry: -abs(entry[0].figure.value or 0))[: per_line * height - 1]
            left_out = [entry for entry in entries if entry not in kept]
            entries = [entry for entry in entries if entry in kept]
            sum_left = sum(band.figure.value or 0 for band, _ in left_out)
            rest = f"+ {len(left_out)} more {units.size(sum_left)}"
        rows = []
        widths = _column_widths(tuple(label for _, label in entries), per_line)
        for start in range(0, per_line * height, per_line):
            part = entries[start : start + per_line]
            line = Line().add(" ", " ")
            for (band, label), label_width in zip(part, widths):
                line.add(self._letter(band), roles.ink(band.key))
                line.add(" " + clip(label, label_width).ljust(label_width), roles.DIM)
                line.add(
                    " " + self.look.text(_value(band.figure)) + "  ", roles.TEXT if band.figure.value else roles.DIM
                )
            if rest and start + per_line >= per_line * height:
                line.add(rest if len(rest) < width - line.width else "", roles.DIM)
            if part or rest:
                rows.append(line.row(width))
        return rows


#: "1,023.9 GiB", a space before and two after it.
_VALUE_WIDTH = 14


def _value(figure: Figure) -> str:
    number, unit = figuretext.parts(figure)
    return f"{number:>7} {unit:<3}"


@lru_cache(256)
def _column_widths(labels: tuple[str, ...], per_line: int) -> list[int]:
    return [max((len(label) for label in labels[start::per_line]), default=0) for start in range(per_line)]


@lru_cache(64)
def _per_line(labels: tuple[str, ...], width: int) -> int:
    for count in range(min(12, max(1, len(labels))), 1, -1):
        if 1 + sum(2 + label_width + _VALUE_WIDTH for label_width in _column_widths(labels, count)) <= width:
            return count
    return 1
