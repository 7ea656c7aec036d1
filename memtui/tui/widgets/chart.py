"""Memory over time: allocated as an area; reserved and device used as lines; capacity and predicted peak as rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from textual import events

from memtui.analysis.view import Rule
from memtui.session.history import Series
from memtui.session.phases import PhaseHistory
from memtui.tui import roles
from memtui.tui.look import Look
from memtui.tui.messages import ChartPointed, ChartZoomed
from memtui.tui.plot import cells as cell_module
from memtui.tui.plot import frame
from memtui.tui.plot.cells import Cell, Ground, row_of
from memtui.tui.plot.frame import GUTTER, Label, TimeSpan
from memtui.tui.plot.scale import SPANS, Scale, closest_span, round_top, scale
from memtui.tui.plot.track import Column, Track
from memtui.tui.plot.window import Window
from memtui.tui.rows import Row

from .lines import Lines

#: Columns that are shorter than this are looked at more often.
FAST_CELL_NS = 250_000_000

#: Frames of boundaries come with the next tenth of a second's; a picture that is all new is looked at, not watched.
LATE_NS, STAND_NS = 300_000_000, 500_000_000

#: Below this share of the device, what is held would be a flat line at the bottom: the scale fits the data instead.
FIT_BELOW = 0.2


@dataclass
class ChartInput:
    """What the chart is made of at one instant; times are the monitored machine's monotonic nanoseconds."""

    now_ns: int = 0
    first_ns: int = 0
    allocated: Optional[Series] = None
    reserved: Optional[Series] = None
    device: Optional[Series] = None
    device_label: str = "device used"
    rules: tuple[Rule, ...] = ()
    phases: Optional[PhaseHistory] = None
    step_ns: Optional[int] = None
    wall_offset_ns: Optional[int] = None
    window: Window = field(default_factory=Window)
    end_label: str = "now"
    frozen: bool = False  # what came since is not looked at
    fit: bool = False  # the scale fits the data, not the device
    recorded: bool = False  # all that there will be is there


@dataclass(frozen=True)
class Readout:
    """The figures in the cursor's column: ranges of bytes, None where there is none."""

    time_ns: int
    allocated: Column
    reserved: Column
    device: Column
    phase: Optional[str]


