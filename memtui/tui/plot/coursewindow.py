"""Which stretch of a snapshot's events is shown, and the instant that is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Optional

#: Closer than this there is nothing more to see.
LEAST_LENGTH = 8


@dataclass(frozen=True)
class CourseWindow:
    """Instants [start, start + length) of `instants`, and the cursor, which is always in sight."""

    instants: int
    start: int
    length: int
    cursor: int

    @classmethod
    def whole(cls, instants: int, cursor: int) -> CourseWindow:
        """All of them."""
        return cls(instants, 0, instants, cursor)

    def span(self, column: int, cells: int) -> tuple[int, int]:
        """The first instant of a column, and the one after its last; a column has at least one."""
        first = self.start + self.length * column // cells
        return first, max(first + 1, self.start + self.length * (column + 1) // cells)

    def column_of(self, instant: int, cells: int) -> Optional[int]:
        """The column in which an instant is, the middle one of several; None where it is out of sight."""
        place = instant - self.start
        if not 0 <= place < self.length:
            return None
        return (-(-place * cells // self.length) + ((place + 1) * cells - 1) // self.length) // 2

    def at(self, instant: int) -> CourseWindow:
        """The cursor at an instant, the nearest there is; the window moves where it would be out of sight."""
        instant = max(0, min(instant, self.instants - 1))
        result = replace(self, cursor=instant)
        if self.start <= instant < self.start + self.length:
            return result
        return replace(result, start=self._fitting(instant - self.length // 2, self.length))

    def moved(self, by: int, cells: int, figures: Sequence[int]) -> CourseWindow:
        """The cursor `by` columns further, on the most in the column; by instants where those are wider."""
        if self.length <= cells:
            return self.at(self.cursor + by)
        place = self.column_of(self.cursor, cells) or 0
        target = place + by
        if not 0 <= target < cells:
            edge = self.start if by < 0 else self.start + self.length - 1
            return self.at(edge + by * self.length // cells)
        return self.at(highest(figures, *self.span(target, cells)))

    def zoomed(self, steps: int) -> CourseWindow:
        """Twice as long for each step, or half as long below 0; the cursor stays in its place."""
        length = self.length << steps if steps > 0 else self.length >> -steps
        length = max(min(LEAST_LENGTH, self.instants), min(length, self.instants))
        start = self.cursor - (self.cursor - self.start) * length // self.length
        return replace(self, start=self._fitting(start, length), length=length)

    def _fitting(self, start: int, length: int) -> int:
        return max(0, min(start, self.instants - length))


def highest(figures: Sequence[int], first: int, end: int) -> int:
    """The instant in [first, end) with most."""
    part = figures[first:end]
    return first + part.index(max(part))
