"""The step tab: one recorded step, from its peak down to the tensors that make it."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import ClassVar, Optional

from textual import events
from textual.binding import Binding, BindingType

from memtui.analysis import recorded_words, units
from memtui.analysis.bar import band
from memtui.analysis.recorded import Column, StepTimeline
from memtui.analysis.recorded_groups import GROUPINGS, By, Group, groups
from memtui.tui import roles
from memtui.tui.look import Look
from memtui.tui.messages import TabTurned
from memtui.tui.plot import steppicture
from memtui.tui.plot.frame import GUTTER
from memtui.tui.plot.stepwindow import StepWindow
from memtui.tui.rows import EMPTY, Line, Row, cells, clip, shorten

from . import steptable
from .bar import SHORT
from .figures import NARROW, WIDE
from .lines import Lines

#: How the groupings are called in the line above the table.
_TITLES: dict[By, str] = {
    "alike": "layers as one",
    "tensor": "each tensor",
    "site": "call sites",
    "module": "modules",
    "tree": "module tree",
}
_NONE = "no step is recorded yet"
_WHAT = (
    "a recorded step has every allocation and every free in it, from PyTorch's own history: the exact peak, what it is "
    "made of, and the tensor, the line of code and the module behind each byte; the training goes on meanwhile"
)
_DETAILS = 2
WHEEL_LINES = 3


@dataclass(frozen=True)
class StepLayout:
    """Lines of the tab's parts, and the columns of its picture; nothing of a part that has no room."""

    answer: int
    gap: int
    chart: int  # with the axis of time and the strip of phases
    table: int  # with its two lines of titles
    cells: int
    figures: int  # columns beside the picture


