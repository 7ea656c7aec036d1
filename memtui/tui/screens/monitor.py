"""The screen: one process on one device, redrawn at most ten times a second."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Optional

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import Screen
from textual.widget import Widget

from memtui.analysis.view import View
from memtui.tui import messages
from memtui.tui.ending import first_line_only, status_to_come
from memtui.tui.exhausted import Exhausted
from memtui.tui.feed import BuildView, ExitText, Feed
from memtui.tui.look import Look
from memtui.tui.paint import paint
from memtui.tui.plan import LEAST_HEIGHT, LEAST_WIDTH, plan
from memtui.tui.segments import LiveSegments
from memtui.tui.status import Status
from memtui.tui.steps import RecordedSteps
from memtui.tui.tensors import LiveTensors
from memtui.tui.timeline import Timeline
from memtui.tui.widgets.bar import Bar
from memtui.tui.widgets.chart import Chart
from memtui.tui.widgets.events import Events
from memtui.tui.widgets.evidence import Evidence
from memtui.tui.widgets.figures import Figures
from memtui.tui.widgets.header import Header
from memtui.tui.widgets.keys import Keys
from memtui.tui.widgets.lines import Lines
from memtui.tui.widgets.segments import SegmentMap
from memtui.tui.widgets.small import Small
from memtui.tui.widgets.step import Step
from memtui.tui.widgets.tensors import TensorList

if TYPE_CHECKING:
    from memtui.tui.program import ProgramTab
    from memtui.tui.widgets.output import OutputPane

#: Between two looks at the feed: nobody reads more than four numbers a second. A chart that moves fast is looked at
#: every FAST_S.
LOOK_S, FAST_S = 0.25, 0.1

#: Without anything new, the state ("no frame for 3 s") is looked at so often; of the time, drawing takes at most
#: this share: a slow machine or terminal gets fewer frames.
IDLE_S, SHARE = 1.0, 0.2

#: Lines that are no longer needed are given back after so long.
STEADY_S = 5.0
#: Up to so many drawings a second, the picture moves by so many columns at a time.
SLOW_HZ, SLOW_STRIDE = 2, 4


class MonitorScreen(Screen[None], inherit_bindings=False):
    """The parts of the screen, what they show, and the keys that change it."""

    # Textual would give the keyboard to the program's pane, hidden or not, whenever a dialog closes.
    AUTO_FOCUS = ""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p,space", "pause", "pause or go on"),
        Binding("plus,equals_sign,z", "zoom(-1)", "zoom in"),
        Binding("minus,x", "zoom(1)", "zoom out"),
        Binding("left", "move(-1)", "back in time"),
        Binding("right", "move(1)", "forward in time"),
        Binding("shift+left,ctrl+left", "move(-10)", show=False),
        Binding("shift+right,ctrl+right", "move(10)", show=False),
        Binding("pageup", "page(-1)", "half a window back"),
        Binding("pagedown", "page(1)", "half a window forward"),
        Binding("home", "oldest", "the oldest figures"),
        Binding("end", "newest", "live"),
        Binding("up", "row(-1)", "the figure above"),
        Binding("down", "row(1)", "the figure below"),
        Binding("escape", "escape", show=False),
        Binding("y", "fit", "scale to the device or to the data"),
        Binding("right_square_bracket,tab", "device(1)", "next device"),
        Binding("left_square_bracket,shift+tab", "device(-1)", "previous device"),
        Binding("1", "tab('memory')", "memory"),
        Binding("2", "tab('events')", "events"),
        Binding("3", "tab('output')", "output"),
        Binding("4", "tab('step')", "recorded step"),
        Binding("d", "record", "record the next step"),
        Binding("r", "record(True)", "save the next step's allocator history"),
        Binding("5", "tab('tensors')", "live tensors"),
        Binding("6", "tab('segments')", "segments"),
    ]

    def __init__(
        self, feed: Feed, build: BuildView, look: Look, device: Optional[str] = None, rate_hz: float = 10
    ) -> None:
        super().__init__()
        self._least_s = 1 / rate_hz  # between two drawings
        self.feed, self.build, self.look = feed, build, look
        self.device = device
        self.device_chosen = device is not None
        self.view: View | None = None
        self.tab = "memory"
        self.frames_drawn = 0
        self.program_tab: ProgramTab | None = None
        self._revision: tuple[object, ...] = ()
        self._looked_at = 0.0
        self._planned: object = None
        self._cursor_before: int | None = None
        self._evidence_wanted = self._legend_wanted = 0
        self._fewer_since: float | None = None
        self.header = Header(look, id="header")
        self.chart = Chart(look, id="chart")
        # Where so few drawings are wanted, the link is slow: all of the picture is sent each time that it moves.
        self.chart.stride = SLOW_STRIDE if rate_hz <= SLOW_HZ else 1
        self.figures = Figures(look, id="figures")
        self.bar = Bar(look, id="bar")
        self.evidence = Evidence(look, id="evidence")
        self.event_strip = Events(look, id="event-strip")
        self.event_list = Events(look, full=True, id="event-list")
        self.step = Step(look, id="step")
        self.tensor_list = TensorList(look, id="tensors")
        self.segment_map = SegmentMap(look, id="segments")
        self.keys = Keys(look, id="keys")
        self.small = Small(look, id="small")
        self.timeline = Timeline(feed, self.chart)
        self.status = Status(self.timeline)
        self.recorded = RecordedSteps(feed, self.step, self.status.say)
        self.live_tensors = LiveTensors(feed, self.tensor_list)
        self.live_segments = LiveSegments(feed, self.segment_map)
        self.exhausted = Exhausted(feed, self.status.say)

    def compose(self) -> ComposeResult:
        """From top to bottom; the tabs' contents lie in the same place, one of them shown."""
        yield self.header
        with Vertical(id="memory"):
            with Horizontal(id="top"):
                yield self.chart
                yield self.figures
            yield self.bar
            yield self.evidence
            yield self.event_strip
        for pane in (self.event_list, self.step, self.tensor_list, self.segment_map):
            pane.display = False
            yield pane
        yield self.keys
        yield self.small

    def on_mount(self) -> None:
        """Begins to look at the feed."""
        self._name_tabs()
        self.refresh_view()
        self._arrange()
        self.run_worker(self._look(), name="look")
        self.app.app_resume_signal.subscribe(self, self._resumed_app)
        if self.feed.replay:
            self.keys.replay = self.header.replay = True
            self.chart.input.end_label, self.chart.input.recorded = "end", True

    def on_resize(self) -> None:
        """Divides the lines anew."""
        width, height = self.app.size
        self.set_class(width < LEAST_WIDTH or height < LEAST_HEIGHT, "-small")
        self._evidence_wanted = self._legend_wanted = 0
        self._arrange()

    # Drawing

    async def _look(self) -> None:
        # A task, and no timer of Textual's, whose every tick goes through three queues of messages.
        while True:
            began = time.monotonic()
            if self.is_current and not self.has_class("-small"):
                self.tick()
            took = time.monotonic() - began
            period = max(self._least_s, FAST_S if self.tab == "memory" and self.chart.fast else LOOK_S)
            await asyncio.sleep(max(period - took, took / SHARE - took))

    def tick(self) -> None:
        """Looks at the feed, and draws what changed."""
        session = self.feed.session
        wait = IDLE_S if (id(session), session.revision) == self._revision else LOOK_S
        due = time.monotonic() - self._looked_at > wait - FAST_S / 2
        self._draw(view=due and self.timeline.paused_ns is None, chart=due or self.chart.fast)

    def draw_changes(self, *, force: bool = False) -> None:
        """Brings every visible part up to date at once; with `force` the figures too."""
        self._draw(view=force, chart=True)

    def _draw(self, *, view: bool, chart: bool) -> None:
        if view:
            self.refresh_view()
        elif chart and self.timeline.paused_ns is None:
            self._feed_chart()
        self.recorded.look(self.timeline.device)
        self.header.status = self.status.line(self.view, self.figures.cursor)
        shown: list[Lines] = [self.header, self.keys]
        if self.tab == "memory":
            if chart:
                shown.append(self.chart)
            if view or self.figures.cursor != self._cursor_before:
                shown += [self.figures, self.bar, self.evidence, self.event_strip]
            self._cursor_before = self.figures.cursor
        elif self.tab == "events":
            shown.append(self.event_list)
        elif self.tab == "step":
            shown.append(self.step)
        elif self.tab in ("tensors", "segments"):
            timeline, asker = self.timeline, self.live_tensors if self.tab == "tensors" else self.live_segments
            asker.look(timeline.device, timeline.now_ns(), paused=timeline.paused_ns is not None)
            shown.append(asker.pane)
        if paint(self, shown, self.look):
            self.frames_drawn += 1

    def refresh_view(self) -> None:
        """Asks the analysis anew and hands its answer to the parts."""
        session = self.feed.session
        self._revision, self._looked_at = (id(session), session.revision), time.monotonic()
        if not self.device_chosen and (self.device in (None, "host") or session.device(self.device or "") is None):
            self.device = session.default_device()
        self.timeline.device = self.device or "host"
        view = self.build(session, self.timeline.device, self.timeline.now_ns())
        if session.end is not None:
            view = first_line_only(view, session.end.text)
            program = self.feed.program
            if program is not None and program.running and session.end.exit_status is None:
                view = status_to_come(view)
        if self.timeline.paused_ns is not None:
            view = replace(view, state="paused")
        self.view = view
        self.header.view = self.figures.view = self.evidence.view = view
        self.bar.bar = view.bar
        self.event_strip.events = self.event_list.events = view.events
        self.keys.several_devices, self.keys.failed = len(view.devices) > 1, self.exhausted.look()
        self._feed_chart()
        self._arrange()

    def _feed_chart(self) -> None:
        view, session, given = self.view, self.feed.session, self.chart.input
        if view is None:
            return
        given.now_ns, given.first_ns = self.timeline.end_ns(), self.timeline.first_ns()
        given.allocated = session.series(view.device, "allocated_bytes")
        given.reserved = session.series(view.device, "reserved_bytes")
        given.device = session.series(view.device, "device_used_bytes")
        given.device_label = next(
            (row.label for row in view.rows if row.key == "device_used_bytes"), given.device_label
        )
        given.rules = view.rules
        given.phases = session.phases
        given.wall_offset_ns = None if session.hello is None else session.hello.wall_offset_ns
        given.step_ns = None if session.frame is None else session.frame.last_step_ns

    def say(self, text: str) -> None:
        """A line that goes away by itself."""
        self.status.say(text)
        self.draw_changes()

    # Lines

    def _arrange(self) -> None:
        width, height = self.app.size
        if not self.is_mounted or not width:
            return
        self._evidence_wanted = self._steady(self.evidence.wanted(width))
        # The width of its figures changes with every look; a line that comes and goes would move the whole screen.
        self._legend_wanted = max(self._legend_wanted, self.bar.legend_height(width))
        wanted = plan(width, height - self.header.extra(width), self._legend_wanted, self._evidence_wanted)
        if wanted == self._planned:
            return
        self._planned = wanted
        self.header.styles.height = Header.HEIGHT + self.header.extra(width)
        self.chart.phase_strip = self.figures.phase_legend = wanted.phase_strip
        self.query_one("#top").styles.height = wanted.chart
        self.figures.styles.width = wanted.figures_width
        self.figures.display = wanted.figures_width > 0
        for part, lines, gap in (
            (self.bar, wanted.bar, wanted.gap),
            (self.evidence, wanted.evidence, wanted.gap),
            (self.event_strip, wanted.events, 0),
        ):
            part.display = lines > 0
            part.styles.height = lines
            part.styles.margin = (gap, 0, 0, 0)

    def _steady(self, lines: int) -> int:
        """Lines for the evidence: more at once, fewer only after a while, so that the screen does not jump."""
        now = time.monotonic()
        if lines >= self._evidence_wanted:
            self._fewer_since = None
            return lines
        if self._fewer_since is None:
            self._fewer_since = now
        return lines if now - self._fewer_since > STEADY_S else self._evidence_wanted

    def set_look(self, look: Look) -> None:
        """Another theme, everywhere."""
        self.look = look
        for part in self.query(Lines):
            part.set_look(look)

    # Tabs

    def _name_tabs(self) -> None:
        tabs = [("1", "memory"), ("2", "events")]
        if self.program_tab is not None:
            tabs.append(("3", "output"))
        tabs += [("4", "step"), ("5", "tensors"), ("6", "segments")]
        self.keys.tabs, self.keys.active = tuple(tabs), self.tab

    async def add_program(self, program_tab: ProgramTab) -> None:
        """Gives the program's terminal its tab."""
        self.program_tab = program_tab
        program_tab.pane.display = self.tab == "output"
        await self.mount(program_tab.pane, before=self.keys)
        self._name_tabs()
        self.draw_changes()

    def program_ended(self, status: Optional[ExitText]) -> None:
        """Nobody is there to type to: the keyboard comes back. `status` is None where it is not known."""
        if status is not None:
            # Known here: the screen is not to say for the moment that it is not.
            number = status.code if status.signal is None else -status.signal
            self.feed.session.ended(self.feed.now_ns(), number)
        if self.program_tab is not None:
            self.program_tab.pane.can_focus = False
            if self.typing:
                self.set_focus(None)
            self.keys.typing = False
        self.draw_changes()

    def action_tab(self, name: str) -> None:
        """Shows one of the tabs."""
        pane = None if self.program_tab is None else self.program_tab.pane
        if name == "output" and pane is None:
            reason = "a log holds none" if self.feed.replay else "the program was not started by memtui run"
            self.say(f"no output here: {reason}")
            return
        self.tab = name
        places: dict[str, Widget | None] = {
            "memory": self.query_one("#memory"),
            "events": self.event_list,
            "output": pane,
            "step": self.step,
            "tensors": self.tensor_list,
            "segments": self.segment_map,
        }
        for place, widget in places.items():
            if widget is not None:
                widget.display = place == name
        self._name_tabs()
        # What has the keyboard has the keys of its own place.
        chosen = places[name] if name not in ("memory", "events") else None
        self.set_focus(chosen if chosen is not None and chosen.can_focus else None)
        self.draw_changes(force=True)

    @property
    def typing(self) -> bool:
        """Whether the keyboard is the program's."""
        return self.program_tab is not None and self.focused is self.program_tab.pane

    def on_output_pane_input(self, message: OutputPane.Input) -> None:
        """Keys for the program."""
        if self.program_tab is not None:
            self.program_tab.on_input(message)

    def on_output_pane_reply(self, message: OutputPane.Reply) -> None:
        """The terminal's answer for the program."""
        if self.program_tab is not None:
            self.program_tab.on_reply(message)

    def on_output_pane_resized(self, message: OutputPane.Resized) -> None:
        """The size of the program's terminal."""
        if self.program_tab is not None:
            self.program_tab.on_resized(message)

    @on(events.DescendantFocus)
    @on(events.DescendantBlur)
    def _keyboard_given(self) -> None:
        self.keys.typing = self.typing
        self.draw_changes()

    # Keys

    def action_pause(self) -> None:
        """Holds the picture still, or goes on."""
        self.timeline.toggle_pause()
        self.keys.paused = self.timeline.paused_ns is not None
        self.draw_changes(force=True)

    def action_zoom(self, steps: int) -> None:
        """Zooms out by `steps`."""
        before = self.timeline.window
        self.timeline.zoom(steps)
        if steps < 0 and self.timeline.window.span == before.span:
            self.status.say("no closer: frames are too far apart to show more")
        self.draw_changes()

    def action_move(self, columns: int) -> None:
        """Moves the cursor; in a recording that is the instant that is shown."""
        self.timeline.move(columns)
        self.draw_changes(force=self.feed.replay)

    def action_page(self, direction: int) -> None:
        """Moves by half a window."""
        if self.tab == "events":
            self.event_list.scroll_events(direction * max(1, self.event_list.size.height - 4))
            self.draw_changes()
        elif self.tab == "output" and self.program_tab is not None:
            self.program_tab.pane.action_scroll_back(-direction)
        else:
            self.action_move(direction * max(1, self.chart.cells // 2))

    def action_oldest(self) -> None:
        """The cursor at the oldest figures."""
        self.timeline.oldest()
        self.draw_changes(force=self.feed.replay)

    def action_newest(self) -> None:
        """Live again, or the end of the recording."""
        self.timeline.newest()
        self.draw_changes(force=self.feed.replay)

    def show_recording(self) -> None:
        """A recording has been read."""
        self.refresh_view()
        self.timeline.show_recording()
        self.draw_changes(force=True)

    def action_escape(self) -> None:
        """Takes back, one after the other, the marked figure and the cursor."""
        if self.figures.cursor is not None:
            self.figures.cursor = None
            self.draw_changes()
        elif not self.feed.replay:
            self.action_newest()

    def action_row(self, by: int) -> None:
        """Marks the next figure, whose meaning then stands under the verdict."""
        if self.tab == "events":
            self.event_list.scroll_events(by)
        elif self.view is not None and self.view.rows:
            count = min(len(self.view.rows), max(1, self.figures.size.height))
            now = self.figures.cursor
            self.figures.cursor = (0 if by > 0 else count - 1) if now is None else (now + by) % count
        self.draw_changes()

    def action_fit(self) -> None:
        """The scale goes up to the device's capacity, or fits the data."""
        self.chart.input.fit = not self.chart.input.fit
        self.say("the scale fits the data" if self.chart.input.fit else "the scale fits the device")

    def action_record(self, save: bool = False) -> None:
        """Asks for a record of the next step, or saves its allocator history."""
        self.recorded.save() if save else self.recorded.ask()
        self.draw_changes()

    @on(messages.TabTurned)
    def _tab_turned(self) -> None:
        self.draw_changes()

    def action_device(self, by: int) -> None:
        """Shows another device of the process."""
        names = [choice.device for choice in self.view.devices] if self.view else []
        if len(names) < 2:
            self.say("the process uses one device only")
            return
        place = names.index(self.device) if self.device in names else 0
        self.show_device(names[(place + by) % len(names)])

    def show_device(self, name: str) -> None:
        """Shows a device of the process, from now on whatever happens."""
        self.device, self.device_chosen = name, True
        self._evidence_wanted = self._legend_wanted = 0
        self.draw_changes(force=True)

    # The mouse

    @on(messages.ChartPointed)
    def _pointed(self, message: messages.ChartPointed) -> None:
        self.timeline.point(message.time_ns)
        self.draw_changes(force=self.feed.replay)

    @on(messages.ChartZoomed)
    def _zoomed(self, message: messages.ChartZoomed) -> None:
        self.action_zoom(message.steps)

    @on(messages.RowPointed)
    def _row_pointed(self, message: messages.RowPointed) -> None:
        self.figures.cursor = None if message.row == self.figures.cursor else message.row
        self.draw_changes()

    @on(messages.TabPointed)
    def _tab_pointed(self, message: messages.TabPointed) -> None:
        self.action_tab(message.name)

    def _resumed_app(self, _: object) -> None:
        # Textual takes the terminal back as it was, which after a shell's prompt it is not.
        self.app.refresh(layout=True)
