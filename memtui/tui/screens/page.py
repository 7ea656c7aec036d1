"""Pages of text over the monitor: help and the glossary."""

from __future__ import annotations

import textwrap
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from memtui.analysis import glossary
from memtui.tui import roles
from memtui.tui.look import Look
from memtui.tui.rows import Line, Row, clip
from memtui.tui.widgets.lines import Lines

#: (left, right) of a line; a heading has nothing on its right.
Entries = tuple[tuple[str, str], ...]

KEYS: Entries = (
    ("Time", ""),
    ("p  space", "pause the screen; everything is still received"),
    ("+ -   z x", "zoom in, zoom out"),
    ("← →", "a cursor in the chart, with the figures at that time"),
    ("page up, page down", "back and forth by half a window"),
    ("home  end", "the oldest figures; live again"),
    ("y", "the scale fits the device, or the data"),
    ("Places", ""),
    ("1  2  3", "memory, events, the program's output"),
    ("[  ]   tab", "the previous and the next device"),
    ("↑ ↓", "a figure of the column, and what it means"),
    ("g", "glossary of all terms"),
    ("Else", ""),
    ("t", "the next theme"),
    ("ctrl+p", "all commands: themes, devices, a picture of the screen"),
    ("ctrl+z", "suspend; fg comes back"),
    ("ctrl+l", "draw the screen again"),
    ("q  ctrl+c", "quit; asks first where the program would be left running"),
    ("ctrl+]  F12", "in the output: back from the program's keyboard"),
    ("How to read the screen", ""),
    ("area", "allocated: dark up to the least in a column's time, bright from there to the most"),
    ("thick line, thin line", "reserved; used on the device"),
    ("dashed line, italic", "predicted"),
    ("≥", "at least: the true value may have been higher between two samples"),
    ("–", "unknown here, which never means 0"),
)


def glossary_entries() -> Entries:
    """The glossary's lines, by heading."""
    entries: list[tuple[str, str]] = []
    for heading, keys in glossary.ORDER:
        entries.append((heading, ""))
        entries.extend(glossary.TERMS[key] for key in keys)
    return tuple(entries)


class Page(Lines):
    """Two columns of text under a title, which can be scrolled."""

    def __init__(self, look: Look, title: str, entries: Entries) -> None:
        super().__init__(look, id="page")
        self.heading = title
        self.entries = entries
        self.first = 0

    def scroll(self, lines: int) -> None:
        """Moves the text up by `lines`, or down."""
        most = len(self._body(self.size.width)) - (self.size.height - 1)
        self.first = max(0, min(self.first + lines, most))
        self.take_changes()
        self.refresh()

    def draw(self, width: int, height: int) -> list[Row]:
        """The part of the page that is in view."""
        body = self._body(width)
        title = Line().add(f"  {self.heading} ", roles.BRIGHT)
        more = len(body) > height - 1
        hint = "up, down: more   escape: back  " if more else "escape: back  "
        title.pad(width - len(hint)).add(hint, roles.DIM)
        return [title.row(width), *body[self.first : self.first + height - 1]]

    def _body(self, width: int) -> list[Row]:
        body: list[Row] = []
        left_width = min(max(len(left) for left, right in self.entries if right) + 3, width * 2 // 5)
        for left, right in self.entries:
            if not right:
                body.append(Line().row(width))
                body.append(Line().add("  " + self.look.text(left), roles.TITLE).row(width))
                continue
            shown = clip(self.look.text(left), left_width - 1).ljust(left_width)
            # Lines of text longer than this are hard to follow with the eye.
            for piece in textwrap.wrap(self.look.text(right), max(10, min(90, width - left_width - 4))):
                body.append(Line().add("  " + shown, roles.BRIGHT).add(piece, roles.TEXT).row(width))
                shown = " " * left_width
        return body


class PageScreen(Screen[None], inherit_bindings=False):
    """A page that any of its keys closes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,g,enter,ctrl+c", "dismiss", show=False),
        Binding("up,k", "scroll_page(-1)", show=False),
        Binding("down,j", "scroll_page(1)", show=False),
        Binding("pageup", "scroll_page(-10)", show=False),
        Binding("pagedown,space", "scroll_page(10)", show=False),
    ]

    def __init__(self, look: Look, title: str, entries: Entries) -> None:
        super().__init__()
        self.page = Page(look, title, entries)

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

    async def action_dismiss(self, result: None = None) -> None:
        """Back to the monitor."""
        self.dismiss(result)
