"""The output tab: the monitored program's terminal, drawn as cells and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from memtui.tui.terminal.cells import Pen, Runs, pen_style, runs_text
from memtui.tui.terminal.keys import encode_key, encode_paste
from memtui.tui.terminal.paced import PacedTerminal
from memtui.tui.terminal.screen import APPLICATION_CURSOR, BRACKETED_PASTE, FOCUS_REPORTS

#: One look at the program in so many seconds: what a person follows. A look that changes every line, as when text
#: scrolls past, costs a repaint of the whole, and nobody reads it anyway.
LOOK_SECONDS = 0.1
LOOK_SECONDS_SCROLLING = 0.2

WHEEL_LINES = 3

_NOTE = Style(reverse=True)
_REVERSED = Style(reverse=True)
_MAX_STYLES = 1024

#: Keys bound below; the program cannot have them.
_OWN_KEYS = frozenset(
    {
        "ctrl+right_square_bracket",
        "f12",
        "shift+pageup",
        "ctrl+pageup",
        "shift+pagedown",
        "ctrl+pagedown",
    }
)

#: Until the first layout.
INITIAL_SIZE = Size(80, 24)


class OutputPane(Widget, can_focus=True):
    """A terminal on the Line API. Feed it the program's output; it posts what the program is to be sent.

    Focused, it takes every key but the bindings below, so that `input()`, pdb and full-screen programs work.
    While hidden it parses nothing, and keeps the last 256 KiB for when it is shown.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        # Plain control characters, because tmux and many terminals pass nothing fancier.
        Binding("ctrl+right_square_bracket,f12", "leave", "leave the program's keyboard", key_display="ctrl+] or F12"),
        Binding("shift+pageup,ctrl+pageup", "scroll_back(1)", "scroll back", show=False),
        Binding("shift+pagedown,ctrl+pagedown", "scroll_back(-1)", "scroll forward", show=False),
    ]

    DEFAULT_CSS = """
    OutputPane {
        width: 1fr;
        height: 1fr;
    }
    """

    @dataclass
    class Input(Message):
        """Keys or a paste, for the program's terminal."""

        data: bytes

    @dataclass
    class Reply(Message):
        """The terminal's answer to a query of the program; one viewer of several is to send it."""

        data: bytes

    @dataclass
    class Resized(Message):
        """The size the program's terminal is to have now, in cells."""

        columns: int
        rows: int

    @dataclass
    class Left(Message):
        """The user has given the keyboard back to the interface."""

    def __init__(self, *, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self._terminal = PacedTerminal(INITIAL_SIZE.width, INITIAL_SIZE.height, self._reply)
        self._shown = False
        self._cooling: Timer | None = None
        #: Number of the first line in view while scrolled back; None follows the program.
        self._anchor: int | None = None
        self._drawn_cursor = 0
        #: The widget's own style, under every pen; None until it is asked for again.
        self._base: Style | None = None
        self._styles: dict[Pen, Style] = {}

    # From the program

    def feed(self, data: bytes, *, replayed: bool = False) -> None:
        """Take output of the program; `replayed` output is from before this viewer, and its queries are old."""
        if self._terminal.arrive(data, replayed=replayed, shown=self._shown) and self._cooling is None:
            self._look()

    def note_lost(self, lost_bytes: int) -> None:
        """Say that output was lost on the way here; call it where it would have come."""
        self._terminal.lose(lost_bytes)
        self._refresh_dirty()

    def reset(self) -> None:
        """Begin again with an empty terminal, for another program."""
        self._terminal.reset()
        self._anchor = None
        self.refresh()

    @property
    def lines(self) -> list[str]:
        """The text of the screen's lines, without what still waits to be parsed."""
        screen = self._terminal.screen
        return [runs_text(screen.runs(y)) for y in range(screen.lines)]

    @property
    def settled(self) -> bool:
        """Whether all output is on the screen and more would be at once."""
        return self._terminal.waiting_bytes == 0 and self._cooling is None

    def _look(self) -> None:
        self._terminal.look(shown=self._shown)
        pause = LOOK_SECONDS_SCROLLING if self._refresh_dirty() else LOOK_SECONDS
        self._cooling = self.set_timer(pause, self._cooled) if self.is_attached else None

    def _cooled(self) -> None:
        self._cooling = None
        if self._terminal.waiting_bytes and (self._shown or self._terminal.asked):
            self._look()

    def _reply(self, data: bytes) -> None:
        self.post_message(self.Reply(data))

    # Drawing

    def render_line(self, y: int) -> Strip:
        """One line of the view."""
        screen = self._terminal.screen
        width = self.size.width
        base = self._base
        if base is None:
            base = self._base = self.rich_style
            self._styles.clear()
        number = self._top + y
        strip = Strip([Segment(text, self._style(pen)) for text, pen in self._runs(number)])
        strip = strip.adjust_cell_length(width, base)
        if self._anchor is not None and y == 0:
            note = f" {screen.scrolled - self._anchor:,} lines up, shift+pagedown returns "
            strip = _overlay(strip, note, max(0, width - len(note)), width, base + _NOTE)
        elif number - screen.scrolled == self._cursor_row and self._cursor_visible:
            strip = self._with_cursor(strip, min(screen.cursor.x, width - 1), width)
        return strip

    def notify_style_update(self) -> None:
        """The theme or the focus has changed the widget's own colours."""
        super().notify_style_update()
        self._base = None

    @property
    def _top(self) -> int:
        return self._terminal.screen.scrolled if self._anchor is None else self._anchor

    @property
    def _cursor_row(self) -> int:
        row: int = self._terminal.screen.cursor.y
        return row

    @property
    def _cursor_visible(self) -> bool:
        return self.has_focus and not self._terminal.screen.cursor.hidden

    def _runs(self, number: int) -> Runs:
        screen = self._terminal.screen
        if number >= screen.scrolled:
            return screen.runs(number - screen.scrolled)
        index = number - (screen.scrolled - len(screen.history))
        return screen.history[index] if 0 <= index < len(screen.history) else ()

    def _style(self, pen: Pen) -> Style:
        style = self._styles.get(pen)
        if style is None:
            if len(self._styles) >= _MAX_STYLES:
                self._styles.clear()
            style = (self._base or Style()) + pen_style(pen)
            self._styles[pen] = style
        return style + _REVERSED if self._terminal.screen.reversed else style

    def _with_cursor(self, strip: Strip, x: int, width: int) -> Strip:
        under = strip.crop(x, x + 1)
        segments = list(under)
        text = segments[0].text if segments else " "
        style = segments[0].style if segments and segments[0].style else Style()
        return _overlay(strip, text, x, width, style + Style(reverse=not style.reverse))

    def _refresh_dirty(self) -> bool:
        """Have the changed lines drawn; whether that is all of them."""
        screen = self._terminal.screen
        if not self._shown:
            screen.dirty.clear()  # all of it is drawn when it is shown
            return False
        first = screen.scrolled - len(screen.history)
        if self._anchor is not None and self._anchor < first:
            self._anchor = first  # what was in view is forgotten
            self.refresh()
        cursor = self._cursor_row
        if self.has_focus and cursor != self._drawn_cursor:
            screen.dirty.update({cursor, self._drawn_cursor})
            self._drawn_cursor = cursor
        elif self.has_focus:
            screen.dirty.add(cursor)
        below = screen.scrolled - self._top  # rows of history in view
        rows = [y + below for y in screen.dirty if 0 <= y + below < self.size.height]
        if self._anchor is not None and 0 not in rows:
            rows.append(0)  # it says how far up the view is
        screen.dirty.clear()
        if len(rows) >= self.size.height:
            self.refresh()
            return True
        if rows:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in rows))
        return False

    # Events

    def on_show(self) -> None:
        """Catch up with the program."""
        self._shown = True
        if self._cooling is None:
            self._look()

    def on_hide(self) -> None:
        """Parse no more."""
        self._shown = False

    def on_resize(self, event: events.Resize) -> None:
        """Give the program's terminal the widget's size."""
        width, height = self.size
        screen = self._terminal.screen
        if not width or not height or (width, height) == (screen.columns, screen.lines):
            return
        screen.resize(height, width)
        self._anchor = None
        self.refresh()
        self.post_message(self.Resized(width, height))

    def on_focus(self) -> None:
        """Show the cursor."""
        self._report_focus(b"\x1b[I")

    def on_blur(self) -> None:
        """Hide the cursor."""
        self._report_focus(b"\x1b[O")

    def _report_focus(self, report: bytes) -> None:
        self.refresh(Region(0, self._cursor_row, self.size.width, 1))
        if FOCUS_REPORTS in self._terminal.screen.remembered:
            self.post_message(self.Input(report))

    async def on_key(self, event: events.Key) -> None:
        """Send every key to the program, but those bound here."""
        if event.key in _OWN_KEYS:
            return
        application_cursor = APPLICATION_CURSOR in self._terminal.screen.remembered
        data = encode_key(event.key, event.character, application_cursor=application_cursor)
        if data is not None:
            event.stop()
            event.prevent_default()
            self._send(data)

    def on_paste(self, event: events.Paste) -> None:
        """Send pasted text to the program."""
        event.stop()
        bracketed = BRACKETED_PASTE in self._terminal.screen.remembered
        self._send(encode_paste(event.text, bracketed=bracketed))

    def _send(self, data: bytes) -> None:
        self._view_from(None)
        self.post_message(self.Input(data))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll back; in a full-screen program, cursor keys."""
        event.stop()
        self._wheel(WHEEL_LINES)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll forward; in a full-screen program, cursor keys."""
        event.stop()
        self._wheel(-WHEEL_LINES)

    def _wheel(self, lines: int) -> None:
        screen = self._terminal.screen
        if not screen.second:
            self._view_by(lines)
        elif self.has_focus:
            key = encode_key(
                "up" if lines > 0 else "down", None, application_cursor=APPLICATION_CURSOR in screen.remembered
            )
            self.post_message(self.Input((key or b"") * abs(lines)))

    def action_scroll_back(self, pages: int) -> None:
        """Scroll back by pages less one line, forward by negative ones."""
        self._view_by(pages * max(1, self.size.height - 1))

    def action_leave(self) -> None:
        """Give the keyboard back to the interface."""
        self.screen.set_focus(None)
        self.post_message(self.Left())

    def _view_by(self, lines: int) -> None:
        screen = self._terminal.screen
        top = max(self._top - lines, screen.scrolled - len(screen.history))
        self._view_from(top if top < screen.scrolled else None)

    def _view_from(self, anchor: int | None) -> None:
        if anchor != self._anchor:
            self._anchor = anchor
            self.refresh()


def _overlay(strip: Strip, text: str, x: int, width: int, style: Style) -> Strip:
    piece = Strip([Segment(text, style)])
    return Strip.join([strip.crop(0, x), piece, strip.crop(x + piece.cell_length, width)]).crop(0, width)
