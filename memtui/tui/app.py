"""The application: a feed on a screen, themes, commands, and how it is left."""

from __future__ import annotations

import asyncio
import math
import os
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal, Optional, cast

from rich.text import Text
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.worker import WorkerFailed

from . import glyphs as glyph_sets
from . import palette
from .feed import BuildView, Feed
from .look import choose, make, textual_theme
from .palette import Colors
from .screens.monitor import MonitorScreen
from .widgets.segments import BATCH

if TYPE_CHECKING:
    from memtui.session.members import Member

    from .feed import RanksFeed
    from .screens.ranks import RanksScreen

#: A program that was interrupted has so long to end before the next question.
PATIENCE_S = 3.0
#: How often it is looked whether there are several ranks.
RANKS_S = 0.25


@dataclass(frozen=True)
class Outcome:
    """How the interface was left: the program still runs, was stopped from here, or had ended by itself."""

    kind: Literal["detach", "stop", "ended"]


class DisplayFailed(ValueError):
    """The app broke; the message is one line for the user. The program is as it was."""


class MemtuiApp(App[Outcome], inherit_bindings=False):
    """Shows one feed. The feed is started and stopped with the app; the program is not."""

    CSS_PATH = "memtui.tcss"
    TITLE = "memtui"
    ALLOW_SELECT = False
    COMMAND_PALETTE_BINDING = "ctrl+p"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", show=False),
        Binding("ctrl+z", "suspend_process", "suspend"),
        Binding("ctrl+l", "redraw", show=False),
        Binding("ctrl+p", "command_palette", "commands"),
        Binding("t", "next_theme", "next theme"),
        Binding("g", "glossary", "glossary"),
        Binding("m", "meaning", "what it means"),
        Binding("w", "what_if", "what if"),
        Binding("o", "out_of_memory", "out of memory"),
        Binding("question_mark,f1,h", "help", "help"),
    ]

    def __init__(
        self,
        feed: Feed,
        *,
        build: Optional[BuildView] = None,
        theme: str | None = None,
        device: str | None = None,
        rate_hz: float = 10,
        ascii_only: bool | None = None,
        color_system: str | None = "auto",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        environment = os.environ if environment is None else environment
        colors = choose(theme, environment)
        # Textual takes NO_COLOR to mean shades of grey; with the terminal's own colours it leaves them all out.
        super().__init__(ansi_color=True if colors.mono else None)
        self.feed = feed
        self._started = False
        self._patience_s: Optional[float] = None  # with a program that was told to end; None where none was
        self.ready = False  # the feed has been started
        # As rich names it, "truecolor" to "standard"; None is no colours, and "auto" what the terminal says of itself.
        self._color_system = self.console.color_system if color_system == "auto" else color_system
        self._only_mono = bool(environment.get("NO_COLOR"))
        if ascii_only is None:
            encoding = glyph_sets.stdout_encoding(getattr(sys.__stdout__, "encoding", None))
            self._glyphs = glyph_sets.detect(environment, encoding)
        else:
            self._glyphs = glyph_sets.ASCII if ascii_only else glyph_sets.UNICODE
        for each in palette.BY_NAME.values():
            self.register_theme(textual_theme(each))
        self.look = make(colors, self._glyphs, self._color_system)
        self.theme = self.look.colors.name
        if build is None:
            from memtui.analysis.build import build_view

            build = build_view
        self.overview: Optional[RanksScreen] = None
        self._rate_hz = rate_hz
        if hasattr(feed, "members"):
            from .screens.rank import RankScreen

            self.monitor: MonitorScreen = RankScreen(cast("RanksFeed", feed), build, self.look, device, rate_hz)
        else:
            self.monitor = MonitorScreen(feed, build, self.look, device, rate_hz)

    def get_driver_class(self) -> type[Driver]:
        """On Linux and macOS the one that draws on standard output."""
        found = super().get_driver_class()
        if found.__name__ != "LinuxDriver":
            return found
        from .driver import OutputDriver

        return OutputDriver

    def get_default_screen(self) -> Screen[None]:
        """The monitor."""
        return self.monitor

    async def on_mount(self) -> None:
        """Starts the sources after the first paint, which must not wait for them."""
        self.call_after_refresh(self._start)

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """Says it in the status line: a toast would lie over figures that are drawn cell by cell."""
        text = f"{title}: {message}" if title else message
        if self.overview is not None and self.screen is self.overview:
            self.overview.say(text)
        else:
            self.monitor.say(text)

    async def _start(self) -> None:
        self._started = True
        await self.feed.start()
        if self.feed.replay:
            self.monitor.show_recording()
        program = self.feed.program
        if program is not None and program.pty:
            from .program import ProgramTab

            program_tab = ProgramTab(program, self.monitor.program_ended)
            await self.monitor.add_program(program_tab)
            program.listener = program_tab
        if hasattr(self.feed, "members"):
            self.run_worker(self._await_ranks(), name="ranks")
        self.ready = True

    async def on_unmount(self) -> None:
        """Stops the sources."""
        if self._started:
            await self.feed.stop()

    @property
    def failure(self) -> Exception | None:
        """What the app broke on, if it did."""
        error = self._exception
        return error.error if isinstance(error, WorkerFailed) and isinstance(error.error, Exception) else error

    def _fatal_error(self) -> None:
        # In place of Textual's pages of source text with everybody's local variables.
        if os.environ.get("MEMTUI_DEBUG") == "1":
            self._exit_renderables.append(Text(traceback.format_exc()))
        self._close_messages_no_wait()

    def action_redraw(self) -> None:
        """Draws everything again: after a suspension, or when something else wrote on the terminal."""
        self.refresh(layout=True)

    # Ranks

    async def _await_ranks(self) -> None:
        """Sets them side by side once there are several."""
        feed = cast("RanksFeed", self.feed)
        while not feed.several:
            await asyncio.sleep(RANKS_S)
        self.show_ranks()

    def show_ranks(self) -> None:
        """All ranks side by side."""
        feed = cast("RanksFeed", self.feed)
        if not getattr(feed, "several", False):
            self.monitor.say("there is one process only")
            return
        if self.overview is None:
            self.overview = self._overview_of(feed)
            # Else it is taken apart when a rank is opened, and a screen that was is never drawn again.
            self.install_screen(self.overview, "ranks")
        self.overview.set_look(self.look)
        if self.screen is self.monitor:
            self.push_screen(self.overview)
        self.overview.refresh_view()

    def _overview_of(self, feed: RanksFeed) -> RanksScreen:
        if hasattr(feed, "fleet"):
            from .screens.fleet import FleetScreen

            return FleetScreen(feed, self.look, self._rate_hz)
        from .screens.ranks import RanksScreen

        return RanksScreen(feed, self.look, self._rate_hz)

    def show_rank(self, member: Member, tab: str = "memory") -> None:
        """One rank's full screen, from the overview."""
        from .screens.rank import RankScreen

        feed = cast("RanksFeed", self.feed)
        assert isinstance(self.monitor, RankScreen)
        feed.choose(member)
        if self.screen is self.overview:
            self.pop_screen()
        self.monitor.show_session(tab)

    def page_of_rank(self, member: Member, name: str) -> None:
        """A page about one rank, over the overview; of an error that it has not had, of the first rank that had one."""
        from memtui.session.members import first_exhausted

        from .exhausted import Exhausted

        feed = cast("RanksFeed", self.feed)
        if name == "out_of_memory" and not member.session.events_of("oom"):
            member = first_exhausted(feed.members) or member
        feed.choose(member)
        self.monitor.exhausted = Exhausted(feed, self.monitor.status.say)
        self.monitor.device, self.monitor.device_chosen = None, False
        self.monitor.refresh_view()
        pages = {"meaning": self.action_meaning, "what_if": self.action_what_if}
        pages.get(name, self.action_out_of_memory)()

    # Themes

    def use_colors(self, colors: Colors) -> None:
        """Shows everything in another theme."""
        if self._only_mono and not colors.mono:
            self.monitor.say("NO_COLOR is set")
            return
        self.look = make(colors, self._glyphs, self._color_system)
        self.ansi_color = True if self.look.colors.mono else None
        self.theme = self.look.colors.name
        self.monitor.set_look(self.look)
        if self.overview is not None and self.overview.is_mounted:
            self.overview.set_look(self.look)
        self.monitor.say(f"theme: {self.look.colors.name}")

    def action_next_theme(self) -> None:
        """The next theme of the list."""
        names = [colors.name for colors in palette.THEMES]
        place = names.index(self.look.colors.name) if self.look.colors.name in names else -1
        self.use_colors(palette.THEMES[(place + 1) % len(names)])

    # Pages

    def action_help(self) -> None:
        """The keys, and how the screen is read."""
        from .screens.page import PageScreen, help_entries

        self.push_screen(PageScreen(self.look, "keys", help_entries(self.look.glyphs)))

    def action_glossary(self) -> None:
        """All terms."""
        from .screens.page import PageScreen, glossary_entries

        self.push_screen(PageScreen(self.look, "glossary", glossary_entries()))

    def action_meaning(self) -> None:
        """What the figures on the screen mean, as they are now."""
        from .screens.page import PageScreen, meaning_entries

        title, entries = meaning_entries(self.monitor.view)
        self.push_screen(PageScreen(self.look, title, entries))

    def action_what_if(self) -> None:
        """What would change under a lever, from the figures as they are now."""
        from memtui.analysis.policy import DEFAULT
        from memtui.analysis.whatif.facts import gather

        from .screens.whatif import WhatIfScreen

        view, device = self.monitor.view, self.monitor.timeline.device
        place = "" if view is None else view.place
        facts, reason = gather(self.feed.session, device, self.monitor.timeline.now_ns(), DEFAULT)
        title = " · ".join(part for part in ("what if", device, place) if part)
        self.push_screen(WhatIfScreen(self.look, title, device, facts, reason), self._after_what_if)

    def _after_what_if(self, wanted: Optional[str]) -> None:
        if wanted == "batch":
            self.monitor.action_tab("segments")
            self.monitor.segment_map.action_ask(BATCH)

    def action_out_of_memory(self) -> None:
        """Why an allocation failed, who held the memory, and what would have helped."""
        from .screens.exhausted import ExhaustedScreen

        self.push_screen(ExhaustedScreen(self.look, self.monitor.exhausted))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The command palette."""
        yield SystemCommand("Quit", "leave the monitor", self.action_quit)
        yield SystemCommand("Help", "all keys", self.action_help)
        yield SystemCommand("Glossary", "all terms", self.action_glossary)
        yield SystemCommand("What it means", "the figures on the screen, in sentences", self.action_meaning)
        yield SystemCommand("What if", "a larger batch, another optimizer, ...: would it fit", self.action_what_if)
        yield SystemCommand("Out of memory", "why an allocation failed, and what helps", self.action_out_of_memory)
        yield SystemCommand("Pause", "hold the screen still, or go on", self.monitor.action_pause)
        yield SystemCommand("Picture", "save the screen as an SVG file here", self.action_picture)
        for colors in palette.THEMES:
            yield SystemCommand(f"Theme: {colors.name}", "change the colours", partial(self.use_colors, colors))
        for choice in self.monitor.view.devices if self.monitor.view else ():
            yield SystemCommand(
                f"Device: {choice.device}", choice.name or "show it", partial(self.monitor.show_device, choice.device)
            )

    def action_picture(self) -> None:
        """Saves the screen as it is without the palette."""
        self.set_timer(0.2, self._save_picture)

    def _save_picture(self) -> None:
        try:
            path = self.save_screenshot()
        except OSError as error:
            self.monitor.say(f"the picture could not be saved: {error.strerror or error}")
        else:
            self.monitor.say(f"saved as {path}")

    # Leaving

    @property
    def running(self) -> bool:
        """Whether a program that was started from here still runs."""
        return self.feed.program is not None and self.feed.program.running

    async def action_quit(self) -> None:
        """Leaves; asks first where a program was started from here and still runs."""
        if self.running:
            self._ask(again=False)
        else:
            self.exit(Outcome("ended" if self.feed.session.end is not None else "detach"))

    def _ask(self, *, again: bool) -> None:
        from .screens.quit import QuitScreen

        view = self.monitor.view
        name = view.program if view is not None and view.program else "the program"
        self.push_screen(QuitScreen(self.look, name, again=again), self._answered)

    def _answered(self, answer: Optional[str]) -> None:
        program = self.feed.program
        if answer == "detach":
            self.exit(Outcome("detach" if self.running else "ended"))
        elif program is not None and answer in ("interrupt", "kill"):
            if answer == "interrupt":
                program.interrupt()
                self.monitor.say("interrupted; waiting for it to end")
            else:
                program.kill()
            waits, self._patience_s = self._patience_s is not None, PATIENCE_S
            if not waits:
                self._wait_for_end()
        else:
            self._patience_s = None

    def _wait_for_end(self) -> None:
        """Leaves once the program has ended, whatever is on the screen; asks again where that takes long."""
        if self._patience_s is None:
            return
        if not self.running:
            self.exit(Outcome("stop"))
            return
        self._patience_s -= 0.1
        if self._patience_s <= 0 and self.screen in (self.monitor, self.overview):
            self._patience_s = math.inf
            self._ask(again=True)
        self.set_timer(0.1, self._wait_for_end)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leaves ctrl+p to the program while it has the keyboard."""
        if action == "command_palette" and self.monitor.typing:
            return False
        return super().check_action(action, parameters)


def run_app(
    feed: Feed,
    *,
    build: Optional[BuildView] = None,
    theme: str | None = None,
    device: str | None = None,
    rate_hz: float = 10,
) -> Outcome:
    """Shows a feed until the user leaves; ValueError for an unknown theme, DisplayFailed where the app breaks."""
    if sys.version_info < (3, 10):
        # There widgets take the loop of the moment they are made; an earlier asyncio.run has left none behind.
        asyncio.set_event_loop(asyncio.new_event_loop())
    app = MemtuiApp(feed, build=build, theme=theme, device=device, rate_hz=rate_hz)
    outcome = app.run()
    if app.failure is not None:
        raise DisplayFailed(failure_text(app.failure, feed)) from app.failure
    return outcome or Outcome("detach")


def failure_text(error: Exception, feed: Feed) -> str:
    """One line for an app that broke: of what, and what has become of the program."""
    what = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
    parts = [f"the display failed ({what})"]
    pid = feed.session.pid
    if pid and not feed.replay and feed.session.end is None:
        parts.append(f"process {pid} goes on, memtui attach --pid {pid} shows it again")
    return "; ".join([*parts, "MEMTUI_DEBUG=1 shows where"])
