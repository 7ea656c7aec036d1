"""The lines below the bar: fragmentation, forecast, what it means, peaks by phase, hardware, growth, notices."""

from __future__ import annotations

from collections.abc import Iterator

from memtui.analysis.meaning import meaning_line
from memtui.analysis.view import View
from memtui.tui import roles
from memtui.tui.look import Look
from memtui.tui.rows import Line, Row, cells, shorten

from .lines import Lines

LABEL_WIDTH = 15

#: From this width on there is room for what is only good to know.
WIDE = 120


class Evidence(Lines):
    """One labelled line a matter, the less important ones left out where there is no room."""

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self.view: View | None = None
        self._wanted: tuple[object, int] = (None, 0)

    def wanted(self, width: int) -> int:
        """Lines that everything would take."""
        asked = (self.source(), width)
        if asked != self._wanted[0]:
            self._wanted = (asked, sum(1 for _ in self._all(width, fold=True)))
        return self._wanted[1]

    def source(self) -> object:
        """The sentences."""
        view = self.view
        return view and (
            *(view.fragmentation, view.forecast, meaning_line(view), view.phase_peaks),
            *(view.hardware, view.growth, view.notices),
        )

    def draw(self, width: int, height: int) -> list[Row]:
        """The lines in their order; where there is no room each matter gets one, and the last ones are left out."""
        entries = list(self._all(width, fold=True))
        if len(entries) > height:  # what is only good to know goes before the ends of other lines
            entries = [entry for entry in entries if entry[0] != "peaks by phase"]
        if len(entries) > height:
            entries = list(self._all(width, fold=False))
        for dropped in ("", "peaks by phase", "grows", "hardware", "means"):
            while len(entries) > height:
                places = [place for place, entry in enumerate(entries) if entry[0] == dropped]
                if not places:
                    break
                del entries[places[-1]]
        return [self._line(label, text, width, role) for label, text, role in entries[:height]]

    def _all(self, width: int, *, fold: bool) -> Iterator[tuple[str, str, str]]:
        view = self.view
        if view is None:
            return
        room = width - LABEL_WIDTH - 2
        for label, texts, role in (
            ("fragmentation", view.fragmentation, roles.TEXT),
            ("forecast", view.forecast, roles.TEXT),
            ("means", (meaning_line(view),), roles.TEXT),
            ("peaks by phase", (view.phase_peaks if width >= WIDE else "",), roles.TEXT),
            ("hardware", (view.hardware,), roles.TEXT),
            ("grows", (view.growth,), roles.TEXT),
            ("notice", view.notices, roles.NOTE),
        ):
            first = True
            for text in texts:
                for piece in _folded(self.look.text(text), room if fold else 10_000):
                    yield label if first else "", piece, role
                    first = False

    def _line(self, label: str, text: str, width: int, role: str) -> Row:
        line = Line().add(" ", " ").add(label.ljust(LABEL_WIDTH), roles.DIM)
        return line.add(shorten(text, width - line.width - 1, self.look.glyphs.ellipsis), role).row(width)


def _folded(text: str, width: int) -> Iterator[str]:
    """Text broken between its parts, never within one that fits a line of its own."""
    if not text:
        return
    mark = " · " if " · " in text else " | "
    line = ""
    for part in text.split(mark):
        joined = line + mark + part if line else part
        if line and len(cells(joined)) > width:
            yield line
            line = part
        else:
            line = joined
    yield line
