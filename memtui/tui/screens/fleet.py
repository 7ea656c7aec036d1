"""The overview of what a Prometheus server knows: ranks, the worst first; and groups of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Optional, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from memtui.prometheus.fleet import Course, Group, Grouping, part_of
from memtui.ranks.finding import Finding
from memtui.ranks.row import RankRow
from memtui.ranks.view import RanksView
from memtui.tui.feed import RanksFeed
from memtui.tui.look import Look
from memtui.tui.paint import paint
from memtui.tui.ranks.fleet import FleetTable
from memtui.tui.ranks.groups import GroupsTable
from memtui.tui.ranks.keys import RanksKeys

from .ranks import SPANS_S, RanksScreen

if TYPE_CHECKING:
    from memtui.prometheus.feed import FleetFeed

_KEYS = (
    ("enter", "open", 1),
    ("s", "sort", 2),
    ("b", "groups", 1),
    ("← →", "time", 3),
    ("l", "now", 4),
    ("c", "compare", 5),
    ("space", "mark", 7),
    ("v", "small", 8),
    ("+ -", "zoom", 6),
    ("t", "theme", 9),
    ("esc", "back", 4),
    ("?", "help", 1),
    ("q", "quit", 0),
)
#: The charts show ten minutes at first: a scrape is not a frame.
_USUAL_S = 600
#: Of a span, one step through time.
_MOVE = 1 / 20
#: Charts of so many ranks at most are asked for.
_MOST_CHARTS = 512
_LOOK_S = 0.25
_NOBODY = "the server has no series of any rank at this time"
_WORDS = {"run": "runs", "host": "hosts", "stage": "stages", "job": "jobs"}


class FleetScreen(RanksScreen):
    """Shows what was heard last, whenever there is something new; asks for charts of what is in view."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b", "groups", "groups"),
        Binding("comma", "time(-1)", show=False),
        Binding("full_stop", "time(1)", show=False),
        Binding("less_than_sign,shift+left", "time(-10)", show=False),
        Binding("greater_than_sign,shift+right", "time(10)", show=False),
        Binding("l", "live", "now"),
        Binding("escape,backspace", "back", show=False),
    ]

    def __init__(self, feed: RanksFeed, look: Look, rate_hz: float = 10) -> None:
        super().__init__(feed, look, rate_hz)
        self.fleet_feed = cast("FleetFeed", feed)
        self.order = "outliers"
        self.table: FleetTable = FleetTable(look, id="ranks-table")
        self.groups = GroupsTable(look, id="ranks-groups")
        self.keys = RanksKeys(look, entries=_KEYS, id="ranks-keys")
        self._span = SPANS_S.index(_USUAL_S)
        self.by: Optional[Grouping] = None  # what is grouped; None where ranks are shown
        self.group: Optional[Group] = None  # whose ranks are shown
        self._before: Optional[Grouping] = None  # from where a group was opened
        self._seen: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        """As the ranks', with the groups in the place of the table."""
        with Vertical(id="ranks"):
            yield self.top
            yield self.table
            yield self.groups
            yield self.letters
            yield self.keys
        yield self.small

    def on_mount(self) -> None:
        """Several runs are shown as such first."""
        if self.fleet_feed.course is None:
            self.by = "run"
        super().on_mount()

    async def _look(self) -> None:
        while True:
            if self.app.screen is self:
                feed = self.fleet_feed
                now = (feed.revision, int(feed.age_s), feed.trouble_text(), time.monotonic() > self._message_until)
                if now != self._seen:
                    self._seen = now
                    self.refresh_view()
            await asyncio.sleep(max(self._least_s, _LOOK_S))

    # Drawing

    def refresh_view(self) -> None:
        """Draws what was heard last."""
        feed, course = self.fleet_feed, self.fleet_feed.course
        if self.app.screen is self:
            feed.close_rank()
        if feed.fleet is None:
            return
        self.top.replay = self._clock() if feed.replay else ""
        self.top.age = "" if feed.replay else f"{feed.age_s:.0f} s old"
        if course is None and self.by is None:
            self.by, self.group = "run", None
        view = self._runs_view() if course is None or self.by == "run" else self._view_of(course)
        trouble = feed.trouble_text()
        if trouble:
            view = replace(view, findings=(Finding("server", "bad", (), trouble), *view.findings))
        self.view = view
        if course is not None:
            self.table.members = {(each.rank, each.life): each for each in feed.members if each.rank is not None}
            found = {name: feed.tracks[key] for name, key in course.keys.items() if key in feed.tracks}
            self.table.tracks = found
        self._show(view)

    def _view_of(self, course: Course) -> RanksView:
        group = self.group
        if group is None or group.run != course.run.key:
            self.group = None
            return course.view
        names = [(row.rank, row.life) for row in group.rows]
        view = part_of(course, names)
        named = group.name if group.name.startswith(view.program) else f"{view.program} · {group.name}"
        return replace(view, program=named)

    def _runs_view(self) -> RanksView:
        """All runs in one: who, and what is wrong in any of them."""
        fleet = self.fleet_feed.fleet
        assert fleet is not None
        courses = fleet.courses
        found = [
            replace(finding, ranks=(), text=f"{course.run.name}: {finding.text}")
            for course in courses
            for finding in course.view.findings
            if finding.level in ("bad", "warning")
        ]
        found.sort(key=lambda finding: finding.level != "bad")
        if not courses:
            found = [Finding("none", "unknown", (), _NOBODY)]
        rows = tuple(row for course in courses for row in course.view.rows)
        hosts = tuple(dict.fromkeys(host for course in courses for host in course.view.hosts))
        now_ns = int(fleet.look.time_s * 1e9)
        return RanksView(f"{len(courses):,} runs", hosts, None, rows, (), tuple(found), "", "", now_ns)

    def _clock(self) -> str:
        at_s = self.fleet_feed.now_ns() / 1e9
        form = "%H:%M:%S" if time.time() - at_s < 86_400 else "%Y-%m-%d %H:%M:%S"
        return time.strftime(form, time.localtime(at_s))

    def _show(self, view: RanksView) -> None:
        grouped = self.by is not None
        self.table.display, self.groups.display = not grouped, grouped
        if self.by is None:
            super()._show(view)
            self._ask_for_charts()
            return
        fleet = self.fleet_feed.fleet
        assert fleet is not None
        chosen = self._chosen_group
        groups = self.groups
        groups.groups, groups.by = fleet.groups(self.by, self.fleet_feed.course), self.by
        names = [(group.run, group.name) for group in groups.groups]
        if chosen is not None and (chosen.run, chosen.name) in names:
            groups.chosen = names.index((chosen.run, chosen.name))
        self.top.view, self.letters.rows, self.letters.facts = view, (), ""
        self.letters.chosen = ""
        if time.monotonic() > self._message_until:
            self.top.message = ""
        page = groups.per_page(groups.size.height)
        last = min(len(names), groups.first + page)
        self.keys.order = _WORDS[self.by]
        self.keys.place = f"{groups.first + 1} to {last} of {len(names)}" if page < len(names) else ""
        if self.app.screen is self and not self.has_class("-small"):
            self._arrange()
            paint(self, [self.top, groups, self.keys], self.look)

    def _arrange(self) -> None:
        if self.by is None:
            super()._arrange()
            return
        width, height = self.app.size
        if not self.is_mounted or not width:
            return
        most = max(2, min(8, height - len(self.groups.groups) - 4, height // 3))
        plan = (self.top.wanted(width, most) + bool(self.top.message), "groups")
        if plan != self._planned:
            self._planned = plan
            self.call_after_refresh(self._again)
            self.top.styles.height = plan[0]
            self.letters.display = False

    def _lettered(self, rows: Sequence[RankRow]) -> Sequence[RankRow]:
        """Those in view: of the others it is not known what they are made of."""
        table = self.table
        return rows[table.first : table.first + table.per_page(*table.size)]

    def _ask_for_charts(self) -> None:
        """Of the ranks in view, and of what they are made."""
        table, course = self.table, self.fleet_feed.course
        if course is None or self.app.screen is not self:
            return
        page = table.per_page(*table.size)
        shown = table.rows[table.first : table.first + page] if page <= _MOST_CHARTS else ()
        keys = [course.keys[row.rank, row.life] for row in shown if (row.rank, row.life) in course.keys]
        self.fleet_feed.show(keys, float(SPANS_S[self._span]))

    @property
    def _chosen_group(self) -> Optional[Group]:
        groups = self.groups.groups
        return groups[self.groups.chosen] if 0 <= self.groups.chosen < len(groups) else None

    # Choosing

    def action_groups(self) -> None:
        """Ranks, then by what they can be put together."""
        fleet, course = self.fleet_feed.fleet, self.fleet_feed.course
        if fleet is None:
            return
        places: list[Optional[Grouping]] = [*fleet.groupings(course)]
        if course is not None:
            places = [None, *(each for each in places if each != "run" or len(fleet.courses) > 1)]
        if len(places) < 2:
            self.say("there is one group only: one run, one host, and no stages")
            return
        self.by = places[(places.index(self.by) + 1) % len(places)] if self.by in places else places[0]
        self.group = None
        self.groups.chosen = 0
        self._planned = None
        self.refresh_view()

    def action_back(self) -> None:
        """From a group's ranks to the groups; from a run to the runs; from the past to now."""
        feed = self.fleet_feed
        if self.by is None and self.group is not None:
            self.by, self.group = self._before, None
        elif self.by is not None and self.by != "run" and feed.course is not None:
            self.by = None
        elif feed.fleet is not None and len(feed.fleet.courses) > 1 and feed.chosen_run is not None:
            self.by, feed.chosen_run = "run", None
        elif feed.replay:
            self.action_live()
            return
        self._planned = None
        self.refresh_view()

    def action_open(self, tab: str = "memory") -> None:
        """The chosen group's ranks, or the chosen rank's full screen."""
        group = self._chosen_group
        if self.by is None:
            super().action_open(tab)
        elif group is not None:
            self.fleet_feed.chosen_run = group.run
            self.group = None if self.by == "run" else group
            self._before, self.by = self.by, None
            self.table.chosen, self._chosen, self._planned = 0, None, None
            self.refresh_view()

    def _choose(self, place: int) -> None:
        if self.by is None:
            super()._choose(place)
        elif self.groups.groups:
            self.groups.chosen = max(0, min(place, len(self.groups.groups) - 1))
            self._again()

    def action_choose(self, by: int) -> None:
        """The row above or below."""
        self._choose((self.table.chosen if self.by is None else self.groups.chosen) + by)

    def action_page(self, by: int) -> None:
        """The ranks or groups before or after those in view."""
        if self.by is None:
            super().action_page(by)
        else:
            self._choose(self.groups.chosen + by * self.groups.per_page(self.groups.size.height))

    def action_sort(self) -> None:
        """Of ranks only: groups have the worst first."""
        if self.by is None:
            super().action_sort()

    def action_zoom(self, by: int) -> None:
        """Charts of less or more time, and longer steps through it."""
        super().action_zoom(by)

    # Time

    def action_across(self, by: int) -> None:
        """The small multiple beside; else back or forth in time."""
        if self.by is None and self.table.cells_across(*self.table.size):
            super().action_across(by)
        else:
            self.action_time(by)

    def action_time(self, by: int) -> None:
        """Back or forth by a part of what the charts show; beyond the newest is now."""
        feed = self.fleet_feed
        step_ns = int(SPANS_S[self._span] * _MOVE * 1e9) * by
        target = feed.now_ns() + step_ns
        if by > 0 and (not feed.replay or target >= feed.end_ns):
            self.action_live()
            return
        if target < feed.start_ns:
            self.say("no further back: --since says how far")
        feed.seek(target)
        self.refresh_view()

    def action_live(self) -> None:
        """Now."""
        self.fleet_feed.go_live()
        self.refresh_view()
