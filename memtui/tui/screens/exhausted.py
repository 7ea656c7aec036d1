"""The page of out-of-memory errors, over the monitor."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from memtui.tui.exhausted import Exhausted
from memtui.tui.look import Look
from memtui.tui.widgets.exhausted import ExhaustedPage
from memtui.wire.frames import Event


class ExhaustedScreen(Screen[None], inherit_bindings=False):
    """The newest error, and with keys those before it; one that comes later is added."""

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
        self.page = ExhaustedPage(look, story, (count, count), exhausted.retries(), exhausted.nothing())

    def compose(self) -> ComposeResult:
        """The page alone."""
        yield self.page

    def on_mount(self) -> None:
        """Looks again while it is open."""
        self.set_interval(1.0, self.look_again)

    def look_again(self) -> None:
        """Takes errors that have come since. The one that is being read stays, where it is still kept."""
        events = self._exhausted.events()
        if list(map(_key, events)) == list(map(_key, self._events)):
            return
        shown = _key(self._events[self._shown]) if self._events else None
        self._events = events
        self._shown = next((place for place, each in enumerate(events) if _key(each) == shown), len(events) - 1)
        self.page.retries = self._exhausted.retries()
        if not events:
            self.page.show(None, (0, 0))
            return
        event, place = events[self._shown], (self._shown + 1, len(events))
        self.page.show(self._exhausted.story(event), place, stay=_key(event) == shown)

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


def _key(event: Event) -> tuple[str, int]:
    return event.device or "", event.time_ns
