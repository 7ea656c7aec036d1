"""The overview: all ranks of a launcher side by side, and the comparison of two."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Optional, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import Screen

from memtui.ranks.compare import partner
from memtui.ranks.row import RankRow, identity
from memtui.ranks.view import ORDERS, Order, RanksView, build_ranks
from memtui.session.members import Member
from memtui.tui import roles
from memtui.tui.feed import RanksFeed, RanksRecording
from memtui.tui.look import Look
from memtui.tui.paint import paint
from memtui.tui.plan import LEAST_HEIGHT, LEAST_WIDTH
from memtui.tui.ranks.comparison import Comparison
from memtui.tui.ranks.keys import RanksKeys
from memtui.tui.ranks.table import RanksTable, legend
from memtui.tui.ranks.top import RanksTop
from memtui.tui.rows import Line, Row, shorten
from memtui.tui.widgets.lines import Lines
from memtui.tui.widgets.small import Small

if TYPE_CHECKING:
    from memtui.tui.app import MemtuiApp

#: Between two looks, for as many ranks; of the time, looking and drawing takes at most this share.
LOOK_S, MANY, MANY_S, SHARE = 0.5, 16, 1.0, 0.15
#: How much time the charts show.
SPANS_S = (10, 30, 60, 120, 300, 600, 1800, 3600, 4 * 3600, 24 * 3600)
_USUAL = SPANS_S.index(60)
_MESSAGE_S = 4.0
#: A recording moves by so many seconds at a time.
_MOVES_S = 10


class Legend(Lines):
    """Who the chosen rank is, what distributed training itself holds, and the letters of the bars."""

    def __init__(self, look: Look) -> None:
        super().__init__(look, id="ranks-legend")
        self.rows: Sequence[RankRow] = ()
        self.facts = self.chosen = ""

    def draw(self, width: int, height: int) -> list[Row]:
        """Up to three lines."""
        said = [shorten(self.look.text(text), width - 4, self.look.glyphs.ellipsis) for text in self.texts()]
        drawn = [Line().add("  " + text, roles.DIM).row(width) for text in said]
        return [*drawn, legend(self.rows, width, self.look)][-height:]

    def texts(self) -> list[str]:
        """The lines before the letters."""
        return [text for text in (self.facts, self.chosen) if text]


class RanksScreen(Screen[None], inherit_bindings=False):
    """Looks at every member so often, and shows one a line; opens, marks and compares them."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "choose(-1)", show=False),
        Binding("down,j", "choose(1)", show=False),
        Binding("left", "across(-1)", show=False),
        Binding("right", "across(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "choose(-100000)", show=False),
        Binding("end", "choose(100000)", show=False),
        Binding("enter,1", "open", "open a rank"),
        Binding("2", "open('events')", show=False),
        Binding("3", "open('output')", show=False),
        Binding("4", "open('step')", show=False),
        Binding("5", "open('tensors')", show=False),
        Binding("6", "open('segments')", show=False),
        Binding("s", "sort", "sort"),
        Binding("space", "mark", "mark"),
        Binding("c", "compare", "compare"),
        Binding("e", "earlier", "earlier lives"),
        Binding("v", "multiples", "small multiples"),
        Binding("plus,equals_sign,z", "zoom(-1)", show=False),
        Binding("minus,x", "zoom(1)", show=False),
        Binding("m", "page_of_rank('meaning')", show=False),
        Binding("w", "page_of_rank('what_if')", show=False),
        Binding("o", "page_of_rank('out_of_memory')", show=False),
    ]

    def __init__(self, feed: RanksFeed, look: Look, rate_hz: float = 10) -> None:
        super().__init__()
        self.feed, self.look = feed, look
        self._least_s = 1 / rate_hz
        self.view: Optional[RanksView] = None
        self.order: Order = "rank"
        self.past = False  # earlier lives are shown too
        self._span = _USUAL
        self._marked: list[tuple[int, int]] = []
        self._chosen: Optional[tuple[int, int]] = None
        self._message_until = 0.0
        self._planned: object = None
        self.top = RanksTop(look, id="ranks-top")
        self.table = RanksTable(look, id="ranks-table")
        self.letters = Legend(look)
        self.keys = RanksKeys(look, id="ranks-keys")
        self.small = Small(look, id="small")

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        with Vertical(id="ranks"):
            yield self.top
            yield self.table
            yield self.letters
            yield self.keys
        yield self.small

    def on_mount(self) -> None:
        """Begins to look."""
        self.refresh_view()
        self.run_worker(self._look(), name="ranks")

    def on_resize(self) -> None:
        """Divides the lines anew."""
        width, height = self.app.size
        self.set_class(width < LEAST_WIDTH or height < LEAST_HEIGHT, "-small")
        self._arrange()
        self.call_after_refresh(self._again)

    async def _look(self) -> None:
        while True:
            began = time.monotonic()
            # Textual calls a screen current that another one covers.
            if self.app.screen is self and not (self.feed.replay and self.view is not None):
                self.refresh_view()
            took = time.monotonic() - began
            period = max(self._least_s, LOOK_S if len(self.table.rows) <= MANY else MANY_S)
            await asyncio.sleep(max(period - took, took / SHARE - took))

    # Drawing

    def refresh_view(self) -> None:
        """Looks at every rank, and draws what changed."""
        feed = self.feed
        self.view = view = build_ranks(feed.members, feed.now_ns(), feed.driver, feed.label)
        members = {(each.rank, each.life): each for each in feed.members if each.rank is not None}
        self.table.members = members
        self.top.replay = self._clock() if feed.replay else ""
        self._show(view)

    def _clock(self) -> str:
        """The time of day that a recording stands at."""
        told = next((each.session.hello for each in self.feed.members if each.session.hello is not None), None)
        wall_ns = self.feed.now_ns() + (0 if told is None else told.wall_offset_ns)
        return time.strftime("%H:%M:%S", time.localtime(wall_ns / 1e9))

    def _show(self, view: RanksView) -> None:
        rows = (*view.ordered(self.order), *(view.past if self.past else ()))
        names = [_name(row) for row in rows]
        table = self.table
        table.view, table.rows, table.marked = view, rows, frozenset(self._marked)
        table.span_ns = SPANS_S[self._span] * 1_000_000_000
        # Who was chosen stays chosen where others come, go and change places.
        if self._chosen in names:
            table.chosen = names.index(self._chosen)
        elif names:
            table.chosen = min(table.chosen, len(names) - 1)
            self._chosen = names[table.chosen]
        self.top.view, self.letters.rows, self.letters.facts = view, self._lettered(rows), view.facts
        self.letters.chosen = "" if self.row is None else identity(self.row)
        if time.monotonic() > self._message_until:
            self.top.message = ""
        self.keys.order, self.keys.restarted = self.order, bool(view.past)
        self.keys.output = self.feed.program is not None and self.feed.program.pty
        if self.app.screen is not self or self.has_class("-small"):
            return  # what covers it reads the rows
        self._arrange()
        paint(self, [self.top, self.table, self.letters], self.look)
        page = table.per_page(table.size.width, table.size.height)
        last = min(len(rows), table.first + page)
        self.keys.place = f"{table.first + 1} to {last} of {len(rows):,}" if page < len(rows) else ""
        paint(self, [self.keys], self.look)

    def _lettered(self, rows: Sequence[RankRow]) -> Sequence[RankRow]:
        """Those whose letters are explained."""
        return rows

    def _arrange(self) -> None:
        width, height = self.app.size
        if not self.is_mounted or not width:
            return
        count = len(self.table.rows)
        # Findings may take what the ranks leave, and a fifth of the screen in any case.
        most = max(2, min(8, height - count - 5), height // 5 if count > height // 2 else 0)
        letters = min(1 + len(self.letters.texts()), max(0, (height - 18) // 2))
        plan = (self.top.wanted(width, most) + bool(self.top.message), letters)
        if plan == self._planned:
            return
        self._planned = plan
        self.call_after_refresh(self._again)
        self.top.styles.height = plan[0]
        self.letters.display = plan[1] > 0
        self.letters.styles.height = plan[1]

    def say(self, text: str) -> None:
        """A line that goes away by itself."""
        self.top.message, self._message_until = text, time.monotonic() + _MESSAGE_S
        self._again()

    def set_look(self, look: Look) -> None:
        """Another theme."""
        self.look = look
        for part in self.query(Lines):
            part.set_look(look)

    def _again(self) -> None:
        if self.view is not None:
            self._show(self.view)

    # Choosing

    @property
    def row(self) -> Optional[RankRow]:
        """The one that is chosen."""
        rows = self.table.rows
        return rows[self.table.chosen] if 0 <= self.table.chosen < len(rows) else None

    def _choose(self, place: int) -> None:
        rows = self.table.rows
        if rows:
            self.table.chosen = max(0, min(place, len(rows) - 1))
            self._chosen = _name(rows[self.table.chosen])
            self._again()

    def action_choose(self, by: int) -> None:
        """The row above or below."""
        self._choose(self.table.chosen + by)

    def action_across(self, by: int) -> None:
        """The small multiple beside; in a recording of lines, back or forth in time."""
        width, height = self.table.size
        across = self.table.cells_across(width, height)
        if across:
            count = min(self.table.per_page(width, height), len(self.table.rows) - self.table.first)
            self._choose(self.table.chosen + by * min(height - 1, -(-count // across)))
        elif self.feed.replay:
            recording = cast("RanksRecording", self.feed)
            recording.seek(recording.now_ns() + by * _MOVES_S * 1_000_000_000)
            self.refresh_view()

    def action_page(self, by: int) -> None:
        """The ranks before or after those in view."""
        self._choose(self.table.chosen + by * self.table.per_page(*self.table.size))

    def action_sort(self) -> None:
        """By rank, by headroom, by skew."""
        self.order = ORDERS[(ORDERS.index(self.order) + 1) % len(ORDERS)]
        self._again()

    def action_mark(self) -> None:
        """Marks a rank to compare another one with; the newest two marks count."""
        if self._chosen is None:
            return
        if self._chosen in self._marked:
            self._marked.remove(self._chosen)
        else:
            self._marked = [*self._marked[-1:], self._chosen]
        self._again()

    def action_earlier(self) -> None:
        """Shows the lives before a restart below the ranks, or leaves them out again."""
        if self.view is None or not self.view.past:
            self.say("no rank has come back: there are no earlier lives")
            return
        self.past = not self.past
        self._again()

    def action_multiples(self) -> None:
        """Small multiples, or lines."""
        self.table.multiples = not self.table.multiples
        self._again()

    def action_zoom(self, by: int) -> None:
        """Charts of less or more time."""
        self._span = max(0, min(self._span + by, len(SPANS_S) - 1))
        self._again()

    # Elsewhere

    def _member(self) -> Optional[Member]:
        return None if self._chosen is None else self.table.members.get(self._chosen)

    def action_open(self, tab: str = "memory") -> None:
        """The chosen rank's full screen."""
        app, member = cast("MemtuiApp", self.app), self._member()
        if member is not None:
            app.show_rank(member, tab)

    def action_page_of_rank(self, name: str) -> None:
        """A page about the chosen rank, which is then the one that is shown."""
        app, member = cast("MemtuiApp", self.app), self._member()
        if member is not None:
            app.page_of_rank(member, name)

    def action_compare(self) -> None:
        """The two that are marked; else the chosen one with the marked one, or with one that is in the middle."""
        rows = {_name(row): row for row in self.table.rows}
        chosen = self.row
        marked = [rows[name] for name in self._marked if name in rows]
        if chosen is None or self.view is None:
            return
        if len(marked) < 2:
            other = next((row for row in marked if row is not chosen), None) or partner(self.view.rows, chosen)
            if other is None:
                self.say("there is no second rank to compare with")
                return
            marked = [other, chosen]
        self.app.push_screen(CompareScreen(self, (_name(marked[0]), _name(marked[1]))))


class CompareScreen(Screen[None], inherit_bindings=False):
    """Two ranks, which go on while they are compared; arrows take the second from rank to rank."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,c,enter,ctrl+c", "dismiss", show=False),
        Binding("left,up", "other(-1)", show=False),
        Binding("right,down", "other(1)", show=False),
    ]

    def __init__(self, overview: RanksScreen, pair: tuple[tuple[int, int], tuple[int, int]]) -> None:
        super().__init__()
        self._overview, self._pair = overview, pair
        self.page = Comparison(overview.look)

    def compose(self) -> ComposeResult:
        """The table alone."""
        yield self.page

    def on_mount(self) -> None:
        """Looks again while it is open."""
        self._fill()
        self.set_interval(1.0, self._look)

    def _look(self) -> None:
        if self.app.screen is self:
            if not self._overview.feed.replay:
                self._overview.refresh_view()
            self._fill()
            paint(self, [self.page], self.page.look)

    def _fill(self) -> None:
        rows = {_name(row): row for row in self._overview.table.rows}
        one, other = (rows.get(name) for name in self._pair)
        if one is not None and other is not None:
            self.page.pair = (one, other)

    def action_other(self, by: int) -> None:
        """Another second one."""
        names = [_name(row) for row in self._overview.table.rows if _name(row) != self._pair[0]]
        if self._pair[1] in names:
            self._pair = (self._pair[0], names[(names.index(self._pair[1]) + by) % len(names)])
            self._fill()
            paint(self, [self.page], self.page.look)

    async def action_dismiss(self, result: None = None) -> None:
        """Back to the overview."""
        self.dismiss(result)


def _name(row: RankRow) -> tuple[int, int]:
    return row.rank, row.life
