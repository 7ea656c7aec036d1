"""The last line of the overview: what is in view, and the keys."""

from __future__ import annotations

from memtui.tui import roles
from memtui.tui.look import Look
from memtui.tui.rows import Line, Row
from memtui.tui.widgets.lines import Lines

#: In the order shown; with less room the ones with the highest number go first.
KEYS = (
    ("enter", "open", 1),
    ("s", "sort", 2),
    ("space", "mark", 4),
    ("c", "compare", 3),
    ("e", "earlier lives", 5),
    ("v", "small", 7),
    ("+ -", "zoom", 8),
    ("3", "output", 6),
    ("t", "theme", 9),
    ("?", "help", 1),
    ("q", "quit", 0),
)


class RanksKeys(Lines):
    """One line."""

    def __init__(self, look: Look, *, entries: tuple[tuple[str, str, int], ...] = KEYS, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self.entries = entries
        self.place = ""  # "1 to 18 of 64"
        self.order = ""
        self.restarted = self.output = False

    def source(self) -> object:
        """All that it says."""
        return self.place, self.order, self.restarted, self.output, self.entries

    def draw(self, width: int, height: int) -> list[Row]:
        """Left where one is, right the keys."""
        keys = [key for key in self.entries if (key[0] != "e" or self.restarted) and (key[0] != "3" or self.output)]
        left = f" {self.place}  by {self.order}" if self.place else f" by {self.order}"
        while keys and len(left) + 2 + sum(map(_length, keys)) > width:
            keys.remove(max(keys, key=lambda key: key[2]))
        line = Line().add(left, roles.DIM).pad(width - sum(map(_length, keys)))
        for key, name, _ in keys:
            line.add(key, roles.KEY).add(f" {name}  ", roles.DIM)
        return [line.row(width)]


def _length(key: tuple[str, str, int]) -> int:
    return len(key[0]) + len(key[1]) + 3
