"""The flame view: boxes of calls as wide as what they hold, from the outermost at the top."""

from __future__ import annotations

from typing import NamedTuple, Optional

from textual import events

from memtui.analysis import units
from memtui.snapshots.flames import Flame
from memtui.tui import roles
from memtui.tui.look import Look
from memtui.tui.messages import SnapshotTurned
from memtui.tui.rows import EMPTY, Line, Row, cells, clip, shorten

from .bar import shares
from .lines import Lines
from .stackcolors import tenant

#: Narrower boxes have no gap to the next one.
_GAP_FROM = 3
_NOT_READ = "reading…"


class Box(NamedTuple):
    """A box on the screen; `path` leads to it from the outermost, a place for each level."""

    path: tuple[int, ...]
    start: int
    width: int
    flame: Flame


class FlameView(Lines):
    """Shows a tree; one box is chosen, and one fills the width."""

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self.flame: Optional[Flame] = None
        self.title = "flame"
        self.root: tuple[int, ...] = ()  # of the box that fills the width
        self.chosen: tuple[int, ...] = ()

    def show(self, flame: Optional[Flame]) -> None:
        """Another instant's tree; what was looked at stays, where calls of the same names are there."""
        before = self.flame
        if flame is before:
            return
        self.flame = flame
        if flame is None or before is None:
            return
        self.root, self.chosen = _same(before, flame, self.root), _same(before, flame, self.chosen)
        if self.chosen[: len(self.root)] != self.root:
            self.chosen = self.root

    # Keys

    def go(self, levels: int, beside: int) -> None:
        """To the box above or below, to the left or to the right."""
        if self.flame is None:
            return
        if levels < 0 and len(self.chosen) > len(self.root):
            self.chosen = self.chosen[:-1]
        elif levels > 0 and at(self.flame, self.chosen).inside:
            self.chosen = (*self.chosen, 0)
        if beside and len(self.chosen) > len(self.root):
            level = [box for box in self._level(len(self.chosen) - len(self.root), self.size.width) if box.width]
            paths = [box.path for box in level]
            place = paths.index(self.chosen) + beside if self.chosen in paths else 0
            self.chosen = paths[max(0, min(place, len(paths) - 1))] if paths else self.chosen

    def zoom(self) -> None:
        """The chosen box fills the width."""
        self.root = self.chosen

    def out(self) -> bool:
        """One level out again; False where all of it is shown."""
        if not self.root:
            return False
        self.root, self.chosen = self.root[:-1], self.root
        return True

    def on_click(self, event: events.Click) -> None:
        """A box is pointed at."""
        level = event.y - 1 + self._hidden(self.size.height)
        if self.flame is None or level < 0:
            return
        for box in self._level(level, self.size.width):
            if box.start <= event.x < box.start + box.width:
                self.chosen = box.path
                self.post_message(SnapshotTurned())

    # Drawing

    def source(self) -> object:
        """The tree, and what of it is looked at."""
        return id(self.flame), self.root, self.chosen, self.look

    def draw(self, width: int, height: int) -> list[Row]:
        """The levels, and on the last two lines all there is to say of the chosen box."""
        line = Line().add(" ", " ").add(f" {self.title} ", roles.ACTIVE)
        if self.flame is None:
            return [line.row(width), EMPTY, Line().add(f"   {self.look.text(_NOT_READ)}", roles.DIM).row(width)]
        if self.root:
            line.add("  escape: one level out", roles.DIM)
        rows = [line.row(width)]
        hidden = self._hidden(height)
        room = max(1, height - 1 - 2)
        levels = self._levels(width, hidden + room)
        rows += [self._boxes(boxes, width) for boxes in levels[hidden:]]
        rows += [EMPTY] * (height - 2 - len(rows))
        return [*rows[: max(1, height - 2)], *self._chosen_words(self.flame, width)]

    def _hidden(self, height: int) -> int:
        """Levels above the topmost line, so that the chosen box is in sight."""
        return max(0, len(self.chosen) - len(self.root) + 1 - max(1, height - 3))

    def _levels(self, width: int, count: int) -> list[list[Box]]:
        if self.flame is None:
            return []
        levels = [[Box(self.root, 1, max(1, width - 2), at(self.flame, self.root))]]
        while len(levels) < count:
            boxes = [inner for box in levels[-1] for inner in _inside(box)]
            if not boxes:
                break
            levels.append(boxes)
        return levels

    def _level(self, level: int, width: int) -> list[Box]:
        levels = self._levels(width, level + 1)
        return levels[level] if level < len(levels) else []

    def _boxes(self, boxes: list[Box], width: int) -> Row:
        line = Line()
        bare = self.look.colors.mono
        for box in boxes:
            line.pad(box.start)
            gap = 1 if box.width >= _GAP_FROM else 0
            room = box.width - gap
            role = roles.ACTIVE if box.path == self.chosen else roles.ink(tenant(box.flame.category))
            text = clip(self.look.text(box.flame.label), room, self.look.glyphs.ellipsis) if room >= 4 else ""
            if len(cells(text)) + 11 <= room:
                text = f"{text} {units.size(box.flame.size_bytes)}"
            filled = "-" if bare or not self.look.glyphs.braille else " "
            length = len(cells(text))
            line.add(text, role).add((" " if length < room and text else "")[: room - length], role)
            line.add(filled * (box.start + room - line.width), role)
        return line.row(width)

    def _chosen_words(self, flame: Flame, width: int) -> list[Row]:
        box = at(flame, self.chosen)
        share = units.percent(box.size_bytes, flame.size_bytes)
        blocks = f"{box.blocks:,} block" + ("s" if box.blocks != 1 else "")
        what = f"{units.size(box.size_bytes)}, {share} of what is live, in {blocks}"
        if box.calls:
            what += f"; mostly {box.category}"
        path = " ← ".join(call.text for call in reversed(box.calls)) or "all that is live; enter: a box fills the width"
        ellipsis = self.look.glyphs.ellipsis
        return [
            Line().add(" ", " ").add(shorten(self.look.text(what), width - 2, ellipsis), roles.TEXT).row(width),
            Line().add(" ", " ").add(shorten(self.look.text(path), width - 2, ellipsis), roles.DIM).row(width),
        ]


def at(flame: Flame, path: tuple[int, ...]) -> Flame:
    """The box to which a path leads."""
    for place in path:
        flame = flame.inside[place]
    return flame


def _inside(box: Box) -> list[Box]:
    """The boxes under a box, those too narrow for a cell left out; what they do not add up to stays empty."""
    inside = box.flame.inside
    rest = box.flame.size_bytes - sum(each.size_bytes for each in inside)
    found, start = [], box.start
    for place, width in enumerate(shares([*(each.size_bytes for each in inside), rest], box.width)[:-1]):
        if width:
            found.append(Box((*box.path, place), start, width, inside[place]))
        start += width
    return found


def _same(before: Flame, after: Flame, path: tuple[int, ...]) -> tuple[int, ...]:
    """The path to the boxes of the same calls in another tree, as far as they are there."""
    found: list[int] = []
    for place in path:
        before = before.inside[place]
        match = next((index for index, each in enumerate(after.inside) if each.calls[:1] == before.calls[:1]), None)
        if match is None:
            break
        found.append(match)
        after = after.inside[match]
    return tuple(found)
