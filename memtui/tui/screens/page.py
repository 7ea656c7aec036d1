"""Pages of text over the monitor: help, the glossary, and what the figures mean."""

from __future__ import annotations

import textwrap
from typing import ClassVar, Optional

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from memtui.analysis import glossary
from memtui.analysis.meaning import meanings
from memtui.analysis.view import View
from memtui.tui import roles
from memtui.tui.glyphs import Glyphs
from memtui.tui.look import Look
from memtui.tui.rows import Line, Row, cells, shorten
from memtui.tui.widgets.lines import Lines

#: (left, right) of a line; a heading has nothing on its right.
Entries = tuple[tuple[str, str], ...]

KEYS: Entries = (
    ("Time", ""),
    ("p  space", "pause the screen; everything is still received"),
    ("+ -   z x", "zoom in, as far as frames have detail; zoom out"),
    ("← →", "a cursor in the chart, with the figures at that time"),
    ("page up, page down", "back and forth by half a window"),
    ("home  end", "the oldest figures; live again"),
    ("y", "the scale fits the device, or the data"),
    ("Places", ""),
    ("1  2  3", "memory, events, the program's output"),
    ("4", "a recorded step: its exact peak, and what made it"),
    ("5", "the largest live tensors, by name"),
    ("6", "segments: the allocator's address space, what pins it, and what would fit"),
    ("[  ]   tab", "the previous and the next device"),
    ("↑ ↓", "a figure of the column, and what it means"),
    ("m", "what the figures mean, in sentences, as of this moment"),
    ("w", "what if: a larger batch, checkpointing, another optimizer, more devices, and whether it fits"),
    ("o", "out of memory: the cause of each failed allocation, who held what, and what would have helped"),
    ("g", "glossary of all terms"),
    ("Several ranks", ""),
    ("0", "all ranks of a launcher side by side, with what is wrong between them; escape, where nothing is marked"),
    ("↑ ↓  enter", "choose a rank; its full screen (1 to 6: that place of it)"),
    ("s", "sort by rank, by headroom, by how far its peak is from the others'"),
    ("space  c", "mark a rank; compare two, category by category: marked ones, else with one in the middle"),
    ("e", "the lives before a restart, too"),
    ("v  + -", "small multiples, or lines; charts of less or more time"),
    ("Ranks from Prometheus", ""),
    ("b  escape", "groups: runs, hosts, pipeline stages, jobs; back to the ranks, to the groups, or to now"),
    ("← →  , .  < >", "back and forth in time, by a twentieth of what the charts show; ten times as far"),
    ("l", "now"),
    ("A recorded step", ""),
    ("d", "record the next step: every allocation and free in it"),
    ("r", "save the next step's allocator history here, as PyTorch's snapshot file, for memtui open"),
    ("← →", "another instant: what the memory was made of then"),
    ("home  end", "the peak again; the end of the step"),
    ("↑ ↓  page up, page down", "a row of the table, with its whole call site"),
    ("b  B", "by tensor, call site or module"),
    ("+ -   y", "zoom; as wide as there were events, or as time was"),
    (",  .", "the step that was recorded before, or after"),
    ("Live tensors", ""),
    ("s  S   r", "sort by another column; the other way round"),
    ("c  C", "one category only"),
    ("/", "only what contains this text: a name, a shape, a dtype; enter keeps it, escape shows all"),
    ("↑ ↓  page up, page down", "more rows"),
    ("Segments", ""),
    ("f", "would so many bytes fit? 1.5GiB or 96KiB, by the allocator's own rules"),
    ("b", "would another batch? x2, 4096 tokens or 96KiB of input, from the recorded steps"),
    ("↑ ↓  page up, page down", "a segment, on the map alone; escape: all of them"),
    ("s  S   r", "another order; read them again"),
    ("What if", ""),
    ("+ -   ← →", "a batch so many times as large; so many devices that share"),
    ("b", "any other batch or length, from the recorded steps"),
    ("↑ ↓", "a lever, with its rule, what it assumes and what it costs"),
    ("Else", ""),
    ("t", "the next theme"),
    ("ctrl+p", "all commands: themes, devices, a picture of the screen"),
    ("ctrl+z", "suspend; fg comes back"),
    ("ctrl+l", "draw the screen again"),
    ("q  ctrl+c", "quit; asks first where the program would be left running; on a page like this one: back"),
    ("ctrl+]  F12", "in the output: back from the program's keyboard"),
    ("How to read the screen", ""),
    ("area", "allocated: dark up to the least in a column's time, bright from there to the most"),
    ("only its outline", "zoomed in closely: nothing was read there; the height is what was read last before it"),
    ("thick line, thin line", "reserved; used on the device"),
    ("dashed line, italic", "predicted"),
    ("≥", "at least: the true value may have been higher between two samples"),
    ("±", "how far off such forecasts were: the last of this run, else a benchmark's; + where it can only be more"),
    ("≤", "at most, of what would be under another setting"),
    ("–", "unknown here, which never means 0"),
)


