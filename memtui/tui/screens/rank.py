"""The full screen of one rank of several: the monitor's, with the way back to all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Optional, cast

from textual.binding import Binding, BindingType

from memtui.analysis.view import View
from memtui.session.session import Session
from memtui.tui.exhausted import Exhausted
from memtui.tui.feed import BuildView, ExitText, RanksFeed, absent
from memtui.tui.look import Look
from memtui.tui.plot.scale import SPANS, USUAL_SPAN

from .monitor import MonitorScreen

if TYPE_CHECKING:
    from memtui.tui.app import MemtuiApp

_TAB = "ranks"


class RankScreen(MonitorScreen):
    """What is shown of a program until it has several ranks, and then of the one that was chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("0", "tab('ranks')", "all ranks"),
        Binding("l", "live", "now", show=False),
    ]

    def __init__(
        self, feed: RanksFeed, build: BuildView, look: Look, device: Optional[str] = None, rate_hz: float = 10
    ) -> None:
        self.ranks = feed

        def named(session: Session, device: str, now_ns: int) -> View:
            view = build(session, device, now_ns)
            return replace(view, program=f"{self._rank_words(session)}{view.program}") if feed.several else view

        super().__init__(feed, named, look, device, rate_hz)
        self._widened = False  # the chart has the feed's usual span

    def _rank_words(self, session: Session) -> str:
        member = next((each for each in self.ranks.members if each.session is session), None)
        if member is None or member.rank is None:
            return ""
        if member.number is not None:
            return f"{member.name} · "
        life = f", life {member.life}" if member.life > 1 else ""
        where = f" on {member.host}" if member.host else ""
        return f"rank {member.rank}{life}{where} · "

    def show_session(self, tab: str) -> None:
        """Another rank is shown: nothing that was chosen or asked of the last one is of it."""
        self.device, self.device_chosen = None, False
        self.figures.cursor = None
        usual_s = getattr(self.feed, "usual_span_s", 0)
        if usual_s and not self._widened:
            span = next((place for place, each in enumerate(SPANS) if each >= usual_s), USUAL_SPAN)
            self.timeline.window = replace(self.timeline.window, span=span)
        self._widened = True
        self.timeline.window = self.timeline.window.live()
        if self.timeline.paused_ns is not None:
            self.action_pause()
        self.exhausted = Exhausted(self.feed, self.status.say)
        self._tell_replay()
        if self.feed.replay:
            self.show_recording()
        self.refresh_view()
        self.action_tab(tab)

    def refresh_view(self) -> None:
        """As the monitor's; of a server's rank, with what its events lack."""
        self.event_list.absent = absent(self.feed, "events")
        super().refresh_view()

    def _tell_replay(self) -> None:
        """One feed may show now and the past by turns."""
        replay = self.feed.replay
        self.keys.replay = self.header.replay = self.chart.input.recorded = replay
        # What a server has ends nowhere: there the time itself is said.
        self.chart.input.end_label = "now" if not replay else "" if absent(self.feed, "events") else "end"

    def program_ended(self, status: Optional[ExitText]) -> None:
        """The launcher's status is no rank's."""
        super().program_ended(None if self.ranks.several else status)

    def tick(self) -> None:
        """Draws, unless all ranks are shown over it: Textual calls a screen current that another one covers."""
        if not self.ranks.several or self.app.screen is self:
            super().tick()

    def _name_tabs(self) -> None:
        super()._name_tabs()
        if self.ranks.several:
            self.keys.tabs = (("0", _TAB), *self.keys.tabs)

    def action_tab(self, name: str) -> None:
        """Shows one of the tabs, or all ranks."""
        if name == _TAB:
            cast("MemtuiApp", self.app).show_ranks()
        elif name == "output" and absent(self.feed, "output"):
            self.say(absent(self.feed, "output"))
        else:
            super().action_tab(name)

    def action_live(self) -> None:
        """Now; a recording has none but its end."""
        go_live = getattr(self.feed, "go_live", None)
        if go_live is None:
            self.action_newest()
            return
        go_live()
        self.timeline.window = self.timeline.window.live()
        self._tell_replay()
        self.draw_changes(force=True)

    def action_escape(self) -> None:
        """Takes back what was marked; where nothing is, back to all ranks."""
        live = self.figures.cursor is None and (self.feed.replay or self.timeline.window.cursor_ns is None)
        if live and self.ranks.several:
            self.action_tab(_TAB)
        else:
            super().action_escape()
