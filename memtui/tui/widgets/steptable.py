"""The table below a recorded step: what the memory at an instant is made of, a line a group."""

from __future__ import annotations

from collections.abc import Sequence

from memtui.analysis import units
from memtui.analysis.bar import band
from memtui.analysis.recorded_groups import Group
from memtui.analysis.text import clean, phase_words
from memtui.tui import roles
from memtui.tui.look import Look
from memtui.tui.rows import Line, Row, clip, shorten

from .bar import shares

#: What the last column is called, by grouping.
NAMES = {
    "alike": "tensor, * any layer",
    "tensor": "tensor",
    "site": "call site",
    "module": "module",
    "tree": "module, with all in it",
}
#: Columns that only wide screens have, by the width from which they do.
BAR_FROM, TIMES_FROM = 90, 100


#: Groupings whose groups have many lives: their bars are wider instead.
_LIFELESS = frozenset(("module", "tree"))
_LIFE_WIDTH = 12 + 9 + 11


def head(width: int, by: str, look: Look) -> Row:
    """The names of the columns."""
    line = Line().add("   " + "bytes".rjust(11) + "share".rjust(7), roles.DIM)
    if width >= BAR_FROM:
        line.add("  " + " " * bar_width(width, by), roles.DIM)
    line.add("blocks".rjust(8), roles.DIM)
    if by not in _LIFELESS:
        line.add("  " + "born".ljust(10), roles.DIM)
        if width >= TIMES_FROM:
            line.add("at".rjust(9) + "freed at".rjust(11), roles.DIM)
    name = look.text(NAMES[by])
    if len(name) > width - line.width - 3:
        name = name.partition(",")[0]
    return line.add("  " + name, roles.DIM).row(width)


def bar_width(width: int, by: str) -> int:
    """Cells of the bars."""
    cells = 12 if width < 150 else 20
    return cells + _LIFE_WIDTH if by in _LIFELESS and width >= TIMES_FROM else cells


def rows(
    groups: Sequence[Group], by: str, first: int, height: int, total: int, marked: int | None, width: int, look: Look
) -> list[Row]:
    """The lines of `groups` from `first` on; bars are as long as the largest group's share of the width."""
    largest = max((group.size_bytes for group in groups), default=0)
    return [
        _row(group, by, total, largest, first + place == marked, width, look)
        for place, group in enumerate(groups[first : first + height])
    ]


def _row(group: Group, by: str, total: int, largest: int, marked: bool, width: int, look: Look) -> Row:
    role = roles.SELECTED if marked else roles.TEXT
    quiet = roles.SELECTED if marked else roles.DIM
    letter = look.text(band(group.category, 0).letter)
    line = Line().add(" ", " ").add(letter if len(letter) == 1 else "?", roles.ink(group.category)).add(" ", role)
    unit = units.unit_of(group.size_bytes)
    line.add(f"{units.number(group.size_bytes, unit):>7} {unit:<3}", role)
    share = units.percent(group.size_bytes, total) if 200 * group.size_bytes >= total > 0 else ""
    line.add(share.rjust(7), quiet)
    if width >= BAR_FROM:
        line.add("  ", role)
        _add_bar(line, group, largest, bar_width(width, by), quiet, look)
    count = look.text(f"×{group.count:,}") if group.count > 1 else ""
    line.add(count.rjust(8), quiet)
    if by not in _LIFELESS:
        _add_life(line, group, quiet, times=width >= TIMES_FROM)
    line.add("  ", role)
    label = "  " * group.depth + look.text(group.label)
    # Of a call site whole callers go; a name is cut.
    cut = shorten if " ← " in group.label else clip
    line.add(cut(label, width - line.width - 1, look.glyphs.ellipsis), role)
    return line.pad(width - 1, role).row(width)


def _add_life(line: Line, group: Group, role: str, *, times: bool) -> None:
    before = group.born_us is None
    phase = clean(group.phase, 9) or ("before" if before else "")
    line.add("  " + phase.ljust(10), role)
    if times:
        born = "" if before else units.moment(group.born_us)
        freed = "" if not group.count else "stays" if group.died_us is None else units.moment(group.died_us)
        line.add(born.rjust(9) + freed.rjust(11), role)


def _add_bar(line: Line, group: Group, largest: int, width: int, role: str, look: Look) -> None:
    """A bar of the group's categories; a group that has too little for a cell has none."""
    lettered = look.colors.mono or not look.glyphs.braille
    length = 0 if largest <= 0 else max(0, (2 * group.size_bytes * width + largest) // (2 * largest))
    sizes = shares([held for _, held in group.parts], length)
    for (category, _), cells in zip(group.parts, sizes):
        if lettered:
            line.add(look.text(band(category, 0).letter)[:1] * cells, roles.fill(category))
        else:  # lower than its line, so that the bars of two lines are two
            line.add("▆" * cells, roles.pair(category, ""))
    line.add(" " * (width - length), role)


def details(group: Group, width: int, look: Look) -> list[Row]:
    """Everything about one group: when it lived and in which module; then a call site frame by frame."""
    parts = [f"{units.size(group.size_bytes)} in {group.count:,} block" + ("s" if group.count != 1 else "")]
    if group.count:
        when = phase_words(group.phase, after_in=True) if group.phase else ""
        born = "before the step" if group.born_us is None else f"{units.moment(group.born_us)} {when}".rstrip()
        parts.append(f"from {born} until {'after it' if group.died_us is None else units.moment(group.died_us)}")
    if group.module:
        parts.append(f"module: {group.module}")
    path = " ← ".join(group.site) or "no line of Python is known for it"
    if group.sites > 1 and group.site:
        path = f"the largest of {group.sites:,} call sites: {path}"
    return [
        Line().add(" ", " ").add(shorten(look.text(text), width - 2, look.glyphs.ellipsis), role).row(width)
        for text, role in ((" · ".join(parts), roles.TEXT), (path, roles.DIM))
    ]
