"""The screen of a memory snapshot: its answers, its timeline with a cursor, and what was there at the cursor."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple, Optional

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from memtui.analysis import units
from memtui.snapshots.answers import Answer, Mark, Overview, answer, overview
from memtui.snapshots.moments import place_words
from memtui.snapshots.queries import Opened
from memtui.tui import messages
from memtui.tui.asker import Asker
from memtui.tui.look import Look
from memtui.tui.paint import paint
from memtui.tui.plan import LEAST_HEIGHT, LEAST_WIDTH
from memtui.tui.plot.coursewindow import CourseWindow
from memtui.tui.widgets.course import ANSWER_LINES, READING, Course
from memtui.tui.widgets.flame import FlameView
from memtui.tui.widgets.keys import SNAPSHOT_KEYS_OF, Keys
from memtui.tui.widgets.lines import Lines
from memtui.tui.widgets.small import Small
from memtui.tui.widgets.snapshotrows import Rows, Segments, rows_of
from memtui.tui.widgets.snapshottable import SnapshotTable

from .page import Entries, PageScreen

#: (key, tab, title); the last one is there while an instant is marked.
TABS = (
    ("1", "live", "live by line"),
    ("2", "categories", "by category"),
    ("3", "largest", "largest blocks"),
    ("4", "flame", "flame"),
    ("5", "segments", "segments at the end"),
    ("6", "difference", "difference"),
)
_TITLES = {tab: title for _, tab, title in TABS}
#: What was said goes away after so long.
SAID_S = 6.0
#: The timeline's part of the lines below the answers.
_CHART_PERCENT = 42

KEYS: Entries = (
    ("Time", ""),
    ("← →", "the cursor, by columns: each time to the most in one; in the flame view, to the box beside"),
    ("shift+← →", "ten columns"),
    (",  .", "one event back, or on"),
    ("home  end", "before the first event; the end"),
    ("p  e", "the peak; the end"),
    ("o  O", "the next, or the last, request that failed, with what was there then"),
    ("+ -   z x", "zoom in on the cursor; zoom out"),
    ("y", "the scale fits what was reserved, or what was allocated"),
    ("m", "mark this instant: 6 shows what is different since; again: no mark"),
    ("Places", ""),
    ("1", "what is live at the cursor, by the line that allocated it; enter: the whole stack"),
    ("2", "what it is for, where a stack tells; enter: its lines"),
    ("3", "the largest blocks; enter: address and stack"),
    ("4", "flame view: calls as wide as what they hold; ↑ ↓ ← → choose, enter fills the width, escape goes out"),
    ("5", "the allocator's segments at the end, those that live blocks pin first; enter: a segment's largest blocks"),
    ("6", "what is different since the marked instant, or from the other snapshot"),
    ("↑ ↓  page up, page down", "a row"),
    ("[  ]   tab", "the previous and the next device"),
    ("n", "what is odd about this snapshot"),
    ("Else", ""),
    ("t", "the next theme"),
    ("ctrl+p", "all commands: themes, a picture of the screen"),
    ("q  ctrl+c", "quit; on a page like this one: back"),
    ("How to read the screen", ""),
    ("area", "allocated: dark up to the least in a column, bright from there to the most"),
    ("thick line", "reserved"),
    ("▼  !  m", "the peak; a request that failed; the marked instant"),
    ("P O f b o ? -", "parameters, optimizer, forward, backward, other, no Python stack, before the recording"),
    ("figures before the end", "derived: events tell what was asked for, the end what the allocator gave"),
)


class Start(NamedTuple):
    """What is looked at first: a device, an instant, and a mark to compare with."""

    opened: Opened
    number: int
    mark: Optional[Mark] = None


class SnapshotScreen(Screen[None], inherit_bindings=False):
    """Asks on a thread of its own; what it shows meanwhile is what is known, and it says that it reads."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "beside(-1)", "back"),
        Binding("right", "beside(1)", "on"),
        Binding("shift+left,ctrl+left", "move(-10)", show=False),
        Binding("shift+right,ctrl+right", "move(10)", show=False),
        Binding("comma", "event(-1)", "an event back"),
        Binding("full_stop", "event(1)", "an event on"),
        Binding("home", "instant('start')", "before the first event"),
        Binding("p", "instant('peak')", "the peak"),
        Binding("e,end", "instant('end')", "the end"),
        Binding("o", "failure(1)", "the next request that failed"),
        Binding("O", "failure(-1)", show=False),
        Binding("plus,equals_sign,z", "zoom(-1)", "zoom in"),
        Binding("minus,x", "zoom(1)", "zoom out"),
        Binding("y", "fit", "scale to what was reserved or allocated"),
        Binding("m", "mark", "mark this instant"),
        Binding("up,k", "row(-1)", "the row above"),
        Binding("down,j", "row(1)", "the row below"),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("enter", "enter", "open"),
        Binding("escape", "escape", show=False),
        Binding("right_square_bracket,tab", "device(1)", "next device"),
        Binding("left_square_bracket,shift+tab", "device(-1)", "previous device"),
        Binding("n", "notes", "notes"),
        *(Binding(key, f"tab('{tab}')", title) for key, tab, title in TABS),
    ]

    def __init__(self, look: Look, name: str, start: Callable[[], Start]) -> None:
        super().__init__()
        self.look, self._start = look, start
        self.tab = "live"
        self.mark: Optional[Mark] = None
        self.answer: Optional[Answer] = None
        self._asked: tuple[object, ...] = ()
        self._shown: tuple[str, object] = ("", None)
        self._segments = Segments(())
        self._asker: Optional[Asker] = None
        self.course = Course(look, name, id="course")
        self.table = SnapshotTable(look, id="table")
        self.flame = FlameView(look, id="flame")
        self.keys = Keys(look, id="keys")
        self.keys.keys_of = SNAPSHOT_KEYS_OF
        self.small = Small(look, id="small")

    def compose(self) -> ComposeResult:
        """From top to bottom; the table and the flame view lie in the same place."""
        yield self.course
        self.flame.display = False
        yield self.table
        yield self.flame
        yield self.keys
        yield self.small

    def on_mount(self) -> None:
        """Begins to read."""
        self._asker = Asker(self.post_message)
        self._ask_for(self._start)
        self.draw_changes()

    def on_resize(self) -> None:
        """Divides the lines anew."""
        width, height = self.app.size
        self.set_class(width < LEAST_WIDTH or height < LEAST_HEIGHT, "-small")
        room = max(0, height - ANSWER_LINES - 1)
        self.course.styles.height = ANSWER_LINES + max(5, room * _CHART_PERCENT // 100)

    # What is read

    def _ask_for(self, start: Callable[[], Start]) -> None:
        def read() -> messages.SnapshotOpened:
            opened, number, mark = start()
            return messages.SnapshotOpened(overview(opened), number, mark)

        if self._asker is not None:
            self._asker.ask(read)

    @on(messages.SnapshotOpened)
    def opened(self, message: messages.SnapshotOpened) -> None:
        """A device is there to be looked at."""
        self.mark, self.answer, self._asked = message.mark, None, ()
        self.course.show(message.overview, message.number, message.mark)
        self._segments = Segments(message.overview.opened.device.segments)
        self.keys.failed = bool(message.overview.failures)
        self.keys.several_devices = len(message.overview.opened.snapshot.devices) > 1
        if message.mark is not None:
            self.tab = "difference"
        elif self.tab == "difference":
            self.tab = "live"
        notices = len(message.overview.notices)
        if notices:
            self.say(f"{notices:,} note{'s' * (notices != 1)} on this snapshot: n")
        self.draw_changes()

    @on(messages.InstantAnswered)
    def answered(self, message: messages.InstantAnswered) -> None:
        """An instant is known; it is shown also where the cursor has gone on meanwhile."""
        if message.overview is self.overview:
            self.answer = message.answer
            self.draw_changes()

    @property
    def overview(self) -> Optional[Overview]:
        """The device that is looked at; None while it is being read."""
        return self.course.overview

    @property
    def settled(self) -> bool:
        """Whether all that is asked for is there."""
        found = self.answer
        return found is not None and found.at.number == self.course.window.cursor and found.mark is self.mark

    def _ask(self) -> None:
        whole, number, mark = self.overview, self.course.window.cursor, self.mark
        if whole is None or self._asker is None or self._asked == (whole, number, mark):
            return
        self._asked = (whole, number, mark)
        self._asker.ask(lambda: messages.InstantAnswered(whole, answer(whole.opened, number, mark)))

    # Drawing

    @on(messages.SnapshotTurned)
    def draw_changes(self) -> None:
        """Asks for what is not known of the cursor, and shows all that is."""
        self._ask()
        self.course.mark, self.course.answer = self.mark, self.answer
        tabs = TABS if self.mark is not None else TABS[:-1]
        self.keys.tabs, self.keys.active = tuple((key, tab) for key, tab, _ in tabs), self.tab
        self.table.display, self.flame.display = self.tab != "flame", self.tab == "flame"
        self._fill()
        shown: list[Lines] = [self.course, self.flame if self.tab == "flame" else self.table, self.keys]
        paint(self, shown, self.look)

    def _fill(self) -> None:
        found, whole = self.answer, self.overview
        self.flame.show(None if found is None else found.flame)
        source = self._segments if self.tab == "segments" else found
        if self._shown == (self.tab, source) and self.table.right == self._right():
            return
        rows: Optional[Rows] = self.table.rows
        if self._shown != (self.tab, source):
            rows = None
            if whole is not None and found is not None:
                rows = rows_of(self.tab, found, whole.opened, self._segments)
        title, right, anew = _TITLES[self.tab], self._right(), self.tab != self._shown[0]
        self.table.show(title, right, rows, READING, anew=anew)
        self._shown = (self.tab, source)

    def _right(self) -> str:
        """Of which instant the table is."""
        found, whole = self.answer, self.overview
        if found is None or whole is None or self.tab == "segments":
            return ""
        at, course = found.at.number, whole.opened.course
        words = place_words(at, course)
        words = f"at {words}: {units.size(found.at.allocated_bytes)}"
        if self.tab == "difference" and self.mark is not None:
            words = f"{words}, since {self.mark.words}"
        return words if self.settled else f"{words}; {READING}"

    def say(self, text: str) -> None:
        """A line that goes away by itself."""
        self.course.said = text
        self.set_timer(SAID_S, lambda: self._unsay(text))
        self.draw_changes()

    def _unsay(self, text: str) -> None:
        if self.course.said == text:
            self.course.said = ""
            self.draw_changes()

    def set_look(self, look: Look) -> None:
        """Another theme, everywhere."""
        self.look = look
        for part in self.query(Lines):
            part.set_look(look)

    # Keys

    def _turn(self, window: CourseWindow) -> None:
        if self.overview is not None:
            self.course.window = window
            self.draw_changes()

    def action_beside(self, by: int) -> None:
        """The column beside, or in the flame view the box."""
        if self.tab == "flame":
            self.flame.go(0, by)
            self.draw_changes()
        else:
            self.action_move(by)

    def action_move(self, columns: int) -> None:
        """Moves the cursor by columns."""
        self.course.move(columns)
        self.draw_changes()

    def action_event(self, by: int) -> None:
        """Moves the cursor by events."""
        self._turn(self.course.window.at(self.course.window.cursor + by))

    def action_instant(self, name: str) -> None:
        """The start, the peak or the end."""
        whole = self.overview
        if whole is not None:
            places = {"start": 0, "peak": whole.opened.course.peak, "end": whole.last}
            self._turn(self.course.window.at(places[name]))

    def action_failure(self, way: int) -> None:
        """The next request that failed, from the first again after the last."""
        failures = () if self.overview is None else self.overview.failures
        if not failures:
            self.say("no request failed while this was recorded")
            return
        now = self.course.window.cursor
        beyond = [each for each in failures if (each - now) * way > 0]
        target = (min(beyond) if way > 0 else max(beyond)) if beyond else failures[0 if way > 0 else -1]
        self._turn(self.course.window.at(target))

    def action_zoom(self, steps: int) -> None:
        """Zooms out by `steps`, the cursor in its place."""
        self._turn(self.course.window.zoomed(steps))

    def action_fit(self) -> None:
        """The other scale."""
        self.course.fit = not self.course.fit
        self.draw_changes()

    def action_mark(self) -> None:
        """Marks the cursor's instant, or takes its mark away."""
        whole, number = self.overview, self.course.window.cursor
        if whole is None:
            return
        if self.mark is not None and self.mark.opened is whole.opened and self.mark.number == number:
            self.mark = None
            self.tab = "live" if self.tab == "difference" else self.tab
        else:
            course = whole.opened.course
            words = place_words(number, course)
            self.mark = Mark(whole.opened, number, words)
            self.say("marked: 6 shows what is different since")
        self.draw_changes()

    @on(messages.TabPointed)
    def tab_pointed(self, message: messages.TabPointed) -> None:
        """A tab's name was clicked."""
        self.action_tab(message.name)

    def action_tab(self, name: str) -> None:
        """Shows one of the tabs."""
        if name == "difference" and self.mark is None:
            self.say("no instant is marked: m marks the one at the cursor")
            return
        self.tab = name
        self.draw_changes()

    def action_row(self, by: int) -> None:
        """The next row, or box."""
        if self.tab == "flame":
            self.flame.go(by, 0)
        else:
            self.table.mark(self.table.marked + by)
        self.draw_changes()

    def action_page(self, direction: int) -> None:
        """A page of rows."""
        self.table.page(direction)
        self.draw_changes()

    def action_enter(self) -> None:
        """Opens the marked row, or closes it; the chosen box fills the width."""
        if self.tab == "flame":
            self.flame.zoom()
        else:
            self.table.open = not self.table.open
        self.draw_changes()

    def action_escape(self) -> None:
        """Takes back what was opened, or zoomed into."""
        window = self.course.window
        if self.tab == "flame" and self.flame.out():
            pass
        elif self.tab != "flame" and self.table.open:
            self.table.open = False
        else:
            self.course.window = CourseWindow.whole(window.instants, window.cursor)
        self.draw_changes()

    def action_device(self, by: int) -> None:
        """Another device of the same snapshot, at its peak."""
        whole = self.overview
        if whole is None:
            return
        snapshot, devices = whole.opened.snapshot, whole.opened.snapshot.devices
        if len(devices) < 2:
            self.say("this snapshot has one device")
            return
        device = devices[(devices.index(whole.opened.device) + by) % len(devices)]

        def other() -> Start:
            opened = Opened(snapshot, device)
            return Start(opened, opened.course.peak)

        self.say(f"reading {device.name}…")
        self._ask_for(other)

    def action_notes(self) -> None:
        """All that is odd about the snapshot."""
        whole = self.overview
        entries: list[tuple[str, str]] = []
        for notice in () if whole is None else whole.notices:
            entries.append(("", notice))
        self.app.push_screen(PageScreen(self.look, "notes", tuple(entries) or (("", "nothing is odd about it"),)))
