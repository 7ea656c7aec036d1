"""Which stretch of time the chart shows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional

from .scale import DEFAULT_SPAN, SPANS, USUAL_SPAN

#: How a young session's window grows until it has its usual length.
FIRST_SPANS = (SPANS.index(60), DEFAULT_SPAN)


@dataclass(frozen=True)
class Window:
    """A span of the ladder SPANS, ending now (`end_ns` None) or at an instant of the past; with a cursor or none.

    `span` None is the usual length for the session's age.
    """

    span: Optional[int] = None
    end_ns: Optional[int] = None
    cursor_ns: Optional[int] = None

    def index(self, age_ns: int) -> int:
        """The place in SPANS of what is shown for a session of this age."""
        if self.span is not None:
            return self.span
        for index in FIRST_SPANS:
            if age_ns <= SPANS[index] * 1_000_000_000:
                return index
        return FIRST_SPANS[-1]

    def cell_ns(self, cells: int, age_ns: int) -> int:
        """The time of one column of cells; even, since each has two halves."""
        wanted = int(SPANS[self.index(age_ns)] * 1_000_000_000)
        return max(2, 2 * -(-wanted // (2 * max(1, cells))))

    def close(self, age_ns: int) -> bool:
        """Whether a column is so short that most have no sample."""
        return self.index(age_ns) < USUAL_SPAN

    def zoomed(self, steps: int, age_ns: int, now_ns: int, cells: int, closest: int = USUAL_SPAN) -> Window:
        """Zoomed out by `steps`, to the place `closest` of SPANS at most; the cursor, or else the end, stays."""
        now = self.index(age_ns)
        index = max(min(closest, now), min(len(SPANS) - 1, now + steps))
        result = replace(self, span=index)
        if self.cursor_ns is None:
            return result
        before, after = self.cell_ns(cells, age_ns), result.cell_ns(cells, age_ns)
        end_before = now_ns if self.end_ns is None else self.end_ns
        end = self.cursor_ns + (end_before - self.cursor_ns) * after // before
        return replace(result, end_ns=None if end >= now_ns else end)

    def moved(self, columns: int, cells: int, age_ns: int, first_ns: int, now_ns: int) -> Window:
        """The cursor moved by `columns` of cells (set at the end if there was none), the window following it."""
        cell = self.cell_ns(cells, age_ns)
        start_from = now_ns if self.cursor_ns is None else self.cursor_ns
        cursor = start_from + columns * cell
        if columns > 0 and cursor >= now_ns:
            return self.live()
        return self.at(max(first_ns, min(cursor, now_ns)), cells, age_ns, now_ns)

    def at(self, cursor_ns: int, cells: int, age_ns: int, now_ns: int) -> Window:
        """The cursor set at an instant, the window moved so far that it is in sight."""
        cell = self.cell_ns(cells, age_ns)
        end = now_ns if self.end_ns is None else self.end_ns
        last = end // cell
        place = cursor_ns // cell
        if place > last:
            last = place
        elif place <= last - cells:
            last = place + cells - 1
        fixed = last * cell + cell - 1
        return replace(self, cursor_ns=cursor_ns, end_ns=None if fixed >= now_ns else fixed)

    def live(self) -> Window:
        """The same zoom, ending now, without a cursor."""
        return Window(span=self.span)
