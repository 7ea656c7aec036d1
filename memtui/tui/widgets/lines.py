"""A widget made of lines of cells, that knows which cells changed."""

from __future__ import annotations

from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from memtui.tui.look import Look
from memtui.tui.rows import EMPTY, Row, Span, changes, fit


class Lines(Widget):
    """Draws rows of fixed-width cells; subclasses say which in `draw`. It has no border, padding or scroll bar."""

    ALLOW_SELECT = False

    def __init__(self, look: Look, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.look = look
        self._rows: list[Row] = []
        self._strips: dict[int, tuple[Row, Strip]] = {}
        self._drawn_from: object = None

    def draw(self, width: int, height: int) -> list[Row]:
        """The rows as they should be now; missing ones are blank, each is cut or filled to `width`."""
        raise NotImplementedError

    def source(self) -> object:
        """All that `draw` goes by: while this is equal nothing is drawn again. None: nobody knows."""
        return None

    def set_look(self, look: Look) -> None:
        """Draws with another theme or other characters from now on."""
        self.look = look
        self._strips.clear()
        self._rows = []
        self.refresh()

    def take_changes(self) -> list[Span]:
        """Draws again; the cells that differ from what was drawn before, in the widget's own coordinates."""
        source, (width, height) = self.source(), self.size
        made_from = (source, width, height)
        if source is not None and self._rows and made_from == self._drawn_from:
            return []
        self._drawn_from = made_from
        before = self._rows
        rows = self._drawn(width, height)
        if len(before) != len(rows):
            return [Span(y, 0, len(row.text)) for y, row in enumerate(rows)]
        return [span for y, row in enumerate(rows) for span in changes(y, before[y], row)]

    def placed(self, spans: list[Span]) -> list[tuple[Span, Row]]:
        """Spans in the screen's coordinates with the cells that belong there, cut to what is visible."""
        x, y, width, height = self.region
        visible_width, visible_height = self.screen.size
        result = []
        for span in spans:
            start, end = span.start, min(span.end, visible_width - x, width)
            if 0 <= y + span.y < visible_height and span.y < height and start < end:
                text, role = self._rows[span.y]
                result.append((Span(y + span.y, x + start, x + end), Row(text[start:end], role[start:end])))
        return result

    def render_lines(self, crop: Region) -> list[Strip]:
        """The rows as they were last drawn: Textual's own cache of lines would be stale after a direct write."""
        width, height = self.size
        if len(self._rows) != height or (self._rows and len(self._rows[0].text) != width):
            self._drawn(width, height)
        strips = [self._strip(y) for y in crop.line_range]
        if crop.column_span != (0, width):
            return [strip.crop(*crop.column_span) for strip in strips]
        return strips

    def render_line(self, y: int) -> Strip:
        """One row, for what asks Textual's usual way."""
        return self.render_lines(Region(0, y, self.size.width, 1))[0]

    def lines(self) -> list[str]:
        """The text of the rows, for tests and for copying."""
        return [row.text for row in (self._rows or self._drawn(*self.size))]

    def _drawn(self, width: int, height: int) -> list[Row]:
        rows = [fit(row, width) for row in self.draw(width, height)[:height]] if width and height else []
        blank = fit(EMPTY, width)
        rows.extend([blank] * (height - len(rows)))
        self._rows = rows
        return rows

    def _strip(self, y: int) -> Strip:
        if not 0 <= y < len(self._rows):
            return self.look.strip(fit(EMPTY, self.size.width))
        row = self._rows[y]
        held = self._strips.get(y)
        if held is None or held[0] is not row:
            held = self._strips[y] = (row, self.look.strip(row))
        return held[1]