def step_layout(width: int, height: int) -> StepLayout:
    """Divides the tab: the picture and the table share what the answer leaves."""
    answer = 2 if height >= 12 else 1
    gap = 1 if height >= 26 else 0
    room = max(0, height - answer - 2 * gap)
    chart = max(5, room * 48 // 100)
    figures = WIDE if width >= 110 else NARROW if width >= 66 else 0
    return StepLayout(answer, gap, min(chart, room), max(0, room - chart), max(1, width - GUTTER - figures), figures)


class Step(Lines, can_focus=True):
    """Shows one recorded step; focused, it has the keys of its own picture and table."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "move(-1)", "an instant back"),
        Binding("right", "move(1)", "an instant forward"),
        Binding("shift+left,ctrl+left", "move(-10)", show=False),
        Binding("shift+right,ctrl+right", "move(10)", show=False),
        Binding("home", "peak", "the peak"),
        Binding("end", "end", "the end of the step"),
        Binding("escape", "escape", show=False),
        Binding("plus,equals_sign,z", "zoom(-1)", "zoom in"),
        Binding("minus,x", "zoom(1)", "zoom out"),
        Binding("y", "turn", "by event or by time"),
        Binding("b", "group(1)", "group by something else"),
        Binding("B", "group(-1)", show=False),
        Binding("up", "row(-1)", "the row above"),
        Binding("down", "row(1)", "the row below"),
        Binding("pageup", "page(-1)", "rows above"),
        Binding("pagedown", "page(1)", "rows below"),
        Binding("comma", "older(1)", "the step recorded before"),
        Binding("full_stop", "older(-1)", "the step recorded after"),
    ]

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self.steps: tuple[StepTimeline, ...] = ()  # oldest first
        self.hint: tuple[str, str] = (roles.TEXT, "")  # (role, text) where no step is recorded
        self.window = StepWindow()
        self.by: By = GROUPINGS[0]
        self.back = 0  # how many steps before the newest
        self.first = 0  # the topmost row of the table
        self.marked: Optional[int] = None
        self._picture: tuple[object, tuple[int, ...], list[Column], list[Row]] = (None, (), [], [])
        self._groups: tuple[object, tuple[Group, ...]] = (None, ())

    # What is shown

    @property
    def timeline(self) -> StepTimeline | None:
        """The step that is shown."""
        return self.steps[-1 - min(self.back, len(self.steps) - 1)] if self.steps else None

    def set_steps(self, steps: tuple[StepTimeline, ...]) -> None:
        """Other steps to show; a new one comes to the front with its peak."""
        if steps != self.steps:
            self.steps, self.back = steps, 0
            self._start_anew()

    def _start_anew(self) -> None:
        self.window = StepWindow(by_time=self.window.by_time)
        self._to_top()

    def _to_top(self) -> None:
        self.first, self.marked = 0, None

    def groups(self) -> tuple[Group, ...]:
        """The table's rows at the instant that is looked at."""
        timeline = self.timeline
        if timeline is None:
            return ()
        asked = (id(timeline), self.window.instant(timeline), self.by)
        if asked != self._groups[0]:
            self._groups = (asked, groups(timeline, asked[1], self.by))
        return self._groups[1]

    def _layout(self) -> StepLayout:
        return step_layout(self.size.width, self.size.height)

    def _columns(self, timeline: StepTimeline, layout: StepLayout) -> tuple[tuple[int, ...], list[Column], list[Row]]:
        """Edges, columns and the unmarked picture, which stay while only the cursor moves."""
        window, height = self.window, max(1, layout.chart - 2)
        asked = (id(timeline), window.by_time, window.start, window.length, layout.cells, height, self.look)
        if asked != self._picture[0]:
            edges = window.edges(timeline, layout.cells)
            columns = timeline.columns(edges)
            self._picture = (asked, edges, columns, steppicture.area(timeline, columns, height, self.look))
        return self._picture[1:]

    # Keys

    def _turned(self) -> None:
        self.post_message(TabTurned())

    def action_move(self, columns: int) -> None:
        """Moves the cursor by columns, each time to the most that was allocated in one."""
        if (timeline := self.timeline) is not None:
            edges, found, _ = self._columns(timeline, self._layout())
            self.window = self.window.moved(timeline, found, edges, columns)
            self._turned()

    def action_peak(self) -> None:
        """The peak again, and all of the step."""
        self._start_anew()
        self._turned()

    def action_end(self) -> None:
        """The end of the step: what it leaves behind."""
        if (timeline := self.timeline) is not None:
            self.window = self.window.at(timeline, timeline.last)
            self._turned()

    def action_escape(self) -> None:
        """Takes back, one after the other, the marked row and the cursor."""
        if self.marked is not None:
            self.marked = None
        else:
            self._start_anew()
        self._turned()

    def action_zoom(self, steps: int) -> None:
        """Zooms out by `steps`, the cursor in its place."""
        if (timeline := self.timeline) is not None:
            self.window = self.window.zoomed(timeline, steps)
            self._turned()

    def action_turn(self) -> None:
        """By event, or by time."""
        self.window = self.window.turned()
        self._turned()

    def action_group(self, by: int) -> None:
        """The next way to put blocks together."""
        self.by = GROUPINGS[(GROUPINGS.index(self.by) + by) % len(GROUPINGS)]
        self._to_top()
        self._turned()

    def action_row(self, by: int) -> None:
        """Marks the next row."""
        count = len(self.groups())
        if count:
            now = self.first - 1 if self.marked is None else self.marked
            self._mark(max(0, min(count - 1, now + by if self.marked is not None or by > 0 else self.first)))

    def action_page(self, direction: int) -> None:
        """Moves the mark by what fits."""
        count = len(self.groups())
        if count:
            room = max(1, self._room(self._layout()))
            now = self.first if self.marked is None else self.marked
            self._mark(max(0, min(count - 1, now + direction * room)))

    def _mark(self, row: int) -> None:
        self.marked = row
        self._scroll_to_mark()
        self._turned()

    def action_older(self, by: int) -> None:
        """Shows a step that was recorded before, or after."""
        if self.steps:
            self.back = max(0, min(len(self.steps) - 1, self.back + by))
            self._start_anew()
            self._turned()

    # The mouse

    def on_click(self, event: events.Click) -> None:
        """A place in the step is pointed at, or a row."""
        layout, timeline = self._layout(), self.timeline
        if timeline is None:
            return
        top = layout.answer + layout.gap
        column = event.x - GUTTER
        row = event.y - top - layout.chart - layout.gap - 2
        if top <= event.y < top + layout.chart and 0 <= column < layout.cells:
            found = self._columns(timeline, layout)[1]
            self.window = self.window.at(timeline, found[column].instant)
            self._turned()
        elif 0 <= row < self._room(layout) and self.first + row < len(self.groups()):
            self._mark(self.first + row)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel moves the table."""
        self._wheel(event, -WHEEL_LINES)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel moves the table."""
        self._wheel(event, WHEEL_LINES)

    def _wheel(self, event: events.MouseEvent, lines: int) -> None:
        event.stop()
        self.marked = None
        self.first = max(0, min(self.first + lines, len(self.groups()) - self._room(self._layout())))
        self._turned()

    # Drawing

    def source(self) -> object:
        """The step, the instant, the place in the table."""
        timeline = self.timeline
        return self.hint, id(timeline), len(self.steps), self.back, self.window, self.by, self.first, self.marked

    def draw(self, width: int, height: int) -> list[Row]:
        """From the answer to the evidence: the peak, the picture of the step, what the instant is made of."""
        timeline = self.timeline
        if timeline is None:
            return self._how(width)
        layout = step_layout(width, height)
        rows = [*self._answer(timeline, width)[: layout.answer], *[EMPTY] * layout.gap]
        rows += self._chart(timeline, layout, width)
        rows += [EMPTY] * layout.gap
        return rows + self._table(timeline, layout, width)

    def _how(self, width: int) -> list[Row]:
        role, hint = self.hint
        rows = []
        for style, text in ((roles.BRIGHT, _NONE), (" ", " "), (role, hint), (" ", " "), (roles.DIM, _WHAT)):
            pieces = textwrap.wrap(self.look.text(text), max(10, min(90, width - 2))) or [""]
            rows += [Line().add(" ", " ").add(piece, style).row(width) for piece in pieces]
        return rows

    def _answer(self, timeline: StepTimeline, width: int) -> list[Row]:
        level, checked = recorded_words.check_line(timeline)
        notices = recorded_words.notice_lines(timeline)
        ellipsis = self.look.glyphs.ellipsis
        answers = [self.look.text(recorded_words.peak_line(timeline, named)) for named in range(5)]
        fitting = [answer for answer in answers if len(cells(answer)) <= width - 2]
        answer = fitting[-1] if fitting else shorten(answers[0], width - 2, ellipsis)
        role = roles.DIM if level in ("good", "unknown") else roles.LEVELS[level]
        line = Line().add(" ", " ").add(answer, roles.BRIGHT)
        below = Line().add(" ", " ").add(shorten(self.look.text(checked), width - 2, ellipsis), role)
        which = ""
        if len(self.steps) > 1:
            count = len(self.steps)
            which = f"recorded step {count - min(self.back, count - 1)} of {count}: , ."
        room = width - below.width - (len(which) + 3 if which else 1)
        if notices and room >= 20:
            below.add(f" {self.look.glyphs.dot} ", roles.FAINT)
            below.add(shorten(self.look.text("; ".join(notices)), room - 3, ellipsis), roles.NOTE)
        if which and below.width + len(which) + 3 <= width:
            below.pad(width - len(which) - 1).add(which, roles.DIM)
        return [line.row(width), below.row(width)]

    def _chart(self, timeline: StepTimeline, layout: StepLayout, width: int) -> list[Row]:
        if layout.chart < 4:
            return [EMPTY] * layout.chart
        edges, columns, picture = self._columns(timeline, layout)
        window = self.window
        place = window.column_of(edges, window.instant(timeline))
        peak = window.column_of(edges, timeline.peak)
        rows = steppicture.marked(picture, timeline, columns, place, peak, self.look)
        unit = steppicture.step_scale(timeline, len(picture)).unit
        rows.append(steppicture.time_axis(timeline, window, layout.cells, place, unit, self.look))
        rows.append(steppicture.phase_strip(timeline, edges, self.look))
        beside = self._figures(timeline, layout.figures, len(rows)) if layout.figures else []
        beside += [EMPTY] * (len(rows) - len(beside))
        return [Row(left.text + right.text, left.roles + right.roles) for left, right in zip(rows, beside)]

    def _figures(self, timeline: StepTimeline, width: int, height: int) -> list[Row]:
        """What the instant is made of, by category: the picture's legend too."""
        instant = self.window.instant(timeline)
        total = timeline.totals[instant]
        title = "at the peak" if instant == timeline.peak else "at the cursor"
        rows = [self._figure(Line().add("  ", " ").add(title, roles.BRIGHT), total, "", width, roles.BRIGHT)]
        ever = [max(column) for column in zip(*(each.composition for each in self._picture[2]))]
        entries = [
            (name, held)
            for name, held, most in zip(timeline.categories, timeline.composition(instant), ever)
            if most or held
        ]
        if len(entries) > height - 1:
            entries = [entry for entry in entries if entry in sorted(entries, key=lambda each: -each[1])[: height - 1]]
        for name, held in reversed(entries):  # as they lie on each other
            named = band(name, held)
            letter = self.look.text(named.letter)
            line = Line().add("  ", " ").add(letter if len(letter) == 1 else "?", roles.ink(name))
            label = named.label if width >= WIDE else SHORT.get(name, named.label)
            line.add(" " + clip(self.look.text(label), width - 22, self.look.glyphs.ellipsis), roles.DIM)
            rows.append(self._figure(line, held, units.percent(held, total), width, roles.TEXT if held else roles.DIM))
        return rows

    @staticmethod
    def _figure(line: Line, held: int, share: str, width: int, role: str) -> Row:
        unit = units.unit_of(held)
        line.pad(width - 18).add(f"{units.number(held, unit):>7} {unit:<3}", role)
        return line.add(f"{share:>6} ", roles.DIM).row(width)

    def _room(self, layout: StepLayout) -> int:
        """Lines for the table's rows; those for the marked row's details are taken from them."""
        room = layout.table - 2
        return room - _DETAILS if self.marked is not None and room >= 2 * _DETAILS else room

    def _scroll_to_mark(self) -> None:
        room = max(1, self._room(self._layout()))
        if self.marked is not None:
            self.first = max(0, min(max(self.first, self.marked - room + 1), self.marked))

    def _table(self, timeline: StepTimeline, layout: StepLayout, width: int) -> list[Row]:
        if layout.table < 2:
            return []
        found = self.groups()
        if self.marked is not None and self.marked >= len(found):
            self.marked = len(found) - 1 if found else None
        room = max(0, self._room(layout))
        self.first = max(0, min(self.first, len(found) - room))
        instant = self.window.instant(timeline)
        rows = [self._title(timeline, found, room, width), steptable.head(width, self.by, self.look)]
        rows += steptable.rows(
            found, self.by, self.first, room, timeline.totals[instant], self.marked, width, self.look
        )
        if self.marked is not None and room < layout.table - 2:
            rows += [EMPTY] * (2 + room - len(rows))
            rows += steptable.details(found[self.marked], width, self.look)
        return rows

    def _title(self, timeline: StepTimeline, found: tuple[Group, ...], room: int, width: int) -> Row:
        instant = self.window.instant(timeline)
        line = Line().add(" ", " ")
        for by in GROUPINGS:
            shown = _TITLES[by]
            if width < 80 and by != self.by:
                continue
            line.add(f" {shown} ", roles.ACTIVE if by == self.by else roles.DIM)
        where = "" if instant == timeline.peak else recorded_words.instant_words(timeline, instant)
        if len(found) > room:
            where += f"   {self.first + 1:,} to {min(len(found), self.first + room):,} of {len(found):,}"
        where = self.look.text(where.strip())
        if where and line.width + len(where) + 3 <= width:
            line.pad(width - len(where) - 1).add(where, roles.DIM)
        return line.row(width)
