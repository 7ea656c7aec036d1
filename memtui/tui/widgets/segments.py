"""The segments tab: the allocator's address space as a map and by segment, what pins it, and what would fit."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import partial
from typing import Callable, ClassVar, Literal, Optional

from textual import events
from textual.binding import Binding, BindingType

from memtui.analysis import units
from memtui.analysis.bar import band
from memtui.analysis.segments import words
from memtui.analysis.segments.cells import CACHE, PENDING, PINNED, POOL_IDLE, Cell, cells_of, parts_of
from memtui.analysis.segments.space import Segment
from memtui.analysis.segments.summary import Space
from memtui.analysis.text import place_words
from memtui.session.fragments import Fragment
from memtui.tui import roles
from memtui.tui.look import Look
from memtui.tui.messages import TabTurned
from memtui.tui.prompt import Prompt
from memtui.tui.rows import Line, Row, cells, shorten

from .lines import Lines

Order = Literal["pinned", "size", "address"]
ORDERS: tuple[Order, ...] = ("pinned", "size", "address")
_WORDS = {"pinned": "most pinned first", "size": "largest first", "address": "by address"}
#: What is asked for, and how.
FIT, BATCH = "would it fit", "another batch"
_HOW = {
    FIT: "bytes, as 1.5GiB or 96KiB",
    BATCH: "x2 times the largest recorded, 4096 tokens, 96KiB of input",
}
WHEEL_LINES = 3
_MARK, _ADDRESS, _BYTES, _LEAST_BAR = 3, 14, 11, 24
_EIGHTHS, _PLAIN_EIGHTHS = " ▁▂▃▄▅▆▇█", " .:-=+*%#"
_TREND = (24, 60)
_MOST_MAP = 10
_FREE_KEYS = (PINNED, CACHE, POOL_IDLE, PENDING)


class SegmentMap(Lines, can_focus=True):
    """Shows a `Space`; focused, it has the keys to move through it and to ask."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "ask('would it fit')", "would so many bytes fit"),
        Binding("b", "ask('another batch')", "another batch or length"),
        Binding("r", "refresh_segments", "read them again"),
        Binding("s", "sort(1)", "the next order"),
        Binding("S", "sort(-1)", show=False),
        Binding("escape", "escape", show=False),
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "move(-1000000)", show=False),
        Binding("end", "move(1000000)", show=False),
    ]

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self.space: Optional[Space] = None
        self.trend: tuple[Fragment, ...] = ()
        self.age = ""  # "3 s ago"
        self.hint: tuple[str, str] = (roles.TEXT, "")  # (role, text) where there is no space
        self.answers: tuple[tuple[str, str], ...] = ()  # (role, text), the newest first
        self.order: Order = "pinned"
        self.marked: Optional[int] = None  # a segment's address
        self.first = 0  # of the rows in view
        self.prompt = Prompt()
        self.asked: Callable[[str, str], None] = lambda what, text: None
        self.wanted: Callable[[], None] = lambda: None
        self._room = 1
        self._made: dict[tuple[object, ...], list[Row]] = {}  # rows that change only with the space
        self._made_of: object = None

    # What is shown

    def source(self) -> object:
        """The space, what was answered, and what of it is in view."""
        prompt = self.prompt.question, self.prompt.text
        shown = self.order, self.marked, self.first
        return self.space, self.trend, self.age, self.hint, self.answers, shown, prompt

    def segments(self) -> list[Segment]:
        """In the order of the rows."""
        found = [] if self.space is None else list(self.space.segments)
        if self.order == "pinned":
            found.sort(key=lambda each: (-each.stuck_bytes, -each.size_bytes, each.address))
        elif self.order == "size":
            found.sort(key=lambda each: (-each.size_bytes, each.address))
        return found

    def _once(self, *key: object, make: Callable[[], list[Row]]) -> list[Row]:
        """What was made before of the same space, in the same look; only its age changes with every second."""
        made_of = self.space, self.look
        if made_of != self._made_of:
            self._made, self._made_of = {}, made_of
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def draw(self, width: int, height: int) -> list[Row]:
        """The sums and the answers, the map of it all or of the marked segment, a row a segment."""
        space = self.space
        if space is None:
            role, text = self.hint
            pieces = textwrap.wrap(self.look.text(text), max(10, min(90, width - 2)))
            asked = self._asked(width) if self.prompt.open or self.answers else []
            return [*(Line().add(" ", " ").add(piece, role).row(width) for piece in pieces), *asked]
        found = self.segments()
        marked = next((each for each in found if each.address == self.marked), None)
        head = [self._title(space, width), *self._facts(space, width, height), *self._asked(width)]
        lines = 2 if height >= 24 else 1
        foot = [
            *self._once("detail", self.marked, width, lines, make=lambda: self._detail(space, marked, width, lines)),
            *self._once("legend", width, make=lambda: self._legend(space, width)),
        ]
        free = max(0, height - len(head) - len(foot) - 2)  # less what the map and the table are called
        map_lines = min(_MOST_MAP, max(2, free // 4, free - len(found))) if free >= 5 else 0
        self._room = room = max(0, free - map_lines + (0 if map_lines else 1))
        self._show(found, marked, room)
        shown = found[self.first : self.first + room]
        head[0] = self._position(head[0], len(shown), len(found), width)
        rows = [*head]
        if map_lines:
            rows += [self._map_title(space, marked, width, map_lines)]
            make = partial(self._map, space, marked, width, map_lines)
            rows += self._once("map", self.marked, width, map_lines, make=make)
        if room:
            columns = _Columns(width)
            rows += [columns.head(self.order, self.look)]
            for segment in shown:
                is_marked = segment is marked
                make = partial(columns.rows, segment, is_marked, self.look)
                rows += self._once("row", segment.address, is_marked, width, make=make)
        return [*rows, *foot][:height]

    def _show(self, found: list[Segment], marked: Optional[Segment], room: int) -> None:
        """The marked row is in view, and the last row where there are fewer."""
        if marked is not None:
            place = found.index(marked)
            self.first = min(max(self.first, place - room + 1), place)
        self.first = max(0, min(self.first, len(found) - room))

    def _title(self, space: Space, width: int) -> Row:
        told = space.told
        count = len(space.segments) + told.others_count
        line = Line().add(" ", " ").add(f"{count:,} segment{'' if count == 1 else 's'} ", roles.BRIGHT)
        moment = place_words(told.phase, told.step)
        when = shorten(self.look.text(f"{moment} · {self.age}"), width - line.width - 1, self.look.glyphs.ellipsis)
        return line.add(when[: len(moment)], roles.TEXT).add(when[len(moment) :], roles.DIM).row(width)

    def _position(self, title: Row, shown: int, count: int, width: int) -> Row:
        text = self.look.text(_WORDS[self.order])
        if 0 < shown < count:
            text += f", {self.first + 1:,} to {self.first + shown:,} of {count:,}"
        text += " "
        if len(title.text.rstrip()) + len(text) + 2 > width:
            return title
        start = width - len(text)
        return Row(title.text[:start] + text, title.roles[:start] + roles.DIM * len(text))

    def _facts(self, space: Space, width: int, height: int) -> list[Row]:
        """What it comes to, the largest requests, and how it went."""
        rows = [
            *self._once("sums", width, make=lambda: [self._parts(words.sums_text(space), roles.TEXT, width)]),
            *self._once("largest", width, make=lambda: [self._parts(words.largest_text(space), roles.BRIGHT, width)]),
        ]
        if self.trend and height >= 16:
            rows.append(self._trend(width))
        return rows

    def _parts(self, text: str, role: str, width: int) -> Row:
        text = shorten(self.look.text(text), width - 2, self.look.glyphs.ellipsis)
        return Line().add(" ", " ").add(text, role).row(width)

    def _trend(self, width: int) -> Row:
        line = Line().add(" ", " ").add("most pinned in each step ", roles.DIM)
        values = [each.pinned_bytes for each in self.trend]
        count = min(len(values), max(_TREND[0], min(_TREND[1], width // 3)))
        # Each column shows the most of its steps: what was there only for a while is not lost.
        columns = [
            max(values[place * len(values) // count : (place + 1) * len(values) // count]) for place in range(count)
        ]
        most = max(columns)
        marks = _EIGHTHS if self.look.glyphs.braille else _PLAIN_EIGHTHS
        text = "".join(marks[-(-value * 8 // most) if most else 0] for value in columns)
        line.add(text, roles.ALLOCATED if not self.look.colors.mono else roles.TEXT).add(" ", " ")
        said = self.look.text(words.trend_text(self.trend))
        return line.add(shorten(said, width - line.width - 1, self.look.glyphs.ellipsis), roles.TEXT).row(width)

    def _asked(self, width: int) -> list[Row]:
        """The line that is typed, else the answers, else how to ask."""
        if self.prompt.open:
            line = (
                Line()
                .add(f" {self.prompt.question}? ", roles.KEY)
                .add(f"{self.look.text(self.prompt.text)}_", roles.ACTIVE)
            )
            line.add("  " + _HOW[self.prompt.question] + "  enter  escape", roles.DIM)
            return [line.row(width)]
        if not self.answers:
            line = Line().add(" ", " ").add("f", roles.KEY).add(" would so many bytes fit?   ", roles.DIM)
            return [line.add("b", roles.KEY).add(" another batch or length?", roles.DIM).row(width)]
        return [
            Line().add(" ", " ").add(piece, role).row(width)
            for role, text in self.answers
            for piece in textwrap.wrap(self.look.text(text), max(20, width - 2))[:3]
        ]

    # The map

    def _map_title(self, space: Space, marked: Optional[Segment], width: int, lines: int) -> Row:
        size = sum(each.size_bytes for each in space.segments) if marked is None else marked.size_bytes
        where = "all, by address" if marked is None else f"segment {marked.address:x} (escape: all)"
        text = f"{where} · a cell is {units.size(max(1, size // max(1, lines * (width - 4))))}"
        if space.pinned_bytes:
            text += " · underlined: pins free memory"
        if space.told.mixed_blocks:
            text += f" · {space.told.mixed_blocks:,} small blocks shown as their neighbours"
        if space.told.others_count:
            text += f" · without {space.told.others_count:,} small segments, {units.size(space.told.others_bytes)}"
        return self._parts(text, roles.DIM, width)

    def _map(self, space: Space, marked: Optional[Segment], width: int, lines: int) -> list[Row]:
        room = max(1, width - 4)
        found = cells_of(space.segments if marked is None else (marked,), room * lines)
        rows = []
        for place in range(lines):
            line = Line().add(" ", " ").add(self.look.glyphs.bar_left, roles.AXIS)
            _paint(line, found[place * room : (place + 1) * room], self.look)
            rows.append(line.add(self.look.glyphs.bar_right, roles.AXIS).row(width))
        return rows

    def _detail(self, space: Space, marked: Optional[Segment], width: int, lines: int) -> list[Row]:
        text = words.segment_text(marked) if marked is not None else ""
        if marked is None and space.pinned_bytes:
            text = f"pinned by {words.pinned_by_text(space.segments)}"
        if not text:
            return []
        text, ellipsis = self.look.text(text), self.look.glyphs.ellipsis
        pieces = textwrap.wrap(text, max(20, width - 3), break_on_hyphens=False)
        if len(pieces) > lines:
            pieces = [*pieces[: lines - 1], shorten(" ".join(pieces[lines - 1 :]), width - 3, ellipsis)]
        return [Line().add(" ", " ").add(piece, roles.TEXT).row(width) for piece in pieces]

    def _legend(self, space: Space, width: int) -> list[Row]:
        """The letters that are on the map, each with its bytes; on two lines at most."""
        sizes: dict[str, int] = {}
        for segment in space.segments:
            for part in parts_of(segment):
                sizes[part.key] = sizes.get(part.key, 0) + part.size_bytes
        live = sorted((key for key in sizes if key not in _FREE_KEYS), key=lambda key: -sizes[key])
        order = [*(key for key in _FREE_KEYS if key in sizes), *live]
        rows, line = [], Line().add(" ", " ")
        for key in order:
            shown = band(key, 0)
            text = f" {self.look.text(shown.label)} {units.size(sizes[key])}  "
            if line.width + 1 + len(cells(text)) > width:
                rows.append(line.row(width))
                line = Line().add(" ", " ")
            line.add(_letter(key, self.look), roles.ink(key)).add(text, roles.DIM)
        return [*rows, line.row(width)][:2]

    # Keys

    def on_key(self, event: events.Key) -> None:
        """While something is typed every key is text."""
        if not self.prompt.open:
            return
        question = self.prompt.question
        text = self.prompt.key(event)
        if text:
            self.asked(question, text)
        self.post_message(TabTurned())

    def on_paste(self, event: events.Paste) -> None:
        """Pasted text, while something is typed."""
        if self.prompt.open:
            event.stop()
            self.prompt.paste(event.text)
            self.post_message(TabTurned())

    def on_blur(self) -> None:
        """The keyboard goes elsewhere."""
        self.prompt.close()

    def on_mouse_scroll_down(self) -> None:
        """The wheel moves the mark."""
        self.action_move(WHEEL_LINES)

    def on_mouse_scroll_up(self) -> None:
        """The wheel moves the mark."""
        self.action_move(-WHEEL_LINES)

    def action_ask(self, question: str) -> None:
        """The keyboard writes what is asked for."""
        self.prompt.ask(question)
        self.post_message(TabTurned())

    def action_refresh_segments(self) -> None:
        """They are asked for again."""
        self.wanted()
        self.post_message(TabTurned())

    def action_sort(self, by: int) -> None:
        """Another order."""
        self.order = ORDERS[(ORDERS.index(self.order) + by) % len(ORDERS)]
        self.first = 0
        self.post_message(TabTurned())

    def action_escape(self) -> None:
        """All of it is shown again; then the answers go."""
        if self.marked is not None:
            self.marked, self.first = None, 0
        else:
            self.asked("", "")
        self.post_message(TabTurned())

    def action_move(self, lines: int) -> None:
        """Marks another segment, which the map then shows."""
        found = self.segments()
        if not found:
            return
        place = next((place for place, each in enumerate(found) if each.address == self.marked), None)
        start = place if place is not None else -1 if lines > 0 else len(found)
        self.marked = found[max(0, min(start + lines, len(found) - 1))].address
        self.post_message(TabTurned())

    def action_page(self, direction: int) -> None:
        """By what is in view."""
        self.action_move(direction * max(1, self._room - 1))


def _letter(key: str, look: Look) -> str:
    letter = look.text(band(key, 0).letter)
    return letter if len(letter) == 1 else "?"


def _paint(line: Line, found: Sequence[Optional[Cell]], look: Look) -> None:
    """Cells in the colour and with the letter of what most of each is; where free memory is pinned, of what pins it."""
    for cell in found:
        if cell is None:
            line.add(" ", " ")
        elif cell.pin:
            line.add(_letter(cell.pin if cell.key in _FREE_KEYS else cell.key, look), roles.pin(cell.key))
        else:
            line.add(_letter(cell.key, look), roles.fill(cell.key))


class _Columns:
    """Where the columns are; narrow screens have no addresses."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.address = _ADDRESS if width >= _MARK + _ADDRESS + 2 * _BYTES + _LEAST_BAR else 0
        self.bar = max(4, width - _MARK - self.address - 2 * _BYTES - 5)

    def head(self, order: str, look: Look) -> Row:
        def role(column: str) -> str:
            return roles.BRIGHT if order == column else roles.DIM

        line = Line().add(" " * _MARK, " ").add("address".ljust(self.address)[: self.address], role("address"))
        line.add("size".rjust(_BYTES), role("size")).add("pinned".rjust(_BYTES), role("pinned"))
        return line.add("   from its first byte to its last", roles.DIM).row(self.width)

    def rows(self, segment: Segment, marked: bool, look: Look) -> list[Row]:
        line = Line().add(f" {look.glyphs.marker} " if marked else "   ", roles.BRIGHT)
        line.add(f"{segment.address:x}".ljust(self.address)[: self.address], roles.DIM)
        line.add(_size(segment.size_bytes), roles.TEXT)
        stuck = segment.stuck_bytes
        line.add(_size(stuck) if stuck else "0".rjust(_BYTES - 4) + "    ", roles.WARNING if stuck else roles.DIM)
        line.add("  ", " ").add(look.glyphs.bar_left, roles.AXIS)
        _paint(line, cells_of((segment,), self.bar), look)
        return [line.add(look.glyphs.bar_right, roles.AXIS).row(self.width)]


def _size(size_bytes: int) -> str:
    unit = units.unit_of(size_bytes)
    return f"{units.number(size_bytes, unit):>{_BYTES - 4}} {unit:<3}"
