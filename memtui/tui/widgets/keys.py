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
    ("y", "scale", 10),
    ("d", "record a step", 11),
    ("[ ]", "device", 5),
    ("o", "out of memory", 2),
    ("m", "meaning", 6),
    ("w", "what if", 7),
    ("g", "glossary", 8),
    ("t", "theme", 9),
    ("?", "help", 1),
    ("q", "quit", 0),
)

#: Of an opened snapshot.
_SNAPSHOT = (
    ("← →", "time", 2),
    ("+ -", "zoom", 3),
    ("p", "peak", 4),
    ("o", "failed", 6),
    ("m", "mark", 7),
    ("enter", "open", 5),
    ("[ ]", "device", 8),
    ("?", "help", 1),
    ("q", "quit", 0),
)
_FLAME = (("↑ ↓ ← →", "box", 2), (", .", "time", 4), *(each for each in _SNAPSHOT if each[1] != "time"))

#: Of an opened snapshot's tabs.
SNAPSHOT_KEYS_OF = {
    **dict.fromkeys(("live", "categories", "largest", "segments", "difference"), _SNAPSHOT),
    "flame": _FLAME,
}

#: Of tabs that have keys of their own.
KEYS_OF = {
    "step": (
        ("d", "record", 2),
        ("b", "group", 3),
        ("← →", "instant", 4),
        ("home", "peak", 5),
        ("+ -", "zoom", 6),
        ("y", "event/time", 7),
        ("[ ]", "device", 8),
        ("?", "help", 1),
        ("q", "quit", 0),
    ),
    "segments": (
        ("f", "fits?", 2),
        ("b", "batch?", 4),
        ("↑ ↓", "segment", 5),
        ("s", "order", 6),
        ("r", "read again", 8),
        ("[ ]", "device", 3),
        ("p", "pause", 7),
        ("?", "help", 1),
        ("q", "quit", 0),
    ),
    "tensors": (
        ("p", "pause", 3),
        ("s", "sort", 4),
        ("c", "category", 5),
        ("/", "filter", 6),
        ("[ ]", "device", 2),
        ("t", "theme", 7),
        ("?", "help", 1),
        ("q", "quit", 0),
    ),
}

_ASCII_KEYS = {"← →": "< >", "↑ ↓ ← →": "arrows"}

#: While the keyboard is the program's.
HINT = "the keyboard is the program's   "
WAY_OUT = ("ctrl+] or F12", "takes it back", 0)
SHORT_WAY_OUT = ("ctrl+] or F12", "back", 0)


class Keys(Lines):
    """The tabs on the left, the keys on the right."""

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self.keys_of = KEYS_OF
        self.tabs: tuple[tuple[str, str], ...] = ()  # (key, name)
        self.active = ""
        self.paused = False
        self.several_devices = False
        self.failed = False  # an allocation has
        self.typing = False  # the keyboard is the program's
        self.replay = False

    def on_click(self, event: events.Click) -> None:
        """A tab is pointed at."""
        x = 1
        for name, pieces in self._tabs(self.size.width):
            end = x + sum(len(text) for text, _ in pieces)
            if x <= event.x < end:
                self.post_message(TabPointed(name))
            x = end

    def source(self) -> object:
        """Tabs and states."""
        return self.tabs, self.active, self.paused, self.several_devices, self.typing, self.replay, self.failed

    def draw(self, width: int, height: int) -> list[Row]:
        """One line."""
        line = Line().add(" ", " ")
        for _, pieces in self._tabs(width):
            for text, role in pieces:
                line.add(text, role)
        if self.typing:
            keys = [WAY_OUT if _length(WAY_OUT) <= width - line.width else SHORT_WAY_OUT]
            start = width - _length(WAY_OUT) - len(HINT)
            if start > line.width:
                line.pad(start).add(HINT, roles.DIM)
        else:
            keys = [entry for entry in self.keys_of.get(self.active, KEYS) if entry[0] != "[ ]" or self.several_devices]
        if self.replay:
            keys = [entry for entry in keys if entry[0] not in ("p", "d", "r")]
        if not self.failed:
            keys = [entry for entry in keys if entry[0] != "o"]
        if self.paused:
            keys = [("p", "go on", 2) if entry[0] == "p" else entry for entry in keys]
        while keys and sum(map(_length, keys)) > width - line.width - (0 if self.typing else 1):
            keys.remove(max(keys, key=lambda entry: entry[2]))
        length = sum(map(_length, keys))
        line.pad(width - length)
        for key, name, _ in keys:
            shown = _ASCII_KEYS.get(key, key) if not self.look.glyphs.braille else key
            line.add(shown, roles.KEY).add(f" {name}  ", roles.DIM)
        return [line.row(width)]

    def _tabs(self, width: int) -> list[tuple[str, list[tuple[str, str]]]]:
        """(name, [(text, role)]) of each tab; only the active one's name where else leaving could not be told."""
        tabs = []
        shown = self._shown_tabs(width)
        names = self.typing or 1 + sum(len(key) + len(name) + 4 for key, name in shown) + _NEEDED <= width
        for key, name in shown:
            if name == self.active:
                tabs.append((name, [(f" {key} {name} ", roles.ACTIVE), (" ", " ")]))
            elif names:
                tabs.append((name, [(f" {key} ", roles.KEY), (f"{name} ", roles.DIM), (" ", " ")]))
            else:
                tabs.append((name, [(f"{key} ", roles.KEY)]))
        return tabs

    def _shown_tabs(self, width: int) -> tuple[tuple[str, str], ...]:
        """All tabs; only the one that is shown where else there would be no room for the way out of it."""
        taken = 1 + sum(len(key) + len(name) + 4 for key, name in self.tabs)
        if self.typing and taken + _length(WAY_OUT) > width:
            return tuple(tab for tab in self.tabs if tab[1] == self.active)
        return self.tabs


def _length(entry: tuple[str, str, int]) -> int:
    key, name, _ = entry
    return len(cells(key)) + len(name) + 3


#: Cells that the keys for leaving and for help take.
_NEEDED = sum(_length(entry) for entry in KEYS if entry[2] <= 1) + 1
