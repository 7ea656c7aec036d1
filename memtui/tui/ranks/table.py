"""The ranks: a line each, with a chart below where there is room, or small multiples where there is too little."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Optional

from memtui.analysis import units
from memtui.ranks.row import RankRow
from memtui.ranks.view import RanksView
from memtui.session.members import Member
from memtui.tui import roles
from memtui.tui.look import Look
from memtui.tui.plot.track import Column as Sample
from memtui.tui.rows import EMPTY, Line, Row, clip, fit
from memtui.tui.widgets.bar import SHORT, shares
from memtui.tui.widgets.lines import Lines

from . import spark
from .columns import BYTES, Layout, cell_of, head_of, layout, number, percent, places, unit_of

#: A line, with a chart of one line more; a higher chart says no more.
LEAST_CARD, MOST_CARD = 2, 9
#: A cell of the small multiples: mark, rank, a chart, how full, what is left; with a bar too; a line of the table.
LEAST_CELL, BAR_CELL, LINE_CELL = 19, 34, 80
_MARGIN = 8

_STATES = {"stopped": "STOPPED", "silent": "SILENT", "lost": "LOST", "ended": "ENDED", "starting": "starting"}
_BAD_STATES = frozenset(("stopped", "silent", "lost"))


class RanksTable(Lines):
    """Rows in the order that the screen gives; the chosen one is always in view."""

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self.view: Optional[RanksView] = None
        self.rows: Sequence[RankRow] = ()
        self.members: Mapping[tuple[int, int], Member] = {}  # by rank and life
        self.chosen = 0
        self.marked: frozenset[tuple[int, int]] = frozenset()
        self.span_ns = 60_000_000_000
        self.multiples = False  # asked for
        self._first = 0
        self._places: dict[tuple[int, int], str] = {}

    # How it is laid out

    def card_height(self, height: int) -> int:
        """Lines of each rank: 1 where there are no charts below."""
        if not self.rows or self.multiples:
            return 1
        lines = (height - 1) // len(self.rows)
        return min(MOST_CARD, lines) if lines >= LEAST_CARD else 1

    def cells_across(self, width: int, height: int) -> int:
        """How many small multiples stand side by side; 0 where there are lines instead."""
        count, lines = len(self.rows), max(1, height - 1)
        if count <= lines and not self.multiples:
            return 0
        if self.multiples:
            return max(1, min(count, max(-(-count // lines), width // BAR_CELL), width // self._least_cell()))
        across = -(-count // lines)
        return across if width // across >= self._least_cell() else 0

    def _least_cell(self) -> int:
        """Cells that the numbers of these ranks need."""
        return LEAST_CELL + max(0, len(str(max(row.rank for row in self.rows))) - 2)

    def per_page(self, width: int, height: int) -> int:
        """How many ranks are in view."""
        across = self.cells_across(width, height)
        return max(1, across * (height - 1) if across else (height - 1) // self.card_height(height))

    def draw(self, width: int, height: int) -> list[Row]:
        """What there is room for."""
        if self.view is None or not self.rows or height < 2:
            return []
        page = self.per_page(width, height)
        self.chosen = max(0, min(self.chosen, len(self.rows) - 1))
        self._first = self.chosen // page * page
        shown = self.rows[self._first : self._first + page]
        across = self.cells_across(width, height)
        if across:
            return self._multiples(shown, across, width, height)
        return self._table(shown, width, height)

    @property
    def first(self) -> int:
        """The place of the first rank in view."""
        return self._first

    # Lines and cards

    def _table(self, shown: Sequence[RankRow], width: int, height: int) -> list[Row]:
        tall = self.card_height(height)
        divided = layout(width, self.rows, chart=tall == 1, device=self._device_width(width))
        unit = unit_of(self.rows)
        tracks: list[list[Sample]] = []
        cells = divided.chart if tall == 1 else width - _MARGIN - 2
        if cells:
            columns = cells if tall == 1 else spark.columns_of(cells, self.look)
            tracks = [self._track(row, columns) for row in shown]
        top = spark.highest(tracks)
        lines = [self._head(divided, unit, top, width)]
        for place, row in enumerate(shown):
            track = tracks[place] if tracks else []
            lines.append(self._line(row, self._first + place, divided, unit, track if tall == 1 else [], top, width))
            if tall > 1:
                chart = spark.area(track, top, tall - 1 - (tall > 3), self.look)
                lines += [
                    self._beside(each, down, len(chart), top, unit, place == 0) for down, each in enumerate(chart)
                ]
                lines += [EMPTY] * (tall > 3)
        return lines

    def _beside(self, chart: Row, down: int, height: int, top: int, unit: str, first: bool) -> Row:
        """A line of a chart with the scale in its margin."""
        label = units.number(top, unit) if down == 0 and top and (height > 1 or first) else ""
        if down == height - 1 > 0:
            label = self.look.text(f"−{span_text(self.span_ns)}")
        line = Line().add(label.rjust(_MARGIN - 1) + " ", roles.DIM)
        return line.add_cells(chart.text, chart.roles).row(_MARGIN + len(chart.text))

    def _device_width(self, width: int) -> int:
        """Cells of the column of devices; 0 is as wide as their names."""
        if not self._several_hosts:
            return 0
        named = places(self.rows, width)
        self._places = {(row.rank, row.life): where for row, where in zip(self.rows, named)}
        return max(6, *map(len, named))

    @property
    def _several_hosts(self) -> bool:
        return len({row.host for row in self.rows}) > 1

    def _device_head(self, width: int) -> str:
        return "where" if self._several_hosts else "device"

    def _device_text(self, row: RankRow, width: int) -> str:
        return self._places.get((row.rank, row.life), row.device) if self._several_hosts else row.device

    def _head(self, divided: Layout, unit: str, top: int, width: int) -> Row:
        number = "  no.  " if self.view is not None and self.view.apart else "  rank "
        line = Line().add(number + self._device_head(divided.device).ljust(divided.device), roles.DIM)
        line.add(f"used {unit}".rjust(divided.used + 6)[-divided.used - 6 :], roles.DIM).add("  ", roles.DIM)
        total = max((row.total.value or 0 for row in self.rows), default=0)
        scale = f"{units.size(total)}" if total else ""
        if divided.bar >= len(scale) + 3:
            line.add("0" + scale.rjust(divided.bar - 1), roles.DIM)
        else:
            line.pad(line.width + divided.bar)
        if divided.chart:
            label = next((text for text in self._chart_labels(top) if len(text) <= divided.chart), "")
            line.add(" " + label.ljust(divided.chart), roles.DIM)
        for column, cells in zip(BYTES, divided.numbers):
            line.add(head_of(column, cells, narrow=divided.narrow), roles.DIM)
        line.add("step".rjust(divided.steps) + "time".rjust(divided.took) + " phase", roles.DIM)
        return line.row(width)

    def _chart_labels(self, top: int) -> tuple[str, ...]:
        """What the charts beside the bars are of, the shorter the later."""
        span, size = span_text(self.span_ns), units.size(top)
        return f"allocated, {span}, to {size}", f"{span}, to {size}", f"to {size}", span

    def _line(
        self,
        row: RankRow,
        place: int,
        divided: Layout,
        unit: str,
        track: list[Sample],
        top: int,
        width: int,
    ) -> Row:
        look = self.look
        line = Line()
        self._add_name(line, row, place)
        line.add(
            " "
            + clip(look.text(self._device_text(row, divided.device)), divided.device, look.glyphs.ellipsis).ljust(
                divided.device
            ),
            roles.TEXT,
        )
        quiet = roles.DIM if row.over else roles.TEXT
        line.add(look.text(number(row.used, unit)).rjust(divided.used), quiet)
        full = percent(row) or units.UNKNOWN
        line.add(look.text(full).rjust(6), self._level(row)).add("  ", " ")
        self._add_bar(line, row, divided.bar)
        if divided.chart:
            text, role = spark.line(track, top, look)
            line.add(" ", " ")
            line.add_cells(text, role)
        for column, cells in zip(BYTES, divided.numbers):
            role = quiet if row.over else roles.PREDICTED if column.predicted else roles.TEXT
            if column.key == "headroom" and not row.over:
                role = self._level(row) if row.level in ("warning", "bad") else roles.PREDICTED
            line.add(look.text(cell_of(column, row, unit, cells)), role)
        step = units.UNKNOWN if row.step is None else f"{row.step:,}"
        line.add(look.text(step).rjust(divided.steps), quiet)
        line.add(look.text(units.duration(row.step_ns)).rjust(divided.took), quiet).add(" ", " ")
        self._add_phase(line, row)
        return line.row(width)

    def _add_name(self, line: Line, row: RankRow, place: int, digits: int = 4) -> None:
        chosen = place == self.chosen
        mark = self.look.glyphs.marker if chosen else "*" if (row.rank, row.life) in self.marked else " "
        if chosen and (row.rank, row.life) in self.marked:
            mark = "*"
        role = roles.SELECTED if chosen else roles.DIM if row.over else roles.BRIGHT
        line.add(mark, roles.SELECTED if chosen else roles.KEY)
        life = f"'{row.life}" if row.life > 1 else ""
        line.add(f"{row.rank}{life}".rjust(digits) + " ", role)

    def _level(self, row: RankRow) -> str:
        if row.over:
            return roles.DIM
        return roles.TEXT if row.level == "unknown" else roles.LEVELS[row.level]

    def _add_phase(self, line: Line, row: RankRow) -> None:
        if row.state in _STATES:
            bad = row.state in _BAD_STATES or (row.state == "ended" and self._failed(row))
            line.add(_STATES[row.state], roles.BAD if bad else roles.DIM)
        else:
            line.add(row.phase, roles.TEXT)

    def _failed(self, row: RankRow) -> bool:
        return self.view is not None and any(
            row.rank in finding.ranks and finding.key == "ended" for finding in self.view.findings
        )

    def _add_bar(self, line: Line, row: RankRow, width: int) -> None:
        """Bands as wide as their share of the largest device."""
        bands = row.bar.bands
        total = max((each.total.value or 0 for each in self.rows), default=0)
        own = row.bar.total.value or 0
        cells = width if not total or row.bar.label not in ("device", "host") else max(1, round(width * own / total))
        if not bands or not own:
            line.add(" " * width, " ")
            return
        for band, count in zip(bands, shares([band.figure.value or 0 for band in bands], min(width, cells))):
            letter = self.look.text(band.letter)
            line.add((letter if len(letter) == 1 else "?") * count, roles.fill(band.key))
        line.add(" " * (width - min(width, cells)), " ")

    # Small multiples

    def _multiples(self, shown: Sequence[RankRow], across: int, width: int, height: int) -> list[Row]:
        cell = width // across
        deep = min(height - 1, -(-len(shown) // across))
        unit = unit_of(self.rows)
        if cell >= LINE_CELL:
            draw, head = self._lines_of(shown, cell - 1, unit)
        else:
            draw, head = self._cells_of(shown, cell - 1, unit)
        top = Line()
        for column in range(min(across, -(-len(shown) // deep))):
            top.pad(column * cell).add_cells(*fit(head, cell - 1))
        rows = [top.row(width)]
        for down in range(deep):
            line = Line()
            for column in range(across):
                place = column * deep + down
                if place < len(shown):
                    line.pad(column * cell).add_cells(*fit(draw(place), cell - 1))
            rows.append(line.row(width))
        return rows

    def _lines_of(self, shown: Sequence[RankRow], width: int, unit: str) -> tuple[Callable[[int], Row], Row]:
        """Lines of the table, beside each other."""
        divided = layout(width, self.rows, device=self._device_width(width))
        tracks = [self._track(row, divided.chart) for row in shown]
        top = spark.highest(tracks)

        def draw(place: int) -> Row:
            return self._line(shown[place], self._first + place, divided, unit, tracks[place], top, width)

        return draw, self._head(divided, unit, top, width)

    def _cells_of(self, shown: Sequence[RankRow], width: int, unit: str) -> tuple[Callable[[int], Row], Row]:
        """Mark, rank, a chart and perhaps a bar, how full, and what is left."""
        digits = max(2, len(str(max(row.rank for row in self.rows))) + 2 * any(row.life > 1 for row in self.rows))
        said = 8 if any(row.state in _STATES for row in shown) else 6
        left = max(said, *(len(number(row.headroom, unit)) + 1 for row in shown))
        room = width - (1 + digits + 1) - 5 - left
        bar = room // 2 if room >= 14 else 0
        cells = max(1, room - bar - (bar > 0))
        tracks = [self._track(row, cells) for row in shown]
        top = spark.highest(tracks)

        def draw(place: int) -> Row:
            row = shown[place]
            line = Line()
            self._add_name(line, row, self._first + place, digits)
            if bar:
                self._add_bar(line, row, bar)
                line.add(" ", " ")
            line.add_cells(*spark.line(tracks[place], top, self.look))
            line.add(self.look.text((percent(row) or units.UNKNOWN).replace(" ", "")).rjust(5), self._level(row))
            self._add_left(line, row, unit, left)
            return line.row(width)

        head = Line().add(" " + "rank".rjust(digits), roles.DIM)
        head.pad(1 + digits + 1 + room).add("full".rjust(5) + unit.rjust(left), roles.DIM)
        return draw, head.row(width)

    def _add_left(self, line: Line, row: RankRow, unit: str, width: int) -> None:
        """The headroom; of a rank that is not at work, why."""
        if row.state in _STATES:
            failed = row.state in _BAD_STATES or self._failed(row)
            line.add(_STATES[row.state][: width - 1].rjust(width), roles.BAD if failed else roles.DIM)
            return
        role = self._level(row) if row.level in ("warning", "bad") else roles.PREDICTED
        line.add(self.look.text(number(row.headroom, unit)).rjust(width), role)

    # Charts

    def _track(self, row: RankRow, columns: int) -> list[Sample]:
        member = self.members.get((row.rank, row.life))
        if member is None or self.view is None or columns <= 0:
            return []
        step_ns = max(1, self.span_ns // columns)
        end_ns = self.view.now_ns
        end = member.session.end
        if end is not None and row.over:
            end_ns = min(end_ns, end.time_ns)
        return spark.samples(member.session, row.device, end_ns, step_ns, columns)


def span_text(span_ns: int) -> str:
    """How much time a chart shows, in whole units: "60 s", "5 m", "24 h"."""
    seconds = span_ns // 1_000_000_000
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} m" if seconds < 7200 else f"{seconds // 3600} h"


def legend(rows: Sequence[RankRow], width: int, look: Look) -> Row:
    """The letters of the bars, in one line, those of most bytes first where there is no room for all."""
    held: dict[str, tuple[str, str, int]] = {}
    for row in rows:
        for band in row.bar.bands:
            before = held.get(band.key, ("", "", 0))[2]
            held[band.key] = (band.letter, SHORT.get(band.key, band.label), before + max(0, band.figure.value or 0))
    entries = [(key, letter, name) for key, (letter, name, size) in held.items() if size]
    sizes = {key: size for key, (_, _, size) in held.items()}
    while entries and sum(len(name) + 5 for _, _, name in entries) > width - 2:
        entries.remove(min(entries, key=lambda entry: sizes[entry[0]]))
    line = Line().add("  ", " ")
    for key, letter, name in entries:
        line.add(look.text(letter)[:1] or "?", roles.ink(key)).add(f" {look.text(name)}   ", roles.DIM)
    return line.row(width)
