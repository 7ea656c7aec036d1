"""Writes changed cells straight to the terminal.

Textual repaints every line that has a changed cell from its widget's left edge, through several messages and caches:
1.5 ms and some hundred bytes for one cell. A monitor at 10 Hz on the training's own machine cannot spend that, so what
changes with the figures goes to the terminal cell by cell. Whatever covers or moves a widget goes Textual's way.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from textual._compositor import CompositorUpdate
from textual.geometry import Region
from textual.screen import Screen

from .look import Look
from .rows import Row, Span
from .widgets.lines import Lines


class CellsUpdate(CompositorUpdate):
    """Cells of the screen as an escape sequence."""

    def __init__(self, sequence: str) -> None:
        self.sequence = sequence

    def render_segments(self, console: Console) -> str:
        """The sequence; it was made for this terminal's colours."""
        return self.sequence

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Nothing: a sequence of cursor movements is no renderable."""
        yield from ()


def paint(screen: Screen[Any], widgets: Iterable[Lines], look: Look) -> int:
    """Shows what changed in `widgets` since they were last drawn; how many cells that were."""
    app = screen.app
    direct = app.screen is screen and not app._batch_count and not screen._layout_required and app._running
    placed: list[tuple[Span, Row]] = []
    count = 0
    for widget in widgets:
        if not widget.is_mounted or not widget.display:
            continue
        spans = widget.take_changes()
        if not spans:
            continue
        count += sum(span.end - span.start for span in spans)
        if direct:
            placed.extend(widget.placed(spans))
        else:
            widget.refresh(*(Region(span.start, span.y, span.end - span.start, 1) for span in spans))
    if placed:
        app._display(screen, CellsUpdate(look.sequence(placed)))
    return count
