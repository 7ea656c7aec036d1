"""The column of figures beside the chart; it is the chart's legend too."""

from __future__ import annotations

from textual import events

from memtui.analysis.view import Row as FigureRow
from memtui.analysis.view import View
from memtui.tui import figuretext, roles
from memtui.tui.glyphs import Glyphs
from memtui.tui.look import Look
from memtui.tui.messages import RowPointed
from memtui.tui.rows import EMPTY, Line, Row, clip

from .lines import Lines

#: Two spaces and a sign, label, number and unit, share.
NARROW, WIDE = 34, 40

#: The bar's word for it, on the host too.
LABELS = {"non_torch_bytes": "non-torch"}

#: Labels for the narrow column.
SHORT = {
    "step_peak_bytes": "step peak",
    "predicted_peak_bytes": "predicted",
    "other_process_bytes": "others",
    "device_used_bytes": "process",  # the host's "process (RSS)": "device used" fits
}

#: Phases that every step has.
_USUAL = ("forward", "backward", "optimizer")

#: How long a figure that changed is drawn brighter.
FRESH_NS = 700_000_000


class Figures(Lines):
    """One line a figure: the chart's sign for it, label, value, share of the device."""

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self.view: View | None = None
        self.cursor: int | None = None  # the row that the glossary explains
        self.phase_legend = False
        self._changed: dict[str, tuple[str, int]] = {}

    def on_click(self, event: events.Click) -> None:
        """A figure is pointed at."""
        if self.view is not None and event.y < len(self.view.rows):
            self.post_message(RowPointed(event.y))

    def draw(self, width: int, height: int) -> list[Row]:
        """The view's rows in their order; those that do not fit are left out from the end."""
        view = self.view
        if view is None:
            return []
        rows = [self._row(row, place, width, view.now_ns) for place, row in enumerate(view.rows[:height])]
        if self.phase_legend and width >= WIDE:
            legend = self._legend(view.phases_seen, width)[: height - len(rows)]
            rows += [EMPTY] * (height - len(legend) - len(rows)) + legend
        return rows

    def _legend(self, seen: tuple[str, ...], width: int) -> list[Row]:
        """What the letters of the strip of phases mean; of the rarer ones, those that there are."""
        lines = [Line().add("  ", " ")]
        for name in (*_USUAL, *seen):
            if lines[-1].width + len(name) + 3 > width:
                lines.append(Line().add("  ", " "))
            lines[-1].add(self.look.glyphs.phase(name), roles.phase(name)).add(f" {name} ", roles.DIM)
        return [line.row(width) for line in lines]

    def _row(self, row: FigureRow, place: int, width: int, now_ns: int) -> Row:
        figure = row.figure
        sign, sign_role = _sign(row.key, self.look.glyphs)
        value = self.look.text(figuretext.column(figure))
        share = "" if row.percent is None else f"{row.percent:.0f} %"
        tail = len(value) + 7
        label = LABELS.get(row.key, row.label)
        if width < WIDE and len(label) > width - tail - 4:
            label = SHORT.get(row.key, label)
        label = self.look.text(label)
        line = Line().add("  ", " ").add(sign, sign_role).add(" ", " ")
        selected = place == self.cursor
        line.add(clip(label, width - tail - 4, self.look.glyphs.ellipsis), roles.SELECTED if selected else roles.DIM)
        if figure.age_ns is not None and figure.age_ns >= 1_500_000_000:
            age = f" {figure.age_ns // 1_000_000_000} s old"
            if line.width + len(age) <= width - tail:
                line.add(age, roles.FAINT)
        line.pad(width - tail).add(value, self._value_role(row, value, now_ns))
        return line.add(f" {share:>5} ", roles.DIM).row(width)

    def _value_role(self, row: FigureRow, value: str, now_ns: int) -> str:
        before = self._changed.get(row.key)
        if before is None:
            self._changed[row.key] = (value, 0)
        elif before[0] != value:
            self._changed[row.key] = (value, now_ns)
        if row.figure.kind == "unknown" or row.figure.value is None:
            return roles.UNKNOWN
        if row.figure.kind == "predicted":
            return roles.PREDICTED
        return roles.FRESH if 0 <= now_ns - self._changed[row.key][1] < FRESH_NS else roles.TEXT


def _sign(key: str, glyphs: Glyphs) -> tuple[str, str]:
    name = key.removesuffix("_bytes")
    signs = {
        "allocated": (glyphs.area, roles.ENVELOPE),
        "reserved": (glyphs.reserved.across, roles.RESERVED),
        "device_used": (glyphs.device.across, roles.DEVICE),
        "process": (" ", roles.PROCESS),
        "device_total": (glyphs.capacity, roles.CAPACITY),
        "predicted_peak": (glyphs.forecast, roles.FORECAST),
    }
    return signs.get(name, (" ", " "))