class Chart(Lines):
    """Draws only what a frame changed: the newest columns, or all of them when the window steps or the scale moves."""

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self.input = ChartInput()
        self.phase_strip = False
        self.stride = 1  # columns by which the live window moves at a time
        self._tracks = (Track(), Track(), Track())
        self._drawn_columns: dict[int, tuple[tuple[object, ...], tuple[str, str]]] = {}
        self._drawn_for: tuple[object, ...] = ()
        self._scale: Scale | None = None
        self._top_before = 0
        self._fitted = False
        self._empty = True  # nothing to scale by

    # What is shown

    @property
    def cells(self) -> int:
        """Columns of cells in the picture."""
        return max(1, self.size.width - GUTTER)

    @property
    def age_ns(self) -> int:
        """How long there has been something to show."""
        return max(0, self.input.now_ns - self.input.first_ns)

    def cell_ns(self) -> int:
        """The time of one column of cells."""
        return self.input.window.cell_ns(self.cells, self.age_ns)

    @property
    def close(self) -> bool:
        """Whether columns are so short that most have no sample."""
        return self.input.window.close(self.age_ns)

    @property
    def fast(self) -> bool:
        """Whether it moves so fast that it is to be looked at more often than figures are."""
        return self.cell_ns() < FAST_CELL_NS and not self.close

    def live_end_ns(self) -> int:
        """Where a live window ends: now; a close one where frames have come, and it stands still for half a second."""
        given = self.input
        if not self.close or given.recorded:
            return given.now_ns
        return (given.now_ns - LATE_NS) // STAND_NS * STAND_NS

    def closest(self) -> int:
        """The place in SPANS of the closest window that there is detail for."""
        series = self.input.allocated
        return closest_span(None if series is None else series.spacing_ns())

    def last_cell(self) -> int:
        """The column at the right end; column n holds the times from n * cell_ns on."""
        end_ns = self.input.window.end_ns
        if end_ns is not None:
            return end_ns // self.cell_ns()
        if self.close:
            return self.live_end_ns() // self.cell_ns()
        return self.input.now_ns // self.cell_ns() // self.stride * self.stride + self.stride - 1

    def time_at(self, x: int) -> int | None:
        """The middle of the column at `x` of the widget; None beside the picture."""
        place = x - GUTTER
        if not 0 <= place < self.cells:
            return None
        cell = self.cell_ns()
        return (self.last_cell() - self.cells + 1 + place) * cell + cell // 2

    def readout(self) -> Readout | None:
        """What the cursor stands on."""
        cursor = self.input.window.cursor_ns
        if cursor is None:
            return None
        cell = self.cell_ns()
        place = cursor // cell

        def at(series: Series | None) -> Column:
            if series is None:
                return None
            # A column of its own may hold no sample where samples are further apart: the last before it counts.
            columns = Track().columns(series, place - 12, 13, cell, cursor, close=self.close)
            return columns[-1]

        phases = self.input.phases
        return Readout(
            cursor,
            at(self.input.allocated),
            at(self.input.reserved),
            at(self.input.device),
            None if phases is None else phases.at(cursor),
        )

    def on_click(self, event: events.Click) -> None:
        """A place in time is pointed at."""
        time_ns = self.time_at(event.x)
        if time_ns is not None:
            self.post_message(ChartPointed(time_ns))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel zooms in."""
        event.stop()
        self.post_message(ChartZoomed(-1))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel zooms out."""
        event.stop()
        self.post_message(ChartZoomed(1))

    # Drawing

    def source(self) -> object:
        """The newest samples and columns: nothing is drawn where no sample came and no column began."""
        given = self.input
        newest = (
            None
            if given.frozen
            else tuple(
                None if series is None else (id(series), series.last_time_ns, len(series))
                for series in (given.allocated, given.reserved, given.device)
            )
        )
        return newest, self.last_cell(), self.cell_ns(), given.rules, given.fit, given.window, self.phase_strip

    def draw(self, width: int, height: int) -> list[Row]:
        """The picture, its time axis, and the strip of phases where there is one."""
        below = 2 if self.phase_strip else 1
        plot_height, cells = height - below, width - GUTTER
        if plot_height < 2 or cells < 4:
            return []
        given, span = self.input, TimeSpan(self.last_cell(), cells, self.cell_ns())
        allocated, reserved, device = (
            track.columns(series, 2 * span.first, 2 * cells, span.cell_ns // 2, given.now_ns, close=self.close)
            for track, series in zip(self._tracks, (given.allocated, given.reserved, given.device))
        )
        glyphs = self.look.glyphs
        picture_scale = self._choose_scale(plot_height, allocated, reserved, device)
        # Further away, hardly a column is without a sample.
        sampled = self._tracks[0].sampled() if self.close else [True] * (2 * cells)
        rows = self._picture(span.first, cells, plot_height, picture_scale, (allocated, reserved, device), sampled)
        rows = frame.with_labels(rows, self._labels(picture_scale.top, plot_height, reserved, device), self.look)
        if given.window.cursor_ns is not None:
            rows = frame.with_cursor(rows, given.window.cursor_ns // span.cell_ns - span.first, glyphs)
        known_scale = None if self._empty else picture_scale
        axis = frame.value_axis(known_scale, plot_height, glyphs)
        result = [Row(left.text + row.text, left.roles + row.roles) for left, row in zip(axis, rows)]
        end_label = given.end_label if given.window.end_ns is None else ""
        result.append(frame.time_axis(span, known_scale, given.now_ns, end_label, given.wall_offset_ns, self.look))
        if self.phase_strip:
            closest_s = SPANS[self.closest()]
            result.append(frame.phase_strip(span, given.phases, given.step_ns, glyphs, closest_s))
        return result

    def _choose_scale(self, rows: int, *figures: list[Column]) -> Scale:
        highest = max([column[1] for columns in figures for column in columns if column], default=0)
        capacity = next((rule.value_bytes for rule in self.input.rules if rule.key == "capacity"), None)
        predicted = max((rule.value_bytes for rule in self.input.rules if rule.key != "capacity"), default=0)
        wanted = max(highest, predicted)
        if self._fitted != self.input.fit:
            self._fitted, self._top_before = self.input.fit, 0
        self._empty = not wanted and not capacity
        if capacity and not self.input.fit and wanted >= FIT_BELOW * capacity:
            top = max(capacity, highest)
        else:
            top = round_top(wanted)
            # The scale grows at once and shrinks only by half, so that it does not go to and fro with every step.
            if self._top_before // 2 < top < self._top_before and wanted:
                top = self._top_before
            if capacity and not self.input.fit and capacity < top <= 2 * capacity and highest <= capacity:
                top = capacity
        self._top_before = top
        if self._scale is None or self._scale.top != top or self._drawn_for[:1] != (rows,):
            self._scale = scale(top, rows)
        return self._scale

    def _ground(self, height: int, top: int) -> Ground:
        glyphs = self.look.glyphs
        rules = []
        for rule in self.input.rules:
            if rule.key == "capacity":
                rules.append((row_of(rule.value_bytes, top, height), glyphs.capacity, roles.CAPACITY))
            else:
                rules.append((row_of(rule.value_bytes, top, height), glyphs.forecast, roles.FORECAST))
        return cell_module.ground(height, rules)

    def _picture(
        self,
        first: int,
        cells: int,
        height: int,
        picture_scale: Scale,
        figures: tuple[list[Column], ...],
        sampled: list[bool],
    ) -> list[Row]:
        top, glyphs = picture_scale.top, self.look.glyphs
        behind = self._ground(height, top)
        drawn_for = (height, top, behind, glyphs.name, self.cell_ns())
        if drawn_for != self._drawn_for:
            self._drawn_for = drawn_for
            self._drawn_columns.clear()
        allocated, reserved, device = figures
        held = self._drawn_columns
        kept: dict[int, tuple[tuple[object, ...], tuple[str, str]]] = {}
        texts, styles = [], []
        reserved_before: Column = None
        device_before: Column = None
        for place in range(cells):
            left, right = 2 * place, 2 * place + 1
            reserved_now, device_now = reserved[right] or reserved[left], device[right] or device[left]
            lines = (reserved_now, reserved_before, device_now, device_before)
            unread = not (sampled[left] or sampled[right])
            source = (allocated[left], allocated[right], *lines, unread)
            reserved_before, device_before = reserved_now, device_now
            entry = held.get(first + place)
            if entry is None or entry[0] != source:
                at = [_line_row(column, top, height) for column in lines]
                cell = Cell(allocated[left], allocated[right], at[0], at[1], at[2], at[3], unread)
                entry = (source, cell_module.column(cell, behind, top, height, glyphs))
            kept[first + place] = entry
            texts.append(entry[1][0])
            styles.append(entry[1][1])
        self._drawn_columns = kept
        return [Row("".join(text), "".join(role)) for text, role in zip(zip(*texts), zip(*styles))]

    def _labels(self, top: int, height: int, reserved: list[Column], device: list[Column]) -> list[Label]:
        """Names of the lines, those first that keep their row where two have the same."""
        labels = []
        for rule in self.input.rules:
            capacity = rule.key == "capacity"
            row, text = row_of(rule.value_bytes, top, height), rule.label
            if row < 0:
                row, text = 0, f"{text} ↑"
            labels.append(Label(row, text, roles.CAPACITY if capacity else roles.FORECAST, floating=not capacity))
        for name, columns, role in (
            ("reserved", reserved, roles.RESERVED),
            (self.input.device_label, device, roles.DEVICE),
        ):
            newest = columns[-1] or columns[-2]
            if newest is not None:
                labels.append(Label(row_of(newest[1], top, height), name, role))
        return sorted(labels, key=lambda label: label.floating)


def _line_row(column: Column, top: int, height: int) -> int | None:
    return None if column is None else row_of(column[1], top, height)
