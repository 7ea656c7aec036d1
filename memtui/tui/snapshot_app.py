"""The application that shows a memory snapshot."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import ClassVar, Optional

from rich.text import Text
from textual import on
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.notifications import SeverityLevel
from textual.screen import Screen

from memtui.snapshots.errors import SnapshotError

from . import glyphs as glyph_sets
from . import palette
from .look import choose, make, textual_theme
from .messages import SnapshotFailed
from .palette import Colors
from .screens.snapshot import KEYS, SnapshotScreen, Start


class SnapshotApp(App[None], inherit_bindings=False):
    """Shows what `start` reads; `trouble` is what was wrong with the file, once the app has ended."""

    CSS_PATH = "memtui.tcss"
    TITLE = "memtui"
    ALLOW_SELECT = False
    COMMAND_PALETTE_BINDING = "ctrl+p"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "quit"),
        Binding("ctrl+z", "suspend_process", show=False),
        Binding("ctrl+l", "redraw", show=False),
        Binding("ctrl+p", "command_palette", show=False),
        Binding("t", "next_theme", "next theme"),
        Binding("question_mark,f1,h", "help", "help"),
    ]

    def __init__(
        self,
        name: str,
        start: Callable[[], Start],
        *,
        theme: Optional[str] = None,
        ascii_only: Optional[bool] = None,
        color_system: Optional[str] = "auto",
        environment: Optional[Mapping[str, str]] = None,
    ) -> None:
        environment = os.environ if environment is None else environment
        colors = choose(theme, environment)
        super().__init__(ansi_color=True if colors.mono else None)
        self.trouble: Optional[SnapshotError] = None
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
        self.snapshot = SnapshotScreen(self.look, name, start)

    def get_driver_class(self) -> type[Driver]:
        """On Linux and macOS the one that draws on standard output."""
        found = super().get_driver_class()
        if found.__name__ != "LinuxDriver":
            return found
        from .driver import OutputDriver

        return OutputDriver

    def get_default_screen(self) -> Screen[None]:
        """The snapshot."""
        return self.snapshot

    @on(SnapshotFailed)
    def failed(self, message: SnapshotFailed) -> None:
        """A file that cannot be read ends the app, and its reason is told on the terminal."""
        if isinstance(message.error, SnapshotError):
            self.trouble = message.error
            self.exit()
        else:
            raise message.error

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """Says it above the timeline: a toast would lie over figures that are drawn cell by cell."""
        self.snapshot.say(f"{title}: {message}" if title else message)

    @property
    def failure(self) -> Exception | None:
        """What the app broke on, if it did."""
        return self._exception

    def _fatal_error(self) -> None:
        # In place of Textual's pages of source text with everybody's local variables.
        if os.environ.get("MEMTUI_DEBUG") == "1":
            self._exit_renderables.append(Text(traceback.format_exc()))
        self._close_messages_no_wait()

    def action_redraw(self) -> None:
        """Draws everything again."""
        self.refresh(layout=True)

    def action_help(self) -> None:
        """The keys, and how the screen is read."""
        from .screens.page import PageScreen

        self.push_screen(PageScreen(self.look, "keys", KEYS))

    def use_colors(self, colors: Colors) -> None:
        """Shows everything in another theme."""
        if self._only_mono and not colors.mono:
            self.snapshot.say("NO_COLOR is set")
            return
        self.look = make(colors, self._glyphs, self._color_system)
        self.ansi_color = True if self.look.colors.mono else None
        self.theme = self.look.colors.name
        self.snapshot.set_look(self.look)
        self.snapshot.say(f"theme: {self.look.colors.name}")

    def action_next_theme(self) -> None:
        """The next theme of the list."""
        names = [colors.name for colors in palette.THEMES]
        place = names.index(self.look.colors.name) if self.look.colors.name in names else -1
        self.use_colors(palette.THEMES[(place + 1) % len(names)])

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The command palette."""
        yield SystemCommand("Quit", "leave the snapshot", self.action_quit)
        yield SystemCommand("Help", "all keys", self.action_help)
        yield SystemCommand("Notes", "what is odd about this snapshot", self.snapshot.action_notes)
        yield SystemCommand("Picture", "save the screen as an SVG file here", self.action_picture)
        for colors in palette.THEMES:
            yield SystemCommand(f"Theme: {colors.name}", "change the colours", partial(self.use_colors, colors))

    def action_picture(self) -> None:
        """Saves the screen as it is without the palette."""
        self.set_timer(0.2, self._save_picture)

    def _save_picture(self) -> None:
        try:
            path = self.save_screenshot()
        except OSError as error:
            self.snapshot.say(f"the picture could not be saved: {error.strerror or error}")
        else:
            self.snapshot.say(f"saved as {path}")


def run_snapshot_app(name: str, start: Callable[[], Start], theme: Optional[str] = None) -> None:
    """Shows a snapshot until the user leaves.

    Raises SnapshotError where it cannot be read, ValueError for an unknown theme or where the display fails.
    """
    if sys.version_info < (3, 10):
        # There widgets take the loop of the moment they are made; an earlier asyncio.run has left none behind.
        asyncio.set_event_loop(asyncio.new_event_loop())
    app = SnapshotApp(name, start, theme=theme)
    app.run()
    if app.trouble is not None:
        raise app.trouble
    if app.failure is not None:
        what = " ".join(f"{type(app.failure).__name__}: {app.failure}".split()).rstrip(": ")
        raise ValueError(f"the display failed ({what}); MEMTUI_DEBUG=1 shows where") from app.failure
