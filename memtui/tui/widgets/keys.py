"""The last line: where one is, and the keys."""

from __future__ import annotations

from textual import events

from memtui.tui import roles
from memtui.tui.look import Look
from memtui.tui.messages import TabPointed
from memtui.tui.rows import Line, Row, cells

from .lines import Lines

#: In the order shown; with less room the ones with the highest rank go first.
KEYS = (
    ("p", "pause", 2),
    ("+ -", "zoom", 3),
    ("← →", "time", 4),
    ("y", "scale", 8),
    ("[ ]", "device", 5),
    ("g", "glossary", 6),
    ("t", "theme", 7),
    ("?", "help", 1),
    ("q", "quit", 0),
)


#: While the keyboard is the program's.
HINT = "the keyboard is the program's   "
WAY_OUT = ("ctrl+] or F12", "takes it back", 0)
SHORT_WAY_OUT = ("ctrl+] or F12", "back", 0)


class Keys(Lines):
    """The tabs on the left, the keys on the right."""

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self.tabs: tuple[tuple[str, str], ...] = ()  # (key, name)
        self.active = ""
        self.paused = False
        self.several_devices = False
        self.typing = False  # the keyboard is the program's
        self.replay = False

    def on_click(self, event: events.Click) -> None:
        """A tab is pointed at."""
        x = 1
        for key, name in self._shown_tabs(self.size.width):
            end = x + len(key) + len(name) + 4
            if x <= event.x < end:
                self.post_message(TabPointed(name))
            x = end

    def source(self) -> object:
        """Tabs and states."""
        return self.tabs, self.active, self.paused, self.several_devices, self.typing, self.replay

    def draw(self, width: int, height: int) -> list[Row]:
        """One line."""
        line = Line().add(" ", " ")
        for key, name in self._shown_tabs(width):
            active = name == self.active
            line.add(f" {key} ", roles.ACTIVE if active else roles.KEY)
            line.add(f"{name} ", roles.ACTIVE if active else roles.DIM).add(" ", " ")
        if self.typing:
            keys = [WAY_OUT if _length(WAY_OUT) <= width - line.width else SHORT_WAY_OUT]
            start = width - _length(WAY_OUT) - len(HINT)
            if start > line.width:
                line.pad(start).add(HINT, roles.DIM)
        else:
            keys = [entry for entry in KEYS if entry[0] != "[ ]" or self.several_devices]
        if self.replay:
            keys = [entry for entry in keys if entry[0] != "p"]
        if self.paused:
            keys = [("p", "go on", 2) if entry[0] == "p" else entry for entry in keys]
        while keys and sum(map(_length, keys)) > width - line.width - (0 if self.typing else 1):
            keys.remove(max(keys, key=lambda entry: entry[2]))
        length = sum(map(_length, keys))
        line.pad(width - length)
        for key, name, _ in keys:
            shown = {"← →": "< >"}.get(key, key) if not self.look.glyphs.braille else key
            line.add(shown, roles.KEY).add(f" {name}  ", roles.DIM)
        return [line.row(width)]

    def _shown_tabs(self, width: int) -> tuple[tuple[str, str], ...]:
        """All tabs; only the one that is shown where else there would be no room for the way out of it."""
        taken = 1 + sum(len(key) + len(name) + 4 for key, name in self.tabs)
        if self.typing and taken + _length(WAY_OUT) > width:
            return tuple(tab for tab in self.tabs if tab[1] == self.active)
        return self.tabs


def _length(entry: tuple[str, str, int]) -> int:
    key, name, _ = entry
    return len(cells(key)) + len(name) + 3
