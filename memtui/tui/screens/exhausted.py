"""The page of out-of-memory errors, over the monitor."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from memtui.tui.exhausted import Exhausted
from memtui.tui.look import Look
from memtui.tui.widgets.exhausted import ExhaustedPage


class ExhaustedScreen(Screen[None], inherit_bindings=False):
    """The newest error, and with keys those before it; they are those there were when the page was opened."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,o,enter,ctrl+c", "dismiss", show=False),
        Binding("up,k", "scroll_page(-1)", show=False),
        Binding("down,j", "scroll_page(1)", show=False),
        Binding("pageup", "scroll_page(-10)", show=False),
        Binding("pagedown,space", "scroll_page(10)", show=False),
        Binding("left", "turn(-1)", show=False),
        Binding("right", "turn(1)", show=False),
    ]

    def __init__(self, look: Look, exhausted: Exhausted) -> None:
        super().__init__()
        self._exhausted, self._events = exhausted, exhausted.events()
        count = len(self._events)
        self._shown = count - 1
        story = exhausted.story(self._events[-1]) if count else None
        self.page = ExhaustedPage(look, story, (count, count), exhausted.retries())

    def compose(self) -> ComposeResult:
        """The page alone."""
        yield self.page

    def on_resize(self) -> None:
        """Begins at the top, since lines break elsewhere."""
        self.page.first = 0

    def on_mouse_scroll_down(self) -> None:
        """The wheel moves the text."""
        self.page.scroll(3)

    def on_mouse_scroll_up(self) -> None:
        """The wheel moves the text."""
        self.page.scroll(-3)

    def action_scroll_page(self, lines: int) -> None:
        """Moves the text."""
        self.page.scroll(lines)

    def action_turn(self, by: int) -> None:
        """The error before, or after."""
        wanted = max(0, min(self._shown + by, len(self._events) - 1))
        if self._events and wanted != self._shown:
            self._shown = wanted
            self.page.show(self._exhausted.story(self._events[wanted]), (wanted + 1, len(self._events)))

    async def action_dismiss(self, result: None = None) -> None:
        """Back to the monitor."""
        self.dismiss(result)
