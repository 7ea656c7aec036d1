"""What a terminal that is too small shows."""

from __future__ import annotations

from memtui.tui import roles
from memtui.tui.rows import Line, Row

from .lines import Lines


class Small(Lines):
    """Asks for more room; the monitor goes on behind it."""

    def draw(self, width: int, height: int) -> list[Row]:
        """A line or two."""
        rows = [Line().add("enlarge the terminal", roles.BRIGHT).row(width)]
        if height > 1:
            rows.append(Line().add("memtui needs 40x10", roles.DIM).row(width))
        return rows