#: The strip of phases under the chart; all that can stand in it.
_PHASES = {
    "startup": "startup: before the first forward",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "the optimizer's step",
    "between": "between steps",
    "evaluation": "evaluation: forward without gradients",
    "checkpoint": "checkpoint: saving or loading",
    "compilation": "compilation",
}
_UNKNOWN_PHASE = ("?  (or a blank)", "not known")

#: How a page is left, and where there is room how it is scrolled.
_BACK, _MORE, _MORE_FROM = "q, escape: back", "up, down: more", 60


def help_entries(glyphs: Glyphs) -> Entries:
    """The keys, and how the screen is read with these characters."""
    letters = ((glyphs.phase(name), words) for name, words in _PHASES.items())
    return (*KEYS, ("Letters of the phases", ""), *letters, _UNKNOWN_PHASE)


def glossary_entries() -> Entries:
    """The glossary's lines, by heading."""
    entries: list[tuple[str, str]] = []
    for heading, keys in glossary.ORDER:
        entries.append((heading, ""))
        entries.extend(glossary.TERMS[key] for key in keys)
    return tuple(entries)


def meaning_entries(view: Optional[View]) -> tuple[str, Entries]:
    """The title and the lines of what the figures of a view mean; they stay as they are while the page is open."""
    found = () if view is None else meanings(view)
    entries: list[tuple[str, str]] = []
    for question, answer in found:
        entries += [(question, ""), ("", answer)]
    if view is None or not found:
        return "what it means", (("", "no figures of PyTorch's yet"),)
    return " · ".join(part for part in ("what it means", view.device, view.place) if part), tuple(entries)


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
        more = len(body) > height - 1
        hint = f"{_MORE}   {_BACK}  " if more and width >= _MORE_FROM else f"{_BACK}  "
        heading = shorten(self.look.text(self.heading), max(0, width - len(hint) - 3), self.look.glyphs.ellipsis)
        title = Line().add(f"  {heading} ", roles.BRIGHT)
        title.pad(width - len(hint)).add(hint, roles.DIM)
        return [title.row(width), *body[self.first : self.first + height - 1]]

    def _body(self, width: int) -> list[Row]:
        body: list[Row] = []
        left_width = min(max(len(self.look.text(left)) for left, right in self.entries if right) + 3, width * 2 // 5)
        for left, right in self.entries:
            if not right:
                body.append(Line().row(width))
                body.append(Line().add("  " + self.look.text(left), roles.TITLE).row(width))
                continue
            shown = self.look.text(left).ljust(left_width)
            if len(cells(shown)) > left_width:  # it has a line of its own
                body.append(Line().add("  " + shown, roles.BRIGHT).row(width))
                shown = " " * left_width
            # Lines of text longer than this are hard to follow with the eye.
            for piece in textwrap.wrap(self.look.text(right), max(10, min(90, width - left_width - 4))):
                body.append(Line().add("  " + shown, roles.BRIGHT).add(piece, roles.TEXT).row(width))
                shown = " " * left_width
        return body


class PageScreen(Screen[None], inherit_bindings=False):
    """A page that escape, q and the keys that open pages close."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,g,m,enter,ctrl+c", "dismiss", show=False),
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
