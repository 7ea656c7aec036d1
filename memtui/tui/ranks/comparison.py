"""Two ranks beside each other: a bar of each, and a line a category with the difference."""

from __future__ import annotations

from typing import Optional

from memtui.analysis import units
from memtui.analysis.view import Figure
from memtui.ranks.compare import NOTE, Compared, compare
from memtui.ranks.row import RankRow, identity
from memtui.tui import roles
from memtui.tui.figuretext import column
from memtui.tui.look import Look
from memtui.tui.rows import EMPTY, Line, Row, shorten
from memtui.tui.widgets.bar import shares
from memtui.tui.widgets.lines import Lines

_LABEL, _FIGURE = 30, 14
_NOW_FROM = 100
_BACK = "← → others   q, escape: back"
#: A difference of less than this share of the larger is none to speak of.
_SAME = 0.02


class Comparison(Lines):
    """A table that is as long as there are categories."""

    def __init__(self, look: Look) -> None:
        super().__init__(look, id="page")
        self.pair: Optional[tuple[RankRow, RankRow]] = None

    def source(self) -> object:
        """The two."""
        return self.pair

    def draw(self, width: int, height: int) -> list[Row]:
        """Title, two bars, the table."""
        if self.pair is None:
            return []
        one, other = self.pair
        look = self.look
        back = look.text(_BACK)
        title = Line().add(f"  rank {one.rank} against rank {other.rank}", roles.BRIGHT)
        title.pad(width - len(back) - 2).add(back, roles.DIM)
        rows = [title.row(width), EMPTY, self._bar(one, width), self._bar(other, width), EMPTY]
        rows.append(self._head(one, other, width))
        largest = max((abs(line.difference or 0) for line in compare(one, other) if line.key), default=0)
        before = ""
        for line in compare(one, other):
            if before and not line.key:
                rows.append(EMPTY)
            before = line.key
            rows.append(self._line(line, largest, width))
        rows += [EMPTY, self._places(one, width), self._places(other, width)]
        rows += [EMPTY, Line().add("  " + shorten(look.text(NOTE), width - 4), roles.DIM).row(width)]
        return rows[:height]

    def _bar(self, row: RankRow, width: int) -> Row:
        assert self.pair is not None
        line = Line().add(f"  {row.rank:>3} ", roles.BRIGHT)
        total = max(each.bar.total.value or 0 for each in self.pair)
        room = width - line.width - 3
        own = room if not total else max(1, round(room * (row.bar.total.value or 0) / total))
        line.add(self.look.glyphs.bar_left, roles.AXIS)
        for band, count in zip(row.bar.bands, shares([each.figure.value or 0 for each in row.bar.bands], own)):
            letter = self.look.text(band.letter)
            line.add((letter if len(letter) == 1 else "?") * count, roles.fill(band.key))
        return line.add(self.look.glyphs.bar_right, roles.AXIS).row(width)

    def _head(self, one: RankRow, other: RankRow, width: int) -> Row:
        label = _label_width(width)
        line = Line().add(" " * (label + 4), roles.DIM)
        line.add(f"rank {one.rank}".rjust(_FIGURE) + f"rank {other.rank}".rjust(_FIGURE), roles.DIM)
        line.add("difference".rjust(_FIGURE), roles.DIM)
        if width >= _NOW_FROM:
            line.add(f"{one.rank} now".rjust(_FIGURE) + f"{other.rank} now".rjust(_FIGURE), roles.DIM)
        return line.row(width)

    def _line(self, compared: Compared, largest: int, width: int) -> Row:
        look, label = self.look, _label_width(width)
        line = Line().add("  ", " ")
        line.add(look.text(compared.letter)[:1] or " ", roles.ink(compared.key) if compared.key else roles.TEXT)
        line.add(" " + shorten(look.text(compared.label), label).ljust(label), roles.TEXT)
        for figure in compared.most:
            role = roles.PREDICTED if figure.kind == "predicted" else roles.TEXT
            line.add(look.text(column(figure)).rjust(_FIGURE), role)
        by = compared.difference
        unlike = by is not None and abs(by) > _SAME * max(abs(each.value or 0) for each in compared.most)
        stands_out = unlike and compared.key and largest and abs(by or 0) == largest
        line.add(
            look.text(_signed(by)).rjust(_FIGURE),
            roles.WARNING if stands_out else roles.BRIGHT if unlike else roles.DIM,
        )
        if width >= _NOW_FROM and compared.key:
            for value in compared.now:
                figure = Figure(value, "unknown" if value is None else "measured")
                line.add(look.text(column(figure)).rjust(_FIGURE), roles.DIM)
        return line.row(width)

    def _places(self, row: RankRow, width: int) -> Row:
        step = units.UNKNOWN if row.step is None else f"{row.step:,}"
        parts = [identity(row), f"step {step}", row.phase]
        if row.step_ns is not None:
            parts.append(f"{units.duration(row.step_ns)} a step")
        if row.forward_ns is not None:
            parts.append(f"{units.duration(row.forward_ns)} a forward")
        text = self.look.text(" · ".join(part for part in parts if part))
        return Line().add("  " + shorten(text, width - 4, self.look.glyphs.ellipsis), roles.TEXT).row(width)


def _label_width(width: int) -> int:
    return min(_LABEL, max(14, width - 4 - 3 * _FIGURE - 1))


def _signed(value: Optional[int]) -> str:
    """ "+1.2 GiB", in the columns of a figure."""
    if value is None:
        return column(Figure(None, "unknown"))
    unit = units.unit_of(value)
    sign = "+" if value > 0 else ""
    return f"{sign + units.number(value, unit):>8} {unit:<3}"
